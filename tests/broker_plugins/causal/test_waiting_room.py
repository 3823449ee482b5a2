from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_plugins.causal import Control, Waiter, WaitingRoom, message_id, split_message_id


def waiter(sender, stamp, pending, life=100):
    return Waiter(Control(sender, stamp, 1, life), f"{sender}@{stamp}", 0, dict(pending))


def test_it_must_have_room():
    with pytest.raises(ValueError, match="at least 1"):
        WaitingRoom(0)


def test_the_highest_stamp_goes_when_it_is_full():
    room = WaitingRoom(2)
    blocker = {message_id(9, 1): 101}
    old, middle, new = (waiter(1, stamp, blocker) for stamp in (5, 7, 9))
    assert room.add(middle) is None
    assert room.add(new) is None
    assert room.add(old) is new
    newest = waiter(2, 20, blocker)
    assert room.add(newest) is newest
    assert len(room) == 2
    assert {one.identifier for one in room.released_by(9, 1, now=50)} == {old.identifier, middle.identifier}
    assert len(room) == 0


def test_own_lifetime_ends_before_the_awaited_can_no_longer_come():
    room = WaitingRoom(10)
    hasty = waiter(1, 20, {message_id(9, 1): 101}, life=30)
    room.add(hasty)
    assert room.next_alarm() == 51
    assert room.due(50) is None
    assert room.due(51) == (51, [], [hasty])
    assert room.next_alarm() is None


def test_a_release_one_tick_after_its_own_lifetime_is_too_late():
    room = WaitingRoom(10)
    equal = waiter(1, 21, {message_id(9, 1): 101}, life=80)
    room.add(equal)
    assert room.due(102) == (102, [], [equal])


class RoomAgainstAList(RuleBasedStateMachine):
    """The room against a list that is searched anew each time."""

    def __init__(self):
        super().__init__()
        self.room = WaitingRoom(6)
        self.model = {}
        self.now = 0
        self.stamp = 200

    @rule(
        sender=st.integers(0, 2),
        pending=st.dictionaries(st.tuples(st.integers(0, 2), st.integers(1, 199)), st.none(), min_size=1, max_size=3),
        life=st.sampled_from([10, 60, 100]),
    )
    def arrive(self, sender, pending, life):
        still = {message_id(*key): key[1] + 150 for key in pending if key[1] + 150 >= self.now}
        self.stamp += 1
        if not still or self.stamp + life < self.now:
            return
        new = waiter(sender, self.stamp, still, life)
        evicted = self.room.add(new)
        if len(self.model) == 6:
            assert evicted is max([*self.model.values(), new], key=lambda one: one.identifier)
        else:
            assert evicted is None
        self.model[new.identifier] = new
        if evicted is not None:
            del self.model[evicted.identifier]

    @rule(sender=st.integers(0, 2), stamp=st.integers(1, 199))
    def deliver(self, sender, stamp):
        expected = set()
        for identifier, one in self.model.items():
            keys = [split_message_id(key) for key in one.pending]
            met = [key for key in keys if key[0] == sender and key[1] <= stamp]
            rest = [key for key in keys if key not in met]
            if met and all(key[1] + 150 < self.now for key in rest):
                expected.add(identifier)
        freed = {one.identifier for one in self.room.released_by(sender, stamp, self.now)}
        assert freed == expected
        for identifier in freed:
            del self.model[identifier]

    @rule(step=st.integers(1, 60))
    def time_passes(self, step):
        self.now += step
        last = 0
        while (alarm := self.room.due(self.now)) is not None:
            when, released, outlived = alarm
            assert last < when <= self.now
            last = when
            for one in released:
                assert max(one.pending.values()) + 1 == when <= one.deadline
            for one in outlived:
                assert one.deadline + 1 == when <= max(one.pending.values()) + 1
            for one in [*released, *outlived]:
                del self.model[one.identifier]

    @invariant()
    def nothing_due_is_kept(self):
        assert len(self.room) == len(self.model)
        alarms = [min(max(one.pending.values()) + 1, one.deadline + 1) for one in self.model.values()]
        assert self.room.next_alarm() == min(alarms, default=None)
        assert all(identifier in self.room for identifier in self.model)


TestRoomAgainstAList = RoomAgainstAList.TestCase
TestRoomAgainstAList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
