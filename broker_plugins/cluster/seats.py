"""Seats: which small number stands for which node in the control information of causal groups.

One value of the directory has them all, changed by compare-and-set. A node takes a seat once in its life: one that was
restarted has forgotten what it sent, so it comes back under another number, and its old one rests until nothing
mentions it any more.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker_plugins.causal import RosterError
from broker_plugins.causal.stamps import WIDEST_SLOT

REST_S: Final = 900.0
"""How long a seat rests: longer than the longest lifetime and any difference of clocks that is let pass."""


class Seat(msgspec.Struct, frozen=True):
    """A node in a seat.

    Args:
        node: its name.
        incarnation: the life of the node it was taken in.
        groups: a digest of the causal groups it is configured with.
    """

    node: str
    incarnation: int
    groups: str


class Seats(msgspec.Struct):
    """All seats."""

    taken: dict[int, Seat] = {}
    resting: dict[int, float] = {}
    """Since when, in seconds since 1970 by the clock of whoever freed it."""

    def slot_of(self, node: str) -> int | None:
        """The slot in which a node sits."""
        return next((slot for slot, seat in self.taken.items() if seat.node == node), None)


def read(value: bytes | None) -> Seats:
    """The seats in a value of the directory.

    Raises:
        msgspec.MsgspecError: it is something else.
    """
    return Seats() if not value else msgspec.json.decode(value, type=Seats)


def claim(value: bytes | None, seat: Seat, now: float, held: int | None = None) -> bytes | None:
    """The value with a seat for this life of a node; None if it has one already.

    Args:
        value: what the directory has.
        seat: who is to sit.
        now: the time, in seconds since 1970.
        held: the slot in which this life of the node sits, though the directory may have forgotten it.

    Raises:
        RosterError: all seats are taken or resting.
    """
    seats = read(value)
    slot = seats.slot_of(seat.node)
    if slot is not None:
        if seats.taken[slot] == seat:
            return None
        del seats.taken[slot]
        seats.resting[slot] = now
    # A clock that was far ahead must not make a seat rest for ever.
    seats.resting = {each: min(since, now) for each, since in seats.resting.items() if since + REST_S > now}
    slots = range(WIDEST_SLOT + 1) if held is None else (held, *range(WIDEST_SLOT + 1))
    free = next((each for each in slots if each not in seats.taken and each not in seats.resting), None)
    if free is None:
        raise RosterError(f"all {WIDEST_SLOT + 1} seats of causal groups are taken or resting: remove dead nodes")
    seats.taken[free] = seat
    return msgspec.json.encode(seats)


def release(value: bytes | None, node: str, now: float) -> bytes | None:
    """The value without the seat of a node that is not expected back; None if it has none."""
    seats = read(value)
    slot = seats.slot_of(node)
    if slot is None:
        return None
    del seats.taken[slot]
    seats.resting[slot] = now
    return msgspec.json.encode(seats)
