from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reproduction.mobile_world import PLANE, MobileWorld, MobileWorldSettings
from spatial_index import BadCount, Observations, RegionTree, SlowRegionSettings, slow_regions, with_regions
from spatial_index.slow_regions import otsu_threshold
from spatial_index.spaces import WGS84


def watched(world, rounds=60):
    seen = []
    for _ in range(rounds):
        world.step()
        seen.append(world.places)
    places = np.concatenate(seen)
    users = np.tile(np.arange(world.settings.users), rounds)
    times = np.repeat(np.arange(rounds), world.settings.users)
    return users, times, places[:, 0], places[:, 1]


def share_covered(truth, box):
    width = min(truth[2], box[2]) - max(truth[0], box[0])
    height = min(truth[3], box[3]) - max(truth[1], box[1])
    return max(width, 0) * max(height, 0) / ((truth[2] - truth[0]) * (truth[3] - truth[1]))


@pytest.mark.parametrize("seed", range(4))
def test_the_regions_of_the_papers_world_are_found(seed):
    world = MobileWorld(MobileWorldSettings(), seed)
    found = slow_regions(Observations.of(*watched(world), space=PLANE))
    assert found.slow_users == 500
    assert 2.4 < found.threshold < 4.8
    assert len(found.regions) == 8
    for truth in world.regions:
        assert sum(share_covered(truth, region.box) > 0.9 for region in found.regions) == 1
    assert sum(region.population for region in found.regions) == pytest.approx(500, abs=5)
    assert min(region.residency for region in found.regions) >= 0.9
    tree = with_regions(RegionTree(PLANE), [region.box for region in found.regions])
    assert sum(block.slow for block in tree) == 8


@pytest.mark.parametrize(
    "settings_",
    [
        MobileWorldSettings(clustered=False),
        MobileWorldSettings(fast_factor=1.0),
        MobileWorldSettings(fast_factor=1.5),
    ],
    ids=["not clustered", "one speed", "speeds too close"],
)
def test_nothing_is_found_where_there_is_nothing(settings_):
    for seed in range(3):
        assert slow_regions(Observations.of(*watched(MobileWorld(settings_, seed)), space=PLANE)).regions == ()


def test_parts_of_the_reports_give_the_same_regions():
    columns = watched(MobileWorld(MobileWorldSettings(), 1))
    whole = slow_regions(Observations.of(*columns, space=PLANE))
    parts = [Observations.of(*(column[part::5] for column in columns), space=PLANE) for part in range(5)]
    assert slow_regions(parts[3].merge(*parts[:3], parts[4])) == whole


@pytest.mark.parametrize("centre", [(126.97, 37.56), (179.995, -17.0), (-180.0, 60.0)])
def test_regions_on_the_earth_also_across_the_antimeridian(centre):
    """The paper's world as a city of 100 km, and one unit is 100 m."""
    world = MobileWorld(MobileWorldSettings(), 2)
    users, times, xs, ys = watched(world)
    metres = 111_195.0

    def degrees(x, y):
        lat = centre[1] + (y - 500) * 100 / metres
        lon = centre[0] + (x - 500) * 100 / (metres * np.cos(np.radians(lat)))
        return (lon + 180) % 360 - 180, lat

    found = slow_regions(Observations.of(users, times, *degrees(xs, ys), space=WGS84), SlowRegionSettings(cell=4000.0))
    assert found.threshold == pytest.approx(340, rel=0.2)
    tree = with_regions(RegionTree(WGS84), [region.box for region in found.regions])
    for truth in world.regions:
        middle = degrees((truth.west + truth.east) / 2, (truth.south + truth.north) / 2)
        assert tree.home(float(middle[0]), float(middle[1])).slow
    assert len(found.regions) == 8


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(2.5, 20), st.floats(0.1, 0.9))
def test_otsu_divides_two_kinds_and_leaves_one_alone(seed, factor, share):
    rng = np.random.default_rng(seed)
    slow, fast = rng.uniform(0.9, 1.1, int(200 * share)), factor * rng.uniform(0.9, 1.1, 200 - int(200 * share))
    threshold = otsu_threshold(np.concatenate([slow, fast]), 1.8, 0.6)
    assert slow.max() < threshold < fast.min()
    assert otsu_threshold(slow, 1.8, 0.6) is None


def test_standing_still_is_slow_and_nobody_moving_is_no_kind():
    speeds = np.array([0.0] * 50 + [10.0] * 50)
    assert 0 < otsu_threshold(speeds, 1.8, 0.6) < 10
    assert otsu_threshold(np.zeros(10), 1.8, 0.6) is None
    assert otsu_threshold(np.empty(0), 1.8, 0.6) is None


def test_too_few_reports_find_nothing():
    assert slow_regions(Observations.of([], [], [], [], space=PLANE)).users == 0
    few = Observations.of([1, 1, 2, 2], [0, 1, 0, 1], [1, 2, 3, 9], [1, 2, 3, 9], space=PLANE)
    assert slow_regions(few).regions == ()


@pytest.mark.parametrize(
    "bad", [{"cell": 0}, {"cell": float("nan")}, {"slow_share": 1.2}, {"crowding": -1}, {"fewest_steps": 0}]
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(BadCount, match=next(iter(bad))):
        SlowRegionSettings(**bad)
