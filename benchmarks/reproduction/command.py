"""`locus reproduce [PAPER ...]`: one module for each paper, each with `reproduce(out, progress)`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

PAPERS = {
    "000": "Q+R tree broker network",
    "001": "accuracy-ranked matching",
    "002": "Δ-causal order",
    "003": "R-tree overlay",
    "004": "retained messages by Q-learning",
}


class Reproduction(Protocol):
    """What a paper's module offers."""

    def reproduce(self, out: Path, progress: Callable[[str], None]) -> None:
        """Run the paper's evaluation and write `paper-NNN.md` and its PNG plots into `out`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which papers, and where the pages go."""
    listing = "; ".join(f"{number}: {title}" for number, title in PAPERS.items())
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"all when none is named. {listing}")
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction"), help="where pages and plots are written")


def run(arguments: argparse.Namespace) -> int:
    """Run the papers asked for, or all of them."""
    for number in arguments.papers:
        if number not in PAPERS:
            print(f"locus reproduce: no paper {number!r}; there are {', '.join(PAPERS)}", file=sys.stderr)
            return 2
    importlib.import_module("matplotlib")  # where it is missing, say so now and not after minutes of work
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in arguments.papers or PAPERS:
        module = cast("Reproduction", importlib.import_module(f"benchmarks.reproduction.paper_{number}"))
        module.reproduce(arguments.out, lambda line: print(line, file=sys.stderr, flush=True))
    return 0
