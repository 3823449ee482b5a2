from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatial_index.overlay_election import RecentEvents, Volume, overheads


def one(estimate, low, high):
    return float(estimate(np.array([low], dtype=float), np.array([high], dtype=float))[0])


def test_volume_is_a_share_and_a_point_is_not_nothing():
    volume = Volume([0, 0], [10, 100])
    assert one(volume, [0, 0], [10, 100]) == 1
    assert one(volume, [-np.inf, 0], [np.inf, 50]) == 0.5
    assert one(volume, [2, 0], [2, 100]) == pytest.approx(1e-3)
    assert one(volume, [3, 0], [2, 100]) == 0


@settings(max_examples=40, deadline=None)
@given(
    attributes=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_the_histogram_counts_boxes_that_follow_its_bins(attributes, seed):
    rng = np.random.default_rng(seed)
    events = rng.uniform(0, 1, (50, attributes))
    recent = RecentEvents([0.0] * attributes, [1.0] * attributes, half_life=1e9)
    for event in events:
        recent.record(event)
    everything = one(recent, [-np.inf] * attributes, [np.inf] * attributes)
    assert everything == pytest.approx(1)
    half = np.ones(attributes)
    half[0] = 0.5  # a bin border, for the number of bins is even
    expected = (events[:, 0] < 0.5).mean()
    if recent._bins % 2 == 0:
        assert one(recent, np.zeros(attributes), half) == pytest.approx(expected)


def test_old_events_fade():
    recent = RecentEvents([0.0], [100.0], half_life=10)
    for _ in range(50):
        recent.record([5.0])
    for _ in range(10):
        recent.record([95.0])
    assert one(recent, [90], [100]) == pytest.approx(0.5, abs=0.02)
    for _ in range(5000):
        recent.record([95.0])
    assert one(recent, [90], [100]) == pytest.approx(1)
    assert np.isfinite(recent._counts).all()


def test_points_and_values_beyond_the_domain_have_their_bin():
    recent = RecentEvents([0.0, 0.0], [64.0, 64.0], half_life=100)
    recent.record([3.5, 70.0])
    recent.record([3.5, None])
    assert one(recent, [3.2, 80], [3.2, 90]) == pytest.approx(1)
    assert one(recent, [10, 0], [20, 64]) == 0


def test_overheads_are_the_papers_formula():
    lows, highs = np.array([[0.0], [5.0], [20.0]]), np.array([[10.0], [15.0], [21.0]])
    volume = Volume([0.0], [100.0])
    costs = overheads((lows, highs), (lows, highs), volume, 2.0, 3.0, are_members=True)
    # O₁ = (R+F)(E₂+E₃) − R(E₁₂+E₁₃), and so on: E = .10, .10, .01, the first two share .05
    assert costs == pytest.approx([5 * 0.11 - 2 * 0.05, 5 * 0.11 - 2 * 0.05, 5 * 0.20])
