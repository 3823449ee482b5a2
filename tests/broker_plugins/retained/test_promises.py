"""Whatever happens: by its deadline every subscriber has the current retained message, and never older after newer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_plugins.engine.options import EngineOptions
from tests.broker_plugins.retained.desk import D_MAX_S, Desk

TOPICS = ("d/1", "d/2/3")
FILTERS = {"d/1": {"d/1"}, "d/#": set(TOPICS)}
CLIENTS = {"clean": True, "kept": False}

clients = st.sampled_from(sorted(CLIENTS))
topics = st.sampled_from(TOPICS)


@dataclass
class Known:
    """What the test knows of one client's session."""

    online: bool = False
    subscribed: set[str] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    """The last number received of each topic since it was last subscribed to."""
    has: dict[str, int] = field(default_factory=dict)
    """The last of them that was published to be retained."""
    due: dict[str, tuple[float, set[str]]] = field(default_factory=dict)
    """By when it must have the retained message of a topic, and which filters it waits for it with."""


class Promises(RuleBasedStateMachine):
    """Publishes numbers; one QoS for all, so that the order of a session is the order of its packets."""

    @initialize(inflight=st.sampled_from([1, 2, 100]))
    def begin(self, inflight: int) -> None:
        self.desk = Desk(EngineOptions(max_inflight=inflight))
        self.known: dict[str, Known] = defaultdict(Known)
        self.number = 0
        self.retained: dict[str, int] = {}
        self.was_retained: set[int] = set()
        self.retained_before: dict[int, int | None] = {}
        """What its topic held when a live message was published."""
        for client in CLIENTS:
            self.connect(client)

    @rule(wait=st.sampled_from([0.0, 1.0, 5.0, D_MAX_S]))
    def decide(self, wait: float) -> None:
        self.desk.policy.wait_s = wait

    @precondition(lambda self: len(self.desk.lines) < len(CLIENTS))
    @rule(client=clients)
    def connect(self, client: str) -> None:
        if not self.known[client].online:
            self.desk.connect(client, CLIENTS[client])
            self.known[client].online = True
            self.listen()

    @rule(client=clients)
    def disconnect(self, client: str) -> None:
        if self.known[client].online:
            self.desk.disconnect(client)
            self.known[client].online = False
            if CLIENTS[client]:
                del self.known[client]

    @rule(client=clients, text=st.sampled_from(sorted(FILTERS)))
    def subscribe(self, client: str, text: str) -> None:
        if self.known[client].online:
            self.desk.subscribe(client, text)
            known = self.known[client]
            known.subscribed.add(text)
            for topic in FILTERS[text].intersection(self.retained):
                # Sent to every SUBSCRIBE [MQTT-3.8.4-3], even to one who has it; but a deadline that runs stays.
                deadline, filters = known.due.get(topic, (self.desk.clock.now + D_MAX_S, set()))
                known.due[topic] = deadline, {*filters, text}
                known.last.pop(topic, None)
                known.has.pop(topic, None)
            self.listen()

    @rule(client=clients, text=st.sampled_from(sorted(FILTERS)))
    def unsubscribe(self, client: str, text: str) -> None:
        if self.known[client].online and text in self.known[client].subscribed:
            self.desk.unsubscribe(client, text)
            known = self.known[client]
            known.subscribed.remove(text)
            for topic, (_, filters) in list(known.due.items()):
                filters.discard(text)
                if not filters:  # it gave up what it waited for, so nothing is promised any more
                    del known.due[topic]
                    known.has[topic] = max(self.retained.get(topic, 0), known.has.get(topic, 0))

    @rule(topic=topics, retain=st.booleans())
    def publish(self, topic: str, retain: bool) -> None:
        self.number += 1
        self.retained_before[self.number] = self.retained.get(topic)
        if retain:
            self.retained[topic] = self.number
            self.was_retained.add(self.number)
        self.desk.publish(topic, b"%d" % self.number, retain=retain)
        self.listen()

    @rule(topic=topics)
    def clear(self, topic: str) -> None:
        self.retained.pop(topic, None)
        for known in self.known.values():
            known.due.pop(topic, None)
        self.desk.publish(topic, b"", retain=True)
        self.listen()

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0]))
    def wait(self, seconds: float) -> None:
        self.desk.clock.advance(seconds)
        self.listen()

    @precondition(lambda self: self.number > 3)
    @rule()
    def restart(self) -> None:
        self.desk.restart()
        for client in list(self.known):
            if CLIENTS[client]:
                del self.known[client]
            else:
                known = self.known[client]
                known.online = False
                known.due = {topic: (0.0, filters) for topic, (_, filters) in known.due.items()}

    def listen(self) -> None:
        """Let every client read and acknowledge all there is."""
        for client, known in self.known.items():
            if known.online:
                for got in self.desk.got(client):
                    if got.payload:
                        self.heard(client, known, got.topic, int(got.payload), got.dup)

    def heard(self, client: str, known: Known, topic: str, number: int, dup: bool) -> None:
        last = known.last.get(topic, 0)
        assert dup or number >= last, f"{client} got {number} after {last} of {topic}"
        if number not in self.was_retained and not dup:
            before = self.retained_before[number]
            assert before is None or known.has.get(topic, 0) >= before, f"{client} got live {number} before {before}"
        known.last[topic] = max(number, known.last.get(topic, 0))
        if number in self.was_retained:
            known.has[topic] = max(number, known.has.get(topic, 0))
            if number >= self.retained.get(topic, 0):
                known.due.pop(topic, None)

    @invariant()
    def everybody_has_what_is_due(self) -> None:
        for client, known in self.known.items():
            if not known.online:
                continue
            for topic, (deadline, _) in known.due.items():
                assert deadline > self.desk.clock.now, f"{client} waits for {topic} beyond its deadline"
            for topic in set().union(*(FILTERS[text] for text in known.subscribed)):
                current = self.retained.get(topic, 0)
                assert topic in known.due or known.has.get(topic, 0) >= current, f"{client} lacks {current} of {topic}"

    @invariant()
    def nothing_is_kept_without_need(self) -> None:
        plugin = self.desk.plugin
        assert not plugin._paying
        held = sum(
            len(each.held or ())
            for session in self.desk.engine.sessions.values()
            for each in session.subscriptions.values()
        )
        owed = sum(len(debt.filters) for debt in plugin.book.open_debts())
        assert held == owed
        assert self.desk.engine.counters.plugin_faults == 0


Promises.TestCase.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
TestPromises = Promises.TestCase


def test_a_crash_after_a_crash_brings_no_older_message_after_a_newer_one() -> None:
    """The first lets a feed begin anew, which sends its message ahead of a live one; the second repeats nothing."""
    state = Promises()
    state.begin(inflight=1)
    for retain in (False, False, False, True):
        state.publish(topic="d/1", retain=retain)
    state.subscribe(client="kept", text="d/#")
    state.restart()
    state.publish(topic="d/1", retain=False)
    state.restart()
    state.connect("kept")
    state.everybody_has_what_is_due()
    state.nothing_is_kept_without_need()
