"""The form every benchmark has: rows of Locus against a peer in one run, as a table for people or as JSON.

A ratio is turned so that larger is better, whatever the unit: `Row.ratio` divides Locus by its peer for rates, and the
peer by Locus for times, bytes and other things one wants less of.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True, frozen=True)
class Row:
    """One load measured on Locus and on one peer in the same run.

    Args:
        load: what was done, in words.
        unit: what the values are in, such as `msg/s` or `us`.
        locus: the median on Locus.
        peer: the name of the peer, empty where there is none (the row then has no ratio of its own).
        peer_value: the median on the peer.
        target: the ratio to reach, if there is one.
        less_is_better: whether a smaller value is the better one.
        spread: half the distance between the quartiles of Locus's repeats, as a share of the median.
        note: what a reader must know beside the number, such as messages a peer dropped.
    """

    load: str
    unit: str
    locus: float
    peer: str = ""
    peer_value: float | None = None
    target: float | None = None
    less_is_better: bool = False
    spread: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Locus against the peer, larger is better; None where nothing can be divided."""
        if self.peer_value is None:
            return None
        better, worse = (self.peer_value, self.locus) if self.less_is_better else (self.locus, self.peer_value)
        return better / worse if worse else None

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached, None where there is none."""
        ratio = self.ratio
        return None if self.target is None or ratio is None else ratio >= self.target


@dataclass(slots=True)
class Report:
    """The rows of one benchmark, and what a reader needs to know of the run."""

    bench: str
    rows: list[Row] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        """One JSON document with a row for each load and peer."""
        rows = [
            {
                "load": row.load,
                "unit": row.unit,
                "locus": row.locus,
                "peer": row.peer,
                "peer_value": row.peer_value,
                "ratio": row.ratio,
                "target": row.target,
                "spread": row.spread,
                "note": row.note,
            }
            for row in self.rows
        ]
        return json.dumps({"bench": self.bench, "rows": rows, "remarks": self.remarks}, ensure_ascii=False)

    def as_table(self) -> str:
        """A Markdown table, readable as plain text too."""
        header = ("load", "unit", "locus", "±", "peer", "peer's", "ratio", "target", "")
        body = [
            (
                row.load,
                row.unit,
                figure(row.locus),
                "" if row.spread is None else f"{row.spread:.0%}",
                row.peer,
                "" if row.peer_value is None else figure(row.peer_value),
                "" if row.ratio is None else f"{row.ratio:.2f}",
                "" if row.target is None else f"{row.target:g}",
                "; ".join(
                    part for part in ({True: "reached", False: "MISSED", None: ""}[row.reached], row.note) if part
                ),
            )
            for row in self.rows
        ]
        widths = [max(len(line[column]) for line in [header, *body]) for column in range(len(header))]
        lines = [header, tuple("-" * width for width in widths), *body]
        table = "\n".join(
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines
        )
        return "\n\n".join([table, *self.remarks])


def figure(value: float) -> str:
    """A number as a person reads it: thousands grouped, about three significant figures."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def median(values: Sequence[float]) -> float:
    """The median of a load's repeats."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles, as a share of the median."""
    if len(values) < 2:
        return 0.0
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    middle = statistics.median(values)
    return (quartiles[2] - quartiles[0]) / 2 / middle if middle else 0.0
