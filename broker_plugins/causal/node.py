"""A member of a causal group: bytes and the time go in, deliveries and drops come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from broker_plugins.causal.core import CausalState, Control
from broker_plugins.causal.waiting_room import Waiter, WaitingRoom
from broker_plugins.causal.wire import Envelope, decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_plugins.causal.roster import Roster


class DropReason(Enum):
    """Why a message that arrived is not delivered."""

    LATE = "arrived after its lifetime"
    DUPLICATE = "arrived before"
    AHEAD = "stamped further in the future than clocks of the group may differ"
    OVERFLOW = "the waiting room was full"
    OUTLIVED = "its own lifetime ended while it waited for a longer-lived message"
    STALLED = "the host called too late"
    STRANGER = "from a node that is not a member"


@dataclass(slots=True, frozen=True)
class Delivery:
    """A message in order and in time.

    Args:
        sender: the name of the sender.
        stamp: the sender's stamp.
        payload: whatever came with it.
        waited_us: how long it waited for others after its arrival.
    """

    sender: str
    stamp: int
    payload: Any
    waited_us: int


@dataclass(slots=True, frozen=True)
class Drop:
    """A message that will not be delivered here, and why."""

    sender: str
    stamp: int
    payload: Any
    reason: DropReason


@dataclass(slots=True)
class Outcome:
    """What one call brought about, deliveries in the order in which they must be handed on."""

    deliveries: list[Delivery] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)


@dataclass(slots=True)
class Statistics:
    """Counts since the start."""

    sent: int = 0
    control_bytes: int = 0
    delivered: int = 0
    waited: int = 0
    waited_us: int = 0
    dropped: dict[DropReason, int] = field(default_factory=lambda: dict.fromkeys(DropReason, 0))


@dataclass(slots=True, frozen=True)
class Outgoing:
    """A stamped message: the same for all destinations but for the bytes each one gets."""

    stamp: int
    control: dict[str, bytes]


class CausalNode:
    """One node of a causal group; it has no clock, every call says what time it is here.

    Args:
        name: this node's name, a member of the roster.
        roster: the members and their slots, the same on every node.
        lifetime_us: Δ, how long a message is worth delivering; the same on every node.
        skew_us: how far any member's clock may be from the true time.
        room_limit: how many messages may wait at once.
        grace_us: how far behind its deadline a message may still be delivered when the host polls late.
        resume_after: the last stamp used before a restart, where it is known.
        grain_us: what stamps are rounded down to: with `grain_of(lifetime_us)` control information is shortest, and a
            message may live a hundredth less.
    """

    __slots__ = ("_ahead_us", "_grace_us", "_now", "_room", "name", "roster", "slot", "state", "statistics")

    def __init__(
        self,
        name: str,
        roster: Roster,
        *,
        lifetime_us: int,
        skew_us: int = 5_000,
        room_limit: int = 10_000,
        grace_us: int = 10_000,
        resume_after: int = 0,
        grain_us: int = 1,
    ) -> None:
        self.name = name
        self.roster = roster
        self.slot = roster.slot(name)
        self.state = CausalState(self.slot, lifetime_us, skew_us, resume_after, grain_us)
        self.statistics = Statistics()
        self._room = WaitingRoom(room_limit)
        self._grace_us = grace_us
        # Bursts push stamps ahead of the clock by a microsecond a message; a lifetime is room for a great many.
        self._ahead_us = 2 * skew_us + lifetime_us
        self._now = 0

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._room)

    def send(self, now: int, destinations: Iterable[str], lifetime_us: int | None = None) -> Outgoing:
        """Stamp a message and encode its control information for each destination but this node itself.

        Call `poll` first when a wake-up is due: what is delivered before a message is sent comes before it everywhere.
        """
        mask = self.roster.mask(destinations)
        control = self.state.send(self._at(now), mask, lifetime_us)
        envelope = Envelope(control, self.state.lifetime_us)
        roster = self.roster
        encoded = {name: envelope.for_slot(roster.slot(name)) for name in roster.names(control.destinations)}
        self.statistics.sent += 1
        self.statistics.control_bytes += sum(map(len, encoded.values()))
        return Outgoing(control.stamp, encoded)

    def receive(self, now: int, control: bytes | Control, payload: Any = None) -> Outcome:
        """Take in a message that has arrived, and hand out what can be delivered now.

        Raises:
            ControlFormatError: the control information cannot be read.
        """
        now = self._at(now)
        outcome = Outcome()
        if len(self._room):
            self._drain(now, outcome)
        if not isinstance(control, Control):
            control = decode(control, self.slot, self.state.lifetime_us)
        reason = self._refusal(control, now)
        if reason is not None:
            self._drop(control, payload, reason, outcome)
            return outcome
        pending = self.state.open_conditions(control, now)
        if pending:
            evicted = self._room.add(Waiter(control, payload, now, pending))
            if evicted is not None:
                self._drop(evicted.control, evicted.payload, DropReason.OVERFLOW, outcome)
        else:
            self._deliver(control, payload, now, now, outcome)
            if len(self._room):
                self._cascade(self._room.released_by(control.sender, control.stamp, now), now, now, outcome)
        return outcome

    def poll(self, now: int) -> Outcome:
        """Hand out what no longer has anything to wait for; to be called at `next_wakeup`, or soon after it."""
        outcome = Outcome()
        self._drain(self._at(now), outcome)
        return outcome

    def next_wakeup(self) -> int | None:
        """When `poll` has something to do, if nothing arrives before; None while nothing waits."""
        return self._room.next_alarm()

    def allow_skew(self, skew_us: int) -> None:
        """Change how far any member's clock may be from the true time: more, or less, has been measured."""
        self.state.margin_us = 2 * skew_us
        self._ahead_us = 2 * skew_us + self.state.lifetime_us

    def member_left(self, name: str, now: int) -> None:
        """Take a node off the roster and out of everything this node knows."""
        self.state.forget_destination(self.roster.leave(name, self._at(now)))

    def _at(self, now: int) -> int:
        # A clock set back must not bring expired messages to life again.
        self._now = now = max(now, self._now)
        return now

    def _refusal(self, control: Control, now: int) -> DropReason | None:
        if not self.roster.knows_slot(control.sender):
            return DropReason.STRANGER
        if control.deadline < now:
            return DropReason.LATE
        # What one sender sends here is delivered in its order, so nothing in time and undelivered can be older.
        if control.stamp <= self.state.delivered.get(control.sender, 0) or control.identifier in self._room:
            return DropReason.DUPLICATE
        if control.stamp > now + self._ahead_us:
            return DropReason.AHEAD
        return None

    def _drain(self, now: int, outcome: Outcome) -> None:
        # Alarms are worked off in the order of their times, each as if the host had called exactly then, so that a
        # host that calls late decides as a punctual one would.
        while (alarm := self._room.due(now)) is not None:
            when, released, outlived = alarm
            for waiter in outlived:
                self._drop(waiter.control, waiter.payload, DropReason.OUTLIVED, outcome)
            self._cascade(released, when, now, outcome)

    def _cascade(self, released: list[Waiter], when: int, now: int, outcome: Outcome) -> None:
        """Deliver what was released, and what that releases, in the order of stamps."""
        ready = [(waiter.identifier, waiter) for waiter in sorted(released, key=lambda waiter: waiter.identifier)]
        while ready:
            _, waiter = heappop(ready)
            control = waiter.control
            if waiter.deadline + self._grace_us < now:
                self._drop(control, waiter.payload, DropReason.STALLED, outcome)
                continue
            self._deliver(control, waiter.payload, waiter.arrived, when, outcome)
            for freed in self._room.released_by(control.sender, control.stamp, when):
                heappush(ready, (freed.identifier, freed))

    def _deliver(self, control: Control, payload: Any, arrived: int, when: int, outcome: Outcome) -> None:
        self.state.deliver(when, control)
        waited = when - arrived
        statistics = self.statistics
        statistics.delivered += 1
        if waited:
            statistics.waited += 1
            statistics.waited_us += waited
        outcome.deliveries.append(Delivery(self.roster.label(control.sender), control.stamp, payload, waited))

    def _drop(self, control: Control, payload: Any, reason: DropReason, outcome: Outcome) -> None:
        self.statistics.dropped[reason] += 1
        outcome.drops.append(Drop(self.roster.label(control.sender), control.stamp, payload, reason))
