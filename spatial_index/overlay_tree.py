"""`OverlayTree`: peers with box subscriptions, arranged as an R-tree whose bounding boxes elect parents (paper 003)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from spatial_index.errors import BadCount, DuplicateId, UnknownId
from spatial_index.overlay_boxes import BoundingBox, BoxTree, Leaf, OverlayBox, OverlaySpace, contains
from spatial_index.overlay_election import Election, RecentEvents, Volume, overheads
from spatial_index.overlay_plan import Planner
from spatial_index.overlay_routing import Delivery, Route

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from spatial_index.overlay_boxes import Ends, Member, Range
    from spatial_index.overlay_election import Array, Estimate
    from spatial_index.overlay_plan import Plan

PLACED_BY_VOLUME = 0.05
"""The part that volume has where peers are placed by events: it tells boxes apart in which nothing happens."""
RE_ELECT_EVERY = 256
"""Joins and leaves, or recorded events, after which parents elected by recent events are all elected anew."""


class OverlayTree:
    """An R-tree overlay between peers, each of which wants the events inside one box.

    Args:
        domains: each attribute's name and its range, which scales volumes; events and boxes may reach beyond it.
        election: whom a bounding box elects as parent.
        fan_out: fewest and most members of a bounding box.
        receive_cost: R, what it costs to receive an event one does not want.
        forward_cost: F, what it costs to send an event on.
        cap: how many times the mean a peer may carry before it takes on nothing more; None for no limit. At least 2,
            so that there is always a peer to take over.
        trees_apart: boxes that leave attributes out stretch everybody's bounding boxes, so those that leave out the
            same ones live in a tree of their own, up to this many such trees; 0 sets nothing apart.
        half_life: in events, how fast the histogram behind `Election.CHEAPEST_BY_EVENTS` forgets.
        place_by_events: whether peers are also put beside those that want the same recent events, not only the same
            space; `rearrange` puts those there anew that came before there were any.
        seed: for `Election.RANDOM`.
    """

    def __init__(
        self,
        domains: Mapping[str, tuple[float, float]],
        *,
        election: Election = Election.CHEAPEST,
        fan_out: tuple[int, int] = (3, 6),
        receive_cost: float = 1.0,
        forward_cost: float = 1.0,
        cap: float | None = None,
        trees_apart: int = 8,
        half_life: float = 1000.0,
        place_by_events: bool = False,
        seed: int = 0,
    ) -> None:
        self._space = OverlaySpace(domains)
        fewest, most = fan_out
        if not (2 <= fewest <= (most + 1) // 2 and most <= 10):
            raise BadCount(f"fan_out is {fan_out!r}: it needs 2 <= fewest <= (most + 1) / 2 and most <= 10")
        if cap is not None and not cap >= 2:
            raise BadCount(f"cap is {cap!r}: it has to be at least 2, or nobody may be left to take over")
        for name, number in (
            ("receive_cost", receive_cost),
            ("forward_cost", forward_cost),
            ("trees_apart", trees_apart),
        ):
            if not number >= 0:
                raise BadCount(f"{name} is {number!r}: it cannot be negative or NaN")
        self.election = election
        self.cap = cap
        self._fewest, self._most = fewest, most
        self._receive_cost, self._forward_cost = receive_cost, forward_cost
        self._trees_apart = trees_apart
        self._random = random.Random(seed)
        self._volume = Volume(self._space.lows, self._space.highs)
        self._recent = RecentEvents(self._space.lows, self._space.highs, half_life)
        self._place_by_events = place_by_events
        # One tree for each set of attributes left out, the common one under no attribute at all.
        self._trees: dict[frozenset[str], BoxTree] = {frozenset(): self._new_tree()}
        self._leaves: dict[str, Leaf] = {}
        self._by_box: dict[tuple[Ends, Ends], list[Leaf]] = {}
        self._duties: dict[str, dict[Member, None]] = {}  # in order, so that a run can be repeated
        self._hosts: dict[str, str] = {}
        self._peers_on: dict[str, dict[str, None]] = {}
        self._carried: dict[str, float] = {}
        self._total = 0.0
        self._since_election = 0

    # -- what is in it

    def __len__(self) -> int:
        return len(self._leaves)

    def __contains__(self, peer: object) -> bool:
        return peer in self._leaves

    @property
    def carried(self) -> dict[str, float]:
        """What each peer, or the host it is on, has borne for others since it joined, in the unit of the costs."""
        return dict(self._carried)

    @property
    def budget(self) -> float:
        """What a peer may have carried and still be given work; infinite without a cap."""
        if self.cap is None:
            return float("inf")
        return self.cap * max(self._total / max(len(self._carried), 1), self._forward_cost)

    def boxes(self) -> Iterator[OverlayBox]:
        """Every bounding box and, at level 0, every subscription, from the roots down."""
        for tree in self._trees.values():
            if not tree.root.members:
                continue
            for box in tree.root.inner_boxes():
                yield OverlayBox(box.height, box.lows, box.highs, box.parent)
            for leaf in tree.root.leaves():
                yield OverlayBox(0, leaf.lows, leaf.highs, leaf.parent)

    # -- joining and leaving

    def join(self, peer: str, box: Mapping[str, Range], host: str | None = None) -> None:
        """Add a peer that wants the events inside `box`; an attribute left out, or an end that is None, is unbounded.

        Args:
            peer: its name.
            box: what it wants.
            host: where it lives, if there are several peers on one host: what one of them has, all have. A host of
                its own if not said.

        Raises:
            DuplicateId: the peer is in the tree already.
            BadAttribute: the box names an attribute without a domain.
            BadInterval: an interval is inverted or an end is not a finite number.
        """
        if peer in self._leaves:
            raise DuplicateId(f"peer {peer!r} has joined already: it has to leave before it joins with another box")
        lows, highs = self._space.box(box)
        self._hosts[peer] = host = peer if host is None else host
        self._peers_on.setdefault(host, {})[peer] = None
        self._carried.setdefault(host, 0.0)
        for leaf in self._by_box.get((lows, highs), ()):
            # One peer forwards to all that have its box, so the list is kept as short as a bounding box's.
            if len(leaf.peers) < self._most:
                leaf.peers.append(peer)
                self._leaves[peer] = leaf
                return
        leaf = Leaf(lows, highs, peer)
        self._leaves[peer] = leaf
        self._by_box.setdefault((lows, highs), []).append(leaf)
        self._appoint(leaf, peer)
        self._elect_all(self._tree_for(leaf).insert(leaf))
        self._count_change()

    def leave(self, peer: str) -> None:
        """Remove a peer; whatever it did as a parent falls to others.

        Raises:
            UnknownId: the peer is not in the tree.
        """
        leaf = self._leaves.pop(peer, None)
        if leaf is None:
            raise UnknownId(f"peer {peer!r} has not joined: it cannot leave")
        leaf.peers.remove(peer)
        host = self._hosts[peer]
        del self._peers_on[host][peer]
        if not self._peers_on[host]:
            del self._peers_on[host]
            self._total -= self._carried.pop(host)
        if leaf.peers:
            if leaf.parent == peer:
                self._elect(leaf)  # before those above, who elect one of their members' parents
            above = leaf.above
            while above is not None:
                self._elect(above)
                above = above.above
        else:
            same = self._by_box[leaf.lows, leaf.highs]
            same.remove(leaf)
            if not same:
                del self._by_box[leaf.lows, leaf.highs]
            self._remove(leaf)
        for duty in sorted(self._duties.get(peer, ()), key=_height):
            self._elect(duty)
        self._duties.pop(peer, None)
        del self._hosts[peer]
        self._count_change()

    def rearrange(self) -> None:
        """Put every peer where it belongs by now, the widest boxes first, and elect all parents."""
        leaves = [leaf for tree in self._trees.values() for leaf in tree.root.leaves()]
        self._trees = {frozenset(): self._new_tree()}
        self._duties.clear()
        boxes = np.array([(leaf.lows, leaf.highs) for leaf in leaves]).reshape(len(leaves), 2, len(self._space.names))
        for at in np.argsort(-self._room(boxes[:, 0], boxes[:, 1]), kind="stable").tolist():
            leaf = leaves[at]
            self._duties.setdefault(leaf.parent, {})[leaf] = None
            self._tree_for(leaf).insert(leaf)
        self.re_elect()

    def re_elect(self) -> None:
        """Elect every parent anew, from the lowest bounding boxes up."""
        for tree in self._trees.values():
            self._elect_all(reversed(list(tree.root.inner_boxes())))
        self._since_election = 0

    def _new_tree(self) -> BoxTree:
        return BoxTree(self._fewest, self._most, self._room, self._least_overhead)

    def _room(self, lows: Array, highs: Array) -> Array:
        """How much a box takes in, by which peers are placed: its volume, or mostly its events."""
        room = self._volume(lows, highs)
        if self._place_by_events and self._recent.seen:
            room = PLACED_BY_VOLUME * room + (1 - PLACED_BY_VOLUME) * self._recent(lows, highs)
        return room

    def _tree_for(self, leaf: Leaf) -> BoxTree:
        """The tree a new leaf goes to, made if there is room for one more."""
        left_out = self._space.left_out(leaf)
        if left_out not in self._trees and len(self._trees) <= self._trees_apart:
            self._trees[left_out] = self._new_tree()
        return self._trees.get(left_out, self._trees[frozenset()])

    def _remove(self, leaf: Leaf) -> None:
        """Take a leaf out of its tree, and the tree out of the overlay when it was the last one."""
        root: Member = leaf
        while root.above is not None:
            root = root.above
        key = next(key for key, tree in self._trees.items() if tree.root is root)
        touched, dropped = self._trees[key].remove(leaf)
        no_more: list[Member] = [leaf, *dropped]
        for gone in no_more:
            self._duties.get(gone.parent, {}).pop(gone, None)
        self._elect_all(touched)
        if key and not self._trees[key].root.members:
            del self._trees[key]

    def _count_change(self) -> None:
        """What recent events say changes with every event: elections by them are held anew now and then."""
        self._since_election += 1
        if self.election is Election.CHEAPEST_BY_EVENTS and self._since_election >= RE_ELECT_EVERY:
            self.re_elect()

    # -- elections

    @property
    def _estimate(self) -> Estimate:
        by_events = self.election is Election.CHEAPEST_BY_EVENTS and self._recent.seen
        return self._recent if by_events else self._volume

    def _wants(self, member: Member) -> tuple[Ends, Ends]:
        """What the peer that speaks for a member wants for itself."""
        own = member if isinstance(member, Leaf) else self._leaves.get(member.parent, member)
        return own.lows, own.highs

    def _overheads(
        self, wanted: list[tuple[Ends, Ends]], members: list[tuple[Ends, Ends]], *, are_members: bool
    ) -> Array:
        candidates, boxes = np.array(wanted), np.array(members)
        return overheads(
            (candidates[:, 0], candidates[:, 1]),
            (boxes[:, 0], boxes[:, 1]),
            self._estimate,
            self._receive_cost,
            self._forward_cost,
            are_members=are_members,
        )

    def _least_overhead(self, box: BoundingBox, extra: Leaf) -> float:
        """What a bounding box would cost with one more leaf, under the best parent for it."""
        new = (extra.lows, extra.highs)
        wanted = [*(self._wants(member) for member in box.members), new]
        members = [*((member.lows, member.highs) for member in box.members), new]
        return float(self._overheads(wanted, members, are_members=True).min())

    def _appoint(self, holder: Member, peer: str) -> None:
        self._duties.get(holder.parent, {}).pop(holder, None)
        holder.parent = peer
        self._duties.setdefault(peer, {})[holder] = None

    def _elect_all(self, boxes: Iterable[BoundingBox]) -> None:
        for box in boxes:
            self._elect(box)

    def _elect(self, holder: Member) -> None:
        """Choose who speaks for a bounding box, or for the peers that have one box in common."""
        if isinstance(holder, Leaf):
            if holder.parent not in holder.peers or self._load(holder.parent) > self.budget:
                self._appoint(holder, min(holder.peers, key=self._load))
        elif not holder.members:
            self._duties.get(holder.parent, {}).pop(holder, None)
            holder.parent = ""
            return
        else:
            able = list(holder.members)
            if self.cap is not None:
                able = [member for member in able if self._has_room(member.parent)]
            if able:
                self._appoint(holder, able[self._best_of(able, holder)].parent)
        if not self._has_room(holder.parent):
            self._appoint(holder, self._volunteer(holder))

    def _relieve(self, holder: Member) -> None:
        """Let somebody else speak for a box whose parent has carried its share."""
        if self._load(holder.parent) > self.budget:
            self._elect(holder)

    def _has_room(self, peer: str) -> bool:
        """Whether a peer may be given work: half the budget, so that it does not lose it again at once."""
        carried = self._carried.get(self._hosts[peer]) if peer in self._leaves else None
        return carried is not None and (self.cap is None or carried <= self.budget / 2)

    def _best_of(self, able: list[Member], holder: BoundingBox) -> int:
        if self.election is Election.RANDOM:
            return self._random.randrange(len(able))
        wanted = [self._wants(member) for member in able]
        if self.election is Election.LARGEST:
            own = np.array(wanted)
            return int(self._volume(own[:, 0], own[:, 1]).argmax())
        members = [(member.lows, member.highs) for member in holder.members]
        free = len(able) == len(members)
        return int(self._overheads(wanted, members, are_members=free).argmin())

    def _volunteer(self, holder: Member) -> str:
        """Somebody below, or else somebody in the next wider box, who has room and costs least.

        The mean is never above half a budget (a cap is at least 2), so that the whole tree has somebody with room.
        """
        members = [holder] if isinstance(holder, Leaf) else holder.members
        around: Member | None = holder
        while around is not None:
            leaves = [around] if isinstance(around, Leaf) else list(around.leaves())
            with_room = [(peer, leaf) for leaf in leaves for peer in leaf.peers if self._has_room(peer)]
            if with_room:
                wanted = [(leaf.lows, leaf.highs) for _, leaf in with_room]
                boxes = [(member.lows, member.highs) for member in members]
                return with_room[int(self._overheads(wanted, boxes, are_members=False).argmin())][0]
            around = around.above
        return min(self._leaves, key=self._load)

    def _load(self, peer: str) -> float:
        return self._carried[self._hosts[peer]]

    # -- routing

    def publish(self, event: Mapping[str, float], origin: str | None = None) -> Delivery:
        """Route an event to every peer whose box contains it, and note what each peer carried for it.

        The event climbs from its publisher to the root, and every parent on the way forwards it to each other member
        that it concerns; from the root it crosses to the other trees. An attribute left out matches every interval.

        Args:
            event: a value for each attribute.
            origin: the peer that publishes it; None for somebody outside, who hands it to the roots.

        Raises:
            UnknownId: the origin is not in the tree.
            BadAttribute: the event names an attribute without a domain.
            BadCoordinate: a value is not a finite number.
        """
        point = self._space.point(event)
        start = None
        if origin is not None:
            start = self._leaves.get(origin)
            if start is None:
                raise UnknownId(f"origin {origin!r} has not joined: let it join, or publish without an origin")
        route = Route(
            point, origin, self._hosts, self._wants_event, self._relieve, self._receive_cost, self._forward_cost
        )
        route.run(start, [tree.root for tree in self._trees.values()])
        for peer, cost in route.costs.items():
            self._carried[peer] += cost
            self._total += cost
        self._recent.record(point)
        self._count_change()
        return Delivery(tuple(route.receivers), route.messages, route.wasted, sum(route.costs.values()))

    def _wants_event(self, host: str, point: tuple[float | None, ...]) -> bool:
        return any(contains(self._leaves[peer], point) for peer in self._peers_on[host])

    def plan(self, event: Mapping[str, float], origin: str, wanted: Collection[str] | None = None) -> Plan:
        """The way of an event whose publisher knows every box, and note what each host will carry for it.

        Args:
            event: a value for each attribute; one left out matches every interval.
            origin: the host that publishes it; it need not be in the tree.
            wanted: the hosts that want it, where that is known better; None for all with a box that contains it.

        Raises:
            BadAttribute: the event names an attribute without a domain.
            BadCoordinate: a value is not a finite number.
        """
        point = self._space.point(event)
        planner = Planner(
            point, origin, self._hosts.__getitem__, self._may_relay, self._carried.__getitem__, wanted, self._most
        )
        plan = planner.run([tree.root for tree in self._trees.values()])
        for sender, _ in plan.hops:
            if sender != origin:
                self._carried[sender] += self._forward_cost
                self._total += self._forward_cost
        self._recent.record(point)
        self._count_change()
        return plan

    def record(self, event: Mapping[str, float]) -> None:
        """Count an event that took another way as a recent one.

        Raises:
            BadAttribute: the event names an attribute without a domain.
            BadCoordinate: a value is not a finite number.
        """
        self._recent.record(self._space.point(event))

    def _may_relay(self, host: str) -> bool:
        """Whether a host may be given more to send on."""
        work = self._most * self._forward_cost
        return self.cap is None or self._carried.get(host, 0.0) + work <= max(self.budget, work)


def _height(holder: Member) -> int:
    return 0 if isinstance(holder, Leaf) else holder.height
