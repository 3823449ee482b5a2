from __future__ import annotations

import numpy as np

from rl_policy import Batch, CostModel, DecisionRecord, LearningRate, QWaitingPolicy, outcome_of

from .test_policies import SEEN

COST = CostModel(0.2, 10.0)
RATE = LearningRate(1.0, 0.7)


def batch_with(residual: float | None) -> Batch:
    return Batch([DecisionRecord("t", "k", 0.0, SEEN, 0.0, "send", 1.0, residual, 100.0) for _ in range(400)], COST)


def test_it_learns_to_wait_for_what_comes_and_not_for_what_does_not() -> None:
    lively = QWaitingPolicy(COST)
    lively.learn(batch_with(2.5), RATE, explore=0.3)
    assert lively.choose(SEEN, COST).wait_s >= 3.0
    silent = QWaitingPolicy(COST)
    silent.learn(batch_with(None), RATE, explore=0.3)
    assert silent.choose(SEEN, COST).wait_s == 0.0


def test_unlearned_and_unknown_are_sent_at_once() -> None:
    assert QWaitingPolicy(COST).choose(SEEN, COST).wait_s == 0.0
    assert QWaitingPolicy(COST).choose(None, COST).wait_s == 0.0


def test_its_waits_can_be_judged() -> None:
    policy = QWaitingPolicy(COST)
    batch = batch_with(2.5)
    policy.learn(batch, RATE, explore=0.3)
    assert np.all(outcome_of(policy, batch).costs <= 1.0)
