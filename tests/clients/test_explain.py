from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from clients.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "filter-grammar.md").read_text(encoding="utf-8")
CONSOLES = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
# A command line, and the lines up to the next one or the end of its block.
COMMANDS = [
    (command, output.rstrip("\n") + "\n")
    for console in CONSOLES
    for command, output in re.findall(r"^\$ (locus .*)\n((?:(?!\$ locus ).*\n)*)", console, re.MULTILINE)
]


def test_the_page_has_examples():
    assert len(COMMANDS) == PAGE.count("$ locus ") >= 18


@pytest.mark.parametrize(("command", "output"), COMMANDS)
def test_the_page_shows_what_the_command_answers(command, output, capsys):
    code = main(shlex.split(command)[1:])
    answer = capsys.readouterr()
    assert answer.out + answer.err == output
    assert code == (1 if answer.err else 0)


def test_what_is_wrong_goes_to_standard_error(capsys):
    assert main(["explain", "$geo/near:500/x"]) == 1
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err == "$geo/near:500/x\n             ^ RADIUS needs a unit, m or km: for example 500m\n"


def test_a_topic_with_clauses_must_be_a_topic(capsys):
    assert main(["explain", "a\udcff/@top:3"]) == 1  # what a shell makes of a byte that is not UTF-8
    assert "valid Unicode" in capsys.readouterr().err


def test_a_filter_with_clauses_is_explained_as_a_filter(capsys):
    assert main(["explain", "a/+/@top:3"]) == 0
    assert "nothing will match" in capsys.readouterr().out


@pytest.mark.parametrize("bounds", ["1,2,3", "5,0,1,1", "a,b,c,d", "nan,0,1,1", "0,0,inf,1"])
def test_a_plane_needs_bounds(bounds, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["explain", f"--plane={bounds}", "x"])
    assert stopped.value.code == 2
    assert "not the bounds of a plane" in capsys.readouterr().err
