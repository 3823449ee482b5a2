"""`locus bench retained`: is a retained message worth sending, what does waiting cost, and what does a storm?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Report
from benchmarks.retained_broker import measure_broker
from benchmarks.retained_replay import measure_replay
from benchmarks.retained_storm import measure_storm

if TYPE_CHECKING:
    from collections.abc import Callable


def measure(quick: bool, progress: Callable[[str], None]) -> Report:
    """Run every load: the policies by replay, the same through real brokers, and the storm."""
    report = Report("retained")
    for part in (measure_replay, measure_broker, measure_storm):
        rows, remarks = part(quick, progress)
        report.rows += rows
        report.remarks += remarks
    return report
