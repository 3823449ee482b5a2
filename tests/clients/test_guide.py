"""The guide to the client library: what it shows runs, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import clients
from broker_plugins.grammar import Clauses, Geo, SmartFilter, Where, build_filter, build_topic
from tests.brokers import ALLOW_ANONYMOUS, locus

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "client-library.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", GUIDE, re.DOTALL | re.MULTILINE)
PLUGINS = {
    **ALLOW_ANONYMOUS,
    "broker_plugins.geo.plugin.GeoPlugin": {},
    "broker_plugins.ranked.plugin.RankedPlugin": {},
}


@pytest.fixture(scope="module")
def broker():
    with locus(plugins=PLUGINS) as running:
        yield running


def test_the_guide_has_programs():
    assert len(PROGRAMS) == GUIDE.count("```python") == 5


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_a_program_prints_what_the_guide_says(broker, program, output):
    aimed = program.replace("Client(", f"Client(port={broker.port}, ").replace(", )", ")")
    assert aimed != program
    done = subprocess.run([sys.executable, "-c", aimed], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if output:
        assert done.stdout == output


def test_the_filters_are_those_of_the_table():
    rows = re.findall(r"^\| [^|]+ \| `((?:area|where|share)=.*)` \| `(\$.*)/…` \|$", GUIDE, re.MULTILINE)
    assert len(rows) == 7
    for said, text in rows:
        arguments = eval(f"dict({said})", vars(clients).copy())
        area = arguments.get("area")
        smart = SmartFilter(
            "x",
            Geo(area, arguments.get("detect", clients.Detect.INSIDE)) if area else None,
            Where.of(arguments["where"]) if "where" in arguments else None,
            arguments.get("share"),
        )
        assert build_filter(smart) == f"{text}/x"


def test_the_ttl_of_the_table():
    assert "| `ttl_s=0.25` | how long it is worth having | `ttl:250ms` |" in GUIDE
    assert build_topic("x", Clauses(ttl=0.25)) == "x/@ttl:250ms"


def test_every_error_is_in_the_table():
    named = {name for name in clients.__all__ if name.endswith("Error")} - {"LocusClientError"}
    assert set(re.findall(r"^\| `(\w+Error)` \|", GUIDE, re.MULTILINE)) == named
