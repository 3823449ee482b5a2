"""What happens where, added up over nodes, and how clients moved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.region_load import REPORTS, SAMPLE, Loads, Trails, Watcher, merged, to_sightings
from broker_plugins.cluster.region_wire import Load, Sightings
from broker_plugins.cluster.wire import decode, encode
from spatial_index import WGS84, Limits, RegionTree, adapt_tree, slow_regions

TREE = adapt_tree(RegionTree(WGS84, Limits(capacity=1)), {"q": 2.0})
places = st.lists(st.tuples(st.floats(-180, 180), st.floats(-90, 90)), max_size=50)


@settings(max_examples=50, deadline=None)
@given(seen=st.lists(st.tuples(st.sampled_from("ab"), places), max_size=10))
def test_loads_are_those_of_the_last_reports_of_all_nodes(seen: list[tuple[str, list[tuple[float, float]]]]) -> None:
    loads, watchers = Loads(), {name: Watcher(name) for name in "ab"}
    lately: dict[str, list[list[tuple[float, float]]]] = {"a": [], "b": []}
    for name, some in seen:
        for place in some:
            watchers[name].note(place)
        loads.take(decode(encode(watchers[name].report(0.5)), Load))
        lately[name] = [*lately[name], some][-REPORTS:]
    due = dict.fromkeys((block.id for block in TREE), 0.0)
    for reports in lately.values():
        for x, y in (place for report in reports for place in report):
            due[TREE.home(x, y).id] += 1 / (0.5 * len(reports))
    found = loads.copy().by_block(TREE)
    assert found == pytest.approx(due)
    assert len(loads.sample()[0]) == sum(len(report) for reports in lately.values() for report in reports)
    loads.forget("a")
    loads.forget("b")
    assert not any(loads.by_block(TREE).values())


def test_of_many_places_a_fair_sample_is_reported() -> None:
    watcher = Watcher("a")
    for number in range(SAMPLE * 40):
        watcher.note((10.0, 10.0) if number % 4 else (-20.0, -20.0, -10.0, -10.0))
    load = watcher.report(1.0)
    assert load.count == SAMPLE * 40
    assert len(load.xs) == len(load.ys) == SAMPLE
    assert 0.1 < sum(x < 0 for x in load.xs) / SAMPLE < 0.4
    loads = Loads()
    loads.take(load)
    assert sum(loads.by_block(TREE).values()) == pytest.approx(SAMPLE * 40)
    assert watcher.report(1.0).count == 0


def test_slow_regions_are_found_from_what_several_nodes_saw() -> None:
    dice = np.random.default_rng(3)
    nodes = [Trails(WGS84, 1.0), Trails(WGS84, 1.0)]
    for user in range(60):
        slow = user < 30
        x, y = dice.uniform(10.0, 10.02, 2) if slow else dice.uniform(9.8, 10.2, 2)
        for second in range(40):
            step = 0.0002 if slow else 0.005
            x, y = x + dice.normal(0, step), y + dice.normal(0, step)
            if slow:
                x, y = np.clip([x, y], 10.0, 10.02)
            nodes[second > 20].note(f"user {user}", float(second), (float(x), float(y)))  # they move to another node
    answer = decode(encode(to_sightings(nodes[1].summary(40.0)), squeeze=True), Sightings)
    found = slow_regions(merged(nodes[0].summary(40.0), [answer]))
    assert len(found.regions) == 1
    box = found.regions[0].box
    assert 9.99 < box.west < 10.005
    assert 10.015 < box.north < 10.03
    assert not len(nodes[0].summary(1000.0)), "who is silent for long is left out"
    with pytest.raises(ValueError, match="not one of each"):
        merged(nodes[0].summary(40.0), [Sightings(answer.users[8:], answer.times, answer.xs, answer.ys)])


def test_positions_that_come_too_soon_do_not_count() -> None:
    trails = Trails(WGS84, 1.0)
    for tenth in range(100):
        trails.note("walker", tenth / 10, (10.0, 10.0))
    assert 8 <= len(trails.summary(10.0)) <= 10
