from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.grammar import (
    NO_CLAUSES,
    Box,
    Clauses,
    GrammarError,
    Limits,
    Position,
    bare_topic,
    build_topic,
    may_have_clauses,
    parse_topic,
    plane,
)

longitudes, latitudes = st.floats(-180, 180), st.floats(-90, 90)
topics = st.sampled_from(["a", "alerts/fire", "/", "users/@alice/posts", "$x", "@top:3", "a//b", "온도/1;2"])
clauses_values = st.builds(
    Clauses,
    at=st.none() | st.builds(Position, longitudes, latitudes),
    area=st.none()
    | st.tuples(longitudes, latitudes, longitudes, latitudes).map(
        lambda box: Box(box[0], min(box[1], box[3]), box[2], max(box[1], box[3]))
    ),
    top=st.none() | st.integers(1, 10_000),
    ttl=st.none() | st.floats(0, 1e9, exclude_min=True) | st.integers(1, 5000).map(lambda value: value / 1000),
    reply=st.none() | st.sampled_from(["me", "me/inbox", "/", "me/@alice/inbox", "@me", "a:b"]),
)
rubble = st.lists(
    st.sampled_from(
        ["a", "/", "@", "/@", "at:", "at:1,2", "area:1,2,3,4", "top:3", "ttl:5s", "reply:", "reply:x/y", ";", ":", ",",
         "1", "é", "$"]
    ),
    max_size=10,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "topic", "clauses"),
    [
        ("alerts/fire/@at:126.97,37.56;top:3", "alerts/fire", Clauses(at=Position(126.97, 37.56), top=3)),
        ("a/@area:170,-20,-170,-10", "a", Clauses(area=Box(170, -20, -170, -10))),
        ("a/@ttl:250ms", "a", Clauses(ttl=0.25)),
        ("a/@ttl:1.5m;top:007", "a", Clauses(ttl=90, top=7)),
        ("a/@reply:me/inbox/1", "a", Clauses(reply="me/inbox/1")),
        ("a/@reply:me/inbox;top:2", "a", Clauses(reply="me/inbox", top=2)),
        ("a/@at:1,2;reply:users/@alice/inbox", "a", Clauses(at=Position(1, 2), reply="users/@alice/inbox")),
        ("users/@alice/posts/@top:1", "users/@alice/posts", Clauses(top=1)),
        ("@alice/@top:1", "@alice", Clauses(top=1)),
        ("users/@alice/@top:1", "users/@alice", Clauses(top=1)),
        ("//@top:1", "/", Clauses(top=1)),
        ("$app/x/@top:1", "$app/x", Clauses(top=1)),
    ],
)
def test_clauses(text, topic, clauses):
    assert parse_topic(text) == (topic, clauses)
    assert may_have_clauses(text)
    assert bare_topic(text) == topic


