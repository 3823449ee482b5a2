"""Reading a mailbox of the fabric in order, and what the fabric may raise."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import nats.errors
from nats.js import api

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

FAULTS = (nats.errors.Error, OSError, asyncio.TimeoutError)
"""What a call of the fabric may raise; every one of them means: later."""

BATCH = 64
ASK_S = 5.0
"""How long a question for mail stands."""
BEAT_S = 1.0
"""How often the fabric says that it stands, where there is no mail."""
SILENCE_S = 3.0
"""After how long without mail or beat the question is taken for lost."""
OVER = ("404", "408")
"""How the fabric says that a question is answered as far as it can be: there is nothing, or its time is over."""
BEAT = "100"


class GapError(Exception):
    """Something is missing before a message of the mailbox: read it again from there."""


class MailReader:
    """Reads a mailbox in order.

    It asks the fabric itself. `fetch` of nats-py, whose time ends a moment before the fabric's, may be given a message
    as the answer to the question before, and then keeps it for its whole time, waiting for the answer to its own.

    Args:
        client: the connection to the fabric.
        stream: the mailbox.
        start: the number of the first message that is wanted.
    """

    def __init__(self, client: Client, stream: str, start: int) -> None:
        self._client = client
        self._stream = stream
        self._start = self._expected = start
        self._subject = ""
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._due = 0
        """How many messages the fabric will still send without being asked again."""

    async def open(self) -> None:
        """Begin to read."""
        consumer = await self._client.jetstream().add_consumer(
            self._stream,
            api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self._start,
                ack_policy=api.AckPolicy.NONE,
                inactive_threshold=60.0,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{consumer.name}"
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(self._inbox)

    async def next(self) -> list[tuple[int, bytes]]:
        """The next messages with their numbers; none if there is nothing for a while.

        Raises:
            GapError: one was lost on the way.
            nats.errors.Error: the fabric does not answer, or has no such mailbox.
        """
        subscription = self._subscription
        assert subscription is not None
        if self._due <= 0:
            question = {"batch": BATCH, "expires": int(ASK_S * 1e9), "idle_heartbeat": int(BEAT_S * 1e9)}
            await self._client.publish(self._subject, json.dumps(question).encode(), self._inbox)
            self._due = BATCH
        found: list[tuple[int, bytes]] = []
        while True:
            message = await subscription.next_msg(SILENCE_S)
            status = (message.headers or {}).get("Status")
            if status is None:
                self._take(message, found)
            elif status in OVER:
                self._due = 0
            elif status != BEAT:
                raise nats.errors.Error(f"the mailbox {self._stream} answers {status}: {message.headers}")
            if not subscription.pending_msgs:
                return found

    def _take(self, message: Msg, found: list[tuple[int, bytes]]) -> None:
        self._due -= 1
        number = int(message.metadata.sequence.stream)
        if number != self._expected:
            raise GapError(f"message {number} of the mailbox came where {self._expected} was due")
        self._expected += 1
        found.append((number, bytes(message.data)))

    async def close(self) -> None:
        """Read no more."""
        if self._subscription is not None:
            with contextlib.suppress(*FAULTS):
                await self._subscription.unsubscribe()
