"""What the metrics are made of: sums by second, node, topic prefix and map cell, that add up in any order.

A cube is a frame with the columns of `CUBE`. One record adds to a few of its rows, so two cubes of two commits, two
nodes or two hours are added by adding what is equal in all but `value`. Late records are no special case: they add to
a second that has passed. A latency falls into a bucket, each 5 % wider than the one before, so a quantile read from
buckets is within 2.5 % of the exact one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark's own documentation

from spark_jobs.buckets import GROWTH, NO_BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

CUBE: Final = (
    "`second` TIMESTAMP, `node` STRING, `incarnation` BIGINT, `scope` STRING, `key` STRING, `metric` STRING, "
    "`bucket` INT, `value` DOUBLE"
)
DIMENSIONS: Final = ("second", "node", "incarnation", "scope", "key", "metric", "bucket")
CELL_CHARACTERS: Final = 5
"""A geohash of five characters: about 5 km by 5 km."""
OWN_TOPICS: Final = "locus/metrics/"
"""What the pipeline itself publishes is left out, or a quiet broker would never be quiet."""
_ALPHABET: Final = "0123456789bcdefghjkmnpqrstuvwxyz"


def stripes(lon: Column, lat: Column, characters: int = CELL_CHARACTERS) -> tuple[Column, Column]:
    """The column and the row of the geohash cell of a place, as numbers; null for what is no place on the Earth."""
    columns, rows = (5 * characters + 1) // 2, 5 * characters // 2
    on_earth = lon.between(-180.0, 180.0) & lat.between(-90.0, 90.0)
    x = F.least(F.floor((lon / 360.0 + 0.5) * (1 << columns)), F.lit((1 << columns) - 1))
    y = F.least(F.floor((lat / 180.0 + 0.5) * (1 << rows)), F.lit((1 << rows) - 1))
    return F.when(on_earth, x), F.when(on_earth, y)


def geohash(x: Column, y: Column, characters: int = CELL_CHARACTERS) -> Column:
    """The name of a cell by its column and row: an expression so long that it is better asked of few rows."""
    columns, rows = (5 * characters + 1) // 2, 5 * characters // 2
    letters = []
    for letter in range(characters):
        value = F.lit(0).cast("bigint")
        for bit in range(5 * letter, 5 * letter + 5):
            axis, left = (x, columns) if bit % 2 == 0 else (y, rows)
            value = value * 2 + F.shiftright(axis, left - 1 - bit // 2).bitwiseAND(1)
        letters.append(F.substring(F.lit(_ALPHABET), (value + 1).cast("int"), F.lit(1)))
    return F.concat(*letters)


def cube_of(name: str, records: DataFrame) -> DataFrame | None:
    """What the records of a table add to the cube; None for a table that adds nothing."""
    make = _TABLES.get(name)
    return None if make is None else make(records)


def added(cubes: list[DataFrame]) -> DataFrame:
    """Cubes as one, equal rows added."""
    whole = cubes[0]
    for cube in cubes[1:]:
        whole = whole.unionByName(cube)
    return whole.groupBy(*DIMENSIONS).agg(F.sum("value").alias("value"))


def _summed(records: DataFrame, sums: dict[str, Column], scope: str = "", bucket: Column | None = None) -> DataFrame:
    """Sum by second, node and one scope, then lay out a row for each sum; with a scope, for the node as well.

    Args:
        records: records of a table.
        sums: by metric, what each record adds to it.
        scope: `prefix`, `cell` or nothing.
        bucket: the bucket that what a record adds falls into.
    """
    by = {"second": F.date_trunc("second", "at"), "node": F.col("node"), "incarnation": F.col("incarnation")}
    if scope == "prefix":
        by["place"] = F.substring_index(F.col("topic"), "/", 1)
    elif scope == "cell":
        by["x"], by["y"] = stripes(F.col("lon"), F.col("lat"))
    by["bucket"] = F.lit(NO_BUCKET) if bucket is None else bucket
    grouped = records.groupBy(*(column.alias(alias) for alias, column in by.items()))
    base = grouped.agg(*(F.sum(column.cast("double")).alias(alias) for alias, column in sums.items()))
    of_node = F.struct(F.lit("node").alias("scope"), F.lit("").alias("key"))
    if scope == "prefix":
        places = F.array(of_node, F.struct(F.lit(scope).alias("scope"), F.col("place").alias("key")))
    elif scope == "cell":
        base = base.where(F.col("x").isNotNull())
        places = F.array(F.struct(F.lit(scope).alias("scope"), geohash(F.col("x"), F.col("y")).alias("key")))
    else:
        places = F.array(of_node)
    rows = F.array(*(F.struct(F.lit(alias).alias("metric"), F.col(alias).alias("value")) for alias in sums))
    laid_out = base.select("second", "node", "incarnation", "bucket", F.explode(places).alias("place"), *sums)
    laid_out = laid_out.select("second", "node", "incarnation", "place", "bucket", F.explode(rows).alias("row"))
    bucket_number = F.col("bucket").cast("int").alias("bucket")
    laid_out = laid_out.select(
        "second", "node", "incarnation", "place.scope", "place.key", "row.metric", bucket_number, "row.value"
    )
    return laid_out.where(F.col("value") != 0.0)


def _others(records: DataFrame) -> DataFrame:
    return records.where(~F.col("topic").startswith(OWN_TOPICS))


def _publishes(records: DataFrame) -> DataFrame:
    weight = F.col("weight")
    sums = {"publishes": weight, "published_bytes": weight * F.col("bytes")}
    others = _others(records)
    return _summed(others, sums, "prefix").unionByName(_summed(others, sums, "cell"))


def _deliveries(records: DataFrame) -> DataFrame:
    weight, latency, others = F.col("weight"), F.col("latency_us"), _others(records)
    bucket = F.greatest(F.ceil(F.log(F.greatest(latency, F.lit(1))) / math.log(GROWTH)), F.lit(0))
    counts = _summed(others, {"deliveries": weight, "delivered_bytes": weight * F.col("bytes")}, "prefix")
    timed = others.where(latency.isNotNull())
    return counts.unionByName(_summed(timed, {"latency": weight}, "prefix", bucket))


def _drops(records: DataFrame) -> DataFrame:
    return _summed(_others(records), {"drops": F.col("weight")}, "prefix")


def _sessions(records: DataFrame) -> DataFrame:
    change = F.when(F.col("event") == "connected", 1).when(F.col("event") == "disconnected", -1).otherwise(0)
    came = F.when(F.col("event") == "connected", F.col("weight")).otherwise(0.0)
    return _summed(records, {"connections": change * F.col("weight"), "connects": came})


def _subscriptions(records: DataFrame) -> DataFrame:
    change = F.when(F.col("event") == "subscribed", F.col("weight")).otherwise(-F.col("weight"))
    return _summed(records, {"subscriptions": change})


def _positions(records: DataFrame) -> DataFrame:
    sums = {"positions": F.col("weight")}
    return _summed(records, sums).unionByName(_summed(records, sums, "cell"))


def _matches(records: DataFrame) -> DataFrame:
    weight = F.col("weight")
    return _summed(_others(records), {"matches": weight, "match_width": weight * F.col("accuracy")}, "prefix")


def _retained(records: DataFrame) -> DataFrame:
    weight, saved = F.col("weight"), F.col("saved")
    waited = F.least(F.coalesce(F.col("residual_s"), F.col("wait_s")), F.col("wait_s"))
    sums = {
        "retained_decisions": weight,
        "retained_saved": F.when(saved, weight).otherwise(0.0),
        "retained_bytes_saved": F.when(saved, weight * F.coalesce(F.col("bytes"), F.lit(0))).otherwise(0.0),
        "retained_waited_s": weight * waited,
    }
    return _summed(_others(records), sums, "prefix")


def _routes(records: DataFrame) -> DataFrame:
    weight = F.col("weight")
    return _summed(_others(records), {"routes": weight, "routed_bytes": weight * F.col("bytes")}, "prefix")


_TABLES: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "publishes": _publishes,
    "deliveries": _deliveries,
    "drops": _drops,
    "sessions": _sessions,
    "subscriptions": _subscriptions,
    "positions": _positions,
    "matches": _matches,
    "retained_decisions": _retained,
    "routes": _routes,
}
METRIC_TABLES: Final = tuple(_TABLES)
"""The tables that add to the cube."""
