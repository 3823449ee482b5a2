"""`locus bench pipeline`: how fast the jobs take telemetry in, and how far metrics lie behind what they tell of.

The floor is what one process of pyarrow needs to read the same files and sum the same things without writing anything
down, remembering anything or surviving anything. Catching up is measured on a spool that is there already; the lag on a
broker under load, with `locus pipeline` as a user would start it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks import peers
from benchmarks.report import Report, Row, median, spread
from broker_plugins.telemetry.schema import Segment, hour_of, partition
from spark_jobs.ingest import Ingestion
from spark_jobs.lake import Lake
from spark_jobs.metrics import Metrics
from spark_jobs.segments import ARROW_TYPES
from spark_jobs.session import build_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

TELEMETRY = "broker_plugins.telemetry.plugin.TelemetryPlugin"
RATE = 5_000
"""Messages a second, each delivered once: two records."""
SEGMENT = 20_000
HOUR_S = 3_600
QUICK_S = 240
LAG_S = 60
QUICK_LAG_S = 15
RECORDS_TARGET = 200_000
FLOOR_TARGET = 0.2
LAG_TARGET_S = 5.0
KEPT_BATCHES = 5
"""As `build_session` has it: `spark.sql.streaming.minBatchesToRetain`."""
START_US = 1_767_225_600_000_000


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    """Catch up with a spool, then follow a broker."""
    report = Report("pipeline")
    with tempfile.TemporaryDirectory(prefix="locus-pipeline-") as name:
        directory = Path(name)
        _catching_up(report, directory, QUICK_S if quick else HOUR_S, 1 if quick else 3, progress)
    _lag(report, QUICK_LAG_S if quick else LAG_S, progress)
    report.remarks.append(
        "What recording costs the broker is measured by `locus bench telemetry`. Spark runs in local mode on all cores,"
        " its JVM started and warmed up before the clock."
    )
    return report


# Catching up.


def synthetic(spool: Path, seconds: int) -> int:
    """Write so many seconds of traffic at `RATE`: publishes and their deliveries; returns the number of records."""
    from broker_plugins.telemetry.schema import table

    rng = np.random.default_rng(1)
    total = seconds * RATE
    topics = pa.array([f"fleet{n % 20}/{n}/position" for n in range(2_000)])
    for name in ("publishes", "deliveries"):
        for first in range(1, total + 1, SEGMENT):
            count = min(SEGMENT, total - first + 1)
            numbers = np.arange(first, first + count)
            at = START_US + numbers * (1_000_000 // RATE)
            columns: dict[str, Any] = {
                "node": pa.repeat(pa.scalar("n1"), count),
                "incarnation": pa.array(np.full(count, 1)),
                "sequence": pa.array(numbers),
                "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
                "weight": pa.array(np.ones(count)),
                "message": pa.array(numbers),
                "topic": topics.take(pa.array(rng.integers(0, 2_000, count))),
                "client": pa.repeat(pa.scalar("client"), count),
                "bytes": pa.array(rng.integers(50, 500, count)),
                "lon": pa.array(rng.uniform(126.8, 127.2, count)),
                "lat": pa.array(rng.uniform(37.4, 37.7, count)),
                "latency_us": pa.array(rng.lognormal(5, 1, count).astype(np.int64)),
            }
            of_table = table(name)
            blank = {
                field.name: pa.nulls(count, ARROW_TYPES[field.kind]).fill_null(
                    0 if field.kind.value == "INT" else False
                )
                for field in of_table.fields
                if field.name not in columns
            }
            records = pa.table({field.name: {**columns, **blank}[field.name] for field in of_table.fields})
            path = spool / partition(name, hour_of(int(at[0]))) / Segment("n1", 1, first, first + count - 1).name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(records, path, compression="zstd")
    return 2 * total


def floor_of(spool: Path) -> tuple[float, float]:
    """Seconds of the clock, and of cores, that plain pyarrow needs to read everything and sum it up by second."""
    began, cores_began = time.perf_counter(), time.process_time()
    for name in ("publishes", "deliveries"):
        for path in sorted((spool / f"table={name}").rglob("*.parquet")):
            records = pq.read_table(path)
            second = pc.floor_temporal(records["at"], unit="second")
            prefix = pc.list_element(pc.split_pattern(records["topic"], "/", max_splits=1), 0)
            keyed = records.append_column("second", second).append_column("prefix", prefix)
            keyed.group_by(["second", "node", "prefix"]).aggregate([("weight", "sum"), ("bytes", "sum")])
    return time.perf_counter() - began, time.process_time() - cores_began


def cores_s() -> float:
    """Seconds of cores that this process, the JVM and its workers have used, and those of them that have ended."""
    used = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            used += sum(process.cpu_times()[:4])
    return used


@dataclass(slots=True)
class Caught:
    """One run of catching up."""

    ingest_s: float
    metrics_s: float
    ingest_cores_s: float
    metrics_cores_s: float
    ledger_bytes: list[int]
    checkpoint_bytes: list[int]
    commits: int


def caught_up(spark: SparkSession, spool: Path, root: Path) -> Caught:
    """Ingest a whole spool, then make its metrics."""
    lake = Lake(root)
    ledger: list[int] = []
    checkpoint: list[int] = []

    def note(_: object) -> None:
        ledger.append(lake.ledger_path.stat().st_size)
        files = (path for path in (root / "checkpoint").rglob("*") if path.is_file())
        checkpoint.append(sum(path.stat().st_size for path in files))

    began, cores_began = time.perf_counter(), cores_s()
    ingestion = Ingestion(spark, spool, lake, note)
    ingestion.start(None, files_at_once=60).awaitTermination()
    between, cores_between = time.perf_counter(), cores_s()
    Metrics(spark, lake).catch_up()
    return Caught(
        between - began,
        time.perf_counter() - between,
        cores_between - cores_began,
        cores_s() - cores_between,
        ledger,
        checkpoint,
        ingestion.ledger.commit,
    )


def _catching_up(report: Report, directory: Path, seconds: int, repeats: int, progress: Callable[[str], None]) -> None:
    spark = build_session("locus bench", memory="2g")
    try:
        synthetic(directory / "warm", 20)
        caught_up(spark, directory / "warm", directory / "warm-lake")
        progress(f"writing {seconds} s of traffic at {RATE:,} messages a second")
        records = synthetic(directory / "spool", seconds)
        rates, wholes, floors, caught = [], [], [], None
        by_cores: list[tuple[float, float, float]] = []
        for run in range(repeats):
            floor_s, floor_cores_s = floor_of(directory / "spool")
            floors.append(records / floor_s)
            caught = caught_up(spark, directory / "spool", directory / f"lake{run}")
            rates.append(records / caught.ingest_s)
            wholes.append(records / (caught.ingest_s + caught.metrics_s))
            all_cores_s = caught.ingest_cores_s + caught.metrics_cores_s
            by_cores.append((records / floor_cores_s, records / caught.ingest_cores_s, records / all_cores_s))
            progress(f"ingest {rates[-1]:,.0f} records/s, with metrics {wholes[-1]:,.0f}, pyarrow {floors[-1]:,.0f}")
            assert Lake(directory / f"lake{run}").ledger().counts.rows == records
    finally:
        spark.stop()
    assert caught is not None
    minutes = f"{seconds // 60} min of traffic, {records:,} records"
    floor = median(floors)
    report.rows += [
        Row(f"ingest, {minutes}", "records/s", median(rates), "pyarrow, reading and summing only", floor, FLOOR_TARGET,
            spread=spread(rates), note=f"{_reached(median(rates) >= RECORDS_TARGET)} {RECORDS_TARGET:,} records/s"),
        Row(f"ingest and metrics, {minutes}", "records/s", median(wholes), "pyarrow, reading and summing only", floor,
            FLOOR_TARGET, spread=spread(wholes),
            note=f"{_reached(median(wholes) >= RECORDS_TARGET)} {RECORDS_TARGET:,} records/s"),
    ]  # fmt: skip
    of_floor, of_ingest, of_whole = (median(list(column)) for column in zip(*by_cores, strict=True))
    for what, found in (("ingest", of_ingest), ("ingest and metrics", of_whole)):
        report.rows.append(
            Row(f"{what}, by time of cores", "records/s", found, "pyarrow, reading and summing only", of_floor,
                note="what others do on the machine is not in it")
        )  # fmt: skip
    report.remarks.append(
        f"State after the first, the middle and the last of {caught.commits} commits: the ledger"
        f" {_three(caught.ledger_bytes)} bytes, Spark's checkpoint {_three(caught.checkpoint_bytes)}; it keeps the last"
        f" {KEPT_BATCHES} micro-batches."
    )


def _three(sizes: list[int]) -> str:
    return ", ".join(f"{size:,}" for size in (sizes[0], sizes[len(sizes) // 2], sizes[-1]))


def _reached(reached: bool) -> str:
    return "above" if reached else "BELOW"


# Lag.


def publisher(port: int, stop: threading.Event) -> None:
    """Publish `RATE` messages a second with QoS 0 over a socket."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04load")
        link.recv(4)
        step, sent, began = 0.02, 0, time.monotonic()
        while not stop.is_set():
            due = int((time.monotonic() - began) * RATE)
            packets = []
            for number in range(sent, due):
                topic = f"fleet{number % 20}/{number % 500}/position".encode()
                body = struct.pack("!H", len(topic)) + topic + b"x" * 40
                packets.append(b"\x30" + bytes([len(body)]) + body)
            link.sendall(b"".join(packets))
            sent = due
            time.sleep(step)


