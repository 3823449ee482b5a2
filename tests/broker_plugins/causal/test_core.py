from __future__ import annotations

import pytest

from broker_plugins.causal import CausalState, message_id

LIFE = 100_000
A, B, C, D = range(4)


def states(count=4, skew=0):
    return [CausalState(slot, LIFE, skew) for slot in range(count)]


def bits(*slots):
    return sum(1 << slot for slot in slots)


def test_the_next_message_to_a_destination_implies_the_one_before():
    a, *_ = states()
    first = a.send(1000, bits(B, C))
    second = a.send(2000, bits(B))
    assert second.conditions == {B: [first.identifier]}
    assert second.entries == {first.identifier: bits(C)}
    third = a.send(3000, bits(B))
    assert third.conditions == {B: [second.identifier]}


def test_a_delivered_message_is_remembered_with_its_other_destinations():
    a, b, *_ = states()
    first = a.send(1000, bits(B, C, D))
    b.deliver(1500, first)
    answer = b.send(1600, bits(C))
    assert answer.conditions == {C: [first.identifier]}
    assert answer.entries == {first.identifier: bits(D)}
    assert answer.stamp > first.stamp


def test_what_one_side_has_settled_the_other_forgets():
    a, b, c, _ = states()
    first = a.send(1000, bits(B, C))
    c.deliver(1500, first)
    assert c.entries == {first.identifier: bits(B)}
    b.deliver(1500, first)
    reply = b.send(1600, bits(A))
    a.deliver(1700, reply)
    assert a.entries[first.identifier] == bits(C)  # B's delivery is known through its answer
    second = a.send(1800, bits(C))
    c.deliver(1900, second)
    assert first.identifier not in c.entries


def test_a_settled_message_does_not_come_back():
    a, b, c, _ = states()
    first = a.send(1000, bits(B, C))
    b.deliver(1100, first)
    c.deliver(1100, first)
    from_c = c.send(1200, bits(B))
    assert from_c.conditions == {B: [first.identifier]}
    b.entries.clear()  # as if B had learnt that C has it
    b.deliver(1300, from_c)
    assert first.identifier not in b.entries


def test_entries_expire_only_after_the_skew_margin():
    a = CausalState(A, LIFE, skew_us=5_000)
    first = a.send(1000, bits(B))
    a.expire(1000 + LIFE + 10_000)
    assert first.identifier in a.entries
    a.expire(1000 + LIFE + 10_001)
    assert not a.entries


def test_a_shorter_lived_message_does_not_stand_for_a_longer_lived_one():
    a, *_ = states()
    long = a.send(1000, bits(B))
    short = a.send(2000, bits(B), lifetime_us=5_000)
    assert short.conditions == {B: [long.identifier]}
    third = a.send(3000, bits(B))
    assert sorted(third.conditions[B]) == [long.identifier, short.identifier]
    assert third.shortened == {short.identifier: 5_000}


def test_conditions_are_met_by_delivery_or_expiry():
    a, b, *_ = states()
    first = a.send(1000, bits(B))
    second = a.send(2000, bits(B))
    assert b.open_conditions(second, 1000 + LIFE) == {first.identifier: 1000 + LIFE}
    assert b.open_conditions(second, 1001 + LIFE) == {}
    b.deliver(1500, first)
    assert b.open_conditions(second, 1600) == {}


def test_equal_clocks_give_different_stamps():
    a, b, *_ = states()
    first = a.send(1000, bits(B))
    assert a.send(1000, bits(B)).stamp == 1001
    b.deliver(990, first)
    assert b.send(990, bits(A)).stamp == 1001


def test_a_node_that_left_is_nobodys_destination():
    a, *_ = states()
    both = a.send(1000, bits(B, C))
    only = a.send(2000, bits(C))
    a.forget_destination(C)
    assert a.entries == {both.identifier: bits(B)}
    assert only.identifier not in a.entries


def test_own_slot_is_no_destination():
    a, *_ = states()
    assert a.send(1000, bits(A, B)).destinations == bits(B)
    lonely = a.send(2000, bits(A))
    assert lonely.destinations == 0
    assert message_id(A, lonely.stamp) not in a.entries


@pytest.mark.parametrize(("lifetime", "skew"), [(0, 0), (-1, 0), (10, -1), (2**32, 0), (2**30, 2**30)])
def test_impossible_settings_are_refused(lifetime, skew):
    with pytest.raises(ValueError, match=r"us"):
        CausalState(0, lifetime, skew)


def test_a_lifetime_longer_than_the_groups_is_refused():
    with pytest.raises(ValueError, match="lifetime of the group"):
        CausalState(0, LIFE, 0).send(1, bits(B), lifetime_us=LIFE + 1)
