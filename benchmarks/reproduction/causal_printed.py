"""Δ-causal order as printed in paper 002, line by line, with each of the five mends to be switched on or off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.reproduction.causal_storm import Weather

Entry = tuple[int, int]  # sender and send time: the message m_k^t


@dataclass(slots=True, frozen=True)
class Mends:
    """Which departures from the print are made; none of them is the print, read with the entry's time in the loops."""

    record_delivered: bool = False
    entry_time: bool = True
    strict_stamps: bool = False
    skew_margin: bool = False
    ordered_drain: bool = False
    drop_expired: bool = False


ALL_MENDS = Mends(
    record_delivered=True, entry_time=True, strict_stamps=True, skew_margin=True, ordered_drain=True, drop_expired=True
)


@dataclass(slots=True)
class Packet:
    """What travels: (p_i, τ, m.D, CI_i, DC[j])."""

    sender: int
    stamp: int
    destinations: frozenset[int]
    information: dict[Entry, set[int]]
    conditions: set[Entry]
    number: int = -1


@dataclass(slots=True)
class Process:
    """The state of one process: CI, DLV and those that wait, in the order of arrival."""

    information: dict[Entry, set[int]] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)
    waiting: list[Packet] = field(default_factory=list)
    last_stamp: int = 0


class PrintedNodes:
    """All processes of a world under the printed algorithm with some mends.

    Args:
        weather: gives the number of processes, Δ and how far clocks may be off.
        mends: what is mended.
    """

    def __init__(self, weather: Weather, mends: Mends) -> None:
        self._lifetime = weather.lifetime_us
        self._margin = 2 * weather.clock_error_us if mends.skew_margin else 0
        self._mends = mends
        self.processes = [Process() for _ in range(weather.nodes)]

    def send(self, node: int, now: int, destinations: list[int], life_us: int) -> tuple[int, dict[int, Packet]]:
        """The sending algorithm of section 4.5."""
        if life_us != self._lifetime:
            raise ValueError("the paper knows one lifetime only; choose a weather without shortened ones")
        process, mends = self.processes[node], self._mends
        stamp = max(now, process.last_stamp + 1) if mends.strict_stamps else now
        process.last_stamp = stamp
        information = process.information
        conditions: dict[int, set[Entry]] = {destination: set() for destination in destinations}
        for destination in destinations:
            for (sender, when), still in information.items():
                if destination in still:
                    conditions[destination].add((sender, when if mends.entry_time else stamp))
                    still.discard(destination)
        self._expire(process, now, stamp)
        _purge(information)
        everyone = frozenset(destinations)
        packets = {
            destination: Packet(
                node,
                stamp,
                everyone,
                {entry: set(still) for entry, still in information.items()},
                conditions[destination],
            )
            for destination in destinations
        }
        information[node, stamp] = set(destinations)
        return stamp, packets

    def receive(self, node: int, now: int, packet: Packet, number: int) -> list[int]:
        """The receiving algorithm; the network's doubles, of which the paper knows nothing, are dropped."""
        out = self.poll(node, now)
        process = self.processes[node]
        if packet.stamp + self._lifetime < now:
            return out
        seen = packet.stamp <= process.delivered.get(packet.sender, 0) and self._mends.strict_stamps
        if seen or any(other.number == number for other in process.waiting):
            return out
        packet.number = number
        process.waiting.append(packet)
        return out + self.poll(node, now)

    def poll(self, node: int, now: int) -> list[int]:
        """Deliver whatever has nothing to wait for."""
        process = self.processes[node]
        out: list[int] = []
        waiting = process.waiting
        while waiting:
            order = sorted(waiting, key=lambda packet: packet.stamp) if self._mends.ordered_drain else waiting
            ready = next((packet for packet in order if not self._blockers(process, packet, now)), None)
            if ready is None:
                break
            waiting.remove(ready)
            self._deliver(node, process, ready, now)
            out.append(ready.number)
        return out

    def next_wakeup(self, node: int) -> int | None:
        """When the first of the waiting has nothing left that could still come."""
        process = self.processes[node]
        return min(
            (
                max(
                    when + self._lifetime + 1
                    for sender, when in packet.conditions
                    if when > process.delivered.get(sender, 0)
                )
                for packet in process.waiting
            ),
            default=None,
        )

    def overflowed(self, node: int) -> list[int]:  # noqa: ARG002 - every contestant is asked
        """The paper's waiting has no bounds."""
        return []

    def _blockers(self, process: Process, packet: Packet, now: int) -> bool:
        return any(
            when > process.delivered.get(sender, 0) and when + self._lifetime >= now
            for sender, when in packet.conditions
        )

    def _deliver(self, node: int, process: Process, packet: Packet, now: int) -> None:
        mends = self._mends
        process.delivered[packet.sender] = packet.stamp
        if mends.strict_stamps:
            process.last_stamp = max(process.last_stamp, packet.stamp)
        ours = process.information
        theirs = {entry: set(still) for entry, still in packet.information.items()}
        if mends.record_delivered:
            theirs[packet.sender, packet.stamp] = set(packet.destinations) - {node}
        newest_ours, newest_theirs = _newest(ours), _newest(theirs)
        for entry in [entry for entry in ours if entry not in theirs and entry[1] < newest_theirs.get(entry[0], -1)]:
            del ours[entry]
        for entry, still in theirs.items():
            if entry in ours:
                ours[entry] &= still
            elif entry[1] >= newest_ours.get(entry[0], -1):
                ours[entry] = still
        for sender, when in sorted(ours):
            later = [ours[other] for other in ours if other[0] == sender and other[1] > when]
            for still in later:
                ours[sender, when] -= still
        self._expire(process, now, packet.stamp)
        _purge(ours)

    def _expire(self, process: Process, now: int, stamp: int) -> None:
        mends = self._mends
        for entry in list(process.information):
            when = entry[1] if mends.entry_time else stamp
            if when + self._lifetime + self._margin < now:
                if mends.drop_expired:
                    del process.information[entry]
                else:
                    process.information[entry].clear()


def _newest(information: dict[Entry, set[int]]) -> dict[int, int]:
    newest: dict[int, int] = {}
    for sender, when in information:
        newest[sender] = max(when, newest.get(sender, -1))
    return newest


def _purge(information: dict[Entry, set[int]]) -> None:
    newest = _newest(information)
    for entry in [entry for entry, still in information.items() if not still and entry[1] < newest[entry[0]]]:
        del information[entry]
