"""Control information as bytes: small, and quick to read in Python.

The part all destinations share is encoded once; each destination's conditions are appended to it. Columns instead of
records, so that whole columns are packed and unpacked by one call:

    flags 1 | stamp 8 | entries 2 | sender | [lifetime 4] | destinations
    senders | distances | sets          one of each for an entry
    conditions | [shortened lifetimes]  for this destination alone

Where stamps are whole grains, entries are named as in `wire_coarse`, in two bytes or less; the flag COARSE says so.
Otherwise entries stand newest first and each gives its distance from the one before (the first from the message itself)
in two bytes; 0xFFFF says that the distance follows in four. A set is a run of slots, the last one marked by its high
bit; slots take one byte, or two as soon as one exceeds 126. A condition names an entry of the shared part by its place,
or, where the shared part has no use for the entry any more, gives sender and time itself.
"""

from __future__ import annotations

import re
import struct
from itertools import accumulate, chain

from broker_plugins.causal.core import Control
from broker_plugins.causal.stamps import SLOT_BITS, SLOT_MASK, slots_in
from broker_plugins.causal.wire_coarse import by_sender, grain_of, pack, unpack, worth_it

VERSION = 0x10
WIDE, OWN_LIFETIME, SHORTENED, COARSE = 1, 2, 4, 8
NARROWEST_LIMIT = 126
ESCAPE = 0xFFFF

_HEAD = struct.Struct("<BQH")
_COUNTS = {False: struct.Struct("<BB"), True: struct.Struct("<HH")}
_LIFE = struct.Struct("<I")
_RUNS = {False: re.compile(rb"[\x00-\x7f]*[\x80-\xff]"), True: re.compile(rb"(?s:[\x00-\x7f].)*(?s:[\x80-\xff].)")}
_CACHE_LIMIT = 65_536


class ControlFormatError(ValueError):
    """Bytes that are not the control information of a message."""


class _SetCodec:
    """Sets of slots to bytes and back, with the answers kept: the same few sets come again and again."""

    __slots__ = ("_from_bytes", "_to_bytes", "_wide")

    def __init__(self, wide: bool) -> None:
        self._wide = wide
        self._to_bytes: dict[int, bytes] = {}
        self._from_bytes: dict[bytes, int] = {}

    def encode(self, mask: int) -> bytes:
        run = self._to_bytes.get(mask)
        return self._encode_new(mask) if run is None else run

    def _encode_new(self, mask: int) -> bytes:
        slots = list(slots_in(mask)) or [0x7FFF if self._wide else 0x7F]
        size, last = (2, 0x8000) if self._wide else (1, 0x80)
        slots[-1] |= last
        run = b"".join(slot.to_bytes(size, "big") for slot in slots)
        if len(self._to_bytes) >= _CACHE_LIMIT:
            self._to_bytes.clear()
        self._to_bytes[mask] = run
        return run

    def decode(self, run: bytes) -> int:
        mask = self._from_bytes.get(run)
        return self._decode_new(run) if mask is None else mask

    def _decode_new(self, run: bytes) -> int:
        size, low, empty = (2, 0x7FFF, 0x7FFF) if self._wide else (1, 0x7F, 0x7F)
        mask = 0
        for place in range(0, len(run), size):
            slot = int.from_bytes(run[place : place + size], "big") & low
            if slot != empty:
                mask |= 1 << slot
        if len(self._from_bytes) >= _CACHE_LIMIT:
            self._from_bytes.clear()
        self._from_bytes[run] = mask
        return mask


_SETS = {False: _SetCodec(wide=False), True: _SetCodec(wide=True)}


