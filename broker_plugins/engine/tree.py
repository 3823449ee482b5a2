"""The filters of all subscriptions, as a tree: matching a topic costs its depth, not the number of filters.

Filters without wildcards are in a dictionary of their own, so that a topic finds them in one step. The others are paths
in a tree with a branch for each level. A path that nobody needs any more is cut off at once: what one client subscribed
to and left costs nobody anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from broker_plugins.engine.topics import is_exact

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T", bound="Hashable")


class _Node(Generic[T]):
    """One level of the wildcard filters. `here` ends at this level, `below` ends in `#` under it."""

    __slots__ = ("below", "children", "here", "level", "parent")

    def __init__(self, parent: _Node[T] | None, level: str) -> None:
        self.parent = parent
        self.level = level
        self.children: dict[str, _Node[T]] = {}
        self.here: dict[T, None] | None = None
        self.below: dict[T, None] | None = None


class FilterTree(Generic[T]):
    """Values under topic filters. A value may stand under any number of filters, once under each."""

    __slots__ = ("_exact", "_root", "_size")

    def __init__(self) -> None:
        self._exact: dict[str, dict[T, None]] = {}
        self._root: _Node[T] = _Node(None, "")
        self._size = 0

    def __len__(self) -> int:
        """How many values stand under filters, counted once for each filter."""
        return self._size

    def add(self, text: str, value: T) -> bool:
        """Put a value under a filter; False if it stood there already."""
        if is_exact(text):
            values = self._exact.setdefault(text, {})
        else:
            node = self._root
            *path, last = text.split("/")
            for level in path:
                node = self._child(node, level)
            if last == "#":
                values = node.below = {} if node.below is None else node.below
            else:
                node = self._child(node, last)
                values = node.here = {} if node.here is None else node.here
        if value in values:
            return False
        values[value] = None
        self._size += 1
        return True

    @staticmethod
    def _child(node: _Node[T], level: str) -> _Node[T]:
        child = node.children.get(level)
        if child is None:
            child = node.children[level] = _Node(node, level)
        return child

    def remove(self, text: str, value: T) -> bool:
        """Take a value from under a filter; False if it did not stand there."""
        if is_exact(text):
            values = self._exact.get(text)
            if values is None or value not in values:
                return False
            del values[value]
            if not values:
                del self._exact[text]
            self._size -= 1
            return True
        node: _Node[T] | None = self._root
        *path, last = text.split("/")
        for level in path if last == "#" else [*path, last]:
            node = None if node is None else node.children.get(level)
        if node is None:
            return False
        values = node.below if last == "#" else node.here
        if values is None or value not in values:
            return False
        del values[value]
        self._size -= 1
        if not values:
            if last == "#":
                node.below = None
            else:
                node.here = None
            self._prune(node)
        return True

    @staticmethod
    def _prune(node: _Node[T]) -> None:
        while not node.children and not node.here and not node.below and node.parent is not None:
            del node.parent.children[node.level]
            node = node.parent

    def match(self, topic: str) -> list[T]:
        """Every value under a filter that matches a topic name; one that stands under several comes several times."""
        found: list[T] = []
        exact = self._exact.get(topic)
        if exact:
            found.extend(exact)
        root = self._root
        if not root.children and not root.below:
            return found
        levels = topic.split("/")
        if topic.startswith("$"):
            # A filter that starts with a wildcard does not match a topic that starts with $ [MQTT-4.7.2-1].
            child = root.children.get(levels[0])
            nodes = [] if child is None else [child]
            rest = levels[1:]
        else:
            nodes = [root]
            rest = levels
        for level in rest:
            if not nodes:
                return found
            following: list[_Node[T]] = []
            for node in nodes:
                if node.below:
                    found.extend(node.below)
                children = node.children
                if children:
                    child = children.get(level)
                    if child is not None:
                        following.append(child)
                    child = children.get("+")
                    if child is not None:
                        following.append(child)
            nodes = following
        for node in nodes:
            if node.here:
                found.extend(node.here)
            if node.below:
                found.extend(node.below)  # '#' matches the parent level too [MQTT-4.7.1-2]
        return found
