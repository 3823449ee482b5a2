from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from clients.top.figures import Figures
from clients.top.picture import duration, latency, picture

WINDOW = {
    "from": "2026-01-01T00:00:00Z",
    "seconds": 10,
    "publishes": 5000,
    "publishes_per_s": 500.0,
    "deliveries": 9000,
    "deliveries_per_s": 900.0,
    "drops": 0,
    "drops_per_s": 0.0,
    "latency_p50_us": 210.0,
    "latency_p95_us": 900.0,
    "latency_p99_us": 2500.0,
    "connections": 61,
    "subscriptions": 90,
}
MINUTE = {
    **WINDOW,
    "seconds": 60,
    "retained_decisions": 200,
    "retained_saved": 150,
    "retained_bytes_saved": 12_000,
    "matches": 40,
    "match_width_mean": 0.123,
}
NOW_S = 1767225615.0


def drawn(figures, away=None, now_s=NOW_S):
    console = Console(file=io.StringIO(), width=120)
    console.print(picture(figures, "127.0.0.1:1883", away, now_s))
    return console.file.getvalue()


def full():
    figures = Figures()
    for now, uptime, received in ((0.0, 90, 1000), (10.0, 100, 6000)):
        figures.take("$SYS/broker/uptime", f"{uptime} seconds".encode(), now)
        figures.take("$SYS/broker/publish/messages/received", str(received).encode(), now)
    figures.take("$SYS/broker/clients/connected", b"61", 0.0)
    figures.take("$SYS/broker/heap/current", b"159158272", 0.0)
    figures.take("locus/metrics/node1/10s", json.dumps(WINDOW).encode(), 0.0)
    figures.take("locus/metrics/node1/1min", json.dumps(MINUTE).encode(), 0.0)
    figures.take("locus/metrics/node1/10s/prefix/city", json.dumps(WINDOW).encode(), 0.0)
    return figures


def test_everything_is_in_the_picture():
    said = drawn(full())
    assert "127.0.0.1:1883 is up for 1 min 40 s" in said
    assert "500.0 /s" in said
    assert "159.2 MB" in said
    for words in ("node1", "210 µs", "900 µs", "2.5 ms", "61", "city/…", "150 (75%)", "12.0 kB", "0.123"):
        assert words in said
    assert "Spark" not in said


def test_a_cluster_is_in_the_picture_without_spark_too():
    figures = Figures()
    blocks = {"blocks": [{"owner": "node2", "load": 31.25}]}
    figures.take("$SYS/broker/locus/cluster/blocks", json.dumps(blocks).encode(), 0.0)
    said = drawn(figures)
    assert "The map" in said
    assert "node2" in said
    assert "31.2" in said


def test_a_broker_that_is_away_is_said():
    figures = full()
    figures.lost()
    said = drawn(figures, away="the connection was lost")
    assert "127.0.0.1:1883 is away: the connection was lost; trying again" in said
    assert "messages in" not in said


def test_a_pipeline_that_is_not_there_is_said():
    figures = Figures()
    figures.take("$SYS/broker/uptime", b"5 seconds", 0.0)
    assert "start `locus pipeline`" in drawn(figures)


def test_a_pipeline_that_is_silent_is_said():
    assert "What Spark shows is 1 min 35 s old" in drawn(full(), now_s=NOW_S + 90)


def test_a_broker_that_tells_nothing_is_said():
    assert "add SysTopicsPlugin" in drawn(Figures())


numbers = st.floats() | st.integers() | st.none() | st.text(max_size=4)
windows = st.dictionaries(st.sampled_from([*MINUTE]), numbers | st.just("0001-01-01T00:00:00"))
names = st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), max_size=9)


@settings(max_examples=100, deadline=None)
@given(names, windows, windows, st.dictionaries(st.sampled_from(["uptime", "heap/current"]), numbers))
def test_whatever_is_published_can_be_drawn(name, window, minute, values):
    figures = Figures()
    for topic, said in values.items():
        figures.take(f"$SYS/broker/{topic}", str(said).encode(), 0.0)
    figures.take(f"locus/metrics/{name}/10s", json.dumps(window).encode(), 0.0)
    figures.take(f"locus/metrics/{name}/1min", json.dumps(minute).encode(), 0.0)
    figures.take(f"locus/metrics/{name}/10s/prefix/{name}", json.dumps(window).encode(), 0.0)
    blocks = {"blocks": [{"owner": name, "load": window.get("drops")}]}
    figures.take("$SYS/broker/locus/cluster/blocks", json.dumps(blocks).encode(), 0.0)
    drawn(figures)


def test_names_cannot_command_the_terminal():
    figures = Figures()
    figures.take("locus/metrics/[red]\x1b[2J/10s", json.dumps(WINDOW).encode(), 0.0)
    said = drawn(figures)
    assert "[red]?[2J" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3700, "1 h 1 min"), (200_000, "2 days 7 h")],
)
def test_times_are_said_as_people_do(seconds, said):
    assert duration(seconds) == said


def test_latencies_are_said_as_people_do():
    assert [latency(value) for value in (12.4, 1500, None)] == ["12 µs", "1.5 ms", "–"]
