"""A sample of the messages: each as likely as the others, told with its weight, and the rest take the short way."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from broker_plugins.engine import Hooks, Message, Subscription
from broker_plugins.engine.codec import publish_head
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.message import message_of
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.session import Session
from tests.broker_plugins.smart import NoSocket

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sampler(Hooks):
    samples = True

    def __init__(self) -> None:
        self.published: list[Message] = []
        self.delivered: list[tuple[Session, Message, int]] = []
        self.dropped: list[tuple[Session | None, Message, str]] = []
        self.retained: list[tuple[Subscription, Message]] = []

    def on_published(self, messages: Sequence[Message]) -> None:
        self.published += messages

    def on_delivered(self, deliveries: Sequence[tuple[Session, Message, int]]) -> None:
        self.delivered += deliveries

    def on_dropped(self, drops: Sequence[tuple[Session | None, Message, str]]) -> None:
        self.dropped += drops

    def on_retained_sent(self, subscription: Subscription, message: Message) -> None:
        self.retained.append((subscription, message))


class Listener(Hooks):
    def __init__(self) -> None:
        self.published: list[Message] = []

    def on_published(self, messages: Sequence[Message]) -> None:
        self.published += messages


def engine_with(*plugins: Hooks, options: EngineOptions | None = None) -> Engine:
    engine = Engine(asyncio.get_running_loop(), options or EngineOptions())
    engine.start(plugins)
    return engine


def connected(engine: Engine, client_id: str, clean: bool = True) -> Session:
    session = engine.sessions[client_id] = Session(engine, client_id, clean)
    session.attach(NoSocket())  # type: ignore[arg-type]
    return session


def subscribe(engine: Engine, session: Session, text: str, qos: int = 0) -> Subscription:
    subscription = engine.read_filter(session, text, qos)
    engine.adopt(subscription)
    return subscription


async def test_a_plugin_that_samples_leaves_the_short_way_open() -> None:
    assert engine_with(Sampler()).routes.all_plain
    assert not engine_with(Listener()).routes.all_plain
    assert not engine_with(Sampler(), Listener()).routes.all_plain


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
async def test_weights_add_up_to_about_all_messages(share: float) -> None:
    random.seed(3)
    sampler = Sampler()
    engine = engine_with(sampler)
    reader = connected(engine, "reader")
    subscribe(engine, reader, "#")
    engine.sample(share)
    for number in range(4_000):
        engine.publish(Message(f"t/{number % 4}", b"x"))
    await asyncio.sleep(0)
    assert len(reader.out or ()) == 4_000
    assert len(sampler.delivered) == len(sampler.published)
    for turn in range(4):  # publishers that take turns are all met
        weight = sum(each.weight for each in sampler.published if each.topic == f"t/{turn}")
        assert weight == pytest.approx(1_000 if share else 0, abs=0 if share in (0.0, 1.0) else 300)
    assert all(each.taken_ns for each in sampler.published)


async def test_a_small_share_is_one_of_every_so_many_anywhere_among_them() -> None:
    random.seed(3)
    sampler = Sampler()
    engine = engine_with(sampler)
    places: list[int] = []
    for _ in range(300):
        started = engine.sequence
        engine.sample(0.0303)  # one in 34
        for _ in range(100):
            engine.publish(Message("a", b""))
        await asyncio.sleep(0)
        taken, sampler.published = sampler.published, []
        assert [(each.sequence - started - 1) // 34 for each in taken[:2]] == [0, 1]
        assert len(taken) in (2, 3), "of the last stretch only a part was seen"
        assert {each.weight for each in taken} == {34.0}
        places += [(each.sequence - started - 1) % 34 for each in taken[:2]]
    assert set(places) == set(range(34))
    assert sum(places) / len(places) == pytest.approx(16.5, abs=2.0)


async def test_a_message_of_the_sample_does_not_take_the_short_way_and_the_next_one_does() -> None:
    random.seed(3)
    engine = engine_with(Sampler())
    engine.sample(0.2)
    short = 0
    for _ in range(2_000):
        if engine.sequence < engine.sampled_after:
            engine.sequence += 1  # what a connection does on the short way
            short += 1
        else:
            engine.publish(Message("a", b""))
    assert short == pytest.approx(1_600, abs=100)


async def test_retained_messages_are_all_in_the_sample_and_stand_for_themselves() -> None:
    random.seed(3)
    sampler = Sampler()
    engine = engine_with(sampler)
    engine.sample(0.25)
    for number in range(400):
        engine.publish(Message(f"t/{number}", b"x", retain=number % 2 == 0))
    await asyncio.sleep(0)
    retained = [each for each in sampler.published if each.retain]
    assert [each.weight for each in retained] == [1.0] * 200
    others = [each for each in sampler.published if not each.retain]
    assert {each.weight for each in others} == {4.0}
    assert len(others) == pytest.approx(50, abs=25), "a retained message does not draw its neighbour in"


async def test_who_listens_to_all_and_who_samples_each_hear_their_own() -> None:
    random.seed(3)
    sampler, listener = Sampler(), Listener()
    engine = engine_with(sampler, listener)
    engine.sample(0.5)
    for _ in range(200):
        engine.publish(Message("a", b""))
    await asyncio.sleep(0)
    assert len(listener.published) == 200
    assert 50 < len(sampler.published) < 150
    assert [each for each in listener.published if each.weight] == sampler.published


async def test_a_delivery_is_told_only_where_the_message_got_through() -> None:
    sampler = Sampler()
    engine = engine_with(sampler, options=EngineOptions(max_queued_messages=1))
    engine.sample(1.0)
    here, slow, away = connected(engine, "here"), connected(engine, "slow"), connected(engine, "away", clean=False)
    for session in (here, slow, away):
        subscribe(engine, session, "a", qos=1)
    slow.out = None
    away.detach()
    for qos in (0, 1, 1):
        engine.publish(Message("a", b"", qos))
    await asyncio.sleep(0)
    got = [(session.client_id, message.sequence, qos) for session, message, qos in sampler.delivered]
    assert got == [("here", 1, 0), ("slow", 1, 0), ("here", 2, 1), ("away", 2, 1), ("here", 3, 1)]
    lost = [(session.client_id, message.sequence) for session, message, _ in sampler.dropped if session]
    assert lost == [("slow", 2), ("slow", 3), ("away", 3)]


async def test_what_is_dropped_on_the_short_way_is_told_with_topic_and_payload() -> None:
    sampler = Sampler()
    engine = engine_with(sampler, options=EngineOptions(max_queued_messages=1))
    slow = connected(engine, "slow")
    slow.out = None
    for payload in (b"1", b"2" * 200):
        slow.wait_qos0(publish_head("ü/x".encode(), len(payload), 0, retain=False) + payload)
    await asyncio.sleep(0)
    ((session, message, reason),) = sampler.dropped
    assert (session, message.topic, message.payload, reason) == (slow, "ü/x", b"1", "dropped_qos0")


@pytest.mark.parametrize("size", [0, 1, 120, 130, 20_000])
def test_a_message_is_read_back_from_its_packet(size: int) -> None:
    message = message_of(publish_head("a/ü".encode(), size, 0, retain=False) + b"x" * size)
    assert (message.topic, message.payload, message.qos) == ("a/ü", b"x" * size, 0)


async def test_retained_messages_sent_are_told_with_their_subscription() -> None:
    sampler = Sampler()
    engine = engine_with(sampler)
    engine.publish(Message("a/b", b"x", retain=True))
    subscription = subscribe(engine, connected(engine, "reader"), "a/#")
    assert engine.send_retained(subscription, "a/b")
    ((told, message),) = sampler.retained
    assert told is subscription
    assert message.topic == "a/b"
