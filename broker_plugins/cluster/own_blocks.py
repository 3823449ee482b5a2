"""Where this node's `$geo` subscriptions listen, kept right while they and the blocks of the map move.

Areas go by the blocks and cells of the map that they touch, or, where that is said, by a name that spells them out and
is the same for every version of the map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_plugins.cluster.exact_areas import is_spelled
from broker_plugins.cluster.interest import EVERYWHERE
from spatial_index.region_cells import block_of_name, names_touched

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from broker_plugins.cluster.interest import OwnWishes
    from spatial_index import Box, RegionTree

MANY = 128
"""An area that takes more names of blocks and cells than this counts as everywhere."""
MOST = 50_000
"""From so many filters in blocks on, new areas count as everywhere: what a node announces is bounded."""
CHARACTERS = 524_288
"""From so many characters in the names of areas that are spelled out on, new ones go by blocks."""
SLICE = 50
"""Areas that are seen to in one step."""


class _Area:
    __slots__ = ("inner", "names", "pieces", "spelled", "touches")

    def __init__(self, inner: str) -> None:
        self.inner = inner
        self.spelled: str | None = None
        self.pieces: Sequence[Box] = ()
        self.touches: Callable[[Box], bool] | None = None
        self.names: frozenset[str] = frozenset()


class OwnBlocks:
    """The areas in which somebody listens here.

    Args:
        wishes: what this node announces; told in which blocks each filter is listened to.
        many: how many names of blocks and cells one area may take before it counts as everywhere.
        most: how many filters in blocks may be announced.
        at_once: how many areas are seen to in one step when the map changes.
        characters: how long the names of areas that are spelled out may be together.
    """

    def __init__(
        self,
        wishes: OwnWishes,
        many: int = MANY,
        most: int = MOST,
        at_once: int = SLICE,
        characters: int = CHARACTERS,
    ) -> None:
        self._wishes = wishes
        self._many = many
        self._most = most
        self._at_once = at_once
        self._left = characters
        """Characters that may still be spelled."""
        self._tree: RegionTree | None = None
        self._next: RegionTree | None = None
        """The version that is being prepared for."""
        self._stale: dict[Hashable, None] = {}
        """Areas that have names of several versions."""
        self._areas: dict[Hashable, _Area] = {}
        self._by_block: dict[str, dict[Hashable, None]] = {}

    def __len__(self) -> int:
        return len(self._areas)

    def put(
        self,
        key: Hashable,
        inner: str,
        pieces: Sequence[Box],
        spelled: str | None = None,
        touches: Callable[[Box], bool] | None = None,
    ) -> None:
        """An area is there, or somewhere else now.

        Args:
            key: tells it from all others.
            inner: the filter whose messages are wanted in it.
            pieces: closed boxes with west <= east that cover it.
            spelled: the name that spells it out, if it is to go by that rather than by blocks.
            touches: whether it touches a box, for an area that is less than all of the pieces.
        """
        area = self._areas.get(key)
        if area is None:
            area = self._areas[key] = _Area(inner)
        area.pieces, area.touches = pieces, touches
        self._spell(area, spelled)
        if self._next is not None:
            self._stale[key] = None
        self._set(key, area, self._touched(self._tree, area) | self._touched(self._next, area))

    def drop(self, key: Hashable) -> None:
        """An area is no more; one that is not known is none."""
        area = self._areas.pop(key, None)
        self._stale.pop(key, None)
        if area is not None:
            self._spell(area, None)
            self._set(key, area, frozenset())

    def adopt(self, tree: RegionTree) -> None:
        """Another version of the map, all at once."""
        for _ in self.prepare(tree):
            pass
        self.commit()
        for _ in self.tidy():
            pass

    def prepare(self, tree: RegionTree) -> Iterator[None]:
        """Announce under which names it is listened in another version, a few areas at each step.

        Names that the version in force does not have harm nobody: a name stands for the same place, or for nothing.
        Only a slow region's may stand for another place, and then somebody hears too much for a while.
        """
        self._next = tree
        for number, key in enumerate(self._affected(tree), 1):
            area = self._areas.get(key)
            if area is not None:
                self._stale[key] = None
                self._set(key, area, area.names | self._touched(tree, area))
            if not number % self._at_once:
                yield

    def commit(self) -> None:
        """Go by the version that was prepared for."""
        assert self._next is not None
        self._tree, self._next = self._next, None
        self._wishes.chart(self._tree.version)

    def tidy(self) -> Iterator[None]:
        """Take back the names that only other versions had, a few areas at each step."""
        for number, key in enumerate(list(self._stale), 1):
            self._stale.pop(key, None)
            area = self._areas.get(key)
            if area is not None:
                self._set(key, area, self._touched(self._tree, area) | self._touched(self._next, area))
            if not number % self._at_once:
                yield

    def _affected(self, tree: RegionTree) -> list[Hashable]:
        """The areas whose names differ in another version."""
        old = self._tree
        if old is None or old.space != tree.space:
            return list(self._areas)
        # A new quadtree block lies in one that is gone, or consists of such; a slow region lies over what it pleases.
        blocks = {block.id for block in old if block.id not in tree or tree[block.id].box != block.box}
        for block in tree:
            if block.slow and (block.id not in old or old[block.id].box != block.box):
                blocks |= {before.id for before in old.touching(block.box)}
        blocks.add(EVERYWHERE)  # it may be few blocks now
        return list(dict.fromkeys(key for name in blocks for key in self._by_block.get(name, ())))

    def _spell(self, area: _Area, spelled: str | None) -> None:
        """Let an area go by a name that spells it out, as long as there are characters left."""
        self._left += len(area.spelled or "")
        area.spelled = spelled if spelled is not None and len(spelled) <= self._left else None
        self._left -= len(area.spelled or "")

    def _touched(self, tree: RegionTree | None, area: _Area) -> frozenset[str]:
        """The names of an area in a version of the map."""
        if area.spelled is not None:
            return frozenset((area.spelled,))
        if tree is None:
            return frozenset()
        touched = (
            names_touched(tree, area.pieces, self._many, area.touches) if self._wishes.in_blocks < self._most else None
        )
        return frozenset((EVERYWHERE,)) if touched is None else touched

    def _set(self, key: Hashable, area: _Area, names: frozenset[str]) -> None:
        for name in names - area.names:
            self._wishes.listen(area.inner, name)
        for name in area.names - names:
            self._wishes.unlisten(area.inner, name)
        before, after = _blocks(area.names), _blocks(names)
        for block in after - before:
            self._by_block.setdefault(block, {})[key] = None
        for block in before - after:
            here = self._by_block[block]
            del here[key]
            if not here:
                del self._by_block[block]
        area.names = names


def _blocks(names: frozenset[str]) -> set[str]:
    """The blocks that names are in; an area that is spelled out is in none."""
    return {block_of_name(name) for name in names if not is_spelled(name)}
