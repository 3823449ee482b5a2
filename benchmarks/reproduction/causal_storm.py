"""A simulated world that is as unkind as can be, to see whether an ordering algorithm ever errs in it.

Nodes send at random and answer at once what they hear, so that chains of cause and effect are long; the network delays
with a heavy tail, loses, doubles and reorders; clocks are off, and so coarse that many readings are equal; timers fire
late; lifetimes differ. Every delivery is checked against the full history of the world.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.reproduction.causal_oracle import HistoryOracle
from broker_plugins.causal import CausalNode, DropReason, Envelope, Roster, grain_of

if TYPE_CHECKING:
    from collections.abc import Callable

SEND, ARRIVE, WAKE = range(3)


@dataclass(slots=True, frozen=True)
class Weather:
    """How the world treats its messages; times in microseconds."""

    nodes: int = 6
    lifetime_us: int = 100_000
    send_every_us: int = 4_000
    group: int = 3
    answer_share: float = 0.2
    delay_us: int = 8_000
    tail: float = 1.2
    slow_link_share: float = 0.2
    loss: float = 0.05
    doubling: float = 0.01
    skew_us: int = 0
    clock_grain_us: int = 1
    short_life_share: float = 0.0
    late_timer_share: float = 0.0
    room_limit: int = 10_000
    grace_us: int = 1_000_000_000
    stamp_grain_us: int = 1

    @property
    def clock_error_us(self) -> int:
        """How far a clock may be from the true time: its offset and the grain it is read with."""
        return self.skew_us + (self.clock_grain_us if self.clock_grain_us > 1 else 0)


@dataclass(slots=True)
class Tally:
    """What happened, and how much of it was wrong."""

    sent: int = 0
    deliveries: int = 0
    violations: int = 0
    disagreements: int = 0
    waited: int = 0
    late: int = 0
    outlived: int = 0
    stalled: int = 0
    doubled: int = 0
    overflowed: int = 0
    lost: int = 0
    wait_us: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add up two worlds."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Contestant(Protocol):
    """An ordering algorithm for all nodes of a world; packets are whatever it likes, payloads are numbers."""

    def send(self, node: int, now: int, destinations: list[int], life_us: int) -> tuple[int, dict[int, Any]]:
        """The stamp, and a packet for each destination."""

    def receive(self, node: int, now: int, packet: Any, number: int) -> list[int]:
        """What can be delivered now, in order."""

    def poll(self, node: int, now: int) -> list[int]:
        """What a timer lets be delivered."""

    def next_wakeup(self, node: int) -> int | None:
        """When the timer of a node has something to do."""

    def overflowed(self, node: int) -> list[int]:
        """What was thrown away since the last call for want of room."""


class LocusNodes:
    """The shipped `CausalNode`, with the bytes of the wire in between or, to be quicker, without."""

    def __init__(self, weather: Weather, wire: bool = True) -> None:
        names = [f"n{node}" for node in range(weather.nodes)]
        self._wire = wire
        self._lifetime_us = weather.lifetime_us
        self.nodes = [
            CausalNode(
                name,
                Roster(names),
                lifetime_us=weather.lifetime_us,
                skew_us=weather.clock_error_us,
                room_limit=weather.room_limit,
                grace_us=weather.grace_us,
                grain_us=weather.stamp_grain_us,
            )
            for name in names
        ]
        self._overflowed: list[list[int]] = [[] for _ in names]

    def send(self, node: int, now: int, destinations: list[int], life_us: int) -> tuple[int, dict[int, Any]]:
        """Encode for each destination, or hand the same object to all."""
        mask = sum(1 << destination for destination in destinations)
        control = self.nodes[node].state.send(now, mask, life_us)
        if not self._wire:
            return control.stamp, dict.fromkeys(destinations, control)
        envelope = Envelope(control, self._lifetime_us)
        return control.stamp, {destination: envelope.for_slot(destination) for destination in destinations}

    def receive(self, node: int, now: int, packet: Any, number: int) -> list[int]:
        """Take in a message."""
        outcome = self.nodes[node].receive(now, packet, number)
        if outcome.drops:
            self._overflowed[node] += [drop.payload for drop in outcome.drops if drop.reason is DropReason.OVERFLOW]
        return [delivery.payload for delivery in outcome.deliveries]

    def poll(self, node: int, now: int) -> list[int]:
        """Let the timer fire."""
        return [delivery.payload for delivery in self.nodes[node].poll(now).deliveries]

    def next_wakeup(self, node: int) -> int | None:
        """When to call `poll`."""
        return self.nodes[node].next_wakeup()

    def overflowed(self, node: int) -> list[int]:
        """What the waiting room turned away."""
        gone = self._overflowed[node]
        if gone:
            self._overflowed[node] = []
        return gone

    def fill(self, tally: Tally) -> None:
        """Add the nodes' own counts to a tally."""
        for node in self.nodes:
            counts = node.statistics
            tally.waited += counts.waited
            tally.wait_us += counts.waited_us
            tally.late += counts.dropped[DropReason.LATE]
            tally.outlived += counts.dropped[DropReason.OUTLIVED]
            tally.stalled += counts.dropped[DropReason.STALLED]
            tally.doubled += counts.dropped[DropReason.DUPLICATE]
            tally.overflowed += counts.dropped[DropReason.OVERFLOW]


