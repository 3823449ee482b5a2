"""Numbers, lengths and durations: strict decimals, read from a part of a text so that errors can point into it."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from broker_plugins.grammar.errors import GrammarError, quoted

# No sign `+` (a wildcard in a filter), no exponent, no bare dot: `20..25` then reads in one way only.
_DECIMAL = r"-?[0-9]+(?:\.[0-9]+)?"
_NUMBER = re.compile(_DECIMAL)
NUMBER_PAIR = re.compile(f"({_DECIMAL}),({_DECIMAL})")
_LENGTH_UNITS = ("m", "km")
_DURATION_UNITS = ("ms", "s", "m")


def read_number(text: str, start: int, end: int, what: str) -> float:
    """The number that fills `text[start:end]`.

    Args:
        text: All that is being parsed.
        start: Where the number begins.
        end: Where it ends.
        what: What the number is, for the error message.

    Raises:
        GrammarError: If it is not a decimal number, or too large for a double.
    """
    found = _NUMBER.match(text, start, end)
    if found is None:
        if start == end:
            raise GrammarError(text, start, f"{what} is missing: a number such as 12 or -0.5 belongs here")
        raise GrammarError(text, start, f"{what} must be a number such as 12 or -0.5, not {quoted(text[start:end])}")
    if found.end() != end:
        raise GrammarError(
            text,
            found.end(),
            f"{what} must be a plain decimal number (no exponent, no spaces), not {quoted(text[start:end])}",
        )
    value = float(found.group())
    if math.isinf(value):
        raise GrammarError(text, start, f"{what} is too large for a double-precision number")
    return value + 0.0  # -0 becomes 0, so that equal numbers are written equally


def read_numbers(text: str, start: int, end: int, names: tuple[str, ...]) -> list[float]:
    """As many comma-separated numbers as there are names, filling `text[start:end]`."""
    values = []
    wanted = ",".join(names)
    for index, name in enumerate(names):
        comma = text.find(",", start, end)
        last = index == len(names) - 1
        if last and comma >= 0:
            raise GrammarError(text, comma, f"too many numbers: {wanted} belongs here")
        if not last and comma < 0:
            read_number(text, start, end, name)
            raise GrammarError(text, end, f"{names[index + 1]} is missing: {wanted} belongs here")
        stop = end if last else comma
        values.append(read_number(text, start, stop, name))
        start = stop + 1
    return values


def format_number(value: float) -> str:
    """The shortest decimal without exponent that reads back as the same double."""
    shown = format(Decimal(repr(float(value) + 0.0)), "f")
    return shown.removesuffix(".0")


def _unit_start(text: str, start: int, end: int) -> int:
    """Where the letters at the end begin, or the end if there is nothing but letters: these are no unit of anything."""
    stop = end
    while stop > start and text[stop - 1].isalpha():
        stop -= 1
    return end if stop == start else stop


def read_length(text: str, start: int, end: int, what: str, *, unit_needed: bool) -> float:
    """A positive length in metres: a number and `m` or `km`; the unit may be left out if it is not needed."""
    stop = _unit_start(text, start, end)
    unit = text[stop:end]
    if unit and unit not in _LENGTH_UNITS:
        read_number(text, start, stop, what)
        raise GrammarError(text, stop, f"{quoted(unit)} is not a unit of length: write m or km")
    value = read_number(text, start, stop, what)
    if not unit and unit_needed:
        raise GrammarError(text, end, f"{what} needs a unit, m or km: for example 500m")
    # In decimals, so that 1.1km is 1100m to the last bit.
    metres = float(Decimal(text[start:stop]) * 1000) if unit == "km" else value
    if metres <= 0.0:
        raise GrammarError(text, start, f"{what} must be greater than 0")
    if math.isinf(metres):
        raise GrammarError(text, start, f"{what} is too large for a double-precision number")
    return metres


def format_length(metres: float) -> str:
    """A length in metres with its unit."""
    return f"{format_number(metres)}m"


def read_duration(text: str, start: int, end: int, what: str) -> float:
    """A positive duration in seconds: a number and `ms`, `s` or `m`."""
    stop = _unit_start(text, start, end)
    value = read_number(text, start, stop, what)
    unit = text[stop:end]
    if unit == "ms":
        seconds = value / 1000.0  # divided, not multiplied by 0.001: correctly rounded
    elif unit == "s":
        seconds = value
    elif unit == "m":
        seconds = value * 60.0
    else:
        units = ", ".join(_DURATION_UNITS)
        raise GrammarError(text, stop, f"{what} needs a unit of time, one of {units}: for example 250ms")
    if seconds <= 0.0:
        raise GrammarError(text, start, f"{what} must be greater than 0")
    if math.isinf(seconds):
        raise GrammarError(text, start, f"{what} is too large for a double-precision number")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration with its unit: milliseconds where they are whole and read back exactly, else seconds."""
    milliseconds = round(seconds * 1000.0) if 0.0 < seconds < 1.0 else 0
    if milliseconds and milliseconds / 1000.0 == seconds:
        return f"{milliseconds}ms"
    return f"{format_number(seconds)}s"
