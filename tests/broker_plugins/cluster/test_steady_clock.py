"""A clock that is neither set back nor stands still."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.cluster.steady_clock import STEP_US, SteadyClock


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-(10**7), 10**7)), max_size=50))
def test_it_goes_on_whatever_is_done_to_the_wall_clock(plan: list[tuple[int, int]]) -> None:
    true, wall = 1000, 10**15
    clock = SteadyClock(lambda: wall, lambda: true)
    before = clock.now()
    for passed, step in plan:
        true += passed
        wall += passed + step
        now = clock.now()
        assert now - before >= passed
        assert now >= wall - STEP_US
        before = now


def test_it_tells_the_time_of_day_and_follows_it_when_it_is_set_forward_only() -> None:
    true, wall = 0, 10**15
    clock = SteadyClock(lambda: wall, lambda: true)
    assert clock.now() == wall
    wall += 3_600_000_000
    assert clock.now() == wall
    wall -= 7_200_000_000
    true += 5
    assert clock.now() == 10**15 + 3_600_000_005