class Storm:
    """Runs one world until so many deliveries were made, and checks each.

    Args:
        weather: how the world is.
        contestant: the algorithm under test.
        seed: the world repeats itself for the same seed.
        decisions: whether each decision is compared with the oracle's too, not only the order with causality. An
            algorithm that may err is followed instead, so that the oracle knows what really happened.
    """

    def __init__(self, weather: Weather, contestant: Contestant, seed: int, decisions: bool = True) -> None:
        self._weather = weather
        self._contestant = contestant
        self._random = random.Random(seed)
        self._decisions = decisions
        self._oracle = HistoryOracle(weather.nodes, weather.grace_us)
        self._events: list[tuple[int, int, int, int, Any]] = []
        self._order = 0
        draw = self._random
        self._offset = [draw.randint(-weather.skew_us, weather.skew_us) for _ in range(weather.nodes)]
        if weather.nodes > 1 and weather.skew_us:
            self._offset[0], self._offset[1] = weather.skew_us, -weather.skew_us
        self._slow = {
            (a, b): draw.uniform(3, 10) if draw.random() < weather.slow_link_share else 1.0
            for a in range(weather.nodes)
            for b in range(weather.nodes)
        }
        self._alarm: list[int | None] = [None] * weather.nodes
        self._everyone = list(range(weather.nodes))
        self.tally = Tally()

    def run(self, deliveries: int) -> Tally:
        """Let the world turn."""
        weather, draw = self._weather, self._random
        tally = self.tally
        start = 10 * weather.lifetime_us + 1_000_000
        self._put(start, SEND, 0, None)
        steps = 0
        while tally.deliveries < deliveries:
            when, _, kind, node, what = heappop(self._events)
            if kind == SEND:
                self._send(when, draw.randrange(weather.nodes))
                self._put(when + 1 + int(draw.expovariate(1 / weather.send_every_us)), SEND, 0, None)
            elif kind == ARRIVE:
                self._arrive(when, node, *what)
            elif self._alarm[node] == what:
                self._alarm[node] = None
                now = self._clock(node, when)
                self._judge(when, node, now, self._contestant.poll(node, now), None)
            steps += 1
            if steps % 512 == 0:
                self._oracle.forget(when - 2 * weather.clock_error_us - weather.lifetime_us)
        if isinstance(self._contestant, LocusNodes):
            self._contestant.fill(tally)
        return tally

    def _clock(self, node: int, when: int) -> int:
        grain = self._weather.clock_grain_us
        return (when + self._offset[node]) // grain * grain

    def _put(self, when: int, kind: int, node: int, what: Any) -> None:
        self._order += 1
        heappush(self._events, (when, self._order, kind, node, what))

    def _send(self, when: int, node: int) -> None:
        weather, draw = self._weather, self._random
        self._catch_up(when, node)
        size = min(1 + int(draw.expovariate(1 / weather.group)), weather.nodes)
        destinations = [other for other in draw.sample(self._everyone, size) if other != node]
        if not destinations:
            return
        life = weather.lifetime_us
        if weather.short_life_share and draw.random() < weather.short_life_share:
            life = draw.randint(life // 20, life)
        stamp, packets = self._contestant.send(node, self._clock(node, when), destinations, life)
        number = self._oracle.send(node, stamp, stamp + life, destinations)
        self.tally.sent += 1
        for destination, packet in packets.items():
            if draw.random() < weather.loss:
                self.tally.lost += 1
                continue
            copies = 2 if draw.random() < weather.doubling else 1
            for _ in range(copies):
                delay = int(weather.delay_us * draw.paretovariate(weather.tail) * self._slow[node, destination] * 0.3)
                self._put(when + 1 + min(delay, 5 * weather.lifetime_us), ARRIVE, destination, (number, packet))

    def _catch_up(self, when: int, node: int) -> None:
        """A node that acts looks at its timer first."""
        now = self._clock(node, when)
        alarm = self._contestant.next_wakeup(node)
        if alarm is not None and alarm <= now:
            self._judge(when, node, now, self._contestant.poll(node, now), None)

    def _arrive(self, when: int, node: int, number: int, packet: Any) -> None:
        now = self._clock(node, when)
        self._judge(when, node, now, self._contestant.receive(node, now, packet, number), number)

    def _judge(self, when: int, node: int, now: int, delivered: list[int], arrived: int | None) -> None:
        oracle, tally = self._oracle, self.tally
        if self._decisions:
            right = oracle.advance(node, now) if arrived is None else oracle.arrive(node, arrived, now)
            if right != delivered:
                tally.disagreements += 1
                if len(tally.faults) < 5:
                    tally.faults.append(f"node {node} at {now}: delivered {delivered}, the oracle {right}")
            for gone in self._contestant.overflowed(node):
                oracle.lose(node, gone)
        for number in delivered:
            tally.violations += oracle.violates(node, number)
            if not self._decisions:
                oracle.follow(node, number)
        tally.deliveries += len(delivered)
        self._set_alarm(when, node)
        if delivered and self._random.random() < self._weather.answer_share:
            self._send(when, node)

    def _set_alarm(self, when: int, node: int) -> None:
        alarm = self._contestant.next_wakeup(node)
        if alarm is None or alarm == self._alarm[node]:
            return
        self._alarm[node] = alarm
        grain = self._weather.clock_grain_us
        due = max(when, -(-alarm // grain) * grain - self._offset[node])
        if self._weather.late_timer_share and self._random.random() < self._weather.late_timer_share:
            due += self._random.randint(1, self._weather.lifetime_us // 2)
        self._put(due, WAKE, node, alarm)


def stormy_weathers(seed: int) -> Weather:
    """A random kind of weather; every ingredient is present in many of them."""
    draw = random.Random(seed)
    nodes = draw.choice([2, 3, 4, 5, 6, 8, 10, 12])
    lifetime_us = draw.choice([20_000, 60_000, 100_000, 250_000])
    return Weather(
        nodes=nodes,
        lifetime_us=lifetime_us,
        send_every_us=draw.choice([1_500, 4_000, 10_000]),
        group=draw.choice([1, 2, 3, nodes]),
        answer_share=draw.choice([0.0, 0.1, 0.25]),
        delay_us=draw.choice([1_000, 8_000, 25_000]),
        tail=draw.choice([1.05, 1.3, 2.0]),
        slow_link_share=draw.choice([0.0, 0.3]),
        loss=draw.choice([0.0, 0.02, 0.1, 0.3]),
        doubling=draw.choice([0.0, 0.02]),
        skew_us=draw.choice([0, 5_000, 60_000]),
        clock_grain_us=draw.choice([1, 1_000, 10_000]),
        short_life_share=draw.choice([0.0, 0.0, 0.3]),
        late_timer_share=draw.choice([0.0, 0.0, 0.3]),
        room_limit=draw.choice([10_000, 10_000, 8]),
        grace_us=draw.choice([1_000_000_000, 1_000_000_000, 10_000]),
        stamp_grain_us=draw.choice([1, grain_of(lifetime_us)]),
    )


def many_storms(
    deliveries: int, progress: Callable[[str], None], per_world: int = 50_000, seed: int = 1
) -> tuple[Tally, int]:
    """One random world after another until so many deliveries have been checked; the sum and how many worlds."""
    total = Tally()
    worlds = 0
    while total.deliveries < deliveries:
        weather = stormy_weathers(seed + worlds)
        # Every other world goes through the wire format; the rest hand objects over, which is quicker.
        contestant = LocusNodes(weather, wire=worlds % 2 == 0)
        tally = Storm(weather, contestant, seed + worlds).run(min(per_world, deliveries - total.deliveries))
        if tally.violations or tally.disagreements:
            tally.faults = [f"seed {seed + worlds}: {fault}" for fault in tally.faults]
        total.add(tally)
        worlds += 1
        if worlds % 10 == 0:
            progress(f"{total.deliveries:,} deliveries in {worlds} worlds, {total.violations} violations")
    return total, worlds
