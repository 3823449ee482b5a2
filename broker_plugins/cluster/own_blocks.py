"""In which blocks of the map this node's `$geo` subscriptions listen, kept right while they and the blocks move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_plugins.cluster.interest import EVERYWHERE
from spatial_index.region_cells import block_of_name, names_touched

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from broker_plugins.cluster.interest import OwnWishes
    from spatial_index import Box, RegionTree

MANY = 128
"""An area that takes more names of blocks and cells than this counts as everywhere."""
MOST = 50_000
"""From so many filters in blocks on, new areas count as everywhere: what a node announces is bounded."""


class _Area:
    __slots__ = ("inner", "names", "pieces")

    def __init__(self, inner: str) -> None:
        self.inner = inner
        self.pieces: Sequence[Box] = ()
        self.names: frozenset[str] = frozenset()


class OwnBlocks:
    """The areas in which somebody listens here.

    Args:
        wishes: what this node announces; told in which blocks each filter is listened to.
        many: how many names of blocks and cells one area may take before it counts as everywhere.
        most: how many filters in blocks may be announced.
    """

    def __init__(self, wishes: OwnWishes, many: int = MANY, most: int = MOST) -> None:
        self._wishes = wishes
        self._many = many
        self._most = most
        self._tree: RegionTree | None = None
        self._areas: dict[Hashable, _Area] = {}
        self._by_block: dict[str, dict[Hashable, None]] = {}

    def __len__(self) -> int:
        return len(self._areas)

    def put(self, key: Hashable, inner: str, pieces: Sequence[Box]) -> None:
        """An area is there, or somewhere else now.

        Args:
            key: tells it from all others.
            inner: the filter whose messages are wanted in it.
            pieces: closed boxes with west <= east that cover it.
        """
        area = self._areas.get(key)
        if area is None:
            area = self._areas[key] = _Area(inner)
        area.pieces = pieces
        self._set(key, area, self._touched(pieces))

    def drop(self, key: Hashable) -> None:
        """An area is no more; one that is not known is none."""
        area = self._areas.pop(key, None)
        if area is not None:
            self._set(key, area, frozenset())

    def covers(self, key: Hashable, pieces: Iterable[Box]) -> bool:
        """Whether an area, as it was put last, contains all of some pieces."""
        area = self._areas.get(key)
        return area is not None and all(any(_contains(own, piece) for own in area.pieces) for piece in pieces)

    def adopt(self, tree: RegionTree) -> None:
        """Another version of the map: name the blocks it has instead, where it has others."""
        old, self._tree = self._tree, tree
        self._wishes.chart(tree.version)
        if old is None or old.space != tree.space:
            keys: Iterable[Hashable] = list(self._areas)
        else:
            blocks = {block.id for block in old if block.id not in tree or tree[block.id].box != block.box}
            for block in tree:
                if block.id not in old or old[block.id].box != block.box:
                    blocks |= {before.id for before in old.touching(block.box)}
            blocks.add(EVERYWHERE)  # it may be few blocks now
            keys = list(dict.fromkeys(key for name in blocks for key in self._by_block.get(name, ())))
        for key in keys:
            area = self._areas[key]
            self._set(key, area, self._touched(area.pieces))

    def _touched(self, pieces: Sequence[Box]) -> frozenset[str]:
        if self._tree is None:
            return frozenset()
        touched = names_touched(self._tree, pieces, self._many) if self._wishes.in_blocks < self._most else None
        return frozenset((EVERYWHERE,)) if touched is None else touched

    def _set(self, key: Hashable, area: _Area, names: frozenset[str]) -> None:
        for name in names - area.names:
            self._wishes.listen(area.inner, name)
        for name in area.names - names:
            self._wishes.unlisten(area.inner, name)
        before, after = set(map(block_of_name, area.names)), set(map(block_of_name, names))
        for block in after - before:
            self._by_block.setdefault(block, {})[key] = None
        for block in before - after:
            here = self._by_block[block]
            del here[key]
            if not here:
                del self._by_block[block]
        area.names = names


def _contains(box: Box, other: Box) -> bool:
    return box.west <= other.west and other.east <= box.east and box.south <= other.south and other.north <= box.north
