from __future__ import annotations

import numpy as np
import pytest

from rl_policy import bootstrap_mean


def test_the_mean_is_weighted_and_lies_in_its_interval() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(2.0, 1.0, 500), rng.uniform(0.5, 2.0, 500)
    found = bootstrap_mean(values, weights, [f"t{i % 25}" for i in range(500)])
    assert found.mean == pytest.approx(np.average(values, weights=weights))
    assert found.low < found.mean < found.high
    assert found.topics == 25
    assert "25 topics" in str(found)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    # Topics differ; their decisions hardly do. Resampling decisions instead of topics would hold far less often.
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        levels = rng.normal(0.0, 1.0, 40)
        values = np.repeat(levels, 30) + rng.normal(0.0, 0.1, 1200)
        found = bootstrap_mean(values, np.ones(1200), [f"t{i // 30}" for i in range(1200)], resamples=300, seed=seed)
        held += found.low <= 0.0 <= found.high
    assert 84 <= held <= 100


def test_one_topic_tells_nothing_of_others() -> None:
    found = bootstrap_mean(np.array([1.0, 3.0]), np.ones(2), ["t", "t"])
    assert (found.low, found.high, found.topics) == (2.0, 2.0, 1)


def test_what_cannot_be_resampled_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_mean(np.zeros(0), np.zeros(0), [])
    with pytest.raises(ValueError, match="one each"):
        bootstrap_mean(np.zeros(2), np.zeros(2), ["t"])
    with pytest.raises(ValueError, match="confidence"):
        bootstrap_mean(np.zeros(1), np.ones(1), ["t"], confidence=95)
