"""Messages as an asynchronous iterator, for programs that live in asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Self

from clients.inbox import Inbox

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from clients.messages import Message
    from clients.subscription import Subscription


class MessageStream:
    """The messages of one subscription, to be iterated over once in asyncio. Made by `LocusClient.messages`.

    It subscribes when the iteration or the `async with` block begins and cancels when either ends. Messages wait in a
    queue of limited size; when it is full the oldest is dropped and counted in `dropped`. The iteration ends when the
    client is closed, and raises what ended the subscription if the broker refuses it after a reconnection.
    """

    def __init__(self, subscribe: Callable[[Callable[[Message], None]], Subscription], queue_size: int) -> None:
        self._subscribe = subscribe
        self._inbox: Inbox[Message] = Inbox(queue_size)
        self._subscription: Subscription | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._closed = False
        self._beginning = threading.Lock()

    @property
    def dropped(self) -> int:
        """How many messages were dropped because they were not taken in time."""
        return self._inbox.dropped

    @property
    def subscription(self) -> Subscription:
        """The subscription behind it, which can be moved. There is none before the stream begins."""
        if self._subscription is None:
            raise RuntimeError("the stream has not begun: enter it with `async with`, or iterate over it")
        return self._subscription

    async def __aenter__(self) -> Self:
        if self._closed:
            raise RuntimeError("the stream has been closed: make another with client.messages(…)")
        if self._subscription is None:
            self._loop = asyncio.get_running_loop()
            try:
                await asyncio.to_thread(self._begin)
            except asyncio.CancelledError:
                self._abandon()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncGenerator[Message]:
        return self._messages()

    def _begin(self) -> None:
        """Subscribe; in a thread, which goes on when the task that waits for it is cancelled."""
        subscription = self._subscribe(self._arrived)
        with self._beginning:
            abandoned = self._closed
            self._subscription = subscription
        subscription.when_ended(self._wake)
        if abandoned:
            subscription.cancel()

    def _abandon(self) -> None:
        """Cancel without waiting, now or as soon as the broker has granted what it is being asked for."""
        with self._beginning:
            self._closed = True
            subscription = self._subscription
        if subscription is not None:
            threading.Thread(target=subscription.cancel, name="locus-abandoning", daemon=True).start()

    async def aclose(self) -> None:
        """Cancel the subscription and end the iteration."""
        self._closed = True
        self._inbox.close(discard=True)
        self._news.set()
        if self._subscription is not None and self._subscription.active:
            await asyncio.to_thread(self._subscription.cancel)

    async def _messages(self) -> AsyncGenerator[Message, None]:
        # A generator, because asyncio finalises one that is left by `break`; an object it would not.
        async with self:
            while True:
                self._news.clear()
                while (message := self._inbox.take_now()) is not None:
                    yield message
                    if self._closed:
                        return
                if self._closed:
                    return
                if not self.subscription.active:
                    if self.subscription.error is not None:
                        raise self.subscription.error
                    return
                await self._news.wait()

    def _arrived(self, message: Message) -> None:
        """Called by the network thread."""
        self._inbox.put(message)
        self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:  # the loop was closed in this very moment: nobody is left to be told
            self._inbox.close(discard=True)
