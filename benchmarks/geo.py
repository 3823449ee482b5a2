"""`locus bench geo`: `$geo` and `$where` subscriptions, against the two ways Mosquitto's users do it today.

(a) Everyone subscribes to everything and filters. (b) Geohash cells are topics; a subscriber covers its areas with
cells and filters the rest. What is counted is what a subscriber wanted; the filtering that (a) and (b) leave to clients
is charged to nobody. Before anything is timed, what each client received is compared with brute force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.geo_moves import moves_per_second
from benchmarks.geo_ranked import top_k_publishes
from benchmarks.geo_scale import scale_rows
from benchmarks.geo_ways import Way, three_ways
from benchmarks.geo_world import MOVING_SHARE, city
from benchmarks.report import Report, Row, median, spread

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_M = 15.0
"""How far a client goes between two rounds."""


@dataclass(slots=True, frozen=True)
class Size:
    """How large a run is."""

    subscriptions: int
    clients: int
    events: int
    rounds: int
    seconds: float
    ranked: int


FULL = Size(100_000, 1_000, 4_000, 5, 10.0, 100_000)
QUICK = Size(10_000, 200, 1_000, 2, 2.0, 10_000)


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    """Run every load."""
    size = QUICK if quick else FULL
    report = Report("geo")
    world = city(size.subscriptions, size.clients, size.events)
    random = np.random.default_rng(44)
    with three_ways(world, progress) as ways:
        ours, everything, by_cell = ways
        for number in range(size.rounds + 1):
            world.step(random, STEP_M)
            wanted = world.wanted()
            for way in ways:
                way.moved()
                if number == 0:
                    progress(f"{way.name}: comparing what each client receives with brute force")
                    way.check(wanted)
                else:
                    way.round([len(each) for each in wanted])
                    progress(f"{way.name}: {way.rates[-1]:,.0f} wanted deliveries/s")
        _compare(report, ours, everything, by_cell)
        _latency(report, ways, size, progress)
        progress("locus: clients report their positions as fast as they can while events are routed")
        reached = moves_per_second(ours, size.seconds, random)
        note = f"{reached.reports:,.0f} reports/s, each moves {reached.moves / reached.reports:.0f}; "
        note += f"{reached.events:,.0f} events/s beside; {reached.cpu_us:.1f} us of the broker's CPU a move"
        report.rows.append(
            Row("subscriptions moved while routing", "moves/s", reached.moves, "target", 20_000, 1.0, note=note)
        )
    report.rows += top_k_publishes(size.ranked, size.clients, size.seconds, progress)
    report.rows += scale_rows(quick, progress)
    report.remarks.append(
        f"City of {size.subscriptions:,} subscriptions over {size.clients:,} connections, {MOVING_SHARE:.0%} of them "
        f"moving, an event wanted by {np.mean([len(each) for each in wanted]):.0f} clients on average. (a): Mosquitto, "
        "everyone subscribes to everything. (b): Mosquitto, geohash cells of 7 characters as topics. Every client "
        "received all it wanted (recall 1.0), at Locus nothing else. The filtering that clients of (a) and (b) have to "
        "do is charged to nobody."
    )
    return report


def _compare(report: Report, ours: Way, everything: Way, by_cell: Way) -> None:
    for peer, rate_target, bytes_target in ((everything, 20.0, None), (by_cell, 1.0, 2.0)):
        report.rows.append(
            Row(
                "wanted deliveries",
                "1/s",
                median(ours.rates),
                peer.name,
                median(peer.rates),
                rate_target,
                spread=spread(ours.rates),
            )
        )
        report.rows.append(
            Row(
                "bytes to clients per wanted delivery",
                "B",
                median(ours.bytes),
                peer.name,
                median(peer.bytes),
                bytes_target,
                less_is_better=True,
            )
        )
        report.rows.append(
            Row(
                "broker CPU per wanted delivery",
                "us",
                median(ours.cpu),
                peer.name,
                median(peer.cpu),
                less_is_better=True,
                spread=spread(ours.cpu),
            )
        )


def _latency(report: Report, ways: tuple[Way, Way, Way], size: Size, progress: Callable[[str], None]) -> None:
    """Percentiles at half of what each way could do, and at the same load as (b)."""

    def percentiles(way: Way, rate: float) -> dict[str, float]:
        progress(f"{way.name}: latency at {rate:,.0f} events/s")
        waits = way.crowd.latency(way.packets, rate, size.seconds)
        return {name: float(np.percentile(waits, share)) * 1e3 for name, share in (("p50", 50), ("p99", 99))}

    ours, everything, by_cell = ways
    half = median(by_cell.events) / 2
    own_half = median(ours.events) / 2
    at_b, at_own, of_b = percentiles(ours, half), percentiles(ours, own_half), percentiles(by_cell, half)
    of_a = percentiles(everything, median(everything.events) / 2)
    for name in ("p50", "p99"):
        load = f"latency at {half:,.0f} events/s, {name}"
        note = "half of what (b) can do"
        report.rows.append(Row(load, "ms", at_b[name], by_cell.name, of_b[name], less_is_better=True, note=note))
    for name in ("p50", "p99"):
        load = f"latency at half load, {name}"
        note = f"Locus at {own_half:,.0f} events/s, (a) at {median(everything.events) / 2:,.0f}"
        report.rows.append(Row(load, "ms", at_own[name], everything.name, of_a[name], less_is_better=True, note=note))
    target = Row("latency at half load, p99", "ms", at_own["p99"], "target", 10.0, 1.0, less_is_better=True)
    report.rows.append(target)
