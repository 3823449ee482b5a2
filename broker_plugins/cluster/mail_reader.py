"""Reading a mailbox of the fabric in order, and what the fabric may raise."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import nats.errors

if TYPE_CHECKING:
    from nats.js import JetStreamContext

FAULTS = (nats.errors.Error, OSError, asyncio.TimeoutError)
"""What a call of the fabric may raise; every one of them means: later."""


class GapError(Exception):
    """Something is missing before a message of the mailbox: read it again from there."""


class MailReader:
    """Reads a mailbox in order."""

    def __init__(self, subscription: JetStreamContext.PullSubscription, start: int) -> None:
        self._subscription = subscription
        self._expected = start

    async def next(self) -> list[tuple[int, bytes]]:
        """The next messages with their numbers; none if there is nothing for a while.

        Raises:
            GapError: one was lost on the way.
        """
        try:
            messages = await self._subscription.fetch(64, timeout=5)
        except nats.errors.TimeoutError:
            return []
        found: list[tuple[int, bytes]] = []
        for message in messages:
            number = int(message.metadata.sequence.stream)
            if number != self._expected:
                if found:
                    break
                raise GapError(f"message {number} of the mailbox came where {self._expected} was due")
            self._expected += 1
            found.append((number, bytes(message.data)))
        return found

    async def close(self) -> None:
        """Read no more."""
        with contextlib.suppress(*FAULTS):
            await self._subscription.unsubscribe()
