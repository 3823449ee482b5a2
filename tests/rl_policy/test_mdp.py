from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_policy import PaperModel, always_send, average_reward, discounted_reward, greedy, value_iteration
from rl_policy.mdp import DEFER, SEND

SMALL = PaperModel(d_max=2, t_max=3, n_max=2)
models = st.builds(
    PaperModel,
    lambda_p=st.floats(0.0, 2.0),
    lambda_s=st.floats(0.0, 1.0),
    lambda_u=st.floats(0.0, 1.0),
    omega=st.floats(0.0, 1.0),
    theta=st.sampled_from([0.0, 0.5, 0.9]),
    d_max=st.just(2),
    t_max=st.just(3),
    n_max=st.just(2),
    only_arrivals=st.booleans(),
)


def transitions(model: PaperModel) -> np.ndarray:
    """P[s, a, s′] written out state by state, as section 2.3 says it."""
    shape = model.shape
    states = list(np.ndindex(shape))
    number = {state: i for i, state in enumerate(states)}
    moves, p = model.subscriber_moves(), model.publish_chance
    table = np.zeros((len(states), 2, len(states)))
    for (_, d, t, n), here in number.items():
        for action in (SEND, DEFER):
            later = (min(d + 1, model.d_max), min(t + 1, model.t_max)) if action == DEFER else (d, 0)
            for u_next, chance in ((0, 1 - p), (1, p)):
                for n_next in range(model.n_max + 1):
                    table[here, action, number[u_next, *later, n_next]] += chance * moves[n, n_next]
    return table


@settings(max_examples=15, deadline=None)
@given(models, st.integers(0, 2**32 - 1))
def test_the_expectation_over_the_next_slot_is_that_of_the_written_out_table(model, seed) -> None:
    values = np.random.default_rng(seed).normal(size=model.shape)
    table = transitions(model)
    np.testing.assert_allclose(table.sum(axis=2), 1.0)
    np.testing.assert_allclose(model.after(values).reshape(-1, 2), table @ values.ravel(), atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(models)
def test_value_iteration_solves_the_optimality_equation_and_nothing_beats_it(model) -> None:
    q = value_iteration(model)
    np.testing.assert_allclose(q, model.rewards() + model.theta * model.after(q.max(axis=-1)), atol=1e-8)
    best = discounted_reward(model, greedy(q))
    np.testing.assert_allclose(best, q.max(axis=-1), atol=1e-6)
    rng = np.random.default_rng(0)
    for policy in (always_send(model), rng.integers(0, 2, model.shape)):
        assert np.all(discounted_reward(model, policy) <= best + 1e-6)


def test_the_average_reward_is_that_of_a_simulated_walk() -> None:
    policy = greedy(value_iteration(SMALL))
    table, rewards = transitions(SMALL), SMALL.rewards().reshape(-1, 2)
    chance = np.zeros(len(rewards))
    chance[np.ravel_multi_index((0, 0, 0, 1), SMALL.shape)] = 1.0
    flat, total = policy.ravel(), 0.0
    for _ in range(300):
        total += chance @ rewards[np.arange(len(flat)), flat]
        chance = chance @ table[np.arange(len(flat)), flat]
    assert average_reward(SMALL, policy, slots=300) == pytest.approx(total / 300)


def test_rewards_are_those_of_the_paper() -> None:
    rewards = PaperModel().rewards()
    assert rewards[0, 0, 0, 3, SEND] == pytest.approx(0.7 - 0.3 * 5)
    assert rewards[0, 0, 0, 3, DEFER] == pytest.approx(0.7 * 0.9)
    assert rewards[1, 0, 4, 3, SEND] == pytest.approx(0.7 - 0.3 * 15)
    assert rewards[1, 0, 4, 3, DEFER] == pytest.approx(0.7 * 0.5 - 0.3 * 15)


@pytest.mark.parametrize("wrong", [{"omega": 1.5}, {"theta": 1.0}, {"lambda_p": -1.0}, {"d_max": 0}])
def test_parameters_without_meaning_are_refused(wrong) -> None:
    with pytest.raises(ValueError):
        PaperModel(**wrong)
