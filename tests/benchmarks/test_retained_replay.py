from __future__ import annotations

import numpy as np
import pytest

from benchmarks.retained_replay import EVERYWHERE, _best_wait, informed_share, replay, rows_of, table_of
from rl_policy import WORLDS, CostModel


@pytest.fixture(scope="module")
def found():
    return replay(0.2, (12, 2, 2), 60, lambda line: None)


def test_every_policy_is_measured_on_the_same_unseen_subscribers(found) -> None:
    assert list(found.outcomes) == ["send", "rate", "due", "q-learning", "renewal", "learned", "clairvoyant"]
    assert found.mean_cost("send", EVERYWHERE) == 1.0
    assert found.mean_cost("clairvoyant", EVERYWHERE) <= found.mean_cost("learned", EVERYWHERE)
    assert all(topic.split("/")[1] == "403" for topic in found.batch.topics)
    assert {name for name in WORLDS if len(found.rows(name))} == set(WORLDS)


def test_a_policy_that_does_not_pass_the_gate_is_replaced_by_the_renewal_rule(found) -> None:
    assert not found.verdict.passed  # two topics of each class are too few to tell
    np.testing.assert_array_equal(found.outcomes["learned"].costs, found.outcomes["renewal"].costs)
    assert "not passed" in table_of(found)


def test_the_rows_name_what_was_to_be_reached(found) -> None:
    rows = rows_of(found, samples=300)
    asked = [row for row in rows if row.target is not None]
    assert len(asked) == 4
    assert asked[0].reached  # the renewal rule is not worse than itself


def test_knowing_the_law_closes_at_most_the_whole_distance(found) -> None:
    assert informed_share(found, "day-night", samples=2000) <= 1.0


def test_the_best_wait_over_residuals_is_the_best_of_all() -> None:
    cost = CostModel(0.2, 10.0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        residuals = np.sort(rng.exponential(rng.uniform(1.0, 30.0), 40))
        best = _best_wait(residuals, cost)
        costs = {w: np.mean([cost.of(w, r) for r in residuals]) for w in (0.0, best, *residuals[residuals <= 10.0])}
        assert costs[best] == pytest.approx(min(costs.values()))
