from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING

import pytest

from rl_policy import CostModel
from spark_jobs import command
from spark_jobs.failures import attempt, brief
from spark_jobs.lake import Lake
from spark_jobs.train_retained import train
from tests.spark_jobs.spools import publishes, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def test_what_fails_in_a_worker_is_said_in_a_line(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    def fail(_: int) -> int:
        raise OSError(28, "No space left on device", "/lake/tables")

    with pytest.raises(Exception, match="No space left") as raised:
        spark.sparkContext.parallelize([1], 1).map(fail).collect()
    assert brief(raised.value) == "OSError: [Errno 28] No space left on device: '/lake/tables'"
    with pytest.raises(PySparkException) as raised:
        spark.sql("SELECT nothing FROM nowhere")
    assert "\n" not in brief(raised.value)
    assert "nowhere" in brief(raised.value)
    assert brief(ValueError()) == "ValueError"


def test_an_attempt_that_fails_is_said_and_the_rest_goes_on() -> None:
    lines: list[str] = []

    def fail() -> str:
        raise ValueError("retained.policy.state is no state of training; remove it")

    assert attempt("mining", lambda: "3 slow regions", lines.append)
    assert not attempt("training", fail, lines.append)
    assert lines == [
        "mining: 3 slow regions",
        "training failed, everything else goes on: retained.policy.state is no state of training; remove it",
    ]
    with pytest.raises(ZeroDivisionError):
        attempt("what nobody can do anything about", lambda: 1 // 0, lines.append)


def test_a_training_that_cannot_go_on_does_not_end_the_pipeline(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody changed what waiting costs: what was learned before is of no use, and all else is."""
    monkeypatch.setattr(command, "build_session", lambda *_: spark)
    monkeypatch.setattr(command, "stop_signals", threading.Event)  # this process keeps its own handlers
    train(spark, Lake(tmp_path / "lake"), tmp_path / "p", CostModel(0.2, 10.0))
    write(tmp_path / "spool", "publishes", publishes(50))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--once", "--broker", "", "--spool", str(tmp_path / "spool"), "--lake", str(tmp_path / "lake")]
    words += ["--policy-file", str(tmp_path / "p"), "--kappa", "0.5", "--regions-file", str(tmp_path / "regions.json")]
    words += ["--plane", "0,0,1000,1000"]
    lines: list[str] = []
    assert command._run(parser.parse_args(words), lines.append) == 0
    said = "\n".join(lines)
    assert "training failed, everything else goes on" in said
    assert "remove it to train afresh" in said
    assert "mining: 0 slow regions" in said
    assert "50 rows of 1 segments" in said


def test_a_pipeline_that_cannot_start_says_why_in_a_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "build_session", lambda *_: spark)
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "ledger.json").write_text("not a ledger")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    for words, why in (
        (["--broker", "http://nobody"], "is no broker: give mqtt://host[:port]"),
        (["--broker", ""], "is no ledger"),
    ):
        assert command.run(parser.parse_args([*words, "--once", "--lake", str(lake), "--spool", str(tmp_path)])) == 1
        said = capsys.readouterr().err
        assert why in said
        assert "Traceback" not in said
