"""What a node acknowledged while it was cut off reaches sessions that moved meanwhile, once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.broker_plugins.cluster.nodes import cluster
from tests.broker_plugins.cluster.test_faults import kill_fabric, texts
from tests.broker_plugins.cluster.test_plugin import connect_again, payloads, publish_all
from tests.broker_plugins.cluster.test_random import Ways
from tests.mqtt_wire import DISCONNECT, connect, wait_for

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("way", "silently"), [("c", False), ("c and b", False), ("c, where others listen", False), ("c", True)]
)
def test_what_was_kept_for_the_former_node_follows_the_session(tmp_path: Path, way: str, silently: bool) -> None:
    kept, later = texts("kept", 20), texts("later", 5)
    with ExitStack() as stack:
        nodes = Ways(tmp_path, stack, {})
        nodes.start_fabric()
        for name in "abc":
            nodes.start(name)
        nodes.wait_joined()
        first = connect(nodes.port("b"), "mover", clean=False)
        first.subscribe(("log/#", 2), ("$geo/bbox:-10,-10,10,10/places/#", 1))
        nodes.wait_heard(first, "a", "log/probe")
        publisher = stack.enter_context(connect(nodes.port("a"), "publisher"))
        if "others" in way:
            other = stack.enter_context(connect(nodes.port("c"), "other"))
            other.subscribe(("log/#", 2))
        nodes.cut("a", silently=silently)
        publish_all(publisher, "log/1", kept, 2)
        publish_all(publisher, "places/1/@at:20,20", [b"not wanted"], 1)
        publish_all(publisher, "places/1/@at:1,1", [b"in the area"], 1)
        for name in "bc":
            wait_for(lambda name=name: "node a has said nothing" in nodes.nodes[name].log, f"{name} to miss a", 60)
        first.send(DISCONNECT)
        first.wait_until_closed()
        moved = connect_again(nodes, "c", "mover")
        if way == "c and b":
            moved.send(DISCONNECT)
            moved.wait_until_closed()
            moved = connect_again(nodes, "b", "mover")
        nodes.mend("a")
        assert sorted(payloads(moved, 21)) == sorted([*kept, b"in the area"])
        publish_all(publisher, "log/1", later, 2)
        assert payloads(moved, 5) == later
        assert not moved.messages_until_ping()
        moved.close()


@pytest.mark.parametrize("node_first", [False, True])
def test_who_fled_while_there_was_no_fabric_gets_what_went_to_its_former_node(tmp_path: Path, node_first: bool) -> None:
    before, after = texts("before", 20), texts("after", 5)
    with cluster(tmp_path, "a", "b") as nodes:
        first = connect(nodes.port("a"), "mover", clean=False)
        first.subscribe(("log/#", 2))
        nodes.wait_heard(first, "b", "log/probe")
        with connect(nodes.port("b"), "publisher") as publisher:
            kill_fabric(nodes)
            nodes.nodes["a"].kill()
            wait_for(lambda: "cannot reach the fabric" in nodes.nodes["b"].log, "b to be alone", 60)
            publish_all(publisher, "log/1", before, 2)
            moved = connect(nodes.port("b"), "mover", clean=False)
            moved.subscribe(("log/#", 2))
            publish_all(publisher, "log/1", after, 2)
            assert payloads(moved, 5) == after
            starts = [nodes.start_fabric, lambda: nodes.start("a")]
            for start in reversed(starts) if node_first else starts:
                start()
            assert payloads(moved, 20) == before
            nodes.wait_joined("a")
            later = texts("later", 5)
            publish_all(publisher, "log/1", later, 2)
            assert payloads(moved, 5) == later
            assert not moved.messages_until_ping()
            moved.close()
