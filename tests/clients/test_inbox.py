from __future__ import annotations

import threading
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.inbox import Inbox


@given(st.integers(1, 5), st.lists(st.none() | st.integers(), max_size=40))
def test_it_keeps_the_newest_in_order_and_counts_the_rest(size, steps):
    """None takes, a number is put."""
    inbox: Inbox[int] = Inbox(size)
    model: deque[int] = deque(maxlen=size)
    dropped = 0
    for step in steps:
        if step is None:
            assert inbox.take_now() == (model.popleft() if model else None)
        else:
            dropped += len(model) == size
            model.append(step)
            inbox.put(step)
    assert inbox.dropped == dropped
    inbox.close()
    assert [inbox.take() for _ in model] == list(model)
    assert inbox.take() is None


def test_who_waits_is_woken_by_a_thing_and_by_the_end():
    inbox: Inbox[str] = Inbox(3)
    taken: list[str | None] = []
    waiting = threading.Thread(target=lambda: taken.extend([inbox.take(), inbox.take()]))
    waiting.start()
    inbox.put("thing")
    inbox.close()
    waiting.join(10)
    assert taken == ["thing", None]


def test_after_the_end_nothing_comes_in():
    inbox: Inbox[int] = Inbox(3)
    inbox.put(1)
    inbox.close(discard=True)
    inbox.put(2)
    assert inbox.take() is None


def test_a_queue_must_hold_something():
    with pytest.raises(ValueError, match="at least 1"):
        Inbox(0)
