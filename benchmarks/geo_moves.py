"""How many subscriptions a broker moves while it routes: clients report positions as fast as it takes them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.geo_ways import position_packets

if TYPE_CHECKING:
    import numpy as np

    from benchmarks.geo_ways import Way

STEP_M: Final = 15.0
REPORTS: Final = 10
"""Positions a client reports in a round."""
EVENTS: Final = 500
"""Events routed in a round."""


@dataclass(slots=True, frozen=True)
class Moves:
    """What was reached.

    Args:
        reports: positions that clients reported, per second.
        moves: subscriptions that moved with them, per second.
        events: events routed beside, per second.
        cpu_us: the broker's processor time for one moved subscription, with its share of the routing, in microseconds.
    """

    reports: float
    moves: float
    events: float
    cpu_us: float


def moves_per_second(way: Way, seconds: float, random: np.random.Generator) -> Moves:
    """Positions reported and subscriptions moved per second, while events are routed.

    A round is some reports of every client and some events, sent together; it is over when the broker has taken it all.
    """
    world, crowd = way.world, way.crowd
    ways: list[list[bytes]] = [[] for _ in range(world.clients)]
    for _ in range(REPORTS):
        world.step(random, STEP_M)
        for steps, packet in zip(ways, position_packets(world), strict=True):
            steps.append(packet)
    packets = [b"".join(steps) for steps in ways]
    per_report = int(world.moving.sum()) / world.clients
    events = way.packets[:EVENTS]
    rounds = 0
    cpu, started = crowd.broker.cpu_seconds(), time.perf_counter()
    while time.perf_counter() < started + seconds:
        crowd.publisher.sendall(b"".join(events))
        crowd.tell_all(packets)
        rounds += 1
    elapsed = time.perf_counter() - started
    reports = rounds * REPORTS * world.clients
    used = (crowd.broker.cpu_seconds() - cpu) * 1e6
    return Moves(
        reports / elapsed, reports * per_report / elapsed, rounds * len(events) / elapsed, used / (reports * per_report)
    )
