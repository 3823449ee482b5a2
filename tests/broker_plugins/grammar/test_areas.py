from __future__ import annotations

import pytest

from broker_plugins.grammar import (
    DEFAULT_LIMITS,
    WGS84,
    Box,
    Cell,
    Circle,
    Detect,
    Fence,
    Geo,
    GrammarError,
    Limits,
    Near,
    Space,
    plane,
)
from broker_plugins.grammar.areas import read_geo, write_geo

FLOOR = plane(0, 0, 60, 25.5)


def geo(text: str, space: Space = WGS84, limits: Limits = DEFAULT_LIMITS) -> Geo:
    # Read out of the middle of a text: nothing around it may matter.
    return read_geo(f"1,{text},1", 2, 2 + len(text), space, limits)


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("bbox:126.9,37.4,127.1,37.6", Box(126.9, 37.4, 127.1, 37.6)),
        ("bbox:170,-20,-170,-10", Box(170, -20, -170, -10)),
        ("bbox:-180,-90,180,90", Box(-180, -90, 180, 90)),
        ("bbox:1,2,1,2", Box(1, 2, 1, 2)),
        ("circle:126.97,37.56,500m", Circle(126.97, 37.56, 500)),
        ("circle:-0.5,51,1.5km", Circle(-0.5, 51, 1500)),
        ("near:500m", Near(500)),
        ("cell:wydm9", Cell("wydm9")),
        ("fence:harbour", Fence("harbour")),
        ("fence:부산항.north-2_b", Fence("부산항.north-2_b")),
    ],
)
@pytest.mark.parametrize("detect", Detect)
def test_areas(text, area, detect):
    assert geo(f"{text};detect={detect.value}") == Geo(area, detect)
    assert geo(text) == Geo(area)
    assert geo(write_geo(Geo(area, detect))) == Geo(area, detect)


def test_a_box_knows_whether_it_crosses_the_antimeridian():
    assert Box(170, -20, -170, -10).crosses_antimeridian
    assert not Box(-170, -20, 170, -10).crosses_antimeridian


def test_a_cell_has_a_box():
    assert Cell("s").box == Box(0, 0, 45, 45)


def test_a_plane_has_plain_coordinates():
    assert geo("bbox:1,2,60,25.5", FLOOR) == Geo(Box(1, 2, 60, 25.5))
    assert geo("circle:3,4,2.5", FLOOR) == geo("circle:3,4,2.5m", FLOOR) == Geo(Circle(3, 4, 2.5))
    assert geo("near:2", FLOOR) == Geo(Near(2))
    assert geo("bbox:1000,-500,2000,500", plane(0, -1e6, 1e6, 1e6)) == Geo(Box(1000, -500, 2000, 500))


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("box:1,2,3,4", 0, "'box' is not a kind of area: one of bbox:W,S,E,N"),
        ("BBOX:1,2,3,4", 0, "is not a kind of area"),
        ("bbox", 4, "write bbox:W,S,E,N"),
        ("bbox:", 5, "W is missing"),
        ("bbox:1,2,3", 10, "N is missing"),
        ("bbox:1,2,3,4,5", 12, "too many numbers"),
        ("bbox:1,2,3,4 ", 12, "plain decimal"),
        ("bbox:181,2,3,4", 5, r"longitude 181 is not in -180\.\.180"),
        ("bbox:1,2,-180.5,4", 9, "longitude -180.5"),
        ("bbox:1,-91,3,4", 7, r"latitude -91 is not in -90\.\.90"),
        ("bbox:1,2,3,90.1", 11, "latitude 90.1"),
        ("bbox:1,5,3,4", 7, "the order is W,S,E,N"),
        ("circle:1,2", 10, "RADIUS is missing"),
        ("circle:1", 8, "LAT is missing"),
        ("circle:", 7, "LON is missing"),
        ("circle:1,2,", 11, "RADIUS is missing"),
        ("circle:1,2,500", 14, "needs a unit"),
        ("circle:1,2,500ft", 14, "'ft' is not a unit"),
        ("circle:1,2,0m", 11, "greater than 0"),
        ("circle:1,92,5m", 9, "latitude 92"),
        ("circle:1,2,5m,6", 12, "RADIUS must be"),
        ("circle:1,2,30000km", 11, "longer than the 20037509m allowed"),
        ("near:", 5, "RADIUS is missing"),
        ("near:me", 5, "RADIUS must be a number such as 12 or -0.5, not 'me'"),
        ("cell:", 5, "GEOHASH is missing"),
        ("cell:wydma", 9, "'a' is not of a geohash"),
        ("cell:0123456789bcd", 17, "at most 12 characters"),
        ("fence:", 6, "NAME is missing"),
        ("fence:old harbour", 9, "' ' cannot be in the name of a fence"),
        ("fence:a:b", 7, "':' cannot be"),
        ("near:5m;", 8, "'' is not an option"),
        ("near:5m;detect", 14, "detect must be one of inside, enter, exit, cross, not ''"),
        ("near:5m;detect=in", 15, "not 'in'"),
        ("near:5m;Detect=enter", 8, "'Detect' is not an option"),
        ("near:5m;detect=enter;detect=exit", 21, "said twice"),
        ("near:5m,detect=enter", 6, "RADIUS must be"),
    ],
)
def test_errors_point_at_the_character(text, position, reason):
    with pytest.raises(GrammarError, match=reason) as raised:
        geo(text)
    assert raised.value.position == position + 2


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("bbox:3,2,1,4", 5, "a plane has no antimeridian"),
        ("bbox:1,2,61,4", 9, r"x 61 is not in 0\.\.60"),
        ("circle:1,26,5", 9, r"y 26 is not in 0\.\.25\.5"),
        ("circle:1", 8, "Y is missing"),
        ("cell:wydm9", 0, "a plane has no geohash cells"),
    ],
)
def test_errors_in_a_plane(text, position, reason):
    with pytest.raises(GrammarError, match=reason) as raised:
        geo(text, FLOOR)
    assert raised.value.position == position + 2


def test_limits():
    assert geo("near:5m", limits=Limits(radius_metres=5))
    with pytest.raises(GrammarError, match="longer than the 5m"):
        geo("near:5.1m", limits=Limits(radius_metres=5))
    assert geo("fence:abc", limits=Limits(name_characters=3))
    with pytest.raises(GrammarError, match="more than 3 characters") as raised:
        geo("fence:abcd", limits=Limits(name_characters=3))
    assert raised.value.position == 2 + 9


@pytest.mark.parametrize("bounds", [(1, 0, 1, 1), (0, 1, 1, 0), (float("nan"), 0, 1, 1), (0, 0, float("inf"), 1)])
def test_a_space_has_an_extent(bounds):
    with pytest.raises(ValueError, match="west < east and south < north"):
        plane(*bounds)
