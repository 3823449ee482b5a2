"""Turns the lake's records into metrics: history as Parquet, and live as retained MQTT topics.

Idea: each commit of the lake adds a cube of sums by second (see `spark_jobs.cube`), kept as one file named after the
commits in it. Cubes add, so late records only add to a second that has passed, the wider windows are sums of seconds,
and there is no state in Spark that could grow. A commit makes its file once: a job that was killed makes the same file.

Command:

    python -m spark_jobs.metrics --lake lake                                   # history, follow the lake
    python -m spark_jobs.metrics --lake lake --broker mqtt://127.0.0.1:1883    # and live topics
    mosquitto_sub -t 'locus/metrics/+/10s' -v

What one sees: `locus/metrics/n1/10s {"from": "…", "seconds": 10, "publishes": 1200, "publishes_per_s": 120.0, …}`;
`history(spark, lake, 60)` has the same numbers for every minute there was.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark's own documentation

from rl_policy.whole_file import write_whole
from spark_jobs.buckets import GAUGES, GROWTH
from spark_jobs.cube import CUBE, DIMENSIONS, METRIC_TABLES, SCHEMA, added, cube_file
from spark_jobs.keep import Keep, add_keep_arguments, keep_of
from spark_jobs.lake import GRACE_S, Lake
from spark_jobs.merging import FAN_IN, WIDEST
from spark_jobs.mqtt_sink import MqttSink
from spark_jobs.ranges import live, ranges
from spark_jobs.segments import bounds
from spark_jobs.session import build_session
from spark_jobs.windows import COUNTS, QUANTILES, RATES, CubeRow, LiveWindows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

SHOWN: Final = "shown.json"
"""Below `metrics`, the topics that show something."""
SMALL_BYTES: Final = 1_000_000
"""Files of the lake that are smaller on average are looked at in no more tasks than there are cores."""


def read_cube(spark: SparkSession, lake: Lake) -> DataFrame:
    """The whole history as one cube."""
    paths = [str(path) for _, _, path in live(cube_directory(lake))]
    if not paths:
        return spark.createDataFrame([], CUBE)
    return spark.read.schema(CUBE).parquet(*paths).groupBy(*DIMENSIONS).agg(F.sum("value").alias("value"))


def windowed(cube: DataFrame, seconds: int) -> DataFrame:
    """A row for each window, node and place, with its counts and rates; latencies are `quantiles`."""
    start = F.window("second", f"{seconds} seconds")["start"].alias("start")
    sums = cube.groupBy(start, "node", "scope", "key").agg(
        *(F.sum(F.when(F.col("metric") == m, F.col("value")).otherwise(0.0)).alias(m) for m in (*RATES, *COUNTS)),
        F.sum(F.when(F.col("metric") == "match_width", F.col("value")).otherwise(0.0)).alias("match_width"),
    )
    rates = {f"{metric}_per_s": F.col(metric) / seconds for metric in RATES}
    mean = F.when(F.col("matches") > 0, F.col("match_width") / F.col("matches"))
    return sums.withColumns({**rates, "match_width_mean": mean}).drop("match_width")


def quantiles(cube: DataFrame, seconds: int) -> DataFrame:
    """Latencies for each window, node and place, as `latency_p50_us`, `latency_p95_us`, `latency_p99_us`."""
    start = F.window("second", f"{seconds} seconds")["start"].alias("start")
    place = ("start", "node", "scope", "key")
    latencies = cube.where(F.col("metric") == "latency")
    buckets = latencies.groupBy(start, "node", "scope", "key", "bucket").agg(F.sum("value").alias("value"))
    whole = Window.partitionBy(*place)
    below = whole.orderBy("bucket")
    buckets = buckets.withColumns({"below": F.sum("value").over(below), "whole": F.sum("value").over(whole)})
    latency = F.when(F.col("bucket") == 0, 1.0).otherwise(2.0 * F.pow(F.lit(GROWTH), "bucket") / (GROWTH + 1.0))
    reached = {s: F.when(F.col("below") >= s * F.col("whole") - 1e-9, latency) for s in QUANTILES}
    return buckets.groupBy(*place).agg(*(F.min(c).alias(f"latency_p{s * 100:g}_us") for s, c in reached.items()))


def gauges(cube: DataFrame, seconds: int) -> DataFrame:
    """Connections and subscriptions of each node at the end of each window in which they changed."""
    start = F.window("second", f"{seconds} seconds")["start"].alias("start")
    changes = (
        cube.where(F.col("metric").isin(*GAUGES))
        .groupBy(start, "node", "incarnation")
        .agg(*(F.sum(F.when(F.col("metric") == g, F.col("value")).otherwise(0.0)).alias(g) for g in GAUGES))
    )
    so_far = Window.partitionBy("node", "incarnation").orderBy("start")
    changes = changes.withColumns({gauge: F.sum(gauge).over(so_far) for gauge in GAUGES})
    last = F.row_number().over(Window.partitionBy("node", "start").orderBy(F.desc("incarnation")))
    return changes.withColumn("_last", last).where("_last = 1").drop("_last", "incarnation")


def history(spark: SparkSession, lake: Lake, seconds: int) -> DataFrame:
    """Counts, rates and latencies of every window there was, for each node, prefix and cell."""
    cube = read_cube(spark, lake)
    return windowed(cube, seconds).join(quantiles(cube, seconds), ["start", "node", "scope", "key"], "left")


def cube_directory(lake: Lake) -> Path:
    """Where the cubes of a lake are."""
    return lake.root / "metrics" / "cube"


class Metrics:
    """Follows a lake, commit by commit.

    Args:
        spark: the session.
        lake: the lake.
        publish: told of every topic and what it shows; None where nobody looks live.
        windows: the live windows.
        keep: of it the age, beyond which windows are dropped from the history; everything is kept if it is not said.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        publish: Callable[[str, bytes], None] | None = None,
        windows: LiveWindows | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._publish = publish
        self._windows = windows or LiveWindows()
        self._keep = keep or Keep()
        self._directory = cube_directory(lake)
        self.done = max((last for _, last, _ in ranges(self._directory)), default=0)
        self._topics: set[str] = set()
        if publish is not None:
            self._recall()

    def catch_up(self) -> int:
        """Take in every commit that was made meanwhile; returns how many."""
        before = self.done
        ledger = self._lake.ledger()
        while self.done < ledger.commit:
            upto = min(ledger.commit, (self.done // FAN_IN + 1) * FAN_IN)  # so that files can be put together
            cube = self._cube(self.done, upto)
            self._write(cube, self.done + 1, upto)
            self.done = upto
            if self._publish is not None:
                self._remember(cube)
            if upto % FAN_IN == 0:
                self._put_together()
        if self._publish is not None and self.done > before:
            self._show(self._publish, ledger.latest_us)
        return self.done - before

    def _show(self, publish: Callable[[str, bytes], None], heard_us: Mapping[str, int]) -> None:
        """Publish what changed; which topics there are is noted before: a later process removes what is over."""
        changes = list(self._windows.shown(heard_us))
        self._note_topics(self._topics | self._windows.topics)
        for topic, payload in changes:
            publish(topic, payload)
        self._note_topics(self._windows.topics)

    def _note_topics(self, topics: set[str]) -> None:
        if topics != self._topics:
            self._topics = topics
            write_whole(self._lake.root / "metrics" / SHOWN, json.dumps(sorted(topics)).encode())

    def _cube(self, after: int, upto: int) -> pa.Table:
        """What some commits add, one file of the lake at a time on all workers."""
        files = [
            (path, name)
            for name in METRIC_TABLES
            for directory in self._lake.directories(name, after, upto)
            for path in sorted(directory.glob("*.parquet"))
        ]
        if not files:
            return SCHEMA.empty_table()
        context = self._spark.sparkContext
        large = sum(path.stat().st_size for path, _ in files) > SMALL_BYTES * len(files)
        tasks = len(files) if large else min(len(files), context.defaultParallelism)
        found = context.parallelize(files, tasks).map(lambda file: cube_file(*file, after, upto)).collect()
        # Not added up: files have few seconds in common, and whoever reads adds anyway.
        return pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in found])

    def _write(self, cube: pa.Table, first: int, last: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        hidden = self._directory / f".{first}-{last}.parquet"
        pq.write_table(cube, hidden, compression="zstd")
        hidden.rename(self._directory / f"{first}-{last}.parquet")

    def _put_together(self) -> None:
        size = FAN_IN
        while size <= min(self.done, WIDEST) and self.done % size == 0:
            parts = [entry for entry in live(self._directory) if entry[0] > self.done - size]
            if len(parts) > 1:
                whole = added([pq.read_table(path, schema=SCHEMA) for _, _, path in parts])
                self._write(whole, self.done - size + 1, self.done)
            size *= FAN_IN
        if self._keep.max_age_s is not None:
            self.forget(time.time() - self._keep.max_age_s)
        kept = {path for _, _, path in live(self._directory)}
        for _, _, path in ranges(self._directory):
            if path not in kept and path.stat().st_mtime < time.time() - GRACE_S:
                path.unlink()

    def forget(self, before_s: float) -> int:
        """Drop the windows of files that end before a time, in seconds since 1970; how many rows of the cube went.

        What tells of connections and subscriptions stays, for they are counted from the start of a broker.
        """
        old: list[tuple[int, Path]] = []
        for _, last, path in live(self._directory):
            latest = bounds(pq.read_metadata(path), "second")[1]
            if latest is not None and latest.timestamp() >= before_s:
                break
            old.append((last, path))
        if len(old) < 2:  # a file is replaced by a wider one, never changed: somebody may be reading it
            return 0
        whole = added([pq.read_table(path, schema=SCHEMA) for _, path in old])
        kept = whole.filter(pc.field("metric").isin(list(GAUGES)))
        if kept.num_rows < whole.num_rows:
            self._write(kept, 1, old[-1][0])
        return int(whole.num_rows - kept.num_rows)

    def _recall(self) -> None:
        """Fill the live windows from the history: the topics, the last minutes, and every change of a gauge."""
        note = self._lake.root / "metrics" / SHOWN
        self._topics = set(json.loads(note.read_bytes())) if note.exists() else set()
        self._windows.recall(self._topics)
        latest_us = max(self._lake.ledger().latest_us.values(), default=0)
        since = pa.scalar(latest_us - self._windows.horizon_s * 1_000_000, pa.timestamp("us", tz="UTC"))
        wanted = pc.field("metric").isin(list(GAUGES)) | (pc.field("second") >= since)
        for _, _, path in live(self._directory):
            self._remember(pq.read_table(path, schema=SCHEMA, filters=wanted))

    def _remember(self, cube: pa.Table) -> None:
        seconds = pc.divide(cube["second"].cast(pa.int64()), 1_000_000).to_pylist()
        columns = [cube[name].to_pylist() for name in DIMENSIONS[1:]]
        self._windows.add(CubeRow(*row) for row in zip(seconds, *columns, cube["value"].to_pylist(), strict=True))


def main(argv: list[str] | None = None) -> int:
    """Run the job; see the head of this module."""
    parser = argparse.ArgumentParser(description="Turn the lake's records into metrics.")
    parser.add_argument("--lake", type=Path, required=True, help="the directory of the tables")
    parser.add_argument("--broker", default="", help="where to show them live: mqtt://host:port")
    parser.add_argument("--once", action="store_true", help="take in what is there and end")
    parser.add_argument("--every-s", type=float, default=0.5, help="how often to look for commits (0.5)")
    parser.add_argument("--master", default="local[*]", help="Spark's master; empty leaves it to spark-submit")
    add_keep_arguments(parser)
    arguments = parser.parse_args(argv)
    spark = build_session("locus metrics", arguments.master or None)
    sink = MqttSink(arguments.broker) if arguments.broker else None
    metrics = Metrics(spark, Lake(arguments.lake), None if sink is None else sink.publish, keep=keep_of(arguments))
    try:
        while True:
            began = time.monotonic()
            commits = metrics.catch_up()
            if commits:
                print(f"{commits} commits up to {metrics.done} in {time.monotonic() - began:.1f} s", flush=True)
            if arguments.once:
                return 0
            time.sleep(arguments.every_s)
    except KeyboardInterrupt:
        return 0
    finally:
        if sink is not None:
            sink.close()


if __name__ == "__main__":
    raise SystemExit(main())
