"""`locus bench broker`: the data path of Locus against Mosquitto and against stock amqtt, in one interleaved run.

Every load runs on every broker in turn, and then all of that again, so that whatever else the machine does meets all
of them alike. Each run starts a fresh broker (`--quick` keeps one of each for most loads). Loads come in two ways that
are never quoted for each other: *pipelined*, where a publisher writes many messages at once and a broker gains by
coalescing, and *one at a time*, where the next message waits for the last.
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import psutil

from benchmarks import peers
from benchmarks.connections import connect_rate, memory_per_connection
from benchmarks.latency import PERCENTILES, latency
from benchmarks.load import LoadError, Outcome, ceiling, stream
from benchmarks.report import Report, Row, figure, median, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.peers import RunningBroker

    Starter = Callable[[], contextlib.AbstractContextManager[RunningBroker]]

LOCUS, MOSQUITTO, AMQTT = "locus", "mosquitto", "amqtt"
REPEATS = 5
QUICK_REPEATS = 2
WINDOW = 500
"""Messages under way when pipelining: Mosquitto queues a thousand for a subscriber, then drops."""
WINDOW_QOS_2 = 20
"""The same at QoS 2: of a publisher that has 21 under way, Mosquitto 2.0.11 as Debian ships it loses one."""
BYTES_PER_CONNECTION = 4096
FILTERS = 10_000
P99_TARGET = 1 / 1.5


@dataclass(slots=True, frozen=True)
class Figure:
    """One number a load gives: the name of its row, what it is in, and the ratio to Mosquitto to be reached."""

    row: str
    unit: str
    target: float | None = None
    less_is_better: bool = False


@dataclass(slots=True, frozen=True)
class Load:
    """Something done to each broker.

    Args:
        name: what is done, in words.
        figures: what it gives.
        run: does it, for as long (or as often) as the second argument says.
        seconds: that argument, and the one with `--quick`.
        fresh: whether the broker must be a new one even with `--quick`.
        quick_on_amqtt: whether stock amqtt takes part with `--quick`; it needs minutes for some loads.
    """

    name: str
    figures: Mapping[str, Figure]
    run: Callable[[RunningBroker, float], Outcome]
    seconds: tuple[float, float] = (0.8, 0.25)
    fresh: bool = False
    quick_on_amqtt: bool = False


@dataclass(slots=True)
class Results:
    """All runs of one load."""

    load: Load
    outcomes: dict[str, list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)

    def values(self, broker: str, key: str) -> list[float]:
        """What a broker's runs gave for one figure."""
        return [outcome.figures[key] for outcome in self.outcomes[broker]]


def measure(quick: bool, progress: Callable[[str], None], only: Sequence[str] = ()) -> Report:
    """Run every load on every broker; with `only`, the loads whose name contains one of these."""
    peers.raise_descriptor_limit()
    starters = _starters()
    everything = [Results(load) for load in _loads(quick) if not only or any(word in load.name for word in only)]
    repeats = QUICK_REPEATS if quick else REPEATS
    for repeat in range(repeats):
        with _Brokers(starters) as brokers:
            for results in everything:
                for name in starters:
                    if name == AMQTT and quick and (repeat or not results.load.quick_on_amqtt):
                        continue
                    _run_once(results, name, brokers, quick)
                progress(f"[{repeat + 1}/{repeats}] {results.load.name}: {_latest(results)}")
    report = Report("broker", rows=[row for results in everything for row in _rows(results)])
    report.remarks = _remarks(starters, repeats)
    return report


def _starters() -> dict[str, Starter]:
    """How to start each broker there is, Locus first."""
    starters: dict[str, Starter] = {LOCUS: lambda: peers.locus(plugins=peers.default_plugins())}
    if peers.mosquitto_path():
        starters[MOSQUITTO] = peers.mosquitto
    starters[AMQTT] = peers.stock_amqtt
    return starters


class _Brokers(contextlib.ExitStack):
    """Starts brokers when they are needed, and keeps one of each for the loads of one repeat."""

    def __init__(self, starters: dict[str, Starter]) -> None:
        super().__init__()
        self._starters = starters
        self._kept: dict[str, RunningBroker] = {}

    @contextlib.contextmanager
    def get(self, name: str, *, fresh: bool) -> Iterator[RunningBroker]:
        """A broker for one run."""
        if fresh:
            with self._starters[name]() as broker:
                yield broker
            return
        if name not in self._kept:
            self._kept[name] = self.enter_context(self._starters[name]())
        yield self._kept[name]


