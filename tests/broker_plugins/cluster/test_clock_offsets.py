"""What questions and answers tell of another clock: never more than is true."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.clock_offsets import MAX_AGE_US, ClockOffsets, sample

exchanges = st.lists(
    st.tuples(st.integers(0, 60_000_000), st.integers(0, 500_000), st.integers(0, 500_000)), min_size=1, max_size=30
)


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**9), 10**9), st.floats(-150e-6, 150e-6), exchanges)
def test_a_clock_is_never_further_off_than_is_said(offset: int, drift: float, plan: list[tuple[int, int, int]]) -> None:
    offsets = ClockOffsets()
    now = 0
    for pause, there, back in plan:
        now += pause
        answer = now + there + offset + round((now + there) * drift)
        offsets.add("b", sample(now, answer, now + there + back))
        now += there + back
        best = offsets.best("b", now)
        assert best is not None
        off = offset + round(now * drift)
        assert abs(best.offset_us - off) <= best.error_at(now) + 2
        assert abs(off) <= (offsets.apart_us("b", now) or 0) + 2
        assert offsets.widest_us(now) == offsets.apart_us("b", now)


def test_the_quickest_round_trip_says_most_until_it_is_old() -> None:
    offsets = ClockOffsets()
    assert offsets.apart_us("b", 0) is None
    offsets.add("b", sample(0, 1_000_050, 100))
    offsets.add("b", sample(1_000, 1_201_000, 401_000))
    assert offsets.apart_us("b", 401_000) == 1_000_000 + 51 + 80
    old = MAX_AGE_US
    offsets.add("b", sample(old, old + 1_010_000, old + 20_000))
    assert offsets.best("b", old + 20_000) == sample(old, old + 1_010_000, old + 20_000)


def test_a_clock_that_was_set_is_measured_anew() -> None:
    offsets = ClockOffsets()
    offsets.add("b", sample(0, 50, 100))
    offsets.add("b", sample(1_000_000, 31_250_000, 1_500_000))
    best = offsets.best("b", 1_500_000)
    assert best is not None
    assert best.offset_us == 30_000_000
    offsets.forget("b")
    assert offsets.best("b", 0) is None
    assert offsets.widest_us(0) == 0
