"""`locus bench retained`: is a retained message worth sending, and what does waiting cost?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Report
from benchmarks.retained_replay import measure_replay

if TYPE_CHECKING:
    from collections.abc import Callable


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    """Run every load."""
    report = Report("retained")
    rows, remarks = measure_replay(quick, progress)
    report.rows += rows
    report.remarks += remarks
    return report
