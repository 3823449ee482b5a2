from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given

from spatial_index import BadCoordinate, BadCount, BadInterval, Interval
from spatial_index.interval import finite, positive_count
from tests.spatial_index.ranked_worlds import LARGEST, holds, intervals, values


@given(intervals(), values)
def test_an_interval_contains_what_its_ends_say(interval, value):
    assert (value in interval) == holds(interval, value)


@given(intervals())
def test_a_width_is_infinite_only_without_an_end(interval):
    assert (interval.width == math.inf) == (math.inf in (-interval.low, interval.high))
    if interval.width < LARGEST:
        assert interval.width == float(Fraction(interval.high) - Fraction(interval.low))


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        ((math.nan, 1.0), "nan"),
        ((0.0, math.nan), "nan"),
        ((2.0, 1.0), "[2.0, 1.0]"),
        ((1.0, 1.0, True, True), "(1.0, 1.0)"),
        ((1.0, 1.0, True, False), "(1.0, 1.0]"),
        ((1.0, 1.0, False, True), "[1.0, 1.0)"),
        ((math.inf, math.inf), "[inf, inf]"),
        ((-math.inf, -math.inf), "[-inf, -inf]"),
        (("low", 1.0), "'low'"),
        ((0.0, None), "None"),
        ((0, 10**400), "10000"),
    ],
)
def test_a_bad_interval_is_named(ends, named):
    with pytest.raises(BadInterval) as refusal:
        Interval(*ends)
    assert named in str(refusal.value)


def test_whole_numbers_become_floats():
    interval = Interval(1, 2)
    assert (interval.low, interval.high) == (1.0, 2.0)
    assert type(interval.low) is type(interval.high) is float


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "near", None, 10**400])
def test_a_value_must_be_finite(value):
    with pytest.raises(BadCoordinate, match=r"the value is .*finite"):
        finite(value, "the value")


@pytest.mark.parametrize("k", [0, -3, 2.0, True, "2", None])
def test_a_count_must_be_a_positive_whole_number(k):
    with pytest.raises(BadCount, match=str(k)):
        positive_count(k)
