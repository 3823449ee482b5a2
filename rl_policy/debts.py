"""What a broker owes to subscribers it let wait, and when each debt ends.

A debt is one session's right to the current retained message of one topic by a deadline. This book keeps the debts
and knows the rules; it never sends. Times go in, what to send comes out:

- A deferred subscriber gets the *current* retained message by its deadline: `due`.
- Only a retained publish of sufficient QoS that was really queued for it settles the debt: `published_retained`.
- A live (RETAIN=0) publish is not to overtake it: `before_live` says to whom the retained message goes first.
- Emptying the topic, unsubscribing, or the end of a session that is not persistent cancels it.
- Subscribing again brings a deadline nearer, never further away.
- A persistent session keeps its debts while it is away; one whose deadline passed meanwhile is due when it is back.
- After a restart every debt is due at once: `restored`.
- The book is bounded; what does not fit is sent at once.

Every method that settles debts returns them. Each debt is returned as settled exactly once.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


@dataclass(slots=True)
class Debt:
    """The current retained message of `topic`, owed to `session` by `deadline_s`.

    Args:
        session: whose it is.
        topic: of which topic.
        deadline_s: by when.
        retained_qos: the QoS of the retained message it was made for.
        filters: the subscriptions it is owed to, with the QoS of each.
    """

    session: str
    topic: str
    deadline_s: float
    retained_qos: int
    filters: dict[str, int] = field(default_factory=dict)

    @property
    def qos(self) -> int:
        """At which QoS the message is owed: its own, or the subscription's if that is less."""
        return min(self.retained_qos, max(self.filters.values()))


@dataclass(slots=True, frozen=True)
class Promise:
    """The answer to a subscriber: send now, or by `deadline_s`.

    Args:
        send_now: whether the retained message is to be sent at once.
        deadline_s: by when it is owed otherwise.
        overflowed: whether it would have been deferred had there been room.
        settled: the older debt that sending now settles, if there was one.
    """

    send_now: bool
    deadline_s: float | None = None
    overflowed: bool = False
    settled: Debt | None = None


