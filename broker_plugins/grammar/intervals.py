"""Intervals over the numbers of a payload: what `$where/` says."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from broker_plugins.grammar.errors import GrammarError, quoted
from broker_plugins.grammar.quantities import format_number, read_number
from broker_plugins.grammar.spans import spans
from broker_plugins.grammar.topics import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker_plugins.grammar.limits import Limits

_OPERATOR = re.compile(r"[<>]=?|=")


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers between two ends. An end may be open (not itself included) or unbounded (infinite, then open).

    Attributes:
        low: The lower end, `-inf` if there is none.
        high: The upper end, `inf` if there is none.
        low_open: Whether the lower end is not included.
        high_open: Whether the upper end is not included.

    Raises:
        ValueError: If no number is in it.
    """

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def __post_init__(self) -> None:
        # An infinite end has one form only, so that equal intervals compare equal.
        if self.low == -math.inf:
            object.__setattr__(self, "low_open", True)
        if self.high == math.inf:
            object.__setattr__(self, "high_open", True)
        if is_empty(self.low, self.high, self.low_open, self.high_open):
            raise ValueError(
                f"no number lies between {self.low} ({'open' if self.low_open else 'closed'}) and "
                f"{self.high} ({'open' if self.high_open else 'closed'})"
            )

    @property
    def width(self) -> float:
        """Upper end minus lower end: 0 for a single value, `inf` if an end is unbounded."""
        return self.high - self.low

    def contains(self, value: float) -> bool:
        """Whether a number is in the interval; NaN never is."""
        return (self.low < value if self.low_open else self.low <= value) and (
            value < self.high if self.high_open else value <= self.high
        )


def is_empty(low: float, high: float, low_open: bool, high_open: bool) -> bool:
    """Whether no number lies between these ends; written so that NaN as an end is empty too."""
    return not (low < high or (low == high and not low_open and not high_open and math.isfinite(low)))


@dataclass(frozen=True, slots=True)
class Condition:
    """One attribute (`age`, `battery.level`) and the interval in which it must lie."""

    attribute: str
    interval: Interval

    @property
    def path(self) -> tuple[str, ...]:
        """The names of the members that lead to the number, outermost first."""
        return tuple(self.attribute.split("."))


@dataclass(frozen=True, slots=True)
class Where:
    """All conditions of a `$where`, one an attribute, ordered by attribute: they all must hold.

    Raises:
        ValueError: If an attribute appears twice.
    """

    conditions: tuple[Condition, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.conditions, key=lambda condition: condition.attribute))
        for first, second in pairwise(ordered):
            if first.attribute == second.attribute:
                raise ValueError(f"attribute {first.attribute!r} has two intervals: intersect them into one")
        object.__setattr__(self, "conditions", ordered)

    @classmethod
    def of(cls, intervals: Mapping[str, Interval]) -> Where:
        """The conditions given by a mapping from attribute to interval."""
        return cls(tuple(Condition(attribute, interval) for attribute, interval in intervals.items()))

    def __getitem__(self, attribute: str) -> Interval:
        for condition in self.conditions:
            if condition.attribute == attribute:
                return condition.interval
        raise KeyError(attribute)


def read_where(text: str, start: int, end: int, limits: Limits) -> Where:
    """The comma-separated conditions that fill `text[start:end]`, intersected for each attribute."""
    intervals: dict[str, Interval] = {}
    for index, (begin, stop) in enumerate(spans(text, start, end, ",")):
        if index == limits.conditions:
            raise GrammarError(text, begin, f"$where has more than the {limits.conditions} conditions allowed")
        name_end = _read_attribute(text, begin, stop, limits)
        attribute = text[begin:name_end]
        interval = _read_interval(text, name_end, stop, attribute)
        known = intervals.get(attribute)
        if known is not None:
            intervals[attribute] = _intersect(text, begin, attribute, known, interval)
        elif len(intervals) == limits.attributes:
            raise GrammarError(text, begin, f"$where has more than the {limits.attributes} attributes allowed")
        else:
            intervals[attribute] = interval
    return Where.of(intervals)


