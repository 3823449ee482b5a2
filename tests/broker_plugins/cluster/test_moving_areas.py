"""Circles around clients that move: what is announced holds all of them, and gets room as it pays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.exact_areas import ExactAreas, spell
from broker_plugins.cluster.moving_areas import (
    COARSE,
    FIRST,
    LEAST,
    LOOK_BYTES,
    MOST,
    NARROWEST,
    WIDE,
    WIDEST,
    MovingAreas,
    Room,
    announced_bytes,
    distance,
    reaches,
    rounded,
)
from broker_plugins.geo.zones import Zone
from spatial_index import WGS84, Box, Circle, Plane

if TYPE_CHECKING:
    from spatial_index.spaces import Space

FLOOR = Plane(0.1, -3.3, 8.7, 5.9)
SPACES: tuple[Space, ...] = (WGS84, FLOOR)
shares = st.one_of(st.integers(0, 16).map(lambda part: part / 16), st.floats(0, 1))


def place(space: Space, across: float, along: float) -> tuple[float, float]:
    west, south, east, north = space.bounds
    return min(west + (east - west) * across, east), min(south + (north - south) * along, north)


@pytest.mark.parametrize("space", SPACES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_what_is_announced_holds_the_circle_wherever_it_goes(space: Space, data: st.DataObject) -> None:
    radius = space.longest_radius() * 10.0 ** data.draw(st.floats(-6, -1))
    x, y = place(space, data.draw(shares), data.draw(shares))
    areas: MovingAreas[str] = MovingAreas()
    west, south, east, north = space.bounds
    told: Circle | None = None
    for _ in range(data.draw(st.integers(1, 12))):
        areas.room.factor = data.draw(st.floats(NARROWEST, WIDEST))
        circle = Circle(x, y, radius)
        put = areas.put("client", space, circle)
        told = put or told
        assert told is not None
        assert distance(space, circle, told) + radius <= told.radius * (1 + 1e-12)
        assert told.radius <= radius * (1 + WIDE * MOST) * (1 + 2 * COARSE)
        if put is not None:
            assert areas.put("client", space, circle) is None
        _check_places(data, space, circle, told)
        step = data.draw(st.floats(0, 1)) * (north - south) / 40
        turn = data.draw(st.floats(0, math.tau))
        x = min(max(x + step * math.cos(turn), west), east)
        y = min(max(y + step * math.sin(turn), south), north)
    areas.drop("client")
    areas.drop("client")
    assert not len(areas)


def _check_places(data: st.DataObject, space: Space, circle: Circle, told: Circle) -> None:
    name = spell(space, told)
    assert name is not None
    areas = ExactAreas(pytest.fail)
    areas.add(name)
    pieces = space.cover(circle.x, circle.y, circle.radius)
    part, high = data.draw(shares), data.draw(shares)
    for piece in pieces:
        other = piece.west + (piece.east - piece.west) * part, piece.south + (piece.north - piece.south) * high
        if Zone(space, circle).holds(other):
            assert areas.hold(space, other)
            assert reaches(space, told)(Box(*other, *other))


@given(st.floats(1e-3, 1e6), st.floats(-180, 180), st.floats(-90, 90), st.floats(0, 1))
def test_a_rounded_circle_is_little_wider_and_short_to_spell(radius: float, x: float, y: float, margin: float) -> None:
    circle = Circle(x, y, radius)
    told = rounded(WGS84, circle, radius * (1 + margin))
    assert radius * (1 + margin) <= told.radius <= radius * (1 + margin + COARSE) * 1.02
    name = spell(WGS84, told)
    assert name is not None
    assert len(name) <= 40
    if radius >= 100:
        assert len(name) <= 28


def test_there_is_more_room_while_announcing_costs_more_and_less_while_messages_come_in_vain() -> None:
    room = Room()
    first = room.margin(0.04)
    room.in_vain(LOOK_BYTES - 1)
    assert room.margin(0.04) == first
    room.announced(1)
    assert room.margin(0.04) < first
    for _ in range(40):
        room.in_vain(LOOK_BYTES)
    assert room.factor == NARROWEST
    assert room.margin(0.04) == LEAST
    for _ in range(40):
        room.announced(LOOK_BYTES)
    assert room.factor == WIDEST
    assert room.margin(0.04) == MOST
    assert room.margin(None) == FIRST
    assert announced_bytes("a", "=c1,2,3", 2) == 2 * announced_bytes("a", "=c1,2,3", 1) > 100


def test_who_goes_farther_between_reports_gets_more_room() -> None:
    areas: MovingAreas[str] = MovingAreas()
    told: dict[str, Circle] = {}
    for number in range(60):
        for name, step in (("slow", 0.005), ("fast", 0.08)):
            told[name] = areas.put(name, FLOOR, Circle(1.0 + number * step, 1.0, 0.5)) or told[name]
    assert told["slow"].radius < 0.5 * (1 + 0.15)
    assert told["fast"].radius > 0.5 * (1 + 0.3)


def test_a_circle_that_stands_still_gives_back_room() -> None:
    areas: MovingAreas[int] = MovingAreas()
    for step in range(3):
        for number in range(5):
            areas.put(number, FLOOR, Circle(4.0 + step, 1.0, 0.5))
    assert areas.wide(10) == []
    areas.room.factor = NARROWEST
    assert areas.wide(3) == [0, 1, 2]
    still = Circle(6.0, 1.0, 0.5)
    for number in areas.wide(10):
        told = areas.put(number, FLOOR, still)
        assert told is not None
        assert told.radius < 0.5 * (1 + MOST)
    assert areas.wide(10) == []
