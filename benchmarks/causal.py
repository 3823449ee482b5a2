"""Δ-causal delivery: is it ever wrong, how many bytes does it carry, how long does it compute and wait."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.report import Report, Row, median, spread
from benchmarks.reproduction.causal_rivals import KshemkalyaniSinghal
from benchmarks.reproduction.causal_storm import many_storms
from benchmarks.reproduction.causal_trace import Cost, DeltaCausal, Timeless, Traffic, run, trace

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (5, 10, 20, 40)
RIVAL = "Kshemkalyani–Singhal"


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    """Run every load; `progress` takes a line that says what is being measured."""
    report = Report("causal")
    for lifetime_us in (100_000, 250_000):
        _bytes(report, lifetime_us, quick, progress)
    _speed(report, quick, progress)
    _storms(report, quick, progress)
    return report


def _bytes(report: Report, lifetime_us: int, quick: bool, progress: Callable[[str], None]) -> None:
    """Control bytes against the number of nodes, and against the best algorithm without lifetimes."""
    ours: dict[int, Cost] = {}
    longest = lifetime_us * 4 // 5
    for nodes in SIZES:
        progress(f"control bytes of {nodes} nodes, lifetime {lifetime_us // 1000} ms")
        traffic = Traffic(
            nodes, lifetime_us=lifetime_us, longest_delay_us=longest, messages=1_000 if quick else 4_000, warm_up=500
        )
        sends = trace(traffic)
        ours[nodes] = run(DeltaCausal(traffic), traffic, sends)
    theirs = run(Timeless(KshemkalyaniSinghal, nodes), traffic, sends)
    loose = run(Timeless(KshemkalyaniSinghal, nodes, "ungrouped_bytes"), traffic, sends)
    at_most = ours[nodes]
    milliseconds = lifetime_us // 1000
    load = f"control bytes a message, n={nodes}, groups of 3, Δ {milliseconds} ms"
    report.rows.append(
        Row(load, "B", at_most.packed, f"{RIVAL}, packed alike", theirs.packed, target=2, less_is_better=True)
    )
    report.rows.append(
        Row(
            load,
            "B",
            at_most.packed,
            f"{RIVAL}, a byte for a node, two for a counter",
            loose.packed,
            target=2,
            less_is_better=True,
        )
    )
    report.rows.append(
        Row(load, "B", at_most.packed, f"{RIVAL}, 4-byte numbers", theirs.plain, target=2, less_is_better=True)
    )
    exponent = growth([(nodes, cost.packed) for nodes, cost in ours.items()])
    load = f"growth exponent of control bytes, n={SIZES[0]}..{SIZES[-1]}, Δ {milliseconds} ms"
    report.rows.append(Row(load, "", exponent, "linear", 1.0, target=1, less_is_better=True))
    load = f"mean wait at a destination, n={nodes}, Δ {milliseconds} ms"
    same = sorted(at_most.deliveries) == sorted(theirs.deliveries)
    note = f"{len(at_most.deliveries):,} deliveries at the same moments as the rival's: {'yes' if same else 'NO'}"
    report.rows.append(
        Row(load, "us", at_most.mean_wait_us, RIVAL, theirs.mean_wait_us, target=1, less_is_better=True, note=note)
    )


def _speed(report: Report, quick: bool, progress: Callable[[str], None]) -> None:
    """Computing for a message among ten nodes: stamping, encoding, decoding, ordering, delivering."""
    traffic = Traffic(10, messages=1_000, warm_up=500)
    sends = trace(traffic)
    steps: list[float] = []
    packets: list[float] = []
    rival: list[float] = []
    for turn in range(3 if quick else 9):
        progress(f"speed among 10 nodes, turn {turn + 1}")
        cost = run(DeltaCausal(traffic), traffic, sends)
        steps.append(cost.us_a_step)
        packets.append(cost.cpu_ns / 1000 / cost.packets)
        rival.append(run(Timeless(KshemkalyaniSinghal, 10), traffic, sends).us_a_step)
    budget = "a budget of 50 us"
    report.rows.append(
        Row(
            "one step (send to three, or receive), n=10",
            "us",
            median(steps),
            budget,
            50,
            target=1,
            less_is_better=True,
            spread=spread(steps),
            note=f"{RIVAL}, without bytes: {median(rival):.0f} us",
        )
    )
    report.rows.append(
        Row(
            "one message from sender to one receiver, n=10",
            "us",
            median(packets),
            budget,
            50,
            target=1,
            less_is_better=True,
            spread=spread(packets),
            note="a receive and a third of a send to three",
        )
    )


def _storms(report: Report, quick: bool, progress: Callable[[str], None]) -> None:
    """Random worlds, each decision compared with an oracle that knows the whole history."""
    wanted = 100_000 if quick else 10_000_000
    progress(f"{wanted:,} deliveries in random worlds")
    tally, worlds = many_storms(wanted, progress, per_world=2_000 if quick else 25_000)
    load = f"{tally.deliveries:,} deliveries in {worlds} random worlds"
    note = (
        f"{tally.sent:,} sent, {tally.lost:,} copies lost, {tally.doubled:,} doubled, {tally.late:,} late, "
        f"{tally.waited:,} waited, {tally.outlived:,} outlived, {tally.overflowed:,} overflowed, "
        f"{tally.stalled:,} stalled"
    )
    report.rows.append(Row(load + ": out of causal order", "", tally.violations, note=note))
    report.rows.append(Row(load + ": decided otherwise, or later, than the oracle", "", tally.disagreements))
    report.remarks += tally.faults


def growth(points: list[tuple[int, float]]) -> float:
    """The exponent of a power law through the points, by least squares on logarithms."""
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    along = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return along / sum((x - mean_x) ** 2 for x in xs)
