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

from broker_plugins.causal import ControlFormatError, DropReason, decode, grain_of
from broker_plugins.cluster.causal_members import CausalMembers, label_of
from broker_plugins.cluster.causal_moves import CausalMoves
from broker_plugins.engine import Message
from broker_plugins.engine.topics import matches
from broker_plugins.engine.work import drive

if TYPE_CHECKING:
    from asyncio import Future, TimerHandle
    from collections.abc import Awaitable, Callable, Collection, Generator, Mapping

    from broker_plugins.causal import Outcome
    from broker_plugins.cluster.causal_members import Group
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.wire import Frame

log = logging.getLogger(__name__)

STATUS_TOPIC: Final = "$SYS/broker/locus/causal"
STATUS_BEATS: Final = 5
MAX_TOPICS: Final = 65_536


class CausalGroups(CausalMembers):
    """Stamps what is published here in a group, and holds what comes from other nodes until it is its turn.

    Args:
        node: this node.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._of: dict[str, Group | None] = {}
        self.moves = CausalMoves(self)
        self._timer: TimerHandle | None = None
        self._rings_at = 0
        self._released: deque[Message | Future[None]] = deque()
        self._handing = False
        self._waiting_bytes = 0
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

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """What time it is here, and what a client may have heard here."""
        return {**super().questions(), **self.moves.questions()}

    async def beat(self) -> None:
        """Look after the seats, and tell how it goes."""
        await super().beat()
        if self.groups and self.beats % STATUS_BEATS == 0:
            self._tell()

    # Out.

    def stamp(self, group: Group, message: Message, nodes: Collection[str]) -> dict[str, bytes]:
        """What a message published here carries to each of these nodes; nothing to those it goes to unordered."""
        member = group.member
        labels: dict[str, str] = {}
        if member is not None:
            for name in nodes:
                slot = self.slot_of(name, group)
                if slot is not None:
                    labels[label_of(name, slot)] = name
        counters = self.node.counters
        counters.causal_unordered += len(nodes) - len(labels)
        if member is None or not labels:
            return {}
        ttl = None if message.clauses is None else message.clauses.ttl
        now = self.node.steady_us()
        longest = group.rule.lifetime_us
        # It counts from the stamp, which is rounded down.
        life = None if ttl is None else max(1, min(round(ttl * 1e6) + now % grain_of(longest), longest))
        outgoing = member.send(now, labels, life)
        counters.causal_sent += len(outgoing.control)
        counters.causal_control_bytes += sum(map(len, outgoing.control.values()))
        return {labels[label]: control for label, control in outgoing.control.items()}

    def past(self, group: Group, name: str) -> bytes:
        """What must come before anything that was heard here is answered on another node; empty if nothing must."""
        slot, member = self.slot_of(name, group), group.member
        if slot is None or member is None or not any(mask >> slot & 1 for mask in member.state.entries.values()):
            return b""
        label = label_of(name, slot)
        return member.send(self.node.steady_us(), [label]).control[label]

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
            self.receive(group, frame.causal, message, origin)
        except ControlFormatError as error:
            self.node.counters.unreadable += 1
            log.warning("a message from node %s is left out: %s", origin, error)
        return False

    def receive(self, group: Group, data: bytes, what: Message | Future[None], origin: str) -> None:
        """Publish a message, or say that its time has come, when everything before it has been published.

        Raises:
            ControlFormatError: the control information cannot be read.
        """
        control = decode(data, self.slot or 0, group.rule.lifetime_us)
        now = self.node.steady_us()
        if self.slot is None or group.member is None or not control.destinations >> self.slot & 1:
            # It was sent to this node's life before: nobody waited here for what comes before it.
            self._dropped(what, DropReason.LATE if control.deadline < now else DropReason.STRANGER)
            return
        self.seat_sender(control.sender, origin)
        size = _size(what)
        if self._waiting_bytes + size > self.node.options.max_causal_waiting_bytes and (
            group.member.state.open_conditions(control, now)
        ):
            # To all others it is as if the network had lost it.
            self._dropped(what, DropReason.OVERFLOW)
            return
        self._waiting_bytes += size
        self._work_off(group.member.receive(now, control, what))
        self._set_timer()

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
        self._timer = self.node.engine.loop.call_later(max(0, at - self.node.steady_us()) / 1e6, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self.node.steady_us()
        for group in self.groups:
            if group.member is not None:
                self._work_off(group.member.poll(now))
        self._set_timer()

    def _work_off(self, outcome: Outcome) -> None:
        counters = self.node.counters
        for drop in outcome.drops:
            self._waiting_bytes -= _size(drop.payload)
            self._dropped(drop.payload, drop.reason)
        for delivery in outcome.deliveries:
            self._waiting_bytes -= _size(delivery.payload)
            if not isinstance(delivery.payload, Message):
                continue
            counters.causal_delivered += 1
            if delivery.waited_us:
                counters.causal_waited += 1
                counters.causal_waited_us += delivery.waited_us
                counters.causal_longest_wait_us = max(counters.causal_longest_wait_us, delivery.waited_us)
        if outcome.deliveries:
            self._hand_over([delivery.payload for delivery in outcome.deliveries])

    def _dropped(self, message: Message | Future[None], reason: DropReason) -> None:
        if not isinstance(message, Message):
            _tell(message)
            return
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

    def _hand_over(self, messages: list[Message | Future[None]]) -> None:
        """Publish messages here, in their order."""
        engine = self.node.engine
        if engine.guard is None:
            for message in messages:
                if isinstance(message, Message):
                    engine.publish(message)
                else:
                    _tell(message)
            return
        room = max(0, self.node.options.max_causal_waiting - len(self._released))
        self._released.extend(messages[:room])
        for message in messages[room:]:  # access control does not answer
            self._dropped(message, DropReason.OVERFLOW)
        if not self._handing:
            self._handing = True
            drive(engine.loop, self._publish_released(), self._handed)

    def _publish_released(self) -> Generator[Awaitable[Any] | None, Any, None]:
        while self._released:
            message = self._released.popleft()
            if isinstance(message, Message):
                yield from self.node.engine.publish_guarded(message)
            else:
                _tell(message)

    def _handed(self) -> None:
        self._handing = False
        if self._released:  # one of them failed
            self._hand_over([])

    # How it goes.

    def status(self) -> dict[str, object]:
        """The groups and the clocks of the other nodes, as they are now."""
        now = self.node.steady_us()
        clocks: dict[str, object] = {}
        for name in self.seated:
            best = self.clocks.offsets.best(name, now)
            if best is not None:
                clocks[name] = {"offset_us": best.offset_us, "error_us": best.error_at(now)}
        return {
            "slot": self.slot,
            "groups": [_told(group) for group in self.groups],
            "clocks": clocks,
        }

    def _tell(self) -> None:
        payload = msgspec.json.encode(self.status())
        if payload != self._status:
            self._status = payload
            self.node.engine.publish(Message(STATUS_TOPIC, payload, retain=True, volatile=True))


def _size(what: Message | Future[None]) -> int:
    return len(what.payload) + len(what.topic) if isinstance(what, Message) else 0


def _tell(waiting: Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


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
