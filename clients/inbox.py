"""A bounded queue between the network and whoever takes its messages: when it is full, the oldest goes."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A thread-safe queue of at most `size` things; adding never waits.

    Args:
        size: How many it holds; one more pushes the oldest out, which is counted.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a queue of {size} holds nothing: give at least 1")
        self._size = size
        self._things: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many things were pushed out."""
        return self._dropped

    def put(self, thing: T) -> None:
        """Add a thing; after `close` it is ignored."""
        with self._changed:
            if self._closed:
                return
            if len(self._things) == self._size:
                self._things.popleft()
                self._dropped += 1
            self._things.append(thing)
            self._changed.notify()

    def take(self) -> T | None:
        """The oldest thing, waiting for one; None once the queue is closed and empty."""
        with self._changed:
            while not self._things and not self._closed:
                self._changed.wait()
            return self._things.popleft() if self._things else None

    def take_now(self) -> T | None:
        """The oldest thing, None if there is none at the moment."""
        with self._changed:
            return self._things.popleft() if self._things else None

    def close(self, *, discard: bool = False) -> None:
        """Let nothing more in; what is inside can still be taken, unless it is to be discarded."""
        with self._changed:
            self._closed = True
            if discard:
                self._things.clear()
            self._changed.notify_all()
