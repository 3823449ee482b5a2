"""The three algorithms paper 002 compares with; none of them knows lifetimes, so nothing may get lost.

Each packet knows its size twice: with every identifier and counter in four bytes, as papers count, and packed as
tightly as the Δ-causal wire format is (a byte for a process, two for a counter, sets as runs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Rival(Protocol):
    """One process of a causal multicast algorithm."""

    def send(self, destinations: list[int]) -> dict[int, Any]:
        """A packet for each destination."""

    def may_deliver(self, packet: Any) -> bool:
        """Whether everything that must come first has come."""

    def deliver(self, packet: Any) -> None:
        """Take over what the packet says."""


@dataclass(slots=True)
class MatrixPacket:
    """Raynal, Schiper and Toueg: how many messages each process has sent to each."""

    sender: int
    destinations: list[int]
    sent: list[list[int]]

    @property
    def plain_bytes(self) -> int:
        """Four bytes for each number."""
        return 4 * (1 + len(self.destinations) + len(self.sent) ** 2)

    @property
    def packed_bytes(self) -> int:
        """Two bytes for a counter."""
        return 1 + len(self.destinations) + 2 * len(self.sent) ** 2


class RaynalSchiperToueg:
    """The matrix algorithm (IPL 39, 1991), for multicasts."""

    def __init__(self, process: int, processes: int) -> None:
        self._me = process
        self._sent = [[0] * processes for _ in range(processes)]
        self._delivered = [0] * processes

    def send(self, destinations: list[int]) -> dict[int, MatrixPacket]:
        """The matrix as it was before this message travels with it."""
        packet = MatrixPacket(self._me, destinations, [row[:] for row in self._sent])
        for destination in destinations:
            self._sent[self._me][destination] += 1
        return dict.fromkeys(destinations, packet)

    def may_deliver(self, packet: MatrixPacket) -> bool:
        """Everything sent to this process before must have been delivered."""
        me = self._me
        return all(row[me] <= delivered for row, delivered in zip(packet.sent, self._delivered, strict=True))

    def deliver(self, packet: MatrixPacket) -> None:
        """Count, and take the larger of each pair of numbers."""
        self._delivered[packet.sender] += 1
        self._sent = [list(map(max, ours, theirs)) for ours, theirs in zip(self._sent, packet.sent, strict=True)]
        row = self._sent[packet.sender]
        for destination in packet.destinations:
            row[destination] = max(row[destination], packet.sent[packet.sender][destination] + 1)


@dataclass(slots=True)
class BarrierPacket:
    """Prakash, Raynal and Singhal: for each process, the messages that directly precede the next one to it."""

    sender: int
    count: int
    destinations: list[int]
    barriers: list[dict[int, int]]

    @property
    def plain_bytes(self) -> int:
        """Four bytes for each number."""
        return 4 * (2 + len(self.destinations) + 2 * sum(map(len, self.barriers)))

    @property
    def packed_bytes(self) -> int:
        """A length for each set, a byte and a counter for each pair in it."""
        return 3 + len(self.destinations) + len(self.barriers) + 3 * sum(map(len, self.barriers))


class PrakashRaynalSinghal:
    """Causal barriers (ICDCS 1996)."""

    def __init__(self, process: int, processes: int) -> None:
        self._me = process
        self._count = 0
        self._delivered = [0] * processes
        self._barriers: list[dict[int, int]] = [{} for _ in range(processes)]

    def send(self, destinations: list[int]) -> dict[int, BarrierPacket]:
        """All barriers travel; afterwards this message alone precedes the next to its destinations."""
        self._count += 1
        packet = BarrierPacket(self._me, self._count, destinations, [dict(barrier) for barrier in self._barriers])
        for destination in destinations:
            self._barriers[destination] = {self._me: self._count}
        return dict.fromkeys(destinations, packet)

    def may_deliver(self, packet: BarrierPacket) -> bool:
        """What the barrier for this process names must have been delivered."""
        delivered = self._delivered
        return all(delivered[process] >= count for process, count in packet.barriers[self._me].items())

    def deliver(self, packet: BarrierPacket) -> None:
        """Barriers of destinations shrink to this message and what does not precede it; the others are joined."""
        self._delivered[packet.sender] = packet.count
        goes_to = set(packet.destinations)
        for process, theirs in enumerate(packet.barriers):
            ours = self._barriers[process]
            if process == self._me or process in goes_to:
                for other in [other for other, count in ours.items() if theirs.get(other, -1) >= count]:
                    del ours[other]
                if ours.get(packet.sender, 0) < packet.count:
                    ours[packet.sender] = packet.count
            else:
                for other, count in theirs.items():
                    if ours.get(other, 0) < count:
                        ours[other] = count


@dataclass(slots=True)
class LogPacket:
    """Kshemkalyani and Singhal: messages with the destinations where their delivery is neither known nor implied."""

    sender: int
    count: int
    destinations: list[int]
    log: dict[tuple[int, int], frozenset[int]]

    @property
    def plain_bytes(self) -> int:
        """Four bytes for each number."""
        return 4 * (2 + len(self.destinations) + sum(2 + len(still) for still in self.log.values()))

    @property
    def packed_bytes(self) -> int:
        """Sender by sender, as the shipped format: a byte for each, two for its newest counter, one for the others."""
        senders = len({sender for sender, _ in self.log})
        return 5 + len(self.destinations) + 2 * senders + len(self.log) + self._runs()

    @property
    def ungrouped_bytes(self) -> int:
        """A byte for the process, two for the counter and a run for the set of each entry; the log's length in two."""
        return 5 + len(self.destinations) + 3 * len(self.log) + self._runs()

    def _runs(self) -> int:
        return sum(max(1, len(still)) for still in self.log.values())


