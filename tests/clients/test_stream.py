from __future__ import annotations

import asyncio
import contextlib
import threading
from unittest.mock import Mock

import pytest

from clients import Interval, LocusClient, MessageStream, Near, Subscription, SubscriptionRefusedError
from tests.brokers import locus
from tests.clients.scripted_broker import ScriptedBroker
from tests.mqtt_wire import Kind, wait_for

SECONDS = 10


@pytest.fixture
def scripted():
    with ScriptedBroker() as broker:
        yield broker


async def until(condition) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_messages_are_iterated_over(scripted):
    async with asyncio.timeout(SECONDS), LocusClient(port=scripted.port) as client:
        got = []
        async with client.messages("cars/#", area=Near(500), where={"v": Interval(1, 2)}, qos=1) as stream:
            assert scripted.subscribed == ["$geo/near:500m/$where/v=1..2/cars/#"]
            for number in range(3):
                scripted.send("cars/1", b"%d" % number)
            async for message in stream:
                got.append(message.text)
                if len(got) == 3:
                    break
        assert got == ["0", "1", "2"]
        assert scripted.unsubscribed == scripted.subscribed


async def test_leaving_the_loop_cancels(scripted):
    async with asyncio.timeout(SECONDS), LocusClient(port=scripted.port) as client:

        async def first() -> str:
            async for message in client.messages("a"):
                return message.text
            raise AssertionError("the stream ended")

        task = asyncio.create_task(first())
        await until(lambda: scripted.subscribed == ["a"])
        scripted.send("a", b"1")
        assert await task == "1"
        await until(lambda: scripted.unsubscribed == ["a"])


async def test_a_cancelled_task_cancels_the_subscription(scripted):
    async with asyncio.timeout(SECONDS), LocusClient(port=scripted.port) as client:

        async def listen() -> None:
            async for _ in client.messages("a"):
                pass

        task = asyncio.create_task(listen())
        await until(lambda: scripted.subscribed == ["a"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: scripted.unsubscribed == ["a"])


async def test_the_oldest_is_dropped_and_counted(scripted):
    async with asyncio.timeout(SECONDS), LocusClient(port=scripted.port) as client:
        async with client.messages("a", queue_size=2) as stream:
            for number in range(5):
                scripted.send("a", b"%d" % number)
            await until(lambda: stream.dropped == 3)
            got = []
            async for message in stream:
                got.append(message.text)
                if len(got) == 2:
                    break
        assert got == ["3", "4"]


async def test_it_ends_when_the_client_is_closed(scripted):
    async with asyncio.timeout(SECONDS):
        client = LocusClient(port=scripted.port)
        await asyncio.to_thread(client.connect)
        got = []

        async def listen() -> None:
            got.extend([message.text async for message in client.messages("a")])

        task = asyncio.create_task(listen())
        await until(lambda: scripted.subscribed == ["a"])
        scripted.send("a", b"last")
        client.publish("b", qos=1)  # when this is acknowledged, the message has arrived
        await asyncio.to_thread(client.close)
        await task
        assert got == ["last"]


async def test_a_refusal_is_raised_where_the_messages_were_wanted(scripted):
    async with asyncio.timeout(SECONDS), LocusClient(port=scripted.port) as client:
        scripted.refuse.add("a")
        with pytest.raises(SubscriptionRefusedError, match="'a'"):
            async for _ in client.messages("a"):
                pass


async def test_a_refusal_on_return_is_raised_too(scripted):
    async with asyncio.timeout(SECONDS), LocusClient(port=scripted.port) as client:

        async def listen() -> None:
            async for _ in client.messages("a"):
                pass

        task = asyncio.create_task(listen())
        await until(lambda: scripted.subscribed == ["a"])
        await until(lambda: bool(scripted.all(Kind.SUBSCRIBE)))
        scripted.refuse.add("a")
        scripted.cut()
        with pytest.raises(SubscriptionRefusedError, match="'a'"):
            await task


async def test_the_loop_goes_on_while_the_broker_is_waited_for(scripted):
    scripted.silent = {Kind.SUBSCRIBE}
    async with asyncio.timeout(SECONDS), LocusClient(port=scripted.port) as client:
        stream = client.messages("a", timeout_s=0.3)
        task = asyncio.create_task(stream.__aenter__())
        turns = 0
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 5
        with pytest.raises(TimeoutError):
            await task


async def test_a_stream_can_be_moved_and_has_no_subscription_before_it_begins(scripted):
    async with asyncio.timeout(SECONDS), LocusClient(port=scripted.port) as client:
        stream = client.messages("a", area=Near(5))
        with pytest.raises(RuntimeError, match="not begun"):
            _ = stream.subscription
        async with stream:
            await asyncio.to_thread(stream.subscription.move, Near(9))
            assert scripted.subscribed == ["$geo/near:5m/a", "$geo/near:9m/a"]
        with pytest.raises(RuntimeError, match="closed"):
            await stream.__aenter__()


async def test_several_streams_of_a_real_broker():
    with locus() as broker:
        async with asyncio.timeout(30), LocusClient(port=broker.port) as client:

            async def collect(topic_filter: str, count: int) -> list[str]:
                got = []
                async with client.messages(topic_filter, qos=1) as stream:
                    ready.release()
                    async for message in stream:
                        got.append(message.text)
                        if len(got) == count:
                            break
                return got

            ready = asyncio.Semaphore(0)
            tasks = [asyncio.create_task(collect(text, 50)) for text in ("a/#", "a/x", "b")]
            for _ in tasks:
                await ready.acquire()
            for number in range(50):
                for topic in ("a/x", "b"):
                    await asyncio.to_thread(client.publish, topic, str(number), qos=1, wait=False)
            expected = [str(number) for number in range(50)]
            assert await asyncio.gather(*tasks) == [expected, expected, expected]


@pytest.mark.parametrize("granted_first", [False, True])
async def test_a_task_cancelled_while_it_subscribes_leaves_nothing_behind(granted_first):
    asked, answer = threading.Event(), threading.Event()
    subscription = Mock(spec=Subscription, active=True)

    def subscribe(deliver) -> Subscription:
        asked.set()
        answer.wait(SECONDS)
        return subscription

    stream = MessageStream(subscribe, 10)
    task = asyncio.create_task(stream.__aenter__())
    await until(asked.is_set)
    if granted_first:
        answer.set()
        await asyncio.to_thread(wait_for, lambda: stream._subscription is not None, "the subscription")
    if not task.done():
        task.cancel()
    answer.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
        await stream.aclose()
    await until(lambda: subscription.cancel.called)
