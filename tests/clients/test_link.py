"""Losing the connection and coming back, and not being let in."""

from __future__ import annotations

import socket

import psutil
import pytest
from pwdlib import PasswordHash

from clients import (
    ConnectError,
    LocusClient,
    Message,
    Near,
    NoAnswerError,
    NotConnectedError,
    SubscriptionRefusedError,
)
from tests.brokers import ALLOW_ANONYMOUS, free_port, locus
from tests.clients.scripted_broker import ScriptedBroker
from tests.mqtt_wire import Kind, connect, publish, wait_for

PASSWORDS = "amqtt.plugins.authentication.FileAuthPlugin"


@pytest.fixture
def scripted():
    with ScriptedBroker() as broker:
        yield broker


def ignore(message: Message) -> None:
    pass


def test_after_a_loss_it_comes_back_with_position_and_subscriptions(scripted):
    got = []
    with LocusClient(port=scripted.port) as client:
        client.update_position(1, 2)
        client.subscribe("cars/#", got.append, area=Near(500))
        gone = client.subscribe("boats/#", ignore)
        gone.cancel()
        scripted.wait_for(Kind.UNSUBSCRIBE)
        scripted.heard.clear()
        scripted.cut()
        scripted.wait_for(Kind.SUBSCRIBE)
        assert [heard.kind for heard in scripted.heard] == [Kind.CONNECT, Kind.PUBLISH, Kind.SUBSCRIBE]
        assert scripted.published == [("locus/me/position", b'{"lon":1.0,"lat":2.0}')]
        assert scripted.subscribed == ["$geo/near:500m/cars/#"]
        scripted.send("cars/1", b"back")
        wait_for(lambda: bool(got), "a message after the loss")


def test_what_is_refused_on_return_ends_the_subscription(scripted, caplog):
    with LocusClient(port=scripted.port) as client:
        subscription = client.subscribe("cars/#", ignore)
        scripted.refuse.add("cars/#")
        scripted.cut()
        wait_for(lambda: not subscription.active, "the subscription to end")
        assert isinstance(subscription.error, SubscriptionRefusedError)
        assert "'cars/#'" in caplog.text


def test_a_session_that_was_kept_is_not_subscribed_to_again_but_left_where_it_was_left(scripted):
    got = []
    with LocusClient(port=scripted.port, client_id="kept", clean_session=False) as client:
        client.subscribe("a", got.append)
        left = client.subscribe("b", ignore)
        scripted.silent = {Kind.CONNECT}  # so that it stays away
        scripted.cut()
        wait_for(lambda: not client.connected, "the loss")
        left.cancel()
        scripted.heard.clear()
        scripted.session_present = True
        scripted.silent = set()
        scripted.cut()
        scripted.wait_for(Kind.UNSUBSCRIBE)
        assert scripted.unsubscribed == ["b"]
        assert scripted.subscribed == []
        scripted.send("a")
        wait_for(lambda: bool(got), "a message")


def test_without_a_connection_waiting_has_an_end(scripted):
    with LocusClient(port=scripted.port) as client:
        scripted.silent = {Kind.CONNECT}
        scripted.cut()
        wait_for(lambda: not client.connected, "the loss")
        with pytest.raises(NotConnectedError, match="publish to 'a'"):
            client.publish("a", timeout_s=0.05)
        with pytest.raises(NotConnectedError, match="subscribe to 'a'"):
            client.subscribe("a", ignore, timeout_s=0.05)
        with pytest.raises(NotConnectedError, match="locus/me/position"):
            client.update_position(1, 2, timeout_s=0.05)
        assert client.position is None
        client.close(timeout_s=0.5)


def test_what_waits_for_the_connection_goes_on_when_it_is_back(scripted):
    with LocusClient(port=scripted.port) as client:
        scripted.cut()
        wait_for(lambda: not client.connected, "the loss")
        client.subscribe("a", ignore)
        client.publish("b", "1", qos=1)
        assert scripted.subscribed == ["a"]
        assert scripted.published == [("b", b"1")]


