from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.grammar.errors import GrammarError
from broker_plugins.grammar.quantities import (
    format_duration,
    format_length,
    format_number,
    read_duration,
    read_length,
    read_number,
    read_numbers,
)


def number(text: str) -> float:
    return read_number(text, 0, len(text), "it")


def length(text: str, unit_needed: bool = True) -> float:
    return read_length(text, 0, len(text), "it", unit_needed=unit_needed)


def duration(text: str) -> float:
    return read_duration(text, 0, len(text), "it")


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("-0", 0), ("007", 7), ("-12.50", -12.5), ("1" * 300, float("1" * 300))]
)
def test_numbers(text, value):
    assert number(text) == value
    assert math.copysign(1, number(text)) == (-1 if value < 0 else 1)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0), ("+1", 0), ("1e5", 1), ("1.", 1), (".5", 0), ("--1", 0), ("-", 0), (" 1", 0), ("1 ", 1), ("1_000", 1),
        ("NaN", 0), ("inf", 0), ("-inf", 0), ("0x10", 1), ("1,5", 1), ("٣", 0), ("1٣", 1), ("²", 0), ("1" * 400, 0),
    ],
)  # fmt: skip
def test_what_is_not_a_number(text, position):
    with pytest.raises(GrammarError) as raised:
        number(text)
    assert raised.value.position == position


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_reads_back_as_it_was(value):
    assert number(format_number(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=0, exclude_min=True))
def test_every_length_and_duration_reads_back_as_it_was(value):
    assert length(format_length(value)) == value
    assert duration(format_duration(value)) == value


@given(st.decimals(min_value="0.001", max_value=10_000, places=3))
def test_kilometres_are_a_thousand_metres_exactly(kilometres):
    assert length(f"{kilometres}km") == length(f"{kilometres * 1000}m")


@given(st.integers(1, 10_000_000))
def test_milliseconds_are_written_as_seconds_exactly(milliseconds):
    assert duration(f"{milliseconds}ms") == duration(f"{milliseconds // 1000}.{milliseconds % 1000:03}s")


def test_units():
    assert length("500m") == 500
    assert length("1.1km") == 1100
    assert length("2.5", unit_needed=False) == 2.5
    assert (duration("250ms"), duration("1.5s"), duration("2m")) == (0.25, 1.5, 120)
    assert (format_duration(0.25), format_duration(2), format_duration(0.0001)) == ("250ms", "2s", "0.0001s")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("500", 3),
        ("500mi", 3),
        ("500M", 3),
        ("m", 0),
        ("", 0),
        ("0m", 0),
        ("-5m", 0),
        ("5 m", 1),
        ("5e3m", 1),
        ("1" * 307 + "km", 0),
    ],
)
def test_what_is_not_a_length(text, position):
    with pytest.raises(GrammarError) as raised:
        length(text)
    assert raised.value.position == position


@pytest.mark.parametrize(
    ("text", "position"),
    [("250", 3), ("250h", 3), ("ms", 0), ("", 0), ("0s", 0), ("-1s", 0), ("1 s", 1), ("1" * 308 + "m", 0)],
)
def test_what_is_not_a_duration(text, position):
    with pytest.raises(GrammarError) as raised:
        duration(text)
    assert raised.value.position == position


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("1", 1, "Y is missing"), ("1,2", 3, "Z is missing"), ("1,2,3,4", 5, "too many"), ("1,,3", 2, "Y is missing"),
        ("1,x,3", 2, "Y must be a number"), ("1,2,", 4, "Z is missing"), ("", 0, "X is missing"),
    ],
)  # fmt: skip
def test_lists_of_numbers_say_which_is_wrong(text, position, reason):
    with pytest.raises(GrammarError, match=reason) as raised:
        read_numbers(text, 0, len(text), ("X", "Y", "Z"))
    assert raised.value.position == position
