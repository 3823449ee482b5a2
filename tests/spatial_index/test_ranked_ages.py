"""Ties in a ranked index go by age where ages are given, whatever the order of adding."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from spatial_index import Interval, RankedBoxes

WIDTHS = (1.0, 2.0, 5.0)


@settings(max_examples=60, deadline=None)
@given(ages=st.lists(st.integers(-(2**62), 2**62), unique=True, max_size=60), data=st.data())
def test_few_boxes(ages, data) -> None:
    index: RankedBoxes[int] = RankedBoxes({"v": (0.0, 10.0)})
    ranks = {}
    for age in ages:
        width = data.draw(st.sampled_from(WIDTHS))
        index.add(age, {"v": Interval(5 - width, 5 + width)}, age)
        ranks[age] = (width, age)
    best = sorted(ages, key=ranks.__getitem__)
    assert index.containing({"v": 5.0}) == best
    for most in (1, 3, 20):
        assert index.top({"v": 5.0}, most) == best[:most]


@pytest.mark.parametrize("seed", [1, 2])
def test_many_boxes_that_come_and_go(seed: int) -> None:
    """As many as are sorted in several times, among them always some that are older than all before."""
    rng = random.Random(seed)
    index: RankedBoxes[int] = RankedBoxes({"v": (0.0, 10.0)})
    ranks: dict[int, tuple[float, int]] = {}
    for number in range(3_000):
        age = rng.choice([number * 1_000, -number * 1_000, rng.randrange(10**6) * 1_000 + 500]) + number
        width = rng.choice(WIDTHS)
        index.add(number, {"v": Interval(5 - width, 5 + width)}, age)
        ranks[number] = (width, age)
        if rng.random() < 0.2:
            gone = rng.choice([*ranks])
            index.remove(gone)
            del ranks[gone]
        if number % 100 == 99:
            best = sorted(ranks, key=ranks.__getitem__)
            most = rng.choice([1, 10, 500])
            assert index.top({"v": 5.0}, most) == best[:most]
            assert index.containing({"v": 5.0}) == best
