"""Builds Spark sessions: settings that suit a driver with a few cores, and a clear word where Java is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

NEEDED_JAVA: Final = 17
HOW_TO_GET_JAVA: Final = (
    f"Spark needs Java {NEEDED_JAVA} or newer. Install it with `sudo apt-get install openjdk-17-jre-headless` (Debian, "
    "Ubuntu), `sudo dnf install java-17-openjdk-headless` (Fedora) or `brew install openjdk@17` (macOS), or point "
    "JAVA_HOME at one."
)
HOW_TO_GET_SPARK: Final = "the pipeline needs Spark: pip install 'locus-mqtt[spark]'"


class JavaMissingError(RuntimeError):
    """There is no Java that Spark could run on; the message says how to get one."""


def java_path() -> str | None:
    """The Java that Spark would run: that of JAVA_HOME, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def require_java() -> int:
    """The version of the Java that Spark would run.

    Raises:
        JavaMissingError: there is none, or it is too old.
    """
    path = java_path()
    if path is None:
        raise JavaMissingError(f"no Java found. {HOW_TO_GET_JAVA}")
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - our own path
    match = re.search(r'version "(\d+)', said)
    if match is None:
        raise JavaMissingError(f"{path} -version says {said[:80]!r}, which is no version. {HOW_TO_GET_JAVA}")
    if int(match[1]) < NEEDED_JAVA:
        raise JavaMissingError(f"{path} is Java {match[1]}. {HOW_TO_GET_JAVA}")
    return int(match[1])


def build_session(
    name: str, master: str | None = "local[*]", memory: str = "1g", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session for the jobs.

    Args:
        name: how it is called in Spark's own pages and logs.
        master: where it runs; None leaves that to `spark-submit`.
        memory: of the driver, which in local mode does all the work.
        settings: more of Spark's settings; they win.

    Raises:
        JavaMissingError: there is no Java.
    """
    require_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is not None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need what the driver has installed
        builder = builder.master(master).config("spark.driver.memory", memory)
        if master.startswith("local"):
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        # A micro-batch is small: more shuffle partitions than cores only cost scheduling.
        builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.default.parallelism", "2")
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Listing a few hundred named files is quicker in the driver than in a job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.sql.streaming.minBatchesToRetain": "5",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.adaptive.enabled": "false",  # re-planning costs more than it saves on such small jobs
    }
    for key, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
