from __future__ import annotations

import pytest

from broker_plugins.grammar import explain_filter, explain_topic, parse_filter, parse_topic, plane

FLOOR = plane(0, 0, 60, 25)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a/b", "Messages on the topic a/b"),
        ("#", "Messages on every topic, but those that begin with $"),
        ("a/#", "Messages on a and every topic below"),
        ("+/b", "Messages on topics of the form +/b, + being any one level"),
        ("+/b/#", "Messages on +/b and every topic below, + being any one level"),
        ("/#", "Messages on every topic that begins with /"),
        ("+/#", "Messages on every topic, but those that begin with $"),
        ("$SYS/#", "Messages on $SYS and every topic below"),
    ],
)
def test_topics(text, words):
    assert explain_filter(parse_filter(text)) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("bbox:1,2,3,4", "that happen in the box of longitude 1 to 3 and latitude 2 to 4"),
        ("bbox:3,2,1,4", "that happen in the box of longitude 3 to 1 (across the antimeridian) and latitude 2 to 4"),
        ("circle:1,2,999m", "that happen in the circle of 999 m around longitude 1, latitude 2"),
        ("near:1.1km", "that happen in the circle of 1.1 km around the subscriber, wherever it is"),
        ("cell:s", "that happen in the geohash cell s: the box of longitude 0 to 45 and latitude 0 to 45"),
        ("fence:x", "that happen in the fence x, the GeoJSON polygon retained at locus/fence/x"),
        ("near:5m;detect=enter", "whenever what the topic reports on enters the circle"),
        ("near:5m;detect=exit", "whenever what the topic reports on leaves the circle"),
        (
            "near:5m;detect=cross",
            "whenever what the topic reports on has passed, between two reports, through the circle",
        ),
    ],
)
def test_places(said, words):
    assert words in explain_filter(parse_filter(f"$geo/{said}/a"))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("a=1", "a equal to 1"),
        ("a=1..2", "a from 1 to 2"),
        ("a>1", "a above 1"),
        ("a>=1", "a at least 1"),
        ("a<1", "a below 1"),
        ("a<=1", "a at most 1"),
        ("a>=1,a<2.5,b=3", "a at least 1 but below 2.5 and b equal to 3"),
    ],
)
def test_intervals(said, words):
    assert explain_filter(parse_filter(f"$where/{said}/t")).endswith(f"whose JSON payload has {words}")


def test_groups():
    assert explain_filter(parse_filter("$share/g/t")).endswith("each to one subscriber of the group g")


def test_planes():
    assert "the circle of 2 m around (3, 4)" in explain_filter(parse_filter("$geo/circle:3,4,2/a", FLOOR), FLOOR)
    assert "the box from (1, 2) to (3, 4)" in explain_filter(parse_filter("$geo/bbox:1,2,3,4/a", FLOOR), FLOOR)
    assert "that happened at (1, 2)" in explain_topic(*parse_topic("a/@at:1,2", FLOOR), FLOOR)


def test_notes_on_what_is_hardly_meant():
    assert "Note: nothing will match" in explain_filter(parse_filter("$share/g/alerts/@top:3"))
    assert "Note: $geo is an ordinary level here" in explain_filter(parse_filter("a/$geo/near:5m/b"))
    assert "Note" not in explain_filter(parse_filter("users/@alice/posts"))


def test_clauses():
    text = "a/b/@at:1,2;area:1,2,3,4;top:3;ttl:250ms;reply:me/in"
    assert explain_topic(*parse_topic(text)).split("\n") == [
        "A message on the topic a/b",
        "  that happened at longitude 1, latitude 2",
        "  that matters in the box of longitude 1 to 3 and latitude 2 to 4",
        "  for the 3 most accurate matches only",
        "  worth having for 250 ms",
        "  with a receipt of who matched, best first, sent to me/in",
    ]
    assert "for the most accurate match only\n  worth having for 90 s" in explain_topic(
        *parse_topic("a/@ttl:1.5m;top:1")
    )
    assert explain_topic(*parse_topic("a")) == "A message on the topic a\n  without clauses"