def _run_once(results: Results, name: str, brokers: _Brokers, quick: bool) -> None:
    """One run of a load on one broker; a peer that fails is noted, a failure of Locus ends the benchmark."""
    load = results.load
    try:
        with brokers.get(name, fresh=load.fresh) as broker, _apart(broker):
            results.outcomes[name].append(load.run(broker, load.seconds[quick]))
    except (LoadError, OSError, peers.BrokerDidNotStartError) as problem:
        if name == LOCUS:
            raise LoadError(f"{load.name} on Locus: {problem}") from problem
        results.failures[name] = str(problem)


@contextlib.contextmanager
def _apart(broker: RunningBroker) -> Iterator[None]:
    """Give the generator a processor of its own and the broker the others.

    Where the scheduler happens to put two processes that wake each other decides more than which broker it is: messages
    sent one at a time differ threefold between one processor and two.
    """
    everywhere = os.sched_getaffinity(0)
    ours = {max(everywhere)}
    for thread in psutil.Process(broker.process.pid).threads():
        os.sched_setaffinity(thread.id, everywhere - ours or everywhere)
    os.sched_setaffinity(0, ours)
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


def _latest(results: Results) -> str:
    """The last run of each broker, for someone who waits."""
    key, what = next(iter(results.load.figures.items()))
    last = {name: outcomes[-1] for name, outcomes in results.outcomes.items() if outcomes}
    return ", ".join(f"{name} {figure(outcome.figures[key])}" for name, outcome in last.items()) + f" {what.unit}"


def _rows(results: Results) -> Iterator[Row]:
    """A row for each figure and peer."""
    for key, what in results.load.figures.items():
        ours = results.values(LOCUS, key)
        for peer in (MOSQUITTO, AMQTT):
            theirs = results.values(peer, key)
            if theirs or peer in results.failures:
                yield Row(
                    what.row,
                    what.unit,
                    median(ours),
                    peer,
                    median(theirs) if theirs else None,
                    what.target if peer == MOSQUITTO else None,
                    what.less_is_better,
                    spread(ours),
                    _note(results, peer, theirs),
                )
        if key == "bytes":
            bound = f"{what.row}, bound"
            yield Row(bound, what.unit, median(ours), "bound", BYTES_PER_CONNECTION, 1.0, less_is_better=True)
        if key == "held":
            yield Row(f"{what.row}, bound", what.unit, min(ours), "asked for", results.load.seconds[0], 1.0)


def _note(results: Results, peer: str, theirs: Sequence[float]) -> str:
    """How sure the peer's value is, who was busy, and what got lost."""
    if peer in results.failures:
        return f"{peer} failed: {results.failures[peer]}"
    parts = [f"{peer} ±{spread(theirs):.0%}"]
    ours, others = results.outcomes[LOCUS], results.outcomes[peer]
    for name, outcomes in ((LOCUS, ours), (peer, others)):
        busy, generator = (median([getattr(each, what) for each in outcomes]) for what in ("broker_busy", "busy"))
        parts.append(f"busy {name} {busy:.0%} generator {generator:.0%}")
        if dropped := sum(each.dropped for each in outcomes):
            parts.append(f"{name} dropped {dropped}")
    return ", ".join(parts)


