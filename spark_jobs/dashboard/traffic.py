"""What flows: the windows that Spark shows under `locus/metrics/`, and the broker's own counters under `$SYS/`."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from spark_jobs.dashboard.payloads import number, read_object

METRICS: Final = "locus/metrics/"
SYS: Final = "$SYS/broker/"
KEPT: Final = {"1s": 600, "10s": 360, "1min": 240}
"""So many windows of a node are kept, by width: ten minutes, an hour, four hours."""
MOST_NODES: Final = 64
MOST_PLACES: Final = 4_000
MOST_FIGURES: Final = 2_000
ROUNDS: Final = 720
ROUND_S: Final = 0.4
"""A round of `$SYS` topics has come whole when so much time has passed since its first."""
COUNTERS: Final = (
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
    "bytes/received",
    "bytes/sent",
)
"""Counters that are worth a rate."""
FLOWS: Final = ("publishes_per_s", "deliveries_per_s", "drops_per_s")
"""Of these a place has some, or it is quiet."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the past: how long it is, and how wide its windows are, in seconds."""

    seconds: int
    width: int


SPANS: Final = {"Hour": Span(3_600, 10), "Day": Span(86_400, 300), "Week": Span(604_800, 1_800)}
"""What can be looked at of the past."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window of one node: when it began, how long it is, and what happened in it."""

    start_s: float
    seconds: float
    values: dict[str, float]

    def get(self, name: str) -> float | None:
        """One of its values; None where it was left out."""
        return self.values.get(name)


@dataclass(slots=True)
class Node:
    """A node of which metrics came."""

    name: str
    windows: dict[str, deque[Window]] = field(default_factory=dict)
    heard_s: float = 0.0

    def latest(self, width: str = "10s") -> Window | None:
        """The last window of a width."""
        kept = self.windows.get(width)
        return kept[-1] if kept else None


def read_window(payload: bytes) -> Window | None:
    """A window as `locus/metrics/…` shows it; None for anything else."""
    content = read_object(payload)
    if content is None:
        return None
    start, seconds = content.get("from"), number(content.get("seconds"))
    if not isinstance(start, str) or not seconds or seconds < 0:
        return None
    try:
        start_s = datetime.fromisoformat(start).timestamp()
    except (ValueError, OverflowError):
        return None
    values = {name: found for name, value in content.items() if (found := number(value)) is not None}
    return Window(start_s, seconds, values)