def test_subscribed_before_connecting_nothing_kept_is_missed():
    """A broker sends what it kept right behind CONNACK; the callbacks must be there by then."""
    with locus() as broker:
        earlier = connect(broker.port, "kept", clean=False)
        earlier.subscribe(("a", 1))
        earlier.close()
        with connect(broker.port, "publisher") as publisher:
            publisher.send(publish("a", b"kept", qos=1))
            publisher.expect(Kind.PUBACK)
        got = []
        client = LocusClient(port=broker.port, client_id="kept", clean_session=False)
        client.subscribe("a", got.append, qos=1)
        with client:
            wait_for(lambda: bool(got), "the message kept")
        assert [message.text for message in got] == ["kept"]


def test_a_filter_refused_while_connecting_is_an_error_of_connect(scripted):
    scripted.refuse.add("$geo/near:5m/a")
    client = LocusClient(port=scripted.port)
    client.subscribe("b", ignore)
    client.subscribe("a", ignore, area=Near(5))
    with pytest.raises(SubscriptionRefusedError, match="near:5m"):
        client.connect()
    assert not client.connected


def test_it_survives_a_broker_that_is_killed(tmp_path):
    port, got = free_port(), []
    with locus(port=port, directory=tmp_path) as broker, LocusClient(port=port, timeout_s=30) as client:
        client.subscribe("a/#", lambda message: got.append(message.text), qos=1)
        client.publish("a/1", "before", qos=1)
        wait_for(lambda: got == ["before"], "the first message")
        broker.kill()
        with locus(port=port, directory=tmp_path):
            wait_for(lambda: not client.connected, "the loss to be noticed")
            client.publish("a/1", "after", qos=1)
            wait_for(lambda: got == ["before", "after"], "the second message")


def test_nobody_there():
    with pytest.raises(ConnectError, match=r"cannot reach a broker at 127\.0\.0\.1:\d+: .*refused"):
        LocusClient(port=free_port()).connect()


def test_somebody_silent_there(scripted):
    scripted.silent = {Kind.CONNECT}
    with pytest.raises(NoAnswerError, match="did not answer CONNECT"):
        LocusClient(port=scripted.port).connect(timeout_s=0.2)


def test_a_listener_that_never_accepts():
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(NoAnswerError):
        LocusClient(port=listener.getsockname()[1]).connect(timeout_s=0.2)


def test_not_let_in(scripted):
    scripted.connack = 5
    with pytest.raises(ConnectError, match=r"(?i)not authorized"):
        LocusClient(port=scripted.port, username="me", password="secret").connect()


def test_the_password_is_not_shown():
    client = LocusClient(username="me", password="secret")
    assert "secret" not in repr(client._link._broker)


def test_a_password_lets_in(tmp_path):
    (tmp_path / "passwords").write_text(f"me:{PasswordHash.recommended().hash('secret')}\n")
    plugins = {PASSWORDS: {"password_file": str(tmp_path / "passwords")}}
    with locus(plugins=plugins) as broker:
        with LocusClient(port=broker.port, username="me", password="secret") as client:
            assert client.connected
        with pytest.raises(ConnectError, match="refused this client"):
            LocusClient(port=broker.port, username="me", password="wrong").connect()


def test_web_sockets():
    port = free_port()
    listeners = {"web": {"type": "ws", "bind": f"127.0.0.1:{port}"}}
    got = []
    with (
        locus(plugins=ALLOW_ANONYMOUS, listeners=listeners),
        LocusClient(port=port, transport="websockets") as client,
    ):
        client.subscribe("a", got.append)
        client.publish("a", "web")
        wait_for(lambda: bool(got), "the message")


def test_threads_and_sockets_are_gone_after_close():
    process = psutil.Process()
    with locus() as broker:
        descriptors, threads = process.num_fds(), process.num_threads()
        clients = []  # kept, so that they are not only gone because they are forgotten
        for _ in range(5):
            with LocusClient(port=broker.port) as client:
                client.subscribe("a", ignore)
                clients.append(client)
        wait_for(lambda: process.num_threads() <= threads, "the threads to end")
        assert process.num_fds() <= descriptors
