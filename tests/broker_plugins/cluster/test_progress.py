"""How far a node has got with the messages of the others, and the marks that follow them."""

from __future__ import annotations

import asyncio

from broker_plugins.cluster.progress import MAX_LATER, MAX_MARKS, Progress
from broker_plugins.engine import Message


def test_the_last_message_of_each_node_and_way() -> None:
    progress = Progress()
    for node, mail, number in (("b", False, 3), ("b", True, 2), ("b", False, 5), ("c", False, 1)):
        progress.reached(node, mail, number)
    assert sorted(progress.positions()) == [("b", False, 5), ("b", True, 2), ("c", False, 1)]


def test_what_is_put_off_is_unpublished_until_it_has_a_sequence() -> None:
    progress = Progress()
    early, late = Message("t", b""), Message("t", b"")
    early.sequence = 7
    progress.put_off("b", 1, early)
    progress.put_off("b", 2, late)
    assert progress.unpublished() == [("b", 2)]
    late.sequence = 8
    assert progress.unpublished() == []


def test_what_is_remembered_is_bounded() -> None:
    progress = Progress()
    for number in range(MAX_LATER + 10):
        progress.put_off("b", number, Message("t", b""))
    assert len(progress.unpublished()) <= MAX_LATER
    for token in range(MAX_MARKS + 10):
        progress.marked("b", False, token)
    assert len(progress._marks) <= MAX_MARKS


async def test_marks_are_waited_for_from_every_node_by_both_ways() -> None:
    progress = Progress()
    progress.marked("b", False, 1)
    waiting = asyncio.ensure_future(progress.all_marked(1, ["b", "c"], 30.0))
    for node, mail in (("b", True), ("c", False)):
        await asyncio.sleep(0)
        progress.marked(node, mail, 1)
        progress.marked(node, mail, 2)
    await asyncio.sleep(0)
    assert not waiting.done()
    progress.marked("c", True, 1)
    assert await waiting
    assert await progress.all_marked(3, [], 0.0)


async def test_a_mark_that_does_not_come_is_not_waited_for_for_ever() -> None:
    progress = Progress()
    progress.marked("b", False, 1)
    assert not await progress.all_marked(1, ["b"], 0.01)
