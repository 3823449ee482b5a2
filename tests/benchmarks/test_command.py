from __future__ import annotations

import sys
from argparse import Namespace

import pytest

from benchmarks import command


def test_a_missing_peer_is_named_with_what_installs_it(monkeypatch, capsys):
    for name in ("benchmarks.index", "benchmarks.index_peers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "rtree", None)
    assert command.run(Namespace(benchmark="index", quick=True, json=False)) == 1
    assert capsys.readouterr().err == (
        "locus bench index needs rtree, which is not installed; pip install 'locus-mqtt[dev]'\n"
    )


def test_a_module_of_our_own_that_is_missing_is_a_fault(monkeypatch):
    monkeypatch.delitem(sys.modules, "benchmarks.index", raising=False)
    monkeypatch.setitem(sys.modules, "benchmarks.index_worlds", None)
    with pytest.raises(ModuleNotFoundError):
        command.run(Namespace(benchmark="index", quick=True, json=False))
