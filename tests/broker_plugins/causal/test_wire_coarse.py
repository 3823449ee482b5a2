"""Messages named in few bytes: what is packed is unpacked, and what is cut short is noticed."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.causal import grain_of, message_id
from broker_plugins.causal.wire_coarse import by_sender, pack, unpack, worth_it

STAMP = 1_700_000_000_123_456
messages = st.lists(st.tuples(st.integers(0, 126), st.integers(1, 10**9)), max_size=300, unique=True).map(
    lambda pairs: [message_id(slot, STAMP - age) for slot, age in pairs]
)


@settings(max_examples=150, deadline=None)
@given(messages, st.sampled_from([1, 7, 2500, 60_000]), st.booleans())
def test_what_is_packed_is_unpacked(named: list[int], grain: int, wide: bool) -> None:
    odd = [identifier for identifier in named if (identifier >> 16) % grain][:255]
    named = [identifier for identifier in named if identifier in odd or not (identifier >> 16) % grain]
    ordered = by_sender(named)
    assert sorted(ordered) == sorted(named)
    data = pack(STAMP, ordered, grain, wide)
    assert unpack(b"xx" + data, 2, len(ordered), STAMP, grain, wide) == (ordered, 2 + len(data))
    for cut in range(0, len(data), 1 + len(data) // 20):
        with pytest.raises((struct.error, IndexError)):
            unpack(data[:cut], 0, len(ordered), STAMP, grain, wide)


def test_the_order_is_by_sender_and_newest_first() -> None:
    named = [message_id(slot, stamp) for slot, stamp in [(2, 5), (1, 5), (2, 7), (1, 2**51)]]
    assert by_sender(named) == [message_id(1, 2**51), message_id(1, 5), message_id(2, 7), message_id(2, 5)]


def test_a_grain_is_a_hundredth_of_a_life_and_never_nothing() -> None:
    assert [grain_of(life) for life in (1, 99, 250_000)] == [1, 1, 2500]


def test_it_is_not_worth_it_where_much_is_odd() -> None:
    whole = [message_id(1, 2500 * number) for number in range(1, 10)]
    assert worth_it(whole, 2500)
    assert worth_it([*whole, message_id(1, 2501)], 2500)
    assert not worth_it([identifier + (1 << 16) for identifier in whole], 2500)
    assert not worth_it([*[10**6 * each << 16 for each in range(1, 50)], 70_000 << 16], 10**6)
