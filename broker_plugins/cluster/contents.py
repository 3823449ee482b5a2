"""Which contents which node wants: what a node announces of its `$where` subscriptions, and what it knows of others.

For each inner filter that nobody on a node holds without conditions, the node announces boxes that cover what its
subscriptions want. A filter that is not announced is wanted with any content: that is how it is before anything is
known, when somebody subscribes without conditions or by place, and when there are more filters than are summarised.
What widens is announced at once, what narrows may wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_plugins.cluster.content_summary import Matcher, Summary
from broker_plugins.cluster.wire import Content, ContentDelta

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_plugins.cluster.content_summary import Box


class _Filter:
    """The subscriptions of one inner filter."""

    __slots__ = ("open", "summary")

    def __init__(self, most_boxes: int) -> None:
        self.open = 0
        """How many want any content, or content that is not summarised."""
        self.summary = Summary(most_boxes)


class OwnContents:
    """What this node's clients want.

    Args:
        node: its name.
        incarnation: a number that is another one after each start.
        most_boxes: how many boxes are announced for a filter.
        most_filters: how many filters are summarised.
    """

    def __init__(self, node: str, incarnation: int, most_boxes: int, most_filters: int) -> None:
        self.node = node
        self.incarnation = incarnation
        self.version = 0
        self._most_boxes = most_boxes
        self._most_filters = most_filters
        self._filters: dict[str, _Filter] = {}
        self._announced: dict[str, tuple[Box, ...]] = {}
        self._widened: dict[str, None] = {}
        self._loose: dict[str, None] = {}

    @property
    def boxes(self) -> int:
        """How many boxes are announced."""
        return sum(len(boxes) for boxes in self._announced.values())

    def add(self, inner: str, box: Box | None) -> None:
        """A subscription was made; None if it wants more than a box says."""
        held = self._filters.get(inner)
        if held is None:
            held = self._filters[inner] = _Filter(self._most_boxes)
            self._widened[inner] = None
        if box is None:
            held.open += 1
            self._widened[inner] = None
        elif held.summary.add(box):
            self._widened[inner] = None

    def remove(self, inner: str, box: Box | None) -> None:
        """A subscription ended."""
        held = self._filters[inner]
        if box is None:
            held.open -= 1
        else:
            held.summary.remove(box)
        self._loose[inner] = None

    def _state(self, inner: str) -> tuple[Box, ...] | None:
        held = self._filters.get(inner)
        if held is None or held.open or not len(held.summary):
            return None
        if inner not in self._announced and len(self._announced) >= self._most_filters:
            return None
        return held.summary.covers

    def tighten(self) -> None:
        """Let what narrowed be announced with the next delta."""
        loose, self._loose = self._loose, {}
        for inner in loose:
            held = self._filters[inner]
            held.summary.tighten()
            if not held.open and not len(held.summary):
                del self._filters[inner]
            self._widened[inner] = None

    def delta(self) -> ContentDelta | None:
        """What is to be announced since this was asked last; None if nothing is."""
        widened, self._widened = self._widened, {}
        contents: list[Content] = []
        for inner in widened:
            state = self._state(inner)
            if state == self._announced.get(inner):
                continue
            if state is None:
                del self._announced[inner]
            else:
                self._announced[inner] = state
            contents.append(Content(inner, None if state is None else list(state)))
        if not contents:
            return None
        base, self.version = self.version, self.version + 1
        return ContentDelta(self.node, self.incarnation, base, self.version, contents)

    def nothing_new(self) -> ContentDelta:
        """A delta by which others see whether they have missed one."""
        return ContentDelta(self.node, self.incarnation, self.version, self.version, [])

    def snapshot(self) -> ContentDelta:
        """Everything that was announced."""
        contents = [Content(inner, list(boxes)) for inner, boxes in self._announced.items()]
        return ContentDelta(self.node, self.incarnation, 0, self.version, contents)


class _Known:
    """What is known of one node."""

    __slots__ = ("filters", "incarnation", "version")

    def __init__(self, incarnation: int, version: int) -> None:
        self.incarnation = incarnation
        self.version = version
        self.filters: dict[str, Matcher] = {}


class OtherContents:
    """What the clients of the other nodes want."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Known] = {}
        self.changes = 0
        """Grows with everything that is learned."""

    def apply(self, delta: ContentDelta) -> bool:
        """Take a delta in; False if something before it is missing: then nothing is known until a `replace`."""
        known = self._nodes.get(delta.node)
        if known is None or known.incarnation != delta.incarnation or known.version < delta.base:
            self.forget(delta.node)
            return False
        if known.version < delta.version:
            known.version = delta.version
            self._set(known, delta.contents)
        return True

    def replace(self, snapshot: ContentDelta) -> None:
        """Take everything a node wants in, in place of what was known."""
        known = self._nodes.get(snapshot.node)
        if known is not None and known.incarnation == snapshot.incarnation and known.version > snapshot.version:
            return  # deltas have come since it was written
        known = self._nodes[snapshot.node] = _Known(snapshot.incarnation, snapshot.version)
        self._set(known, snapshot.contents)

    def forget(self, node: str) -> None:
        """Nothing is known of a node any more: it is taken to want everything."""
        if self._nodes.pop(node, None) is not None:
            self.changes += 1

    def _set(self, known: _Known, contents: Iterable[Content]) -> None:
        self.changes += 1
        for content in contents:
            if content.boxes is None:
                known.filters.pop(content.inner, None)
            else:
                known.filters[content.inner] = Matcher(content.boxes)

    def wanted(self, node: str, inners: Iterable[str]) -> list[Matcher] | None:
        """What a node wants of the topics that some of its filters match; None if any content, or if unknown."""
        known = self._nodes.get(node)
        if known is None:
            return None
        found: list[Matcher] = []
        for inner in inners:
            matcher = known.filters.get(inner)
            if matcher is None:
                return None
            found.append(matcher)
        return found

    def boxes(self, inner: str) -> dict[str, tuple[Box, ...]]:
        """The boxes of one filter, by node."""
        found = {node: known.filters.get(inner) for node, known in self._nodes.items()}
        return {node: matcher.boxes for node, matcher in found.items() if matcher is not None}

    def nodes(self) -> dict[str, int]:
        """How many boxes each known node has announced."""
        return {
            node: sum(len(matcher.boxes) for matcher in known.filters.values())
            for node, known in sorted(self._nodes.items())
        }
