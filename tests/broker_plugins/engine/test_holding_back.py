"""A plugin that holds messages back, and lets them go on later."""

from __future__ import annotations

import asyncio

import pytest

from broker_plugins.engine.engine import Engine
from broker_plugins.engine.hooks import Hooks, Refused, Selection
from broker_plugins.engine.message import Message
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.session import Session
from tests.broker_plugins.smart import NoSocket


class Watcher(Hooks):
    """Notes what it sees, and may stop it."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.answer: bool | None = None
        self.refuses = False

    def on_publish(self, message: Message) -> bool | None:
        self.seen.append(message.payload)
        if self.refuses:
            raise Refused("not this one")
        return self.answer


class Holder(Hooks):
    """Keeps messages until it is told to let them go."""

    def __init__(self) -> None:
        self.held: list[Message] = []

    def on_publish(self, message: Message) -> bool | None:
        if message.payload.startswith(b"hold"):
            self.held.append(message)
            return False
        return None


class Cutter(Hooks):
    """Cuts everything away."""

    cuts = True

    def select(self, message: Message, selection: Selection) -> None:
        if message.topic == "cut":
            selection.keep(())


@pytest.fixture
def desk():
    loop = asyncio.new_event_loop()
    engine = Engine(loop, EngineOptions())
    before, holder, after = Watcher(), Holder(), Watcher()
    engine.start([before, holder, after, Cutter()])
    session = Session(engine, "listener", clean=True)
    engine.sessions["listener"] = session
    session.attach(NoSocket())
    engine.adopt(engine.read_filter(session, "#", 0))
    yield engine, session, before, holder, after
    loop.close()


def test_a_message_goes_on_where_it_was_held(desk) -> None:
    engine, session, before, holder, after = desk
    engine.publish(Message("t", b"hold 1", retain=True))
    engine.publish(Message("t", b"2"))
    assert session.out == [b"\x30\x04\x00\x01t2"]
    assert (before.seen, after.seen) == ([b"hold 1", b"2"], [b"2"])
    assert engine.retained.get("t") is None
    done: list[int] = []
    engine.resume(holder.held[0], holder, lambda: done.append(engine.sequence))
    assert session.out[1:] == [b"\x30\x09\x00\x01thold 1"]
    assert (before.seen, after.seen) == ([b"hold 1", b"2"], [b"2", b"hold 1"])
    assert done == [3] == [holder.held[0].sequence]  # it counts as published now
    entry = engine.retained.get("t")
    assert entry is not None
    assert entry.message.payload == b"hold 1"


@pytest.mark.parametrize("refuses", [False, True])
def test_a_plugin_after_the_holder_may_still_stop_it(desk, refuses: bool) -> None:
    engine, session, _, holder, after = desk
    engine.publish(Message("t", b"hold"))
    after.answer, after.refuses = False, refuses
    done: list[bool] = []
    engine.resume(holder.held[0], holder, lambda: done.append(True))
    assert done == [True]
    assert session.out == []
    assert engine.counters.refused_publishes == refuses


def test_who_would_receive_a_message_is_found_without_cutting_or_sending(desk) -> None:
    engine, session, *_ = desk
    selection = engine.gather(Message("cut", b"x"))
    assert selection.receivers == {session: 0}
    assert session.out == []
    engine.publish(Message("cut", b"x"))
    assert session.out == []


def test_ages_of_subscriptions_are_counted_or_read_from_a_clock(desk) -> None:
    engine, session, *_ = desk
    first = engine.read_filter(session, "a", 0).order
    assert engine.read_filter(session, "b", 0).order == first + 1
    engine.ages = lambda: 1_000_000
    assert [engine.read_filter(session, text, 0).order for text in "cd"] == [1_000_000, 1_000_001]
