"""What is in the spool is what clients did, over real sockets."""

from __future__ import annotations

import json
import random
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from benchmarks.peers import BrokerDidNotStartError
from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.engine import EngineError, Hooks
from broker_plugins.engine.hooks import HookTable
from broker_plugins.telemetry import TABLES, parse_segment
from broker_plugins.telemetry.options import TelemetryOptions
from broker_plugins.telemetry.plugin import TelemetryPlugin
from broker_plugins.telemetry.schema import SchemaError
from tests.broker_plugins.smart import GEO, RANKED
from tests.brokers import ALLOW_ANONYMOUS, RunningBroker, locus
from tests.mqtt_wire import Kind, connect, publish, unsubscribe, wait_for

if TYPE_CHECKING:
    from pathlib import Path

RETAINED = "broker_plugins.retained.plugin.RetainedPlugin"
TELEMETRY = "broker_plugins.telemetry.plugin.TelemetryPlugin"
EVERYTHING = {"node": "n1", "max_messages_per_s": 0, "roll_s": 0.2}


def plugins(spool: Path, **options: Any) -> dict[str, dict[str, Any]]:
    ranked = {"topics": {"jobs/#": {"attributes": {"age": [0, 100]}}}}
    telemetry = {"spool_dir": str(spool), **EVERYTHING, **options}
    return {**ALLOW_ANONYMOUS, GEO: {}, RANKED: ranked, TELEMETRY: telemetry}


def rows(spool: Path, table: str) -> list[dict[str, Any]]:
    """All records of a table in their order."""
    if not (spool / f"table={table}").exists():
        return []
    found = ds.dataset(spool / f"table={table}", partitioning="hive").to_table().to_pylist()
    found.sort(key=lambda row: (row["incarnation"], row["sequence"]))
    return found


def no_gaps(spool: Path) -> None:
    """Every record is there once, where the name of its segment says."""
    for table in TABLES:
        by_run: dict[int, list[int]] = {}
        for row in rows(spool, table):
            by_run.setdefault(row["incarnation"], []).append(row["sequence"])
        for sequences in by_run.values():
            assert sequences == list(range(1, len(sequences) + 1)), table
    for path in spool.rglob("*.parquet"):
        segment = parse_segment(path.name)
        assert pq.ParquetFile(path).metadata.num_rows == segment.last - segment.first + 1


def test_every_table_equals_a_count_of_what_clients_did(tmp_path: Path) -> None:
    chance = random.Random(5)
    spool = tmp_path / "spool"
    published: Counter[tuple[str, int, bool, int]] = Counter()
    delivered: Counter[tuple[str, str]] = Counter()
    with locus(plugins=plugins(spool), directory=tmp_path) as broker:
        readers = [connect(broker.port, f"reader-{number}") for number in range(3)]
        for number, reader in enumerate(readers):
            reader.subscribe((f"t/{number}/#", 1), ("t/all", 0))
        with connect(broker.port, "writer") as writer:
            for number in range(300):
                topic = chance.choice(["t/0/a", "t/1/b", "t/2", "t/all", "t/none"])
                qos, retain, payload = chance.choice([0, 0, 1]), chance.random() < 0.1, b"x" * chance.randrange(50)
                writer.send(publish(topic, payload, qos=qos, retain=retain, packet_id=number + 1))
                published[topic, qos, retain, len(payload)] += 1
            writer.messages_until_ping()
        for number, reader in enumerate(readers):
            delivered.update((f"reader-{number}", each.topic) for each in reader.messages_until_ping())
        readers[0].send(unsubscribe("t/all"))
        readers[0].expect(Kind.UNSUBACK)
        for reader in readers:
            reader.close()
        wait_for(lambda: len(rows(spool, "sessions")) >= 12, "all sessions have ended")
    no_gaps(spool)
    found = rows(spool, "publishes")
    assert Counter((row["topic"], row["qos"], row["retain"], row["bytes"]) for row in found) == published
    assert {row["client"] for row in found} == {"writer"}
    assert Counter((row["client"], row["topic"]) for row in rows(spool, "deliveries")) == delivered
    by_message = {row["message"]: row for row in found}
    for row in rows(spool, "deliveries"):
        assert by_message[row["message"]]["topic"] == row["topic"]
        assert 0 <= row["latency_us"] < 10_000_000
        assert not row["retained"]
    assert {row["weight"] for table in TABLES for row in rows(spool, table)} == {1.0}
    events = Counter(row["event"] for row in rows(spool, "sessions"))
    assert events == {"connected": 4, "disconnected": 4, "ended": 4}
    filters = Counter((row["event"], row["filter"]) for row in rows(spool, "subscriptions"))
    assert filters["subscribed", "t/all"] == filters["unsubscribed", "t/all"] == 3
    assert all(filters[event, f"t/{number}/#"] == 1 for event in ("subscribed", "unsubscribed") for number in range(3))
    totals = {row["counter"]: row["value"] for row in rows(spool, "totals")}
    assert totals["messages_received"] == 300
    assert totals["deliveries"] == sum(delivered.values())


