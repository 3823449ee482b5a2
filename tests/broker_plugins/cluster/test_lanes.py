"""The way to one node: order, acknowledgements, and what happens while the fabric takes nothing."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import nats.errors
import nats.js.errors
import pytest

from broker_plugins.cluster import lanes
from broker_plugins.cluster.lanes import BATCH_BYTES, FULL, Lane
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.wire import Batch, Frame, decode
from broker_plugins.engine import Message

SECONDS = 60.0


class Fabric:
    """Takes what it is given, or not."""

    def __init__(self, **options: int) -> None:
        self.options = ClusterOptions(node="here", **options)
        self.ready = True
        self.max_payload = 1 << 20
        self.sent: list[Frame] = []
        self.posted: list[Frame] = []
        self.numbers: list[str] = []
        self.fault: Exception | None = None

    def subject(self, *parts: str) -> str:
        return ".".join(parts)

    async def publish(self, _subject: str, data: bytes) -> None:
        self.sent += decode(data, Batch).frames

    async def post(self, _node: str, data: bytes, number: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.posted += decode(data, Batch).frames
        self.numbers.append(number)


class Disk:
    """As much of a store as a lane needs."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[str, bytes]] = {}

    def put(self, _table: str, key: tuple[int], row: tuple[str, bytes]) -> None:
        self.rows[key[0]] = row

    def delete(self, _table: str, key: tuple[int]) -> None:
        self.rows.pop(key[0], None)

    def when_safe(self, call: Any, *arguments: Any) -> None:
        call(*arguments)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "RETRY_S", 0.01)


def lane_on(fabric: Fabric, disk: Disk | None = None) -> Lane:
    return Lane(fabric, "there", ClusterCounters(), disk, itertools.count(1))  # type: ignore[arg-type]


def send(lane: Lane, text: str, qos: int) -> Message:
    message = Message("t", text.encode(), qos)
    lane.send(Frame("t", text.encode(), qos, retain=False), message)
    return message


def texts(frames: list[Frame]) -> list[str]:
    return [frame.payload.decode() for frame in frames]


async def until(condition: Any) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), SECONDS)


async def test_both_ways_keep_their_order_and_publishers_wait_for_the_mailbox() -> None:
    fabric = Fabric()
    lane = lane_on(fabric)
    messages = [send(lane, str(number), number % 2) for number in range(20)]
    assert [message.debts for message in messages] == [number % 2 for number in range(20)]
    await until(lambda: lane.idle)
    assert texts(fabric.sent) == [str(number) for number in range(0, 20, 2)]
    assert texts(fabric.posted) == [str(number) for number in range(1, 20, 2)]
    assert not any(message.debts for message in messages)
    await until(lambda: lane.bytes == 0)
    lane.close()


async def test_a_mark_follows_what_was_sent_before_by_both_ways() -> None:
    fabric = Fabric()
    lane = lane_on(fabric)
    for qos in (0, 1):
        send(lane, "before", qos)
        lane.mark(Frame("", b"mark", qos, retain=False, number=7))
        send(lane, "after", qos)
    await until(lambda: lane.idle)
    await lane.flush(SECONDS)
    for frames in (fabric.sent, fabric.posted):
        assert texts(frames) == ["before", "mark", "after"]
        assert frames[1].number == 7
    await until(lambda: lane.bytes == 0)
    lane.close()


async def test_what_the_fabric_does_not_take_is_safe_on_disk_and_goes_later_in_order() -> None:
    fabric, disk = Fabric(), Disk()
    lane = lane_on(fabric, disk)
    fabric.fault = nats.errors.TimeoutError()
    first = send(lane, "1", 1)
    await until(lambda: not first.debts)
    assert len(disk.rows) == 1
    fabric.ready = False
    second = send(lane, "2", 2)
    assert not second.debts
    send(lane, "lost", 0)
    assert lane._counters.dropped_away == 1
    fabric.ready, fabric.fault = True, None
    third = send(lane, "3", 1)
    await until(lambda: lane.idle)
    assert texts(fabric.posted) == ["1", "2", "3"]
    assert not third.debts
    assert disk.rows == {}
    assert len(set(fabric.numbers)) == len(fabric.numbers)
    lane.close()


async def test_what_waited_on_disk_goes_under_its_old_number() -> None:
    fabric, disk = Fabric(), Disk()
    before = lane_on(fabric, disk)
    fabric.ready = False
    send(before, "kept", 1)
    before.close()
    ((number, (peer, data)),) = disk.rows.items()
    fabric.ready = True
    lane = lane_on(fabric, disk)
    assert peer == "there"
    lane.restore(number, data)
    await until(lambda: lane.idle)
    assert texts(fabric.posted) == ["kept"]
    assert fabric.numbers == [f"here-{number}"]
    assert disk.rows == {}
    lane.close()


async def test_bounds_are_kept_and_what_is_dropped_is_counted() -> None:
    fabric = Fabric(max_outgoing_bytes=1000)
    lane = lane_on(fabric)
    fabric.fault = nats.errors.TimeoutError()
    for _ in range(50):
        send(lane, "x" * 100, 1)
    assert lane._counters.dropped_outgoing > 30
    assert lane.bytes <= 1000
    lane.abandon()


async def test_a_full_mailbox_and_a_batch_too_large_hold_nobody_up() -> None:
    fabric = Fabric()
    lane = lane_on(fabric)
    full = nats.js.errors.APIError(code=503, err_code=FULL)
    fabric.fault = full
    message = send(lane, "full", 1)
    await until(lambda: lane.idle)
    assert not message.debts
    fabric.fault, fabric.max_payload = None, 2000
    large = send(lane, "x" * 3000, 1)
    await until(lambda: lane.idle)
    small = send(lane, "small", 1)
    await until(lambda: lane.idle)
    assert not large.debts
    assert not small.debts
    assert texts(fabric.posted) == ["small"]
    assert lane._counters.dropped_outgoing == 2
    lane.close()


async def test_much_goes_in_batches_of_a_bounded_size() -> None:
    fabric = Fabric()
    lane = lane_on(fabric)
    fabric.max_payload = BATCH_BYTES * 2
    for number in range(20):
        send(lane, str(number % 10) * 60_000, 1)
    await until(lambda: lane.idle)
    assert len(fabric.numbers) >= 4
    assert [text[0] for text in texts(fabric.posted)] == [str(number % 10) for number in range(20)]
    lane.close()


async def test_nobody_waits_for_a_node_that_is_given_up() -> None:
    fabric = Fabric()
    fabric.fault = nats.errors.TimeoutError()
    lane = lane_on(fabric)
    messages = [send(lane, str(number), 1) for number in range(3)]
    lane.abandon()
    await until(lambda: not any(message.debts for message in messages))
