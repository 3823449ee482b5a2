from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.causal import HybridClock, message_id, slots_in, split_message_id


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=60))
def test_a_stamp_exceeds_everything_sent_or_delivered_before(steps):
    clock = HybridClock()
    highest = 0
    for is_send, value in steps:
        if is_send:
            stamp = clock.tick(value)
            assert stamp > highest
            assert stamp in (value, highest + 1)
            highest = stamp
        else:
            clock.witness(value)
            highest = max(highest, value)
        assert clock.last == highest


def test_a_restarted_clock_goes_on_after_its_last_stamp():
    assert HybridClock(resume_after=900).tick(500) == 901


@given(st.integers(0, 0x7FFE), st.integers(0, 2**52), st.integers(0, 0x7FFE), st.integers(0, 2**52))
def test_identifiers_are_ordered_by_stamp(slot, stamp, other_slot, other_stamp):
    identifier, other = message_id(slot, stamp), message_id(other_slot, other_stamp)
    assert split_message_id(identifier) == (slot, stamp)
    if stamp < other_stamp:
        assert identifier < other


@given(st.sets(st.integers(0, 300)))
def test_slots_of_a_mask(slots):
    assert list(slots_in(sum(1 << slot for slot in slots))) == sorted(slots)
