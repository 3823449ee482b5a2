from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_policy import ACTIONS, CostModel, LearnedPolicy, WrongCostModelError
from rl_policy.features import cells_of
from rl_policy.learned import RENEWAL, action_wait, action_waits

from .test_features import any_features
from .test_policies import SEEN

COST = CostModel(0.2, 10.0)
SEND = ACTIONS.index("send")


def test_an_empty_table_is_the_renewal_rule() -> None:
    assert LearnedPolicy({}, COST).choose(SEEN, COST).wait_s == SEEN.renewal_wait_s
    assert ACTIONS[RENEWAL] == "the renewal rule"


def test_the_finest_known_cell_decides() -> None:
    cells = cells_of(SEEN, COST.kappa)
    coarse = LearnedPolicy({cells[-1]: SEND}, COST)
    assert coarse.choose(SEEN, COST).wait_s == 0.0
    both = LearnedPolicy({cells[-1]: SEND, cells[0]: RENEWAL}, COST)
    assert both.choose(SEEN, COST).wait_s == SEEN.renewal_wait_s
    assert "renewal" in both.choose(SEEN, COST).reason


@given(any_features, st.integers(0, len(ACTIONS) - 1))
def test_one_wait_and_a_column_of_waits_agree(features, action) -> None:
    wait = action_wait(action, features, COST.d_max_s)
    assert 0.0 <= wait <= COST.d_max_s
    assert action_waits([features], COST.d_max_s)[0, action] == wait


def test_another_cost_model_is_refused() -> None:
    with pytest.raises(WrongCostModelError, match="retrain"):
        LearnedPolicy({}, COST).choose(SEEN, CostModel(1.0, 10.0))


def test_a_table_of_unknown_actions_is_refused() -> None:
    with pytest.raises(ValueError, match="names action"):
        LearnedPolicy({1: len(ACTIONS)}, COST)
    with pytest.raises(ValueError, match="other actions"):
        LearnedPolicy({}, COST, actions=("jump",))


def test_nothing_known_is_sent_at_once() -> None:
    assert LearnedPolicy({}, COST).choose(None, COST).wait_s == 0.0
    young = msgspec.structs.replace(SEEN, gaps=0, renewal_wait_s=0.0)
    assert LearnedPolicy({}, COST).choose(young, COST).wait_s == 0.0
