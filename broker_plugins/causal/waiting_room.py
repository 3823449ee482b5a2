"""Where messages wait for those that must come first, never longer than these can still come.

The room is bounded. When it is full, the waiting message with the highest stamp is dropped, which may be the one that
just came: nothing else in the room can be waiting for it, since stamps grow along every causal path. To all others it
is then as if the network had lost it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from broker_plugins.causal.stamps import SLOT_BITS, SLOT_MASK

if TYPE_CHECKING:
    from broker_plugins.causal.core import Control


class Waiter:
    """A message that has arrived in time but not in order."""

    __slots__ = ("arrived", "control", "deadline", "identifier", "payload", "pending")

    def __init__(self, control: Control, payload: Any, arrived: int, pending: dict[int, int]) -> None:
        self.control = control
        self.payload = payload
        self.arrived = arrived
        self.pending = pending
        self.identifier = control.identifier
        self.deadline = control.deadline

    @property
    def released_at(self) -> int:
        """When the last message it waits for can no longer come."""
        return max(self.pending.values()) + 1


class WaitingRoom:
    """Waiting messages by what they wait for and by when that is over.

    Args:
        limit: how many messages may wait at once.
    """

    __slots__ = ("_alarms", "_by_sender", "_newest", "_waiters", "limit")

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a waiting room for {limit} messages holds none; give it at least 1")
        self.limit = limit
        self._waiters: dict[int, Waiter] = {}
        self._by_sender: dict[int, set[int]] = {}
        self._alarms: list[tuple[int, int]] = []
        self._newest: list[int] = []

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._waiters

    def add(self, waiter: Waiter) -> Waiter | None:
        """Let a message wait; the one that had to go for it is returned, if the room was full."""
        evicted = None
        if len(self._waiters) >= self.limit:
            while -self._newest[0] not in self._waiters:
                heappop(self._newest)
            if waiter.identifier > -self._newest[0]:
                return waiter
            evicted = self.remove(-heappop(self._newest))
        identifier = waiter.identifier
        self._waiters[identifier] = waiter
        heappush(self._newest, -identifier)
        if len(self._newest) > 2 * self.limit:
            self._newest = [-present for present in self._waiters]
            heapify(self._newest)
        for awaited in waiter.pending:
            self._by_sender.setdefault(awaited & SLOT_MASK, set()).add(identifier)
        self._set_alarm(waiter)
        return evicted

    def remove(self, identifier: int) -> Waiter:
        """Take a message out."""
        waiter = self._waiters.pop(identifier)
        for awaited in waiter.pending:
            self._leave_sender(awaited & SLOT_MASK, identifier)
        return waiter

    def released_by(self, sender: int, stamp: int, now: int) -> list[Waiter]:
        """Take out those for whom the delivery of this message was the last thing they waited for."""
        concerned = self._by_sender.get(sender)
        if not concerned:
            return []
        free = []
        for identifier in list(concerned):
            waiter = self._waiters[identifier]
            pending = waiter.pending
            met = [i for i in pending if i & SLOT_MASK == sender and i >> SLOT_BITS <= stamp]
            if not met:
                continue
            for awaited in met:
                del pending[awaited]
            if all(awaited & SLOT_MASK != sender for awaited in pending):
                self._leave_sender(sender, identifier)
            if not pending or waiter.released_at <= now:
                free.append(self.remove(identifier))
            else:
                self._set_alarm(waiter)
        return free

    def next_alarm(self) -> int | None:
        """When `due` has something to do, if nothing arrives before."""
        alarms = self._alarms
        while alarms:
            when, identifier = alarms[0]
            waiter = self._waiters.get(identifier)
            if waiter is not None and self._alarm_of(waiter) == when:
                return when
            heappop(alarms)
        return None

    def due(self, now: int) -> tuple[int, list[Waiter], list[Waiter]] | None:
        """Take out what the earliest alarm up to `now` concerns.

        Returns:
            The time of the alarm, those released by it, and those that outlived their own lifetime while they waited
            for something longer-lived; None when no alarm is due.
        """
        when = self.next_alarm()
        if when is None or when > now:
            return None
        released: list[Waiter] = []
        outlived: list[Waiter] = []
        while self.next_alarm() == when:
            _, identifier = heappop(self._alarms)
            waiter = self._waiters[identifier]
            (released if waiter.released_at <= waiter.deadline else outlived).append(self.remove(identifier))
        return when, released, outlived

    def _set_alarm(self, waiter: Waiter) -> None:
        heappush(self._alarms, (self._alarm_of(waiter), waiter.identifier))

    @staticmethod
    def _alarm_of(waiter: Waiter) -> int:
        return min(waiter.released_at, waiter.deadline + 1)

    def _leave_sender(self, sender: int, identifier: int) -> None:
        waiting = self._by_sender.get(sender)
        if waiting is not None:
            waiting.discard(identifier)
            if not waiting:
                del self._by_sender[sender]
