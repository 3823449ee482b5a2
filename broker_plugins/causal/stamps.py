"""Hybrid stamps: a node's clock, pushed ahead just enough that a stamp always exceeds every stamp it could know of.

A message is identified by one integer, its stamp shifted over its sender's slot. Sorted, such identifiers are in stamp
order, and the identifiers of one sender in the order of sending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOT_BITS = 16
SLOT_MASK = (1 << SLOT_BITS) - 1
WIDEST_SLOT = 0x7FFE  # one bit marks the end of a set on the wire, and the highest value an empty set


class HybridClock:
    """Stamps in microseconds that strictly increase along every causal path.

    Two clocks may read the same, or a receiver's may be behind its sender's; a stamp is therefore the clock's reading
    or one more than the last stamp sent or delivered here, whichever is larger.

    Args:
        resume_after: the last stamp used before a restart, where it is known.
        grain_us: the clock is rounded down to this; stamps that are whole grains take fewer bytes.
    """

    __slots__ = ("_grain", "_last")

    def __init__(self, resume_after: int = 0, grain_us: int = 1) -> None:
        self._last = resume_after
        self._grain = grain_us

    @property
    def last(self) -> int:
        """The largest stamp sent or delivered so far."""
        return self._last

    def tick(self, now: int) -> int:
        """The stamp of a message sent at `now`."""
        last = self._last + 1
        self._last = last = max(now - now % self._grain, last)
        return last

    def witness(self, stamp: int) -> None:
        """Take note of a delivered message's stamp."""
        self._last = max(self._last, stamp)


def message_id(slot: int, stamp: int) -> int:
    """The one integer that identifies the message which the node in `slot` sent at `stamp`."""
    return stamp << SLOT_BITS | slot


def split_message_id(identifier: int) -> tuple[int, int]:
    """The slot of the sender and the stamp."""
    return identifier & SLOT_MASK, identifier >> SLOT_BITS


def slots_in(mask: int) -> Iterator[int]:
    """The slots whose bits are set in `mask`, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
