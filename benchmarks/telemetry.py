"""`locus bench telemetry`: what it costs the data path to record what it does.

Brokers run at once, alike but for telemetry, and take the same load in turn, many short runs each, so that whatever
else the machine does meets all alike; the generator has one processor, they share the other. Peer is a broker that
records nothing: a ratio of 0.95 is a cost of 5 %. A second broker that records nothing is the control: its ratio to the
first would be 1 if nothing else made a difference, and what it is off by is how far the other ratios can be trusted.
One more records without a journal, so that the difference is what the journal costs.

The target is judged by processor time. A broker that saturates its processor loses as much throughput as it spends more
on a message, and on a machine with other work the throughput of two equal brokers differs by more than 20 %, their
processor time by a few. Throughput is told beside it. Segments are closed when it is time, not while their load runs:
so a broker's processor time counts from one of its runs to the next, less what it takes when it has nothing to do.

Beside it stands how much of a processor recording took: what it added to a delivery, times deliveries in a second. A
client that sends one message at a time loses that share of its throughput: for the rest of its time it does not wait
for the broker's processor. And a broker that has little to do, or gets little of a crowded machine, may spend 0.3 % of
a processor on recording however little it spends on the rest (`max_cost`).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks import peers
from benchmarks.load import stream
from benchmarks.report import Report, Row, median, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.load import Outcome
    from benchmarks.peers import RunningBroker

TELEMETRY = "broker_plugins.telemetry.plugin.TelemetryPlugin"
RUN_SECONDS = 3.0
REPEATS = 5
QUICK_RUN_SECONDS = 1.5
QUICK_REPEATS = 2
TARGET = 0.95

Load = tuple[str, list[list[str]], list[list[str]], int, int, int]
"""Its name, topics of each publisher, filters of each subscriber, copies, QoS, window."""

LOADS: list[Load] = [
    ("one to one, QoS 0, pipelined 500", [["t/one"]], [["t/one"]], 1, 0, 500),
    ("one to one, QoS 0, one at a time", [["t/one"]], [["t/one"]], 1, 0, 1),
    ("one to one, QoS 1, pipelined 500", [["t/one"]], [["t/one"]], 1, 1, 500),
    ("one to 100, QoS 0, pipelined 500", [["t/one"]], [["t/one"]] * 100, 100, 0, 500),
]
EVERYTHING: dict[str, object] = {"max_messages_per_s": 0}
IDLE_SECONDS = 4.0


@dataclass(slots=True)
class Cycle:
    """One run of a load on a broker, and the time until its next one.

    Args:
        cost_us: processor time of a delivery.
        rate: deliveries in a second of the run.
        dropped: deliveries that never came.
    """

    cost_us: float
    rate: float
    dropped: int


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    """Run every load on brokers that record and on two that do not, in turn."""
    report = Report("telemetry")
    repeats, seconds = (QUICK_REPEATS, QUICK_RUN_SECONDS) if quick else (REPEATS, RUN_SECONDS)
    ways: list[tuple[str, dict[str, object], float | None]] = [("default pace", {}, TARGET)]
    if not quick:
        ways.append(("every message", EVERYTHING, None))
    for words, options, target in ways:
        with contextlib.ExitStack() as stack:
            spools = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="locus-spool-"))) for _ in range(2)]
            recording: list[dict[str, object]] = [
                {"enabled": True, "spool_dir": str(spool), "journal": journal, **options}
                for spool, journal in zip(spools, ("turn", "off"), strict=True)
            ][: 1 if quick else 2]
            silent: dict[str, object] = {"enabled": False}
            brokers = [stack.enter_context(_broker(each)) for each in (*recording, silent, silent)]
            stack.enter_context(_apart(brokers))
            idle = _idle(brokers)
            for load in LOADS:
                cycles = _in_turn(brokers, idle, load, repeats, seconds)
                rows = _rows(f"{load[0]}, {words}", cycles, target)
                report.rows += rows
                progress(f"{load[0]}, {words}: {rows[0].ratio:.3f} of processor time, {rows[0].note}")
            brokers[0].stop()
            report.remarks.append(f"Recording, {words}: {_written(spools[0])}.")
    report.remarks.append(
        f"{repeats} runs of {seconds:g} s on each broker in turn, medians. Processor time is the broker's own, with"
        " the thread that writes, by delivery. Control is one broker without telemetry against another. The share of a"
        " processor is what recording added to a delivery, times deliveries in a second."
    )
    return report


def _processor_s(broker: RunningBroker) -> float:
    """Processor time of all threads of a broker so far; finer than the clock ticks that `times` counts in."""
    spent = 0
    for task in Path(f"/proc/{broker.process.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def _idle(brokers: Sequence[RunningBroker]) -> list[float]:
    """What each broker takes of a processor when it has nothing to do."""
    before = [_processor_s(broker) for broker in brokers]
    time.sleep(IDLE_SECONDS)
    return [(_processor_s(broker) - spent) / IDLE_SECONDS for broker, spent in zip(brokers, before, strict=True)]


def _broker(options: dict[str, object]) -> contextlib.AbstractContextManager[RunningBroker]:
    return peers.locus(plugins={**peers.default_plugins(), TELEMETRY: options})


@contextlib.contextmanager
def _apart(brokers: Sequence[RunningBroker]) -> Iterator[None]:
    """Give the generator one processor and all brokers, with their threads, the others."""
    everywhere = os.sched_getaffinity(0)
    ours = {max(everywhere)}
    for broker in brokers:
        for thread in psutil.Process(broker.process.pid).threads():
            os.sched_setaffinity(thread.id, everywhere - ours or everywhere)
    os.sched_setaffinity(0, ours)
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


def _in_turn(
    brokers: Sequence[RunningBroker], idle: Sequence[float], load: Load, repeats: int, seconds: float
) -> list[list[Cycle]]:
    """The cycles of each broker; who comes first changes from turn to turn."""
    _, topics, filters, copies, qos, window = load
    starts: list[list[tuple[float, float]]] = [[] for _ in brokers]
    outcomes: list[list[tuple[Outcome, float]]] = [[] for _ in brokers]
    with contextlib.ExitStack() as stack:
        flows = [
            stack.enter_context(stream(broker, topics=topics, filters=filters, copies=copies, qos=qos, window=window))
            for broker in brokers
        ]
        for flow in flows:
            flow.warm_up(0.2)
        for repeat in range(repeats + 1):
            for place in range(len(flows)):
                which = (repeat + place) % len(flows)
                started = time.monotonic()
                starts[which].append((started, _processor_s(brokers[which])))
                if repeat < repeats:
                    outcome = flows[which].run(seconds)
                    outcomes[which].append((outcome, time.monotonic() - started))
    cycles: list[list[Cycle]] = []
    for at, some in enumerate(outcomes):
        cycles.append([])
        for number, (outcome, ran_s) in enumerate(some):
            (began, spent), (ended, more) = starts[at][number : number + 2]
            deliveries = outcome.sent * copies - outcome.dropped
            cost_s = more - spent - idle[at] * (ended - began - ran_s)
            cycles[at].append(Cycle(cost_s / max(deliveries, 1) * 1e6, outcome.figures[""], outcome.dropped))
    return cycles


def _rows(name: str, cycles: Sequence[Sequence[Cycle]], target: float | None) -> list[Row]:
    """Processor time with its control, the same without a journal, then throughput with its control."""
    costs = [[each.cost_us for each in some] for some in cycles]
    rates = [[each.rate for each in some] for some in cycles]
    dropped = sum(each.dropped for some in cycles for each in some)
    rows: list[Row] = []
    ways: list[tuple[str, str, Sequence[list[float]], float | None, bool]] = [
        ("processor time", "us/delivery", (costs[0], *costs[-2:]), target, True),
        ("throughput", "deliveries/s", (rates[0], *rates[-2:]), None, False),
    ]
    if len(cycles) > 3:
        ways.insert(1, ("processor time without journal", "us/delivery", costs[1:], None, True))
    for kind, unit, (on, off, control), aim, less in ways:
        note = f"control {Row('', '', median(control), '', median(off), less_is_better=less).ratio:.3f}"
        if less:
            note += f", {(median(on) - median(off)) * median(rates[0]) / 1e4:.1f} % of a processor"
        if dropped:
            note += f", dropped {dropped}"
        rows.append(
            Row(f"{name}, {kind}", unit, median(on), "off", median(off), aim, less, spread=spread(on), note=note)
        )
    return rows


def _written(spool: Path) -> str:
    """What is in a spool, in words."""
    from pyarrow import parquet

    parts = []
    for directory in sorted(spool.glob("table=*")):
        files = list(directory.rglob("*.parquet"))
        records = sum(parquet.ParquetFile(file).metadata.num_rows for file in files)
        size = sum(file.stat().st_size for file in files)
        parts.append(f"{directory.name[6:]} {records:,} records in {len(files)} segments, {size / 1e6:.1f} MB")
    return "; ".join(parts) or "nothing"
