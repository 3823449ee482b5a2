"""What a broker and its pipeline tell of themselves, put together from topics: no clock, no network, no drawing.

`$SYS/broker/…` has totals, told again every few seconds where they changed; rates come from two rounds of them.
`locus/metrics/<node>/…` has what Spark made of the telemetry, window by window.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

FILTERS: Final = (
    "$SYS/broker/#",
    "locus/metrics/+/10s",
    "locus/metrics/+/1min",
    "locus/metrics/+/10s/prefix/#",
)
SYS: Final = "$SYS/broker/"
BLOCKS: Final = "locus/cluster/blocks"
"""Below it, in a cluster: which node owns which block of the map."""
RATED: Final = (
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
    "bytes/received",
    "bytes/sent",
)
"""Totals whose rates are shown."""
SILENT_S: Final = 30.0
"""A pipeline that has shown nothing newer for so long is taken to have stopped."""
MOST_PREFIXES: Final = 1_000
MOST_NODES: Final = 256
BEYOND_BELIEF: Final = 1e18
"""A figure that is larger, or is no number, was not counted by anybody."""


@dataclass(slots=True)
class Share:
    """What a node owns of the map.

    Args:
        blocks: how many blocks.
        load: positions and messages a second in them.
    """

    blocks: int = 0
    load: float = 0.0


@dataclass(slots=True)
class Node:
    """What Spark shows of a node.

    Args:
        name: of the node.
        window: its last ten seconds.
        minute: its last minute.
    """

    name: str
    window: dict[str, Any] = field(default_factory=dict)
    minute: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prefix:
    """What Spark shows of the topics with the same first level.

    Args:
        name: the first level.
        node: on which node.
        window: its last ten seconds.
    """

    name: str
    node: str
    window: dict[str, Any]


class Figures:
    """Takes messages, and has figures."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        """What `$SYS/broker/` last told, by the rest of the topic."""
        self.rates: dict[str, float] = {}
        """By total, its growth in a second; missing until there were two rounds."""
        self.nodes: dict[str, Node] = {}
        self.owners: dict[str, Share] = {}
        """By node of a cluster, its share of the map."""
        self._prefixes: dict[tuple[str, str], dict[str, Any]] = {}
        self._uptime_s: float | None = None
        self._round_s = 0.0
        self._round_retained = True
        self._elapsed_s: float | None = None
        self._heard: set[str] = set()

    def take(self, topic: str, payload: bytes, now_s: float, *, retained: bool = False) -> None:
        """Take in a message.

        Args:
            topic: its topic.
            payload: what it says.
            now_s: the time, in seconds, of a clock that does not jump.
            retained: whether it was told some time before.
        """
        if topic == SYS + BLOCKS:
            self._blocks(payload)
        elif topic.startswith(SYS + "locus/"):
            return  # pictures for others
        elif topic.startswith(SYS):
            self._told(topic.removeprefix(SYS), payload.decode(errors="replace"), now_s, retained=retained)
        else:
            levels = topic.split("/")
            if len(levels) == 4:
                self._window(levels[2], levels[3], payload)
            elif len(levels) >= 6 and levels[4] == "prefix":
                self._prefix(levels[2], "/".join(levels[5:]), payload)

    def lost(self) -> None:
        """The broker is away: what it told is no longer so."""
        self.values.clear()
        self.rates.clear()
        self.owners.clear()
        self._uptime_s = None
        self._elapsed_s = None

    def number(self, name: str) -> float | None:
        """A value of `$SYS/broker/` as a number."""
        try:
            value = float(self.values[name].partition(" ")[0])
        except (KeyError, ValueError):
            return None
        return value if math.isfinite(value) else None

    def busiest(self, most: int) -> list[Prefix]:
        """The prefixes with most messages, publishes and deliveries together."""
        everything = [Prefix(name, node, window) for (node, name), window in self._prefixes.items()]
        everything.sort(key=lambda each: (-_volume(each.window), each.name, each.node))
        return [each for each in everything[:most] if _volume(each.window)]

    def measured_s(self) -> float | None:
        """When the latest window that Spark has shown ended, in seconds since 1970; None if it has shown none."""
        ends = [_end(node.window) for node in self.nodes.values()]
        return max((end for end in ends if end is not None), default=None)

    # What is told of.

    def _told(self, name: str, said: str, now_s: float, *, retained: bool) -> None:
        if name == "uptime":
            self._next_round(said, now_s, retained=retained)
        before = self.number(name)
        self.values[name] = said
        self._heard.add(name)
        if name in RATED and before is not None and self._elapsed_s is not None:
            after = self.number(name)
            if after is not None and after >= before:
                self.rates[name] = (after - before) / self._elapsed_s

    def _next_round(self, said: str, now_s: float, *, retained: bool) -> None:
        """The uptime is told first in each round, whatever else has changed."""
        try:
            uptime_s = float(said.partition(" ")[0])
        except ValueError:
            return
        before = self._uptime_s
        if not math.isfinite(uptime_s):
            return
        if before is not None and uptime_s < before:
            self.lost()  # it was started again
            before = None
        if self._elapsed_s is not None:
            for name in RATED:
                if name not in self._heard and name in self.values:
                    self.rates[name] = 0.0  # what does not change is not told
        self._heard.clear()
        if before is not None:
            # What was retained came late, so for the first round the broker's own seconds have to do.
            elapsed = uptime_s - before if self._round_retained else now_s - self._round_s
            self._elapsed_s = elapsed if elapsed > 0 else None
        self._uptime_s, self._round_s, self._round_retained = uptime_s, now_s, retained

    def _blocks(self, payload: bytes) -> None:
        told = _read(payload) or {}
        owners: dict[str, Share] = {}
        listed = told.get("blocks")
        for block in listed if isinstance(listed, list) else ():
            if isinstance(block, dict) and isinstance(block.get("owner"), str):
                share = owners.setdefault(block["owner"], Share())
                share.blocks += 1
                share.load += figure(block, "load")
        self.owners = owners

    def _window(self, name: str, width: str, payload: bytes) -> None:
        window = _read(payload)
        if window is None:
            node = self.nodes.get(name)
            if node is not None and not payload and width == "10s":
                del self.nodes[name]
            return
        if name not in self.nodes and len(self.nodes) >= MOST_NODES:
            return
        node = self.nodes.setdefault(name, Node(name))
        if width == "10s":
            node.window = window
        else:
            node.minute = window

    def _prefix(self, node: str, name: str, payload: bytes) -> None:
        window = _read(payload)
        if window is None:
            self._prefixes.pop((node, name), None)
        elif (node, name) in self._prefixes or len(self._prefixes) < MOST_PREFIXES:
            self._prefixes[node, name] = window


def figure(window: dict[str, Any], name: str) -> float:
    """A number of a window; what is not there has not happened."""
    value = window.get(name)
    return float(value) if isinstance(value, int | float) and abs(value) < BEYOND_BELIEF else 0.0


def _volume(window: dict[str, Any]) -> float:
    return figure(window, "publishes") + figure(window, "deliveries")


def _read(payload: bytes) -> dict[str, Any] | None:
    """A window; None where it is removed, or is none."""
    try:
        window = json.loads(payload)
    except ValueError:
        return None
    return window if isinstance(window, dict) else None


def _end(window: dict[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(str(window["from"])).timestamp() + figure(window, "seconds")
    except (KeyError, ValueError, OverflowError, OSError):  # no time, or one that clocks do not have
        return None
