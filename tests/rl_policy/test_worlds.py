from __future__ import annotations

import numpy as np
import pytest

from rl_policy import WORLDS, make_traces
from rl_policy.worlds import DAY_S


@pytest.mark.parametrize("world", WORLDS)
def test_a_topic_lives_in_order_and_within_its_time(world) -> None:
    for trace in make_traces(1, 3, 50, (world,)):
        assert trace.topic_class == world
        assert np.all(np.diff(trace.publishes_s) >= 0.0)
        assert np.all(np.diff(trace.subscribes_s) >= 0.0)
        assert len(trace.subscribes_s) == 50
        assert trace.publishes_s[-1] <= trace.end_s
        assert trace.subscribes_s[-1] <= trace.end_s


def test_a_seed_makes_the_same_topics_and_another_one_others() -> None:
    one, again, other = (make_traces(seed, 1, 5, ("pareto",))[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.publishes_s, again.publishes_s)
    assert one.topic != other.topic
    assert one.publishes_s[0] != other.publishes_s[0]


def test_what_a_world_makes_does_not_depend_on_its_company() -> None:
    alone = make_traces(1, 1, 5, ("drifting",))[0]
    among = next(trace for trace in make_traces(1, 1, 5) if trace.topic_class == "drifting")
    np.testing.assert_array_equal(alone.publishes_s, among.publishes_s)


@pytest.mark.parametrize("world", ["day-night", "day-night-events"])
def test_a_fleet_is_livelier_by_day_and_silent_while_known_to_be_away(world) -> None:
    for trace in make_traces(2, 3, 5, (world,)):
        hours = (trace.publishes_s % DAY_S) / 3600.0
        by_day = int(np.sum((hours >= 7) & (hours < 19)))
        assert by_day > 2 * (len(hours) - by_day)
        assert trace.away_s is not None
        starts, ends = trace.away_s.T
        assert np.all(starts <= ends)
        spell = np.searchsorted(starts, trace.publishes_s, side="right") - 1
        inside = (spell >= 0) & (trace.publishes_s < ends[np.maximum(spell, 0)])
        assert not np.any(inside)


def test_an_unknown_world_is_refused() -> None:
    with pytest.raises(ValueError, match="no world 'flat'"):
        make_traces(1, 1, 1, ("flat",))
