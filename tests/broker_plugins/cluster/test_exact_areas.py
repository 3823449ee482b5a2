"""Areas that are spelled out are asked on another node as on the node they are on."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from broker_plugins.cluster.exact_areas import LONGEST, ExactAreas, UnreadableAreaError, is_spelled, read_shape, spell
from broker_plugins.cluster.interest import OtherWishes, OwnWishes
from broker_plugins.cluster.listening import Listening
from broker_plugins.cluster.node import Node
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.own_blocks import OwnBlocks
from broker_plugins.cluster.wire import HELD, Delta, Wish, decode, encode
from broker_plugins.geo.spots import Group
from broker_plugins.geo.zones import Zone, solid
from spatial_index import WGS84, Box, Circle, Limits, Plane, Point, Polygon, RegionTree, SpatialIndexError, adapt_tree
from spatial_index.region_cells import names_at, names_in
from spatial_index.shapes import measured

if TYPE_CHECKING:
    from broker_plugins.places import Place
    from spatial_index.shapes import Shape
    from spatial_index.spaces import Space

SPACES: tuple[Space, ...] = (WGS84, Plane(0.0, -3.0, 8.0, 5.0))
shares = st.one_of(st.integers(0, 32).map(lambda part: part / 32), st.floats(0, 1))
"""Parts of the way across a space: often on borders of blocks, at the antimeridian or at a pole."""


@st.composite
def points(draw: st.DrawFn, space: Space) -> tuple[float, float]:
    west, south, east, north = space.bounds
    across, along = draw(shares), draw(shares)
    return min(west + (east - west) * across, east), min(south + (north - south) * along, north)


@st.composite
def boxes(draw: st.DrawFn, space: Space) -> tuple[float, float, float, float]:
    """Some across the antimeridian, some flat."""
    (x, y), (to_x, to_y) = draw(points(space)), draw(points(space))
    if space is not WGS84:
        x, to_x = sorted((x, to_x))
    return x, min(y, to_y), to_x, max(y, to_y)


@st.composite
def polygons(draw: st.DrawFn, space: Space) -> Polygon | None:
    """A star around a place, some with a hole; None if that is none of this space."""
    x, y = draw(points(space))
    west, south, east, north = space.bounds
    reach = draw(st.floats(0.01, 0.2)) * (north - south)
    parts = draw(st.lists(st.floats(0.3, 1.0), min_size=3, max_size=9))
    corners = []
    for number, part in enumerate(parts):
        angle = math.tau * number / len(parts)
        corner_x, corner_y = x + reach * part * math.cos(angle), y + reach * part * math.sin(angle)
        if space is WGS84:
            corner_x = (corner_x + 180.0) % 360.0 - 180.0
        corners.append((min(max(corner_x, west), east), min(max(corner_y, south), north)))
    hole = [(x + reach / 20 * dx, y + reach / 20 * dy) for dx, dy in ((1, 0), (0, 1), (-1, 0), (1, 0))]
    polygon = Polygon([*corners, corners[0]], [hole] if draw(st.booleans()) else [])
    try:
        measured(space, polygon)
    except SpatialIndexError:
        return None
    return polygon


@st.composite
def shapes(draw: st.DrawFn, space: Space) -> Shape:
    kind = draw(st.sampled_from(("box", "circle", "polygon")))
    if kind == "box":
        return solid(draw(boxes(space)), space)
    polygon = draw(polygons(space)) if kind == "polygon" else None
    if polygon is not None:
        return polygon
    x, y = draw(points(space))
    return Circle(x, y, draw(st.floats(1e-3, 1.0)) * space.longest_radius() / draw(st.sampled_from((3, 30, 3000))))


def places(space: Space) -> st.SearchStrategy[Place]:
    return st.one_of(points(space), boxes(space))


def wider(shape: Shape, space: Space) -> Shape:
    if isinstance(shape, Circle):
        return Circle(shape.x, shape.y, min(shape.radius * (1 + 1e-6) + 1e-6, space.longest_radius()))
    return shape


def check(space: Space, held: bool, given: list[Shape], places_group: Group, place: Place) -> None:
    """Somebody is found by who asks the names if the node finds somebody, and not otherwise but for rounding."""
    if places_group.find(place) or any(Zone(space, shape).holds(place) for shape in given):
        assert held
    elif held:
        assert any(Zone(space, wider(shape, space)).holds(place) for shape in given if isinstance(shape, Circle))


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_areas_are_asked_as_the_node_does_that_they_are_on(space: Space, data: st.DataObject) -> None:
    given = [each for each in data.draw(st.lists(shapes(space), max_size=24)) if spell(space, each)]
    names = [spell(space, each) or "" for each in given]
    group, areas, told = Group("a", space), ExactAreas(pytest.fail), dict.fromkeys(names)
    for number, shape in enumerate(given):
        group.place(group.spot(number), shape)
    for name in told:
        assert is_spelled(name)
        areas.add(name)
    assert len(areas) == len(told)
    asked = data.draw(st.lists(places(space), min_size=1, max_size=8))
    corners = [(shape[0], shape[1]) for shape in given if isinstance(shape, tuple)]
    for place in [*asked, *corners]:
        check(space, areas.hold(space, place), given, group, place)
    for name in told:
        areas.remove(name)
    assert not areas
    assert not any(areas.hold(space, place) for place in asked)


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_is_spelled_is_read_as_it_was(space: Space, data: st.DataObject) -> None:
    shape = data.draw(shapes(space))
    name = spell(space, shape)
    if name is None:
        assert isinstance(shape, Circle)
        assert shape.radius > space.longest_radius() / 4
    else:
        assert read_shape(name) == (
            Polygon(list(shape.ring), list(shape.holes)) if isinstance(shape, Polygon) else shape
        )


def test_a_polygon_of_many_corners_is_not_spelled() -> None:
    corners = [(math.cos(turn / 300 * math.tau), math.sin(turn / 300 * math.tau)) for turn in range(300)]
    assert spell(WGS84, Polygon([*corners, corners[0]])) is None
    assert spell(WGS84, Polygon([*corners * 10, corners[0]])) is None
    assert spell(WGS84, Polygon([*corners[::5], corners[0]])) is not None


BAD = [
    "=",
    "=b",
    "=b1,2,3",
    "=c1,2",
    "=cx,y,z",
    "=z1,2",
    "=o1,2,3",
    "=o",
    "=o1,1,2,2,1",
    "=p1,2;3,4",
    "=" + "1" * LONGEST,
]
NONE = [
    "=cnan,0,5",
    "=c0,0,-5",
    "=c0,0,inf",
    "=b10,20,30,10",
    "=o0,0,1,1,0,0",
    "=o0,0,1,1,1,0,0,1,0,0",
    "=p200,0",
    "=b0,0,999,1",
]


@pytest.mark.parametrize("name", BAD)
def test_what_spells_no_area_is_refused(name: str) -> None:
    with pytest.raises(UnreadableAreaError):
        read_shape(name)


@given(st.text(max_size=60), st.sampled_from("bcop"))
def test_any_text_is_read_or_refused(text: str, kind: str) -> None:
    told: list[str] = []
    areas = ExactAreas(told.append)
    areas.add(f"={kind}{text}")
    assert areas.hold(WGS84, (1.0, 2.0)) in (True, False)
    assert len(areas) == 1


@pytest.mark.parametrize("name", [*BAD, *NONE])
def test_an_area_that_cannot_be_read_is_everywhere_and_is_counted(name: str) -> None:
    node: Any = Node(ClusterOptions(node="here"), ClusterCounters())
    others = OtherWishes()
    Listening(node, SimpleNamespace(own=OwnWishes("here", 1), others=others), SimpleNamespace(adopted=[]))  # type: ignore[arg-type]
    wishes = [Wish("", "@", 1), Wish("a", "@" + name, HELD), Wish("b", "@=p1,2", HELD)]
    others.replace(Delta("x", 1, 0, 1, wishes))
    for _ in range(3):
        assert others.listens("x", 1, ["a"], set(), (WGS84, (77.0, 7.0))) is True
        assert others.listens("x", 1, ["b"], set(), (WGS84, (77.0, 7.0))) is False
    assert node.counters.unreadable == 1
    others.replace(Delta("x", 1, 0, 2, [Wish("", "@", 1)]))
    assert others.listens("x", 1, ["a"], set(), (WGS84, (77.0, 7.0))) is False


def test_a_node_that_spells_all_its_areas_is_known_in_every_version() -> None:
    others = OtherWishes()
    others.replace(Delta("x", 1, 0, 1, [Wish("a", "@=b0,0,10,10", HELD), Wish("b", "@q", HELD)]))
    inside, outside = (WGS84, (5.0, 5.0)), (WGS84, (50.0, 5.0))
    assert others.listens("x", 1, ["a"], {"q"}, outside) is None  # it has not said that this is all
    others.apply(Delta("x", 1, 1, 2, [Wish("", "@", 7)]))
    for version, names in ((7, {"q"}), (8, {"q"}), (None, None), (7, None)):
        assert others.listens("x", version, ["a"], names, inside) is True
        assert others.listens("x", version, ["a"], names, outside) is False
        assert others.listens("x", version, ["a", "b"], names, inside) is True
        told = True if (version, names) == (7, {"q"}) else None
        assert others.listens("x", version, ["a", "b"], names, outside) is told
    assert others.by_blocks({"x": ["b"]})
    assert not others.by_blocks({"x": ["a"]})


class Spelled(RuleBasedStateMachine):
    """A node whose areas come, change and go over a map that changes; some are spelled, as many as it may."""

    @initialize(space=st.sampled_from(SPACES), characters=st.sampled_from((0, 150, 100_000)))
    def begin(self, space: Space, characters: int) -> None:
        self.space, self.characters = space, characters
        self.wishes = OwnWishes("x", 1)
        self.own = OwnBlocks(self.wishes, many=40, characters=characters)
        self.others = OtherWishes()
        self.others.misread = pytest.fail
        self.areas: dict[int, Shape] = {}
        self.tree = RegionTree(space, Limits(capacity=10, max_depth=4))

    @rule(key=st.integers(0, 20), data=st.data())
    def put(self, key: int, data: st.DataObject) -> None:
        shape = data.draw(shapes(self.space))
        self.areas[key] = shape
        self.own.put(key, "a", measured(self.space, shape)[0], spell(self.space, shape))

    @rule(key=st.integers(0, 20))
    def drop(self, key: int) -> None:
        self.areas.pop(key, None)
        self.own.drop(key)

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        names = sorted(block.id for block in self.tree)
        heavy = data.draw(st.sets(st.sampled_from(names), max_size=3))
        self.tree = adapt_tree(self.tree, {name: 11.0 if name in heavy else 0.5 for name in names})
        self.own.adopt(self.tree)

    @rule(lost=st.booleans())
    def announce(self, lost: bool) -> None:
        delta = self.wishes.delta()
        if delta is not None and not lost:
            self.others.apply(decode(encode(delta), Delta))

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        self.own.adopt(self.tree)
        self.announce(lost=False)
        if not self.others.is_current("x", 1, self.wishes.version):
            self.others.replace(decode(encode(self.wishes.snapshot(), squeeze=True), Delta))
        group = Group("a", self.space)
        for key, shape in self.areas.items():
            group.place(group.spot(key), shape)
        spelled = self.characters > 1000 and all(spell(self.space, shape) for shape in self.areas.values())
        for place in data.draw(st.lists(places(self.space), min_size=1, max_size=6)):
            names = _names(self.tree, place)
            told = self.others.listens("x", self.tree.version, ["a"], names, (self.space, place))
            if spelled:
                assert told is not None
                check(self.space, told, list(self.areas.values()), group, place)
                assert told is self.others.listens("x", self.tree.version + 1, ["a"], None, (self.space, place))
            elif group.find(place):
                assert told is not False

    def teardown(self) -> None:
        for key in list(getattr(self, "areas", ())):
            self.own.drop(key)
        if hasattr(self, "wishes"):
            assert len(self.wishes) == self.wishes.in_blocks == len(self.own) == 0


def _names(tree: RegionTree, place: Place) -> set[str] | None:
    if len(place) == 2:
        return names_at(tree, *place)
    box = solid(place, tree.space)
    return names_at(tree, box.x, box.y) if isinstance(box, Point) else names_in(tree, Box(*box), 4000)


TestSpelled = Spelled.TestCase
TestSpelled.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
