"""`locus pipeline`, as a user starts it."""

from __future__ import annotations

import argparse
import json
import threading
from typing import TYPE_CHECKING

import pytest

from clients.cli import main
from spark_jobs import command, session
from spark_jobs.lake import Lake
from spark_jobs.session import JavaMissingError, require_java
from tests.spark_jobs.spools import publishes, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def test_without_java_it_says_how_to_get_it(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["pipeline", "--broker", ""]) == 2
    assert "no Java found" in (said := capsys.readouterr().err)
    assert "apt-get install openjdk-17-jre-headless" in said


def test_without_spark_it_says_how_to_get_it(monkeypatch, capsys) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    assert main(["pipeline"]) == 2
    assert "pip install 'locus-mqtt[spark]'" in capsys.readouterr().err


@pytest.mark.parametrize(("said", "why"), [('openjdk version "11.0.2"', "is Java 11"), ("segfault", "is no version")])
def test_a_java_that_will_not_do_is_refused(monkeypatch, tmp_path: Path, said: str, why: str) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(session, "java_path", lambda: str(java))
    with pytest.raises(JavaMissingError, match=why):
        require_java()


def test_once_takes_everything_in_and_trains(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(command, "build_session", lambda *_: spark)
    monkeypatch.setattr(command, "stop_signals", threading.Event)  # this process keeps its own handlers
    write(tmp_path / "spool", "publishes", publishes(50))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--once", "--broker", "", "--spool", str(tmp_path / "spool"), "--lake", str(tmp_path / "lake")]
    words += ["--policy-file", str(tmp_path / "p"), "--regions-file", str(tmp_path / "regions.json")]
    lines: list[str] = []
    assert command._run(parser.parse_args(words), lines.append) == 0
    said = "\n".join(lines)
    assert "commit 1: 50 records of 1 tables" in said
    assert "no records to judge by" in said
    assert "0 slow regions of 0 users" in said
    assert "50 rows of 1 segments; 0 doubled, 0 missing" in said
    assert Lake(tmp_path / "lake").ledger().counts.rows == 50
    assert json.loads((tmp_path / "regions.json").read_text())["regions"] == []
    assert "is not there yet" not in said


def test_a_spool_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(command, "build_session", lambda *_: spark)
    monkeypatch.setattr(command, "stop_signals", threading.Event)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    words = ["--once", "--broker", "", "--spool", str(tmp_path / "spool"), "--lake", str(tmp_path / "lake")]
    lines: list[str] = []
    assert command._run(parser.parse_args(words), lines.append) == 0
    assert any(f"{tmp_path / 'spool'} is not there yet: a broker with the telemetry plugin" in line for line in lines)


class BusyQuery:
    """A query whose micro-batches follow each other without a pause; the first ends when it was looked at so often."""

    def __init__(self, looks: int) -> None:
        self.isActive = True  # as in Spark
        self._looks = looks
        self.stopped_in: int | None = None

    @property
    def status(self) -> dict[str, bool]:
        assert self._looks > -3, "it waits for a second micro-batch"
        self._looks -= 1
        return {"isTriggerActive": True}

    @property
    def lastProgress(self) -> dict[str, int] | None:
        return {"batchId": 7 if self._looks > 0 else 8}

    def stop(self) -> None:
        self.stopped_in = self.lastProgress["batchId"] + 1
        self.isActive = False


def test_only_the_micro_batch_under_way_is_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(command, "QUIET_S", 0.0)
    query, lines = BusyQuery(looks=5), list[str]()
    command.end(query, lines.append)  # type: ignore[arg-type]
    assert query.stopped_in == 9  # the eighth ended, and the next one was broken off
    assert lines == ["the micro-batch that is under way is finished first"]


def test_a_micro_batch_that_does_not_end_is_broken_off(monkeypatch) -> None:
    monkeypatch.setattr(command, "PATIENCE_S", 0.0)
    query, lines = BusyQuery(looks=1_000_000), list[str]()
    command.end(query, lines.append)  # type: ignore[arg-type]
    assert query.stopped_in == 8
    assert "taken in by the next run" in lines[0]
