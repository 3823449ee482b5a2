"""Messages that come by several ways, put back into the order in which they were sent to this node.

Each sender numbers what it sends to this node, whichever way each goes. What comes too early waits for what was sent
before it, but not for long: it may be lost.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

MOST_WAITING: Final = 4_096


class _Sender(Generic[Item]):
    __slots__ = ("epoch", "expected", "waiting")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.expected = 1
        self.waiting: dict[int, tuple[float, Item]] = {}
        """What came too early, and when."""


class InOrder(Generic[Item]):
    """Puts what comes from each sender into order.

    Args:
        patience_s: how long something missing is waited for.
        most: how many wait, of one sender, at the most.
    """

    def __init__(self, patience_s: float, most: int = MOST_WAITING) -> None:
        self._patience_s = patience_s
        self._most = most
        self._senders: dict[str, _Sender[Item]] = {}
        self.given_up = 0
        """How often something missing was not waited for any longer."""
        self.late = 0
        """How many came after that."""

    def take(self, sender: str, epoch: int, place: int, item: Item, now: float) -> list[Item]:
        """Something has come: what can go on now, in order.

        Args:
            sender: who sent it.
            epoch: when the sender began to number; a later one begins anew.
            place: its number, from 1.
            item: what it is.
            now: seconds that only grow.
        """
        known = self._senders.get(sender)
        ready: list[Item] = []
        if known is None or epoch > known.epoch:
            if known is not None:
                ready = self._rest(known)
            known = self._senders[sender] = _Sender(epoch)
        if epoch < known.epoch or place < known.expected:
            self.late += 1
            return [*ready, item]
        known.waiting[place] = (now, item)
        ready += self._next(known)
        if len(known.waiting) > self._most:
            ready += self._give_up(known)
        return ready

    def overdue(self, now: float) -> list[Item]:
        """What has waited long enough for something that does not come."""
        ready: list[Item] = []
        for known in self._senders.values():
            while known.waiting and now - known.waiting[min(known.waiting)][0] >= self._patience_s:
                ready += self._give_up(known)
        return ready

    @property
    def waits(self) -> bool:
        """Whether anything waits."""
        return any(known.waiting for known in self._senders.values())

    def forget(self, sender: str) -> list[Item]:
        """A sender is gone: what waited for it need not wait."""
        known = self._senders.pop(sender, None)
        return [] if known is None else self._rest(known)

    def _give_up(self, known: _Sender[Item]) -> list[Item]:
        self.given_up += 1
        known.expected = min(known.waiting)
        return self._next(known)

    @staticmethod
    def _next(known: _Sender[Item]) -> list[Item]:
        ready = []
        while known.expected in known.waiting:
            ready.append(known.waiting.pop(known.expected)[1])
            known.expected += 1
        return ready

    @staticmethod
    def _rest(known: _Sender[Item]) -> list[Item]:
        return [known.waiting[place][1] for place in sorted(known.waiting)]
