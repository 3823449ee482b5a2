from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_policy import censoring_weights

LONGEST = 10.0


def weights_of(residual: np.ndarray, watched: np.ndarray) -> np.ndarray:
    seen = residual <= watched
    return censoring_weights(np.minimum(np.where(seen, residual, np.inf), LONGEST), watched, seen)


def test_without_censoring_every_record_counts_once() -> None:
    residual = np.array([1.0, 5.0, 50.0])
    assert weights_of(residual, np.full(3, 1000.0)).tolist() == [1.0, 1.0, 1.0]


def test_no_records_no_weights() -> None:
    assert len(weights_of(np.zeros(0), np.zeros(0))) == 0


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 30.0)), min_size=1, max_size=60))
def test_a_record_counts_if_and_only_if_its_outcome_is_known(pairs) -> None:
    residual, watched = np.array(pairs).T
    weights = weights_of(residual, watched)
    known = watched >= np.minimum(residual, LONGEST)
    assert np.all(weights[~known] == 0.0)
    assert np.all(weights[known] >= 1.0)
    # What Kaplan and Meier take from those cut short they give to the others, save what nobody outlived.
    assert weights.sum() <= len(pairs) + 1e-6


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=25))
def test_the_weights_are_those_of_kaplan_and_meier_said_plainly(pairs) -> None:
    residual, watched = np.array(pairs, dtype=float).T
    weights = weights_of(residual, watched)
    needed = np.minimum(residual, LONGEST)
    known = watched >= needed
    ends = np.where(known, needed, watched)
    for row, weight in enumerate(weights):
        if not known[row]:
            continue
        uncut = 1.0
        for time in sorted(set(watched[~known])):
            if time < needed[row]:
                uncut *= 1.0 - np.sum(~known & (watched == time)) / np.sum(ends >= time)
        assert weight == pytest.approx(1.0 / uncut)


def test_the_weighted_mean_is_right_where_dropping_is_not() -> None:
    rng = np.random.default_rng(4)
    residual, watched = rng.exponential(6.0, 40_000), rng.exponential(8.0, 40_000)
    weights = weights_of(residual, watched)
    truth = np.minimum(residual, LONGEST).mean()
    told = np.where(weights > 0, np.minimum(residual, LONGEST), 0.0)
    assert np.dot(told, weights) / weights.sum() == pytest.approx(truth, rel=0.03)
    assert told[weights > 0].mean() < 0.9 * truth


def test_a_publish_at_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        censoring_weights(np.array([np.inf]), np.array([1.0]), np.array([True]))
