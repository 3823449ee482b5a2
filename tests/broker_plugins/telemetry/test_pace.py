"""The pace follows the traffic, and never lets a burst through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.telemetry.pace import PACE_S, Pace, in_share


@given(st.integers(1, 10_000), st.lists(st.integers(0, 50_000), min_size=1, max_size=20))
def test_the_share_is_what_would_have_fitted(most: int, counts: list[int]) -> None:
    pace, total = Pace(most), 0
    for count in counts:
        total += count
        share = pace.seen(total, PACE_S)
        assert 0.0 < share <= 1.0
        fitting = most * PACE_S
        assert share == (fitting / count if count > fitting else 1.0)


@given(st.integers(10, 10_000), st.integers(1, 500))
def test_a_burst_between_two_looks_is_recorded_in_part(most: int, turn: int) -> None:
    pace, recorded = Pace(most), 0
    for _ in range(1_000):  # turns of a burst, each with as many events
        count = round(turn * pace.share)
        recorded += count
        pace.recorded(count)
    assert recorded <= most * PACE_S + 3 * turn
    pace.seen(0, PACE_S)
    assert pace.share == 1.0


def test_without_a_bound_everything_is_recorded() -> None:
    pace = Pace(0)
    assert not pace.recorded(10**9)
    assert pace.seen(10**9, PACE_S) == 1.0


@given(st.integers(0, 10**9), st.floats(0, 1), st.floats(0, 1))
def test_a_smaller_share_is_part_of_a_larger_one(number: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert in_share(number, high) or not in_share(number, low)
    assert in_share(number, 1.0)
    assert not in_share(number, 0.0)


def test_a_share_holds_its_part_of_the_numbers() -> None:
    assert abs(sum(in_share(number, 0.3) for number in range(10_000)) - 3_000) < 100
