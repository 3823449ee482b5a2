"""What a node knows of messages on their way, and the two steps that keep Δ-causal order: send and deliver.

A node remembers, for each message it has heard of, at which destinations the delivery is neither known nor implied by
that of a later message. What it sends carries this knowledge, and for each destination the messages that must come
first there. Everything a message's lifetime (and the margin for unequal clocks) has passed over is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_plugins.causal.stamps import SLOT_BITS, SLOT_MASK, HybridClock, slots_in

LONGEST_US = 1 << 32  # differences between stamps travel in 32 bits


@dataclass(slots=True)
class Control:
    """The control information of one message, as its sender made it.

    Args:
        sender: the slot of the sender.
        stamp: its hybrid stamp.
        destinations: the slots it goes to, as bits.
        lifetime_us: how long it is worth delivering, counted from the stamp.
        entries: message identifier to the destinations where its delivery is open, as bits.
        shortened: message identifier to lifetime, for entries and conditions that live shorter than the group's.
        conditions: for each destination slot, the messages that must be delivered or expired there first.
    """

    sender: int
    stamp: int
    destinations: int
    lifetime_us: int
    entries: dict[int, int] = field(default_factory=dict)
    shortened: dict[int, int] = field(default_factory=dict)
    conditions: dict[int, list[int]] = field(default_factory=dict)

    @property
    def identifier(self) -> int:
        """The message's identifier."""
        return self.stamp << SLOT_BITS | self.sender

    @property
    def deadline(self) -> int:
        """The last moment at which the message may be delivered."""
        return self.stamp + self.lifetime_us


