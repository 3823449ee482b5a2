"""The page of the command line, run from top to bottom against one broker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from clients.cli import main
from tests.brokers import ALLOW_ANONYMOUS, locus

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
PLUGINS = {
    **ALLOW_ANONYMOUS,
    "broker_plugins.geo.plugin.GeoPlugin": {},
    "broker_plugins.ranked.plugin.RankedPlugin": {},
}


def commands() -> list[tuple[str, str]]:
    """Each command line, and the lines up to the next one or the end of its block."""
    return [
        (command, output.strip("\n"))
        for console in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        for command, output in re.findall(r"^\$ (locus .*)\n((?:(?!\$ locus ).*\n)*)", console, re.MULTILINE)
    ]


def test_the_page_shows_what_the_commands_answer(tmp_path, monkeypatch, capsys):
    (fence,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "island.geojson").write_text(fence)
    monkeypatch.chdir(tmp_path)
    assert len(commands()) == PAGE.count("$ locus ") == 13
    with locus(plugins=PLUGINS) as broker:
        for command, output in commands():
            words = shlex.split(command)[1:]
            code = main(words if words[0] == "explain" else [*words, "-p", str(broker.port)])
            captured = capsys.readouterr()
            assert (captured.out + captured.err).strip("\n") == output, command
            assert code == (1 if captured.err else 0)


def test_every_option_is_on_the_page():
    from argparse import ArgumentParser

    from clients import doctor, fence, pub, retained, sub
    from clients.city import command as city
    from clients.demo import command as demo
    from clients.top import command as top

    for module in (sub, pub, fence, retained, top, doctor, demo, city):
        parser = ArgumentParser()
        module.add_arguments(parser)
        parsers = [parser]
        for action in parser._actions:
            if isinstance(action.choices, dict):
                parsers += action.choices.values()
        for one in parsers:
            for action in one._actions:
                names = set(action.option_strings)
                if names and names != {"-h", "--help"}:
                    assert any(f"`{name}" in PAGE or f" {name}" in PAGE for name in names), names
