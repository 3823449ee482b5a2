"""The debts under random publishes, subscribes, clears, disconnects and restarts, against the promises said plainly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rl_policy import Debt, DebtBook

SESSIONS = ("s1", "s2", "s3")
TOPICS = ("a", "b", "c")
MATCHES = {"a": {"a"}, "b": {"b"}, "c": {"c"}, "#": {"a", "b", "c"}}
sessions, topics, filters = st.sampled_from(SESSIONS), st.sampled_from(TOPICS), st.sampled_from(sorted(MATCHES))
levels = st.integers(0, 2)


@dataclass
class Client:
    persistent: bool = True
    connected: bool = True
    filters: dict[str, int] = field(default_factory=dict)
    last_number: dict[str, int] = field(default_factory=dict)  # by topic, since it last subscribed


@dataclass
class Owed:
    """A promise as the text of the rules has it, without a book."""

    deadline_s: float
    qos_kept: int
    to: dict[str, int]


class Broker(RuleBasedStateMachine):
    """A broker of a few lines around the book; `owed` is kept beside it from the rules alone."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.book = DebtBook(max_debts=5, max_per_session=2)
        self.retained: dict[str, tuple[int, int]] = {}
        self.clients = {name: Client() for name in SESSIONS}
        self.owed: dict[tuple[str, str], Owed] = {}

    def receive(self, session: str, topic: str, number: int) -> None:
        client = self.clients[session]
        assert number >= client.last_number.get(topic, 0), f"{session} got {number} on {topic} after a newer one"
        client.last_number[topic] = number

    def send_retained(self, session: str, topic: str) -> None:
        assert topic in self.retained, f"a message that is gone was sent on {topic}"
        self.receive(session, topic, self.retained[topic][0])
        self.owed.pop((session, topic), None)

    def forget(self, keys: list[tuple[str, str]], settled: list[Debt]) -> None:
        assert sorted((debt.session, debt.topic) for debt in settled) == sorted(keys)
        for key in keys:
            del self.owed[key]

    @rule(session=sessions, topic_filter=filters, qos=levels, wait=st.floats(0.0, 10.0))
    def subscribe(self, session, topic_filter, qos, wait) -> None:
        client = self.clients[session]
        if not client.connected:
            return
        client.filters[topic_filter] = qos
        for topic in sorted(MATCHES[topic_filter] & self.retained.keys()):
            client.last_number.pop(topic, None)  # a new subscription may be told what an older one knew
            known = self.owed.get((session, topic))
            kept = self.retained[topic][1]
            promise = self.book.subscribed(
                self.now, session, topic_filter, topic, qos=qos, retained_qos=kept, wait_s=wait
            )
            if promise.send_now:
                assert wait == 0.0 or promise.overflowed
                assert (promise.settled is not None) == (known is not None and not promise.overflowed)
                if promise.overflowed:
                    assert known is None
                    assert len(self.owed) == 5 or sum(s == session for s, _ in self.owed) == 2
                self.send_retained(session, topic)
                continue
            deadline = self.now + wait if known is None else min(known.deadline_s, self.now + wait)
            before = {} if known is None else known.to
            self.owed[session, topic] = Owed(
                deadline, kept if known is None else max(known.qos_kept, kept), before | {topic_filter: qos}
            )
            assert promise.deadline_s == deadline

    @rule(topic=topics, qos=levels, dropped=st.sets(sessions))
    def publish_retained(self, topic, qos, dropped) -> None:
        self.number += 1
        self.retained[topic] = (self.number, qos)
        queued = set()
        for name, client in self.clients.items():
            granted = [level for f, level in client.filters.items() if topic in MATCHES[f]]
            reaches = granted and name not in dropped and (client.connected or min(qos, max(granted)) > 0)
            if reaches:
                queued.add(name)
                self.receive(name, topic, self.number)
        paid = []
        for (session, of), owed in self.owed.items():
            granted = max(owed.to.values())
            if of == topic and session in queued and min(qos, granted) >= min(owed.qos_kept, granted):
                paid.append((session, of))
        self.forget(paid, self.book.published_retained(topic, qos, queued))

    @rule(topic=topics, qos=levels, dropped=st.sets(sessions))
    def publish_live(self, topic, qos, dropped) -> None:
        receivers = {
            name
            for name, client in self.clients.items()
            if any(topic in MATCHES[f] for f in client.filters)
            and name not in dropped
            and (client.connected or qos > 0)
        }
        paid = self.book.before_live(topic, receivers)
        assert sorted(debt.session for debt in paid) == sorted(s for s, t in self.owed if t == topic and s in receivers)
        for debt in paid:
            self.send_retained(debt.session, debt.topic)
        self.number += 1
        for name in receivers:
            self.receive(name, topic, self.number)

    @rule(topic=topics)
    def clear(self, topic) -> None:
        self.retained.pop(topic, None)
        self.forget([key for key in self.owed if key[1] == topic], self.book.cleared(topic))

    @rule(session=sessions, topic_filter=filters)
    def unsubscribe(self, session, topic_filter) -> None:
        if not self.clients[session].connected:
            return
        self.clients[session].filters.pop(topic_filter, None)
        gone = []
        for key, owed in self.owed.items():
            if key[0] == session and topic_filter in owed.to:
                del owed.to[topic_filter]
                if not owed.to:
                    gone.append(key)
        self.forget(gone, self.book.unsubscribed(session, topic_filter))

    @rule(session=sessions, persistent=st.booleans())
    def disconnect(self, session, persistent) -> None:
        client = self.clients[session]
        if not client.connected:
            return
        client.connected = False
        gone = [] if persistent else [key for key in self.owed if key[0] == session]
        if not persistent:
            client.filters.clear()
        self.forget(gone, self.book.disconnected(session, persistent=persistent))

    @rule(session=sessions, present=st.booleans())
    def connect(self, session, present) -> None:
        client = self.clients[session]
        if client.connected:
            return
        client.connected = True
        gone = [] if present else [key for key in self.owed if key[0] == session]
        if not present:
            client.filters.clear()
        self.forget(gone, self.book.connected(session, session_present=present))

    @precondition(lambda self: self.owed)
    @rule()
    def restart(self) -> None:
        stored = self.book.open_debts()
        self.now = 0.0  # the clock of another process
        self.book = DebtBook(max_debts=5, max_per_session=2)
        assert self.book.restored(stored, self.now) == []
        for client in self.clients.values():
            client.connected = False
        for owed in self.owed.values():
            owed.deadline_s = self.now

    @rule(step=st.floats(0.0, 6.0))
    def time_passes(self, step) -> None:
        self.now += step
        self.pay()

    def pay(self) -> None:
        due = self.book.due(self.now)
        assert [debt.deadline_s for debt in due] == sorted(debt.deadline_s for debt in due)
        for debt in due:
            assert self.clients[debt.session].connected
            assert debt.deadline_s <= self.now
            assert (debt.session, debt.topic) in self.owed
            self.send_retained(debt.session, debt.topic)
        late = [
            key for key, owed in self.owed.items() if self.clients[key[0]].connected and owed.deadline_s <= self.now
        ]
        assert not late, f"past their deadline at {self.now}: {late}"

    @invariant()
    def the_book_says_what_is_owed(self) -> None:
        kept = {(debt.session, debt.topic): debt for debt in self.book.open_debts()}
        assert kept.keys() == self.owed.keys()
        assert len(self.book) == len(kept) <= 5
        for key, owed in self.owed.items():
            assert kept[key].deadline_s == owed.deadline_s
            assert kept[key].filters == owed.to
            assert key[1] in self.retained
        for topic in TOPICS:
            assert sorted(self.book.debtors(topic)) == sorted(s for s, t in self.owed if t == topic)

    @invariant()
    def the_timer_is_set_for_the_next_deadline(self) -> None:
        running = [owed.deadline_s for (s, _), owed in self.owed.items() if self.clients[s].connected]
        assert self.book.next_deadline_s() == min(running, default=None)

    def teardown(self) -> None:
        """In the end everybody comes back, time passes, and nobody is left without the current message."""
        for name, client in self.clients.items():
            if not client.connected:
                client.connected = True
                self.book.connected(name, session_present=True)
        self.now += 11.0
        self.pay()
        assert not self.owed
        assert len(self.book) == 0