def _loads(quick: bool) -> list[Load]:
    """Every load, those that leave traces in a broker last."""
    rate = partial(Figure, unit="msg/s", target=1.0)
    deliveries = partial(Figure, unit="deliveries/s", target=1.0)
    loads = []
    for qos in (0, 1, 2):
        window = WINDOW_QOS_2 if qos == 2 else WINDOW
        for way, size in ((f"pipelined {window}", window), ("one at a time", 1)):
            name = f"one to one, QoS {qos}, {way}"
            run = partial(_stream, topics=[["t/one"]], filters=[["t/one"]], copies=1, qos=qos, window=size)
            loads.append(Load(name, {"": rate(name)}, run, quick_on_amqtt=not qos))
    for way, size in ((f"pipelined {WINDOW}", WINDOW), ("one at a time", 1)):
        name = f"one to 100, QoS 0, {way}"
        run = partial(_stream, topics=[["t/one"]], filters=[["t/one"]] * 100, copies=100, qos=0, window=size)
        loads.append(Load(name, {"": deliveries(name)}, run, quick_on_amqtt=size > 1))
    for way, size in (("five each at a time", 1000), ("one each at a time", 200)):
        name = f"200 publishers to one, QoS 0, {way}"
        run = partial(_stream, topics=[["t/one"]] * 200, filters=[["t/one"]], copies=1, qos=0, window=size)
        loads.append(Load(name, {"": rate(name)}, run))
    for per_second in (200, 1000):
        figures = {
            key: Figure(f"{key} at {per_second} msg/s", "us", P99_TARGET if key == "p99" else None, less_is_better=True)
            for key in PERCENTILES
        }
        seconds = (5.0 if per_second == 200 else 3.0, 0.7)
        loads.append(Load(f"latency at {per_second} msg/s", figures, partial(_latency, rate=per_second), seconds))
    shuffled = random.Random(1).sample(range(FILTERS), FILTERS)
    for kind, topic, wild in (("exact", "f/{:05}/k/x", "f/{:05}/k/x"), ("wildcard", "a/{:05}/k/x", "a/{:05}/+/x")):
        for way, size in ((f"pipelined {WINDOW}", WINDOW), ("one at a time", 1)):
            name = f"10,000 {kind} filters over 100 clients, {way}"
            topics = [[topic.format(number) for number in shuffled]]
            filters = [[wild.format(number) for number in range(client, FILTERS, 100)] for client in range(100)]
            run = partial(_stream, topics=topics, filters=filters, copies=1, qos=0, window=size)
            on_amqtt = kind == "exact" and size > 1
            loads.append(Load(name, {"": rate(name)}, run, fresh=on_amqtt, quick_on_amqtt=on_amqtt))
    for beside in (1000, 5000):
        name = f"connects with {beside:,} standing"
        figures = {"": Figure(name, "connects/s", 1.0), "per cpu": Figure(f"{name}, of the broker's cpu", "connects/s")}
        loads.append(Load(name, figures, partial(_connects, beside=beside), (2.0, 0.3)))
    count = 2_000 if quick else 10_000
    figures = {
        "bytes": Figure("memory per idle connection", "bytes", less_is_better=True),
        "held": Figure(f"{count:,} connections held", "connections"),
    }
    loads.append(Load(f"{count:,} idle connections", figures, _idle, (count, count), fresh=True))
    return loads


def _stream(
    broker: RunningBroker,
    seconds: float,
    *,
    topics: Sequence[Sequence[str]],
    filters: Sequence[Sequence[str]],
    copies: int,
    qos: int,
    window: int,
) -> Outcome:
    with stream(broker, topics=topics, filters=filters, copies=copies, qos=qos, window=window) as flow:
        flow.warm_up(seconds / 10)
        return flow.run(seconds)


def _latency(broker: RunningBroker, seconds: float, *, rate: float) -> Outcome:
    latency(broker, rate=1000, seconds=0.1)
    return latency(broker, rate=rate, seconds=seconds)


def _connects(broker: RunningBroker, seconds: float, *, beside: int) -> Outcome:
    return connect_rate(broker, beside=beside, seconds=seconds)


def _idle(broker: RunningBroker, count: float) -> Outcome:
    return memory_per_connection(broker, round(count))


def _remarks(starters: Mapping[str, Starter], repeats: int) -> list[str]:
    """What a reader must know of the run."""
    machine = f"{os.cpu_count()} processors, Linux {platform.release()}, Python {platform.python_version()}"
    alone = figure(ceiling(0.2))
    remarks = [
        f"{repeats} interleaved repeats, medians; ± is half the distance between the quartiles. {machine}.",
        "Payloads of 64 bytes. The generator has a processor of its own and the broker has the others.",
        (
            "`busy` is the share of one processor: where a broker is near 100 %, it is the limit, not the generator. "
            f"The generator alone, its publisher wired to its subscriber, does {alone} msg/s."
        ),
        (
            f"Pipelined loads keep at most {WINDOW} messages under way ({WINDOW_QOS_2} at QoS 2) and write a quarter "
            "of that at once; they show what coalescing gains and say nothing about single messages."
        ),
    ]
    if MOSQUITTO not in starters:
        remarks.append("Mosquitto is not installed, so nothing was measured against it: apt-get install mosquitto.")
    return remarks


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    table = measure("--quick" in sys.argv, lambda line: print(line, file=sys.stderr, flush=True), words)
    print(table.as_table())
