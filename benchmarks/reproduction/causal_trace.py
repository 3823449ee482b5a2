"""The paper's simulation: processes multicast at random over a network that loses nothing, four algorithms in turn.

The paper leaves open how many receive a message, how long messages travel and how long they live. Here each process
sends on average ten messages a second (exponential gaps, mean 0.1 s as in the paper) to a group drawn anew each time;
delays are exponential and never reach Δ, so that algorithms with and without lifetimes must deliver the same messages
in the same order.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.reproduction.causal_printed import ALL_MENDS, Mends, PrintedNodes
from benchmarks.reproduction.causal_rivals import KshemkalyaniSinghal, PrakashRaynalSinghal, RaynalSchiperToueg, Rival
from benchmarks.reproduction.causal_storm import Weather
from broker_plugins.causal import CausalNode, Roster, decode, grain_of

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True, frozen=True)
class Traffic:
    """One setting of the simulation; times in microseconds."""

    processes: int
    group: int = 3
    gap_us: int = 100_000
    delay_us: int = 30_000
    longest_delay_us: int = 200_000
    lifetime_us: int = 250_000
    skew_us: int = 5_000
    warm_up: int = 1_000
    messages: int = 4_000
    seed: int = 2


@dataclass(slots=True, frozen=True)
class Multicast:
    """A message of the trace: when it is sent, by whom, and when it reaches each destination."""

    at: int
    sender: int
    arrivals: dict[int, int]


@dataclass(slots=True)
class Cost:
    """What an algorithm spent on the measured part of a trace."""

    packets: int = 0
    messages: int = 0
    plain_bytes: int = 0
    packed_bytes: int = 0
    cpu_ns: int = 0
    wait_us: int = 0
    deliveries: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def plain(self) -> float:
        """Control bytes a packet, numbers in four bytes (stamps in eight)."""
        return self.plain_bytes / self.packets

    @property
    def packed(self) -> float:
        """Control bytes a packet, packed."""
        return self.packed_bytes / self.packets

    @property
    def us_a_message(self) -> float:
        """Computing for one multicast: sending it and delivering it at every destination."""
        return self.cpu_ns / 1000 / self.messages

    @property
    def us_a_step(self) -> float:
        """Computing for one step, a send or a delivery."""
        return self.cpu_ns / 1000 / (self.messages + self.packets)

    @property
    def mean_wait_us(self) -> float:
        """How long a message waited at its destination."""
        return self.wait_us / self.packets


class Algorithm(Protocol):
    """An algorithm for all processes."""

    def send(self, process: int, now: int, destinations: list[int]) -> dict[int, Any]:
        """A packet for each destination."""

    def receive(self, process: int, now: int, packet: Any, number: int) -> list[int]:
        """The numbers of the messages that can be delivered now."""

    def sizes(self, packet: Any) -> tuple[int, int]:
        """Plain and packed bytes."""


class Timeless:
    """A rival without lifetimes: what may not be delivered yet waits as long as it takes.

    Args:
        make: the rival's process.
        processes: how many there are.
        packing: by which property its packets count their packed bytes.
    """

    def __init__(self, make: Callable[[int, int], Rival], processes: int, packing: str = "packed_bytes") -> None:
        self._packing = packing
        self._processes = [make(process, processes) for process in range(processes)]
        self._waiting: list[list[tuple[Any, int]]] = [[] for _ in range(processes)]

    def send(self, process: int, now: int, destinations: list[int]) -> dict[int, Any]:  # noqa: ARG002 - no clock here
        """Hand on."""
        return self._processes[process].send(destinations)

    def receive(self, process: int, now: int, packet: Any, number: int) -> list[int]:  # noqa: ARG002 - no clock here
        """Deliver this one and whatever waited for it."""
        rival, waiting = self._processes[process], self._waiting[process]
        if not rival.may_deliver(packet):
            waiting.append((packet, number))
            return []
        rival.deliver(packet)
        out = [number]
        progress = bool(waiting)
        while progress:
            progress = False
            for place, (other, its_number) in enumerate(waiting):
                if rival.may_deliver(other):
                    del waiting[place]
                    rival.deliver(other)
                    out.append(its_number)
                    progress = bool(waiting)
                    break
        return out

    def sizes(self, packet: Any) -> tuple[int, int]:
        """As the packet counts itself."""
        return packet.plain_bytes, getattr(packet, self._packing)


class DeltaCausal:
    """The shipped `CausalNode`, bytes of the wire included."""

    def __init__(self, traffic: Traffic) -> None:
        self._names = [f"n{process}" for process in range(traffic.processes)]
        self._lifetime_us = traffic.lifetime_us
        self.nodes = [
            CausalNode(
                name,
                Roster(self._names),
                lifetime_us=traffic.lifetime_us,
                skew_us=traffic.skew_us,
                grain_us=grain_of(traffic.lifetime_us),
            )
            for name in self._names
        ]

    def send(self, process: int, now: int, destinations: list[int]) -> dict[int, Any]:
        """Encode for each destination."""
        node = self.nodes[process]
        names = self._names
        control = node.send(now, [names[destination] for destination in destinations]).control
        return {destination: control[names[destination]] for destination in destinations}

    def receive(self, process: int, now: int, packet: Any, number: int) -> list[int]:
        """Decode and deliver."""
        return [delivery.payload for delivery in self.nodes[process].receive(now, packet, number).deliveries]

    def sizes(self, packet: Any) -> tuple[int, int]:
        """The plain size is counted from what the bytes say."""
        slot = 0x7FFF
        control = decode(packet, slot, self._lifetime_us)
        numbers = 1 + control.destinations.bit_count() + 2 * len(control.conditions.get(slot, ()))
        numbers += sum(1 + mask.bit_count() for mask in control.entries.values())
        stamps = 1 + len(control.entries)
        return 4 * numbers + 8 * stamps, len(packet)


class PrintedDelta:
    """The paper's own data structures, mended: sets and dictionaries as the rivals have them, no bytes in between."""

    def __init__(self, traffic: Traffic, mends: Mends = ALL_MENDS) -> None:
        self._lifetime_us = traffic.lifetime_us
        weather = Weather(nodes=traffic.processes, lifetime_us=traffic.lifetime_us, skew_us=traffic.skew_us)
        self._nodes = PrintedNodes(weather, mends)

    def send(self, process: int, now: int, destinations: list[int]) -> dict[int, Any]:
        """Hand on."""
        return self._nodes.send(process, now, destinations, self._lifetime_us)[1]

    def receive(self, process: int, now: int, packet: Any, number: int) -> list[int]:
        """Hand on."""
        return self._nodes.receive(process, now, packet, number)

    def sizes(self, packet: Any) -> tuple[int, int]:
        """Four bytes for a number, eight for a time; packed, a byte for a process, two for a distance in time."""
        entries, conditions = packet.information, len(packet.conditions)
        members = sum(map(len, entries.values()))
        plain = 4 * (1 + len(packet.destinations) + len(entries) + members + conditions)
        plain += 8 * (1 + len(entries) + conditions)
        runs = sum(max(1, len(still)) for still in entries.values())
        return plain, 14 + len(packet.destinations) + 3 * len(entries) + runs + 3 * conditions


