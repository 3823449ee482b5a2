"""Windows and counters as they come over MQTT, and the numbers that are made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_jobs.dashboard.board import Board
from spark_jobs.dashboard.traffic import KEPT, MOST_NODES, Figures, Metrics, last, quantile_series, window_row


def window(minute: int, second: int = 0, **values: float) -> bytes:
    return json.dumps({"from": f"2026-05-04T09:{minute:02d}:{second:02d}Z", "seconds": 10, **values}).encode()


def test_windows_of_nodes_add_up_and_quantiles_are_those_of_the_slowest() -> None:
    metrics = Metrics()
    for node, rate, p99 in (("n1", 10.0, 500.0), ("n2", 5.0, 900.0)):
        metrics.take(
            f"locus/metrics/{node}/10s", window(1, publishes_per_s=rate, latency_p99_us=p99), 1.0, retained=False
        )
    metrics.take("locus/metrics/n1/10s", window(1, 10, publishes_per_s=7.0), 2.0, retained=False)
    assert [value for _, value in metrics.series("publishes_per_s")] == [15.0, 7.0]
    assert [value for _, value in metrics.series("publishes_per_s", node="n2")] == [5.0]
    assert metrics.total("publishes_per_s") == 12.0
    assert metrics.total("nothing") is None
    assert [value for _, value in quantile_series(metrics)["p99"]] == [0.9, None]
    assert last(quantile_series(metrics)["p99"]) == 0.9


def test_a_window_that_comes_again_replaces_itself() -> None:
    metrics = Metrics()
    for rate in (1.0, 2.0):
        metrics.take("locus/metrics/n1/10s", window(1, publishes_per_s=rate), 1.0, retained=False)
    metrics.take("locus/metrics/n1/10s", window(0, publishes_per_s=9.0), 1.0, retained=False)  # from before
    assert [value for _, value in metrics.series("publishes_per_s")] == [2.0]


def test_what_was_retained_from_before_is_no_sign_of_spark() -> None:
    metrics = Metrics()
    metrics.take("locus/metrics/n1/10s", window(1), 1.0, retained=True)
    assert metrics.heard_s is None
    metrics.take("locus/metrics/n1/10s", window(2), 5.0, retained=False)
    assert metrics.heard_s == 5.0


def test_prefixes_are_listed_busiest_first_and_go_when_they_are_removed() -> None:
    metrics = Metrics()
    for prefix, rate in (("a", 1.0), ("b", 3.0)):
        payload = window(1, publishes_per_s=rate, latency_p99_us=2_500.0)
        metrics.take(f"locus/metrics/n1/10s/prefix/{prefix}", payload, 1.0, retained=False)
    rows = [window_row(*place) for place in metrics.places("prefix")]
    assert rows == [["b", "n1", 3.0, 0.0, 0.0, 2.5], ["a", "n1", 1.0, 0.0, 0.0, 2.5]]
    metrics.take("locus/metrics/n1/10s/prefix/b", b"", 2.0, retained=False)
    assert [key for _, key, _ in metrics.places("prefix")] == ["a"]


def test_prefixes_where_nothing_flows_are_not_listed() -> None:
    metrics = Metrics()
    metrics.take(
        "locus/metrics/n1/10s/prefix/locus", window(1, publishes_per_s=0.0, positions=360.0), 1.0, retained=False
    )
    assert metrics.places("prefix") == []


def test_means_of_nodes_are_weighed_and_not_added_up() -> None:
    metrics = Metrics()
    metrics.take("locus/metrics/n1/10s", window(1, matches=3.0, match_width_mean=0.2), 1.0, retained=False)
    metrics.take("locus/metrics/n2/10s", window(1, matches=1.0, match_width_mean=0.6), 1.0, retained=False)
    metrics.take("locus/metrics/n1/10s", window(2), 1.0, retained=False)
    (_, mean), (_, nothing) = metrics.mean("match_width_mean", "matches")
    assert mean == pytest.approx(0.3)
    assert nothing is None


def test_what_is_kept_is_bounded() -> None:
    metrics = Metrics()
    for number in range(MOST_NODES + 5):
        metrics.take(f"locus/metrics/n{number}/10s", window(1), 1.0, retained=False)
    assert len(metrics.nodes) == MOST_NODES
    for number in range(KEPT["1min"] + 50):
        start = f"2026-05-04T{number // 60:02d}:{number % 60:02d}:00Z"
        payload = json.dumps({"from": start, "seconds": 60}).encode()
        metrics.take("locus/metrics/n1/1min", payload, 1.0, retained=False)
    assert len(metrics.nodes["n1"].windows["1min"]) == KEPT["1min"]


@pytest.mark.parametrize(
    "payload", [b"", b"x", b"[]", b'{"from": 1, "seconds": 10}', b'{"from": "then", "seconds": 1}']
)
def test_what_is_no_window_is_passed_over(payload: bytes) -> None:
    metrics = Metrics()
    assert not metrics.take("locus/metrics/n1/10s", payload, 1.0, retained=False)
    assert not metrics.nodes


def round_of(figures: Figures, at_s: float, **values: Any) -> None:
    figures.take("$SYS/broker/uptime", f"{at_s:.0f} seconds".encode(), at_s)
    for name, value in values.items():
        topic = f"$SYS/broker/publish/messages/{name}"
        figures.take(topic, str(value).encode(), at_s + 0.01)


def test_rates_are_what_counters_grow_between_rounds_also_when_only_some_are_told() -> None:
    figures = Figures()
    round_of(figures, 0.0, received=100, sent=50)
    round_of(figures, 10.0, received=200)  # a counter that stands still is not told again
    figures.settle(10.1)
    assert figures.rates("publish/messages/received") == []  # the second round may still be coming
    figures.settle(10.9)
    assert figures.rates("publish/messages/received") == [(10.0, 10.0)]
    assert figures.rate("publish/messages/sent") == 0.0
    assert figures.number("uptime") == 10.0


def test_a_broker_that_starts_anew_counts_anew() -> None:
    figures = Figures()
    for at_s, received in ((0.0, 100), (10.0, 200), (20.0, 5), (30.0, 25)):
        round_of(figures, at_s, received=received)
    figures.settle(31.0)
    assert figures.rates("publish/messages/received") == [(30.0, 2.0)]


def test_the_board_sends_each_message_where_it_belongs() -> None:
    board = Board()
    board.take("$SYS/broker/clients/connected", b"3", 1.0)
    board.take("locus/metrics/n1/10s", window(1, publishes_per_s=1.0), 1.0)
    board.take("locus/metrics/handovers", b'{"client": "c", "from": "n1", "to": "n2"}', 1.0)
    board.take("$SYS/broker/locus/cluster/nodes", b'{"n1": {}}', 1.0)
    board.take("city/vehicles/v/pos", b'{"lon": 1, "lat": 2}', 1.0)
    board.take("city/jobs/receipts", b'{"topic": "t", "count": 0, "receivers": []}', 1.0)
    board.take("anything/else", b"\x00", 1.0)
    assert board.figures.values == {"clients/connected": "3"}
    assert board.metrics.total("publishes_per_s") == 1.0
    assert list(board.handovers) == [(1.0, "c", "n1 → n2")]
    assert board.told_live("c", 15.0)
    assert not board.told_live("d", 1.0)
    assert board.cluster == {"nodes": {"n1": {}}}
    assert board.scene.counts()["vehicle"] == 1
    assert board.matches.total == 1
    assert board.messages == 7
