"""What docs/reference/filter-grammar.md says in passing is true; its `locus explain` examples run with the command."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import broker_plugins.grammar as grammar

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "filter-grammar.md").read_text(encoding="utf-8")
# Code spans outside of fenced blocks; `<` followed by a letter marks a form, not an example.
SPANS = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE))
EXAMPLES = [span for span in SPANS if "/" in span and not re.search(r"<[a-z]", span)]
FILTERS = [span for span in EXAMPLES if grammar.is_smart(span)]
TOPICS = [span for span in EXAMPLES if "/@" in span and span not in {"users/@alice", "users/@alice/posts"}]


def test_the_page_has_examples():
    assert len(FILTERS) >= 12
    assert len(TOPICS) >= 5


@pytest.mark.parametrize("text", FILTERS)
def test_filters_on_the_page(text):
    assert not grammar.parse_filter(text).is_plain


@pytest.mark.parametrize("text", TOPICS)
def test_topics_on_the_page(text):
    assert grammar.parse_topic(text)[1] != grammar.NO_CLAUSES


def test_what_the_page_calls_ordinary():
    for ordinary in ("$SYS/#", "$geometry/x"):
        assert f"`{ordinary}`" in PAGE
        assert grammar.parse_filter(ordinary).is_plain
    for topic in ("users/@alice/posts", "users/@alice", "@home"):
        assert f"`{topic}`" in PAGE
        assert grammar.parse_topic(topic) == (topic, grammar.NO_CLAUSES)


def test_the_limits_on_the_page_are_the_defaults():
    rows = re.findall(r"^\| `(\w+)` \| ([0-9,]+) \|", PAGE, re.MULTILINE)
    assert {name: float(value.replace(",", "")) for name, value in rows} == {
        field.name: field.default for field in fields(grammar.Limits)
    }


def test_every_function_on_the_page_exists():
    functions = re.findall(r"`(\w+)\([^`]*\)`", PAGE.partition("## In Python")[2])
    assert len(functions) >= 10
    for function in functions:
        assert function in grammar.__all__ or function == "str"


def test_the_examples_of_the_package_are_true():
    import doctest

    results = doctest.testmod(grammar)
    assert results.attempted >= 2
    assert results.failed == 0