class KshemkalyaniSinghal:
    """The optimal algorithm for causal multicast without lifetimes (PODC 1996; Distributed Computing 11, 1998)."""

    def __init__(self, process: int, processes: int) -> None:
        self._me = process
        self._count = 0
        self._delivered = [0] * processes
        self._log: dict[tuple[int, int], frozenset[int]] = {}

    def send(self, destinations: list[int]) -> dict[int, LogPacket]:
        """Each destination gets its own version of the log: itself kept, the other destinations left out."""
        self._count += 1
        goes_to = frozenset(destinations)
        rest = {entry: still - goes_to for entry, still in self._log.items()}
        packets = {}
        for destination in destinations:
            mine = {
                entry: rest[entry] | {destination} if destination in still else rest[entry]
                for entry, still in self._log.items()
            }
            packets[destination] = LogPacket(self._me, self._count, destinations, _without_empty(mine))
        self._log = _without_empty(rest)
        self._log[self._me, self._count] = goes_to
        return packets

    def may_deliver(self, packet: LogPacket) -> bool:
        """What the log still wants delivered here must have been."""
        me, delivered = self._me, self._delivered
        return all(count <= delivered[sender] for (sender, count), still in packet.log.items() if me in still)

    def deliver(self, packet: LogPacket) -> None:
        """Merge the logs; what one side has dropped although it knows newer ones of that sender is settled."""
        me = frozenset((self._me,))
        self._delivered[packet.sender] = packet.count
        theirs = {entry: still - me for entry, still in packet.log.items()}
        theirs[packet.sender, packet.count] = frozenset(packet.destinations) - me
        ours = self._log
        newest_ours, newest_theirs = _newest(ours), _newest(theirs)
        merged: dict[tuple[int, int], frozenset[int]] = {}
        for entry, still in ours.items():
            known = theirs.get(entry)
            if known is not None:
                merged[entry] = still & known
            elif entry[1] > newest_theirs.get(entry[0], 0):
                merged[entry] = still
        merged |= {
            entry: still
            for entry, still in theirs.items()
            if entry not in ours and entry[1] > newest_ours.get(entry[0], 0)
        }
        self._log = _without_empty(merged)


def _newest(log: dict[tuple[int, int], frozenset[int]]) -> dict[int, int]:
    newest: dict[int, int] = {}
    for sender, count in log:
        if count > newest.get(sender, 0):
            newest[sender] = count
    return newest


def _without_empty(log: dict[tuple[int, int], frozenset[int]]) -> dict[tuple[int, int], frozenset[int]]:
    """Drop entries without destinations, but for the newest of each sender, which tells what is known of it."""
    newest = _newest(log)
    return {entry: still for entry, still in log.items() if still or entry[1] == newest[entry[0]]}
