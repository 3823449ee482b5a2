"""Which node wants which filters: what a node announces of its own, and what it knows of the others.

A node counts its subscriptions by filter and announces only that a filter came or went, as numbered deltas. Whoever
misses one sees it at the next number, or at the version in the node's next hello, and asks for everything again. A
filter inside a smart subscription is announced as an ordinary one: the message travels, and is matched where the
subscription is. Shared subscriptions are announced by their whole text, because one node is chosen for each. Filters of
`$geo` subscriptions are announced for each block of the map in which somebody listens, too, with the map's version, or
for each area that is spelled out, which is right for all versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker_plugins.cluster.exact_areas import ExactAreas, is_spelled
from broker_plugins.cluster.wire import DURABLE, GONE, HELD, LOCAL, Delta, Wish
from broker_plugins.engine.tree import FilterTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_plugins.places import Place
    from spatial_index.spaces import Space

Key = tuple[str, str]
"""The inner filter, and the whole text of a shared one, or a block of the map or area after a `BLOCK`, or nothing."""
BLOCK = "@"
MAP: Key = ("", BLOCK)
"""Its state is not how a filter is held but by which version of the map blocks are named."""
EVERYWHERE = "*"
"""In place of a block: any of them."""


class OwnWishes:
    """The filters of this node's clients.

    Args:
        node: its name.
        incarnation: a number that is another one after each start.
    """

    def __init__(self, node: str, incarnation: int) -> None:
        self.node = node
        self.incarnation = incarnation
        self.version = 0
        """How many filters came, went or changed so far."""
        # How many subscriptions: of sessions that end, of those that outlive; of both, those that want it everywhere.
        self._held: dict[Key, list[int]] = {}
        self._in_blocks = 0
        self._map = 0
        self._announced: dict[Key, int] = {}
        self._changed: dict[Key, None] = {}
        self._touched = False
        self._base = 0

    def __len__(self) -> int:
        return len(self._held) - self._in_blocks

    @property
    def in_blocks(self) -> int:
        """How many filters are held in blocks and areas, counted once in each."""
        return self._in_blocks

    def listen(self, inner: str, block: str) -> None:
        """Somebody listens in a block, a cell of one or an area that is spelled out."""
        before = len(self._held)
        self.add(inner, BLOCK + block, durable=False)
        self._in_blocks += len(self._held) - before

    def unlisten(self, inner: str, block: str) -> None:
        """Somebody does so no more."""
        before = len(self._held)
        self.remove(inner, BLOCK + block, durable=False)
        self._in_blocks += len(self._held) - before

    def chart(self, version: int) -> None:
        """From here on, blocks are those of another version of the map."""
        self._map = version
        self._changed[MAP] = None

    def add(self, inner: str, group: str, durable: bool, local: bool = False) -> None:
        """A subscription was made; `local` if it wants only what happens in some blocks of the map."""
        counts = self._held.setdefault((inner, group), [0, 0, 0])
        counts[durable] += 1
        counts[2] += not local
        self._changed[inner, group] = None

    def remove(self, inner: str, group: str, durable: bool, local: bool = False) -> None:
        """A subscription ended."""
        counts = self._held[inner, group]
        counts[durable] -= 1
        counts[2] -= not local
        if not counts[0] and not counts[1]:
            del self._held[inner, group]
        self._changed[inner, group] = None

    def _state(self, key: Key) -> int:
        if key == MAP:
            return self._map
        counts = self._held.get(key)
        if counts is None:
            return GONE
        return (DURABLE if counts[1] else HELD) | (0 if counts[2] else LOCAL)

    def touch(self) -> None:
        """Let there be another version even if no filter has changed."""
        self._touched = True

    def delta(self) -> Delta | None:
        """What is to be announced since this was asked last; None if nothing is."""
        wishes: list[Wish] = []
        for key in self._changed:
            state = self._state(key)
            if state != self._announced.get(key, GONE):
                wishes.append(Wish(*key, state))
                if state == GONE:
                    del self._announced[key]
                else:
                    self._announced[key] = state
        self._changed.clear()
        if not wishes and not self._touched:
            return None
        self._touched = False
        base, self.version = self.version, self.version + 1
        return Delta(self.node, self.incarnation, base, self.version, wishes)

    def durable(self) -> Delta:
        """What others are to remember while this node is away; version -1, because it is not everything."""
        announced = self._announced.items()
        wishes = [Wish(*key, state) for key, state in announced if state & DURABLE and not key[1].startswith(BLOCK)]
        return Delta(self.node, self.incarnation, 0, -1, wishes)

    def snapshot(self) -> Delta:
        """Everything that was announced."""
        wishes = [Wish(*key, state) for key, state in self._announced.items()]
        return Delta(self.node, self.incarnation, 0, self.version, wishes)


class Wanting(NamedTuple):
    """Who wants the messages of a topic."""

    nodes: dict[str, int]
    """Nodes with ordinary subscriptions, and whether one of them is durable."""
    groups: dict[str, dict[str, int]]
    """For each shared filter the nodes with members, likewise."""
    local: dict[str, list[str]]
    """The nodes among the first all of whose filters for the topic are `LOCAL`, with these."""


class _Known:
    """What is known of one node."""

    __slots__ = ("areas", "blocks", "incarnation", "states", "version")

    def __init__(self) -> None:
        self.incarnation = 0
        self.version = -1
        self.states: dict[Key, int] = {}
        self.blocks: dict[str, set[str]] = {}
        """For each filter the blocks, or cells of blocks, in which somebody listens."""
        self.areas: dict[str, ExactAreas] = {}
        """For each filter the areas that are spelled out."""


class OtherWishes:
    """The filters of the other nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Known] = {}
        self._tree: FilterTree[tuple[str, str, str]] = FilterTree()  # node, inner, group
        self.misread: Callable[[str], None] = lambda _: None
        """Told why an area of another node cannot be read."""

    def __len__(self) -> int:
        return len(self._tree)

    def is_current(self, node: str, incarnation: int, version: int) -> bool:
        """Whether all is known that a node had announced when it had this version."""
        known = self._nodes.get(node)
        return known is not None and known.incarnation == incarnation and known.version >= version

    def apply(self, delta: Delta) -> list[str] | None:
        """Take a delta in: the filters that came or went, or None if something before it is missing."""
        known = self._nodes.get(delta.node)
        if known is None or known.incarnation != delta.incarnation or known.version < delta.base:
            return None
        if known.version >= delta.version:
            return []  # told before
        known.version = delta.version
        return self._set(delta.node, known, ((wish.inner, wish.group, wish.state) for wish in delta.wishes))

    def replace(self, snapshot: Delta) -> list[str]:
        """Take everything a node holds in, in place of what was known: the filters that came or went."""
        known = self._nodes.setdefault(snapshot.node, _Known())
        if known.incarnation == snapshot.incarnation and known.version > snapshot.version:
            return []  # deltas have come since it was written
        now = {(wish.inner, wish.group): wish.state for wish in snapshot.wishes}
        gone = [(*key, GONE) for key in known.states if key not in now]
        known.incarnation, known.version = snapshot.incarnation, snapshot.version
        return self._set(snapshot.node, known, [*gone, *((*key, state) for key, state in now.items())])

    def forget(self, node: str) -> list[str]:
        """A node is gone for good."""
        known = self._nodes.pop(node, None)
        return [] if known is None else self._set(node, known, [(*key, GONE) for key in known.states])

    def _set(self, node: str, known: _Known, states: Iterable[tuple[str, str, int]]) -> list[str]:
        changed: list[str] = []
        for inner, group, state in states:
            key = (inner, group)
            if known.states.get(key, GONE) == state:
                continue
            if group.startswith(BLOCK):
                self._set_block(known, key, state)
                continue  # it changes nothing about who wants which topic
            if state == GONE:
                del known.states[key]
                self._tree.remove(inner, (node, inner, group))
            else:
                if key not in known.states:
                    self._tree.add(inner, (node, inner, group))
                known.states[key] = state
            changed.append(inner)
        return changed

    def wanting(self, topic: str) -> Wanting:
        """The nodes that want the messages of a topic."""
        nodes: dict[str, int] = {}
        groups: dict[str, dict[str, int]] = {}
        local: dict[str, list[str]] = {}
        anywhere: set[str] = set()
        for node, inner, group in self._tree.match(topic):
            state = self._nodes[node].states[inner, group]
            into = groups.setdefault(group, {}) if group else nodes
            into[node] = max(state & ~LOCAL, into.get(node, GONE))
            if not group and state & LOCAL:
                local.setdefault(node, []).append(inner)
            elif not group:
                anywhere.add(node)
        return Wanting(nodes, groups, {node: inners for node, inners in local.items() if node not in anywhere})

    def inners(self, topic: str) -> dict[str, list[str]]:
        """For each node the filters of its ordinary subscriptions that match a topic."""
        found: dict[str, list[str]] = {}
        for node, inner, group in self._tree.match(topic):
            if not group:
                found.setdefault(node, []).append(inner)
        return found

    def by_blocks(self, inners: dict[str, list[str]]) -> bool:
        """Whether one of some nodes tells by blocks of the map where it listens to one of its filters."""
        return any(not self._nodes[node].blocks.keys().isdisjoint(some) for node, some in inners.items())

    def listens(
        self,
        node: str,
        version: int | None,
        inners: Iterable[str],
        names: set[str] | None,
        at: tuple[Space, Place] | None = None,
    ) -> bool | None:
        """Whether somebody on a node listens to some filter at a place.

        Args:
            node: which one.
            version: of the map; None if there is none to go by.
            inners: the filters.
            names: the blocks and cells of that version that the place touches; None if they are too many, or if no
                node tells by such names where it listens.
            at: the place, for the areas that are spelled out; without it, there may be one anywhere.

        Returns:
            None if that is not known, or known for another version.
        """
        known = self._nodes.get(node)
        charted = None if known is None else known.states.get(MAP)
        if known is None or charted is None:
            return None  # it has not said where it listens
        sure = True
        for inner in inners:
            areas = known.areas.get(inner)
            if areas is not None and (at is None or areas.hold(*at)):
                return True
            listening = known.blocks.get(inner)
            if listening is None:
                continue
            if charted != version or names is None:
                sure = False
            elif EVERYWHERE in listening or not listening.isdisjoint(names):
                return True
        return False if sure else None

    def nodes(self) -> dict[str, int]:
        """How many filters each known node holds."""
        return {node: len(known.states) for node, known in self._nodes.items()}

    def _set_block(self, known: _Known, key: Key, state: int) -> None:
        inner, name = key[0], key[1][len(BLOCK) :]
        before = key in known.states
        if state == GONE:
            del known.states[key]
        else:
            known.states[key] = state
        if key == MAP or before == (state != GONE):
            return
        if is_spelled(name):
            areas = known.areas.get(inner)
            if areas is None:
                areas = known.areas[inner] = ExactAreas(self.misread)
            if state != GONE:
                areas.add(name)
                return
            areas.remove(name)
            if not areas:
                del known.areas[inner]
        elif state != GONE:
            known.blocks.setdefault(inner, set()).add(name)
        else:
            left = known.blocks[inner]
            left.discard(name)
            if not left:
                del known.blocks[inner]
