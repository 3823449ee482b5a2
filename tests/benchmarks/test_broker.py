"""The load generator must count right, or no figure it gives means anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from benchmarks import broker, peers
from benchmarks.connections import connect_rate, memory_per_connection
from benchmarks.latency import latency
from benchmarks.load import Outcome, ceiling, stream
from tests.brokers import RunningBroker, locus, mosquitto, needs_mosquitto

Start = Callable[[], AbstractContextManager[RunningBroker]]
BROKERS = [pytest.param(mosquitto, marks=needs_mosquitto), locus]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("window", [1, 20])
@pytest.mark.parametrize("start", BROKERS)
def test_everything_sent_is_delivered_and_counted(start: Start, qos: int, window: int) -> None:
    with (
        start() as peer,
        stream(peer, topics=[["a/1", "a/2"]], filters=[["a/+"], ["a/#"]], copies=2, qos=qos, window=window) as flow,
    ):
        outcome = flow.run(0.05)
    assert outcome.dropped == 0
    assert outcome.figures[""] > 0


@pytest.mark.parametrize("start", BROKERS)
def test_what_never_arrives_is_counted(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    monkeypatch.setattr("benchmarks.load.SILENCE_SECONDS", 0.2)
    with start() as peer, stream(peer, topics=[["a/1"]], filters=[["b/1"]], copies=1, qos=0, window=8) as flow:
        outcome = flow.run(0.05)
    assert outcome.dropped == 8


@pytest.mark.parametrize("start", BROKERS)
def test_latency_connects_and_memory(start: Start) -> None:
    with start() as peer:
        waits = latency(peer, rate=500, seconds=0.1)
        connects = connect_rate(peer, beside=10, seconds=0.05)
        memory = memory_per_connection(peer, 50)
    assert 0 < waits.figures["p50"] <= waits.figures["p99"] <= waits.figures["p99.9"]
    assert waits.dropped == 0
    assert connects.figures[""] > 0
    assert memory.figures["held"] == 50


@needs_mosquitto
def test_report_has_a_row_for_each_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "locus", lambda **_: peers.mosquitto())  # what is tested is the report
    lines: list[str] = []
    report = broker.measure(quick=True, progress=lines.append, only=["QoS 0, one at a time"])
    rows = [row for row in json.loads(report.as_json())["rows"] if row["load"].startswith("one to one")]
    assert [row["peer"] for row in rows] == ["mosquitto", "amqtt"]
    assert [row["target"] for row in rows] == [1.0, None]
    assert all(row["ratio"] > 0 for row in rows)
    assert any("one to one, QoS 0, one at a time" in line for line in lines)


def test_generator_alone_is_far_above_any_broker() -> None:
    assert ceiling(0.05) > 1_000_000


def test_a_peer_that_fails_is_noted_and_one_of_ours_is_not_hidden() -> None:
    load = broker.Load("nothing", {"": broker.Figure("nothing", "msg/s")}, lambda *_: Outcome({"": 1.0}, 0, 0))
    results = broker.Results(load)
    results.outcomes["locus"].append(Outcome({"": 2.0}, 0.5, 0.9, dropped=3))
    results.failures["amqtt"] = "it went away"
    rows = list(broker._rows(results))
    assert [(row.peer, row.peer_value, row.note) for row in rows] == [("amqtt", None, "amqtt failed: it went away")]
