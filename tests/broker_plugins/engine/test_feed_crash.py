"""A crash in the middle of a feed changes nothing for its client: it is as if the client had only been away."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_plugins.engine.message import Message
from broker_plugins.engine.options import EngineOptions
from tests.broker_plugins.retained.desk import Desk

if TYPE_CHECKING:
    from tests.broker_plugins.retained.desk import Got

TOPICS = ("e/1", "e/2", "e/2/3", "e/4")
FILTERS = ("e/1", "e/#", "+/+")

topics = st.sampled_from(TOPICS)
filters = st.sampled_from(FILTERS)


class Client:
    """A client with a persistent session that acknowledges one message at a time, at a broker of its own."""

    def __init__(self, inflight: int, crashes: bool) -> None:
        self.desk = Desk(EngineOptions(max_inflight=inflight))
        self.crashes = crashes
        self.seen: list[str] = []
        self._taken: deque[Got] = deque()
        self.desk.connect("kept", clean=False)

    def take(self) -> None:
        line = self.desk.lines.get("kept")
        if line is not None:
            self._taken.extend(line.take())

    def acknowledge(self) -> None:
        """See one message and say so."""
        self.take()
        if self._taken:
            got = self._taken.popleft()
            self.seen.append(f"{got.topic}={got.payload.decode()}{' retained' if got.retain else ''}")
            self.desk.engine.sessions["kept"].acknowledged(self.desk.lines["kept"].unacknowledged.popleft())
            self.desk.clock.spin()

    def leave(self) -> None:
        self._taken.clear()
        if self.crashes:
            self.desk.restart()
        elif "kept" in self.desk.lines:
            self.desk.disconnect("kept")

    def come(self) -> None:
        if "kept" not in self.desk.lines:
            self.desk.connect("kept", clean=False)

    def rows(self, table: str) -> int:
        return len(self.desk.disk.tables[table])


class Twins(RuleBasedStateMachine):
    """The broker of one client crashes where the other client only goes away."""

    @initialize(inflight=st.sampled_from([1, 2]))
    def begin(self, inflight: int) -> None:
        self.twins = [Client(inflight, crashes) for crashes in (False, True)]
        self.number = 0
        self.subscribed: set[str] = set()
        self.here = True
        for topic in TOPICS:
            self.publish(topic, retain=True)

    @rule(topic=topics, retain=st.booleans())
    def publish(self, topic: str, retain: bool) -> None:
        self.number += 1
        for twin in self.twins:
            twin.desk.publish(topic, b"%d" % self.number, retain=retain)

    @rule(topic=topics)
    def clear(self, topic: str) -> None:
        for twin in self.twins:
            twin.desk.publish(topic, b"", retain=True)

    @precondition(lambda self: self.here)
    @rule(text=filters)
    def subscribe(self, text: str) -> None:
        if text not in self.subscribed:
            self.subscribed.add(text)
            for twin in self.twins:
                twin.desk.subscribe("kept", text)

    @precondition(lambda self: self.here)
    @rule(text=filters)
    def unsubscribe(self, text: str) -> None:
        if text in self.subscribed:
            self.subscribed.remove(text)
            for twin in self.twins:
                twin.desk.unsubscribe("kept", text)

    @precondition(lambda self: self.here)
    @rule(count=st.integers(1, 3))
    def acknowledge(self, count: int) -> None:
        for twin in self.twins:
            for _ in range(count):
                twin.acknowledge()

    @rule()
    def leave(self) -> None:
        self.here = False
        for twin in self.twins:
            twin.leave()

    @rule()
    def come(self) -> None:
        self.here = True
        for twin in self.twins:
            twin.come()

    @invariant()
    def they_see_the_same(self) -> None:
        plain, crashed = self.twins
        assert crashed.seen == plain.seen

    def teardown(self) -> None:
        if not hasattr(self, "twins"):
            return
        self.come()
        self.acknowledge(200)
        self.they_see_the_same()
        for twin in self.twins:
            assert not twin.desk.engine.feeds.count
            for table in ("fed", "withheld", "deliveries", "messages"):
                assert twin.rows(table) == 0, f"{table} keeps {twin.desk.disk.tables[table]}"


Twins.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestTwins = Twins.TestCase


def client_in_the_middle_of_a_feed(qos: int) -> Client:
    """It has acknowledged the retained message of e/1, and waits for that of e/2."""
    client = Client(1, crashes=True)
    for topic in TOPICS:
        client.desk.publish(topic, b"old", retain=True, qos=qos)
    client.desk.subscribe("kept", "e/#", qos)
    return client


def test_what_was_acknowledged_does_not_come_after_something_newer() -> None:
    client = client_in_the_middle_of_a_feed(1)
    client.acknowledge()
    client.desk.publish("e/1", b"new")
    client.leave()
    client.come()
    for _ in range(10):
        client.acknowledge()
    assert client.seen == ["e/1=old retained", "e/2=old retained", "e/1=new", "e/2/3=old retained", "e/4=old retained"]


def test_what_went_ahead_of_a_live_message_does_not_come_after_it() -> None:
    client = client_in_the_middle_of_a_feed(1)
    client.desk.publish("e/4", b"new")
    for _ in range(3):
        client.acknowledge()
    client.leave()
    client.come()
    for _ in range(10):
        client.acknowledge()
    assert [each for each in client.seen if "e/4" in each] == ["e/4=old retained", "e/4=new"]
    assert len(client.seen) == 5


def test_what_came_live_does_not_come_after_something_newer() -> None:
    client = client_in_the_middle_of_a_feed(1)
    client.desk.publish("e/4", b"newer", retain=True)
    client.desk.publish("e/4", b"newest")
    for _ in range(3):
        client.acknowledge()
    client.leave()
    client.come()
    for _ in range(10):
        client.acknowledge()
    assert [each for each in client.seen if "e/4" in each] == ["e/4=newer", "e/4=newest"]


def complete(client: Client) -> str:
    """Take one message at QoS 2 to its end, and tell its topic."""
    line, session = client.desk.lines["kept"], client.desk.engine.sessions["kept"]
    (got,) = line.take()
    packet_id = line.unacknowledged.popleft()
    assert got.qos == 2
    session.received(packet_id)
    session.completed(packet_id)
    client.desk.clock.spin()
    return got.topic


def test_exactly_once_is_once_across_a_crash() -> None:
    """QoS 2: what is completed is over, though its feed is not."""
    client = client_in_the_middle_of_a_feed(2)
    seen = [complete(client)]
    client.leave()
    client.come()
    seen += [complete(client) for _ in range(3)]
    assert seen == list(TOPICS)
    assert client.desk.lines["kept"].take() == []


def test_nothing_is_owed_less_because_a_live_message_at_qos_0_missed_its_client() -> None:
    client = client_in_the_middle_of_a_feed(0)
    client.desk.engine.feeds.begin(client.desk.engine.sessions["kept"].subscriptions["e/#"])
    client.desk.disconnect("kept")
    client.desk.publish("e/4", b"lost", qos=0)
    client.come()
    assert "e/4=old retained" in {repr(each) for each in client.desk.lines["kept"].take()}


def test_a_message_that_was_dropped_goes_before_what_is_newer() -> None:
    """There was no room for a retained message live; it is sent with its feed, but not after a later one."""
    client = Client(1, crashes=False)
    desk = client.desk
    desk.engine.options.max_queued_messages = 2
    for topic in TOPICS:
        desk.publish(topic, b"old", retain=True)
    desk.subscribe("kept", "e/#")
    for payload in (b"a", b"b"):
        desk.publish("e/1", payload)
    desk.publish("e/4", b"kept", retain=True)
    assert desk.engine.counters.dropped_queue_full == 1
    for _ in range(3):
        client.acknowledge()
    desk.engine.publish(Message("e/4", b"newer", 1))
    for _ in range(10):
        client.acknowledge()
    assert [each for each in client.seen if "e/4" in each] == ["e/4=kept retained", "e/4=newer"]


def test_what_had_waited_for_the_window_is_sent_again_in_its_order() -> None:
    """[MQTT-4.6.0-1]: two are in flight when the broker dies, of which the first had waited, and that is not noted."""
    client = Client(2, crashes=True)
    client.desk.subscribe("kept", "live")
    for payload in (b"1", b"2", b"3"):
        client.desk.publish("live", payload)
    client.acknowledge()
    client.acknowledge()
    client.desk.publish("live", b"4")
    client.leave()
    client.come()
    for _ in range(5):
        client.acknowledge()
    assert client.seen == [f"live={number}" for number in (1, 2, 3, 4)]


def test_a_topic_among_those_read_ahead_does_not_come_after_something_newer() -> None:
    """It was not there when the cursor passed its place, and came live."""
    client = client_in_the_middle_of_a_feed(1)
    for payload, retain in ((b"kept", True), (b"newer", False)):
        client.desk.publish("e/3", payload, retain=retain)
    client.leave()
    client.come()
    for _ in range(10):
        client.acknowledge()
    assert [each for each in client.seen if "e/3" in each] == ["e/3=kept", "e/3=newer"]
