"""The city of `locus bench geo`: its oracle, and cells that cover what circles hold."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.geo_scale import _microseconds
from benchmarks.geo_world import MOVING_SHARE, city
from broker_plugins.geo.zones import Zone, circle_shape
from broker_plugins.grammar import parse_filter
from spatial_index.spaces import WGS84


@pytest.fixture(scope="module")
def world():
    made = city(subscriptions=600, clients=20, events=300)
    made.step(np.random.default_rng(1), 50.0)
    return made


def test_the_oracle_is_what_circles_hold(world) -> None:
    zones = [
        Zone(WGS84, circle_shape(float(lon), float(lat), float(radius), WGS84))
        for lon, lat, radius in zip(world.lon, world.lat, world.radius, strict=True)
    ]
    places = zip(world.event_lon.tolist(), world.event_lat.tolist(), strict=True)
    for place, wanted in zip(places, world.wanted(), strict=True):
        assert set(wanted) == {number % world.clients for number, zone in enumerate(zones) if zone.holds(place)}
    assert sum(map(len, world.wanted())) > 50


def test_cells_cover_every_circle(world) -> None:
    held = [fixed | moving for fixed, moving in zip(world.cells(moving=False), world.cells(moving=True), strict=True)]
    for cell, wanted in zip(world.event_cells(), world.wanted(), strict=True):
        assert all(f"city/{cell}" in held[client] for client in wanted)


def test_filters_parse_and_a_tenth_of_them_moves(world) -> None:
    filters = [text for some in world.filters() for text in some]
    assert len(filters) == 600
    assert all(parse_filter(text).inner == "city/#" for text in filters)
    assert sum("near:" in text for text in filters) == 600 * MOVING_SHARE


def test_clients_walk_as_far_as_they_are_told(world) -> None:
    before = np.array(world.positions())
    world.step(np.random.default_rng(2), 100.0)
    moved = np.array(world.positions()) - before
    metres = np.hypot(moved[:, 0] * 111_195 * np.cos(np.radians(37.56)), moved[:, 1] * 111_195)
    assert np.allclose(metres, 100.0, atol=1.0)


def test_the_measure_of_scale_runs() -> None:
    assert _microseconds(3, 20) > 0
