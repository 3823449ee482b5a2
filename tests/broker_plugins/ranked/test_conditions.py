"""Conditions asked directly, against the intervals of the grammar and against the ranked index."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.grammar import parse_filter
from broker_plugins.places import BadRuleError
from broker_plugins.ranked.accuracy import NOTHING_DECLARED, TopicRule, rule_for
from broker_plugins.ranked.conditions import Conditions, box_of, point_of
from spatial_index import RankedBoxes

bounds = st.integers(-20, 20).map(lambda number: number / 2)
NAMES = ("a", "b", "c.d", "e")


@st.composite
def wheres(draw):
    parts = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)):
        low, high = sorted((draw(bounds), draw(bounds)))
        parts.append(
            draw(st.sampled_from([f"{name}={low}..{high}", f"{name}={low}", f"{name}>{low}", f"{name}<={high}"]))
        )
    return parse_filter(f"$where/{','.join(parts)}/t").where


contents = st.fixed_dictionaries(
    {},
    optional={
        "a": bounds,
        "b": bounds,
        "c": st.one_of(bounds, st.fixed_dictionaries({}, optional={"d": bounds})),
        "e": st.one_of(bounds, st.text(max_size=2)),
    },
)


def number(content, name):
    value = content
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, float) else None


@settings(deadline=None)
@given(wheres(), contents)
def test_conditions_hold_where_every_interval_contains_its_number(where, content) -> None:
    expected = all(
        number(content, each.attribute) is not None and each.interval.contains(number(content, each.attribute))
        for each in where.conditions
    )
    conditions = Conditions.of(where)
    point = point_of(content, {name: tuple(name.split(".")) for name in NAMES})
    assert conditions.hold(content) == expected
    assert conditions.hold_at(point) == expected
    index: RankedBoxes[int] = RankedBoxes({}, [(1, box_of(where))])
    assert bool(index.containing(point)) == expected


@settings(deadline=None)
@given(wheres(), st.sets(st.sampled_from(NAMES)))
def test_conditions_beside_some_attributes_are_the_rest(where, known) -> None:
    rest = Conditions.of(where).beside(known)
    names = [each.attribute for each in where.conditions if each.attribute not in known]
    assert ([] if rest is None else [test.attribute for test in rest.tests]) == names


DOMAINS = {"a": (-10.0, 10.0), "c.d": (0.0, 5.0)}


@settings(max_examples=60, deadline=None)
@given(wheres())
def test_accuracy_is_the_rank_that_the_index_gives(where) -> None:
    rule = TopicRule("#", DOMAINS)
    assert rule.accuracy(box_of(where)) == RankedBoxes(DOMAINS).rank_of(box_of(where))


def test_narrower_is_more_accurate_and_what_is_not_mentioned_counts_one() -> None:
    rule = TopicRule.of("#", {"attributes": {"age": [0, 100], "pay": [0, 1000]}})

    def accuracy(text: str) -> float:
        where = parse_filter(f"$where/{text}/t").where
        assert where is not None
        return rule.accuracy(box_of(where))

    assert accuracy("age=20..30") == pytest.approx(0.1)
    assert accuracy("age=20..30,pay<=500") == pytest.approx(0.05)
    assert accuracy("shoe=40") == 1.0
    assert accuracy("age=7") == 0.0
    assert accuracy("age>=-50") == 1.0
    assert accuracy("age>=200") == 0.0


def test_the_first_rule_that_matches_a_topic_decides() -> None:
    rules = [TopicRule("a/b", {}, 1), TopicRule("a/+", {}, 2)]
    assert [rule_for(rules, topic).top for topic in ("a/b", "a/c", "d")] == [1, 2, None]
    assert rule_for(rules, "d") is NOTHING_DECLARED


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attributs": {}}, "only attributes and top are known"),
        ({"attributes": {"a": [1]}}, r"not \[low, high\]"),
        ({"attributes": {"a": ["x", "y"]}}, r"not \[low, high\]"),
        ({"attributes": {"a": [5, 5]}}, "low must be below high"),
        ({"attributes": {f"a{number}": [0, 1] for number in range(17)}}, "16 are the most"),
        ({"top": 0}, "whole number of at least 1"),
        ({"top": True}, "whole number of at least 1"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(options, reason) -> None:
    with pytest.raises(BadRuleError, match=reason):
        TopicRule.of("t", options)
