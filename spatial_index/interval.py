"""An interval of numbers with open or closed ends, as a subscription such as `age=20..25` or `salary>300` states it."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from spatial_index.errors import BadCoordinate, BadCount, BadInterval

LARGEST = sys.float_info.max


@dataclass(slots=True, frozen=True)
class Interval:
    """The numbers between two ends; an infinite end means that there is none on that side.

    Args:
        low: the lower end, `-inf` for none.
        high: the upper end, `inf` for none.
        low_open: whether the lower end itself is left out.
        high_open: whether the upper end itself is left out.

    Raises:
        BadInterval: an end is NaN or no number, the ends are inverted, or nothing lies between them, as in `(a, a)`.
    """

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if low.__class__ is not float or high.__class__ is not float:
            low, high = _as_float(low, self), _as_float(high, self)
            object.__setattr__(self, "low", low)
            object.__setattr__(self, "high", high)
        if low < high:
            return
        if low != low or high != high:  # noqa: PLR0124 - only NaN differs from itself
            raise BadInterval(f"{self} has an end that is NaN; use a number, or -inf or inf for no end")
        if low > high:
            raise BadInterval(f"{self} is inverted; the lower end comes first")
        if self.low_open or self.high_open:
            raise BadInterval(f"{self} contains nothing; close both ends to mean the one value {low}")
        if math.isinf(low):
            raise BadInterval(f"{self} contains no number; an infinite end must be -inf below or inf above")

    def __str__(self) -> str:
        left = "(" if self.low_open else "["
        return f"{left}{self.low}, {self.high}{')' if self.high_open else ']'}"

    @property
    def width(self) -> float:
        """The distance between the ends: `inf` if one is missing, and a number whenever both are there."""
        width = self.high - self.low
        # Two finite ends may lie further apart than the largest float: still narrower than an unbounded interval.
        return LARGEST if width == math.inf and self.low > -math.inf and self.high < math.inf else width

    @property
    def first(self) -> float:
        """The smallest float inside, so that `first <= v <= last` is the whole test, whatever the ends are."""
        return math.nextafter(self.low, math.inf) if self.low_open and self.low > -math.inf else self.low

    @property
    def last(self) -> float:
        """The largest float inside."""
        return math.nextafter(self.high, -math.inf) if self.high_open and self.high < math.inf else self.high

    def __contains__(self, value: float) -> bool:
        return self.first <= value <= self.last


def _as_float(end: object, interval: Interval) -> float:
    """A number as a float; what is none is refused."""
    if isinstance(end, int | float) or hasattr(end, "__float__"):
        try:
            return float(end)
        except (OverflowError, TypeError, ValueError) as error:
            raise BadInterval(f"{interval} has the end {end!r}, which is no float: {error}") from error
    raise BadInterval(f"{interval} has the end {end!r}; an end is a number")


def finite(value: float, what: str) -> float:
    """The value as a float, if it is a finite number.

    Raises:
        BadCoordinate: it is NaN, infinite or no number.
    """
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise BadCoordinate(f"{what} is {value!r}; it must be a finite number") from error
    if not math.isfinite(number):
        raise BadCoordinate(f"{what} is {value!r}; it must be a finite number")
    return number


def positive_count(k: int) -> int:
    """How many results are asked for, if that is a whole number of at least one.

    Raises:
        BadCount: it is below one or no whole number.
    """
    if k.__class__ is not int or k < 1:
        raise BadCount(f"k is {k!r}; ask for a whole number of results, at least 1")
    return k
