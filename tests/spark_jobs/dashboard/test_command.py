"""`locus dashboard`: problems that a person can solve are a line, and the guide names what there is."""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from clients.cli import main
from spark_jobs.dashboard import command
from spark_jobs.dashboard.feed import OWN_FILTERS
from spark_jobs.dashboard.scene import BLOCKS_TOPIC, Scene

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "dashboard.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCUS_DASHBOARD_PASSWORD", raising=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "give it a password"),
        (["--broker", "http://x"], "is no broker: give HOST:PORT"),
        (["--password-file", "/nowhere"], "cannot read the password"),
        (["--host", "192.0.2.1"], "give it a password"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_a_taken_port_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["dashboard", "--port", str(port)]) == 2
    assert f"port {port} of 127.0.0.1 is taken: choose another with --port" in capsys.readouterr().err


def test_without_nicegui_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    assert main(["dashboard"]) == 2
    assert capsys.readouterr().err.strip() == command.HOW_TO_GET_IT


def test_the_guide_names_every_option_and_every_subscription() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    for action in parser._actions:
        assert f"`{action.option_strings[-1]}" in GUIDE or action.dest == "help", action.option_strings
    for text in OWN_FILTERS:
        assert f"`{text}`" in GUIDE
    assert f"`{BLOCKS_TOPIC}`" in GUIDE


def test_the_picture_of_blocks_in_the_guide_is_one() -> None:
    (sample,) = re.findall(r"^```json\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    scene = Scene()
    scene.take(BLOCKS_TOPIC, sample.encode(), 0.0)
    assert scene.counts()["block"] == len(json.loads(sample)["blocks"]) == 2


def test_neither_spark_nor_arrow_is_needed_for_a_page_without_a_lake() -> None:
    code = "import sys, spark_jobs.dashboard.app; print({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
