from __future__ import annotations

import asyncio
import json
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from broker_plugins.cluster.slow_areas import SlowAreas
from spark_jobs.ingest import Ingestion
from spark_jobs.lake import Lake
from spark_jobs.mine_regions import merged, mine, said, space_of, summaries
from spatial_index import WGS84, Observations, Plane, slow_regions
from tests.spark_jobs.spools import START_US, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
FLOOR = Plane(0, 0, 1000, 1000)


def walk(dice: random.Random) -> list[dict[str, Any]]:
    """Sixty users stroll in a box at (200..290), a hundred drive about everywhere."""
    rows: list[dict[str, Any]] = []
    for user in range(160):
        slow = user < 60
        low, high, step = (200, 290, 2.0) if slow else (0, 1000, 40.0)
        x, y = dice.uniform(low, high), dice.uniform(low, high)
        for report in range(40):
            x = min(max(x + dice.uniform(-step, step), low), high)
            y = min(max(y + dice.uniform(-step, step), low), high)
            rows.append({"at": START_US + report * 1_000_000, "client": f"u{user}", "lon": x, "lat": y})
    dice.shuffle(rows)
    return rows


def test_regions_of_partitions_are_those_of_the_whole(spark: SparkSession, tmp_path: Path) -> None:
    rows = walk(random.Random(4))
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    stray = {"at": START_US, "client": "lost", "lon": 5000.0, "lat": 1.0}
    Ingestion(spark, spool, lake).take(write(spool, "positions", [*rows, stray]))
    frame = lake.read(spark, "positions").repartition(3)
    summary = merged(summaries(frame, FLOOR), FLOOR)
    whole = Observations.of(
        np.array([row["client"] for row in rows], dtype=object),
        np.array([row["at"] / 1e6 for row in rows]),
        np.array([row["lon"] for row in rows]),
        np.array([row["lat"] for row in rows]),
        space=FLOOR,
    )
    assert slow_regions(summary) == slow_regions(whole)
    path = tmp_path / "regions.json"
    found = mine(spark, lake, path, FLOOR, now_s=START_US / 1e6 + 60)
    (region,) = json.loads(path.read_text())["regions"]
    west, south, east, north = region["box"]
    # Their box and half a cell more, which is 56 here.
    assert 140 < west < 210 < 280 < east < 350
    assert 140 < south < 210 < 280 < north < 350
    assert said(found) == "1 slow regions of 160 users, 60 of them slow"
    node: Any = SimpleNamespace(options=SimpleNamespace(weigh_s=1.0, slow_regions_file=str(path)))
    areas = SlowAreas(node, FLOOR)  # what the cluster reads the proposal with
    assert asyncio.run(areas.boxes()) == [(west, south, east, north)]
    assert asyncio.run(areas.boxes()) is None, "no news"
    nothing = mine(spark, lake, path, FLOOR, now_s=START_US / 1e6 + 1e6)
    assert nothing.regions == ()
    assert json.loads(path.read_text())["regions"] == []
    assert asyncio.run(areas.boxes()) == []


def test_a_plane_is_four_numbers() -> None:
    assert space_of(None) == space_of("") == WGS84
    assert space_of("0,0,1000,1000") == FLOOR
    with pytest.raises(ValueError, match="--plane '1,2,3': give four numbers"):
        space_of("1,2,3")
