"""Who takes part: short names of nodes, and the small numbers that stand for them on the wire.

Every node of a group must use the same slot for the same name; the cluster's directory hands them out. A slot that has
been given up is not given to another node before whatever still mentions it has expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_plugins.causal.stamps import WIDEST_SLOT, slots_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class RosterError(ValueError):
    """A name or slot that the roster does not know, or that is taken."""


class Roster:
    """Names and slots of the nodes in a causal group.

    Args:
        names: the first members, in slots 0, 1, 2 and so on.
        quarantine_us: how long a slot stays empty after its node has left; at least the lifetime plus the skew margin.
    """

    __slots__ = ("_former", "_left", "_names", "_quarantine_us", "_slots")

    def __init__(self, names: Iterable[str] = (), quarantine_us: int = 60_000_000) -> None:
        self._names: dict[int, str] = {}
        self._slots: dict[str, int] = {}
        self._left: dict[int, int] = {}
        self._former: dict[int, str] = {}
        self._quarantine_us = quarantine_us
        for slot, name in enumerate(names):
            self.join(name, slot)

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[str]:
        return iter(self._slots)

    def __contains__(self, name: object) -> bool:
        return name in self._slots

    def join(self, name: str, slot: int) -> None:
        """Seat a node in a slot; seating it again in the same one changes nothing."""
        if not 0 <= slot <= WIDEST_SLOT:
            raise RosterError(f"slot {slot} for {name!r} is outside 0..{WIDEST_SLOT}")
        if self._names.get(slot, name) != name:
            raise RosterError(f"slot {slot} belongs to {self._names[slot]!r}; seat {name!r} in a free slot")
        if self._slots.get(name, slot) != slot:
            raise RosterError(f"{name!r} sits in slot {self._slots[name]} already; let it leave before slot {slot}")
        self._names[slot] = name
        self._slots[name] = slot
        self._left.pop(slot, None)
        self._former.pop(slot, None)

    def leave(self, name: str, now: int) -> int:
        """Take a node off the roster; its slot is returned and rests for the quarantine."""
        slot = self.slot(name)
        del self._slots[name]
        del self._names[slot]
        self._left[slot] = now
        self._former[slot] = name
        return slot

    def free_slot(self, now: int) -> int:
        """The lowest slot that is neither taken nor resting."""
        for slot in range(WIDEST_SLOT + 1):
            left = self._left.get(slot)
            if slot not in self._names and (left is None or left + self._quarantine_us < now):
                return slot
        raise RosterError(f"all {WIDEST_SLOT + 1} slots are taken or resting; wait for the quarantine to pass")

    def slot(self, name: str) -> int:
        """The slot of a member."""
        try:
            return self._slots[name]
        except KeyError:
            raise RosterError(f"{name!r} is not a member; join it first") from None

    def name(self, slot: int) -> str:
        """The member in a slot."""
        try:
            return self._names[slot]
        except KeyError:
            raise RosterError(f"no member sits in slot {slot}; is the roster of this node up to date?") from None

    def label(self, slot: int) -> str:
        """The member in a slot, or who sat there last, or the slot's number: a name to show, whatever happened."""
        return self._names.get(slot) or self._former.get(slot) or f"#{slot}"

    def knows_slot(self, slot: int) -> bool:
        """Whether a member sits in this slot."""
        return slot in self._names

    def mask(self, names: Iterable[str]) -> int:
        """A set of members as bits."""
        bits = 0
        for name in names:
            bits |= 1 << self.slot(name)
        return bits

    def names(self, mask: int) -> list[str]:
        """The members whose bits are set, in the order of their slots; slots that were given up are passed over."""
        return [self._names[slot] for slot in slots_in(mask) if slot in self._names]
