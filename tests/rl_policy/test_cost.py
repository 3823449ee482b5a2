from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_policy import CostModel, CostModelError

seconds = st.floats(0.0, 100.0)


def test_sending_at_once_costs_one_message() -> None:
    assert CostModel(0.2, 10.0).of(0.0, 3.0) == 1.0


def test_a_publish_at_the_very_end_of_the_wait_is_in_time() -> None:
    assert CostModel(0.2, 10.0).of(3.0, 3.0) == pytest.approx(0.6)
    assert CostModel(0.2, 10.0).of(3.0, math.nextafter(3.0, 4.0)) == pytest.approx(1.6)


@given(seconds, st.floats(0.01, 5.0), st.floats(0.0, 20.0), st.lists(st.floats(0.0, 1.0), max_size=20))
def test_nobody_beats_the_one_who_knows_the_future(residual, kappa, d_max, shares) -> None:
    cost = CostModel(kappa, d_max)
    best = cost.of(cost.best_wait(residual), residual)
    assert all(best <= cost.of(share * d_max, residual) + 1e-12 for share in shares)
    assert 0.0 <= cost.best_wait(residual) <= d_max


@pytest.mark.parametrize(("kappa", "d_max"), [(0.0, 1.0), (-1.0, 1.0), (math.inf, 1.0), (math.nan, 1.0), (1.0, -1.0)])
def test_numbers_without_meaning_are_refused(kappa, d_max) -> None:
    with pytest.raises(CostModelError, match="must be"):
        CostModel(kappa, d_max)
