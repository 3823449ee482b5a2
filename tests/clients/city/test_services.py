from __future__ import annotations

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.geometry import Polygon

from broker_plugins.grammar import parse_filter
from clients.city.plane import Plane
from clients.city.services import DEAD_AFTER_READINGS, Alert, Happenings, Offer, Sensors, fences_of, workers_of
from clients.city.streets import Streets
from clients.city.topics import ATTRIBUTES, OFFERS
from clients.fences import read_fence

STREETS = Streets(7)
seeds = st.integers(min_value=0, max_value=2**31)
times = st.lists(st.floats(min_value=0.0, max_value=60.0), min_size=1, max_size=20).map(sorted)


@settings(max_examples=50, deadline=None)
@given(seeds, times)
def test_readings_do_not_depend_on_when_one_looks(seed, looks):
    often, once = Sensors(STREETS, seed), Sensors(STREETS, seed)
    assert [reading for now in looks for reading in often.until(now)] == once.until(looks[-1])


@settings(max_examples=50, deadline=None)
@given(seeds, times)
def test_happenings_do_not_depend_on_when_one_looks(seed, looks):
    often, once = Happenings(STREETS, seed), Happenings(STREETS, seed)
    seen, whole = [each for now in looks for each in often.until(now)], once.until(looks[-1])
    for kind in (Offer, Alert):
        assert [each for each in seen if isinstance(each, kind)] == [each for each in whole if isinstance(each, kind)]


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_offers_and_alerts_come_up(seed):
    happened = Happenings(STREETS, seed).until(600.0)
    offers = [each for each in happened if isinstance(each, Offer)]
    assert [offer.number for offer in offers] == list(range(1, len(offers) + 1))
    assert 200 < len(offers) < 700
    assert any(isinstance(each, Alert) for each in happened)
    for offer in offers:
        for name, (low, high) in ATTRIBUTES.items():
            assert low <= offer.values[name] <= high


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_sensors_differ_in_rhythm_and_some_fall_silent(seed):
    sensors = Sensors(STREETS, seed)
    readings = sensors.until(1200.0)
    counts: dict[tuple[str, str], int] = {}
    for reading in readings:
        counts[reading.sensor, reading.quantity] = counts.get((reading.sensor, reading.quantity), 0) + 1
        assert reading.value >= 0.0
    assert len(counts) == sensors.topics
    assert max(counts.values()) > 400
    assert min(counts.values()) <= 20
    late = {(reading.sensor, reading.quantity) for reading in sensors.until(2400.0)}
    for key, count in counts.items():
        assert key in late or count == DEAD_AFTER_READINGS or count < 30


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_fences_are_polygons_that_the_broker_takes(seed):
    plane = Plane(126.97, 37.56)
    fences = fences_of(Streets(seed), seed)
    assert len({fence.name for fence in fences}) == len(fences) == 6
    for fence in fences:
        ring = [plane.globe(point) for point in (*fence.ring, fence.ring[0])]
        shape = read_fence(json.dumps({"type": "Polygon", "coordinates": [ring]}).encode())
        assert 10_000 < shape.area_m2 < 1_000_000
    assert not any(
        Polygon(one.ring).intersects(Polygon(other.ring)) for one, other in itertools.combinations(fences, 2)
    )


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_workers_say_what_they_want_in_filters(seed):
    for worker in workers_of(30, seed):
        smart = parse_filter(worker.filter)
        assert smart.inner == OFFERS
        assert smart.where is not None
