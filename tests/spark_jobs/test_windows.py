from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.buckets import NO_BUCKET, bucket_of, latency_in
from spark_jobs.windows import CubeRow, LiveWindows, quantile, summary, topic_of

NOW = 1_767_225_600


def row(second: int, metric: str = "publishes", value: float = 1.0, **more: object) -> CubeRow:
    values = {"node": "n1", "incarnation": 1, "scope": "node", "key": "", "bucket": NO_BUCKET, **more}
    return CubeRow(second=NOW + second, metric=metric, value=value, **values)  # type: ignore[arg-type]


def shown(windows: LiveWindows, second: int) -> dict[str, dict[str, object]]:
    changed = windows.shown({"n1": (NOW + second) * 1_000_000})
    return {topic: json.loads(payload) if payload else {} for topic, payload in changed}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 10**8), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_within_two_and_a_half_percent(latencies: list[int], share: float) -> None:
    buckets: dict[int, float] = {}
    for latency in latencies:
        buckets[bucket_of(latency)] = buckets.get(bucket_of(latency), 0) + 1
    ordered = sorted(latencies)
    exact = next(v for at, v in enumerate(ordered, 1) if at >= share * len(ordered) - 1e-9)
    assert quantile(buckets, share) == pytest.approx(exact, rel=0.025)


@given(st.floats(1, 1e12))
def test_a_bucket_stands_for_its_latencies(latency: float) -> None:
    assert latency_in(bucket_of(latency)) == pytest.approx(latency, rel=0.025)


def test_a_window_is_shown_when_it_is_over_and_again_when_it_changes() -> None:
    windows = LiveWindows()
    windows.add([row(0), row(0), row(1)])
    first = shown(windows, 1)
    assert first["locus/metrics/n1/1s"]["publishes"] == 2
    assert shown(windows, 1) == {}
    windows.add([row(0)])
    assert shown(windows, 1)["locus/metrics/n1/1s"]["publishes"] == 3
    assert shown(windows, 2)["locus/metrics/n1/1s"]["publishes"] == 1
    assert shown(windows, 10)["locus/metrics/n1/10s"] | {"from": ""} == {
        "from": "",
        "seconds": 10,
        "publishes": 4,
        "publishes_per_s": 0.4,
        "deliveries": 0,
        "deliveries_per_s": 0,
        "drops": 0,
        "drops_per_s": 0,
    }


def test_windows_that_end_together_are_shown_one_after_another() -> None:
    windows = LiveWindows()
    list(windows.shown({"n1": NOW * 1_000_000}))
    windows.add([row(0), row(1), row(1), row(2)])
    changed = windows.shown({"n1": (NOW + 3) * 1_000_000})
    counts = [json.loads(payload)["publishes"] for topic, payload in changed if topic == "locus/metrics/n1/1s"]
    assert counts == [1, 2, 1]


def test_what_is_quiet_is_zero_and_then_gone() -> None:
    windows = LiveWindows(horizon_s=100)
    windows.add([row(0, scope="prefix", key="cars")])
    assert shown(windows, 1)["locus/metrics/n1/1s/prefix/cars"]["publishes"] == 1
    assert shown(windows, 2)["locus/metrics/n1/1s/prefix/cars"]["publishes"] == 0
    assert shown(windows, 500)["locus/metrics/n1/1s/prefix/cars"] == {}


def test_only_the_busiest_keys_are_shown() -> None:
    windows = LiveWindows(most_keys=2)
    windows.add(row(0, scope="prefix", key=f"p{n}", value=float(n)) for n in range(1, 6))
    topics = {topic for topic in shown(windows, 1) if "/1s/prefix/" in topic}
    assert topics == {"locus/metrics/n1/1s/prefix/p4", "locus/metrics/n1/1s/prefix/p5"}


def test_gauges_count_from_the_start_of_the_latest_run() -> None:
    windows = LiveWindows()
    windows.add([row(0, "connections", 3.0), row(5, "connections", -1.0)])
    assert shown(windows, 3)["locus/metrics/n1/1s"]["connections"] == 3
    assert shown(windows, 6)["locus/metrics/n1/1s"]["connections"] == 2
    windows.add([row(7, "connections", 1.0, incarnation=2)])
    assert shown(windows, 8)["locus/metrics/n1/1s"]["connections"] == 1


def test_matches_are_summed_up_as_their_mean_width() -> None:
    assert summary({("matches", NO_BUCKET): 4.0, ("match_width", NO_BUCKET): 1.0}, 1)["match_width_mean"] == 0.25


def test_a_topic_has_no_wildcards() -> None:
    assert topic_of("n", "1s", "prefix", "a+#") == "locus/metrics/n/1s/prefix/a__"
    assert topic_of("n", "1s", "prefix", "") != topic_of("n", "1s", "prefix", "_")


def test_a_prefix_of_any_length_has_a_topic_of_its_own() -> None:
    long = ["x" * 65_000, "x" * 65_001, "\u20ac" * 20_000]
    topics = {topic_of("n1", "10s", "prefix", key) for key in [*long, "", "_", "x" * 200]}
    assert len(topics) == 6
    assert max(len(topic.encode()) for topic in topics) < 500
    assert topic_of("n1", "10s", "prefix", "") == "locus/metrics/n1/10s/prefix/"


def test_a_flood_of_prefixes_is_bounded_and_what_is_shown_is_whole() -> None:
    """Each second brings new prefixes, far more than are remembered; those that stay are exact all the time."""
    windows = LiveWindows(most_keys=3, most_held=10)
    counted: dict[str, list[float]] = {}
    for second in range(90):
        values = {"steady": 50.0, **{f"flood{second}-{n}": 1.0 for n in range(40)}}
        if second >= 45:
            values["late"] = 40.0
        if second == 20:
            values["late"] = 0.5  # too quiet to be remembered then
        for key, value in values.items():
            counted.setdefault(key, [0.0] * 90)[second] += value
        windows.add(row(second, value=value, scope="prefix", key=key) for key, value in values.items())
        for topic, said in shown(windows, second + 1).items():
            key = topic.rpartition("/")[2]
            if said and "/prefix/" in topic:
                start = int(datetime.fromisoformat(str(said["from"])).timestamp()) - NOW
                width = int(str(said["seconds"]))
                if start >= 0:
                    assert said["publishes"] == sum(counted[key][start : start + width]), (topic, said)
    assert {len(places) for places in windows._seconds["n1"].values()} <= set(range(12))
    assert len(windows._since["n1"]) <= 11
    assert {"locus/metrics/n1/10s/prefix/steady", "locus/metrics/n1/10s/prefix/late"} <= windows.topics


def test_topics_of_a_process_before_are_removed_unless_they_show_something() -> None:
    windows = LiveWindows()
    old = topic_of("n1", "10s", "prefix", "gone")
    other = topic_of("n2", "10s", "prefix", "gone")
    still = topic_of("n1", "10s", "prefix", "here")
    windows.recall([old, other, still])
    windows.add([row(0, scope="prefix", key="here")])
    changed = dict(windows.shown({"n1": (NOW + 10) * 1_000_000}))
    assert changed[old] == b""
    assert json.loads(changed[still])["publishes"] == 1
    assert other not in changed, "of a node nothing was heard of"
    assert windows.topics >= {still, other}