class Envelope:
    """Encodes one message's control information, the shared part only once.

    Args:
        control: what `CausalState.send` made.
        group_lifetime_us: the lifetime that is not worth mentioning, being that of every message of the group.
    """

    __slots__ = ("_control", "_grain", "_order", "_shared", "_wide")

    def __init__(self, control: Control, group_lifetime_us: int) -> None:
        self._control = control
        entries = control.entries
        grain = grain_of(group_lifetime_us)
        coarse = worth_it([*entries, *chain.from_iterable(control.conditions.values())], grain)
        order = by_sender(list(entries)) if coarse else sorted(entries, reverse=True)
        every = control.destinations | 1 << control.sender
        for mask in entries.values():
            every |= mask
        senders = [identifier & SLOT_MASK for identifier in order]
        highest = max(every.bit_length() - 1, max(senders, default=0))
        most = 0
        for conditions in control.conditions.values():
            most = max(most, len(conditions))
            for identifier in conditions:
                highest = max(highest, identifier & SLOT_MASK)
        wide = highest > NARROWEST_LIMIT or most > 0xFF
        if len(order) > 0xFFFF or most > 0xFFFF:
            raise ControlFormatError(f"{len(order)} entries and {most} conditions; at most 65,535 of each are carried")
        sets = _SETS[wide]
        flags = VERSION | (WIDE if wide else 0)
        if coarse:
            flags |= COARSE
        own_life = control.lifetime_us != group_lifetime_us
        if own_life:
            flags |= OWN_LIFETIME
        if control.shortened:
            flags |= SHORTENED
        parts = [_HEAD.pack(flags, control.stamp, len(order)), _pack_slots([control.sender], wide)]
        if own_life:
            parts.append(_LIFE.pack(control.lifetime_us))
        parts.append(sets.encode(control.destinations))
        if order:
            encode = sets.encode
            if coarse:
                parts.append(pack(control.stamp, order, grain, wide))
            else:
                parts += (_pack_slots(senders, wide), _pack_stamps(control.stamp, [i >> SLOT_BITS for i in order]))
            parts.append(b"".join([encode(entries[identifier]) for identifier in order]))
        self._shared = b"".join(parts)
        self._order = order
        self._wide = wide
        self._grain = grain if coarse else 0

    def for_slot(self, slot: int) -> bytes:
        """The control information as the node in `slot` gets it."""
        control = self._control
        conditions = control.conditions.get(slot, ())
        if not conditions and not control.shortened:
            return self._shared + bytes(_COUNTS[self._wide].size)
        order = self._order
        entries = control.entries
        here = [identifier for identifier in conditions if identifier in entries]
        apart = sorted((identifier for identifier in conditions if identifier not in entries), reverse=True)
        tail = [_COUNTS[self._wide].pack(len(here), len(apart))]
        if here:
            place = {identifier: index for index, identifier in enumerate(order)}
            places = [place[identifier] for identifier in here]
            tail.append(_pack_places(places, len(order)))
        if apart and self._grain:
            apart = by_sender(apart)
            tail.append(pack(control.stamp, apart, self._grain, self._wide))
        elif apart:
            tail.append(_pack_slots([identifier & SLOT_MASK for identifier in apart], self._wide))
            tail.append(_pack_stamps(control.stamp, [identifier >> SLOT_BITS for identifier in apart]))
        if control.shortened:
            # Lifetimes are listed by place: the entries first, then the conditions given apart.
            index = {identifier: at for at, identifier in enumerate([*order, *apart])}
            lives = [(index[i], life) for i, life in control.shortened.items() if i in index]
            tail.append(struct.pack(f"<H{'HI' * len(lives)}", len(lives), *(value for pair in lives for value in pair)))
        return self._shared + b"".join(tail)


def decode(data: bytes, slot: int, group_lifetime_us: int) -> Control:
    """Read what `Envelope.for_slot` wrote for this slot.

    Raises:
        ControlFormatError: the bytes are cut short, too long or of another version.
    """
    try:
        control, end = _decode(data, slot, group_lifetime_us)
    except (struct.error, IndexError) as error:
        raise ControlFormatError(
            f"{len(data)} bytes of control information are cut short or garbled: {error}"
        ) from error
    if end != len(data):
        raise ControlFormatError(f"{len(data) - end} bytes are left over behind the control information")
    return control