Broker.TestCase.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
TestBroker = Broker.TestCase


def deferred(book: DebtBook, now: float = 0.0, wait: float = 5.0, session: str = "s", topic: str = "t") -> None:
    promise = book.subscribed(now, session, topic, topic, qos=1, retained_qos=1, wait_s=wait)
    assert not promise.send_now


def test_subscribing_again_never_extends_a_deadline() -> None:
    book = DebtBook()
    deferred(book, now=0.0, wait=5.0)
    deferred(book, now=4.0, wait=5.0)
    assert book.next_deadline_s() == 5.0
    deferred(book, now=4.0, wait=0.5)
    assert book.next_deadline_s() == 4.5
    assert [debt.topic for debt in book.due(4.5)] == ["t"]
    assert book.due(100.0) == []


def test_a_persistent_session_keeps_its_debt_and_is_paid_when_back() -> None:
    book = DebtBook()
    deferred(book)
    assert book.disconnected("s", persistent=True) == []
    assert book.due(100.0) == []
    assert book.next_deadline_s() is None
    book.connected("s", session_present=True)
    assert [debt.session for debt in book.due(100.0)] == ["s"]


def test_after_a_restart_every_debt_is_due_as_soon_as_its_session_is_back() -> None:
    old = DebtBook()
    deferred(old, wait=10.0)
    book = DebtBook()
    assert book.restored(old.open_debts(), now_s=3.0) == []
    assert book.due(3.0) == []
    book.connected("s", session_present=True)
    assert [debt.topic for debt in book.due(3.0)] == ["t"]


