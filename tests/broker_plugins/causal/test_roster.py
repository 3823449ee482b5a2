from __future__ import annotations

import pytest

from broker_plugins.causal import Roster, RosterError


def test_names_and_slots_and_masks():
    roster = Roster(["a", "b", "c"])
    assert [roster.slot(name) for name in roster] == [0, 1, 2]
    assert roster.mask(["a", "c"]) == 0b101
    assert roster.names(0b110) == ["b", "c"]
    assert roster.name(1) == "b"
    assert len(roster) == 3
    assert "b" in roster


def test_a_slot_rests_after_its_node_has_left():
    roster = Roster(["a", "b"], quarantine_us=1000)
    assert roster.leave("a", now=5000) == 0
    assert "a" not in roster
    assert roster.names(0b11) == ["b"]
    assert [roster.label(slot) for slot in range(3)] == ["a", "b", "#2"]
    assert roster.free_slot(now=6000) == 2
    assert roster.free_slot(now=6001) == 0
    roster.join("c", 0)
    assert roster.label(0) == "c"


def test_mistakes_are_named():
    roster = Roster(["a", "b"])
    roster.join("a", 0)
    with pytest.raises(RosterError, match="slot 1 belongs to 'b'"):
        roster.join("c", 1)
    with pytest.raises(RosterError, match="'a' sits in slot 0"):
        roster.join("a", 5)
    with pytest.raises(RosterError, match="outside"):
        roster.join("c", 40_000)
    with pytest.raises(RosterError, match="'x' is not a member"):
        roster.slot("x")
    with pytest.raises(RosterError, match="slot 9"):
        roster.name(9)
