"""Messages that come by several ways, and messages that come twice."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from broker_plugins.cluster.in_order import InOrder
from broker_plugins.cluster.taken import Taken


@settings(max_examples=200, deadline=None)
@given(order=st.permutations(range(1, 13)), lost=st.sets(st.integers(1, 12)), most=st.sampled_from([2, 100]))
def test_everything_comes_out_once_and_in_order_unless_it_came_too_late(order, lost, most) -> None:
    waiting: InOrder[int] = InOrder(1.0, most)
    out = []
    for place in order:
        if place not in lost:
            out += waiting.take("a", 7, place, place, 0.0)
    assert waiting.overdue(0.5) == []
    out += waiting.overdue(1.0)
    came = [place for place in range(1, 13) if place not in lost]
    assert sorted(out) == came
    assert not waiting.waits
    if not waiting.late:
        assert out == came
    if not lost and most > 12:
        assert not waiting.given_up


def test_what_is_missing_is_waited_for_and_no_longer_than_that() -> None:
    waiting: InOrder[str] = InOrder(1.0)
    assert waiting.take("a", 1, 1, "one", 0.0) == ["one"]
    assert waiting.take("a", 1, 3, "three", 0.1) == []
    assert waiting.take("a", 1, 5, "five", 0.9) == []
    assert waiting.overdue(1.0) == []
    assert waiting.overdue(1.2) == ["three"]
    assert waiting.take("a", 1, 4, "four", 1.3) == ["four", "five"]
    assert waiting.take("a", 1, 2, "two", 1.3) == ["two"]  # late, yet it is there
    assert (waiting.given_up, waiting.late) == (1, 1)


def test_a_sender_that_numbers_anew_is_not_waited_for() -> None:
    waiting: InOrder[str] = InOrder(1.0)
    assert waiting.take("a", 1, 2, "old", 0.0) == []
    assert waiting.take("b", 1, 2, "other", 0.0) == []
    assert waiting.take("a", 2, 1, "new", 0.0) == ["old", "new"]
    assert waiting.take("a", 1, 3, "older", 0.0) == ["older"]
    assert waiting.forget("b") == ["other"]
    assert waiting.forget("b") == []


def test_a_message_is_taken_once_as_long_as_it_is_remembered() -> None:
    taken = Taken(2)
    assert taken.add("a", 1)
    assert not taken.add("a", 1)
    assert taken.add("b", 1)
    assert taken.add("a", 2)
    assert not taken.add("b", 1)
    assert taken.add("a", 1)  # forgotten: there were two others since
