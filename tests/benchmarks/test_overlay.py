"""The benchmark of content routing counts what its rows say."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import overlay
from benchmarks.report import Report
from spatial_index import Election


def test_every_way_reaches_everybody_and_a_plan_costs_no_more_than_who_wants_it() -> None:
    for world in overlay.worlds(20, 3):
        rng = np.random.default_rng(1)
        events = world.draw(40, rng)
        routed = overlay.routed(overlay.grown(world, Election.RANDOM, events, placed=False, cap=None), world, events)
        planned = overlay.planned(overlay.grown(world, Election.RANDOM, events, placed=True, cap=8.0), world, events)
        assert routed.recall == planned.recall == 1.0
        assert planned.cost + planned.own == pytest.approx(planned.expected / len(events))
        assert planned.cost <= routed.cost


def test_rows_of_a_world() -> None:
    report = Report("overlay")
    overlay._measure_world(report, overlay.worlds(20, 3)[3], 40)
    assert [row.unit for row in report.rows] == ["", "", "", "× mean", ""]
    assert report.rows[-1].reached
