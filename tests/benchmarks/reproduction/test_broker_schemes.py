from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reproduction.broker_schemes import CAPACITY, FEWEST, BlockScheme, RScheme
from benchmarks.reproduction.mobile_world import MobileWorld, MobileWorldSettings

SCHEMES = {
    "R": lambda world: RScheme(world.places),
    "Q": lambda world: BlockScheme(world.places, []),
    "Q+R": lambda world: BlockScheme(world.places, world.regions),
    "Q+R as printed": lambda world: BlockScheme(world.places, world.regions, whole_regions=True),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_no_scheme_loses_a_delivery_and_loads_keep_to_the_capacity(name):
    world = MobileWorld(MobileWorldSettings(users=300), 7)
    scheme = SCHEMES[name](world)
    for _ in range(40):
        world.step()
        scheme.round(world.places, world.events(20, 20, 120))
        assert scheme.counts.lost == 0
        names, areas = scheme.areas()
        assert len(set(names)) == len(names) == scheme.brokers
        where = dict(zip(names, areas, strict=True))
        mine = np.array([where[broker] for broker in scheme.broker])
        assert (mine[:, :2] <= world.places).all()
        assert (world.places <= mine[:, 2:]).all()
        if name != "Q+R as printed":
            # A user may be kept beyond the border of a block that has just been split: a few more than the capacity.
            assert np.unique(scheme.broker, return_counts=True)[1].max() <= CAPACITY + 8
    assert scheme.counts.deliveries > 0
    assert scheme.counts.handovers > 0


def test_a_sticky_rectangle_keeps_its_users_longer_the_farther_it_stretches():
    handovers = []
    for stretch in (1.1, 3.0):
        world = MobileWorld(MobileWorldSettings(users=300), 7)
        scheme = RScheme(world.places, stretch)
        for _ in range(40):
            world.step()
            scheme.round(world.places, world.events(5, 20, 120))
        handovers.append(scheme.counts.handovers)
    assert handovers[0] > 1.5 * handovers[1]
    assert FEWEST < CAPACITY / 2


def test_whole_regions_are_never_split():
    world = MobileWorld(MobileWorldSettings(), 7)
    printed = BlockScheme(world.places, world.regions, whole_regions=True)
    split = BlockScheme(world.places, world.regions)
    assert sum(block.slow for block in printed.tree) == 8
    assert sum(block.slow for block in split.tree) >= 24
