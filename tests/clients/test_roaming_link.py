"""The connection of a roaming client: the old one's messages before the new one's, and none of them twice."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paho.mqtt import client as mqtt

from clients import ConnectError, RoamingClient
from clients.broker import Broker
from clients.roaming_link import RoamingLink
from clients.roaming_tools import HANDOVER_TOPIC, NODES_TOPIC, Told, at, is_over, listens, share_received
from tests.brokers import ALLOW_ANONYMOUS, free_port, locus
from tests.mqtt_wire import connect, wait_for

if TYPE_CHECKING:
    from clients.messages import Message


def link_of(got: list[Message]) -> RoamingLink:
    return RoamingLink(
        Broker(client_id="c", clean_session=False), got.append, lambda: (), 100, ["n2:1884"], lambda _: None
    )


def arrived(text: str, qos: int = 0, mid: int = 0, dup: bool = False, topic: str = "t") -> mqtt.MQTTMessage:
    message = mqtt.MQTTMessage(mid, topic.encode())
    message.payload, message.qos, message.dup = text.encode(), qos, dup
    return message


class Move:
    """A link whose old connection is still there while the new one is up."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.link = link_of(self.got)
        self.old = self.link._paho
        self.new = self.link._client(self.link._broker)
        self.link._ending, self.link._paho = self.old, self.new

    def old_brings(self, *messages: mqtt.MQTTMessage) -> None:
        for message in messages:
            self.link._on_message(self.old, None, message)

    def new_brings(self, *messages: mqtt.MQTTMessage) -> None:
        for message in messages:
            self.link._on_message(self.new, None, message)

    def end(self) -> None:
        self.old_brings(arrived(json.dumps({"node": "n2", "reason": "moved", "end": True}), topic=HANDOVER_TOPIC))

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.got]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), max_size=20), st.integers(0, 20))
def test_the_old_connection_is_read_to_its_end_before_the_new_one_is_heard(turns: list[bool], end: int) -> None:
    move = Move()
    olds, news = 0, 0
    for number, is_new in enumerate(turns):
        if number == end:
            move.end()
        if is_new:
            move.new_brings(arrived(f"new {news}"))
            news += 1
        elif number < end:
            move.old_brings(arrived(f"old {olds}"))
            olds += 1
    if end >= len(turns):
        move.end()
    assert move.texts == [f"old {number}" for number in range(olds)] + [f"new {number}" for number in range(news)]


def test_what_the_new_node_sends_again_is_not_handed_on_again() -> None:
    move = Move()
    move.new_brings(arrived("b", qos=1, mid=2, dup=True), arrived("c", qos=1, mid=3, dup=True))
    move.old_brings(arrived("a", qos=1, mid=1), arrived("b", qos=1, mid=2))
    move.end()
    assert move.texts == ["a", "b", "c"], "b came on both, c had not come"
    move.new_brings(arrived("d", qos=1, mid=1), arrived("a", qos=1, mid=1, dup=True))
    assert move.texts == ["a", "b", "c", "d", "a"], "the identifier stands for another message by now"


def test_after_a_loss_nothing_is_taken_for_had() -> None:
    move = Move()
    move.old_brings(arrived("a", qos=1, mid=1))
    move.link._on_disconnect(move.old, None, None, "lost", None)
    move.new_brings(arrived("a", qos=1, mid=1, dup=True))
    assert move.texts == ["a", "a"]


def test_it_knows_the_nodes_it_hears_of() -> None:
    move = Move()
    listed = [{"node": "n3", "address": "n3:1885"}, {"node": "n4", "address": ""}]
    move.new_brings(arrived(json.dumps(listed), topic=NODES_TOPIC))
    assert move.link.nodes == ["n3:1885", "127.0.0.1:1883", "n2:1884"]
    assert move.got == []


@pytest.mark.parametrize("topic", [HANDOVER_TOPIC, NODES_TOPIC])
def test_what_cannot_be_read_is_left_alone(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    move = Move()
    with caplog.at_level(logging.WARNING):
        move.new_brings(arrived("{", topic=topic))
    assert "cannot be read" in caplog.text
    assert move.link._tasks.empty()


def test_it_is_told_where_to_go_by_the_node_it_is_on() -> None:
    move = Move()
    told = {"node": "n2", "address": "n2:1884", "reason": "owner"}
    move.new_brings(arrived(json.dumps(told), topic=HANDOVER_TOPIC))
    assert move.link._tasks.get_nowait() == (move.new, Told(**told))


def test_an_address_is_a_host_and_a_port() -> None:
    broker = Broker(username="u", password="p")
    assert at(broker, "n2.example:1884") == Broker("n2.example", 1884, username="u", password="p")
    assert at(broker, "[::1]:1884").host == "::1"
    for bad in ("n2", ":1883", "n2:x", ""):
        with pytest.raises(ConnectError, match="host:port"):
            at(broker, bad)
    assert not listens(f"127.0.0.1:{free_port()}", 1.0)
    assert not listens("nonsense", 1.0)


def test_both_connections_know_what_was_received_and_not_released() -> None:
    old, new = (Broker(client_id="c", clean_session=False).client() for _ in range(2))
    share_received(old, new)
    old._in_messages[5] = arrived("x", qos=2, mid=5)
    assert new._in_messages[5].payload == b"x"


def test_what_was_never_sent_is_not_waited_for() -> None:
    info = mqtt.MQTTMessageInfo(1)
    assert not is_over(info)
    info.rc = mqtt.MQTT_ERR_NO_CONN
    assert is_over(info)


def test_on_a_single_broker_it_is_a_client_as_any_other_and_leaves_nothing_behind() -> None:
    with locus(plugins=ALLOW_ANONYMOUS) as broker:
        got: list[str] = []
        moved: list[Any] = []
        client = RoamingClient("127.0.0.1", 1, nodes=[f"127.0.0.1:{broker.port}"], client_id="r", on_moved=moved.append)
        client.subscribe("t", lambda message: got.append(message.text), qos=2)
        with client:
            assert client.address == f"127.0.0.1:{broker.port}"
            client.publish("t", "x", qos=2)
            wait_for(lambda: got == ["x"], "the message", 60)
            assert client.handovers == 0
            assert not moved
        with connect(broker.port, "r", clean=False) as again:
            again.send(b"")
            assert not again.messages_until_ping(), "a session that was forgotten has nothing"


def lost(link: RoamingLink, paho: mqtt.Client) -> None:
    """Let paho tell of a loss as it does: while it still says that the connection is there."""
    paho.is_connected = lambda: True  # type: ignore[method-assign]
    link._on_disconnect(paho, None, None, "gone", None)


def tasks(link: RoamingLink) -> list[tuple[mqtt.Client, Told | None] | None]:
    found = []
    while not link._tasks.empty():
        found.append(link._tasks.get())
    return found


def test_a_lost_connection_is_looked_for_though_paho_says_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    link = link_of([])
    lost(link, link._paho)
    assert tasks(link) == [(link._paho, None)]
    tried: list[str] = []

    def reaches(_link: RoamingLink, address: str) -> bool:
        tried.append(address)
        return True

    monkeypatch.setattr(RoamingLink, "_reaches", reaches)
    link._find_node()
    assert tried == [str(link._broker)]
    link._go_on()
    assert not link._up


def test_a_new_connection_that_is_lost_before_the_old_one_is_at_its_end_is_looked_for() -> None:
    move = Move()
    lost(move.link, move.new)
    assert tasks(move.link) == [(move.new, None)]
    assert not move.link._is_there()
    lost(move.link, move.old)
    assert not tasks(move.link), "the old one is left anyway"
