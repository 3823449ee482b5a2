"""How well `slow_regions` finds the slow regions of worlds that know theirs."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.reproduction.mobile_world import PLANE, MobileWorld, MobileWorldSettings
from benchmarks.reproduction.page import table
from spatial_index import Observations, slow_regions
from spatial_index.region_blocks import area, overlap

if TYPE_CHECKING:
    from spatial_index.spaces import Box

WATCHED_ROUNDS = 60
SEEDS = range(1, 9)

WORLDS = {
    "1000 users, 8 regions of side 90 (the paper's)": MobileWorldSettings(),
    "300 users": MobileWorldSettings(users=300),
    "2000 users": MobileWorldSettings(users=2000),
    "2000 users, 20 regions of side 50": MobileWorldSettings(users=2000, regions=20, region_side=50.0),
    "the others only 2 times as fast": MobileWorldSettings(fast_factor=2.0),
    "the others only 1.5 times as fast": MobileWorldSettings(fast_factor=1.5),
    "a fifth of the users slow": MobileWorldSettings(slow_share=0.2),
    "8 regions of side 150": MobileWorldSettings(region_side=150.0),
    "slow users not clustered": MobileWorldSettings(clustered=False),
    "everybody equally fast": MobileWorldSettings(fast_factor=1.0),
}


def watch(world: MobileWorld) -> Observations:
    """Report everybody's place each round for 60 rounds."""
    seen = []
    for _ in range(WATCHED_ROUNDS):
        world.step()
        seen.append(world.places)
    places = np.concatenate(seen)
    users = world.settings.users
    return Observations.of(
        np.tile(np.arange(users), WATCHED_ROUNDS),
        np.repeat(np.arange(WATCHED_ROUNDS), users),
        places[:, 0],
        places[:, 1],
        space=PLANE,
    )


def watched_regions(world: MobileWorld) -> list[Box]:
    """The slow regions found after watching a world for a while."""
    return [region.box for region in slow_regions(watch(world)).regions]


def discovery() -> str:
    """A section with precision and recall over a few worlds.

    A found box is right if it covers most of a true region and is mostly that region and its margin; a true region is
    found if a box covers at least 80 % of it.
    """
    rows = []
    for name, settings in WORLDS.items():
        found, right, hit, likeness = [], [], [], []
        for seed in SEEDS:
            world = MobileWorld(settings, seed)
            boxes = watched_regions(world)
            truth = world.regions if settings.clustered and settings.fast_factor > 1 else []
            found.append(len(boxes))
            right += [
                any(_covered(true, box) >= 0.8 and _likeness(true, box) >= 0.3 for true in truth) for box in boxes
            ]
            hit += [any(_covered(true, box) >= 0.8 for box in boxes) for true in truth]
            likeness += [max((_likeness(true, box) for true in truth), default=0.0) for box in boxes]
        rows.append(
            [
                name,
                f"{mean(found):.1f}",
                f"{mean(right):.2f}" if right else "–",
                f"{mean(hit):.2f}" if hit else "–",
                f"{mean(likeness):.2f}" if likeness else "–",
            ]
        )
    return f"""## Finding slow regions from movement

`slow_regions` with its default settings on {WATCHED_ROUNDS} rounds of reports, mean over {len(SEEDS)} seeds. A box is
right if it covers 80 % of a true region and shares 30 % of their union (a box has a margin of half a cell on each side,
which at 300 users is wide); a region is found if a box covers 80 % of it.

{table(["world", "boxes found", "precision", "recall", "shared area over union"], rows)}

(The prototype had precision 1.00 and recall 0.94–1.00 in its own worlds.) What is not found follows from the rules:
where the others are only 1.5 times as fast there are no two kinds of users; and a cell is hot from three times the mean
density, which a fifth of the users, or half of them in regions of side 150 (18 % of the plane), hardly reach."""


def _covered(true: Box, box: Box) -> float:
    shared = overlap(true, box)
    return 0.0 if shared is None else area(shared) / area(true)


def _likeness(true: Box, box: Box) -> float:
    shared = overlap(true, box)
    return 0.0 if shared is None else area(shared) / (area(true) + area(box) - area(shared))
