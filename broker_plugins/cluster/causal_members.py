"""Who takes part in causal groups: the seats of all nodes, and whether their clocks are good enough."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker_plugins.causal import CausalNode, Roster, RosterError, grain_of
from broker_plugins.cluster.causal_rules import digest
from broker_plugins.cluster.causal_wire import Seated
from broker_plugins.cluster.clock_watch import ClockWatch
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.seats import Seat, Seats, claim, read, release
from broker_plugins.cluster.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker_plugins.cluster.causal_rules import GroupRule
    from broker_plugins.cluster.node import Node

log = logging.getLogger(__name__)

SEATS: Final = "causal-seats"
LOOK_BEATS: Final = 5
"""How often a node without a known seat is looked for in the directory."""
GRACE_PART: Final = 25
"""A release may be late by a 25th of the lifetime, 10 ms of 250, before the message is dropped instead."""


class Group:
    """One causal group on this node.

    Args:
        rule: its topics and lifetime.
    """

    __slots__ = ("member", "refused", "rule")

    def __init__(self, rule: GroupRule) -> None:
        self.rule = rule
        self.member: CausalNode | None = None
        """This node as a member; None until it has a seat."""
        self.refused: set[str] = set()
        """Nodes whose clocks are too far off for this lifetime."""


class CausalMembers(Part):
    """Takes a seat for this node, knows those of the others, and refuses who tells another time.

    Args:
        node: this node.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        rules = node.options.causal_rules
        self.groups = [Group(rule) for rule in rules]
        self.digest = digest(rules)
        self.clocks = ClockWatch(node)
        self.slot: int | None = None
        """The number of this node; None while it has no seat."""
        self.seated: dict[str, tuple[int, Seat]] = {}
        """The seats of all nodes, by name."""
        self.beats = 0
        self._roster = Roster()
        self._odd: set[str] = set()

    def slot_of(self, name: str, group: Group) -> int | None:
        """The number of a node with which messages of a group are exchanged in order; None if they are not."""
        seated = self.seated.get(name)
        if seated is None or seated[1].groups != self.digest or name in group.refused:
            return None
        return seated[0]

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """Who takes a seat."""
        return {"seated": (Seated, self._on_seated)} if self.groups else {}

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """What time it is here."""
        return self.clocks.questions()

    async def joined(self) -> None:
        """Take a seat, learn those of the others, and ask them the time."""
        if not self.groups:
            return
        node = self.node
        mine = Seat(node.name, node.incarnation, self.digest)
        try:
            value = await node.fabric.directory_change(
                SEATS, lambda value: claim(value, mine, node.wall_us() / 1e6, self.slot)
            )
            self._learn(read(value))
        except (RosterError, msgspec.MsgspecError) as error:
            log.warning("causal groups: this node has no seat, its messages go unordered: %s", error)
            return
        slot, _ = self.seated[node.name]
        self._sit(slot)
        seated = Seated(node.name, slot, node.incarnation, self.digest)
        await node.fabric.publish(node.fabric.subject("seated"), encode(seated))
        others = [name for name in await node.fabric.leased() if name != node.name]
        await self._measure(others)

    async def _measure(self, nodes: list[str]) -> None:
        await self.clocks.ask_all(nodes)
        self._judge_clocks()

    def _sit(self, slot: int) -> None:
        """Be a member of all groups, under this number."""
        if slot == self.slot:
            return
        self.slot = slot
        options = self.node.options
        for group in self.groups:
            last = 0 if group.member is None else group.member.state.clock.last
            group.member = CausalNode(
                label_of(self.node.name, slot),
                self._roster,
                lifetime_us=group.rule.lifetime_us,
                skew_us=round(options.causal_skew_ms * 1000),
                room_limit=options.max_causal_waiting,
                grace_us=group.rule.lifetime_us // GRACE_PART,
                resume_after=last,
                grain_us=grain_of(group.rule.lifetime_us),
            )

    def _on_seated(self, seated: Seated) -> None:
        if seated.node == self.node.name:
            return
        if seated.slot == self.slot:
            log.warning("node %s has taken the seat of this node: the directory was lost; taking another", seated.node)
            self.slot = None
            self.node.work(self.joined())
        self._seat(seated.slot, Seat(seated.node, seated.incarnation, seated.groups))

    def _learn(self, seats: Seats) -> None:
        for slot, seat in seats.taken.items():
            self._seat(slot, seat)

    def _seat(self, slot: int, seat: Seat) -> None:
        known = self.seated.get(seat.node)
        if known is not None and (known[1].incarnation > seat.incarnation or known == (slot, seat)):
            return
        self.seat_sender(slot, seat.node)
        self.seated[seat.node] = slot, seat
        if seat.groups != self.digest:
            log.warning(
                "node %s has other causal groups than this one: messages between the two go unordered; "
                "write the same `causal:` on all nodes, in the same order",
                seat.node,
            )

    def seat_sender(self, slot: int, name: str) -> None:
        """Let a number stand for a node; one that was given up before may have stood for another."""
        label = label_of(name, slot)
        if self._roster.knows_slot(slot):
            if (former := self._roster.name(slot)) == label:
                return
            self._roster.leave(former, self.node.steady_us())
        self._roster.join(label, slot)

    def came(self, node: str) -> None:
        """Another node is there: how far is its clock off?"""
        if self.groups:
            self._odd.discard(node)
            self.clocks.offsets.forget(node)
            self.node.work(self._measure([node]))

    def forgotten(self, node: str) -> None:
        """Give the seat of a node back that is not expected any more."""
        if self.seated.pop(node, None) is not None:
            self.node.work(self._release(node))

    async def _release(self, node: str) -> None:
        now = self.node.wall_us() / 1e6
        await self.node.fabric.directory_change(SEATS, lambda value: release(value, node, now))

    async def beat(self) -> None:
        """Ask clocks again, and look for nodes whose seat is not known."""
        if not self.groups:
            return
        if self.slot is None:
            await self.joined()
        if self.clocks.due():
            self.node.work(self._measure(self.node.members.alive()))  # who does not answer must not hold up the beat
        self.beats += 1
        if self.beats % LOOK_BEATS == 0:
            await self._look_for_seats()

    async def _look_for_seats(self) -> None:
        missing = [name for name in self.node.members.alive() if name not in self.seated]
        if not missing:
            return
        value, _ = await self.node.fabric.directory_get(SEATS)
        self._learn(read(value))
        for name in missing:
            if name not in self.seated and name not in self._odd:
                self._odd.add(name)
                log.warning(
                    "node %s has no causal groups: messages to it go unordered; write `causal:` there too", name
                )

    # Clocks.

    def _judge_clocks(self) -> None:
        """Widen the margins by what is known of the others' clocks, and refuse who is hopeless."""
        now = self.node.steady_us()
        part = self.node.options.causal_clock_part
        floor = self.node.options.causal_skew_ms * 1000
        for group in self.groups:
            lifetime_us = group.rule.lifetime_us
            widest = floor
            for name, (_, seat) in self.seated.items():
                apart = self.clocks.offsets.apart_us(name, now)
                if apart is None or seat.groups != self.digest:
                    continue
                if apart <= part * lifetime_us:
                    widest = max(widest, apart)
                    if name in group.refused:
                        group.refused.discard(name)
                        log.info("the clock of node %s serves for %s again: ordered", name, group.rule.filter)
                elif name not in group.refused:
                    group.refused.add(name)
                    self.node.counters.causal_refusals += 1
                    self._complain(name, group, now)
            if group.member is not None:
                group.member.allow_skew(round(widest))

    def _complain(self, name: str, group: Group, now: int) -> None:
        best = self.clocks.offsets.best(name, now)
        assert best is not None
        log.warning(
            "REFUSED: causal group %s with node %s: its clock is off by %.0f ms, give or take %.0f, and a message "
            "lives %.0f ms. Messages between the two go unordered. Set the clocks (NTP), or see causal_clock_part",
            group.rule.filter,
            name,
            best.offset_us / 1000,
            best.error_at(now) / 1000,
            group.rule.lifetime_us / 1000,
        )


def label_of(name: str, slot: int) -> str:
    """A member by name and seat: two lives of a node are two members."""
    return f"{name}#{slot}"
