"""How large a share of events can be recorded without recording too many, and without it costing too much."""

from __future__ import annotations

from typing import Final

PACE_S: Final = 0.2
"""Time between two looks at how many events there are."""
SAVED_S: Final = 0.002
"""Processor time that may be saved up for a burst, or owed after one."""
SAVED_RECORDS_S: Final = 1.0
"""For how long records may be saved up for a burst."""
QUIET: Final = 0.15
"""Recording may cost as much as if a processor were busy to this share at least: a quiet broker records everything."""
FIRST_GUESS_S: Final = 6e-6
"""What a record is taken to cost until it was measured."""
LEAST_S: Final = 1e-7
"""A record costs this much at least."""
EARLY_S: Final = 0.005
"""Time between two looks where there is more to record than can be paid."""
LEAST_SHARE: Final = 1 / 5_000
"""Less is never recorded: what stands for more tells nothing of a burst, and so few cost little."""
SMALL_TURN: Final = 64
"""A turn of the event loop with up to so many events is never thinned."""
_LEARNING: Final = 0.2


class Pace:
    """The share of events to record, from how many there lately were and what it cost to record some.

    Two purses are filled as time goes by, one of records and one of processor time; what is recorded is paid from both.
    What is decided depends on how many events there are, never on which: so the weight of every record is right.

    Args:
        most_per_s: how many events may be recorded in a second; 0 for any number, whatever they cost.
        most_cost: which share of the broker's processor time that may take; 0 for any.
    """

    __slots__ = ("_cost_s", "_events", "_left", "_most_cost", "_most_per_s", "_purse", "_purse_s", "_recorded", "share")

    def __init__(self, most_per_s: float, most_cost: float = 0.0) -> None:
        self._most_per_s = most_per_s
        self._most_cost = most_cost if most_per_s else 0.0
        self._events = 0
        self._recorded = 0
        self._cost_s = FIRST_GUESS_S
        self._purse = most_per_s * SAVED_RECORDS_S
        self._purse_s = SAVED_S
        self._left = self._affordable()
        self.share = 1.0

    def seen(
        self,
        events: int,
        elapsed_s: float,
        busy_s: float = 0.0,
        spent_s: float = 0.0,
        written_s: float = 0.0,
        waited_s: float = 0.0,
    ) -> float:
        """So many events there were in all, some of them since the last look: the share from now on.

        Args:
            events: how many there were since the broker started.
            elapsed_s: time since the last look.
            busy_s: processor time the broker has used since then.
            spent_s: how much of that went into recording.
            written_s: what it cost to close segments, however many records were in them.
            waited_s: time in which the broker had something to do and got no processor.
        """
        new, self._events = events - self._events, events
        if not self._most_per_s:
            return self.share
        if self._recorded:
            self._cost_s = max(self._cost_s + _LEARNING * (spent_s / self._recorded - self._cost_s), LEAST_S)
        earned = self._most_per_s * elapsed_s
        saved = self._most_per_s * SAVED_RECORDS_S
        self._purse = max(min(self._purse - self._recorded, saved), -saved) + earned
        quiet_s = QUIET * max(elapsed_s - waited_s, 0.0)
        earned_s = max(self._most_cost * busy_s - written_s, self._most_cost * quiet_s)
        self._purse_s = max(min(self._purse_s - spent_s, SAVED_S), -SAVED_S) + earned_s
        self._recorded = 0
        lasting = min(earned, earned_s / self._cost_s) if self._most_cost else earned
        expected = max(new, 1) * PACE_S / elapsed_s
        # What was overspent is saved in time, but not at once.
        self._left = max(self._affordable(), lasting * PACE_S / elapsed_s / 2)
        self.share = min(1.0, max(self._left / expected, LEAST_SHARE))
        return self.share

    def _affordable(self) -> float:
        """How many records can be paid."""
        if not self._most_cost:
            return self._purse
        return min(self._purse, self._purse_s / self._cost_s)

    def recorded(self, count: int) -> bool:
        """So many events were recorded; True if that was more than can be paid: it is time for another look."""
        self._recorded += count
        return self._recorded > self._left and self._most_per_s > 0

    def thinned(self, count: int) -> float:
        """Which share of the events of one turn to record, if there are so many: all, unless they are too many."""
        if count <= SMALL_TURN or not self._most_per_s:
            return 1.0
        return min(1.0, max(self._left - self._recorded, SMALL_TURN) / count)


def in_share(number: int, share: float) -> bool:
    """Whether a message is in a share of all messages: the same for all that is recorded of it."""
    return number * 0x9E3779B97F4A7C15 % (1 << 64) < share * (1 << 64)
