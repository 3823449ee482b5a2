"""A mailbox is read in order, each batch once, also where the reading begins again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import nats.errors

from broker_plugins.cluster.mail_reader import GapError
from broker_plugins.cluster.mailbox import Mailbox
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.plugin import ClusterPlugin
from broker_plugins.cluster.wire import Taken, decode

SECONDS = 60.0


class Post:
    """A fabric whose mailbox is a list; a reader may fail at any time."""

    def __init__(self, letters: list[bytes]) -> None:
        self.options = ClusterOptions(node="here")
        self.letters = letters
        self.mailbox_created = "once"
        self.ready = self.settled = True
        self.emptied: list[int] = []
        self.faults: list[Exception] = []
        self.said: list[int] = []
        self.first = 1

    def subject(self, *parts: str) -> str:
        return ".".join(parts)

    async def publish(self, _subject: str, data: bytes) -> None:
        self.said.append(decode(data, Taken).number)

    async def collect(self, after: int) -> Reader:
        return Reader(self, max(after + 1, self.first))

    async def empty(self, upto: int) -> None:
        self.emptied.append(upto)


class Reader:
    def __init__(self, post: Post, start: int) -> None:
        self._post = post
        self._at = start

    async def next(self) -> list[tuple[int, bytes]]:
        await asyncio.sleep(0)
        if self._post.faults:
            raise self._post.faults.pop(0)
        found = [(number, self._post.letters[number - 1]) for number in range(self._at, len(self._post.letters) + 1)][
            :2
        ]
        self._at += len(found)
        if not found:
            await asyncio.sleep(0.001)
        return found

    async def close(self) -> None:
        pass


class Disk:
    """A store that is safe when it is told to be."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.waiting: list[tuple[Any, Any]] = []

    def rows(self, _table: str) -> list[tuple[str, str]]:
        return list(self.places.items())

    def put(self, _table: str, key: tuple[str], row: tuple[str]) -> None:
        self.places[key[0]] = row[0]

    def when_safe(self, call: Any, argument: Any) -> None:
        self.waiting.append((call, argument))

    def settle(self) -> None:
        while self.waiting:
            call, argument = self.waiting.pop(0)
            call(argument)


async def read(
    post: Post, disk: Disk | None, wanted: int, taken: list[bytes] | None = None
) -> tuple[Mailbox, list[bytes]]:
    """Read until so many letters were taken."""
    found: list[bytes] = [] if taken is None else taken

    async def take(data: bytes) -> None:
        assert post.said, "it is said before it is taken"
        found.append(data)

    mailbox = Mailbox(post, disk, ClusterCounters(), take)  # type: ignore[arg-type]
    running = asyncio.ensure_future(mailbox.run())

    async def wait() -> None:
        while len(found) < wanted:
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), SECONDS)
    running.cancel()
    return mailbox, found


async def never(data: bytes) -> None:
    """Nothing may be taken."""
    raise AssertionError(data)


LETTERS = [str(number).encode() for number in range(9)]


async def test_letters_are_taken_in_order_and_said_before() -> None:
    post = Post(LETTERS)
    mailbox, found = await read(post, Disk(), 9)
    assert found == LETTERS
    assert post.said[-1] == 9
    assert mailbox.place == ("once", 9)


async def test_reading_begins_again_where_it_was_after_a_gap_or_a_fault() -> None:
    post = Post(LETTERS)
    post.faults = [GapError("a gap"), nats.errors.TimeoutError()]
    _, found = await read(post, None, 9)
    assert found == LETTERS


async def test_a_node_that_was_restarted_goes_on_after_what_it_had_noted() -> None:
    post, disk = Post(LETTERS[:4]), Disk()
    await read(post, disk, 4)
    post.letters = LETTERS
    mailbox, found = await read(post, disk, 5)
    assert found == LETTERS[4:]
    assert mailbox.place == ("once", 9)


async def test_a_mailbox_made_anew_counts_from_one_again() -> None:
    post, disk = Post(LETTERS), Disk()
    await read(post, disk, 9)
    post.mailbox_created, post.letters = "again", LETTERS[:2]
    _, found = await read(post, disk, 2)
    assert found == LETTERS[:2]


async def test_only_what_is_safe_is_removed() -> None:
    post, disk = Post(LETTERS), Disk()
    mailbox, _ = await read(post, disk, 9)
    await mailbox.tidy()
    assert post.emptied == []
    disk.settle()
    await mailbox.tidy()
    await mailbox.tidy()
    assert post.emptied == [9]


async def test_nothing_is_read_before_the_node_knows_what_it_must() -> None:
    post = Post(LETTERS)
    post.settled = False
    found: list[bytes] = []
    reading = asyncio.ensure_future(read(post, None, 9, found))
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert found == []
    post.settled = True
    await reading
    assert found == LETTERS


async def test_what_is_there_when_the_broker_stops_is_left_for_its_next_life() -> None:
    """A batch that is being taken is taken whole; those behind it stay, though they were read with it."""
    post, disk, found = Post(LETTERS), Disk(), list[bytes]()

    async def take(data: bytes) -> None:
        if len(found) == 2:
            mailbox.stop()
        await asyncio.sleep(0)
        found.append(data)

    mailbox = Mailbox(post, disk, ClusterCounters(), take)  # type: ignore[arg-type]
    await asyncio.wait_for(mailbox.run(), SECONDS)
    assert found == LETTERS[:3]
    assert disk.places == {"mailbox": "once 3"}
    disk.settle()
    await mailbox.tidy()
    assert post.emptied == [3]
    _, found = await read(post, disk, 6)
    assert found == LETTERS[3:]


async def test_nothing_is_said_of_what_is_read_after_the_broker_stopped() -> None:
    post, disk = Post(LETTERS), Disk()
    mailbox = Mailbox(post, disk, ClusterCounters(), never)  # type: ignore[arg-type]
    running = asyncio.ensure_future(mailbox.run())
    await asyncio.sleep(0)  # it has begun to read
    mailbox.stop()
    await asyncio.wait_for(running, SECONDS)
    assert post.said == []
    assert disk.places == {}


async def test_a_broker_that_shuts_down_stops_reading_before_its_store_closes() -> None:
    plugin = ClusterPlugin(SimpleNamespace(config=ClusterOptions(node="here")))
    plugin.stop()  # it had not begun: another plugin refused to
    plugin._mailbox = Mailbox(Post(LETTERS), Disk(), ClusterCounters(), never)  # type: ignore[arg-type]
    plugin.stop()
    await asyncio.wait_for(plugin._mailbox.run(), SECONDS)
