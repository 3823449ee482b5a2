"""The broker networks that paper 000 compares: an R-tree of users, a quadtree, and the Q+R tree.

Every leaf is a broker. The model, because the figures mean nothing without it:

- **Q** and **Q+R** are `RegionTree`s with capacity 20, weighed every round; a user changes its broker when it is
  farther than the border (15) outside its block, or that deep inside a slow region. Of the parts of a split the one
  with most users keeps the broker, of merged parts likewise; everybody else in them is handed over. **Q+R as printed**
  gives a slow region one broker, however many users it has.
- **R** is sticky: a user stays in its leaf and the leaf's rectangle stretches with its users, up to twice the side it
  had when it was formed. Beyond that the users farthest from the middle are inserted anew, where the enlargement is
  least. A leaf of more than 20 is divided, one of less than 8 dissolved. The levels above are packed anew each round
  (fan-out 4) and cost nothing, which flatters R.
- An event is live for `LIVE_ROUNDS` rounds. When a user is handed over, the live events around it are forwarded to its
  new broker; when a broker's area grows, the live events that it now meets are sent to it. Both are retransmissions,
  one message each.
- A message is one hop down the tree for each event, or one retransmission, or one for a handover, or one for each
  rectangle or block that changed and has to be made known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.reproduction.mobile_world import PLANE
from spatial_index import Limits, RegionTree, adapt_tree, with_regions
from spatial_index.region_blocks import parent_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spatial_index import Block
    from spatial_index.spaces import Box

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

CAPACITY = 20
BORDER = 15.0
LIVE_ROUNDS = 3
FEWEST = 8
STRETCH = 2.0
R_FAN_OUT = 4


@dataclass(slots=True)
class Counts:
    """What a scheme has cost so far."""

    hops: int = 0
    deliveries: int = 0
    lost: int = 0
    forwarded: int = 0
    resent: int = 0
    handovers: int = 0
    maintenance: int = 0

    @property
    def retransmitted(self) -> int:
        """Events sent again because somebody moved."""
        return self.forwarded + self.resent

    @property
    def retransmission_ratio(self) -> float:
        """Their share of all event traffic."""
        return self.retransmitted / max(self.hops + self.retransmitted, 1)

    @property
    def messages(self) -> int:
        """All of it: events, retransmissions, handovers and keeping the index."""
        return self.hops + self.retransmitted + self.handovers + self.maintenance


def meeting(areas: Floats, events: Floats) -> Flags:
    """Which areas (rows) meet which events (columns)."""
    return np.asarray(
        (areas[:, None, 0] <= events[None, :, 2])
        & (areas[:, None, 2] >= events[None, :, 0])
        & (areas[:, None, 1] <= events[None, :, 3])
        & (areas[:, None, 3] >= events[None, :, 1])
    )


def covering(places: Floats, events: Floats) -> Flags:
    """Which places (rows) are in which events (columns)."""
    return meeting(np.hstack([places, places]), events)


class Scheme:
    """What the three have in common: users with a broker each, and the live events that brokers hold."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.broker: list[str] = []
        self._live: list[Floats] = []
        self._held: dict[str, set[tuple[int, int]]] = {}
        self._round = 0

    @property
    def brokers(self) -> int:
        """How many leaves there are."""
        raise NotImplementedError

    def areas(self) -> tuple[list[str], Floats]:
        """Every broker and the area whose events it has to have."""
        raise NotImplementedError

    def move(self, places: Floats) -> set[int]:
        """Take everybody's new place; answers who was handed over."""
        raise NotImplementedError

    def hops(self, events: Floats) -> int:
        """How many messages bring the events from the root to every leaf they meet."""
        raise NotImplementedError

    def round(self, places: Floats, events: Floats) -> None:
        """Move, hand over, send again what has to be, then publish."""
        self._round += 1
        moved = self.move(places)
        self.counts.handovers += len(moved)
        oldest = self._round - len(self._live)
        names, areas = self.areas()
        self._held = {name: self._held.get(name, set()) for name in names}
        if self._live:
            live = np.concatenate(self._live)
            keys = [(oldest + age, n) for age, batch in enumerate(self._live) for n in range(len(batch))]
            if moved:
                self.counts.forwarded += int(covering(places[sorted(moved)], live).sum())
            for index, event in zip(*(side.tolist() for side in np.nonzero(meeting(areas, live))), strict=True):
                held = self._held[names[index]]
                if keys[event] not in held:
                    held.add(keys[event])
                    self.counts.resent += 1
        self._publish(places, events, names, areas)

    def _publish(self, places: Floats, events: Floats, names: list[str], areas: Floats) -> None:
        self.counts.hops += self.hops(events)
        reached = meeting(areas, events)
        for index, event in zip(*(side.tolist() for side in np.nonzero(reached)), strict=True):
            self._held[names[index]].add((self._round, event))
        row = {name: index for index, name in enumerate(names)}
        wanted = covering(places, events)
        got = reached[[row[name] for name in self.broker]]
        self.counts.deliveries += int((wanted & got).sum())
        self.counts.lost += int((wanted & ~got).sum())
        self._live = [*self._live, events][-LIVE_ROUNDS:]
        oldest = self._round - len(self._live) + 1
        for held in self._held.values():
            held -= {key for key in held if key[0] < oldest}


