from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.geometry import LineString, Polygon
from shapely.geometry import Point as ShapelyPoint
from shapely.strtree import STRtree

from clients.city.movement import STROLLING_MPS, WALKING_MPS, Driver, Stroller, Walker
from clients.city.streets import AVENUE_MPS, Streets

STREETS = Streets(7)
LINES = [LineString([STREETS.crossings[s.start], STREETS.crossings[s.end]]) for s in STREETS.stretches]
TREE = STRtree(LINES)
seeds = st.integers(min_value=0, max_value=2**31)
times = st.lists(st.floats(min_value=0.0, max_value=3.0), min_size=1, max_size=120)


def street_below(point):
    """The nearest stretch and how far it is."""
    place = ShapelyPoint(point)
    number = int(TREE.nearest(place))
    return STREETS.stretches[number], LINES[number].distance(place)


@settings(max_examples=60, deadline=None)
@given(seeds, times)
def test_vehicles_stay_on_streets_and_below_the_limit(seed, elapsed):
    driver = Driver(STREETS, random.Random(seed))
    before = driver.advance(0.0)
    for step in elapsed:
        now = driver.advance(step)
        assert street_below(now.point)[1] < 1e-6
        assert 0.0 <= now.speed_mps <= AVENUE_MPS * 1.05
        assert before.point.distance_to(now.point) <= AVENUE_MPS * 1.05 * step + 1e-6
        assert 0.0 <= now.heading < 360.0
        before = now


@settings(max_examples=60, deadline=None)
@given(seeds, times)
def test_vehicles_obey_the_limit_of_their_street(seed, elapsed):
    driver = Driver(STREETS, random.Random(seed))
    for step in elapsed:
        now = driver.advance(step)
        assert now.speed_mps <= driver._stretch.limit_mps * 1.05


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_vehicles_get_about(seed):
    driver = Driver(STREETS, random.Random(seed))
    seen = {street_below(driver.advance(5.0).point)[0] for _ in range(120)}
    assert len(seen) > 3


@settings(max_examples=60, deadline=None)
@given(seeds, times)
def test_walkers_stay_on_streets_at_their_pace(seed, elapsed):
    walker = Walker(STREETS, random.Random(seed))
    before = walker.advance(0.0)
    for step in elapsed:
        now = walker.advance(step)
        assert street_below(now.point)[1] < 1e-6
        assert WALKING_MPS[0] <= now.speed_mps <= WALKING_MPS[1]
        assert before.point.distance_to(now.point) <= WALKING_MPS[1] * step + 1e-6
        before = now


@settings(max_examples=60, deadline=None)
@given(seeds, times)
def test_the_crowd_stays_in_the_square(seed, elapsed):
    stroller = Stroller(STREETS.square, random.Random(seed))
    square = Polygon(STREETS.square)
    before = stroller.advance(0.0)
    for step in elapsed:
        now = stroller.advance(step * 10)
        assert square.distance(ShapelyPoint(now.point)) < 1e-6
        assert 0.0 <= now.speed_mps <= STROLLING_MPS[1]
        assert before.point.distance_to(now.point) <= STROLLING_MPS[1] * step * 10 + 1e-6
        before = now


@settings(max_examples=30, deadline=None)
@given(seeds, times)
def test_a_seed_makes_one_way(seed, elapsed):
    for kind, where in ((Driver, STREETS), (Walker, STREETS), (Stroller, STREETS.square)):
        one, other = kind(where, random.Random(seed)), kind(where, random.Random(seed))
        assert [one.advance(step) for step in elapsed] == [other.advance(step) for step in elapsed]
