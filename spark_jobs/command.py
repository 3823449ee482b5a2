"""`locus pipeline`: ingest, metrics, training and region mining in one local Spark beside the broker."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.keep import add_keep_arguments, keep_of
from spark_jobs.session import HOW_TO_GET_SPARK, JavaMissingError, build_session, require_java

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

    from spark_jobs.ingest import Commit

PATIENCE_S: Final = 30.0
"""How long a micro-batch may take to end when the pipeline is stopped."""
QUIET_S: Final = 1.0
"""How long that goes without a word."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--spool", type=Path, default=Path("telemetry"), help="the telemetry plugin's spool (telemetry)"
    )
    parser.add_argument("--lake", type=Path, default=Path("lake"), help="where tables and metrics go (lake)")
    parser.add_argument(
        "--broker", default="mqtt://127.0.0.1:1883", help="where metrics are shown live; empty shows none (%(default)s)"
    )
    parser.add_argument("--policy-file", type=Path, help="train the retained policy into this file")
    parser.add_argument(
        "--kappa", type=float, default=0.2, help="what a second of waiting costs, as in the broker (0.2)"
    )
    parser.add_argument("--d-max-s", type=float, default=10.0, help="the longest wait, as in the broker (10)")
    parser.add_argument("--regions-file", type=Path, help="mine slow regions into this file")
    parser.add_argument("--plane", help="bounds of a plane to mine: west,south,east,north; the Earth if not said")
    parser.add_argument(
        "--train-every-s", type=float, default=600.0, help="time between two trainings or minings (600)"
    )
    parser.add_argument("--trigger-s", type=float, default=0.2, help="how often to look for segments (0.2)")
    add_keep_arguments(parser)
    parser.add_argument("--once", action="store_true", help="take in what is there, train, and end")
    parser.add_argument("--master", help="a Spark cluster, such as spark://host:7077 (a Spark in this process)")
    parser.add_argument("--cores", default="*", help="how many cores a Spark in this process may use (all)")
    parser.add_argument("--memory", default="1g", help="memory of Spark (1g)")


def run(arguments: argparse.Namespace) -> int:
    """Run until interrupted, and say what happens; problems that a person can solve are said in a line."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        print(HOW_TO_GET_SPARK, file=sys.stderr)
        return 2
    try:
        require_java()
    except JavaMissingError as error:
        print(error, file=sys.stderr)
        return 2
    from spark_jobs.failures import FAILURES, brief

    try:
        return _run(arguments, lambda line: print(f"{time.strftime('%H:%M:%S')} {line}", flush=True))
    except FAILURES as error:
        print(f"the pipeline ends: {brief(error)}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace, say: Callable[[str], None]) -> int:
    from rl_policy import CostModel
    from spark_jobs.failures import attempt
    from spark_jobs.ingest import Ingestion
    from spark_jobs.lake import Lake
    from spark_jobs.metrics import Metrics
    from spark_jobs.mine_regions import mine, said, space_of
    from spark_jobs.mqtt_sink import MqttSink
    from spark_jobs.train_retained import train

    space = space_of(arguments.plane)
    sink = MqttSink(arguments.broker) if arguments.broker else None
    master = arguments.master or f"local[{arguments.cores}]"
    say(f"starting Spark on {master}")
    spark = build_session("locus pipeline", master, arguments.memory)
    lake = Lake(arguments.lake)
    keep = keep_of(arguments)
    metrics = Metrics(spark, lake, None if sink is None else sink.publish, keep=keep)

    def committed(commit: Commit) -> None:
        began = time.monotonic()
        metrics.catch_up()
        line = f"{commit}; metrics in {time.monotonic() - began:.1f} s"
        if sink is not None and not sink.wait_connected(0.0):
            line += f"; no connection to {arguments.broker}"
        say(line)

    def learn() -> None:
        if arguments.policy_file is not None:
            cost = CostModel(arguments.kappa, arguments.d_max_s)
            attempt("training", lambda: train(spark, lake, arguments.policy_file.absolute(), cost), say)
        if arguments.regions_file is not None:
            attempt("mining", lambda: said(mine(spark, lake, arguments.regions_file.absolute(), space)), say)

    if not arguments.spool.is_dir():
        say(f"{arguments.spool} is not there yet: a broker with the telemetry plugin makes it, as its `spool_dir`")
    ingestion = Ingestion(spark, arguments.spool, lake, committed, keep)
    metrics.catch_up()
    query = ingestion.start(None if arguments.once else arguments.trigger_s)
    say(f"following {ingestion.spool} into {lake.root}")
    stop = stop_signals()
    try:
        _follow(query, stop, arguments.train_every_s, learn)
        if stop.is_set():
            say("stopping")
            spark.sparkContext.setLogLevel("OFF")  # that the next micro-batch is broken off is no fault
            end(query, say)
        else:
            query.awaitTermination()  # it has ended: this raises why, if it failed
            learn()
    finally:
        if sink is not None:
            sink.close()
        counts, missing = ingestion.ledger.counts, ingestion.ledger.missing()
        say(
            f"{counts.rows:,} rows of {counts.segments:,} segments; {counts.doubled:,} doubled, {missing:,} missing; "
            f"{counts.quarantined:,} files put aside, {counts.refused:,} refused"
        )
    return 0


def stop_signals() -> threading.Event:
    """An event that is set when somebody asks the process to stop.

    Spark's own handler cancels what runs, and an exception out of a wait for the JVM breaks the connection to it: both
    would have the query fail instead of end.
    """
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    return stop


def _follow(query: StreamingQuery, stop: threading.Event, every_s: float, learn: Callable[[], None]) -> None:
    """Let the query run, and learn now and then, until it ends or is to be stopped."""
    next_s = time.monotonic() + every_s
    while query.isActive and not stop.wait(0.2):
        if time.monotonic() >= next_s:
            learn()
            next_s = time.monotonic() + every_s


def end(query: StreamingQuery, say: Callable[[str], None]) -> None:
    """Let the micro-batch that is under way end, and no other: under load one follows the next without a pause.

    One that has begun meanwhile is broken off, and so is one that takes too long: what is not in the ledger is taken in
    again by the next run, as it is after `kill -9`.
    """
    asked = time.monotonic()
    under_way, told = _ended(query), False
    while query.isActive and query.status["isTriggerActive"] and _ended(query) == under_way:
        waited_s = time.monotonic() - asked
        if waited_s > PATIENCE_S:
            say(f"a micro-batch is not done after {PATIENCE_S:g} s: it is broken off, and taken in by the next run")
            break
        if waited_s > QUIET_S and not told:
            told = True
            say("the micro-batch that is under way is finished first")
        time.sleep(0.02)
    query.stop()


def _ended(query: StreamingQuery) -> int:
    """The number of the last micro-batch that ended."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
