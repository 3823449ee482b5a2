"""How many subscriptions a broker moves while it routes: clients report positions as fast as it takes them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from benchmarks.geo_ways import position_packets

if TYPE_CHECKING:
    import numpy as np

    from benchmarks.geo_ways import Way

STEP_M: Final = 15.0
EVENTS_PER_ROUND: Final = 50
"""Events routed for each time that all clients have reported."""


def moves_per_second(way: Way, seconds: float, random: np.random.Generator) -> tuple[float, float]:
    """Subscriptions moved and positions reported per second, while events are routed.

    A round is a report of every client and some events, sent together; it is over when the broker has taken all of it.
    """
    world, crowd = way.world, way.crowd
    rounds = []
    for _ in range(5):
        world.step(random, STEP_M)
        rounds.append(position_packets(world))
    per_client = int(world.moving.sum()) / world.clients
    reports = number = 0
    started = time.perf_counter()
    while time.perf_counter() < started + seconds:
        at = number * EVENTS_PER_ROUND % (len(way.packets) - EVENTS_PER_ROUND)
        crowd.publisher.sendall(b"".join(way.packets[at : at + EVENTS_PER_ROUND]))
        crowd.tell_all(rounds[number % len(rounds)])
        reports += world.clients
        number += 1
    elapsed = time.perf_counter() - started
    return reports * per_client / elapsed, reports / elapsed
