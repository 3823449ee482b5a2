"""Intervals and values the tests of ranked matching share: few numbers, so that ends, widths and values collide."""

from __future__ import annotations

import math
import sys

from hypothesis import strategies as st

from spatial_index import Interval

LARGEST = sys.float_info.max
SMALLEST = 5e-324
ENDS = [
    *(step / 2 for step in range(-4, 17)),
    *(math.nextafter(1.0, 9), -0.0, SMALLEST, -SMALLEST, 1e-300, 1e16, 1e16 + 2, -1e300, 1e308, LARGEST, -LARGEST),
]
values = st.sampled_from(ENDS) | st.integers(-3, 9).map(float) | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low, high = sorted((draw(values), draw(values)))
    low = draw(st.sampled_from([low, low, low, low, -math.inf]))
    high = draw(st.sampled_from([high, high, high, high, math.inf]))
    if low == high:
        return Interval(low, high)
    return Interval(low, high, draw(st.booleans()), draw(st.booleans()))


def holds(interval: Interval, value: float) -> bool:
    """Containment written out end by end, unlike the structures, which move open ends to the next float."""
    above = value > interval.low if interval.low_open else value >= interval.low
    below = value < interval.high if interval.high_open else value <= interval.high
    return above and below