def watched(port: int, seconds: float, arrivals: dict[str, tuple[float, float]]) -> Iterator[mqtt.Client]:
    """Note when the topic of each second was last told, and how many publishes it told of."""

    def on_message(_client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        shown = json.loads(message.payload)
        arrivals[shown["from"]] = (time.time(), shown["publishes"])

    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_message = on_message

    def on_connect(*_: Any) -> None:
        client.subscribe([("locus/metrics/+/1s", 0), ("fleet0/#", 0)])

    client.on_connect = on_connect
    client.message_callback_add("fleet0/#", lambda *_: None)
    client.connect("127.0.0.1", port)
    client.loop_start()
    deadline = time.monotonic() + 90
    while not arrivals and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(10)  # until the JVM has compiled what it runs over and over
    arrivals.clear()
    time.sleep(seconds)
    yield client
    client.disconnect()
    client.loop_stop()


def _lag(report: Report, seconds: float, progress: Callable[[str], None]) -> None:
    progress(f"following a broker at {RATE:,} messages a second")
    arrivals: dict[str, tuple[float, float]] = {}
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="locus-pipeline-") as name:
        spool = Path(name) / "spool"
        plugins = {**peers.default_plugins(), TELEMETRY: {"enabled": True, "spool_dir": str(spool)}}
        with peers.locus(plugins=plugins) as broker:
            load = threading.Thread(target=publisher, args=(broker.port, stop))
            command = [sys.executable, "-m", "clients.cli", "pipeline", "--spool", str(spool)]
            command += ["--lake", str(Path(name) / "lake"), "--broker", f"mqtt://127.0.0.1:{broker.port}"]
            log = (Path(name) / "log").open("w")
            pipeline = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            load.start()
            try:
                for _ in watched(broker.port, seconds, arrivals):
                    pass
            finally:
                stop.set()
                load.join()
                pipeline.terminate()
                pipeline.wait(30)
                log.close()
        said = (Path(name) / "log").read_text().splitlines()[-3:]
    _lag_rows(report, arrivals, said, progress)


def _lag_rows(
    report: Report, arrivals: dict[str, tuple[float, float]], said: list[str], progress: Callable[[str], None]
) -> None:
    from datetime import datetime

    lags = []
    for began, (told, publishes) in arrivals.items():
        if publishes:
            # Of the publishes of a second, spread evenly over it, at ten moments.
            start = datetime.fromisoformat(began).timestamp()
            lags += [told - start - (moment + 0.5) / 10 for moment in range(10)]
    if not lags:
        raise RuntimeError(f"no metrics were shown; the pipeline said: {said}")
    rate = median([publishes for _, publishes in arrivals.values() if publishes])
    for share in (0.5, 0.95):
        found = float(np.quantile(lags, share))
        target = LAG_TARGET_S if share == 0.95 else None
        note = f"{len(arrivals)} windows, {rate:,.0f} publishes/s shown"
        report.rows.append(
            Row(f"lag from publish to metric topic, p{share * 100:g}", "s", found, "aim" if target else "", target,
                1.0 if target else None, less_is_better=True, note=note)
        )  # fmt: skip
        progress(f"lag p{share * 100:g}: {found:.2f} s")