class Metrics:
    """The windows of all nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._places: dict[tuple[str, str, str], Window] = {}
        self.heard_s: float | None = None
        """When the last window came that was not retained from before; None while none did."""

    def take(self, topic: str, payload: bytes, now_s: float, *, retained: bool) -> bool:
        """Take in a message; whether it was a window."""
        if not topic.startswith(METRICS):
            return False
        levels = topic.removeprefix(METRICS).split("/", 3)
        match levels:
            case [name, width] if width in KEPT:
                window = read_window(payload)
                if window is None:
                    return False
                node = self._node(name)
                if node is None:
                    return False
                _put(node.windows.setdefault(width, deque(maxlen=KEPT[width])), window)
                if not retained:
                    node.heard_s = self.heard_s = now_s
                return True
            case [name, "10s", scope, key] if scope in ("prefix", "cell"):
                window = read_window(payload)
                if window is None:
                    self._places.pop((name, scope, key), None)
                elif (name, scope, key) in self._places or len(self._places) < MOST_PLACES:
                    self._places[name, scope, key] = window
                return True
        return False

    def _node(self, name: str) -> Node | None:
        node = self.nodes.get(name)
        if node is None and len(self.nodes) < MOST_NODES:
            node = self.nodes[name] = Node(name)
        return node

    def places(self, scope: str) -> list[tuple[str, str, Window]]:
        """Node, key and last window of the prefixes or cells where something flows, the busiest first."""
        found = [
            (node, key, window)
            for (node, kind, key), window in self._places.items()
            if kind == scope and any(window.get(name) for name in FLOWS)
        ]
        return sorted(found, key=lambda entry: -(entry[2].get("publishes_per_s") or 0.0))

    def series(self, value: str, width: str = "10s", node: str | None = None) -> list[tuple[float, float | None]]:
        """A value over time, of one node or summed over all; a window without it has None."""
        chosen = [n for name, n in self.nodes.items() if node is None or name == node]
        sums: dict[float, float | None] = {}
        for each in chosen:
            for window in each.windows.get(width, ()):
                found = window.get(value)
                before = sums.get(window.start_s)
                sums[window.start_s] = before if found is None else (before or 0.0) + found
        return sorted(sums.items())

    def mean(self, value: str, weight: str, width: str = "10s") -> list[tuple[float, float | None]]:
        """A value over time that is a mean already, over all nodes: each counts as much as it has of the weight."""
        sums: dict[float, tuple[float, float]] = {}
        for each in self.nodes.values():
            for window in each.windows.get(width, ()):
                found, heavy = window.get(value), window.get(weight) or 0.0
                whole, weighed = sums.get(window.start_s, (0.0, 0.0))
                sums[window.start_s] = (whole, weighed) if found is None else (whole + found * heavy, weighed + heavy)
        return [(at_s, whole / weighed if weighed else None) for at_s, (whole, weighed) in sorted(sums.items())]

    def worst(self, value: str, width: str = "10s") -> list[tuple[float, float | None]]:
        """A value over time, of the node where it is largest: quantiles do not add up."""
        most: dict[float, float | None] = {}
        for each in self.nodes.values():
            for window in each.windows.get(width, ()):
                found, before = window.get(value), most.get(window.start_s)
                most[window.start_s] = before if found is None else max(found, before or 0.0)
        return sorted(most.items())

    def total(self, value: str, width: str = "10s") -> float | None:
        """A value of the last window, summed over the nodes; None where nobody has it."""
        found = [w.get(value) for node in self.nodes.values() if (w := node.latest(width)) is not None]
        known = [each for each in found if each is not None]
        return sum(known) if known else None


def _put(kept: deque[Window], window: Window) -> None:
    """Add a window; one that comes again replaces itself, and one from before the last is of no use."""
    if kept and kept[-1].start_s == window.start_s:
        kept[-1] = window
    elif not kept or kept[-1].start_s < window.start_s:
        kept.append(window)


class Figures:
    """What the broker says of itself under `$SYS/broker/`.

    A broker publishes only what changed, all of a round at once, and the first of a round is its uptime.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._rounds: deque[tuple[float, dict[str, float]]] = deque(maxlen=ROUNDS)
        self._open_s: float | None = None

    def take(self, topic: str, payload: bytes, now_s: float) -> bool:
        """Take in a message; whether it was one of the broker's figures."""
        if not topic.startswith(SYS) or len(payload) > 1_000:
            return False
        name = topic.removeprefix(SYS)
        if name == "uptime":
            self.settle(now_s, at_once=True)
            self._open_s = now_s
        if name in self.values or len(self.values) < MOST_FIGURES:
            self.values[name] = payload.decode(errors="replace")
        return True

    def settle(self, now_s: float, *, at_once: bool = False) -> None:
        """Close the round that has come, so that rates know of it."""
        if self._open_s is None or not (at_once or now_s - self._open_s >= ROUND_S):
            return
        counted = {name: value for name in COUNTERS if (value := self.number(name)) is not None}
        if counted:
            if self._rounds and any(counted.get(name, 0.0) < value for name, value in self._rounds[-1][1].items()):
                self._rounds.clear()  # the broker has started anew
            self._rounds.append((self._open_s, counted))
        self._open_s = None

    def number(self, name: str) -> float | None:
        """A figure as a number; None where there is none."""
        try:
            return float(self.values[name].split(" ", 1)[0])
        except (KeyError, ValueError):
            return None

    def rates(self, name: str) -> list[tuple[float, float | None]]:
        """How much a counter grew a second, round by round."""
        rounds = list(self._rounds)
        found: list[tuple[float, float | None]] = []
        for (before_s, before), (now_s, now) in itertools.pairwise(rounds):
            if now_s > before_s and name in before and name in now:
                found.append((now_s, (now[name] - before[name]) / (now_s - before_s)))
        return found

    def rate(self, name: str) -> float | None:
        """The latest of `rates`."""
        rates = self.rates(name)
        return rates[-1][1] if rates else None

    def below(self, prefix: str) -> dict[str, str]:
        """Figures whose names begin with a prefix, by the rest of their names."""
        return {name.removeprefix(prefix): value for name, value in self.values.items() if name.startswith(prefix)}


def last(series: list[tuple[float, float | None]]) -> float | None:
    """The last value that is there."""
    return next((value for _, value in reversed(series) if value is not None), None)


def quantile_series(metrics: Metrics, width: str = "10s") -> dict[str, list[tuple[float, float | None]]]:
    """The latency quantiles in milliseconds over time, of the slowest node."""
    named = {"p50": "latency_p50_us", "p95": "latency_p95_us", "p99": "latency_p99_us"}
    found: dict[str, list[tuple[float, float | None]]] = {}
    for name, value in named.items():
        series = metrics.worst(value, width)
        found[name] = [(at_s, None if us is None else us / 1_000.0) for at_s, us in series]
    return found


def window_row(node: str, key: str, window: Window) -> list[Any]:
    """A row of the table of prefixes: key, node, rates and the 99th percentile in milliseconds."""
    p99 = window.get("latency_p99_us")
    return [
        key,
        node,
        window.get("publishes_per_s") or 0.0,
        window.get("deliveries_per_s") or 0.0,
        window.get("drops_per_s") or 0.0,
        None if p99 is None else p99 / 1_000.0,
    ]
