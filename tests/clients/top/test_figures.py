from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.top.figures import RATED, Figures, Share, figure

RECEIVED = "publish/messages/received"


def told(figures, name, value, now_s, **how):
    figures.take(f"$SYS/broker/{name}", str(value).encode(), now_s, **how)


rounds = st.lists(
    st.tuples(
        st.floats(min_value=0.1, max_value=60.0),
        st.fixed_dictionaries({name: st.integers(min_value=0, max_value=10**6) for name in RATED}),
    ),
    min_size=2,
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(rounds)
def test_rates_are_growth_over_time(story):
    """A broker tells the uptime first, and of the totals those that changed."""
    figures = Figures()
    now, totals, said = 0.0, dict.fromkeys(RATED, 0), {}
    for number, (elapsed, growth) in enumerate(story):
        now += elapsed
        told(figures, "uptime", f"{int(now)} seconds", now)
        for name in RATED:
            totals[name] += growth[name]
            if said.get(name) != totals[name]:
                said[name] = totals[name]
                told(figures, name, totals[name], now)
        if number:
            for name in RATED:
                if growth[name]:
                    assert figures.rates[name] == pytest.approx(growth[name] / elapsed, rel=1e-6)
    told(figures, "uptime", f"{int(now + 1)} seconds", now + 1)
    for name in RATED:
        if not story[-1][1][name]:
            assert figures.rates.get(name, 0.0) == 0.0


def test_the_first_round_goes_by_the_seconds_of_the_broker():
    """What is retained was told some time ago: our own clock does not know when."""
    figures = Figures()
    told(figures, "uptime", "100 seconds", 7.0, retained=True)
    told(figures, RECEIVED, 1000, 7.0, retained=True)
    told(figures, "uptime", "110 seconds", 8.0)
    told(figures, RECEIVED, 1500, 8.0)
    assert figures.rates[RECEIVED] == 50.0
    told(figures, "uptime", "120 seconds", 18.5)
    told(figures, RECEIVED, 1710, 18.5)
    assert figures.rates[RECEIVED] == 20.0


def test_a_broker_that_starts_again_starts_anew():
    figures = Figures()
    told(figures, "uptime", "100 seconds", 0.0)
    told(figures, RECEIVED, 1000, 0.0)
    told(figures, "uptime", "110 seconds", 10.0)
    told(figures, RECEIVED, 2000, 10.0)
    told(figures, "uptime", "0 seconds", 12.0)
    told(figures, RECEIVED, 3, 12.0)
    assert figures.rates == {}
    assert figures.number(RECEIVED) == 3
    told(figures, "uptime", "10 seconds", 22.0)
    told(figures, RECEIVED, 13, 22.0)
    assert figures.rates[RECEIVED] == 1.0


def test_what_does_not_change_has_the_rate_zero():
    figures = Figures()
    for now in (0.0, 10.0, 20.0, 30.0):
        told(figures, "uptime", f"{int(now)} seconds", now)
        if not now:
            told(figures, "publish/messages/dropped", 0, now)
    assert figures.rates["publish/messages/dropped"] == 0.0


def test_the_busiest_topics_come_first():
    figures = Figures()
    for prefix, publishes in (("a", 5), ("b", 50), ("c", 0), ("d", 20)):
        said = json.dumps({"publishes": publishes, "deliveries": 1 if publishes else 0}).encode()
        figures.take(f"locus/metrics/n1/10s/prefix/{prefix}", said, 0.0)
    assert [each.name for each in figures.busiest(3)] == ["b", "d", "a"]
    figures.take("locus/metrics/n1/10s/prefix/b", b"", 0.0)
    assert [each.name for each in figures.busiest(3)] == ["d", "a"]


def test_a_node_comes_and_goes():
    figures = Figures()
    said = {"from": "2026-01-01T00:00:00Z", "seconds": 10, "publishes": 3}
    figures.take("locus/metrics/n1/10s", json.dumps(said).encode(), 0.0)
    figures.take("locus/metrics/n1/1min", json.dumps({**said, "seconds": 60}).encode(), 0.0)
    assert figures.nodes["n1"].window["publishes"] == 3
    assert figures.nodes["n1"].minute["seconds"] == 60
    assert figures.measured_s() == 1767225610.0
    figures.take("locus/metrics/n1/10s", b"", 0.0)
    assert figures.nodes == {}
    assert figures.measured_s() is None


def test_nodes_own_blocks_of_the_map():
    figures = Figures()
    blocks = [{"owner": "a", "load": 2.5}, {"owner": "b", "load": 1}, {"owner": "a"}, {"id": "q1"}, "?"]
    figures.take("$SYS/broker/locus/cluster/blocks", json.dumps({"blocks": blocks}).encode(), 0.0)
    assert figures.owners == {"a": Share(2, 2.5), "b": Share(1, 1.0)}
    assert figures.values == {}
    figures.take("$SYS/broker/locus/cluster/blocks", b"", 0.0)
    assert figures.owners == {}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "$SYS/broker/uptime",
                    "$SYS/broker/locus/cluster/blocks",
                    f"$SYS/broker/{RECEIVED}",
                    "locus/metrics/n/10s",
                    "locus/metrics/n/1min",
                    "locus/metrics/n/10s/prefix/a/b",
                    "locus/metrics/n",
                    "locus/metrics/n/10s/cell/u33",
                ]
            ),
            st.one_of(
                st.binary(max_size=20),
                st.text(max_size=20).map(str.encode),
                st.integers().map(lambda number: str(number).encode()),
                st.dictionaries(
                    st.sampled_from(["from", "seconds", "publishes", "blocks"]),
                    st.none() | st.integers() | st.text(max_size=5) | st.floats(),
                ).map(lambda said: json.dumps(said).encode()),
            ),
        ),
        max_size=20,
    )
)
def test_anybody_may_publish_anything(messages):
    figures = Figures()
    for now, (topic, payload) in enumerate(messages):
        figures.take(topic, payload, float(now))
        figures.measured_s()
        figures.busiest(5)
        figures.number(RECEIVED)


def test_what_is_no_number_has_not_happened():
    assert figure({"publishes": "many"}, "publishes") == 0.0
    assert figure({}, "publishes") == 0.0