def write_where(where: Where) -> str:
    """The one way in which a `Where` is written."""
    return ",".join(written for condition in where.conditions for written in _write_condition(condition))


def _write_condition(condition: Condition) -> list[str]:
    attribute, interval = condition.attribute, condition.interval
    low, high = format_number(interval.low), format_number(interval.high)
    if interval.low == interval.high:
        return [f"{attribute}={low}"]
    closed = not interval.low_open and not interval.high_open
    if closed:
        return [f"{attribute}={low}..{high}"]
    ends = []
    if interval.low > -math.inf:
        ends.append(f"{attribute}{'>' if interval.low_open else '>='}{low}")
    if interval.high < math.inf:
        ends.append(f"{attribute}{'<' if interval.high_open else '<='}{high}")
    if not ends:
        raise ValueError(f"attribute {attribute!r} is not bounded at all: leave it out of $where")
    return ends


def _read_attribute(text: str, start: int, end: int, limits: Limits) -> int:
    """Where the attribute that begins at `start` ends."""
    position = start
    for _ in range(limits.attribute_levels):
        found = NAME.match(text, position, end)
        if found is None:
            raise _bad_attribute(text, start, position, end)
        position = found.end()
        if position - start > limits.name_characters:
            raise GrammarError(
                text, start + limits.name_characters, f"the attribute has more than {limits.name_characters} characters"
            )
        if position == end or text[position] != ".":
            return position
        position += 1
    raise GrammarError(text, position, f"the attribute has more than the {limits.attribute_levels} names allowed")


def _bad_attribute(text: str, start: int, position: int, end: int) -> GrammarError:
    if start == end:
        return GrammarError(text, start, "a condition is missing: for example age=20..25 or battery.level<20")
    if position < end and text[position] not in ".=<>":
        return GrammarError(
            text, position, f"'{text[position]}' cannot be in an attribute: letters, digits, '_' and '-' can"
        )
    if position == start:
        return GrammarError(text, position, "the attribute is missing: for example age=20..25")
    return GrammarError(text, position, "a name is missing after the dot: for example battery.level")


def _read_interval(text: str, start: int, end: int, attribute: str) -> Interval:
    """The operator and the number or range that fill `text[start:end]`."""
    found = _OPERATOR.match(text, start, end)
    if found is None:
        if start == end:
            raise GrammarError(
                text, start, f"what must hold for {quoted(attribute)}? One of = > >= < <= and a number is missing"
            )
        raise GrammarError(
            text,
            start,
            f"'{text[start]}' cannot follow {quoted(attribute)}: one of = > >= < <= belongs here"
            " (an attribute has letters, digits, '_' and '-')",
        )
    operator, value_start = found.group(), found.end()
    if operator == "=":
        dots = text.find("..", value_start, end)
        if dots < 0:
            value = read_number(text, value_start, end, f"the value of {quoted(attribute)}")
            return Interval(value, value)
        low = read_number(text, value_start, dots, f"the lower end of {quoted(attribute)}")
        high = read_number(text, dots + 2, end, f"the upper end of {quoted(attribute)}")
        if low > high:
            raise GrammarError(
                text, value_start, f"the range is empty: {format_number(low)} is greater than {format_number(high)}"
            )
        return Interval(low, high)
    value = read_number(text, value_start, end, f"the bound of {quoted(attribute)}")
    open_end = len(operator) == 1
    if operator[0] == ">":
        return Interval(low=value, low_open=open_end)
    return Interval(high=value, high_open=open_end)


def _intersect(text: str, position: int, attribute: str, known: Interval, other: Interval) -> Interval:
    """What lies in both; of two equal ends the open one is the narrower."""
    low, low_open = max((known.low, known.low_open), (other.low, other.low_open))
    high, high_closed = min((known.high, not known.high_open), (other.high, not other.high_open))
    if is_empty(low, high, low_open, not high_closed):
        raise GrammarError(text, position, f"no number satisfies this and the other conditions on {quoted(attribute)}")
    return Interval(low, high, low_open, not high_closed)
