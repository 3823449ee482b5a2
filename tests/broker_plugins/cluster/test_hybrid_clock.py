"""Readings only grow, and follow what was observed, whatever the wall clock does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.cluster.hybrid_clock import COUNTER_BITS, HybridClock


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10_000)), max_size=60))
def test_readings_grow_and_follow_causality(steps: list[tuple[int, int]]) -> None:
    walls = [0, 0, 0, 0]
    clocks = [HybridClock(lambda number=number: walls[number]) for number in range(4)]
    seen = [0, 0, 0, 0]
    for node, wall in steps:
        walls[node] = wall  # it may jump back
        reading = clocks[node].now()
        assert reading > seen[node]
        assert reading >= wall << COUNTER_BITS
        seen[node] = reading
        other = wall % 4
        clocks[other].observe(reading)
        seen[other] = max(seen[other], reading)


def test_a_clock_that_is_years_ahead_is_not_followed() -> None:
    clock = HybridClock(lambda: 1_000, max_ahead_ms=500)
    clock.observe(1_400 << COUNTER_BITS)
    assert clock.now() > 1_400 << COUNTER_BITS
    clock.observe(9_000_000 << COUNTER_BITS)
    assert clock.now() < 2_000 << COUNTER_BITS
    assert clock.ignored == 1
