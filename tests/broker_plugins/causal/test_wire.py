from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.causal import Control, ControlFormatError, Envelope, decode, grain_of, message_id

GROUP_LIFE = 250_000
GRAIN = grain_of(GROUP_LIFE)


@st.composite
def controls(draw):
    highest = draw(st.sampled_from([3, 40, 126, 127, 5000]))
    slots = st.integers(0, highest)
    masks = st.sets(slots, max_size=6).map(lambda members: sum(1 << slot for slot in members))
    stamp = draw(st.integers(10**10, 2**52))
    grains = st.integers(1, 400).map(lambda age: stamp % GRAIN + age * GRAIN - (1 if age % 50 == 0 else 0))
    ages = (
        grains
        if draw(st.booleans())
        else st.one_of(st.integers(1, 2000), st.integers(1, 300_000), st.integers(65_500, 65_600))
    )
    identifiers = draw(
        st.lists(st.tuples(slots, ages), max_size=20, unique=True).map(
            lambda pairs: [message_id(slot, stamp - age) for slot, age in pairs]
        )
    )
    cut = draw(st.integers(0, len(identifiers)))
    entries = {identifier: draw(masks) for identifier in identifiers[:cut]}
    conditions = {}
    for slot in draw(st.sets(slots, max_size=3)):
        wanted = draw(st.sets(st.sampled_from(identifiers), min_size=1)) if identifiers else set()
        if wanted:
            conditions[slot] = sorted(wanted)
    shortened = {i: draw(st.integers(1, GROUP_LIFE)) for i in identifiers if draw(st.integers(0, 4)) == 0}
    life = draw(st.sampled_from([GROUP_LIFE, 1, 1234]))
    return Control(draw(slots), stamp, draw(masks), life, entries, shortened, conditions)


@settings(max_examples=200, deadline=None)
@given(controls(), st.integers(0, 5000))
def test_what_is_encoded_is_decoded(control, bystander):
    envelope = Envelope(control, GROUP_LIFE)
    for slot in [*control.conditions, bystander]:
        back = decode(envelope.for_slot(slot), slot, GROUP_LIFE)
        wanted = set(control.conditions.get(slot, ()))
        assert (back.sender, back.stamp, back.destinations) == (control.sender, control.stamp, control.destinations)
        assert back.lifetime_us == control.lifetime_us
        assert back.entries == control.entries
        assert set(back.conditions.get(slot, ())) == wanted
        mentioned = wanted | control.entries.keys()
        assert back.shortened == {i: life for i, life in control.shortened.items() if i in mentioned}


@settings(max_examples=100, deadline=None)
@given(controls(), st.data())
def test_cut_short_is_noticed(control, data):
    slot = next(iter(control.conditions), 0)
    encoded = Envelope(control, GROUP_LIFE).for_slot(slot)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ControlFormatError):
        decode(encoded[:cut], slot, GROUP_LIFE)
    with pytest.raises(ControlFormatError, match="left over"):
        decode(encoded + b"x", slot, GROUP_LIFE)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_garbage_is_refused_or_read_but_never_breaks(garbage):
    try:
        decode(b"\x10" + garbage, 0, GROUP_LIFE)
    except ControlFormatError:
        return


def test_another_version_is_refused():
    with pytest.raises(ControlFormatError, match="version 1"):
        decode(bytes(20), 0, GROUP_LIFE)


def test_a_message_without_past_takes_sixteen_bytes():
    control = Control(sender=3, stamp=10**15, destinations=0b11, lifetime_us=GROUP_LIFE)
    assert len(Envelope(control, GROUP_LIFE).for_slot(0)) == 16


def test_an_entry_with_one_open_destination_takes_four_bytes():
    stamp = 10**15
    few, many = (
        Control(0, stamp, 0b10, GROUP_LIFE, {message_id(s, stamp - 1 - s): 0b100 for s in range(count)})
        for count in (10, 30)
    )
    assert len(Envelope(many, GROUP_LIFE).for_slot(1)) - len(Envelope(few, GROUP_LIFE).for_slot(1)) == 20 * 4


def test_more_than_255_conditions_widen_the_format():
    stamp = 10**12
    identifiers = [message_id(2, stamp - 1 - i) for i in range(300)]
    control = Control(0, stamp, 0b10, GROUP_LIFE, {}, {}, {1: identifiers})
    assert set(decode(Envelope(control, GROUP_LIFE).for_slot(1), 1, GROUP_LIFE).conditions[1]) == set(identifiers)


def test_whole_grains_take_less():
    stamp = 10**15
    sizes = []
    for odd in (0, 777):
        entries = {message_id(slot, stamp - GRAIN * age - odd): 0b110 for slot in range(10) for age in (1, 2, 3)}
        control = Control(sender=3, stamp=stamp, destinations=0b11, lifetime_us=GROUP_LIFE, entries=entries)
        sizes.append(len(Envelope(control, GROUP_LIFE).for_slot(0)))
    head, sets = 16, 60
    assert sizes == [head + 30 + 10 + 1 + sets, head + 30 * 3 + sets]
