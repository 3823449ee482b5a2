"""`$where` at a broker: publishes per second to the ten best of many subscriptions over five attributes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.geo_crowd import Crowd
from benchmarks.geo_ways import RANKED
from benchmarks.load import LoadError, packet, text
from benchmarks.peers import ALLOW_ANONYMOUS, locus
from benchmarks.report import Row, median, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

ATTRIBUTES: Final = ("age", "pay", "hours", "distance", "rating")
HIGHEST: Final = 1000
TOP: Final = 10
EVENTS: Final = 1_000
CHECKED: Final = 200
TURNS: Final = 5


def _boxes(random: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Five intervals for each subscription, from narrow to half of the domain."""
    widths = (HIGHEST * random.uniform(0.02, 0.5, (count, len(ATTRIBUTES)))).astype(np.int64)
    lows = (random.random((count, len(ATTRIBUTES))) * (HIGHEST - widths)).astype(np.int64)
    return lows, lows + widths


def top_k_publishes(subscriptions: int, clients: int, seconds: float, progress: Callable[[str], None]) -> list[Row]:
    """Rows for messages to the ten most accurate of so many subscriptions."""
    random = np.random.default_rng(17)
    lows, highs = _boxes(random, subscriptions)
    filters: list[list[str]] = [[] for _ in range(clients)]
    for number, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
        conditions = ",".join(f"{name}={a}..{b}" for name, a, b in zip(ATTRIBUTES, low, high, strict=True))
        filters[number % clients].append(f"$where/{conditions}/jobs/#")
    # Where intervals are: every event has matches.
    points = np.array([(lows[at] + highs[at]) // 2 for at in random.integers(0, subscriptions, EVENTS)])
    domains = {name: [0, HIGHEST] for name in ATTRIBUTES}
    with locus(plugins={**ALLOW_ANONYMOUS, RANKED: {"topics": {"jobs/#": {"attributes": domains}}}}) as broker:
        started = time.perf_counter()
        crowd = Crowd(broker, filters)
        progress(f"locus: {subscriptions:,} $where subscriptions in {time.perf_counter() - started:.1f} s")
        try:
            packets = [_event(number, point.tolist()) for number, point in enumerate(points)]
            best = [_best(lows, highs, point, clients) for point in points]
            # A delivery is shorter than the publish was, by its clauses.
            sizes = [len(packet(0x30, text("jobs/new") + _payload(n, p.tolist()))) for n, p in enumerate(points)]
            _check(crowd, packets, best, sizes[0])
            rates: list[float] = []
            copies = [len(each) for each in best]
            cpu = broker.cpu_seconds()
            deadline = time.perf_counter() + seconds
            while time.perf_counter() < deadline or len(rates) < 3:
                # Several times over, so that the end of a burst, when the broker waits, is a small part.
                taken, _ = crowd.burst(packets * TURNS, copies * TURNS, sizes[0])
                rates.append(len(packets) * TURNS / taken)
            cpu_us = (broker.cpu_seconds() - cpu) / (len(rates) * len(packets) * TURNS) * 1e6
        finally:
            crowd.close()
    mean = float(np.mean(copies))
    return [
        Row(
            f"publishes to the {TOP} best of {subscriptions:,} $where, 5 attributes",
            "1/s",
            median(rates),
            "target",
            10_000,
            1.0,
            spread=spread(rates),
            note=f"{mean:.1f} receivers each, as brute force has them; {cpu_us:.0f} us of the broker's CPU each",
        )
    ]


def _payload(number: int, point: list[int]) -> bytes:
    values = {name: f"{value:04d}" for name, value in zip(ATTRIBUTES, point, strict=True)}
    # Numbers of JSON have no leading zeros: a fraction makes all payloads as long as each other.
    body = ",".join(f'"{name}":{int(value)}{"." + "0" * (6 - len(str(int(value))))}' for name, value in values.items())
    return f'{{{body},"event":"{number:08d}"}}'.encode()


def _event(number: int, point: list[int]) -> bytes:
    return packet(0x30, text(f"jobs/new/@top:{TOP}") + _payload(number, point))


def _best(lows: NDArray[np.int64], highs: NDArray[np.int64], point: NDArray[np.int64], clients: int) -> set[int]:
    """The clients of the ten best subscriptions that belong to different clients, by brute force."""
    inside = np.nonzero(((lows <= point) & (point <= highs)).all(axis=1))[0]
    accuracy = ((highs[inside] - lows[inside]) / HIGHEST).prod(axis=1)
    # The first of each connection subscribed before the second of any other only within one connection: age is the
    # order in which connections subscribed, then the order of their filters.
    age = (inside % clients) * 1_000_000 + inside // clients
    found: dict[int, None] = {}
    for at in inside[np.lexsort((age, accuracy))].tolist():
        found[at % clients] = None
        if len(found) == TOP:
            break
    return set(found)


def _check(crowd: Crowd, packets: list[bytes], best: list[set[int]], size: int) -> None:
    got = crowd.read(packets[:CHECKED], [len(each) for each in best[:CHECKED]], size)
    for number in range(CHECKED):
        receivers = {client for client, received in enumerate(got) if number in received}
        if receivers != best[number]:
            raise LoadError(f"event {json.dumps(number)} went to {sorted(receivers)}, not to {sorted(best[number])}")
