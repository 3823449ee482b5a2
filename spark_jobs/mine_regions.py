"""Finds slow regions in what clients told of their positions, and proposes them to the region directory.

Idea: `spatial_index.slow_regions` works on a summary, the last 60 reports of each user, and summaries of parts merge
into that of the whole. Spark summarises each partition, the driver merges, finds the regions and writes a proposal.

Command:

    python -m spark_jobs.mine_regions --lake lake --regions-file regions.json
    python -m spark_jobs.mine_regions --lake lake --regions-file regions.json --plane 0,0,1000,1000

What one sees: `3 slow regions of 412 users, 180 of them slow`, and a file with their boxes.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark's own documentation

from rl_policy.whole_file import write_whole
from spark_jobs.lake import Lake
from spark_jobs.session import build_session
from spatial_index import WGS84, Observations, Plane, SlowRegions, SlowRegionSettings, Sphere, slow_regions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    Space = Sphere | Plane

FORMAT: Final = 1
_SUMMARY: Final = "user BIGINT, at DOUBLE, x DOUBLE, y DOUBLE"


def summaries(positions: DataFrame, space: Space = WGS84, trail: int = 60, most_users: int = 50_000) -> DataFrame:
    """The reports that a summary of each partition keeps. Places outside the space are left out."""
    bounds = space.bounds
    inside = F.col("lon").between(bounds.west, bounds.east) & F.col("lat").between(bounds.south, bounds.north)

    def summarise(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept: Observations | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            part = Observations.of(
                np.array(batch["client"].to_pylist(), dtype=object),
                batch["time"].to_numpy(),
                batch["lon"].to_numpy(),
                batch["lat"].to_numpy(),
                space=space,
                trail=trail,
                most_users=most_users,
            )
            kept = part if kept is None else kept.merge(part)
        if kept is not None:
            columns = [kept.users.view(np.int64), kept.times, kept.xs, kept.ys]
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], ["user", "at", "x", "y"])

    seconds = F.unix_micros("at") / 1e6
    chosen = positions.where(inside).select("client", seconds.alias("time"), "lon", "lat")
    return chosen.mapInArrow(summarise, _SUMMARY)


def merged(parts: DataFrame, space: Space = WGS84, trail: int = 60, most_users: int = 50_000) -> Observations:
    """The summaries of all partitions as one."""
    rows = parts.toArrow()
    columns = [rows[name].to_numpy() for name in ("user", "at", "x", "y")]
    users, times, xs, ys = columns
    return Observations(space, users.astype(np.int64).view(np.uint64), times, xs, ys, trail, most_users).merge()


def mine(
    spark: SparkSession,
    lake: Lake,
    regions_file: Path,
    space: Space = WGS84,
    settings: SlowRegionSettings | None = None,
    since_s: float = 86_400.0,
    now_s: float | None = None,
) -> SlowRegions:
    """Find slow regions in the positions of the last day, and write the proposal.

    Args:
        spark: the session.
        lake: where the positions are.
        regions_file: the proposal, replaced as a whole.
        space: the Earth, or a plane.
        settings: what counts as slow and as a region.
        since_s: how far back to look.
        now_s: the time, in seconds since 1970.
    """
    now_s = time.time() if now_s is None else now_s
    recent = lake.read(spark, "positions").where(F.unix_micros("at") >= round((now_s - since_s) * 1e6))
    found = slow_regions(merged(summaries(recent, space), space), settings)
    write_whole(regions_file.absolute(), proposal(found, now_s).encode())
    return found


def space_of(plane: str | None) -> Space:
    """The space that an option names: bounds of a plane, `west,south,east,north`, or the Earth if it is not said.

    Raises:
        ValueError: these are no bounds.
    """
    if not plane:
        return WGS84
    try:
        west, south, east, north = (float(part) for part in plane.split(","))
    except ValueError as error:
        raise ValueError(f"--plane {plane!r}: give four numbers, west,south,east,north") from error
    return Plane(west, south, east, north)


def proposal(found: SlowRegions, now_s: float) -> str:
    """What the file says: a JSON document, boxes as west, south, east, north."""
    regions = [
        {"box": list(region.box), "population": region.population, "residency": region.residency}
        for region in found.regions
    ]
    return json.dumps(
        {
            "format": FORMAT,
            "found_at": datetime.fromtimestamp(now_s, UTC).isoformat(),
            "users": found.users,
            "slow_users": found.slow_users,
            "threshold": found.threshold,
            "regions": regions,
        },
        indent=2,
    )


def main(argv: list[str] | None = None) -> int:
    """Run the job; see the head of this module."""
    parser = argparse.ArgumentParser(description="Find slow regions in clients' positions.")
    parser.add_argument("--lake", type=Path, required=True, help="the directory of the tables")
    parser.add_argument("--regions-file", type=Path, required=True, help="the proposal to write")
    parser.add_argument("--plane", help="bounds of a plane: west,south,east,north; the Earth if not said")
    parser.add_argument("--since-s", type=float, default=86_400.0, help="how far back to look (a day)")
    parser.add_argument("--master", default="local[*]", help="Spark's master; empty leaves it to spark-submit")
    arguments = parser.parse_args(argv)
    space = space_of(arguments.plane)
    spark = build_session("locus mine_regions", arguments.master or None)
    print(said(mine(spark, Lake(arguments.lake), arguments.regions_file, space, since_s=arguments.since_s)))
    return 0


def said(found: SlowRegions) -> str:
    """The result in a line."""
    return f"{len(found.regions)} slow regions of {found.users} users, {found.slow_users} of them slow"


if __name__ == "__main__":
    raise SystemExit(main())
