from __future__ import annotations

import numpy as np
import pytest

from rl_policy import DECAYING_RATE, PAPER_RATE, LearningRate, PaperModel, q_learning, value_iteration

SMALL = PaperModel(d_max=1, t_max=2, n_max=2, theta=0.8)


def error(q: np.ndarray) -> float:
    return float(np.abs(q - value_iteration(SMALL)).mean())


def test_with_a_decaying_rate_it_nears_the_optimum_and_with_a_fixed_one_it_does_not() -> None:
    early, late = q_learning(SMALL, DECAYING_RATE, [5_000, 200_000], explore=0.5)
    (fixed,) = q_learning(SMALL, PAPER_RATE, [200_000], explore=0.5)
    assert error(late) < error(early)
    assert error(late) < 0.5 * error(fixed)


def test_the_same_seed_learns_the_same_and_checkpoints_do_not_matter() -> None:
    one = q_learning(SMALL, PAPER_RATE, [4096, 8192], seed=3)[-1]
    other = q_learning(SMALL, PAPER_RATE, [8192], seed=3)[-1]
    np.testing.assert_array_equal(one, other)


def test_checkpoints_out_of_order_and_rates_without_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="in order"):
        q_learning(SMALL, PAPER_RATE, [100, 50])
    with pytest.raises(ValueError, match="start in"):
        LearningRate(start=0.0)
