"""The overlay of nodes: for each filter a tree of all boxes that nodes announced, with elected parents.

Every node keeps the trees for what it publishes itself and plans the whole way of a message: so trees of different
nodes need not agree, and a message that was planned on old knowledge still reaches everybody the plan names. A parent
is elected by the messages published here lately, and carries no more of them than its cap.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.places import number_at
from spatial_index import Election, OverlayTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker_plugins.cluster.content_summary import Box

MOST_TREES: Final = 256
REARRANGE_EVERY: Final = 1_024
"""Messages, or changes, after which the boxes of a tree are put where they belong by now."""


class _Tree:
    """The boxes of one filter."""

    __slots__ = ("boxes", "names", "paths", "since", "tree")

    def __init__(self, boxes: Mapping[str, tuple[Box, ...]], cap: float) -> None:
        domains = _domains(box for some in boxes.values() for box in some)
        self.names = frozenset(domains)
        self.paths = {name: tuple(name.split(".")) for name in domains}
        self.tree = OverlayTree(
            domains, election=Election.CHEAPEST_BY_EVENTS, cap=cap, place_by_events=True, half_life=REARRANGE_EVERY
        )
        self.boxes: dict[str, dict[Box, str]] = {}
        """For each node its boxes, with the peer that each is in the tree."""
        self.since = 0
        self.update(boxes)

    def update(self, boxes: Mapping[str, tuple[Box, ...]]) -> None:
        """Let boxes that are gone leave, and new ones join."""
        for node in [*self.boxes]:
            now = dict.fromkeys(boxes.get(node, ()))
            for box in [box for box in self.boxes[node] if box not in now]:
                self.tree.leave(self.boxes[node].pop(box))
                self.since += 1
            if not self.boxes[node]:
                del self.boxes[node]
        for node, some in boxes.items():
            held = self.boxes.setdefault(node, {})
            for box in some:
                if box not in held:
                    held[box] = peer = f"{node} {self.since} {len(held)}"
                    ends = {name: (_end(low), _end(high)) for name, low, high in box}
                    self.tree.join(peer, ends, host=node)
                    self.since += 1

    def plan(self, content: Any, origin: str, wanted: set[str]) -> tuple[tuple[str, str], ...]:
        point: dict[str, float] = {}
        for name, path in self.paths.items():
            value = number_at(content, path)
            if value is not None and math.isfinite(value):
                point[name] = value
        self.since += 1
        if self.since >= REARRANGE_EVERY:
            self.since = 0
            self.tree.rearrange()
        return self.tree.plan(point, origin, wanted).hops


class ContentTrees:
    """The trees of all filters that messages were published for.

    Args:
        name: of this node.
        cap: how many times the mean a node carries before it is given no more.
    """

    def __init__(self, name: str, cap: float) -> None:
        self._name = name
        self._cap = cap
        self._trees: dict[str, _Tree] = {}
        self._versions: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._trees)

    def carried(self, inner: str) -> dict[str, float]:
        """What each node carries of the messages published here for a filter."""
        tree = self._trees.get(inner)
        return {} if tree is None else tree.tree.carried

    def parents(self, inner: str) -> dict[str, int]:
        """How many bounding boxes each node speaks for."""
        tree = self._trees.get(inner)
        found: dict[str, int] = {}
        for box in () if tree is None else tree.tree.boxes():
            if box.level:
                node = box.parent.partition(" ")[0]
                found[node] = found.get(node, 0) + 1
        return found

    def plan(
        self, inners: Mapping[str, Mapping[str, tuple[Box, ...]]], version: int, content: Any, wanted: set[str]
    ) -> list[tuple[str, str]]:
        """Who sends a message to whom, so that all reach it who want it.

        Args:
            inners: the boxes of each filter that matches its topic, by node.
            version: changes when any of these do.
            content: the payload.
            wanted: the nodes that want it.
        """
        hops: list[tuple[str, str]] = []
        missing = set(wanted)
        for inner, boxes in inners.items():
            if not missing:
                break
            tree = self._tree(inner, boxes, version)
            if tree is not None:
                some = tree.plan(content, self._name, missing)
                hops += some
                missing.difference_update(receiver for _, receiver in some)
        # Whoever is in no tree is sent it straight.
        hops += [(self._name, node) for node in sorted(missing)]
        return hops

    def _tree(self, inner: str, boxes: Mapping[str, tuple[Box, ...]], version: int) -> _Tree | None:
        tree = self._trees.get(inner)
        if tree is not None and self._versions[inner] == version:
            return tree
        names = {name for some in boxes.values() for box in some for name, _, _ in box}
        if not names:
            return None
        if tree is None or not names <= tree.names:
            if len(self._trees) >= MOST_TREES:
                oldest = next(iter(self._trees))
                del self._trees[oldest], self._versions[oldest]
            tree = self._trees[inner] = _Tree(boxes, self._cap)
        else:
            tree.update(boxes)
        self._versions[inner] = version
        return tree


def nested(hops: Iterable[tuple[str, str]], origin: str) -> dict[str, Any]:
    """To whom a node sends a message, and to whom each of those does."""
    children: dict[str, dict[str, Any]] = {origin: {}}
    for sender, receiver in hops:
        children[receiver] = children[sender][receiver] = {}
    return children[origin]


def _end(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _domains(boxes: Iterable[Box]) -> dict[str, tuple[float, float]]:
    """From the lowest to the highest end of each attribute."""
    ends: dict[str, list[float]] = {}
    for box in boxes:
        for name, low, high in box:
            ends.setdefault(name, []).extend(end for end in (low, high) if math.isfinite(end))
    domains: dict[str, tuple[float, float]] = {}
    for name, some in sorted(ends.items()):
        low, high = (min(some), max(some)) if some else (0.0, 1.0)
        domains[name] = (low, high) if low < high and high - low < math.inf else (low, low + max(1.0, abs(low)))
    return domains
