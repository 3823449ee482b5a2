"""This node's mailbox: read in order, each batch taken once, also over a crash.

How far it was read is written to the store in the same group as what the messages owe to sessions, so either both are
on disk or neither is. What is safe is removed from the fabric.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from broker_plugins.cluster.fabric import RETRY_S
from broker_plugins.cluster.mail_reader import FAULTS, GapError
from broker_plugins.cluster.wire import Taken, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker_plugins.cluster.fabric import Fabric
    from broker_plugins.cluster.mail_reader import MailReader
    from broker_plugins.cluster.options import ClusterCounters
    from broker_plugins.engine.store import Store

log = logging.getLogger(__name__)

PLACE = "mailbox"


class Mailbox:
    """Takes what other nodes left for this one.

    Args:
        fabric: where it is.
        store: where to note how far it was read.
        counters: what to count in.
        take: what to do with a batch.
    """

    def __init__(
        self, fabric: Fabric, store: Store | None, counters: ClusterCounters, take: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._fabric = fabric
        self._store = store
        self._counters = counters
        self._take = take
        self._created = ""
        self._taken = 0
        self._safe = 0
        self._emptied = 0
        self._stopped = False
        for name, place in store.rows("places") if store is not None else ():
            if name == PLACE:
                self._created, _, taken = place.rpartition(" ")
                self._taken = int(taken)

    @property
    def place(self) -> tuple[str, int]:
        """When this mailbox was made, as far as this node has read it, and how far that is."""
        return self._created, self._taken

    def stop(self) -> None:
        """Take nothing more: the store is about to be closed, and the rest is for the next life of this node."""
        self._stopped = True

    async def run(self) -> None:
        """Read until it is stopped."""
        while not self._stopped:
            if self._fabric.settled:
                try:
                    await self._read()
                except GapError as gap:
                    log.info("%s", gap)
                except FAULTS as error:
                    log.debug("mailbox: %s: %s", type(error).__name__, error)
            await asyncio.sleep(RETRY_S / 5)

    async def _read(self) -> None:
        if self._created != self._fabric.mailbox_created:
            self._created, self._taken, self._safe, self._emptied = self._fabric.mailbox_created, 0, 0, 0
        reader = await self._fabric.collect(self._taken)
        try:
            while not self._stopped and self._fabric.ready and self._created == self._fabric.mailbox_created:
                await self._read_some(reader)
        finally:
            with contextlib.suppress(*FAULTS):
                await reader.close()

    async def _read_some(self, reader: MailReader) -> None:
        found = await reader.next()
        if self._stopped:
            return
        if found and found[-1][0] > self._taken:
            # Said before it is so: what others take over if this node dies now, its clients cannot have had from it.
            taken = Taken(self._fabric.options.node, self._created, found[-1][0])
            await self._fabric.publish(self._fabric.subject("taken"), encode(taken))
        for number, data in found:
            if self._stopped:
                return
            if number <= self._taken:
                self._counters.repeated += 1
                continue
            await self._take(data)
            self._taken = number
            if self._store is None:
                self._safe = number
            else:
                self._store.put("places", (PLACE,), (f"{self._created} {number}",))
                self._store.when_safe(self._is_safe, number)

    def _is_safe(self, number: int) -> None:
        self._safe = max(self._safe, number)

    async def tidy(self) -> None:
        """Remove what is safe here from the fabric."""
        if self._safe > self._emptied:
            safe = self._safe
            await self._fabric.empty(safe)
            self._emptied = safe
