"""The lines of the guide for `spark-submit`, run as they stand, with a local master and directories of our own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_jobs.lake import Lake
from spark_jobs.session import java_path
from tests.spark_jobs.spools import publishes, write

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(java_path() is None, reason="Spark needs Java: apt-get install openjdk-17-jre-headless"),
]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "pipeline.md"


def recipes(shared: Path) -> dict[str, str]:
    """By job, its line of the guide for this machine."""
    (block,) = re.findall(
        r"^```sh\n(spark-submit .*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    lines = block.replace("\\\n", " ").replace("spark://master:7077", "local[2]").replace("/shared/", f"{shared}/")
    lines = lines.replace("mqtt://broker:1883", "''")
    found = {}
    for line in lines.splitlines():
        job = re.search(r"import spark_jobs\.(\w+)", line)
        assert job is not None, line
        found[job[1]] = f"{line} --once" if job[1] in ("ingest", "metrics") else line
    return found


def submit(line: str) -> str:
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, (line, done.stdout, done.stderr[-4_000:])
    return done.stdout


def test_the_recipes_of_the_guide_run(tmp_path: Path) -> None:
    write(tmp_path / "telemetry", "publishes", publishes(70))
    lines = recipes(tmp_path)
    assert list(lines) == ["ingest", "metrics", "train_retained", "mine_regions"]
    assert "commit 1: 70 records of 1 tables" in submit(lines["ingest"])
    lake = Lake(tmp_path / "lake")
    assert lake.ledger().counts.rows == 70
    assert "1 commits up to 1" in submit(lines["metrics"])
    (cube,) = (lake.root / "metrics" / "cube").glob("*.parquet")
    sums = pq.read_table(cube, filters=[("metric", "=", "publishes"), ("scope", "=", "node")])
    assert sum(sums["value"].to_pylist()) == 70
    assert "no records to judge by" in submit(lines["train_retained"])
    assert "0 slow regions of 0 users" in submit(lines["mine_regions"])
    assert json.loads((tmp_path / "regions.json").read_text())["regions"] == []
