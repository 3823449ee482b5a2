"""The pace follows the traffic, and never lets a burst through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.telemetry.pace import LEAST_SHARE, PACE_S, SAVED_RECORDS_S, SMALL_TURN, Pace, in_share

LOAD = st.lists(st.integers(0, 50_000), min_size=1, max_size=30)


def run(pace: Pace, events: int, total: int, cost_s: float = 0.0) -> int:
    """So many events until the next look: how many of them are recorded."""
    recorded = round(events * pace.share)
    pace.recorded(recorded)
    pace.seen(total, PACE_S, busy_s=PACE_S, spent_s=recorded * cost_s)
    return recorded


@given(st.integers(10, 10_000), LOAD)
def test_what_is_recorded_lasts(most: int, counts: list[int]) -> None:
    pace, total, recorded = Pace(most), 0, 0
    for number, count in enumerate(counts, 1):
        total += count
        recorded += run(pace, count, total)
        assert LEAST_SHARE <= pace.share <= 1.0
        peak = max(counts[:number])  # more than was expected may come once, before it is seen
        assert recorded <= most * (SAVED_RECORDS_S + number * PACE_S) + peak * number
    for _ in range(50):
        total += 20_000
        run(pace, 20_000, total)
    after = 0
    for _ in range(50):
        total += 20_000
        after += run(pace, 20_000, total)
    lasting = max(min(most * PACE_S, 20_000), 20_000 * LEAST_SHARE)
    assert after == pytest.approx(lasting * 50, rel=0.1, abs=60), "all that it may, and no more"


@given(st.floats(0.01, 0.2), st.floats(1e-6, 5e-5), st.integers(2_000, 100_000))
def test_recording_takes_its_share_of_the_processor_and_no_more(most_cost: float, cost_s: float, load: int) -> None:
    pace, total, spent_s = Pace(10**9, most_cost), 0, 0.0
    for number in range(200):
        total += load
        recorded = run(pace, load, total, cost_s)
        if number >= 100:
            spent_s += recorded * cost_s
    everything = load * 100 * cost_s
    allowed = max(most_cost * 100 * PACE_S, everything * LEAST_SHARE)
    assert spent_s == pytest.approx(min(allowed, everything), rel=0.25)


@given(st.integers(10, 10_000))
def test_a_quiet_broker_records_everything_after_a_burst(most: int) -> None:
    pace = Pace(most, 0.03)
    pace.recorded(10 * most)
    pace.seen(10**6, PACE_S, PACE_S, 0.1)
    assert pace.share < 1.0
    for _ in range(200):
        pace.seen(10**6, PACE_S, 0.0, 0.0)
    assert pace.share == 1.0


@given(st.integers(10, 10_000), st.integers(0, 10**6), st.integers(0, 10_000))
def test_a_turn_is_thinned_to_what_is_left(most: int, count: int, before: int) -> None:
    pace = Pace(most)
    pace.recorded(before)
    share = pace.thinned(count)
    assert 0.0 < share <= 1.0
    if share < 1.0:
        assert count * share == pytest.approx(max(most * SAVED_RECORDS_S - before, SMALL_TURN))
    else:
        assert count <= max(most * SAVED_RECORDS_S - before, SMALL_TURN)


def test_a_broker_that_waits_for_a_processor_is_not_quiet() -> None:
    shares = []
    for waited_s in (0.0, PACE_S):
        pace = Pace(10**6, 0.03)
        for number in range(1, 50):
            recorded = round(1_000 * pace.share)
            pace.recorded(recorded)
            pace.seen(number * 1_000, PACE_S, 0.001, recorded * 1e-5, waited_s=waited_s)
        shares.append(pace.share)
    assert shares[1] < shares[0] / 5


def test_more_than_can_be_paid_is_told() -> None:
    pace = Pace(100)
    assert not pace.recorded(100)
    assert pace.recorded(1)


def test_without_a_bound_everything_is_recorded() -> None:
    pace = Pace(0, 0.03)
    assert not pace.recorded(10**9)
    assert pace.thinned(10**6) == 1.0
    assert pace.seen(10**9, PACE_S) == 1.0


@given(st.integers(0, 10**9), st.floats(0, 1), st.floats(0, 1))
def test_a_smaller_share_is_part_of_a_larger_one(number: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert in_share(number, high) or not in_share(number, low)
    assert in_share(number, 1.0)
    assert not in_share(number, 0.0)


def test_a_share_holds_its_part_of_the_numbers() -> None:
    assert abs(sum(in_share(number, 0.3) for number in range(10_000)) - 3_000) < 100
