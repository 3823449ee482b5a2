"""An oracle that remembers every message's whole causal past, and so knows when each may be delivered.

It shares nothing with the algorithm it judges: the past of a message is a set of bits, one for each message of the
world, and a message may be delivered at a node as soon as everything in its past that was addressed to this node has
been delivered there or has outlived its lifetime by this node's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = -1
NEVER = 1 << 62


@dataclass(slots=True)
class Sent:
    """A message as the oracle sees it; `past` holds the bits of everything that happened before it."""

    stamp: int
    deadline: int
    sender: int
    past: int


class HistoryOracle:
    """The right decisions for a world of `nodes` nodes, given what really happened in it.

    Args:
        nodes: how many there are.
        grace_us: how far behind its deadline a message may still be delivered when a node acts late.
    """

    def __init__(self, nodes: int, grace_us: int) -> None:
        self._grace_us = grace_us
        self._base = 0
        self._messages: list[Sent] = []
        self._past = [0] * nodes
        self._addressed = [0] * nodes
        self._delivered = [0] * nodes
        self._covered = [0] * nodes
        self._over = [0] * nodes
        # What waits where, with the time of its release once that was worked out; a delivery makes it unknown again.
        self._waiting: list[dict[int, int]] = [{} for _ in range(nodes)]
        self._now = [0] * nodes
        self._due = [NEVER] * nodes  # before this, nothing happens at a node unless something arrives

    def send(self, node: int, stamp: int, deadline: int, destinations: list[int]) -> int:
        """Record a message; its number is returned."""
        place = len(self._messages)
        self._messages.append(Sent(stamp, deadline, node, self._past[node]))
        bit = 1 << place
        self._past[node] |= bit
        for destination in destinations:
            self._addressed[destination] |= bit
        return place + self._base

    def arrive(self, node: int, number: int, now: int) -> list[int]:
        """A message reaches a node; what this lets the node deliver, in order."""
        delivered = self.advance(node, now)
        place = number - self._base
        if place < 0:
            return delivered  # forgotten, so long expired
        bit = 1 << place
        if self._messages[place].deadline < now or self._delivered[node] & bit or place in self._waiting[node]:
            return delivered
        self._waiting[node][place] = UNKNOWN
        self._due[node] = min(self._due[node], self._released(node, place), self._messages[place].deadline + 1)
        return delivered + self.advance(node, now)

    def lose(self, node: int, number: int) -> None:
        """A message was thrown away at a node that had no room for it."""
        self._waiting[node].pop(number - self._base, None)

    def advance(self, node: int, now: int) -> list[int]:
        """What a node delivers until `now`, acting at the right moments."""
        if now < self._due[node]:
            self._now[node] = now
            return []
        waiting = self._waiting[node]
        out: list[int] = []
        start = self._now[node]
        self._due[node] = NEVER
        while waiting:
            # The earliest thing to happen: a release, or the end of a waiting message's own lifetime.
            what = min(
                (min(max(start, release), message.deadline + 1), message.stamp, message.sender, release, place)
                for place in waiting
                for message in (self._messages[place],)
                for release in (self._released(node, place),)
            )
            when, _, _, release, place = what
            if when > now:
                self._due[node] = when
                break
            del waiting[place]
            message = self._messages[place]
            if release <= message.deadline and message.deadline + self._grace_us >= now:
                self._delivered[node] |= 1 << place
                self._past[node] |= message.past | 1 << place
                out.append(place + self._base)
                for other in waiting:
                    if self._messages[other].past >> place & 1:
                        waiting[other] = UNKNOWN
            start = when
        self._now[node] = now
        return out

    def _released(self, node: int, place: int) -> int:
        """When everything that must come before has come or can no longer come."""
        release = self._waiting[node][place]
        if release != UNKNOWN:
            return release
        release = 0
        blockers = self._messages[place].past & self._addressed[node] & ~self._delivered[node] & ~self._over[node]
        while blockers:
            lowest = blockers & -blockers
            blockers ^= lowest
            deadline = self._messages[lowest.bit_length() - 1].deadline
            if deadline < self._now[node]:
                self._over[node] |= lowest
            elif deadline >= release:
                release = deadline + 1
        self._waiting[node][place] = release
        return release

    def follow(self, node: int, number: int) -> None:
        """Take a delivery as it was made, right or wrong."""
        place = number - self._base
        if place >= 0:
            self._delivered[node] |= 1 << place
            self._past[node] |= self._messages[place].past | 1 << place

    def violates(self, node: int, number: int) -> bool:
        """Whether a delivery comes after that of a message which it had to precede; to be asked of each, in order."""
        place = number - self._base
        if place < 0:
            return True
        broken = bool(self._covered[node] >> place & 1)
        self._covered[node] |= self._messages[place].past
        return broken

    def forget(self, before: int) -> None:
        """Drop what expired before this time on every clock of the world, to keep the bit sets short."""
        gone = 0
        for message in self._messages:
            if message.deadline >= before:
                break
            gone += 1
        for waiting in self._waiting:
            gone = min(gone, min(waiting, default=gone))
        if gone < 256:
            return
        self._base += gone
        self._messages = self._messages[gone:]
        for message in self._messages:
            message.past >>= gone
        for bits in (self._past, self._addressed, self._delivered, self._covered, self._over):
            bits[:] = [value >> gone for value in bits]
        self._waiting = [{place - gone: release for place, release in waiting.items()} for waiting in self._waiting]
