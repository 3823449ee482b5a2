"""The guides to smart subscriptions: every command in them is run, and prints what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.broker_plugins.smart import PLUGINS
from tests.brokers import ENGINE, locus, needs_mosquitto

REPOSITORY = Path(__file__).parents[2]
GUIDES = {
    "geofencing": ["examples/geofencing/harbour.py", "examples/geofencing/factory.yaml"],
    "best-matches": ["examples/best-matches/couriers.py", "examples/best-matches/broker.yaml"],
}


def blocks(guide: str, language: str) -> list[str]:
    text = (REPOSITORY / "docs" / "guides" / f"{guide}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def plugins_of(configuration: str) -> dict[str, dict[str, object]]:
    entries = yaml.safe_load((REPOSITORY / configuration).read_text(encoding="utf-8"))
    return {name: options for name, options in entries["plugins"].items() if name != ENGINE}


@needs_mosquitto
@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_prints_what_the_guide_says(guide, tmp_path) -> None:
    plugins = plugins_of("examples/best-matches/broker.yaml") if guide == "best-matches" else PLUGINS
    with locus(plugins=plugins) as broker:
        for program in ("mosquitto_pub", "mosquitto_sub", "python"):
            path = sys.executable if program == "python" else shutil.which(program)
            where = f'"$@" 127.0.0.1 {broker.port}' if program == "python" else f'-p {broker.port} "$@"'
            wrapper = tmp_path / program
            wrapper.write_text(f'#!/bin/sh\nexec "{path}" {where}\n')
            wrapper.chmod(0o755)
        environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        count = 0
        for block in blocks(guide, "console"):
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                done = subprocess.run(
                    ["sh", "-c", command],
                    cwd=REPOSITORY,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert (done.stdout, done.returncode) == (expected, 0), f"{command}\n{done.stderr}"
                count += 1
        assert count >= 5


@pytest.mark.parametrize("guide", GUIDES)
def test_what_the_guide_quotes_stands_in_the_examples(guide) -> None:
    examples = "\n".join((REPOSITORY / path).read_text(encoding="utf-8") for path in GUIDES[guide])
    lines = {line.strip() for line in examples.splitlines()}
    quoted = [
        line for language in ("python", "yaml") for block in blocks(guide, language) for line in block.splitlines()
    ]
    assert quoted
    for line in quoted:
        assert line.strip() in lines


def test_the_factory_starts() -> None:
    with locus(plugins=plugins_of("examples/geofencing/factory.yaml")) as broker:
        assert "failed" not in broker.log
