"""`locus bench telemetry`: what it costs the data path to record what it does.

Brokers run at once, alike but for telemetry, and take the same load in turn, many short runs each, so that whatever
else the machine does meets all alike; the generator has one processor, they share the other. Peer is a broker that
records nothing: a ratio of 0.95 is a cost of 5 %. A second broker that records nothing is the control: its ratio to the
first would be 1 if nothing else made a difference, and what it is off by is how far the other ratios can be trusted.

The target is judged by processor time. A broker that saturates its processor loses as much throughput as it spends more
on a message, and on a machine with other work the throughput of two equal brokers differs by more than 20 %, their
processor time by a few. Throughput is told beside it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
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
RUN_SECONDS = 1.0
REPEATS = 15
QUICK_REPEATS = 4
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


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    """Run every load on a broker that records and on two that do not, in turn."""
    report = Report("telemetry")
    repeats = QUICK_REPEATS if quick else REPEATS
    ways: list[tuple[str, dict[str, object], float | None]] = [("default pace", {}, TARGET)]
    if not quick:
        ways.append(("every message", EVERYTHING, None))
    for words, options, target in ways:
        with contextlib.ExitStack() as stack:
            spool = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="locus-spool-")))
            recording: dict[str, object] = {"enabled": True, "spool_dir": str(spool), **options}
            silent: dict[str, object] = {"enabled": False}
            brokers = [stack.enter_context(_broker(each)) for each in (recording, silent, silent)]
            stack.enter_context(_apart(brokers))
            for load in LOADS:
                outcomes = _in_turn(brokers, load, repeats)
                report.rows += _rows(f"{load[0]}, {words}", outcomes, target)
                progress(f"{load[0]}, {words}: {report.rows[-2].ratio:.3f} of processor time, {report.rows[-2].note}")
            brokers[0].stop()
            report.remarks.append(f"Recording, {words}: {_written(spool)}.")
    report.remarks.append(
        f"{repeats} runs of {RUN_SECONDS:g} s on each broker in turn, medians. Processor time is the broker's own, with"
        " the thread that writes, by delivery. Control is one broker without telemetry against another."
    )
    return report


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


def _in_turn(brokers: Sequence[RunningBroker], load: Load, repeats: int) -> list[list[Outcome]]:
    """The outcomes of each broker; who comes first changes from turn to turn."""
    _, topics, filters, copies, qos, window = load
    outcomes: list[list[Outcome]] = [[] for _ in brokers]
    with contextlib.ExitStack() as stack:
        flows = [
            stack.enter_context(stream(broker, topics=topics, filters=filters, copies=copies, qos=qos, window=window))
            for broker in brokers
        ]
        for flow in flows:
            flow.warm_up(0.2)
        for repeat in range(repeats):
            for place in range(len(flows)):
                which = (repeat + place) % len(flows)
                outcomes[which].append(flows[which].run(RUN_SECONDS))
    return outcomes


def _rows(name: str, outcomes: Sequence[Sequence[Outcome]], target: float | None) -> list[Row]:
    """Processor time with its control, then throughput with its control."""
    costs = [[each.broker_busy / each.figures[""] * 1e6 for each in some] for some in outcomes]
    rates = [[each.figures[""] for each in some] for some in outcomes]
    dropped = sum(each.dropped for some in outcomes for each in some)
    rows: list[Row] = []
    for kind, unit, (on, off, control), aim, less in (
        ("processor time", "us/delivery", costs, target, True),
        ("throughput", "deliveries/s", rates, None, False),
    ):
        note = f"control {Row('', '', median(control), '', median(off), less_is_better=less).ratio:.3f}"
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
