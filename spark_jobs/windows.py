"""Live windows: rows of the cube go in, what each topic should show comes out. No session and no broker is needed.

A window is shown when its node has been heard of after its end, and again if records for it come later while it is
still the latest. What has gone quiet is shown as zero, and forgotten after a while.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spark_jobs.buckets import GAUGES, NO_BUCKET, latency_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WIDTHS: Final = {"1s": 1, "10s": 10, "1min": 60}
"""The windows by the name they have in topics, in seconds."""
RATES: Final = ("publishes", "published_bytes", "deliveries", "delivered_bytes", "drops", "routes")
COUNTS: Final = (
    "connects",
    "handovers",
    "positions",
    "matches",
    "retained_decisions",
    "retained_saved",
    "retained_bytes_saved",
    "retained_waited_s",
    "routed_bytes",
)
QUANTILES: Final = (0.5, 0.95, 0.99)
REPLAYED: Final = 5
"""So many windows are shown one after another where several have ended at once; older ones are in the history only."""


@dataclass(frozen=True, slots=True)
class CubeRow:
    """One row of the cube; `second` in whole seconds since 1970."""

    second: int
    node: str
    incarnation: int
    scope: str
    key: str
    metric: str
    bucket: int
    value: float


LONGEST_KEY: Final = 200
"""Characters of a prefix in a topic; of a longer one its beginning and a checksum."""
Sums = dict[tuple[str, int], float]


def quantile(buckets: Mapping[int, float], share: float) -> float | None:
    """The latency in microseconds below which a share of what fell into the buckets lies; None where nothing did."""
    whole = sum(buckets.values())
    if whole <= 0:
        return None
    below = 0.0
    for bucket in sorted(buckets):
        below += buckets[bucket]
        if below >= share * whole - 1e-9:
            return latency_in(bucket)
    return latency_in(max(buckets))


def summary(sums: Mapping[tuple[str, int], float], seconds: int) -> dict[str, float]:
    """What a window shows: rates, counts, latencies, the mean width of matches. What did not happen is left out."""
    shown: dict[str, float] = {}
    for metric in (*RATES, *COUNTS):
        value = sums.get((metric, NO_BUCKET), 0.0)
        if value or metric in ("publishes", "deliveries", "drops"):
            shown[metric] = value
            if metric in RATES:
                shown[f"{metric}_per_s"] = value / seconds
    latencies = {bucket: value for (metric, bucket), value in sums.items() if metric == "latency"}
    for share in QUANTILES:
        found = quantile(latencies, share)
        if found is not None:
            shown[f"latency_p{share * 100:g}_us"] = round(found, 1)
    matches = sums.get(("matches", NO_BUCKET), 0.0)
    if matches:
        shown["match_width_mean"] = sums.get(("match_width", NO_BUCKET), 0.0) / matches
    return shown


class LiveWindows:
    """The last minutes of every node.

    Args:
        horizon_s: how long seconds are kept: longer than the widest window.
        most_keys: how many prefixes, and how many cells, of a node are shown: the busiest.
        most_held: how many of them are remembered; of those beyond, the quietest are let go.
    """

    def __init__(self, horizon_s: int = 180, most_keys: int = 100, most_held: int = 2_000) -> None:
        self.horizon_s = horizon_s
        self._most_keys = most_keys
        self._most_held = most_held
        self._heard: dict[str, int] = {}  # node: the second up to which it had been heard of
        self._since: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)  # node, place: what it has is whole from
        self._let_go: dict[tuple[str, str], int] = {}  # node and scope: when places were last let go
        self._seconds: dict[str, dict[int, dict[tuple[str, str], Sums]]] = defaultdict(dict)
        self._gauges: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)  # node, incarnation, metric
        self._changes: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)  # node, second, metric
        self._ended: dict[tuple[str, str], int] = {}  # node and width: end of the last window shown
        self._shown: dict[str, bytes] = {}

    def add(self, rows: Iterable[CubeRow]) -> None:
        """Add rows of the cube."""
        for row in rows:
            if row.metric in GAUGES:
                runs = self._gauges[row.node]
                if runs and row.incarnation > max(runs):
                    self._changes[row.node].clear()  # those of the run before are nothing to the new one
                run = runs.setdefault(row.incarnation, defaultdict(float))
                run[row.metric] += row.value
                if row.incarnation == max(runs):
                    change = self._changes[row.node].setdefault(row.second, defaultdict(float))
                    change[row.metric] += row.value
            else:
                place = (row.scope, row.key)
                if place not in self._since[row.node]:
                    self._since[row.node][place] = self._heard.get(row.node, -1) + 1
                places = self._seconds[row.node].setdefault(row.second, {})
                sums = places.setdefault(place, defaultdict(float))
                sums[row.metric, row.bucket] += row.value

    def shown(self, heard_us: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """The topics that change, with what they show from now on; nothing at all for one that is removed.

        Args:
            heard_us: by node, the latest record, in microseconds since 1970: windows that end before it are over.
        """
        for node, until_us in heard_us.items():
            now = until_us // 1_000_000
            self._forget(node, now)
            keys = self._keys(node, now)
            for name, width in WIDTHS.items():
                last = now // width * width
                first = max(self._ended.get((node, name), last), last - (REPLAYED - 1) * width)
                for end in range(first, last + 1, width):
                    yield from self._window(node, name, width, end, keys)
                self._ended[node, name] = last
            self._heard[node] = now
            yield from self._removed(node, keys)

    @property
    def topics(self) -> set[str]:
        """The topics that show something."""
        return set(self._shown)

    def recall(self, topics: Iterable[str]) -> None:
        """These topics showed something before this process began: they are removed if nothing is to be shown there."""
        for topic in topics:
            self._shown.setdefault(topic, b"")

    def _keys(self, node: str, now: int) -> list[tuple[str, str]]:
        """What to show of a node: the node itself, and its busiest prefixes and cells."""
        volumes: dict[tuple[str, str], float] = defaultdict(float)
        for places in self._seconds[node].values():
            for place, sums in places.items():
                volumes[place] += sum(value for (metric, _), value in sums.items() if metric != "latency")
        shown = [("node", "")]
        for scope in ("prefix", "cell"):
            of_scope = [place for place in volumes if place[0] == scope]
            of_scope.sort(key=lambda place: (-volumes[place], place))
            shown += of_scope[: self._most_keys]
            if len(of_scope) > self._most_held:
                self._let_go[node, scope] = now
                for place in of_scope[self._most_held :]:
                    del volumes[place]
        self._hold(node, volumes)
        return shown

    def _hold(self, node: str, places: Mapping[tuple[str, str], float]) -> None:
        """Let go of all places but these."""
        since = self._since[node]
        gone = since.keys() - places.keys()
        for place in gone:
            del since[place]
        if gone:
            for kept in self._seconds[node].values():
                for place in gone & kept.keys():
                    del kept[place]

    def _is_whole(self, node: str, place: tuple[str, str], start: int) -> bool:
        """Whether all of a window is here: places that were let go may have come again in the middle of it."""
        let_go = self._let_go.get((node, place[0]))
        if let_go is None or let_go < start - self.horizon_s:
            return True
        return start >= self._since[node].get(place, 0)

    def _window(
        self, node: str, name: str, width: int, end: int, keys: list[tuple[str, str]]
    ) -> Iterator[tuple[str, bytes]]:
        kept = self._seconds[node]
        for scope, key in keys:
            if not self._is_whole(node, (scope, key), end - width):
                continue
            sums: Sums = defaultdict(float)
            for second in range(end - width, end):
                for what, value in kept.get(second, {}).get((scope, key), {}).items():
                    sums[what] += value
            values = summary(sums, width)
            if scope == "node":
                values |= self._gauges_at(node, end)
            began = datetime.fromtimestamp(end - width, UTC).isoformat().replace("+00:00", "Z")
            topic = topic_of(node, name, scope, key)
            payload = json.dumps({"from": began, "seconds": width, **values}).encode()
            if self._shown.get(topic) != payload:
                self._shown[topic] = payload
                yield topic, payload

    def _gauges_at(self, node: str, end: int) -> dict[str, float]:
        runs = self._gauges[node]
        if not runs:
            return {}
        values = dict(runs[max(runs)])
        for second, changes in self._changes[node].items():
            if second >= end:
                for metric, change in changes.items():
                    values[metric] -= change
        return values

    def _forget(self, node: str, now: int) -> None:
        for kept in (self._seconds[node], self._changes[node]):
            for second in [second for second in kept if second < now - self.horizon_s]:
                del kept[second]
        runs = self._gauges[node]
        for run in sorted(runs)[:-1]:
            del runs[run]

    def _removed(self, node: str, keys: list[tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
        wanted = {topic_of(node, name, scope, key) for scope, key in keys for name in WIDTHS}
        mine = [topic for topic in self._shown if topic.startswith(f"locus/metrics/{node}/")]
        for topic in mine:
            if topic not in wanted:
                del self._shown[topic]
                yield topic, b""


def topic_of(node: str, width: str, scope: str, key: str) -> str:
    """Where a window is shown: `locus/metrics/<node>/10s`, and below it `/prefix/<prefix>` and `/cell/<geohash>`."""
    if scope == "node":
        return f"locus/metrics/{node}/{width}"
    clean = "".join("_" if character in "+#\0" else character for character in key)
    if len(clean) > LONGEST_KEY:  # a topic has no room for it, or nobody who looks at it
        clean = f"{clean[: LONGEST_KEY // 2]}~{hashlib.sha256(clean.encode()).hexdigest()[:16]}"
    return f"locus/metrics/{node}/{width}/{scope}/{clean}"
