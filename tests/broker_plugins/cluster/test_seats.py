"""Seats in the directory: one for each life of a node, and none too early for the next."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.cluster.seats import REST_S, Seat, claim, read, release


def test_a_node_keeps_its_seat_for_its_life_and_gets_another_in_the_next() -> None:
    first = claim(None, Seat("a", 1, "x"), 0.0)
    assert read(first).slot_of("a") == 0
    assert claim(first, Seat("a", 1, "x"), 1.0) is None
    second = claim(first, Seat("a", 2, "x"), 2.0)
    assert read(second).slot_of("a") == 1
    third = claim(second, Seat("b", 1, "x"), 2.0 + REST_S + 1)
    assert read(third).slot_of("b") == 0
    assert release(third, "nobody", 0.0) is None
    assert read(release(third, "b", 0.0)).slot_of("b") is None


def test_something_else_in_the_directory_is_an_error() -> None:
    with pytest.raises(msgspec.MsgspecError):
        read(b"[1, 2]")


steps = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["claim", "restart", "release"]), st.floats(0.0, REST_S)),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_no_two_sit_in_one_seat_and_no_seat_is_taken_before_it_has_rested(plan: list[tuple[str, str, float]]) -> None:
    value: bytes | None = None
    now = 0.0
    lives = dict.fromkeys("abcd", 1)
    freed: dict[int, float] = {}
    for node, what, pause in plan:
        now += pause
        before = read(value)
        if what == "restart":
            lives[node] += 1
        change = release(value, node, now) if what == "release" else claim(value, Seat(node, lives[node], ""), now)
        if change is None:
            continue
        value = change
        after = read(value)
        assert len({seat.node for seat in after.taken.values()}) == len(after.taken)
        for slot, seat in after.taken.items():
            if before.taken.get(slot) != seat:
                assert slot not in freed or now - freed[slot] >= REST_S
        for slot in before.taken:
            if after.taken.get(slot) != before.taken[slot]:
                freed[slot] = now
