"""`RegionTree`: which block, and so which node, is responsible for a place or an area (paper 000).

The space is a quadtree of blocks; slow regions, where people linger, lie over it as R blocks with precedence. Blocks
and the R blocks over them are cross-linked, so that one way down the quadtree finds both. A tree is never changed:
`adapt_tree`, `with_regions` and `with_owners` answer a new version, and `diff_trees` says what moves to whom.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from spatial_index.errors import BadBox, BadTree, UnknownId
from spatial_index.region_blocks import (
    Block,
    Limits,
    children_of,
    holds,
    holds_many,
    meets,
    overlap,
    quarters,
    uncovered_place,
    widened,
)
from spatial_index.spaces import WGS84, Box, Plane, Sphere, checked_box, checked_place, checked_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from spatial_index.spaces import Floats, Space

FORMAT = 1


class RegionTree:
    """One version of the blocks of a space.

    Args:
        space: the Earth (`WGS84`) or a `Plane`.
        limits: when blocks split and merge.
        blocks: the leaf blocks; one block for everything if not said.
        version: grows by one with every change.
        next_region: the number the next new slow region gets; numbers are never used twice.
    """

    __slots__ = ("_blocks", "_links", "limits", "next_region", "space", "version")

    def __init__(
        self,
        space: Space = WGS84,
        limits: Limits | None = None,
        *,
        blocks: Iterable[Block] | None = None,
        version: int = 1,
        next_region: int = 0,
    ) -> None:
        self.space = space
        self.limits = limits or Limits()
        self.version = version
        self.next_region = next_region
        given = [Block("q", space.bounds)] if blocks is None else list(blocks)
        self._blocks = {block.id: block for block in sorted(given, key=lambda block: block.id)}
        if len(self._blocks) != len(given):
            doubled = [name for name, count in Counter(block.id for block in given).items() if count > 1]
            raise BadTree(f"blocks {doubled} are there twice: each id may name one block")
        self._check()
        self._links = self._cross_links()

    # -- what it is

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks.values())

    def __contains__(self, block_id: object) -> bool:
        return block_id in self._blocks

    def __getitem__(self, block_id: str) -> Block:
        try:
            return self._blocks[block_id]
        except KeyError:
            raise UnknownId(f"there is no block {block_id!r} in version {self.version} of the tree") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegionTree) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.version, tuple(self._blocks.values())))

    def __repr__(self) -> str:
        slow = sum(block.slow for block in self)
        return f"<RegionTree version {self.version}: {len(self) - slow} quadtree blocks, {slow} slow ones>"

    def cross_links(self, block_id: str) -> tuple[str, ...]:
        """The R blocks over a quadtree block, or the quadtree blocks under an R block."""
        if self[block_id].slow:
            return tuple(leaf for leaf, over in self._links.items() if any(r.id == block_id for r in over))
        return tuple(block.id for block in self._links[block_id])

    # -- who is responsible

    def home(self, x: float, y: float, current: str | None = None) -> Block:
        """The one block of a place: the R block that holds it, else the quadtree block.

        Args:
            x: longitude, or x.
            y: latitude, or y.
            current: the block a client is in now. It keeps it until it is farther than `Limits.border` outside, or
                farther than that inside a slow region; ids that are no more are ignored. Route to clients kept this
                way with `route`, which looks as far beyond an area.
        """
        x, y = self.one_name(*checked_place(self.space, x, y))
        new = self._home(x, y)
        border = self.limits.border
        if not border or current is None or current == new.id or current not in self._blocks:
            return new
        now = self._blocks[current]
        if self.space.distance_to_box(x, y, now.box) > border:
            return new
        if new.slow and not now.slow and self._depth_inside(x, y, new.box) > border:
            return new
        return now

    def owner_blocks(self, box: Sequence[float]) -> tuple[Block, ...]:
        """Every block that is `home` to some place of an area, each once, in order of their ids.

        Whoever registers an area with these blocks is found by every event whose `home`, or whose `owner_blocks`, are
        asked for: none is lost. `reporting_block` tells which of the common blocks speaks.

        Args:
            box: west, south, east, north, borders included; on the Earth a west beyond the east crosses the
                antimeridian.
        """
        found: dict[str, Block] = {}
        for piece in self._pieces(box):
            for leaf in self._leaves_touching(piece):
                over = [block for block in self._links[leaf.id] if meets(self.space, block.box, piece)]
                for block in over:
                    if block.id not in found and uncovered_place(self.space, [block.box], piece, ()):
                        found[block.id] = block
                if leaf.id not in found and uncovered_place(self.space, [leaf.box], piece, [b.box for b in over]):
                    found[leaf.id] = leaf
        return tuple(found[name] for name in sorted(found))

    def route(self, box: Sequence[float]) -> tuple[Block, ...]:
        """Every block that may hold a client inside an area, when clients stay with a block as `home` lets them."""
        border = self.limits.border
        if not border:
            return self.owner_blocks(box)
        found: dict[str, Block] = {}
        for piece in self._pieces(box):
            for wide in widened(self.space, piece, border):
                found.update({block.id: block for block in self.touching(wide)})
        return tuple(found[name] for name in sorted(found))

    def reporting_block(self, subscription: Sequence[float], event: Sequence[float]) -> Block | None:
        """The one block among those common to two areas that reports the match, None when they do not meet.

        Every block that both areas touch finds the match; the block of the south-west corner of what they share tells
        the subscriber, so that it is told once.
        """
        corners = []
        for a in self._pieces(subscription):
            for b in self._pieces(event):
                x, y = max(a.west, b.west), max(a.south, b.south)
                if x <= min(a.east, b.east) and y <= min(a.north, b.north):
                    corners.append(self.one_name(x, y))
        return self._home(*min(corners)) if corners else None

    def owners(self, box: Sequence[float]) -> tuple[str, ...]:
        """The nodes that serve an area, each once."""
        return tuple(sorted({block.owner for block in self.owner_blocks(box)}))

    def touching(self, box: Box) -> Iterator[Block]:
        """Every block whose box meets a box with west <= east, whether or not a slow region lies over it there."""
        slow: dict[str, Block] = {}
        for leaf in self._leaves_touching(box):
            yield leaf
            slow.update({block.id: block for block in self._links[leaf.id] if meets(self.space, block.box, box)})
        yield from slow.values()

    def census(self, xs: object, ys: object) -> dict[str, int]:
        """How many of the places have each block as their home; every block is in the answer."""
        counts = dict.fromkeys(self._blocks, 0)
        for block_id, px, _ in self.residents(xs, ys):
            counts[block_id] = len(px)
        return counts

    def residents(self, xs: object, ys: object) -> Iterator[tuple[str, Floats, Floats]]:
        """The places that have each block as their home, for blocks with any (a slow one may come in several parts)."""
        px, py = self._many_by_one_name(*checked_places(self.space, xs, ys))
        slow: dict[str, list[tuple[Floats, Floats]]] = {}
        stack = [("q", self.space.bounds, px, py)]
        while stack:
            name, box, px, py = stack.pop()
            if not len(px):
                continue
            if name not in self._blocks:
                for child, quarter in zip(children_of(name), quarters(box), strict=True):
                    inside = holds_many(self.space, quarter, px, py)
                    stack.append((child, quarter, px[inside], py[inside]))
                continue
            for block in self._links[name]:
                inside = holds_many(self.space, block.box, px, py)
                if inside.any():
                    slow.setdefault(block.id, []).append((px[inside], py[inside]))
                    px, py = px[~inside], py[~inside]
            if len(px):
                yield name, px, py
        for name, parts in slow.items():
            yield name, np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def one_name(self, x: float, y: float) -> tuple[float, float]:
        """A place under one name: the antimeridian is -180, and a pole has that longitude too."""
        if isinstance(self.space, Sphere) and (x == 180.0 or abs(y) == 90.0):
            return -180.0, y
        return x, y

    def named(self, given: Iterable[Box]) -> list[Box]:
        """Pieces in the names that `one_name` gives."""
        pieces = [name for piece in given for name in self.space.equivalents(piece)]
        if not isinstance(self.space, Sphere):
            return pieces
        # The antimeridian goes by -180, so what only lies on 180 is named there too; a pole is a single place.
        named = [piece._replace(east=piece.west) if 90.0 in (piece.south, -piece.north) else piece for piece in pieces]
        return [piece for piece in dict.fromkeys(named) if piece.west < 180.0]

    # -- as plain data

    def to_dict(self) -> dict[str, Any]:
        """The tree as numbers, strings, lists and dicts, for JSON."""
        space: dict[str, Any] = {"kind": "wgs84"}
        if isinstance(self.space, Plane):
            space = {"kind": "plane", "bounds": list(self.space.bounds)}
        return {
            "format": FORMAT,
            "version": self.version,
            "space": space,
            "limits": asdict(self.limits),
            "next_region": self.next_region,
            "blocks": [
                {"id": block.id, "box": list(block.box), "owner": block.owner, "load": block.load} for block in self
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RegionTree:
        """The tree that `to_dict` wrote.

        Raises:
            BadTree: the data is no such tree, or its blocks do not cover the space exactly once.
        """
        try:
            if data["format"] != FORMAT:
                raise BadTree(f"the tree has format {data['format']!r}: this version reads format {FORMAT}")
            kind = data["space"]["kind"]
            if kind not in ("wgs84", "plane"):
                raise BadTree(f"the tree's space is {kind!r}: there are wgs84 and plane")
            return cls(
                WGS84 if kind == "wgs84" else Plane(*data["space"]["bounds"]),
                Limits(**data["limits"]),
                blocks=[
                    Block(str(entry["id"]), Box(*map(float, entry["box"])), str(entry["owner"]), float(entry["load"]))
                    for entry in data["blocks"]
                ],
                version=int(data["version"]),
                next_region=int(data["next_region"]),
            )
        except (KeyError, TypeError) as missing:
            raise BadTree(f"the data is no region tree: {missing!r}; give what to_dict wrote") from missing

    # -- inside

    def _check(self) -> None:
        pending = [("q", self.space.bounds)]
        quadtree = set()
        beginnings = {name[:end] for name in self._blocks if name.startswith("q") for end in range(1, len(name))}
        while pending:
            name, box = pending.pop()
            if name in self._blocks:
                quadtree.add(name)
                if self._blocks[name].box != box:
                    raise BadTree(
                        f"block {name!r} has the box {tuple(self._blocks[name].box)}: its place is {tuple(box)}"
                    )
            elif name in beginnings:
                pending.extend(zip(children_of(name), quarters(box), strict=True))
            else:
                raise BadTree(f"no block covers {tuple(box)}: {name!r} or its quarters are missing")
        slow = [block for block in self if block.id not in quadtree]
        for block in slow:
            number = block.id[1:].partition(".")[0]
            if not block.slow or not number.isdigit():
                raise BadTree(f"block {block.id!r} lies under or beside another quadtree block: each place has one")
            if int(number) >= self.next_region:
                raise BadTree(f"block {block.id!r} has a number from next_region ({self.next_region}) on: raise it")
            if overlap(block.box, self.space.bounds) != block.box:
                raise BadBox(
                    f"R block {block.id!r} has the box {tuple(block.box)}: it has to have an area inside the space"
                )
        by_west = sorted(slow, key=lambda block: block.box.west)
        for index, block in enumerate(by_west):
            for other in by_west[index + 1 :]:
                if other.box.west >= block.box.east:
                    break
                if overlap(block.box, other.box):
                    raise BadBox(f"slow regions {block.id!r} and {other.id!r} overlap: merge them into one")

    def _cross_links(self) -> dict[str, tuple[Block, ...]]:
        links: dict[str, list[Block]] = {block.id: [] for block in self if not block.slow}
        for block in self:
            if block.slow:
                for leaf in self._leaves_touching(block.box):
                    if overlap(leaf.box, block.box):
                        links[leaf.id].append(block)
        return {name: tuple(over) for name, over in links.items()}

    def _many_by_one_name(self, xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
        if isinstance(self.space, Sphere):
            return np.where((xs == 180.0) | (np.abs(ys) == 90.0), -180.0, xs), ys
        return xs, ys

    def _pieces(self, box: Sequence[float]) -> list[Box]:
        """An area as closed boxes in the names that `one_name` gives."""
        return self.named(checked_box(self.space, box))

    def _home(self, x: float, y: float) -> Block:
        # The way down by the arithmetic of `quarters`, without making boxes: this is asked for every message.
        blocks = self._blocks
        west, south, east, north = self.space.bounds
        name = "q"
        while name not in blocks:
            middle_x, middle_y = (west + east) / 2, (south + north) / 2
            if x < middle_x:
                east, column = middle_x, 0
            else:
                west, column = middle_x, 1
            if y < middle_y:
                north, row = middle_y, 0
            else:
                south, row = middle_y, 2
            name += "0123"[column + row]
        for block in self._links[name]:
            if holds(self.space, block.box, x, y):
                return block
        return blocks[name]

    def _leaves_touching(self, piece: Box) -> Iterator[Block]:
        if not meets(self.space, self.space.bounds, piece):
            return
        blocks = self._blocks
        stack = [("q", *self.space.bounds)]
        while stack:
            name, west, south, east, north = stack.pop()
            if name in blocks:
                yield blocks[name]
                continue
            x, y = (west + east) / 2, (south + north) / 2
            if piece.south < y:
                if piece.west < x:
                    stack.append((name + "0", west, south, x, y))
                if piece.east >= x:
                    stack.append((name + "1", x, south, east, y))
            if piece.north >= y:
                if piece.west < x:
                    stack.append((name + "2", west, y, x, north))
                if piece.east >= x:
                    stack.append((name + "3", x, y, east, north))

    def _depth_inside(self, x: float, y: float, box: Box) -> float:
        """How far a place inside a box is from its border."""
        edges = (
            box._replace(east=box.west),
            box._replace(west=box.east),
            box._replace(north=box.south),
            box._replace(south=box.north),
        )
        return min(self.space.distance_to_box(x, y, edge) for edge in edges)
