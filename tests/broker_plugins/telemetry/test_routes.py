"""Which node a message was sent on to, and which node a client came from, in a cluster of two."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from tests.broker_plugins.cluster.nodes import cluster
from tests.mqtt_wire import connect, publish, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mqtt_wire import Wire

pytestmark = pytest.mark.xdist_group("cluster-telemetry")

TELEMETRY = "broker_plugins.telemetry.plugin.TelemetryPlugin"
ROUNDS = 20


def rows(spool: Path, table: str) -> list[dict[str, Any]]:
    if not (spool / f"table={table}").exists():
        return []
    return list(ds.dataset(spool / f"table={table}", partitioning="hive").to_table().to_pylist())


def test_routes_and_handovers_are_recorded_where_they_happen(tmp_path: Path) -> None:
    telemetry: dict[str, object] = {"spool_dir": "spool", "max_messages_per_s": 0, "roll_s": 0.1}
    with cluster(tmp_path, "a", "b", plugins={TELEMETRY: telemetry}) as nodes:
        nodes.wait_joined()
        with (
            connect(nodes.port("b"), "plain") as plain,
            connect(nodes.port("b"), "near") as near,
            connect(nodes.port("a"), "writer") as writer,
        ):
            plain.subscribe(("t/#", 1))
            near.subscribe(("$geo/bbox:10,10,20,20/g/#", 1))
            nodes.wait_heard(plain, "a", "t/probe")
            wait_for(
                lambda: _heard(writer, near, publish("g/probe/@at:15,15", b"probe")), "places travel from a to b", 60
            )
            for number in range(ROUNDS):
                writer.send(publish(f"t/{number}", b"xyz", qos=1, packet_id=number + 1))
                writer.send(publish(f"g/{number}/@at:15,15", b"xyz", qos=0))
                writer.send(publish(f"nobody/{number}", b"xyz"))
            writer.messages_until_ping()
            got = Counter(_topics(plain) + _topics(near))
            assert got == Counter(f"{kind}/{number}" for kind in "tg" for number in range(ROUNDS))
        with connect(nodes.port("a"), "roamer", clean=False) as roamer:
            roamer.subscribe(("r/#", 1))
        with connect(nodes.port("b"), "roamer", clean=False):
            spool = tmp_path / "b" / "spool"
            wait_for(lambda: bool(rows(spool, "handovers")), "the handover is recorded", 60)
    (handover,) = rows(tmp_path / "b" / "spool", "handovers")
    assert (handover["client"], handover["from_node"], handover["to_node"]) == ("roamer", "a", "b")
    assert handover["subscriptions"] == 1
    assert rows(tmp_path / "a" / "spool", "handovers") == []
    found = [row for row in rows(tmp_path / "a" / "spool", "routes") if "probe" not in row["topic"]]
    assert Counter((row["topic"], row["to_node"], row["via"]) for row in found) == Counter(
        (f"{kind}/{number}", "b", {"t": "filter", "g": "region"}[kind]) for kind in "tg" for number in range(ROUNDS)
    )
    assert {(row["bytes"], row["weight"]) for row in found} == {(3, 1.0)}
    published = {row["message"]: row["topic"] for row in rows(tmp_path / "a" / "spool", "publishes")}
    assert all(published[row["message"]] == row["topic"] for row in found)
    assert rows(tmp_path / "b" / "spool", "routes") == [], "what came from another node is not sent on"


def _topics(reader: Wire) -> list[str]:
    """The topics of the messages that matter; a probe may be late."""
    topics: list[str] = []
    while len(topics) < ROUNDS:
        topics += [each.topic for each in reader.messages(1, 60) if "probe" not in each.topic]
    return topics


def _heard(writer: Wire, reader: Wire, packet: bytes) -> bool:
    writer.send(packet)
    writer.messages_until_ping()
    return bool(reader.messages_until_ping())
