"""An overlay whose full boxes are divided by Guttman's quadratic split, for comparison with the best split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spatial_index import OverlayTree
from spatial_index.overlay_boxes import BoxTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spatial_index.overlay_boxes import Member


class GuttmanTree(BoxTree):
    """Two seeds that waste most together, then each member where it enlarges less, the most decided first."""

    def _half(self, members: Sequence[Member]) -> list[Member]:
        lows, highs = np.array([m.lows for m in members]), np.array([m.highs for m in members])
        volumes = self._volume(lows, highs)
        together = self._volume(np.minimum(lows[:, None], lows[None]), np.maximum(highs[:, None], highs[None]))
        dead = together - volumes[:, None] - volumes[None]
        np.fill_diagonal(dead, -np.inf)
        first, second = (int(index) for index in np.unravel_index(int(dead.argmax()), dead.shape))
        groups = ([first], [second])
        rest = [index for index in range(len(members)) if index not in (first, second)]

        def volume(group: list[int]) -> float:
            return float(self._volume(lows[group].min(axis=0)[None], highs[group].max(axis=0)[None])[0])

        while rest:
            short = next((group for group in groups if len(group) + len(rest) == self._fewest), None)
            if short is not None:
                short.extend(rest)
                break
            growth = [[volume([*group, index]) - volume(group) for group in groups] for index in rest]
            most = max(range(len(rest)), key=lambda place: abs(growth[place][0] - growth[place][1]))
            groups[int(growth[most][0] >= growth[most][1])].append(rest.pop(most))
        return [members[index] for index in groups[1]]


class GuttmanOverlay(OverlayTree):
    """An `OverlayTree` on such trees."""

    def _new_tree(self) -> BoxTree:
        return GuttmanTree(self._fewest, self._most, self._volume, self._least_overhead)
