"""Mail is handed on when it comes, whatever question it answers; what is over is asked for again."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import nats.errors
import pytest

from broker_plugins.cluster.inheriting import Inheriting
from broker_plugins.cluster.mail_reader import BATCH, GapError, MailReader


def mail(number: int) -> Any:
    place = SimpleNamespace(sequence=SimpleNamespace(stream=number))
    return SimpleNamespace(headers=None, data=f"letter {number}".encode(), metadata=place)


def status(code: str) -> Any:
    return SimpleNamespace(headers={"Status": code}, data=b"")


class Mailroom:
    """A fabric that sends what it is told to, and is silent then: whoever waits for more waits in vain."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, int]] = []

    @property
    def pending_msgs(self) -> int:
        return len(self.answers)

    async def next_msg(self, _seconds: float) -> Any:
        if not self.answers:
            raise nats.errors.TimeoutError
        return self.answers.pop(0)

    def jetstream(self) -> Mailroom:
        return self

    async def add_consumer(self, _stream: str, _config: object) -> Any:
        return SimpleNamespace(name="reader")

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _inbox: str) -> Mailroom:
        return self

    async def publish(self, _subject: str, data: bytes, _reply: str) -> None:
        self.asked.append(json.loads(data))


async def reader_of(room: Any, start: int = 1) -> MailReader:
    reader = MailReader(room, "mail", start)
    await reader.open()
    return reader


async def test_mail_does_not_wait_for_the_end_of_the_question() -> None:
    room = Mailroom(mail(1))
    reader = await reader_of(room)
    assert await reader.next() == [(1, b"letter 1")]
    room.answers = [mail(2), mail(3)]
    assert await reader.next() == [(2, b"letter 2"), (3, b"letter 3")]
    assert len(room.asked) == 1


async def test_a_question_that_is_over_is_asked_again_and_one_that_stands_is_not() -> None:
    room = Mailroom(status("100"))
    reader = await reader_of(room)
    assert await reader.next() == []
    room.answers = [status("408")]
    assert await reader.next() == []
    assert len(room.asked) == 1
    room.answers = [mail(number) for number in range(1, BATCH + 1)]
    assert len(await reader.next()) == BATCH
    assert len(room.asked) == 2
    room.answers = [mail(BATCH + 1)]
    assert await reader.next() == [(BATCH + 1, f"letter {BATCH + 1}".encode())]
    assert len(room.asked) == 3


async def test_what_is_missing_silent_or_refused_is_said() -> None:
    with pytest.raises(GapError, match="message 3 of the mailbox came where 2 was due"):
        await (await reader_of(Mailroom(mail(3)), start=2)).next()
    with pytest.raises(nats.errors.TimeoutError):
        await (await reader_of(Mailroom())).next()
    with pytest.raises(nats.errors.Error, match="409"):
        await (await reader_of(Mailroom(status("409")))).next()


async def test_a_session_goes_on_here_only_when_this_node_has_read_what_its_own_node_had_too() -> None:
    async def state(_node: str) -> tuple[str, int]:
        return "once", 5

    heir: Any = object.__new__(Inheriting)
    heir.node = SimpleNamespace(name="here", fabric=SimpleNamespace(mailbox_state=state))
    heir.mailbox = SimpleNamespace(place=("once", 3))
    waiting = asyncio.ensure_future(heir._read_up())
    await asyncio.wait([waiting], timeout=0.1)
    assert not waiting.done()
    heir.mailbox.place = ("once", 5)
    await asyncio.wait_for(waiting, 60)
    heir.mailbox.place = ("another time", 0)
    await asyncio.wait_for(heir._read_up(), 60)
