from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker_plugins.engine.message import Message
from broker_plugins.engine.retained import Cursor, RetainedMessages
from broker_plugins.engine.topics import filter_fault, matches

levels = st.sampled_from(["a", "b", "ab", "c", "", "$x", "é"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.lists(st.sampled_from(["a", "b", "", "$x", "+", "#"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda text: filter_fault(text) is None)
)


def kept(names: set[str]) -> RetainedMessages:
    retained = RetainedMessages()
    for name in names:
        retained.put(Message(name, b"x", retain=True))
    return retained


def walk(cursor: Cursor, most: int) -> list[str]:
    found: list[str] = []
    more = True
    while more:
        batch, more = cursor.next(most)
        assert len(batch) <= most
        found += batch
    return found


@given(st.sets(topics, max_size=40), filters, st.integers(1, 5))
@settings(max_examples=300)
def test_a_cursor_gives_what_matches_in_topic_order(names: set[str], text: str, most: int) -> None:
    found = walk(Cursor(kept(names), text), most)
    assert found == sorted((name for name in names if matches(text, name)), key=lambda name: name.split("/"))


@given(st.sets(topics, max_size=30), st.sets(topics, max_size=10), st.sets(topics, max_size=10), filters, st.data())
def test_a_cursor_survives_changes(
    names: set[str], added: set[str], removed: set[str], text: str, data: st.DataObject
) -> None:
    retained = kept(names)
    cursor = Cursor(retained, text)
    found, more = cursor.next(data.draw(st.integers(1, 5)))
    passed = {name for name in names | added if cursor.passed(name)}
    for name in added:
        retained.put(Message(name, b"y", retain=True))
    for name in removed:
        retained.remove(name)
    rest = walk(cursor, 3) if more else []
    assert not set(rest) & set(found), "nothing comes twice"
    there = ((names | added) - removed) - passed
    assert set(rest) == {name for name in there if matches(text, name)}


def test_bytes_are_accounted_for() -> None:
    retained = RetainedMessages()
    retained.put(Message("a", b"x" * 10, retain=True))
    retained.put(Message("a", b"x" * 1000, retain=True))
    assert retained.bytes == Message("a", b"x" * 1000).size
    assert retained.remove("a")
    assert not retained.remove("a")
    assert retained.bytes == 0
    assert len(retained) == 0


def test_a_cursor_skips_branches_instead_of_looking_at_every_topic() -> None:
    retained = kept({f"site/{number}/sensor/{kind}" for number in range(300) for kind in range(30)})
    looked = 0
    after = retained.after

    class Counting(RetainedMessages):
        __slots__ = ()

        def after(self, key: str, inclusive: bool) -> str | None:
            nonlocal looked
            looked += 1
            return after(key, inclusive)

    assert len(walk(Cursor(Counting(), "site/7/sensor/+"), 100)) == 30
    assert looked < 40
