"""Ranks topics by the bytes they cost: published once, delivered many times.

Idea: two tables of the lake, joined by topic. A function from frames to a frame does the work, so that it can be tried
on a few rows without a lake; `main` reads the lake and prints.

Command:

    python examples/spark-job/busiest_topics.py --lake lake --top 10

What one sees: a table of topics with the bytes taken, the bytes given, and how many times each byte went out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark's own documentation

from spark_jobs.lake import Lake
from spark_jobs.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def busiest(publishes: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Bytes in and out of each topic, most costly first. Records are sampled, so each counts with its weight."""
    weighed = F.sum(F.col("weight") * F.col("bytes"))
    taken = publishes.groupBy("topic").agg(weighed.alias("bytes_in"))
    given = deliveries.groupBy("topic").agg(weighed.alias("bytes_out"))
    both = taken.join(given, "topic", "full").na.fill(0.0, ["bytes_in", "bytes_out"])
    copies = F.when(F.col("bytes_in") > 0, F.col("bytes_out") / F.col("bytes_in"))
    return both.withColumn("copies", copies).orderBy(F.desc("bytes_out"), "topic")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--top", type=int, default=10)
    arguments = parser.parse_args()
    spark = build_session("busiest topics")
    lake = Lake(arguments.lake)
    found = busiest(lake.read(spark, "publishes"), lake.read(spark, "deliveries"))
    found.show(arguments.top, truncate=False)


if __name__ == "__main__":
    main()
