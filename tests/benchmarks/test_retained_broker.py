from __future__ import annotations

import numpy as np

from benchmarks.retained_broker import COST, Life, lives_of, play, replayed, rows_of, table_of
from rl_policy import LearnedPolicy, RenewalPolicy, SendPolicy, Verdict


def test_subscribers_come_when_there_is_something_and_leave_time_for_the_longest_wait() -> None:
    lives = lives_of(2, 20, 30.0)
    assert len({life.world for life in lives}) == 7
    assert sum(len(life.subscribes_s) for life in lives) > 100
    for life in lives:
        assert np.all(np.diff(life.publishes_s) >= 0)
        if len(life.subscribes_s):
            assert life.subscribes_s[0] > life.publishes_s[0]
            assert life.subscribes_s[-1] <= 30.0 - COST.d_max_s


def test_three_brokers_and_a_replay_of_the_same() -> None:
    beats = np.arange(0.1, 8.0, 0.2)
    # Far enough from each other that one stall of the machine does not make the rule wait in vain for all of them.
    lives = [Life(f"t/{number}", "clock", beats, np.array([2.15, 4.2, 6.25]), None) for number in range(3)]
    policy = LearnedPolicy({}, COST)
    found = play(lives, policy, Verdict(passed=True))
    assert {name: len(seen.waits_s) for name, seen in found.items()} == {"send": 9, "renewal": 9, "learned": 9}
    assert sum(found["send"].retained_bytes) > 9 * 256  # every one of them was sent
    assert sum(size > 0 for size in found["renewal"].retained_bytes) < 9
    assert replayed(lives, SendPolicy()) == 1.0
    assert replayed(lives, RenewalPolicy()) < 1.0
    assert rows_of(found)[-1].peer_value == 27
    assert "| clock | 1.0" in table_of(found, dict.fromkeys(found, 1.0), 8.0)
