"""Access control holds across nodes: publishing is asked where it happens, receiving where it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker_plugins.cluster.nodes import cluster
from tests.broker_plugins.cluster.test_plugin import publish_all
from tests.mqtt_wire import connect, publish

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("guard", ["Secrets", "SlowSecrets"])
def test_access_control_across_nodes(tmp_path: Path, guard: str) -> None:
    with (
        cluster(tmp_path, "a", "b", plugins={f"tests.broker_plugins.smart_guards.{guard}": {}}) as nodes,
        connect(nodes.port("b"), "insider") as insider,
        connect(nodes.port("b"), "outsider") as outsider,
        connect(nodes.port("a"), "sender") as sender,
    ):
        assert insider.subscribe(("#", 1)) == [1]
        assert outsider.subscribe(("#", 1), ("secret/#", 1), ("$share/g/hidden/+", 1)) == [1, 0x80, 1]
        nodes.wait_heard(insider, "a", "open/probe")
        outsider.messages_until_ping()
        texts = [str(number).encode() for number in range(20)]
        publish_all(sender, "locked/1", [b"nobody may say this"], 2)
        publish_all(sender, "hidden/1", texts, 2)
        sender.send(publish("hidden/kept", b"kept", retain=True))
        publish_all(sender, "open/1", texts, 1)
        got = insider.messages(41)
        for topic, said in (("hidden/1", texts), ("open/1", texts), ("hidden/kept", [b"kept"])):
            assert [each.payload for each in got if each.topic == topic] == said
        assert {each.topic for each in outsider.messages(20)} == {"open/1"}
        assert not outsider.messages_until_ping()
        with connect(nodes.port("b"), "late") as late:
            late.subscribe(("hidden/#", 1))
            assert not late.messages_until_ping()
        assert "Traceback" not in nodes.nodes["b"].log
