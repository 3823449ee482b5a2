"""`locus bench NAME [--quick] [--json]`: a module for each benchmark, with `measure(quick, progress) -> Report`."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from benchmarks.report import Report

BENCHMARKS = {
    "broker": "the data path against Mosquitto and stock amqtt",
    "causal": "Δ-causal order: safety, control bytes and speed",
    "cluster": "nodes of a cluster: how far a message is from one to the next, and what travels between them",
    "geo": "$geo and $where subscriptions against Mosquitto with client-side filters and with geohash topics",
    "index": "the Q+R index against rtree, STRtree, a grid and pyqtree",
    "overlay": "content routing between nodes: parents elected by recent events against random ones, and what travels",
    "pipeline": "the Spark jobs: records a second against plain pyarrow, and how far metrics lie behind",
    "ranked": "ranked matching against collect-and-sort",
    "retained": "retained messages: the policies by replay and through brokers, and the storm against Mosquitto",
    "telemetry": "what it costs the broker to record what it does",
}

OWN_PACKAGES = {"benchmarks", "broker_plugins", "clients", "rl_policy", "spark_jobs", "spatial_index"}


class Benchmark(Protocol):
    """What a benchmark's module offers."""

    def measure(self, quick: bool, progress: Callable[[str], None]) -> Report:
        """Run every load; `progress` takes a line that says what is being measured."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options every benchmark has."""
    listing = "; ".join(f"{name}: {what}" for name, what in BENCHMARKS.items())
    parser.add_argument("benchmark", choices=BENCHMARKS, metavar="NAME", help=listing)
    parser.add_argument("--quick", action="store_true", help="answer within a minute, with fewer repeats")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; what is going on is told on standard error."""
    try:
        module = cast("Benchmark", importlib.import_module(f"benchmarks.{arguments.benchmark}"))
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] in OWN_PACKAGES:
            raise
        # What Locus is measured against is not what it needs to run.
        extra = "spark" if missing.name in ("pyarrow", "pyspark") else "dev"
        print(
            f"locus bench {arguments.benchmark} needs {missing.name}, which is not installed; "
            f"pip install 'locus-mqtt[{extra}]'",
            file=sys.stderr,
        )
        return 1

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    report = module.measure(quick=arguments.quick, progress=progress)
    print(report.as_json() if arguments.json else report.as_table())
    return 0
