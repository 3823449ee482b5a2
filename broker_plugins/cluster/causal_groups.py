"""Causal groups: messages of some topics reach every node's subscribers in Δ-causal order, in time or not at all.

The nodes are the processes of the algorithm in `broker_plugins.causal`. What a node has delivered to its clients before
one of them publishes is taken to come before that message, whether or not this client has seen it: more than clients
can tell, never less. A message is stamped when it is published and delivered at once on its own node; the others keep
it until what comes before it has been delivered there, or can no longer come.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker_plugins.causal import CausalNode, ControlFormatError, DropReason, Roster, RosterError, decode, grain_of
from broker_plugins.cluster.causal_rules import digest
from broker_plugins.cluster.causal_wire import Seated
from broker_plugins.cluster.clock_watch import ClockWatch
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.seats import Seat, Seats, claim, read, release
from broker_plugins.cluster.wire import encode
from broker_plugins.engine import Message
from broker_plugins.engine.topics import matches
from broker_plugins.engine.work import drive

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection, Generator, Mapping

    from broker_plugins.causal import Outcome
    from broker_plugins.cluster.causal_rules import GroupRule
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.wire import Frame

log = logging.getLogger(__name__)

SEATS: Final = "causal-seats"
STATUS_TOPIC: Final = "$SYS/broker/locus/causal"
STATUS_BEATS: Final = 5
LOOK_BEATS: Final = 5
"""How often a node without a known seat is looked for in the directory."""
MAX_TOPICS: Final = 65_536
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


class CausalGroups(Part):
    """Stamps what is published here in a group, and holds what comes from other nodes until it is its turn.

    Args:
        node: this node.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        rules = node.options.causal_rules
        self.groups = [Group(rule) for rule in rules]
        self._digest = digest(rules)
        self._of: dict[str, Group | None] = {}
        self._clocks = ClockWatch(node)
        self._roster = Roster()
        self._slot: int | None = None
        self._seated: dict[str, tuple[int, Seat]] = {}
        self._odd: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0
        self._released: deque[Message] = deque()
        self._handing = False
        self._beats = 0
        self._status = b""

    def group_of(self, topic: str) -> Group | None:
        """The group a topic is in: the first whose filter matches."""
        if not self.groups:
            return None
        try:
            return self._of[topic]
        except KeyError:
            if len(self._of) >= MAX_TOPICS:
                self._of.clear()
            found = next((group for group in self.groups if matches(group.rule.filter, topic)), None)
            self._of[topic] = found
            return found

    def orders(self, topic: str) -> bool:
        """Whether a topic is in a group."""
        return self.group_of(topic) is not None

    # Seats.

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """Who takes a seat."""
        return {"seated": (Seated, self._on_seated)} if self.groups else {}

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """What time it is here."""
        return self._clocks.questions()

    async def joined(self) -> None:
        """Take a seat, learn those of the others, and ask them the time."""
        if not self.groups:
            return
        node = self.node
        mine = Seat(node.name, node.incarnation, self._digest)
        try:
            value = await node.fabric.directory_change(
                SEATS, lambda value: claim(value, mine, node.wall_us() / 1e6, self._slot)
            )
            self._learn(read(value))
        except (RosterError, msgspec.MsgspecError) as error:
            log.warning("causal groups: this node has no seat, its messages go unordered: %s", error)
            return
        slot, _ = self._seated[node.name]
        self._sit(slot)
        seated = Seated(node.name, slot, node.incarnation, self._digest)
        await node.fabric.publish(node.fabric.subject("seated"), encode(seated))
        others = [name for name in await node.fabric.leased() if name != node.name]
        await self._measure(others)

    async def _measure(self, nodes: list[str]) -> None:
        await self._clocks.ask_all(nodes)
        self._judge_clocks()

    def _sit(self, slot: int) -> None:
        """Be a member of all groups, under this number."""
        if slot == self._slot:
            return
        self._slot = slot
        options = self.node.options
        for group in self.groups:
            last = 0 if group.member is None else group.member.state.clock.last
            group.member = CausalNode(
                _label(self.node.name, slot),
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
        if seated.slot == self._slot:
            log.warning("node %s has taken the seat of this node: the directory was lost; taking another", seated.node)
            self._slot = None
            self.node.work(self.joined())
        self._seat(seated.slot, Seat(seated.node, seated.incarnation, seated.groups))

    def _learn(self, seats: Seats) -> None:
        for slot, seat in seats.taken.items():
            self._seat(slot, seat)

    def _seat(self, slot: int, seat: Seat) -> None:
        known = self._seated.get(seat.node)
        if known is not None and (known[1].incarnation > seat.incarnation or known == (slot, seat)):
            return
        self._seat_sender(slot, seat.node)
        self._seated[seat.node] = slot, seat
        if seat.groups != self._digest:
            log.warning(
                "node %s has other causal groups than this one: messages between the two go unordered; "
                "write the same `causal:` on all nodes, in the same order",
                seat.node,
            )

    def _seat_sender(self, slot: int, name: str) -> None:
        """Let a number stand for a node; one that was given up before may have stood for another."""
        label = _label(name, slot)
        if self._roster.knows_slot(slot):
            if (former := self._roster.name(slot)) == label:
                return
            self._roster.leave(former, self.node.wall_us())
        self._roster.join(label, slot)

    def came(self, node: str) -> None:
        """Another node is there: how far is its clock off?"""
        if self.groups:
            self._odd.discard(node)
            self._clocks.offsets.forget(node)
            self.node.work(self._measure([node]))

    def forgotten(self, node: str) -> None:
        """Give the seat of a node back that is not expected any more."""
        if self._seated.pop(node, None) is not None:
            self.node.work(self._release(node))

    async def _release(self, node: str) -> None:
        now = self.node.wall_us() / 1e6
        await self.node.fabric.directory_change(SEATS, lambda value: release(value, node, now))

    async def beat(self) -> None:
        """Ask clocks again, look for nodes whose seat is not known, tell how it goes."""
        if not self.groups:
            return
        if self._slot is None:
            await self.joined()
        if self._clocks.due():
            self.node.work(self._measure(self.node.members.alive()))  # who does not answer must not hold up the beat
        self._beats += 1
        if self._beats % LOOK_BEATS == 0:
            await self._look_for_seats()
        if self._beats % STATUS_BEATS == 0:
            self._tell()

    async def _look_for_seats(self) -> None:
        missing = [name for name in self.node.members.alive() if name not in self._seated]
        if not missing:
            return
        value, _ = await self.node.fabric.directory_get(SEATS)
        self._learn(read(value))
        for name in missing:
            if name not in self._seated and name not in self._odd:
                self._odd.add(name)
                log.warning(
                    "node %s has no causal groups: messages to it go unordered; write `causal:` there too", name
                )

    # Clocks.

    def _judge_clocks(self) -> None:
        """Widen the margins by what is known of the others' clocks, and refuse who is hopeless."""
        now = self.node.wall_us()
        part = self.node.options.causal_clock_part
        floor = self.node.options.causal_skew_ms * 1000
        for group in self.groups:
            lifetime_us = group.rule.lifetime_us
            widest = floor
            for name, (_, seat) in self._seated.items():
                apart = self._clocks.offsets.apart_us(name, now)
                if apart is None or seat.groups != self._digest:
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
        best = self._clocks.offsets.best(name, now)
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

    # Out.

    def stamp(self, group: Group, message: Message, nodes: Collection[str]) -> dict[str, bytes]:
        """What a message published here carries to each of these nodes; nothing to those it goes to unordered."""
        member = group.member
        labels: dict[str, str] = {}
        if member is not None:
            for name in nodes:
                seated = self._seated.get(name)
                if seated is not None and seated[1].groups == self._digest and name not in group.refused:
                    labels[_label(name, seated[0])] = name
        counters = self.node.counters
        counters.causal_unordered += len(nodes) - len(labels)
        if member is None or not labels:
            return {}
        ttl = None if message.clauses is None else message.clauses.ttl
        now = self.node.wall_us()
        longest = group.rule.lifetime_us
        # It counts from the stamp, which is rounded down.
        life = None if ttl is None else max(1, min(round(ttl * 1e6) + now % grain_of(longest), longest))
        outgoing = member.send(now, labels, life)
        counters.causal_sent += len(outgoing.control)
        counters.causal_control_bytes += sum(map(len, outgoing.control.values()))
        return {labels[label]: control for label, control in outgoing.control.items()}

    # In.

    def take(self, message: Message, frame: Frame, origin: str) -> bool:
        """Hold a message of a group until it is its turn; False, because this part publishes it."""
        if not frame.causal:
            return True
        group = self.group_of(message.topic)
        if group is None or origin in group.refused:
            self.node.counters.causal_unordered += 1
            return True
        try:
            control = decode(frame.causal, self._slot or 0, group.rule.lifetime_us)
        except ControlFormatError as error:
            self.node.counters.unreadable += 1
            log.warning("a message from node %s is left out: %s", origin, error)
            return False
        now = self.node.wall_us()
        if self._slot is None or group.member is None or not control.destinations >> self._slot & 1:
            # It was sent to this node's life before: nobody waited here for what comes before it.
            self._dropped(message, DropReason.LATE if control.deadline < now else DropReason.STRANGER)
            return False
        self._seat_sender(control.sender, origin)
        self._work_off(group.member.receive(now, control, message))
        self._set_timer()
        return False

    def _set_timer(self) -> None:
        """Be called when the next message has waited long enough."""
        wakeups = [
            wakeup for group in self.groups if group.member and (wakeup := group.member.next_wakeup()) is not None
        ]
        if not wakeups:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        at = min(wakeups)
        if self._timer is not None:
            if at == self._rings_at:
                return
            self._timer.cancel()
        self._rings_at = at
        self._timer = self.node.engine.loop.call_later(max(0, at - self.node.wall_us()) / 1e6, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self.node.wall_us()
        for group in self.groups:
            if group.member is not None:
                self._work_off(group.member.poll(now))
        self._set_timer()

    def _work_off(self, outcome: Outcome) -> None:
        counters = self.node.counters
        for drop in outcome.drops:
            self._dropped(drop.payload, drop.reason)
        for delivery in outcome.deliveries:
            counters.causal_delivered += 1
            if delivery.waited_us:
                counters.causal_waited += 1
                counters.causal_waited_us += delivery.waited_us
                counters.causal_longest_wait_us = max(counters.causal_longest_wait_us, delivery.waited_us)
        if outcome.deliveries:
            self._hand_over([delivery.payload for delivery in outcome.deliveries])

    def _dropped(self, message: Message, reason: DropReason) -> None:
        counters = self.node.counters
        if reason is DropReason.LATE:
            counters.causal_late += 1
        elif reason is DropReason.OUTLIVED:
            counters.causal_outlived += 1
        elif reason is DropReason.STALLED:
            counters.causal_stalled += 1
        elif reason is DropReason.OVERFLOW:
            counters.causal_overflows += 1
        elif reason is DropReason.DUPLICATE:
            counters.causal_duplicates += 1
        else:
            counters.causal_strangers += 1
        if message.retain:
            self.node.engine.retain(message)  # what is kept is the newest of all nodes, however it came

    def _hand_over(self, messages: list[Message]) -> None:
        """Publish messages here, in their order."""
        engine = self.node.engine
        if engine.guard is None:
            for message in messages:
                engine.publish(message)
            return
        self._released.extend(messages)
        if not self._handing:
            self._handing = True
            drive(engine.loop, self._publish_released(), self._handed)

    def _publish_released(self) -> Generator[Awaitable[Any] | None, Any, None]:
        while self._released:
            yield from self.node.engine.publish_guarded(self._released.popleft())

    def _handed(self) -> None:
        self._handing = False
        if self._released:  # one of them failed
            self._hand_over([])

    # How it goes.

    def status(self) -> dict[str, object]:
        """The groups and the clocks of the other nodes, as they are now."""
        now = self.node.wall_us()
        clocks: dict[str, object] = {}
        for name in self._seated:
            best = self._clocks.offsets.best(name, now)
            if best is not None:
                clocks[name] = {"offset_us": best.offset_us, "error_us": best.error_at(now)}
        return {
            "slot": self._slot,
            "groups": [_told(group) for group in self.groups],
            "clocks": clocks,
        }

    def _tell(self) -> None:
        payload = msgspec.json.encode(self.status())
        if payload != self._status:
            self._status = payload
            self.node.engine.publish(Message(STATUS_TOPIC, payload, retain=True, volatile=True))


def _label(name: str, slot: int) -> str:
    """A member by name and seat: two lives of a node are two members."""
    return f"{name}#{slot}"


def _told(group: Group) -> dict[str, object]:
    member = group.member
    told: dict[str, object] = {
        "filter": group.rule.filter,
        "lifetime_ms": group.rule.lifetime_us / 1000,
        "refused": sorted(group.refused),
    }
    if member is not None:
        statistics = member.statistics
        told |= {
            "margin_ms": member.state.margin_us / 1000,
            "waiting": member.waiting,
            "sent": statistics.sent,
            "control_bytes": statistics.control_bytes,
            "delivered": statistics.delivered,
            "waited": statistics.waited,
            "waited_ms": statistics.waited_us // 1000,
            "dropped": {reason.name.lower(): count for reason, count in statistics.dropped.items() if count},
        }
    return told