OURS = "Δ-causal, shipped"
PAPER = "Δ-causal, paper mended"
KEEPING = "Δ-causal, paper mended, expired kept"
KS = "Kshemkalyani–Singhal"
PRS = "Prakash–Raynal–Singhal"
RST = "Raynal–Schiper–Toueg"


def algorithms(traffic: Traffic) -> dict[str, Algorithm]:
    """The four of the paper's figures, the Δ-causal one in three forms, by name."""
    return {
        OURS: DeltaCausal(traffic),
        PAPER: PrintedDelta(traffic),
        KEEPING: PrintedDelta(traffic, replace(ALL_MENDS, drop_expired=False)),
        KS: Timeless(KshemkalyaniSinghal, traffic.processes),
        PRS: Timeless(PrakashRaynalSinghal, traffic.processes),
        RST: Timeless(RaynalSchiperToueg, traffic.processes),
    }


def trace(traffic: Traffic) -> list[Multicast]:
    """The sends of a setting with the arrival of every copy."""
    draw = random.Random(traffic.seed)
    everyone = list(range(traffic.processes))
    now = 10 * traffic.lifetime_us
    sends = []
    for _ in range(traffic.warm_up + traffic.messages):
        now += 1 + int(draw.expovariate(traffic.processes / traffic.gap_us))
        sender = draw.randrange(traffic.processes)
        others = [process for process in everyone if process != sender]
        destinations = draw.sample(others, min(traffic.group, len(others)))
        arrivals = {
            destination: now + 500 + min(int(draw.expovariate(1 / traffic.delay_us)), traffic.longest_delay_us)
            for destination in destinations
        }
        sends.append(Multicast(now, sender, arrivals))
    return sends


def run(algorithm: Algorithm, traffic: Traffic, sends: list[Multicast]) -> Cost:
    """Play a trace through an algorithm."""
    cost = Cost()
    clock = time.thread_time_ns  # a busy machine must not count
    events: list[tuple[int, int, int, Any]] = []  # arrivals: time, number, process, packet
    first = traffic.warm_up
    arrived: dict[tuple[int, int], int] = {}

    def deliver_until(when: int) -> None:
        while events and events[0][0] <= when:
            now, number, process, packet = heappop(events)
            arrived[process, number] = now
            start = clock()
            out = algorithm.receive(process, now, packet, number)
            if number >= first:
                cost.cpu_ns += clock() - start
            for done in out:
                came = arrived.pop((process, done))
                if done >= first:
                    cost.wait_us += now - came
                    cost.deliveries.append((process, done, now))

    for number, send in enumerate(sends):
        deliver_until(send.at)
        destinations = list(send.arrivals)
        start = clock()
        packets = algorithm.send(send.sender, send.at, destinations)
        spent = clock() - start
        if number >= first:
            cost.cpu_ns += spent
            cost.messages += 1
            for packet in packets.values():
                plain, packed = algorithm.sizes(packet)
                cost.packets += 1
                cost.plain_bytes += plain
                cost.packed_bytes += packed
        for destination, packet in packets.items():
            heappush(events, (send.arrivals[destination], number, destination, packet))
    deliver_until(sends[-1].at + 10 * traffic.lifetime_us)
    return cost
