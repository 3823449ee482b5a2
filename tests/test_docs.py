"""What the documentation says is what the code does."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from broker_plugins.causal import CausalNode, Roster
from broker_plugins.engine.hooks import Hooks
from tests.brokers import locus

REPOSITORY = Path(__file__).parent.parent
PAGES = sorted([*REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("*.md")])


def test_the_configuration_page_is_written_from_the_code() -> None:
    path = REPOSITORY / "scripts" / "configuration_reference.py"
    spec = importlib.util.spec_from_file_location("configuration_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run: python scripts/configuration_reference.py"


def test_the_hooks_page_names_every_hook_and_no_other() -> None:
    named = set(re.findall(r"`(\w+)\(", (REPOSITORY / "docs/reference/hooks.md").read_text().split("## An example")[0]))
    hooks = {name for name in vars(Hooks) if not name.startswith("_") and callable(getattr(Hooks, name))}
    assert hooks <= named


def test_the_snippets_of_the_readme_stand_in_the_examples() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    examples = " ".join(path.read_text() for path in REPOSITORY.glob("examples/plain-*/*.*"))
    snippets = re.findall(r"```(?:python|sh|js)\n(.*?)```", readme, re.DOTALL)
    assert len(snippets) == 3
    for line in " ".join(snippets).splitlines():
        assert line.strip() in examples, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.relative_to(REPOSITORY)} points at {target}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Every page is in the navigation, every link and anchor leads somewhere, every quoted file is there."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        fetched = re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?(https?://[^"'> ]+)""", page.read_text())
        assert not fetched, f"{page.name} fetches {fetched} from elsewhere"


def _given(page: str) -> dict[str, Any]:
    """What the snippets of a page take for granted."""
    if page == "region-tree":
        chance = np.random.default_rng(1)
        return {"lons": chance.normal(126.98, 0.02, 20_000), "lats": chance.normal(37.56, 0.02, 20_000)}
    if page == "delta-causal":
        north = CausalNode("north", Roster(["north", "south", "west"]), lifetime_us=250_000, skew_us=5_000)
        return {"now": 1_000, "control": north.send(1_000, ["west"]).control["west"], "payload": b"hello"}
    return {}


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs" / "structures").glob("*.md")), ids=lambda page: page.stem)
def test_the_snippets_about_structures_run(page: Path) -> None:
    """And where the comment behind an expression is a list, that is what it gives."""
    names = _given(page.stem)
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        lines = block.splitlines()
        for statement in ast.parse(block).body:
            code = compile(ast.Module([statement], []), str(page), "exec")
            if not isinstance(statement, ast.Expr):
                exec(code, names)
                continue
            value = eval(compile(ast.Expression(statement.value), str(page), "eval"), names)
            comment = lines[statement.lineno - 1].partition("# ")[2]
            if comment.startswith("["):
                assert value == ast.literal_eval(comment.partition("]")[0] + "]"), lines[statement.lineno - 1]


@pytest.mark.parametrize("name", ["from-amqtt", "from-mosquitto"])
def test_a_broker_that_was_another_one_starts(name: str, tmp_path: Path) -> None:
    plugins = yaml.safe_load((REPOSITORY / f"examples/moving/{name}.yaml").read_text())["plugins"]
    (tmp_path / "passwords").touch()
    if name == "from-mosquitto":
        plugins["amqtt.plugins.authentication.FileAuthPlugin"]["password_file"] = str(tmp_path / "passwords")
    engine = {**plugins.pop("broker_plugins.engine.plugin.EnginePlugin"), "data_dir": str(tmp_path / "data")}
    with locus(plugins=plugins, engine=engine, directory=tmp_path) as broker:
        assert "failed" not in broker.log
