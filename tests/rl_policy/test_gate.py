from __future__ import annotations

import pytest

from rl_policy import ACTIONS, Batch, CostModel, DecisionRecord, Gate, LearnedPolicy, is_held_out
from rl_policy.features import cells_of
from rl_policy.gate import OVERALL

from .test_policies import SEEN

COST = CostModel(0.2, 10.0)
HELD_OUT = [7, 11]  # of t/0 to t/11, one in three
SENDER = LearnedPolicy({cells_of(SEEN, COST.kappa)[-1]: ACTIONS.index("send")}, COST)


def records(kind: str, residual: float | None, topics: int = 20, each: int = 5) -> list[DecisionRecord]:
    return [
        DecisionRecord(f"{kind}/{topic}", kind, 0.0, SEEN, 0.0, "send", 1.0, residual, 100.0)
        for topic in range(topics)
        for _ in range(each)
    ]


def test_the_renewal_rule_itself_passes() -> None:
    verdict = Gate().judge(LearnedPolicy({}, COST), Batch(records("a", 2.0), COST))
    assert verdict.passed
    assert verdict.differences[OVERALL].mean == 0.0


def test_a_better_policy_passes() -> None:
    verdict = Gate().judge(SENDER, Batch(records("silent", None), COST))
    assert verdict.passed
    assert verdict.differences["silent"].mean == pytest.approx(-0.45)


def test_a_policy_that_is_worse_for_one_class_does_not_pass_however_good_it_is_elsewhere() -> None:
    batch = Batch(records("silent", None, topics=200) + records("lively", 2.0, topics=10), COST)
    verdict = Gate().judge(SENDER, batch)
    assert verdict.differences[OVERALL].high < 0.0
    assert not verdict.passed
    assert len(verdict.reasons) == 1
    assert verdict.reasons[0].startswith("lively")


def test_a_policy_that_is_worse_overall_does_not_pass() -> None:
    verdict = Gate().judge(SENDER, Batch(records("lively", 2.0), COST))
    assert [reason.split(":")[0] for reason in verdict.reasons] == [OVERALL, "lively"]


def test_a_class_of_few_topics_lets_nothing_new_pass() -> None:
    batch = Batch(records("silent", None) + records("rare", None, topics=3), COST)
    verdict = Gate().judge(SENDER, batch)
    assert not verdict.passed
    assert "3 topics" in verdict.reasons[0]
    assert Gate().judge(LearnedPolicy({}, COST), batch).passed


def test_without_records_nothing_passes() -> None:
    assert not Gate().judge(LearnedPolicy({}, COST), Batch([], COST)).passed


def test_a_share_of_the_topics_is_held_out_and_always_the_same() -> None:
    kept = [is_held_out(f"fleet/{number}/position") for number in range(4000)]
    assert 850 < sum(kept) < 1150
    # A change of the hash would let a policy be judged by topics it was learned from.
    assert [number for number in range(12) if is_held_out(f"t/{number}", 3)] == HELD_OUT
    with pytest.raises(ValueError, match="2 or more"):
        is_held_out("t", 1)
