from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_policy import CostModel, ExponentialPrior, GapStatistics, renewal_wait
from rl_policy.renewal import expected_cost, recent_renewal_of, renewal_of

gaps_lists = st.lists(st.floats(0.001, 60.0) | st.floats(0.001, 5.0), max_size=64).map(sorted)
priors = st.builds(ExponentialPrior, st.floats(0.1, 10.0), st.floats(0.2, 300.0))


@settings(max_examples=400, deadline=None)
@example([8.0, 11.0], 0.0, 0.03125, 9.0, ExponentialPrior(1.0, 11.0))  # a stretch whose own minimum lies before it
@given(gaps_lists, st.floats(0.0, 80.0), st.floats(0.01, 3.0), st.floats(0.0, 20.0), priors)
def test_no_wait_is_cheaper_than_the_one_chosen(gaps, age, kappa, d_max, prior) -> None:
    cost = CostModel(kappa, d_max)
    total = sum(gaps)
    chosen = renewal_wait(gaps, total, age, cost, prior)
    assert 0.0 <= chosen <= d_max
    paid = expected_cost(chosen, gaps, total, age, cost, prior)
    ends = [gap - age for gap in gaps if 0.0 < gap - age <= d_max]
    grid = [d_max * step / 50 for step in range(51)]
    for wait in ends + grid:
        assert paid <= expected_cost(wait, gaps, total, age, cost, prior) + 1e-9


def test_a_clock_is_waited_for_when_its_beat_is_near() -> None:
    gaps = [8.0] * 64
    cost = CostModel(0.2, 10.0)
    assert renewal_wait(gaps, sum(gaps), 6.0, cost) == 2.0
    assert renewal_wait(gaps, sum(gaps), 0.0, cost) == 0.0


def test_a_silence_longer_than_any_is_not_waited_out() -> None:
    gaps = [1.0] * 64
    assert renewal_wait(gaps, 64.0, 30.0, CostModel(0.2, 10.0)) == 0.0


def test_an_unknown_topic_is_sent_at_once() -> None:
    assert renewal_wait([], 0.0, 0.0, CostModel(0.2, 10.0)) == 0.0


def test_the_recent_rule_follows_a_change_of_pace_sooner() -> None:
    known, now = GapStatistics(), 0.0
    for gap in [60.0] * 60 + [2.0] * 10:
        now += gap
        known.published(now)
    cost = CostModel(0.2, 10.0)
    assert renewal_of(known, 1.0, cost) == 0.0
    assert recent_renewal_of(known, 1.0, cost) == 1.0


def test_a_prior_that_counts_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        ExponentialPrior(weight=0.0)
