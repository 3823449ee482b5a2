from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.grammar import GrammarError, parse_filter


def test_the_caret_stands_under_the_character():
    error = GrammarError("$geo/box:1,2/x", 5, "not an area")
    assert error.render() == "$geo/box:1,2/x\n     ^ not an area"
    assert str(error) == "not an area (at character 6 of '$geo/box:1,2/x')"


def test_the_caret_stands_behind_a_text_that_ends_too_early():
    error = GrammarError("$geo", 4, "an area is missing")
    assert error.render() == "$geo\n    ^ an area is missing"
    assert str(error) == "an area is missing (at the end of '$geo')"


def test_wide_and_combining_characters_keep_the_caret_in_its_column():
    assert GrammarError("온도>x", 3, "no").render() == "온도>x\n     ^ no"
    assert GrammarError("e\u0301>x", 3, "no").render() == "e\u0301>x\n  ^ no"


def test_a_log_line_stays_one_line():
    error = GrammarError("a\nb\x1b[31m\ud800", 1, "bad '\n'")
    assert str(error) == r"bad '\n' (at character 2 of 'a\nb\x1b[31m\ud800')"
    assert error.render().count("\n") == 1


def test_a_long_text_is_cut_around_the_position():
    error = GrammarError("a" * 500 + "!" + "b" * 500, 500, "no")
    text, caret = error.render().split("\n")
    assert len(text) < 100
    assert text.startswith("…a")
    assert text.endswith("b…")
    assert text[caret.index("^")] == "!"


@pytest.mark.parametrize("filler", ["z", "1", "\n", "é", ",", ";", ".", "="])
@pytest.mark.parametrize(
    "beginning",
    [
        "$geo/",
        "$geo/circle:",
        "$geo/near:",
        "$geo/cell:",
        "$geo/fence:",
        "$geo/near:5m;",
        "$where/",
        "$where/a=",
        "$where/a",
    ],
)
def test_a_message_does_not_grow_with_the_text(beginning, filler):
    with pytest.raises(GrammarError) as raised:
        parse_filter(beginning + filler * 20_000 + "/x")
    assert len(str(raised.value)) < 700
    assert "\n" not in str(raised.value)


def test_it_is_a_value_error_and_survives_pickling():
    error = pickle.loads(pickle.dumps(GrammarError("text", 2, "reason")))
    assert isinstance(error, ValueError)
    assert (error.text, error.position, error.reason) == ("text", 2, "reason")


@given(st.text(), st.data())
def test_every_text_and_position_can_be_shown(text, data):
    position = data.draw(st.integers(0, len(text)))
    error = GrammarError(text, position, "reason")
    assert str(error).isprintable()
    assert len(error.render().split("\n")) == 2