@pytest.mark.parametrize(
    "text", ["a", "a/b", "a@b/c", "@at:1,2", "users/@alice/posts", "users/@alice", "a/@", "a/@top", "a/@/b", "/"]
)
def test_topics_without_clauses_stay_as_they_are(text):
    topic, clauses = parse_topic(text)
    assert topic == text
    assert clauses is NO_CLAUSES
    assert bare_topic(text) == text


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("/@top:3", 0, "a topic is missing before the clauses"),
        ("a/@best:3", 3, "'best' is not a clause"),
        ("a/@Top:3", 3, "'Top' is not a clause"),
        ("a/@Top:3/x", 3, "'Top' is not a clause"),
        ("a/@at:1,2;top", 13, "'top' alone is no clause: write top:K"),
        ("a/@top:3;", 9, "'' is not a clause"),
        ("a/@top:3;top:4", 9, "'top' is said twice"),
        ("a/@top:3,at:1,2", 8, "whole number"),
        ("a/@top:", 7, "whole number"),
        ("a/@top:-1", 7, "whole number"),
        ("a/@top:1.5", 8, "whole number"),
        ("a/@top:٣", 7, "whole number"),
        ("a/@top:0", 7, "at least 1"),
        ("a/@top:10001", 7, "more than the 10000 allowed"),
        ("a/@top:" + "9" * 5000, 7, "more than the 10000 allowed"),
        ("a/@at:1", 7, "LAT is missing"),
        ("a/@at:1,2 ", 9, "plain decimal"),
        ("a/@at:1,2\n", 9, "plain decimal"),
        ("a/@at:" + "1" * 400 + ",2", 6, "too large"),
        ("a/@at:1,91", 8, r"latitude 91 is not in -90\.\.90"),
        ("a/@at:1,2,3", 9, "too many numbers"),
        ("a/@area:1,5,3,4", 10, "the order is W,S,E,N"),
        ("a/@ttl:250", 10, "needs a unit of time"),
        ("a/@ttl:0s", 7, "greater than 0"),
        ("a/@at:1,2/more", 9, "the clauses end the topic"),
        ("a/@top:3/@at:1,2", 8, "the clauses end the topic"),
        ("a/@reply:", 9, "at least one character"),
        ("a/@reply:x/#", 11, "wildcard"),
        ("a/@reply:x\0", 10, "null character"),
        ("a/@reply:$SYS/x", 9, "must not begin with '\\$'"),
        ("a/@reply:x/@top:1", 11, "cannot have clauses itself"),
        ("a/@reply:x;y", 11, "'y' is not a clause"),
    ],
)
def test_errors_point_at_the_character(text, position, reason):
    with pytest.raises(GrammarError, match=reason) as raised:
        parse_topic(text)
    assert raised.value.text == text
    assert raised.value.position == position


def test_limits_and_planes():
    assert parse_topic("a/@top:5", limits=Limits(top=5)) == ("a", Clauses(top=5))
    with pytest.raises(GrammarError, match="more than the 5 allowed"):
        parse_topic("a/@top:6", limits=Limits(top=5))
    assert parse_topic("a/@at:500,0", plane(0, 0, 1000, 1000)) == ("a", Clauses(at=Position(500, 0)))
    with pytest.raises(GrammarError, match=r"x 1001 is not in 0\.\.1000"):
        parse_topic("a/@at:1001,0", plane(0, 0, 1000, 1000))


def test_the_order_in_which_clauses_are_written():
    everything = Clauses(Position(1, 2.5), Box(-1, -2, 3, 4), 3, 0.25, "me/in")
    assert build_topic("a/b", everything) == "a/b/@at:1,2.5;area:-1,-2,3,4;top:3;ttl:250ms;reply:me/in"
    assert build_topic("a/b", NO_CLAUSES) == "a/b"


@pytest.mark.parametrize(
    ("topic", "clauses", "reason"),
    [
        ("", Clauses(top=1), "at least one character"),
        ("a/#", Clauses(top=1), "wildcard"),
        ("a", Clauses(reply="x;top:1"), "means something else"),
        ("a", Clauses(top=0), "at least 1"),
        ("a", Clauses(ttl=float("inf")), "must be a number"),
        ("a", Clauses(at=Position(181, 0)), "longitude 181"),
        ("a/@at:1,2", Clauses(top=1), "the clauses end the topic"),
        ("a/@at:1,2", NO_CLAUSES, "means something else"),
        ("x" * 65_535, Clauses(top=1), "65535 allowed"),
    ],
)
def test_what_cannot_be_said_is_not_built(topic, clauses, reason):
    with pytest.raises(ValueError, match=reason):
        build_topic(topic, clauses)


@given(topics, clauses_values)
def test_what_is_built_parses_to_the_same(topic, clauses):
    text = build_topic(topic, clauses)
    assert parse_topic(text) == (topic, clauses)
    assert bare_topic(text) == topic


@given(rubble)
def test_whatever_comes_parses_or_is_refused_at_a_character(text):
    try:
        topic, clauses = parse_topic(text)
    except GrammarError as error:
        position = error.position
    else:
        position = 0
        assert bare_topic(text) == topic
        assert (clauses is NO_CLAUSES) == (topic == text)
        assert text.startswith(topic)
        # Nothing that is delivered has clauses left.
        assert parse_topic(topic) == (topic, NO_CLAUSES)
        if topic:
            assert parse_topic(build_topic(topic, clauses)) == (topic, clauses)
    assert 0 <= position <= len(text)
