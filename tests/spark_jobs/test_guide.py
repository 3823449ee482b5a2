"""The guide's job: the code on the page is the example's, and the example does what the page says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.ingest import Ingestion
from spark_jobs.lake import Lake
from tests.spark_jobs.spools import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "spark-job" / "busiest_topics.py"
GUIDE = (ROOT / "docs" / "guides" / "write-your-own-job.md").read_text(encoding="utf-8")
PIPELINE = (ROOT / "docs" / "guides" / "pipeline.md").read_text(encoding="utf-8")


def example() -> Any:
    specification = importlib.util.spec_from_file_location("busiest_topics", EXAMPLE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_page_shows_the_example() -> None:
    first = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)[0]
    assert first in EXAMPLE.read_text(encoding="utf-8")


def test_the_example_ranks_topics(spark: SparkSession, tmp_path: Path, monkeypatch, capsys) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    ingestion = Ingestion(spark, spool, lake)
    ingestion.take(
        [
            *write(spool, "publishes", [{"topic": "a", "bytes": 10}, {"topic": "b", "bytes": 10, "weight": 4.0}]),
            *write(spool, "deliveries", [{"topic": "a", "bytes": 10}] * 30),
        ]
    )
    module = example()
    monkeypatch.setattr("sys.argv", ["busiest_topics.py", "--lake", str(lake.root)])
    monkeypatch.setattr(module, "build_session", lambda _name: spark)
    module.main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["topic", "bytes_in", "bytes_out", "copies"],
        ["a", "10.0", "300.0", "30.0"],
        ["b", "40.0", "0.0", "0.0"],
    ]


def test_the_last_lines_of_the_page_hold(spark: SparkSession) -> None:
    last = re.findall(r"^```python\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)[-1]
    exec(last, {"spark": spark, "busiest": example().busiest})


def test_the_pages_name_modules_and_options_that_exist() -> None:
    for module in re.findall(r"python -m (spark_jobs\.\w+)|import (spark_jobs\.\w+) as", PIPELINE):
        assert importlib.util.find_spec(module[0] or module[1]), module
    words = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "spark_jobs").glob("*.py"))
    for option in set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", PIPELINE)) - {"--help"}:
        assert f'"{option}"' in words, option
