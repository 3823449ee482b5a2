"""Messages named in few bytes: sender by sender, each message by its age in grains.

Stamps of a group that is sparing with bytes are readings of the clock rounded down to a grain, a hundredth of the
lifetime, and one more for each further message within a grain. So an age fits seven bits while a message lives:

    ages                       one for a message, newest first; the high bit marks the last one of a sender
    senders                    one for each such mark
    long ages                  four bytes, for each age of 127
    how many are odd | places | remainders      those that are not whole grains: place, and two bytes of remainder
"""

from __future__ import annotations

import struct
from typing import Final

from broker_plugins.causal.stamps import SLOT_BITS, SLOT_MASK

GRAINS: Final = 100
LAST, LONG = 0x80, 0x7F
_IDENTIFIER: Final = (1 << 96) - 1


def grain_of(lifetime_us: int) -> int:
    """The grain of stamps in a group whose messages live so long."""
    return max(1, lifetime_us // GRAINS)


def by_sender(identifiers: list[int]) -> list[int]:
    """In the order in which messages are named: by sender, newest first."""
    # One integer to sort by: the sender above everything an identifier may be, less the identifier.
    keyed = sorted([((identifier & SLOT_MASK) << 96) - identifier for identifier in identifiers])
    return [-key & _IDENTIFIER for key in keyed]


def worth_it(identifiers: list[int], grain: int) -> bool:
    """Whether hardly any of these messages is odd, and none is so odd that it cannot be named."""
    remainders = [(identifier >> SLOT_BITS) % grain for identifier in identifiers]
    odd = len(remainders) - remainders.count(0)
    return odd <= 0xFF and 4 * odd <= len(remainders) and max(remainders, default=0) <= 0xFFFF


def pack(stamp: int, ordered: list[int], grain: int, wide: bool) -> bytes:
    """Name messages that are in the order of `by_sender`, all older than the stamp."""
    newest = stamp // grain
    ages = bytearray()
    senders: list[int] = []
    long: list[int] = []
    odd: list[tuple[int, int]] = []
    before = -1
    for place, identifier in enumerate(ordered):
        sender = identifier & SLOT_MASK
        if sender != before:
            if ages:
                ages[-1] |= LAST
            senders.append(sender)
            before = sender
        ticks, rest = divmod(identifier >> SLOT_BITS, grain)
        age = newest - ticks
        if age >= LONG:
            long.append(age)
            age = LONG
        ages.append(age)
        if rest:
            odd.append((place, rest))
    if ages:
        ages[-1] |= LAST
    slots = struct.pack(f"<{len(senders)}H", *senders) if wide else bytes(senders)
    tail = struct.pack(f"<{len(long)}IB", *long, len(odd))
    if odd:
        width = "B" if len(ordered) <= 0x100 else "H"
        tail += struct.pack(f"<{len(odd)}{width}{len(odd)}H", *(place for place, _ in odd), *(rest for _, rest in odd))
    return bytes(ages) + slots + tail


def unpack(data: bytes, at: int, count: int, stamp: int, grain: int, wide: bool) -> tuple[list[int], int]:
    """The messages that `pack` named, and where they end.

    Raises:
        struct.error: the bytes are cut short.
        IndexError: they are garbled.
    """
    ages = data[at : at + count]
    if len(ages) != count or (count and not ages[-1] & LAST):
        raise IndexError(f"{count} ages were announced, {len(ages)} are there")
    at += count
    ends = sum([age >> 7 for age in ages])
    slots = struct.unpack_from(f"<{ends}{'H' if wide else 'B'}", data, at)
    at += ends << wide
    longs = ages.count(LONG) + ages.count(LONG | LAST)
    long = struct.unpack_from(f"<{longs}I", data, at)
    at += 4 * longs
    newest = stamp // grain
    which = after = 0
    named: list[int] = []
    for age in ages:
        low = age & LONG
        if low == LONG:
            low = long[after]
            after += 1
        named.append((newest - low) * grain << SLOT_BITS | slots[which])
        which += age >> 7
    odd = data[at]
    at += 1
    if odd:
        width = 1 if count <= 0x100 else 2
        places = struct.unpack_from(f"<{odd}{'B' if width == 1 else 'H'}", data, at)
        at += odd * width
        for place, rest in zip(places, struct.unpack_from(f"<{odd}H", data, at), strict=True):
            named[place] += rest << SLOT_BITS
        at += 2 * odd
    return named, at