class BlockScheme(Scheme):
    """The quadtree, or with slow regions the Q+R tree."""

    def __init__(self, places: Floats, regions: Sequence[Box], *, whole_regions: bool = False) -> None:
        super().__init__()
        limits = Limits(capacity=CAPACITY, border=BORDER, max_depth=12)
        self._whole_regions = whole_regions
        self.tree: RegionTree = with_regions(RegionTree(PLANE, limits), regions)
        self.tree = self._adapted(self.tree.census(places[:, 0], places[:, 1]), places)
        self.block = [self.tree.home(x, y).id for x, y in places.tolist()]
        # Blocks come and go, brokers stay: this is which broker serves a block.
        self._serves = {block.id: block.id for block in self.tree}
        self._fresh = 0
        self.broker = [self._serves[name] for name in self.block]

    @property
    def brokers(self) -> int:
        """Every leaf block."""
        return len(self.tree)

    def areas(self) -> tuple[list[str], Floats]:
        """Blocks, widened by the border that users may go beyond."""
        boxes = np.array([block.box for block in self.tree])
        return [self._serves[block.id] for block in self.tree], boxes + np.array([-BORDER, -BORDER, BORDER, BORDER])

    def move(self, places: Floats) -> set[int]:
        """Hand over who has left a block for good, then split and merge."""
        before = list(self.broker)
        self._follow(places)
        loads = dict.fromkeys((block.id for block in self.tree), 0)
        for name in self.block:
            loads[name] += 1
        tree = self._adapted(loads, places)
        if {block.id for block in tree} != loads.keys():
            self._restructure(tree, loads, places)
        self.tree = tree
        self.broker = [self._serves[name] for name in self.block]
        return {user for user, (old, new) in enumerate(zip(before, self.broker, strict=True)) if old != new}

    def _adapted(self, loads: dict[str, int], places: Floats) -> RegionTree:
        weights = {
            name: 0.0 if self._whole_regions and name.startswith("r") else float(load) for name, load in loads.items()
        }
        return adapt_tree(self.tree, weights, (places[:, 0], places[:, 1]))

    def _follow(self, places: Floats) -> None:
        boxes = {block.id: block.box for block in self.tree}
        mine = np.array([boxes[name] for name in self.block])
        out = (places < mine[:, :2]).any(axis=1) | (places > mine[:, 2:]).any(axis=1)
        slow = np.array([block.box for block in self.tree if block.slow]).reshape(-1, 4)
        on_slow = np.array([name.startswith("r") for name in self.block])
        entering = ~on_slow & covering(places, slow).any(axis=1)
        for user in np.flatnonzero(out | entering).tolist():
            x, y = places[user].tolist()
            self.block[user] = self.tree.home(x, y, self.block[user]).id

    def _restructure(self, tree: RegionTree, loads: dict[str, int], places: Floats) -> None:
        """Give the brokers of blocks that are no more to their successors, and new brokers to the rest."""
        gone = sorted((name for name in loads if name not in tree), key=lambda name: -loads[name])
        new = sorted((block for block in tree if block.id not in loads), key=lambda block: -block.load)
        self.counts.maintenance += len(gone) + len(new)
        for name in gone:
            heir = next((b for b in new if b.id not in self._serves and _related(b.id, name)), None)
            if heir is not None:
                self._serves[heir.id] = self._serves[name]
            del self._serves[name]
        for block in new:
            if block.id not in self._serves:
                self._fresh += 1
                self._serves[block.id] = f"fresh-{self._fresh}"
        for user, name in enumerate(self.block):
            if name not in tree:
                self.block[user] = _successor(tree, name, *places[user].tolist())

    def hops(self, events: Floats) -> int:
        """One for each quadtree node on the way, and one across the link to each R leaf."""
        total = 0
        for event in events.tolist():
            found = self.tree.route(event)
            ways = {block.id[:end] for block in found if not block.slow for end in range(2, len(block.id) + 1)}
            total += len(ways) + sum(block.slow for block in found)
        return total


