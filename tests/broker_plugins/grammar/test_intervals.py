from __future__ import annotations

import math
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.grammar import DEFAULT_LIMITS, Condition, GrammarError, Interval, Limits, Where
from broker_plugins.grammar.intervals import read_where, write_where

OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def where(text: str, limits: Limits = DEFAULT_LIMITS) -> Where:
    return read_where(text, 0, len(text), limits)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("age=20..25", Interval(20, 25)),
        ("age=7", Interval(7, 7)),
        ("age=-3..-1.5", Interval(-3, -1.5)),
        ("age>80", Interval(80, math.inf, low_open=True)),
        ("age>=80", Interval(80, math.inf)),
        ("age<5", Interval(-math.inf, 5, high_open=True)),
        ("age<=5", Interval(-math.inf, 5)),
        ("age>1,age<=5", Interval(1, 5, low_open=True)),
        ("age>=5,age<=5", Interval(5, 5)),
        ("age=1..9,age>1,age<9", Interval(1, 9, low_open=True, high_open=True)),
    ],
)
def test_intervals(text, interval):
    assert where(text) == Where((Condition("age", interval),))
    assert where(text)["age"] == interval


def test_dots_reach_inside():
    (condition,) = where("battery.level<20").conditions
    assert condition.attribute == "battery.level"
    assert condition.path == ("battery", "level")


def test_attributes_in_any_script():
    assert where("온도>30,तापमान<5,x-1_y=2").conditions[1].attribute == "तापमान"


def test_the_order_of_conditions_does_not_matter():
    assert where("b<1,a=2,b>0") == where("a=2,b>0,b<1")
    assert write_where(where("b<1,a=2,b>0")) == "a=2,b>0,b<1"


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "condition is missing"),
        ("a=1,", 4, "condition is missing"),
        (",a=1", 0, "condition is missing"),
        ("=1", 0, "attribute is missing"),
        ("a", 1, "What must hold|what must hold"),
        ("a=", 2, "value of 'a' is missing"),
        ("a==1", 2, "must be a number"),
        ("a=>1", 2, "must be a number"),
        ("a!=1", 1, "cannot follow 'a'"),
        ("a =1", 1, "cannot follow 'a'"),
        ("a= 1", 2, "must be a number"),
        ("a=1..", 5, "upper end of 'a' is missing"),
        ("a=..1", 2, "lower end of 'a' is missing"),
        ("a=1...2", 5, "upper end of 'a' must be"),
        ("a=5..3", 2, "range is empty"),
        ("a>1..2", 3, "plain decimal"),
        ("a>nan", 2, "must be a number"),
        ("a.=1", 2, "name is missing after the dot"),
        ("a..b=1", 2, "name is missing after the dot"),
        (".a=1", 0, "attribute is missing"),
        ("a[0]=1", 1, "cannot follow 'a'"),
        ("$a=1", 0, r"'\$' cannot be in an attribute"),
        ("a>5,b=1,a<5", 8, "no number satisfies"),
        ("a>5,a<=5", 4, "no number satisfies"),
        ("a=1,a=2", 4, "no number satisfies"),
        ("x=7;detect=enter", 3, "plain decimal"),
    ],
)
def test_errors_point_at_the_character(text, position, reason):
    with pytest.raises(GrammarError, match=reason) as raised:
        where(text)
    assert raised.value.position == position


def test_limits():
    sixteen = ",".join(f"a{index}=1" for index in range(16))
    assert len(where(sixteen).conditions) == 16
    with pytest.raises(GrammarError, match="16 attributes") as raised:
        where(sixteen + ",b=1")
    assert raised.value.position == len(sixteen) + 1
    with pytest.raises(GrammarError, match="2 conditions") as raised:
        where("a>1,a>2,a>3", Limits(conditions=2))
    assert raised.value.position == 8
    assert where("a.b.c=1", Limits(attribute_levels=3))
    with pytest.raises(GrammarError, match="3 names") as raised:
        where("a.b.c.d=1", Limits(attribute_levels=3))
    assert raised.value.position == 6
    assert where("abc=1", Limits(name_characters=3))
    with pytest.raises(GrammarError, match="3 characters") as raised:
        where("abcd=1", Limits(name_characters=3))
    assert raised.value.position == 3


@pytest.mark.parametrize(
    "ends",
    [
        (2, 1),
        (1, 1, True),
        (1, 1, False, True),
        (math.nan, 1),
        (0, math.nan),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
    ],
)
def test_empty_intervals_do_not_exist(ends):
    with pytest.raises(ValueError, match="no number lies between"):
        Interval(*ends)


def test_an_infinite_end_has_one_form():
    assert Interval(-math.inf, 3) == Interval(-math.inf, 3, low_open=True)
    assert Interval().width == math.inf
    assert Interval(2, 5).width == 3


def test_what_a_where_refuses():
    with pytest.raises(ValueError, match="'a' has two intervals"):
        Where((Condition("a", Interval(1, 2)), Condition("a", Interval(1, 3))))
    with pytest.raises(ValueError, match="not bounded at all"):
        write_where(Where.of({"a": Interval()}))
    with pytest.raises(KeyError):
        Where.of({"a": Interval(1, 2)})["b"]


conditions = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(sorted(OPERATORS)), st.integers(-2, 2)), min_size=1, max_size=6
)


@given(conditions)
def test_the_intersection_is_what_all_conditions_allow(parts):
    text = ",".join(f"{name}{sign}{value}" for name, sign, value in parts)
    # All bounds are whole: halves between and beyond them see every difference.
    candidates = [half / 2 for half in range(-6, 7)]
    allowed = {
        attribute: [
            candidate
            for candidate in candidates
            if all(OPERATORS[sign](candidate, value) for name, sign, value in parts if name == attribute)
        ]
        for attribute in {name for name, _, _ in parts}
    }
    if all(allowed.values()):
        parsed = where(text)
        for attribute, values in allowed.items():
            assert [candidate for candidate in candidates if parsed[attribute].contains(candidate)] == values
            assert not parsed[attribute].contains(math.nan)
        assert where(write_where(parsed)) == parsed
    else:
        with pytest.raises(GrammarError, match="no number satisfies"):
            where(text)