def test_positions_matches_places_and_retained_deliveries(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with (
        locus(plugins=plugins(spool), directory=tmp_path) as broker,
        connect(broker.port, "a") as wide,
        connect(broker.port, "b") as narrow,
        connect(broker.port, "w") as writer,
    ):
        wide.subscribe(("$where/age=20..60/jobs/x", 0))
        narrow.subscribe(("$where/age=20..25/jobs/x", 0))
        writer.send(publish("locus/me/position", json.dumps({"lon": 127.0, "lat": 37.5}).encode()))
        writer.send(publish("jobs/x/@top:1", b'{"age": 22}'))
        writer.send(publish("cars/1", b'{"lon": 10, "lat": 20}'))
        writer.send(publish("cars/2/@area:10,20,30,40", b"binary"))
        writer.send(publish("kept", b"12345", retain=True))
        writer.messages_until_ping()
        wide.subscribe(("kept", 0))
        assert [each.topic for each in wide.messages_until_ping()] == ["kept"]
    no_gaps(spool)
    (position,) = rows(spool, "positions")
    assert (position["client"], position["lon"], position["lat"]) == ("w", 127.0, 37.5)
    (match,) = rows(spool, "matches")
    assert (match["client"], match["rank"], match["wanted"], match["chosen"]) == ("b", 1, 1, 1)
    assert match["accuracy"] == pytest.approx(0.05)
    places = {row["topic"]: (row["lon"], row["lat"]) for row in rows(spool, "publishes")}
    assert places == {"jobs/x": (None, None), "cars/1": (10, 20), "cars/2": (20, 30), "kept": (None, None)}
    deliveries = {row["topic"]: row for row in rows(spool, "deliveries")}
    assert deliveries["jobs/x"]["message"] == match["message"]
    assert (deliveries["kept"]["client"], deliveries["kept"]["retained"]) == ("a", True)
    assert deliveries["kept"]["latency_us"] is None


def test_decisions_on_retained_messages_are_told_with_their_outcome(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    retained = {RETAINED: {"topics": {"r/#": {"d_max_s": 30, "kappa": 0.001, "prior_gap_s": 1}}}}
    with (
        locus(plugins={**plugins(spool), **retained}, directory=tmp_path) as broker,
        connect(broker.port, "r") as reader,
        connect(broker.port, "w") as writer,
    ):
        for payload in (b"1", b"22"):
            writer.send(publish("r/a", payload, retain=True))
            writer.messages_until_ping()
        reader.subscribe(("r/a", 0))
        assert reader.messages_until_ping() == [], "it waits for something newer"
        writer.send(publish("r/a", b"333", retain=True))
        writer.messages_until_ping()
        assert [each.payload for each in reader.messages_until_ping()] == [b"333"]
    no_gaps(spool)
    (decision,) = rows(spool, "retained_decisions")
    assert (decision["topic"], decision["topic_class"], decision["gaps"]) == ("r/a", "r/#", 1)
    assert decision["wait_s"] > 0
    assert 0 <= decision["residual_s"] <= decision["observed_s"]
    assert decision["saved"] == (decision["residual_s"] <= decision["wait_s"])
    assert decision["decided_at"] <= decision["at"]
    assert decision["propensity"] == 1.0


def test_weights_add_up_where_messages_are_sampled(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    shares = {"publishes": 0.5, "deliveries": 0.25, "sessions": 0.0}
    with (
        locus(plugins=plugins(spool, shares=shares), directory=tmp_path) as broker,
        connect(broker.port, "r") as reader,
        connect(broker.port, "w") as writer,
    ):
        reader.subscribe(("a/#", 0))
        for _ in range(40):
            writer.send(*(publish(f"a/{number % 5}", b"x") for number in range(100)))
            writer.messages_until_ping()
            assert len(reader.messages_until_ping()) == 100
        writer.send(publish("a/kept", b"x", retain=True))
        writer.messages_until_ping()
    no_gaps(spool)
    assert rows(spool, "sessions") == []
    found = rows(spool, "publishes")
    assert [row["weight"] for row in found if row["retain"]] == [1.0]
    assert {row["weight"] for row in found if not row["retain"]} == {2.0}
    for table in ("publishes", "deliveries"):
        assert sum(row["weight"] for row in rows(spool, table)) == pytest.approx(4_001, rel=0.15)
    assert {row["weight"] for row in rows(spool, "deliveries")} <= {4.0, 2.0}


def test_a_burst_is_sampled_and_still_counted_about_right(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with (
        locus(plugins=plugins(spool, max_messages_per_s=1_000), directory=tmp_path) as broker,
        connect(broker.port, "w") as writer,
    ):
        packet = publish("a", b"x" * 10)
        for _ in range(50):
            writer.send(packet * 1_000)
        writer.messages_until_ping(60)
    no_gaps(spool)
    found = rows(spool, "publishes")
    assert len(found) < 25_000
    assert sum(row["weight"] for row in found) == pytest.approx(50_000, rel=0.4)
    assert {row["counter"]: row["value"] for row in rows(spool, "totals")}["messages_received"] == 50_000


def test_drops_are_told_with_their_reason(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with locus(plugins=plugins(spool), engine={"max_queued_messages": 2}, directory=tmp_path) as broker:
        with connect(broker.port, "away", clean=False) as away:
            away.subscribe(("a", 1))
        with connect(broker.port, "w") as writer:
            for number in range(5):
                writer.send(publish("a", b"xy", qos=1, packet_id=number + 1))
            writer.send(publish("$forbidden", b""))
            writer.messages_until_ping()
    no_gaps(spool)
    found = Counter((row["reason"], row["client"], row["topic"], row["bytes"]) for row in rows(spool, "drops"))
    assert found == {("dropped_queue_full", "away", "a", 2): 3, ("refused_publishes", None, "$forbidden", 0): 1}
    queued = [row["queued"] for row in rows(spool, "deliveries")]
    assert queued == [True, True]


def test_a_kill_leaves_whole_segments_and_the_next_run_is_another_incarnation(tmp_path: Path) -> None:
    spool = tmp_path / "spool"

    def publish_some(broker: RunningBroker) -> None:
        with connect(broker.port, "w") as writer:
            for _ in range(20):
                writer.send(publish("a", b"x"))
            writer.messages_until_ping()

    with locus(plugins=plugins(spool), directory=tmp_path) as broker:
        publish_some(broker)
        wait_for(lambda: len(rows(spool, "publishes")) == 20, "the records are written while the broker runs")
        publish_some(broker)
        broker.kill()
    no_gaps(spool)
    assert len(rows(spool, "publishes")) in (20, 40)
    with locus(plugins=plugins(spool), directory=tmp_path) as broker:
        publish_some(broker)
    no_gaps(spool)
    assert len({row["incarnation"] for row in rows(spool, "publishes")}) == 2


def test_a_spool_that_cannot_be_written_does_not_stop_the_broker(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.write_text("in the way")
    settings = {"retry_s": 0.1, "max_buffered_records": 100}
    with locus(plugins=plugins(spool, **settings), directory=tmp_path) as broker:
        with connect(broker.port, "r") as reader, connect(broker.port, "w") as writer:
            reader.subscribe(("a", 0))
            writer.send(*(publish("a", b"x") for _ in range(500)))
            writer.messages_until_ping()
            assert len(reader.messages_until_ping()) == 500
            wait_for(lambda: "telemetry cannot be written" in broker.log, "the broker says so")
            spool.unlink()
            wait_for(lambda: "can be written to" in broker.log, "the broker says that it can write again")
            writer.send(publish("a", b"x"))
            writer.messages_until_ping()
            wait_for(lambda: any(row["sequence"] == 501 for row in rows(spool, "publishes")), "the next is recorded")
        assert broker.log.count("telemetry cannot be written") == 1
    sequences = [row["sequence"] for row in rows(spool, "publishes")]
    assert len(sequences) < 501, "what found no room is a gap"
    assert sorted(set(sequences)) == sequences


def test_nothing_is_recorded_where_telemetry_is_off(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with (
        locus(plugins=plugins(spool, enabled=False), directory=tmp_path) as broker,
        connect(broker.port, "w") as writer,
    ):
        writer.send(publish("a", b"x", retain=True))
        writer.messages_until_ping()
    assert not spool.exists()


def test_without_pyarrow_the_broker_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / "pyarrow.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(missing))
    with pytest.raises(BrokerDidNotStartError) as told, locus(plugins=plugins(tmp_path / "spool"), directory=tmp_path):
        pass
    assert "pip install 'locus-mqtt[telemetry]'" in str(told.value)
    assert "Traceback" not in str(told.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"node": "a/b"}, "letters, digits"),
        ({"shares": {"publish": 1}}, "no table 'publish'"),
        ({"shares": {"drops": 1.5}}, "between 0"),
        ({"roll_s": 0}, "roll_s: 0 is too small"),
        ({"max_messages_per_s": -1}, "0 sets no bound"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        TelemetryOptions(**options)


def named(tmp_path: Path, options: dict[str, Any], in_cluster: str | None) -> str:
    """What a telemetry plugin calls its broker, beside a plugin that knows another name for it or not."""

    class Clustered(Hooks):
        node_name = in_cluster

    plugin = TelemetryPlugin(SimpleNamespace(config=TelemetryOptions(spool_dir=str(tmp_path), **options)))
    return plugin._name_of(SimpleNamespace(hooks=HookTable([plugin, Clustered()])))


def test_a_broker_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "broker-1")
    assert ClusterOptions().node == "broker-1"
    assert named(tmp_path, {}, None) == "broker-1"
    assert named(tmp_path, {}, "node-2") == "node-2"
    assert named(tmp_path, {"node": "node-3"}, None) == "node-3"
    assert named(tmp_path, {"node": "node-3"}, "node-3") == "node-3"
    with pytest.raises(EngineError, match=r"'a' in telemetry is 'b' in the cluster: leave it out"):
        named(tmp_path, {"node": "a"}, "b")
    with pytest.raises(SchemaError, match="letters, digits, dashes"):
        named(tmp_path, {}, "_b")


@pytest.mark.parametrize("host", ["gate.example.org", "_x y", "..", "été"])
def test_a_machine_of_any_name_has_one_that_fits(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert named(tmp_path, {}, None) == ClusterOptions().node


def test_records_carry_the_name_with_its_dash(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with (
        locus(plugins=plugins(spool, node="broker-1"), directory=tmp_path) as broker,
        connect(broker.port, "c") as client,
    ):
        client.send(publish("t", b"m"))
        client.messages_until_ping()
        wait_for(lambda: bool(rows(spool, "publishes")), "a record", 60)
    no_gaps(spool)
    assert {row["node"] for row in rows(spool, "publishes")} == {"broker-1"}
    assert {parse_segment(path.name).node for path in spool.rglob("*.parquet")} == {"broker-1"}
