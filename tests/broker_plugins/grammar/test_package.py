from __future__ import annotations

import subprocess
import sys

import broker_plugins.grammar as grammar


def test_it_imports_nothing_else_of_locus_and_no_third_party():
    program = """
import sys
before = set(sys.modules)
import broker_plugins.grammar
for name in sorted(set(sys.modules) - before):
    if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("broker_plugins.grammar"):
        print(name)
if "asyncio" in sys.modules:
    print("asyncio")
"""
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["broker_plugins"]


def test_the_public_names_exist():
    assert all(hasattr(grammar, name) for name in grammar.__all__)
    assert sorted(grammar.__all__) == sorted(set(grammar.__all__))
