"""The R-tree under an overlay: which boxes are bounded together, and who speaks for each bounding box.

Guttman's tree with two departures: a full box is split the best of all ways (there are 35 for seven members), and every
function that changes the tree answers with the bounding boxes it touched, lowest first, for they need a new election.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from spatial_index.errors import BadAttribute, BadCoordinate, BadInterval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spatial_index.overlay_election import Estimate

Range: TypeAlias = tuple[float | None, float | None]
Ends: TypeAlias = tuple[float, ...]


class OverlaySpace:
    """The attributes of subscriptions and events, in a fixed order, with the domain of each."""

    def __init__(self, domains: Mapping[str, tuple[float, float]]) -> None:
        """Take a name and a finite range for each attribute.

        Raises:
            BadAttribute: there is no attribute, or a domain is not a finite range with a width.
        """
        if not domains:
            raise BadAttribute("an overlay needs at least one attribute with its domain")
        for name, (low, high) in domains.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise BadAttribute(
                    f"the domain of {name!r} is ({low!r}, {high!r}): it has to be finite, low before high"
                )
        self.names = tuple(domains)
        self.lows: Ends = tuple(float(low) for low, _ in domains.values())
        self.highs: Ends = tuple(float(high) for _, high in domains.values())

    def box(self, intervals: Mapping[str, Range]) -> tuple[Ends, Ends]:
        """Lows and highs of a subscription; what is left out is unbounded."""
        self._known(intervals)
        lows, highs = [], []
        for name in self.names:
            low, high = intervals.get(name, (None, None))
            for end in (low, high):
                if end is not None and not math.isfinite(end):
                    raise BadInterval(f"{name} has the end {end!r}: give a finite number, or None for no bound")
            if low is not None and high is not None and low > high:
                raise BadInterval(f"{name} is ({low!r}, {high!r}): the low end has to come first")
            lows.append(-math.inf if low is None else float(low))
            highs.append(math.inf if high is None else float(high))
        return tuple(lows), tuple(highs)

    def point(self, event: Mapping[str, float]) -> tuple[float | None, ...]:
        """The values of an event in order, None where it leaves an attribute out."""
        self._known(event)
        for name, value in event.items():
            if not math.isfinite(value):
                raise BadCoordinate(f"{name} of the event is {value!r}: it has to be a finite number")
        return tuple(event.get(name) for name in self.names)

    def left_out(self, leaf: Leaf) -> frozenset[str]:
        """The attributes a box does not narrow: unbounded, or as wide as the domain."""
        sides = zip(self.names, self.lows, self.highs, leaf.lows, leaf.highs, strict=True)
        return frozenset(name for name, first, last, low, high in sides if low <= first and high >= last)

    def _known(self, named: Mapping[str, object]) -> None:
        for name in named:
            if name not in self.names:
                raise BadAttribute(f"attribute {name!r} has no domain here; there are {', '.join(self.names)}")


class Leaf:
    """A subscription's box and the peers that have it; when there are several, `parent` forwards to the others."""

    __slots__ = ("above", "highs", "lows", "parent", "peers")

    def __init__(self, lows: Ends, highs: Ends, peer: str) -> None:
        self.lows, self.highs = lows, highs
        self.peers = [peer]
        self.parent = peer
        self.above: BoundingBox | None = None


class BoundingBox:
    """A box around its members: leaves at height 1, bounding boxes above; `parent` receives and forwards for them."""

    __slots__ = ("above", "height", "highs", "lows", "members", "parent")

    def __init__(self, height: int) -> None:
        self.height = height
        self.members: list[Leaf] | list[BoundingBox] | list[Member] = []
        self.lows: Ends = ()
        self.highs: Ends = ()
        self.parent = ""
        self.above: BoundingBox | None = None

    def add(self, member: Member) -> None:
        """Take a member; the bounds are the caller's to tighten."""
        members: list[Member] = self.members  # type: ignore[assignment] # one list type at each height
        members.append(member)
        member.above = self

    def tighten(self) -> None:
        """Make the bounds fit the members."""
        if not self.members:
            self.lows = self.highs = ()
            return
        self.lows = tuple(map(min, zip(*(member.lows for member in self.members), strict=True)))
        self.highs = tuple(map(max, zip(*(member.highs for member in self.members), strict=True)))

    def inner_boxes(self) -> Iterator[BoundingBox]:
        """This box and every bounding box in it, higher ones first."""
        level = [self]
        while level:
            yield from level
            level = [member for box in level for member in box.members if isinstance(member, BoundingBox)]

    def leaves(self) -> Iterator[Leaf]:
        """Every leaf below."""
        for box in self.inner_boxes():
            if box.height == 1:
                for member in box.members:
                    assert isinstance(member, Leaf)
                    yield member