def _related(one: str, other: str) -> bool:
    return one[0] == other[0] and (one.startswith(other) or other.startswith(one))


def _successor(tree: RegionTree, name: str, x: float, y: float) -> str:
    """The block that took over from one that is no more, for a user who may be a little outside of it."""
    above = parent_of(name)
    while above is not None:
        if above in tree:
            return above
        above = parent_of(above)
    parts: list[Block] = [block for block in tree if _related(block.id, name)]
    return min(parts, key=lambda block: PLANE.distance_to_box(x, y, block.box)).id


class RScheme(Scheme):
    """An R-tree of users whose rectangles stretch with them."""

    def __init__(self, places: Floats, stretch: float = STRETCH) -> None:
        super().__init__()
        self._stretch = stretch
        self._places = places.copy()
        self._members: dict[str, set[int]] = {}
        self._limit: dict[str, float] = {}
        self._boxes: dict[str, Floats] = {}
        self._count = 0
        self.broker = [""] * len(places)
        self._form(set())
        for user in range(len(places)):
            self._insert(user)

    @property
    def brokers(self) -> int:
        """Every leaf rectangle."""
        return len(self._members)

    def areas(self) -> tuple[list[str], Floats]:
        """The rectangles as they are now."""
        return list(self._boxes), np.array(list(self._boxes.values()))

    def move(self, places: Floats) -> set[int]:
        """Let rectangles stretch; insert anew who would stretch one too far."""
        before = list(self.broker)
        old = dict(self._boxes)
        self._places = places.copy()
        for name in self._members:
            self._fit(name)
        for name in list(self._members):
            while name in self._members and self._side(name) > self._limit[name] and len(self._members[name]) > 1:
                users = sorted(self._members[name])
                middle = np.median(places[users], axis=0)
                self._insert(users[int(np.abs(places[users] - middle).max(axis=1).argmax())])
            if name in self._members and len(self._members[name]) < FEWEST:
                self._dissolve(name)
        changed = sum(name not in old or not np.array_equal(box, old[name]) for name, box in self._boxes.items())
        self.counts.maintenance += changed + len(old.keys() - self._boxes.keys())
        return {user for user, (was, now) in enumerate(zip(before, self.broker, strict=True)) if was != now}

    def hops(self, events: Floats) -> int:
        """One for each rectangle on the way, over levels packed by sorting in tiles."""
        level = np.array(list(self._boxes.values()))
        total = int(meeting(level, events).sum())
        while len(level) > R_FAN_OUT:
            tiles = max(1, math.ceil(math.sqrt(len(level) / R_FAN_OUT)))
            order = np.argsort(level[:, 0] + level[:, 2])
            packed = []
            for tile in np.array_split(order, tiles):
                rows = tile[np.argsort(level[tile, 1] + level[tile, 3])]
                for start in range(0, len(rows), R_FAN_OUT):
                    group = level[rows[start : start + R_FAN_OUT]]
                    packed.append(np.concatenate([group[:, :2].min(axis=0), group[:, 2:].max(axis=0)]))
            level = np.array(packed)
            total += int(meeting(level, events).sum())
        return total

    def _form(self, users: set[int]) -> str:
        self._count += 1
        name = f"leaf-{self._count}"
        self._members[name] = users
        for user in users:
            self.broker[user] = name
        self._fit(name)
        # A rectangle of one user has no side to double; the border is room enough to start with.
        self._limit[name] = self._stretch * max(self._side(name), 2 * BORDER)
        return name

    def _fit(self, name: str) -> None:
        at = self._places[sorted(self._members[name])]
        self._boxes[name] = np.concatenate([at.min(axis=0), at.max(axis=0)]) if len(at) else np.zeros(4)

    def _side(self, name: str) -> float:
        box = self._boxes[name]
        return float((box[2:] - box[:2]).max())

    def _insert(self, user: int) -> None:
        """Move a user to the leaf that grows least, dividing it if it is full."""
        left = self.broker[user]
        if left:
            self._members[left].discard(user)
            self._fit(left)
        place = self._places[user]
        names = [name for name in self._members if name != left and (self._members[name] or not left)]
        boxes = np.array([self._boxes[name] for name in names])
        grown = np.hstack([np.minimum(boxes[:, :2], place), np.maximum(boxes[:, 2:], place)])
        sides, before = grown[:, 2:] - grown[:, :2], boxes[:, 2:] - boxes[:, :2]
        empty = np.array([not self._members[name] for name in names])
        # Area decides, the half perimeter breaks the tie between rectangles without area.
        growth = sides.prod(axis=1) - before.prod(axis=1) + 1e-3 * (sides.sum(axis=1) - before.sum(axis=1))
        choice = names[int(np.where(empty, 0.0, growth).argmin())]
        fits = (
            empty.any()
            or sides[names.index(choice)].max() <= max(self._limit[choice], self._stretch * 2 * BORDER)
            or not left
        )
        if not fits:
            choice = self._form(set())
        self._members[choice].add(user)
        self.broker[user] = choice
        self._fit(choice)
        if not left or not fits:
            self._limit[choice] = self._stretch * max(self._side(choice), 2 * BORDER)
        if len(self._members[choice]) > CAPACITY:
            self._divide(choice)
        if left and not self._members[left]:
            self._drop(left)

    def _divide(self, name: str) -> None:
        """Cut a full leaf at the widest gap along its longer side, neither part smaller than the fewest."""
        users = np.array(sorted(self._members[name]))
        at = self._places[users]
        order = users[np.argsort(at[:, int(np.ptp(at, axis=0).argmax())])]
        along = np.sort(at[:, int(np.ptp(at, axis=0).argmax())])
        gaps = np.diff(along)[FEWEST - 1 : len(along) - FEWEST]
        cut = FEWEST + int(gaps.argmax())
        parts = sorted((set(order[:cut].tolist()), set(order[cut:].tolist())), key=len)
        self._members[name] = parts[1]
        self._fit(name)
        self._limit[name] = self._stretch * max(self._side(name), 2 * BORDER)
        self._form(parts[0])

    def _dissolve(self, name: str) -> None:
        if len(self._members) > 1:
            for user in sorted(self._members[name]):
                self._insert(user)
            if name in self._members:
                self._drop(name)

    def _drop(self, name: str) -> None:
        del self._members[name], self._boxes[name], self._limit[name]