class CausalState:
    """The knowledge of one node.

    Args:
        slot: the slot of this node.
        lifetime_us: Δ, how long a message of the group lives.
        skew_us: how far a clock of the group may be from the true time, at most.
        resume_after: the last stamp used before a restart, where it is known.
        grain_us: what stamps are rounded down to, for shorter control information.
    """

    __slots__ = (
        "_me",
        "_others",
        "clock",
        "delivered",
        "entries",
        "known",
        "lifetime_us",
        "margin_us",
        "shortened",
        "slot",
    )

    def __init__(self, slot: int, lifetime_us: int, skew_us: int, resume_after: int = 0, grain_us: int = 1) -> None:
        if lifetime_us <= 0 or skew_us < 0:
            raise ValueError(
                f"a lifetime of {lifetime_us} us and a skew of {skew_us} us: one must be > 0, the other >= 0"
            )
        if 2 * (lifetime_us + 2 * skew_us) >= LONGEST_US:
            raise ValueError(
                f"a lifetime of {lifetime_us} us with a skew of {skew_us} us does not fit; keep both under half an hour"
            )
        self.slot = slot
        self.lifetime_us = lifetime_us
        # Two clocks, each off by the skew in opposite directions, disagree by twice the skew.
        self.margin_us = 2 * skew_us
        self.clock = HybridClock(resume_after, grain_us)
        self.entries: dict[int, int] = {}
        self.shortened: dict[int, int] = {}
        self.delivered: dict[int, int] = {}
        self.known: dict[int, int] = {}
        self._me = 1 << slot
        self._others = ~self._me

    def send(self, now: int, destinations: int, lifetime_us: int | None = None) -> Control:
        """Stamp a message for the slots in `destinations` and say what must come before it.

        Args:
            now: this node's clock.
            destinations: slots as bits; this node's own bit is ignored, for a node has its own messages at once.
            lifetime_us: a lifetime shorter than the group's, if this message has one.
        """
        life = self.lifetime_us if lifetime_us is None else lifetime_us
        if not 0 < life <= self.lifetime_us:
            raise ValueError(f"a lifetime of {life} us is outside 1..{self.lifetime_us}, the lifetime of the group")
        destinations &= self._others
        stamp = self.clock.tick(now)
        self.expire(now)
        entries = self.entries
        conditions: dict[int, list[int]] = {}
        touched = [pair for pair in entries.items() if pair[1] & destinations]
        if touched:
            rest = ~destinations
            whole = life == self.lifetime_us
            for identifier, mask in touched:
                for slot in slots_in(mask & destinations):
                    waiting = conditions.get(slot)
                    if waiting is None:
                        conditions[slot] = [identifier]
                    else:
                        waiting.append(identifier)
                # A message implies an earlier one only if it does not expire before that one: whoever waits for the
                # later message alone must not go ahead while the earlier one may still come.
                if whole or self.expiry(identifier) <= stamp + life:
                    mask &= rest  # noqa: PLW2901 - the mask is what remains open
                    if mask:
                        entries[identifier] = mask
                    else:
                        del entries[identifier]
        shortened = self.shortened
        control = Control(self.slot, stamp, destinations, life, entries.copy(), shortened.copy(), conditions)
        if destinations:
            own = control.identifier
            entries[own] = destinations
            self.known[self.slot] = own
            if life != self.lifetime_us:
                shortened[own] = life
        return control

    def open_conditions(self, control: Control, now: int) -> dict[int, int]:
        """What a message that arrived here still has to wait for: message identifier to the end of its lifetime."""
        waiting = control.conditions.get(self.slot)
        if not waiting:
            return {}
        delivered = self.delivered
        shortened = control.shortened
        still: dict[int, int] = {}
        for identifier in waiting:
            stamp = identifier >> SLOT_BITS
            if stamp > delivered.get(identifier & SLOT_MASK, 0):
                expiry = stamp + (shortened.get(identifier, self.lifetime_us) if shortened else self.lifetime_us)
                if expiry >= now:
                    still[identifier] = expiry
        return still

    def deliver(self, now: int, control: Control) -> None:
        """Take over what a message delivered here says."""
        stamp, sender = control.stamp, control.sender
        self.clock.witness(stamp)
        if stamp > self.delivered.get(sender, 0):
            self.delivered[sender] = stamp
        theirs = control.entries
        shortened = control.shortened
        ours = self.entries
        others = self._others
        # The oldest that can still be alive anywhere; with stamps in the high bits, identifiers compare like stamps.
        oldest = (now - self.margin_us - self.lifetime_us) << SLOT_BITS
        # The delivered message is an entry like those it brought: open wherever else it goes.
        own = control.identifier
        newest_theirs = {identifier & SLOT_MASK: identifier for identifier in sorted(theirs)}
        newest_theirs[sender] = own
        known = self.known
        merged: dict[int, int] = {}
        for identifier, mask in ours.items():
            open_there = theirs.get(identifier)
            if open_there is not None:
                mask &= open_there  # noqa: PLW2901 - open is what both hold open
            elif identifier < newest_theirs.get(identifier & SLOT_MASK, 0):
                continue  # the other side knew it and has found it settled
            if mask and identifier >= oldest:
                merged[identifier] = mask
        for identifier, open_there in theirs.items():
            # What is not here although something later of its sender is known here has been settled here.
            if identifier > known.get(identifier & SLOT_MASK, 0) and identifier >= oldest:
                mask = open_there & others
                if mask:
                    merged[identifier] = mask
        open_elsewhere = control.destinations & others
        if open_elsewhere and own >= oldest and own > known.get(sender, 0):
            merged[own] = open_elsewhere
        for who, identifier in newest_theirs.items():
            if identifier > known.get(who, 0):
                known[who] = identifier
        if shortened or self.shortened or control.lifetime_us != self.lifetime_us:
            lives = {**self.shortened, **shortened}
            if control.lifetime_us != self.lifetime_us:
                lives[own] = control.lifetime_us
            self.shortened = {identifier: life for identifier, life in lives.items() if identifier in merged}
        self.entries = merged

    def expire(self, now: int) -> None:
        """Forget what no node can deliver any more."""
        horizon = now - self.margin_us
        oldest = (horizon - self.lifetime_us) << SLOT_BITS
        entries = self.entries
        dead = [identifier for identifier in entries if identifier < oldest]
        if self.shortened:
            dead += [
                identifier
                for identifier, life in self.shortened.items()
                if identifier >= oldest and (identifier >> SLOT_BITS) + life < horizon
            ]
        for identifier in dead:
            entries.pop(identifier, None)
            self.shortened.pop(identifier, None)
        if self.shortened:
            self.shortened = {identifier: life for identifier, life in self.shortened.items() if identifier in entries}

    def expiry(self, identifier: int) -> int:
        """The end of the lifetime of a message known here."""
        return (identifier >> SLOT_BITS) + self.shortened.get(identifier, self.lifetime_us)

    def forget_destination(self, slot: int) -> None:
        """Drop a node that has left from everything: nothing will be delivered there."""
        gone = ~(1 << slot)
        self.entries = {identifier: rest for identifier, mask in self.entries.items() if (rest := mask & gone)}
        self.shortened = {i: life for i, life in self.shortened.items() if i in self.entries}
