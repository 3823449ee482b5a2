"""The driver is killed with SIGKILL at random moments while segments keep coming; afterwards every count is exact."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from spark_jobs.ingest import Ingestion
from spark_jobs.lake import Lake
from spark_jobs.metrics import Metrics, history
from spark_jobs.session import java_path
from tests.spark_jobs.spools import publishes, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(java_path() is None, reason="Spark needs Java: apt-get install openjdk-17-jre-headless"),
]
KILLS = int(os.environ.get("LOCUS_KILLS", "2"))
"""A kill costs the start of a JVM, so the suite makes do with two; LOCUS_KILLS=20 is for a quiet evening."""


def start(spool: Path, lake: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "spark_jobs.ingest", "--spool", str(spool), "--lake", str(lake)]
    command += ["--trigger-s", "0.1", "--master", "local[2]", "--files-at-once", "3"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_every_record_counts_once_however_often_the_driver_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(os.getpid())
    spool, root = tmp_path / "spool", tmp_path / "lake"
    stop = threading.Event()
    written = Counter[str]()

    def produce() -> None:
        first = 1
        while not stop.is_set():
            rows = publishes(40, first)
            write(spool, "publishes", rows, first)
            write(spool, "deliveries", [{**row, "latency_us": 5} for row in rows], first)
            if dice.random() < 0.2:  # once more, shifted: half of it is new to nobody
                write(spool, "publishes", publishes(20, first), first)
            written.update(publishes=40, deliveries=40)
            first += 40
            time.sleep(0.05)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for kill in range(KILLS):
            driver = start(spool, root)
            assert driver.stdout is not None
            for _ in range(dice.randrange(1, 4)):  # it works again: then kill it some moment later
                line = driver.stdout.readline()
                assert line.startswith("commit "), (kill, line)
            time.sleep(dice.random() * 0.4)
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            driver.stdout.close()
    finally:
        stop.set()
        producer.join()
    lake = Lake(root)
    Ingestion(spark, spool, lake).start(None).awaitTermination()
    for name, count in written.items():
        numbers = [row.sequence for row in lake.read(spark, name).select("sequence").collect()]
        assert sorted(numbers) == list(range(1, count + 1)), name
    ledger = lake.ledger()
    assert ledger.tables == dict(written)
    assert ledger.missing() == 0
    Metrics(spark, lake).catch_up()
    rows = history(spark, lake, 60).where("scope = 'node'").collect()
    assert sum(row.publishes for row in rows) == written["publishes"]
    assert sum(row.deliveries for row in rows) == written["deliveries"]
