"""The commands of the guide, run against a demonstration."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

from clients.city.command import add_arguments as city_arguments
from clients.cli import main
from tests.clients.demo.test_demo import PATIENCE_S, demo

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "demo.md").read_text(encoding="utf-8")


def test_the_commands_of_the_guide_have_something_to_show(capsys):
    (console,) = re.findall(r"^```console\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    commands = re.findall(r"^\$ locus (.*)$", console, re.MULTILINE)
    assert len(commands) == 6
    with demo("--no-spark", "--no-dashboard") as running:
        running.wait_for("the city moves")
        for command in commands:
            words = [*shlex.split(command), "-p", str(running.ports[0]), "--timeout", f"{PATIENCE_S:g}s"]
            assert main(words) == 0, command
            assert capsys.readouterr().out.strip(), command
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE_S) == 0


def test_the_guide_tells_the_size_of_the_city():
    from argparse import ArgumentParser

    from clients.city import Town

    parser = ArgumentParser()
    city_arguments(parser)
    size = parser.parse_args([])
    town = Town(size.seed, vehicles=size.vehicles, people=size.people, subscribers=size.subscribers)
    for words in (
        f"{len(town.vehicles)} vehicles and {len(town.people)} people",
        f"{len(town.subscribers)} *roaming subscribers*",
        f"{len(town.fences)} *watchers*",
        f"{len(town.workers)} *workers*",
    ):
        assert words in GUIDE
