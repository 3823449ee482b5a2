from __future__ import annotations

import ast
from pathlib import Path

import pytest

import broker_plugins.causal

SOURCES = sorted(Path(broker_plugins.causal.__file__).parent.glob("*.py"))
ALLOWED = {"__future__", "dataclasses", "enum", "heapq", "itertools", "re", "struct", "typing", "collections"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_it_knows_no_clock_no_sockets_and_no_broker(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            assert name.split(".")[0] in ALLOWED or name.startswith("broker_plugins.causal"), f"{path.name}: {name}"
