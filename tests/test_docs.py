"""What the documentation says is what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from broker_plugins.engine.hooks import Hooks

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
