from __future__ import annotations

import numpy as np

from benchmarks.reproduction.guttman_split import GuttmanOverlay
from benchmarks.reproduction.overlay_worlds import DOMAINS, Boxes


def test_an_overlay_with_guttmans_split_is_complete_and_well_filled():
    rng = np.random.default_rng(1)
    lows = rng.uniform(0, 900, (150, 2))
    boxes = Boxes(lows, lows + rng.uniform(0, 100, (150, 2)))
    tree = GuttmanOverlay(DOMAINS)
    boxes.join(tree)
    for event in rng.uniform(0, 1000, (100, 2)):
        delivery = tree.publish(dict(zip(DOMAINS, event.tolist(), strict=True)))
        assert sorted(delivery.receivers) == sorted(boxes.matching(event))
    root = next(iter(tree._trees.values())).root
    for box in root.inner_boxes():
        assert len(box.members) <= 6
        assert box is root or len(box.members) >= 3
