from __future__ import annotations

import msgspec
import pytest

from rl_policy import (
    CostModel,
    DuePolicy,
    Features,
    Presence,
    RateThresholdPolicy,
    RenewalPolicy,
    SendPolicy,
)

COST = CostModel(0.2, 10.0)
SEEN = Features(
    age_s=1.0,
    gaps=64,
    mean_gap_s=3.0,
    typical_gap_s=3.0,
    last_gap_s=3.0,
    variation=0.1,
    hour=None,
    presence=Presence.UNKNOWN,
    renewal_wait_s=2.25,
    recent_wait_s=2.5,
)


@pytest.mark.parametrize("policy", [SendPolicy(), RenewalPolicy(), RateThresholdPolicy(), DuePolicy()])
def test_an_unknown_topic_is_sent_at_once_by_every_policy(policy) -> None:
    assert policy.choose(None, COST).wait_s == 0.0


def test_each_policy_says_its_wait() -> None:
    assert SendPolicy().choose(SEEN, COST).wait_s == 0.0
    assert RenewalPolicy().choose(SEEN, COST).wait_s == 2.25
    assert RateThresholdPolicy().choose(SEEN, COST).wait_s == 10.0
    assert DuePolicy().choose(SEEN, COST).wait_s == 2.5


def test_slow_topics_and_passed_beats_are_not_waited_for() -> None:
    slow = msgspec.structs.replace(SEEN, mean_gap_s=60.0)
    assert RateThresholdPolicy().choose(slow, COST).wait_s == 0.0
    assert DuePolicy().choose(slow, COST).wait_s == 0.0
    late = msgspec.structs.replace(SEEN, age_s=9.0)
    assert DuePolicy().choose(late, COST).wait_s == 0.0
