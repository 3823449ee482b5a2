from __future__ import annotations

import pytest

from benchmarks.causal import growth
from benchmarks.reproduction.causal_oracle import HistoryOracle
from benchmarks.reproduction.causal_timeline import play
from benchmarks.reproduction.causal_trace import KS, OURS, PRS, RST, Traffic, algorithms, run, trace


def test_all_algorithms_deliver_the_same_at_the_same_moments():
    traffic = Traffic(8, messages=400, warm_up=0)
    sends = trace(traffic)
    costs = {name: run(algorithm, traffic, sends) for name, algorithm in algorithms(traffic).items()}
    deliveries = {name: sorted(cost.deliveries) for name, cost in costs.items()}
    assert len(deliveries[OURS]) == 1200
    assert all(other == deliveries[OURS] for other in deliveries.values())
    assert costs[OURS].mean_wait_us > 0
    assert costs[OURS].packed < costs[PRS].packed
    assert costs[KS].plain < costs[RST].plain


def test_growth_finds_the_exponent():
    assert growth([(n, 3 * n**1.5) for n in (5, 10, 40)]) == pytest.approx(1.5)


def test_the_oracle_orders_waits_and_convicts():
    oracle = HistoryOracle(3, grace_us=0)
    first = oracle.send(0, stamp=10, deadline=110, destinations=[1, 2])
    assert oracle.arrive(1, first, now=20) == [first]
    second = oracle.send(1, stamp=21, deadline=121, destinations=[2])
    assert oracle.arrive(2, second, now=30) == []
    assert oracle.advance(2, 110) == []
    assert oracle.advance(2, 111) == [second]
    assert oracle.arrive(2, first, now=112) == []
    assert not oracle.violates(2, second)
    assert oracle.violates(2, first)


def test_the_drawn_run_shows_waiting_expiry_and_lateness():
    fates = {(fate.message.label, fate.destination): fate for fate in play()}
    assert fates["m2", "west"].delivered == fates["m1", "west"].arrived
    assert fates["m4", "west"].delivered == pytest.approx(330 + 250, abs=0.01)
    assert fates["m5", "south"].delivered is None