@dataclass(frozen=True, slots=True)
class OverlayBox:
    """One bounding box for drawing: its level above the subscriptions, its bounds and the peer that speaks for it."""

    level: int
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    parent: str


Member: TypeAlias = Leaf | BoundingBox


def contains(member: Member, point: tuple[float | None, ...]) -> bool:
    """Whether a point is in the box; a value the event leaves out is anywhere, as the paper has it."""
    for low, value, high in zip(member.lows, point, member.highs, strict=False):
        if value is not None and not low <= value <= high:
            return False
    return bool(member.lows)


class BoxTree:
    """An R-tree of leaves; `overhead(box, leaf)` breaks ties between boxes that would grow equally little."""

    def __init__(
        self, fewest: int, most: int, volume: Estimate, overhead: Callable[[BoundingBox, Leaf], float]
    ) -> None:
        self.root = BoundingBox(1)
        self._fewest, self._most = fewest, most
        self._volume, self._overhead = volume, overhead

    def insert(self, leaf: Leaf) -> list[BoundingBox]:
        """Put a leaf where the boxes grow least, and split what becomes too full."""
        node = self.root
        while node.height > 1:
            node = self._choose(node, leaf)
        node.add(leaf)
        touched = []
        while len(node.members) > self._most:
            sibling = BoundingBox(node.height)
            for member in self._half(node.members):
                node.members.remove(member)  # type: ignore[arg-type] # a member of that very list
                sibling.add(member)
            if node.above is None:
                self.root = BoundingBox(node.height + 1)
                self.root.add(node)
            assert node.above is not None
            node.above.add(sibling)
            for box in (node, sibling):
                box.tighten()
                touched.append(box)
            node = node.above
        above: BoundingBox | None = node
        while above is not None:
            above.tighten()
            touched.append(above)
            above = above.above
        return touched

    def remove(self, leaf: Leaf) -> tuple[list[BoundingBox], list[BoundingBox]]:
        """Take a leaf out, and put the leaves of boxes that become too empty elsewhere.

        Returns:
            The boxes touched, lowest first, and the boxes that are no more.
        """
        node = leaf.above
        assert node is not None
        node.members.remove(leaf)  # type: ignore[arg-type] # height 1 holds leaves
        touched: list[BoundingBox] = []
        dropped: list[BoundingBox] = []
        adrift: list[Leaf] = []
        while node.above is not None:
            above = node.above
            if len(node.members) < self._fewest:
                above.members.remove(node)  # type: ignore[arg-type] # above height 1 are boxes
                adrift.extend(node.leaves())
                dropped.extend(node.inner_boxes())
            else:
                node.tighten()
                touched.append(node)
            node = above
        node.tighten()
        touched.append(node)
        while node.height > 1 and len(node.members) < 2:
            dropped.append(node)
            only = node.members[0] if node.members else BoundingBox(1)
            assert isinstance(only, BoundingBox)
            node = only
            node.above = None
        self.root = node
        for stray in adrift:
            touched.extend(self.insert(stray))
        gone = {id(box) for box in dropped}
        unique = {id(box): box for box in touched if id(box) not in gone}
        return sorted(unique.values(), key=lambda box: box.height), dropped

    def _choose(self, node: BoundingBox, leaf: Leaf) -> BoundingBox:
        boxes = [member for member in node.members if isinstance(member, BoundingBox)]
        lows, highs = np.array([box.lows for box in boxes]), np.array([box.highs for box in boxes])
        volumes = self._volume(lows, highs)
        growth = self._volume(np.minimum(lows, leaf.lows), np.maximum(highs, leaf.highs)) - volumes
        least = growth.min()
        ties = [box for box, grown in zip(boxes, growth, strict=True) if grown <= least + 1e-12]
        return ties[0] if len(ties) == 1 else min(ties, key=lambda box: self._overhead(box, leaf))

    def _half(self, members: Sequence[Member]) -> list[Member]:
        """The members to move to a new sibling, so that the two boxes have the least volume together."""
        lows, highs = np.array([m.lows for m in members]), np.array([m.highs for m in members])
        everyone = range(len(members))
        ways = np.zeros((0, len(members)), dtype=bool)
        for size in range(self._fewest, len(members) // 2 + 1):
            picks = np.array(list(itertools.combinations(everyone, size)))
            chosen = np.zeros((len(picks), len(members)), dtype=bool)
            np.put_along_axis(chosen, picks, values=True, axis=1)
            ways = np.concatenate([ways, chosen])

        def volumes(
            mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
        ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
            inside = mask[:, :, None]
            return self._volume(
                np.where(inside, lows, np.inf).min(axis=1),
                np.where(inside, highs, -np.inf).max(axis=1),
            )

        best = ways[int((volumes(ways) + volumes(~ways)).argmin())]
        return [member for member, moves in zip(members, best, strict=True) if moves]