def _decode(data: bytes, slot: int, group_lifetime_us: int) -> tuple[Control, int]:
    flags, stamp, count = _HEAD.unpack_from(data)
    if flags & 0xF0 != VERSION:
        raise ControlFormatError(f"control information starts with {flags:#04x}; version {VERSION >> 4} is understood")
    wide = bool(flags & WIDE)
    sets = _SETS[wide]
    runs = _RUNS[wide]
    at = _HEAD.size
    (sender,), at = _unpack_slots(data, at, 1, wide)
    life = group_lifetime_us
    if flags & OWN_LIFETIME:
        (life,) = _LIFE.unpack_from(data, at)
        at += 4
    run = runs.match(data, at)
    if run is None:
        raise ControlFormatError("the set of destinations has no end")
    at = run.end()
    control = Control(sender, stamp, sets.decode(run.group()), life)
    order: list[int] = []
    grain = grain_of(group_lifetime_us) if flags & COARSE else 0
    if count:
        order, at = _unpack_messages(data, at, count, stamp, grain, wide)
        decode_set = sets.decode
        # The sets run to an unknown end, so they are taken one by one from where the stamps stop.
        found = _take_runs(data, at, count, wide)
        at += sum(map(len, found))
        control.entries = dict(zip(order, map(decode_set, found), strict=True))
    here, apart = _COUNTS[wide].unpack_from(data, at)
    at += _COUNTS[wide].size
    conditions: list[int] = []
    if here:
        places, at = _unpack_places(data, at, here, count)
        conditions = [order[place] for place in places]
    if apart:
        more, at = _unpack_messages(data, at, apart, stamp, grain, wide)
        conditions += more
        order += more
    if conditions:
        control.conditions = {slot: conditions}
    if flags & SHORTENED:
        (lives,) = struct.unpack_from("<H", data, at)
        values = struct.unpack_from("<" + "HI" * lives, data, at + 2)
        at += 2 + 6 * lives
        control.shortened = {order[values[i]]: values[i + 1] for i in range(0, 2 * lives, 2)}
    return control, at


def _unpack_messages(data: bytes, at: int, count: int, stamp: int, grain: int, wide: bool) -> tuple[list[int], int]:
    if grain:
        return unpack(data, at, count, stamp, grain, wide)
    senders, at = _unpack_slots(data, at, count, wide)
    stamps, at = _unpack_stamps(data, at, count, stamp)
    return [when << SLOT_BITS | who for when, who in zip(stamps, senders, strict=True)], at


def _take_runs(data: bytes, at: int, count: int, wide: bool) -> list[bytes]:
    runs = _RUNS[wide].findall(data, at)[:count]
    if len(runs) != count:
        raise ControlFormatError(f"{count} sets were announced, {len(runs)} are there")
    return runs


def _pack_slots(slots: list[int], wide: bool) -> bytes:
    return struct.pack(f"<{len(slots)}H", *slots) if wide else bytes(slots)


def _unpack_slots(data: bytes, at: int, count: int, wide: bool) -> tuple[tuple[int, ...] | bytes, int]:
    if wide:
        return struct.unpack_from(f"<{count}H", data, at), at + 2 * count
    slots = data[at : at + count]
    if len(slots) != count:
        raise ControlFormatError(f"{count} slots were announced, {len(slots)} are there")
    return slots, at + count


def _pack_places(places: list[int], entries: int) -> bytes:
    return bytes(places) if entries <= 0x100 else struct.pack(f"<{len(places)}H", *places)


def _unpack_places(data: bytes, at: int, count: int, entries: int) -> tuple[tuple[int, ...] | bytes, int]:
    return _unpack_slots(data, at, count, wide=entries > 0x100)


def _pack_stamps(start: int, stamps: list[int]) -> bytes:
    gaps = [before - stamp for before, stamp in zip([start, *stamps], stamps, strict=False)]
    if max(gaps) < ESCAPE:
        return struct.pack(f"<{len(gaps)}H", *gaps)
    long = [gap for gap in gaps if gap >= ESCAPE]
    return struct.pack(f"<{len(gaps)}H{len(long)}I", *(min(gap, ESCAPE) for gap in gaps), *long)


def _unpack_stamps(data: bytes, at: int, count: int, start: int) -> tuple[list[int], int]:
    gaps: tuple[int, ...] | list[int] = struct.unpack_from(f"<{count}H", data, at)
    at += 2 * count
    if ESCAPE in gaps:
        escaped = gaps.count(ESCAPE)
        long = iter(struct.unpack_from(f"<{escaped}I", data, at))
        at += 4 * escaped
        gaps = [next(long) if gap == ESCAPE else gap for gap in gaps]
    return [start - distance for distance in accumulate(gaps)], at