def test_what_does_not_fit_after_a_restart_is_handed_back() -> None:
    old = DebtBook()
    for number in range(4):
        deferred(old, topic=f"t{number}")
    book = DebtBook(max_debts=3)
    assert [debt.topic for debt in book.restored(old.open_debts(), now_s=0.0)] == ["t3"]
    assert len(book) == 3


def test_a_full_book_sends_at_once() -> None:
    book = DebtBook(max_debts=1)
    deferred(book)
    promise = book.subscribed(0.0, "other", "t", "t", qos=0, retained_qos=0, wait_s=5.0)
    assert promise.send_now
    assert promise.overflowed


def test_a_retained_publish_of_too_low_a_qos_does_not_settle() -> None:
    book = DebtBook()
    deferred(book)
    assert book.published_retained("t", 0, {"s"}) == []
    assert book.published_retained("t", 1, set()) == []
    assert [debt.session for debt in book.published_retained("t", 2, {"s"})] == ["s"]


def test_the_heap_stays_bounded_under_a_session_that_comes_and_goes() -> None:
    book = DebtBook()
    for number in range(10):
        deferred(book, topic=f"t{number}")
    for _ in range(1000):
        book.disconnected("s", persistent=True)
        book.connected("s", session_present=True)
    assert len(book._heap) <= 2 * 10 + 64
    assert len(book.due(5.0)) == 10


@pytest.mark.parametrize("wait", [math.inf, math.nan])
def test_a_promise_without_an_end_is_refused(wait) -> None:
    with pytest.raises(ValueError, match="finite"):
        DebtBook().subscribed(0.0, "s", "t", "t", qos=0, retained_qos=0, wait_s=wait)


def test_a_book_of_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        DebtBook(max_debts=-1)
