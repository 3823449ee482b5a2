from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.grammar import (
    Box,
    Cell,
    Circle,
    Detect,
    Fence,
    Geo,
    GrammarError,
    Interval,
    Limits,
    Near,
    SmartFilter,
    Where,
    build_filter,
    canonical_filter,
    inner_filter,
    is_smart,
    parse_filter,
    plane,
)

# -- strategies ------------------------------------------------------------------------------------------------------

longitudes, latitudes = st.floats(-180, 180), st.floats(-90, 90)
radii = st.floats(0, 20_000_000, exclude_min=True)
names = st.text("aZ9_-온", min_size=1, max_size=6)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    south, north = sorted((draw(latitudes), draw(latitudes)))
    return Box(draw(longitudes), south, draw(longitudes), north)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    finite = st.floats(allow_nan=False, allow_infinity=False)
    low, high = sorted((draw(finite | st.just(-math.inf)), draw(finite | st.just(math.inf))))
    if low == high or (math.isinf(low) and math.isinf(high)):
        return Interval(draw(finite))
    return Interval(low, high, draw(st.booleans()), draw(st.booleans()))


areas = st.one_of(
    boxes(),
    st.builds(Circle, longitudes, latitudes, radii),
    st.builds(Near, radii),
    st.builds(Cell, st.text("0123456789bcdefghjkmnpqrstuvwxyz", min_size=1, max_size=12)),
    st.builds(Fence, names | st.just("a.b")),
)
geos = st.builds(Geo, areas, st.sampled_from(Detect))
attributes = st.lists(names, min_size=1, max_size=3).map(".".join)
wheres = st.dictionaries(attributes, intervals(), min_size=1, max_size=5).map(Where.of)
levels = st.lists(st.sampled_from(["", "+", "vehicles", "온", "$x", "@at:1,2", "a b"]), min_size=1, max_size=4)
inners = st.one_of(
    levels.map("/".join).filter(bool),
    levels.map(lambda parts: "/".join([*parts, "#"])),
    st.sampled_from(["#", "$SYS/#", "/", "$geometry/x", "$"]),
)
smart_filters = st.builds(SmartFilter, inners, st.none() | geos, st.none() | wheres, st.none() | names)

# Pieces of filters in no order: most of what comes out is nearly right, which is where parsers go wrong.
rubble = st.lists(
    st.sampled_from(
        ["$geo/", "$where/", "$share/", "$geo", "g/", "near:5m/", "bbox:1,2,3,4/", "fence:f;detect=enter/", "a>1/",
         "a=1..2,b<3/", "/", "+", "#", "x", ";", ",", "..", "=", "@", "$", "-1", "\0", "\ud800", "é"]
    ),
    max_size=8,
).map("".join)  # fmt: skip


# -- examples --------------------------------------------------------------------------------------------------------


def test_the_prefixes_compose():
    assert parse_filter("$geo/bbox:126.9,37.4,127.1,37.6/$where/speed>80/vehicles/+/pos") == SmartFilter(
        inner="vehicles/+/pos",
        geo=Geo(Box(126.9, 37.4, 127.1, 37.6)),
        where=Where.of({"speed": Interval(80, math.inf, low_open=True)}),
    )


@pytest.mark.parametrize("order", list(permutations(["$geo/near:5m", "$where/a=1", "$share/g"])))
def test_the_order_of_the_prefixes_does_not_matter(order):
    text = "/".join([*order, "$SYS/+/x/#"])
    assert parse_filter(text) == SmartFilter("$SYS/+/x/#", Geo(Near(5)), Where.of({"a": Interval(1, 1)}), "g")
    assert inner_filter(text) == "$SYS/+/x/#"
    assert canonical_filter(text) == "$share/g/$geo/near:5m/$where/a=1/$SYS/+/x/#"
    assert is_smart(text)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "/",
        "a//b",
        "#",
        "+",
        "+/+/#",
        "/#",
        "$SYS/#",
        "$geofence/x",
        "$GEO/x",
        "$",
        "$/a",
        "a/$geo/b",
        " ",
        "a/@b",
        "é/온",
    ],
)
def test_ordinary_filters_stay_as_they_are(text):
    assert parse_filter(text) == SmartFilter(text)
    assert parse_filter(text).is_plain
    assert inner_filter(text) == canonical_filter(text) == text
    assert not is_smart(text)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "at least one character"),
        ("a\0b", 1, "null character"),
        ("a\ud800", 1, "valid Unicode"),
        ("a/b#", 3, "'#' must be a level of its own"),
        ("a/#b", 2, "'#' must be a level of its own"),
        ("#/a", 0, "'#' must be the last level"),
        ("a/#/", 2, "'#' must be the last level"),
        ("a+/b", 1, "'\\+' must be a level of its own"),
        ("a/++", 2, "'\\+' must be a level of its own"),
        ("$geo", 4, "needs an area"),
        ("$geo/", 5, "needs an area"),
        ("$geo//x", 5, "needs an area"),
        ("$where", 6, "needs conditions"),
        ("$share/", 7, "needs a group"),
        ("$share/g", 8, r"a filter is missing after \$share"),
        ("$share/g/", 9, r"a filter is missing after \$share"),
        ("$geo/near:5m/$where/a=1", 23, r"a filter is missing after \$where"),
        ("$geo/near:5m/$where", 19, "needs conditions"),
        ("$geo/#", 5, "'#' cannot stand in what \\$geo says"),
        ("$share/+/x", 7, "'\\+' cannot stand in what \\$share says"),
        ("$where/a>+1/x", 9, "'\\+' cannot stand"),
        ("$geo/near:5m/$geo/near:5m/x", 13, r"\$geo is said twice"),
        ("$share/g/$geo/near:5m/$share/g/x", 22, r"\$share is said twice"),
        ("$where/a=1/$where/b=1/x", 11, r"\$where is said twice"),
        ("$share/g/$geo/circle:1,x,5m/x", 23, "LAT must be a number"),
        ("$share/g/$where/a=1,b/x", 21, "must hold for 'b'"),
        ("$share/g/$where/a=1/x/#/y", 22, "'#' must be the last level"),
    ],
)
def test_errors_point_at_the_character(text, position, reason):
    with pytest.raises(GrammarError, match=reason) as raised:
        parse_filter(text)
    assert raised.value.text == text
    assert raised.value.position == position


