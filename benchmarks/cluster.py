"""The broker network: what nodes cost, how far a message is from one to the next, and what travels between them.

All nodes, the NATS server and the load generator share one machine, so what a second node adds in processors is hidden:
what shows is what it costs. Each figure stands beside the same load on a single node without a cluster, in one run.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks import cluster_city
from benchmarks.cluster_geo import measure_geo
from benchmarks.cluster_nodes import JOIN_SECONDS, nodes
from benchmarks.latency import latency
from benchmarks.load import (
    PAYLOAD_BYTES,
    LoadError,
    Publisher,
    Stream,
    Subscriber,
    open_socket,
    publish_packets,
    subscribe,
)
from benchmarks.report import Report, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.cluster_nodes import Nodes

RATE = 200.0
WINDOW = 400


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    """Run every load on a broker alone and on clusters of one, two and three nodes."""
    report = Report("cluster")
    seconds, repeats = (1.0, 1) if quick else (5.0, 3)
    _measure_latency(report, seconds, repeats, progress)
    _measure_rates(report, seconds, repeats, progress)
    measure_geo(report, quick, progress)
    _measure_city(report, quick, progress)
    report.remarks += [
        "peer `alone`: the same load on one broker without a cluster; ratio of a time: alone / cluster",
        "all nodes, NATS and the load share the processors of one machine: here a second node only adds work",
    ]
    return report


def _measure_latency(report: Report, seconds: float, repeats: int, progress: Callable[[str], None]) -> None:
    """From one node to another at a steady rate, against the same within one node, turn and turn about."""
    near: dict[tuple[int, str], list[float]] = {}
    far: dict[tuple[int, str], list[float]] = {}
    with nodes(2) as pair:
        first, second = pair.brokers
        for number in range(repeats):
            for qos in (0, 1):
                progress(f"cluster: latency at QoS {qos}, {number + 1} of {repeats}")
                for into, to in ((near, None), (far, second)):
                    outcome = latency(first, rate=RATE, seconds=seconds, to=to, qos=qos)
                    for name in ("p50", "p99"):
                        into.setdefault((qos, name), []).append(outcome.figures[name])
    for (qos, name), values in far.items():
        report.rows.append(
            Row(
                f"QoS {qos} from node to node at {RATE:g}/s, {name}",
                "us",
                statistics.median(values),
                "within a node",
                statistics.median(near[qos, name]),
                target=1 / 3 if name == "p99" else None,
                less_is_better=True,
            )
        )


def _measure_rates(report: Report, seconds: float, repeats: int, progress: Callable[[str], None]) -> None:
    """A publisher and a subscriber on every node; every subscriber hears every publisher."""
    for qos in (0, 1):
        rates: dict[int, list[float]] = {}
        copies: dict[int, tuple[float, float]] = {}
        for count in (0, 1, 2, 3):
            with nodes(count) as running:
                for number in range(repeats):
                    progress(f"cluster: {count or 'no'} nodes, QoS {qos}, {number + 1} of {repeats}")
                    rate, sent, size = _everybody(running, max(count, 1), qos, seconds)
                    rates.setdefault(count, []).append(rate)
                    copies[count] = sent, size
        alone = statistics.median(rates[0])
        for count in (1, 2, 3):
            sent, size = copies[count]
            between = f"{sent:.3f} copies and {size:.0f} bytes between nodes a needed copy" if count > 1 else ""
            report.rows.append(
                Row(
                    f"QoS {qos}, publishes/s, {count} node{'s' if count > 1 else ''}, every subscriber hears all",
                    "msg/s",
                    statistics.median(rates[count]) / count,
                    "alone",
                    alone,
                    note=f"{statistics.median(rates[count]):.0f} deliveries/s; {between}".rstrip("; "),
                )
            )
            if count > 1:
                report.rows.append(
                    Row(
                        f"QoS {qos}, messages between nodes, {count} nodes",
                        "copies",
                        sent,
                        "least possible",
                        1.0,
                        target=1 / 1.1,
                        less_is_better=True,
                        note=f"{size:.0f} bytes a copy; topic and payload are {PAYLOAD_BYTES + len('t/0')}",
                    )
                )


def _measure_city(report: Report, quick: bool, progress: Callable[[str], None]) -> None:
    """A crowd that moves over three nodes: blocks by load alone, with slow regions beside them, and those alone."""
    settings = cluster_city.Settings(300, 5, 0.5) if quick else cluster_city.Settings()
    seeds = (1,) if quick else (1, 2, 3)
    schemes = cluster_city.SCHEMES[quick:]  # in a hurry without R
    runs = {scheme: [cluster_city.run(scheme, settings, seed, progress) for seed in seeds] for scheme in schemes}
    what = (
        f"{settings.users} roaming subscribers, {settings.rounds} rounds of {settings.round_s:g} s, "
        f"{len(seeds)} world{'s' if len(seeds) > 1 else ''}"
    )
    for label, unit, name, target in (
        ("blocks", "blocks", "blocks", 1 / 0.7),
        ("handovers between nodes", "handovers", "handovers", 1.0),
        ("blocks that changed their owner", "moves", "moves", None),
        ("messages between nodes", "messages", "forwarded", None),
        ("messages left out as doubles after a handover", "messages", "retransmissions", None),
    ):
        means = {scheme: statistics.fmean(getattr(city, name) for city in cities) for scheme, cities in runs.items()}
        report.rows += [
            Row(
                f"{label}, {what}",
                unit,
                means["Q+R"],
                f"{scheme} only",
                means[scheme],
                target=target if scheme == "Q" else None,
                less_is_better=True,
                note=_worlds(runs, name, ("Q+R", scheme)),
            )
            for scheme in schemes
            if scheme != "Q+R"
        ]
    for scheme, cities in runs.items():
        report.rows.append(
            Row(
                f"messages between nodes, {scheme}, {what}",
                "copies",
                sum(city.forwarded for city in cities) / max(sum(city.needed for city in cities), 1),
                "least possible",
                1.0,
                target=1 / 1.1,
                less_is_better=True,
                note=f"{sum(city.delivered for city in cities)} deliveries of "
                f"{sum(city.published for city in cities)} events",
            )
        )


def _worlds(runs: dict[str, list[cluster_city.City]], name: str, schemes: Sequence[str]) -> str:
    """What it was in each world."""
    return "; ".join(
        f"{scheme} {', '.join(f'{getattr(city, name):.0f}' for city in runs[scheme])}" for scheme in schemes
    )


def _everybody(running: Nodes, count: int, qos: int, seconds: float) -> tuple[float, float, float]:
    """Deliveries a second, and per copy that is needed: copies and bytes that went between nodes."""
    with ExitStack() as stack:
        topics = [f"t/{number}" for number in range(count)]
        packets = [publish_packets((topic,), qos) for topic in topics]
        subscribers = []
        for number, broker in enumerate(running.brokers):
            connection = stack.enter_context(open_socket(broker.port, f"subscriber-{number}"))
            subscribe(connection, ["t/+"], qos)
            subscribers.append(Subscriber(connection, packets[0].size, qos))
        publishers = [
            Publisher(stack.enter_context(open_socket(broker.port, f"publisher-{number}")), packets[number], qos)
            for number, broker in enumerate(running.brokers)
        ]
        _wait_until_all_hear(publishers, subscribers)
        stream = Stream(publishers, subscribers, count, qos, WINDOW, running.brokers[0])
        before = [running.counted(name) for name in ("forwarded", "forwarded_bytes")]
        outcome = stream.run(seconds)
        after = [running.counted(name) for name in ("forwarded", "forwarded_bytes")]
        rate = outcome.figures[""]
        if outcome.dropped:
            raise LoadError(f"{outcome.dropped} messages did not arrive")
        if count == 1:
            return rate, 0.0, 0.0
        copies, size = after[0] - before[0], after[1] - before[1]
        needed = outcome.sent * (count - 1)
        return rate, copies / needed, size / copies


def _wait_until_all_hear(publishers: Sequence[Publisher], subscribers: Sequence[Subscriber]) -> None:
    """Send until every publisher was heard by every subscriber, then wait for the rest."""
    for subscriber in subscribers:
        subscriber.socket.settimeout(0.2)
    deadline = time.monotonic() + JOIN_SECONDS
    for publisher in publishers:
        while time.monotonic() < deadline:
            publisher.send(1)
            heard = [_hears(subscriber) for subscriber in subscribers]  # each reads what is there
            if all(heard):
                break
        else:
            raise LoadError(f"a node was not heard on all others within {JOIN_SECONDS:g} s")
    clients: list[Subscriber | Publisher] = [*subscribers, *publishers]
    for each in clients:  # what came late, and acknowledgements
        each.socket.settimeout(0.2)
        while _hears(each):
            pass


def _hears(client: Subscriber | Publisher) -> bool:
    try:
        return client.receive() > 0
    except TimeoutError:
        return False
