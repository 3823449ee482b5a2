"""A day of telemetry, made from a seed, and its metrics as plain Python counts them, one record at a time."""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from broker_plugins.grammar.geohash import encode_geohash
from spark_jobs.cube import CELL_CHARACTERS
from tests.spark_jobs.spools import START_US, write

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000
HOURS = (0, 7, 8, 23)
"""When something happens: the first and the last hour of the day too."""
BURST_S = 130
TOPICS = ("cars/1/pos", "cars/2/pos", "jobs", "ships/$7/é", "locus/metrics/n1/1s")
RUNS = (("n1", 1), ("n1", 2), ("n2", 1))
"""Nodes and incarnations: the first one was started again at noon."""

Row = dict[str, Any]
Day = dict[tuple[str, str, int], list[Row]]
Place = tuple[int, str, str, str]
"""The start of a window, a node, a scope and a key."""


def record(dice: random.Random, at: int) -> dict[str, Row]:
    """What is recorded of one moment, by table."""
    base = {"at": at, "topic": dice.choice(TOPICS), "bytes": dice.randrange(100), "weight": dice.choice([1.0, 4.0])}
    place = {"lon": dice.uniform(126, 128), "lat": dice.uniform(37, 38)}
    found = {
        "publishes": {**base, **(place if dice.random() < 0.5 else {})},
        "deliveries": {**base, "latency_us": dice.choice([None, 1, int(dice.lognormvariate(7, 1))])},
    }
    others: dict[str, Row] = {
        "drops": {**base, "reason": "dropped_qos0"},
        "matches": {**base, "accuracy": dice.random()},
        "retained_decisions": {
            **base,
            "saved": dice.random() < 0.5,
            "wait_s": 1.5,
            "residual_s": dice.choice([None, 0.5, 2.5]),
            "bytes": dice.choice([None, 70]),
        },
        "routes": {**base, "to_node": "n9", "via": "filter"},
        "positions": {"at": at, "weight": base["weight"], "client": "c", **place},
        "sessions": {"at": at, "event": dice.choice(["connected", "connected", "disconnected", "ended"])},
        "subscriptions": {"at": at, "event": dice.choice(["subscribed", "subscribed", "unsubscribed"])},
        "handovers": {"at": at, "client": "c", "from_node": "n9"},
    }
    return found | {name: row for name, row in others.items() if dice.random() < 0.2}


def recorded_day(seed: int, moments: int) -> Day:
    """Records of a day by table, node and incarnation, in the order in which they happened."""
    dice = random.Random(seed)
    found: Day = defaultdict(list)
    for hour in HOURS:
        times = (dice.randrange(BURST_S * SECOND) for _ in range(moments))
        for at in sorted(START_US + hour * 3_600 * SECOND + each for each in times):
            node, incarnation = dice.choice(RUNS[1:] if hour >= 12 else (RUNS[0], RUNS[2]))
            for name, row in record(dice, at).items():
                found[name, node, incarnation].append(row)
    return found


def write_day(spool: Path, day: Day, seed: int) -> list[Path]:
    """The segments of a day: some overlap others, some are there twice, and they come in no order at all."""
    dice = random.Random(seed)
    paths: list[Path] = []
    for (name, node, incarnation), rows in day.items():
        for first in range(0, len(rows), 40):
            paths += write(spool, name, rows[first : first + 40], first + 1, node, incarnation)
            if dice.random() < 0.3 and first:  # once more, with half of those before
                paths += write(spool, name, rows[first - 20 : first + 40], first - 19, node, incarnation)
    for path in dice.sample(paths, len(paths) // 5):
        copy = path.parents[1] / "hour=2026-01-09T00" / path.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
        paths.append(copy)
    paths = list(dict.fromkeys(paths))
    dice.shuffle(paths)
    return paths


def rows_of(day: Day) -> list[tuple[str, str, Row]]:
    """Every record that metrics are made of, with its table and node."""
    return [
        (name, node, row)
        for (name, node, _), rows in day.items()
        for row in rows
        if not str(row.get("topic", "")).startswith("locus/metrics/")
    ]


def places_of(name: str, node: str, row: Row, seconds: int) -> list[Place]:
    """Where a record counts."""
    start = row["at"] // SECOND // seconds * seconds
    places = [(start, node, "node", "")]
    if "topic" in row:
        places.append((start, node, "prefix", row["topic"].split("/")[0]))
    if name in ("publishes", "positions") and "lon" in row:
        places.append((start, node, "cell", encode_geohash(row["lon"], row["lat"], CELL_CHARACTERS)))
    return places


def counted(day: Day, seconds: int) -> dict[Place, Counter[str]]:
    """Every sum of every window."""
    found: dict[Place, Counter[str]] = defaultdict(Counter)
    for name, node, row in rows_of(day):
        weight = row.get("weight", 1.0)
        adds: dict[str, float] = {name: weight}
        if name in ("publishes", "deliveries", "routes"):
            adds[{"publishes": "published", "deliveries": "delivered", "routes": "routed"}[name] + "_bytes"] = (
                weight * row["bytes"]
            )
        elif name == "retained_decisions":
            residual = float("inf") if row["residual_s"] is None else row["residual_s"]
            adds["retained_waited_s"] = weight * min(row["wait_s"], residual)
            if row["saved"]:
                adds |= {"retained_saved": weight, "retained_bytes_saved": weight * (row["bytes"] or 0)}
        elif name == "matches":
            adds["match_width"] = weight * row["accuracy"]
        elif name == "sessions":
            adds = {"connects": weight} if row["event"] == "connected" else {}
        elif name == "subscriptions":
            adds = {}
        for place in places_of(name, node, row, seconds):
            for metric, value in adds.items():
                found[place][metric] += value
    return found


def latencies(day: Day, seconds: int) -> dict[Place, list[tuple[int, float]]]:
    """The latencies of every window with their weights, in order."""
    found: dict[Place, list[tuple[int, float]]] = defaultdict(list)
    for name, node, row in rows_of(day):
        if name == "deliveries" and row["latency_us"] is not None:
            for place in places_of(name, node, row, seconds):
                found[place].append((row["latency_us"], row["weight"]))
    return {place: sorted(values) for place, values in found.items()}


def quantile(values: list[tuple[int, float]], share: float) -> int:
    """The smallest latency that a share of all weights does not exceed."""
    below, whole = 0.0, sum(weight for _, weight in values)
    return next(latency for latency, weight in values if (below := below + weight) >= share * whole - 1e-9)


def gauge(day: Day, name: str, node: str, end_us: int) -> float | None:
    """Connections or subscriptions of a node's latest run at a moment; None before anything was told of it."""
    ups = {"sessions": "connected", "subscriptions": "subscribed"}
    downs = {"sessions": "disconnected", "subscriptions": "unsubscribed"}
    for incarnation in (2, 1):
        told = [
            row
            for each in ("sessions", "subscriptions")
            for row in day.get((each, node, incarnation), [])
            if row["at"] < end_us and row["event"] in (ups[each], downs[each])
        ]
        if told:
            events = [row["event"] for row in day.get((name, node, incarnation), []) if row["at"] < end_us]
            return events.count(ups[name]) - events.count(downs[name])
    return None
