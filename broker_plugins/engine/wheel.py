"""Deadlines of connections, looked at only when they may have passed.

A connection stands in the slot of the tick at which it would be overdue if it stayed silent. When that tick comes, one
that was heard of meanwhile moves to its new slot. So a message costs a connection one assignment, not a timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_plugins.engine.link import Link

TICK_S: Final = 0.5


class Wheel:
    """Slots of connections by the tick at which to look at them."""

    __slots__ = ("_slots", "now")

    def __init__(self) -> None:
        self.now = 0
        """The current tick."""
        self._slots: dict[int, set[Link]] = {}

    def watch(self, connection: Link, ticks: int) -> None:
        """Look at a connection in so many ticks, and not before."""
        self.forget(connection)
        connection.slot = self.now + max(1, ticks)
        self._slots.setdefault(connection.slot, set()).add(connection)

    def forget(self, connection: Link) -> None:
        """A connection is over, or has another deadline."""
        slot = self._slots.get(connection.slot)
        if slot is not None:
            slot.discard(connection)
            if not slot:
                del self._slots[connection.slot]

    def turn(self) -> None:
        """One tick has passed."""
        self.now += 1
        for connection in self._slots.pop(self.now, ()):
            left = connection.ticks_left(self.now)
            if left > 0:
                self.watch(connection, left)
            else:
                connection.overdue()


def ticks_of(seconds: float) -> int:
    """How many ticks from now cover a time, whatever is left of the tick that has begun; 0 for no time at all."""
    return int(-(-seconds // TICK_S)) + 1 if seconds else 0
