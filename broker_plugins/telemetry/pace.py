"""How large a share of events can be recorded without recording too many."""

from __future__ import annotations

from typing import Final

PACE_S: Final = 0.1
"""Time between two looks at how many events there are."""


class Pace:
    """The share of events to record, from how many there lately were.

    What is decided depends on past events only, so the weight of every record is right whatever comes.

    Args:
        most_per_s: how many events may be recorded in a second; 0 for any number.
    """

    __slots__ = ("_events", "_left", "_most_per_s", "share")

    def __init__(self, most_per_s: float) -> None:
        self._most_per_s = most_per_s
        self._events = 0
        self._left = most_per_s * PACE_S
        self.share = 1.0

    def seen(self, events: int, elapsed_s: float) -> float:
        """So many events there were in all, some of them since so long: the share from now on."""
        new, self._events = events - self._events, events
        most = self._most_per_s * elapsed_s
        self._left = self._most_per_s * PACE_S
        self.share = most / new if self._most_per_s and new > most else 1.0
        return self.share

    def recorded(self, count: int) -> bool:
        """So many events were recorded; True if the share is smaller now, since a burst would not wait for `seen`."""
        self._left -= count
        if self._left >= 0 or not self._most_per_s:
            return False
        self.share /= 2
        self._left = 0
        return True


def in_share(number: int, share: float) -> bool:
    """Whether a message is in a share of all messages: the same for all that is recorded of it."""
    return number * 0x9E3779B97F4A7C15 % (1 << 64) < share * (1 << 64)