class DebtBook:
    """All debts of a broker.

    Args:
        max_debts: how many there may be at a time.
        max_per_session: how many of them one session may hold, so that one subscriber to `#` does not fill the book.
    """

    __slots__ = ("_away", "_by_session", "_by_topic", "_count", "_heap", "_ticket", "max_debts", "max_per_session")

    def __init__(self, max_debts: int = 100_000, max_per_session: int = 10_000) -> None:
        if max_debts < 0 or max_per_session < 0:
            raise ValueError(f"room for {max_debts} debts, {max_per_session} a session; give 0 or more of each")
        self.max_debts = max_debts
        self.max_per_session = max_per_session
        self._by_session: dict[str, dict[str, Debt]] = {}
        self._by_topic: dict[str, dict[str, Debt]] = {}
        self._away: set[str] = set()  # sessions with debts that are not connected
        self._heap: list[tuple[float, int, Debt]] = []  # of connected sessions; entries of settled debts are skipped
        self._ticket = 0
        self._count = 0

    def __len__(self) -> int:
        """How many debts are open."""
        return self._count

    def find(self, session: str, topic: str) -> Debt | None:
        """The open debt to `session` on `topic`."""
        return self._by_session.get(session, {}).get(topic)

    def debtors(self, topic: str) -> list[str]:
        """The sessions that wait for `topic`; empty for nearly every topic, and cheap to ask."""
        return list(self._by_topic.get(topic, ()))

    def open_debts(self) -> list[Debt]:
        """Every open debt: what a broker must be able to restore."""
        return [debt for debts in self._by_session.values() for debt in debts.values()]

    def subscribed(
        self, now_s: float, session: str, topic_filter: str, topic: str, *, qos: int, retained_qos: int, wait_s: float
    ) -> Promise:
        """A connected session subscribed, and `topic` with a retained message matches; the policy allows `wait_s`.

        When the answer is to send now, an older debt on the same topic is settled by that very message.
        """
        if not math.isfinite(wait_s):
            raise ValueError(f"a wait of {wait_s} s for {session!r} on {topic!r}; a promise needs a finite one")
        self.connected(session, session_present=True)  # whoever subscribes is here
        old = self.find(session, topic)
        if wait_s <= 0.0:
            if old is not None:
                self._remove(old)
            return Promise(send_now=True, settled=old)
        deadline = now_s + wait_s
        if old is not None:
            old.filters[topic_filter] = qos
            old.retained_qos = max(old.retained_qos, retained_qos)
            if deadline < old.deadline_s:
                old.deadline_s = deadline
                self._schedule(old)
            return Promise(send_now=False, deadline_s=old.deadline_s)
        if self._count >= self.max_debts or len(self._by_session.get(session, ())) >= self.max_per_session:
            return Promise(send_now=True, overflowed=True)
        self._add(Debt(session, topic, deadline, retained_qos, {topic_filter: qos}))
        return Promise(send_now=False, deadline_s=deadline)

    def published_retained(self, topic: str, qos: int, queued_for: Container[str]) -> list[Debt]:
        """A RETAIN=1 publish with a payload was stored and queued for `queued_for`: the debts it settles.

        One that goes out at a lower QoS than was owed may be lost on the way, so it settles nothing. Neither does one
        that was dropped, or filtered out, before the session's queue: the deadline then brings this newer message.
        """
        settled = [
            debt
            for session, debt in self._by_topic.get(topic, {}).items()
            if session in queued_for and min(qos, max(debt.filters.values())) >= debt.qos
        ]
        return self._settle(settled)

    def before_live(self, topic: str, receivers: Container[str]) -> list[Debt]:
        """A RETAIN=0 publish is about to be queued for `receivers`: to these the retained message goes first, now."""
        return self._settle([d for session, d in self._by_topic.get(topic, {}).items() if session in receivers])

    def cleared(self, topic: str) -> list[Debt]:
        """The retained message of `topic` is gone (an empty retained publish): nothing is owed any more."""
        return self._settle(list(self._by_topic.get(topic, {}).values()))

    def unsubscribed(self, session: str, topic_filter: str) -> list[Debt]:
        """A session gave up a filter: debts owed to it alone are cancelled."""
        cancelled = []
        for debt in list(self._by_session.get(session, {}).values()):
            if debt.filters.keys() == {topic_filter}:
                cancelled.append(debt)
            else:
                debt.filters.pop(topic_filter, None)
        return self._settle(cancelled)

    def disconnected(self, session: str, *, persistent: bool) -> list[Debt]:
        """A session's connection ended: a persistent one keeps its debts, another one's are cancelled."""
        if not persistent:
            return self._settle(list(self._by_session.get(session, {}).values()))
        if session in self._by_session:
            self._away.add(session)
        return []

    def connected(self, session: str, *, session_present: bool) -> list[Debt]:
        """A session is back: its debts run again, or are cancelled if it starts clean."""
        if not session_present:
            return self._settle(list(self._by_session.get(session, {}).values()))
        if session in self._away:
            self._away.discard(session)
            for debt in self._by_session[session].values():
                self._schedule(debt)
        return []

    def due(self, now_s: float) -> list[Debt]:
        """The debts to connected sessions whose time has come, earliest deadline first: send each now."""
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            deadline, _, debt = heapq.heappop(self._heap)
            if self._runs(deadline, debt):
                due.append(debt)
                self._remove(debt)
        return due

    def next_deadline_s(self) -> float | None:
        """When `due` should be asked next; None if nobody connected waits."""
        while self._heap and not self._runs(self._heap[0][0], self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def restored(self, debts: Iterable[Debt], now_s: float) -> list[Debt]:
        """After a restart: take over stored debts of sessions that are all away, each due once its session is back.

        Returns:
            Those that found no room: put their messages into the sessions' queues at once.
        """
        overflow = []
        for stored in debts:
            debt = Debt(stored.session, stored.topic, now_s, stored.retained_qos, dict(stored.filters))
            full = self._count >= self.max_debts or len(self._by_session.get(debt.session, ())) >= self.max_per_session
            if full or self.find(debt.session, debt.topic) is not None:
                overflow.append(debt)
                continue
            self._away.add(debt.session)
            self._add(debt)
        return overflow

    def _runs(self, deadline_s: float, debt: Debt) -> bool:
        """Whether a heap entry still stands for an open debt of a connected session."""
        return (
            debt.deadline_s == deadline_s
            and debt.session not in self._away
            and self.find(debt.session, debt.topic) is debt
        )

    def _add(self, debt: Debt) -> None:
        self._by_session.setdefault(debt.session, {})[debt.topic] = debt
        self._by_topic.setdefault(debt.topic, {})[debt.session] = debt
        self._count += 1
        if debt.session not in self._away:
            self._schedule(debt)

    def _schedule(self, debt: Debt) -> None:
        self._ticket += 1
        heapq.heappush(self._heap, (debt.deadline_s, self._ticket, debt))
        if len(self._heap) > 2 * self._count + 64:  # mostly settled ones: keep the heap as bounded as the book
            seen: set[int] = set()
            kept = []
            for entry in self._heap:
                if self._runs(entry[0], entry[2]) and id(entry[2]) not in seen:
                    seen.add(id(entry[2]))
                    kept.append(entry)
            heapq.heapify(kept)
            self._heap = kept

    def _remove(self, debt: Debt) -> None:
        for book, outer, inner in (
            (self._by_session, debt.session, debt.topic),
            (self._by_topic, debt.topic, debt.session),
        ):
            entries = book[outer]
            del entries[inner]
            if not entries:
                del book[outer]
        if debt.session not in self._by_session:
            self._away.discard(debt.session)
        self._count -= 1

    def _settle(self, debts: list[Debt]) -> list[Debt]:
        for debt in debts:
            self._remove(debt)
        return debts