def test_limits():
    assert parse_filter("é/b", limits=Limits(filter_bytes=4))
    with pytest.raises(GrammarError, match="has 5 bytes, more than the 4 allowed") as raised:
        parse_filter("é/bc", limits=Limits(filter_bytes=4))
    assert raised.value.position == 3
    with pytest.raises(GrammarError, match="65535 allowed"):  # MQTT's own limit cannot be lifted
        parse_filter("x" * 65_536, limits=Limits(filter_bytes=1_000_000))
    assert parse_filter("$share/g/a/b", limits=Limits(levels=2))
    with pytest.raises(GrammarError, match="3 levels, more than the 2 allowed") as raised:
        parse_filter("$share/g/a/b/c", limits=Limits(levels=2))
    assert raised.value.position == 13
    with pytest.raises(GrammarError, match="the group has more than 2 characters") as raised:
        parse_filter("$share/abc/x", limits=Limits(name_characters=2))
    assert raised.value.position == 9


def test_a_plane_is_a_space_too():
    floor = plane(0, 0, 1000, 1000)
    text = "$geo/circle:500,600,2.5/robots/#"
    assert canonical_filter(text, floor) == "$geo/circle:500,600,2.5m/robots/#"
    with pytest.raises(GrammarError, match="longitude 500"):
        parse_filter(text)


@pytest.mark.parametrize(
    ("smart", "reason"),
    [
        (SmartFilter("x", geo=Geo(Box(0, 0, 0, 91))), "latitude 91"),
        (SmartFilter("x", geo=Geo(Near(math.inf))), "must be a number"),
        (SmartFilter("x", geo=Geo(Fence("harbour;detect=exit"))), "means something else"),
        (SmartFilter("x", geo=Geo(Fence("a/b"))), "means something else"),
        (SmartFilter("x", share="a/b"), "means something else"),
        (SmartFilter("x", share=""), "needs a group"),
        (SmartFilter("$geo/near:5m/x"), "means something else"),
        (SmartFilter("x", where=Where(())), "needs conditions"),
        (SmartFilter("x", where=Where.of({"a=1,b": Interval(1, 1)})), "means something else"),
        (SmartFilter("x", where=Where.of({"a": Interval()})), "not bounded at all"),
        (SmartFilter(""), "at least one character"),
    ],
)
def test_what_cannot_be_said_is_not_built(smart, reason):
    with pytest.raises(ValueError, match=reason):
        build_filter(smart)


# -- properties ------------------------------------------------------------------------------------------------------


@given(smart_filters)
def test_what_is_built_parses_to_the_same(smart):
    text = build_filter(smart)
    assert parse_filter(text) == smart
    assert canonical_filter(text) == text
    assert inner_filter(text) == smart.inner
    assert is_smart(text) is not smart.is_plain


@given(rubble)
def test_whatever_comes_parses_or_is_refused_at_a_character(text):
    try:
        smart = parse_filter(text)
    except GrammarError as error:
        position = error.position
    else:
        position = 0
        canonical = canonical_filter(text)
        assert parse_filter(canonical) == smart
        assert canonical_filter(canonical) == canonical
        # Access control sees what the subscription will match, whatever stands before it.
        assert inner_filter(text) == inner_filter(canonical) == smart.inner
        assert text.endswith(smart.inner)
        assert not is_smart(smart.inner)
    assert 0 <= position <= len(text)
