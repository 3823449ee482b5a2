"""The conditions of a `$where`, ready to be asked: where in a payload each number is, and between what it must lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker_plugins.places import number_at
from spatial_index.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from broker_plugins.grammar import Interval as SaidInterval
    from broker_plugins.grammar import Where


@dataclass(slots=True, frozen=True)
class Test:
    """One condition: the attribute, the way to its number, and the least and greatest number that satisfy it."""

    attribute: str
    path: tuple[str, ...]
    first: float
    last: float


class Conditions:
    """All conditions of one subscription: they all must hold, and a number that is missing satisfies none.

    Args:
        tests: the conditions.
    """

    __slots__ = ("tests",)

    def __init__(self, tests: tuple[Test, ...]) -> None:
        self.tests = tests

    @classmethod
    def of(cls, where: Where) -> Conditions:
        """The conditions that a client said."""
        tests = []
        for condition in where.conditions:
            interval = interval_of(condition.interval)
            tests.append(Test(condition.attribute, condition.path, interval.first, interval.last))
        return cls(tuple(tests))

    def hold(self, content: Any) -> bool:
        """Whether they hold for a payload."""
        for test in self.tests:
            value = number_at(content, test.path)
            if value is None or not test.first <= value <= test.last:
                return False
        return True

    def hold_at(self, point: Mapping[str, float]) -> bool:
        """Whether they hold for numbers taken out of a payload before."""
        return all(test.first <= point.get(test.attribute, math.nan) <= test.last for test in self.tests)

    def beside(self, attributes: Collection[str]) -> Conditions | None:
        """Those that speak of other attributes than these; None if there are none."""
        rest = tuple(test for test in self.tests if test.attribute not in attributes)
        return Conditions(rest) if rest else None


def interval_of(said: SaidInterval) -> Interval:
    """An interval of the grammar as the index knows it."""
    return Interval(said.low, said.high, said.low_open, said.high_open)


def box_of(where: Where) -> dict[str, Interval]:
    """All intervals, by attribute."""
    return {condition.attribute: interval_of(condition.interval) for condition in where.conditions}


def point_of(content: Any, paths: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """The numbers of a payload that attributes name; those it does not have are left out."""
    point: dict[str, float] = {}
    if content.__class__ is not dict:
        return point
    for attribute, path in paths.items():
        value = number_at(content, path)
        if value is not None:
            point[attribute] = value
    return point
