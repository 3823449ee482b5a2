from __future__ import annotations

import msgspec
import numpy as np
import pytest

from rl_policy import ACTIONS, Batch, CostModel, DecisionRecord
from rl_policy.learned import action_wait

from .test_policies import SEEN

COST = CostModel(0.2, 10.0)


def record(residual: float | None, observed: float = 1000.0, topic: str = "t", kind: str = "k") -> DecisionRecord:
    return DecisionRecord(topic, kind, 0.0, SEEN, 0.0, "send", 1.0, residual, observed)


def test_the_costs_of_every_action_are_those_of_the_cost_model() -> None:
    residuals = [0.5, 2.25, 2.3, 9.9, None]
    batch = Batch([record(residual) for residual in residuals], COST)
    costs = batch.action_costs()
    assert costs.shape == (5, len(ACTIONS))
    for row, residual in enumerate(residuals):
        for action in range(len(ACTIONS)):
            wait = action_wait(action, SEEN, COST.d_max_s)
            assert costs[row, action] == pytest.approx(COST.of(wait, residual if residual is not None else np.inf))


def test_the_clairvoyant_pays_the_least() -> None:
    batch = Batch([record(residual) for residual in (0.5, 4.0, 7.0, 12.0, None)], COST)
    assert batch.clairvoyant_costs().tolist() == pytest.approx([0.1, 0.8, 1.0, 1.0, 1.0])
    assert np.all(batch.clairvoyant_costs()[:, None] <= batch.action_costs() + 1e-12)


def test_a_record_watched_for_less_than_the_longest_wait_is_censored() -> None:
    batch = Batch([record(1.0), record(None, observed=4.0), record(None, observed=10.0)], COST)
    assert len(batch) == 2
    assert batch.residual_s.tolist() == [1.0, np.inf]
    assert batch.weights[1] > 1.0


def test_a_publish_after_the_end_of_the_record_is_refused() -> None:
    with pytest.raises(ValueError, match="ends after"):
        record(5.0, observed=4.0)


def test_a_record_survives_being_written_and_read() -> None:
    written = msgspec.json.encode(record(3.0))
    assert msgspec.json.decode(written, type=DecisionRecord) == record(3.0)
