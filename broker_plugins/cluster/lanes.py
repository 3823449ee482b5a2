"""Messages on their way from this node to one other, in their order.

QoS 0 messages of one turn leave in one batch, to the node if it listens now. QoS 1 and 2 messages go to the node's
mailbox in the fabric, one batch after the other, and their publishers are acknowledged when the mailbox has them. A
batch that the fabric does not take goes to this node's own disk, with what follows it: publishers are acknowledged when
it is safe there, and the fabric gets it when it is back, recognised by its number if it had it already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, TypeVar

import nats.js.errors

from broker_plugins.cluster.fabric import RETRY_S
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.wire import Batch, encode
from broker_plugins.engine.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_plugins.cluster.fabric import Fabric
    from broker_plugins.cluster.options import ClusterCounters
    from broker_plugins.cluster.wire import Frame
    from broker_plugins.engine.store import Store

log = logging.getLogger(__name__)

Item = TypeVar("Item")
BATCH_BYTES = 262_144
FULL = 10_077  # JetStream: maximum bytes exceeded


class Sealed:
    """A batch for the mailbox."""

    __slots__ = ("data", "debts", "noted", "number", "size")

    def __init__(self, number: int, data: bytes, debts: list[Message]) -> None:
        self.number = number
        self.data = data
        self.debts = debts
        """Messages whose publishers wait for it."""
        self.noted = False
        """Whether it is in this node's own outbox."""
        self.size = len(data)


class Lane:
    """The way to one node.

    Args:
        fabric: what carries it.
        peer: the node it leads to.
        counters: what to count in.
        store: where batches wait that the fabric does not take; None keeps them in memory.
        numbers: gives each batch of this node a number that no other has.
    """

    def __init__(
        self, fabric: Fabric, peer: str, counters: ClusterCounters, store: Store | None, numbers: Iterator[int]
    ) -> None:
        self._fabric = fabric
        self.peer = peer
        self._counters = counters
        self.store = store
        self._numbers = numbers
        self._origin = fabric.options.node
        self._direct: list[Frame] = []
        self._waiting: list[tuple[Frame, Message]] = []
        self._sealed: deque[Sealed] = deque()
        self.bytes = 0
        """How much is on the way."""
        self._direct_due = asyncio.Event()
        self._mail_due = asyncio.Event()
        self._tasks = [asyncio.ensure_future(self._run_direct()), asyncio.ensure_future(self._run_mail())]

    @property
    def idle(self) -> bool:
        """Whether nothing is on the way."""
        return not (self._direct or self._waiting or self._sealed)

    def send(self, frame: Frame, message: Message) -> None:
        """Let a message go."""
        size = _frame_size(frame)
        counters = self._counters
        if self.bytes + size > self._fabric.options.max_outgoing_bytes:
            counters.dropped_outgoing += 1
            return
        if frame.qos == 0:
            if not self._fabric.ready:
                counters.dropped_away += 1
                return
            self._direct.append(frame)
            self._direct_due.set()
        elif self._fabric.ready:
            message.owe()
            self._waiting.append((frame, message))
            self._mail_due.set()
        else:
            self._note(self._seal([(frame, message)], debts=[]))
            self._mail_due.set()
        self.bytes += size
        counters.forwarded += 1

    def mark(self, frame: Frame) -> None:
        """Let a frame that is no message follow what is on its way."""
        if frame.qos == 0:
            self._direct.append(frame)
            self._direct_due.set()
        else:
            message = Message(frame.topic, frame.payload, frame.qos)
            message.owe()
            self._waiting.append((frame, message))
            self._mail_due.set()
        self.bytes += _frame_size(frame)

    async def flush(self, seconds: float) -> None:
        """Wait until the fabric has all that goes without mail, but not for long."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self._direct and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110  a turn or two
            await asyncio.sleep(0)

    def restore(self, number: int, data: bytes) -> None:
        """A batch that was in the outbox when this node started."""
        sealed = Sealed(number, data, [])
        sealed.noted = True
        self._sealed.append(sealed)
        self.bytes += sealed.size
        self._mail_due.set()

    async def drain(self, seconds: float) -> None:
        """Wait until nothing is on the way, but not for long."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.idle and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110  at shutdown only
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Send no more."""
        for task in self._tasks:
            task.cancel()

    def abandon(self) -> None:
        """The node is gone for good: nobody waits for it any more."""
        self.close()
        for _, message in self._waiting:
            message.settle()
        for sealed in self._sealed:
            self._settle(sealed)

    # QoS 0.

    async def _run_direct(self) -> None:
        while True:
            await self._direct_due.wait()
            self._direct_due.clear()
            frames, self._direct = self._direct, []
            while frames:
                some = _head(frames, [frame.payload for frame in frames])
                frames = frames[len(some) :]
                self.bytes -= sum(map(_frame_size, some))
                data = encode(Batch(self._origin, some))
                try:
                    await self._fabric.publish(self._fabric.subject("node", self.peer), data)
                    self._counters.forwarded_bytes += len(data)
                except FAULTS as error:
                    self._counters.dropped_away += len(some)
                    log.debug("to %s: %s", self.peer, error)

    # QoS 1 and 2.

    def _seal(self, entries: list[tuple[Frame, Message]], debts: list[Message]) -> Sealed:
        data = encode(Batch(self._origin, [frame for frame, _ in entries]))
        sealed = Sealed(next(self._numbers), data, debts)
        sealed.size = sum(_frame_size(frame) for frame, _ in entries)
        self._sealed.append(sealed)
        return sealed

    def _seal_waiting(self) -> None:
        entries = _head(self._waiting, [frame.payload for frame, _ in self._waiting])
        del self._waiting[: len(entries)]
        self._seal(entries, [message for _, message in entries])

    def _note(self, sealed: Sealed) -> None:
        """Keep a batch on this node's own disk; who waits for it need not wait any longer then."""
        if not sealed.noted and self.store is not None:
            self.store.put("outbox", (sealed.number,), (self.peer, sealed.data))
        sealed.noted = True
        if sealed.debts:
            if self.store is None:
                self._settle(sealed)
            else:
                self.store.when_safe(self._settle, sealed)

    def _settle(self, sealed: Sealed) -> None:
        debts, sealed.debts = sealed.debts, []
        for message in debts:
            message.settle()

    async def _run_mail(self) -> None:
        while True:
            if not self._sealed and self._waiting:
                self._seal_waiting()
            if not self._sealed:
                self._mail_due.clear()
                await self._mail_due.wait()
                continue
            head = self._sealed[0]
            if await self._post(head):
                self._sealed.popleft()
                self.bytes -= head.size
                if head.noted and self.store is not None:
                    self.store.delete("outbox", (head.number,))
                self._settle(head)
                continue
            while self._waiting:
                self._seal_waiting()
            for sealed in self._sealed:
                self._note(sealed)
            await asyncio.sleep(RETRY_S)

    async def _post(self, sealed: Sealed) -> bool:
        """Put a batch into the mailbox; True if nothing more is to be done about it."""
        fabric = self._fabric
        if fabric.ready and len(sealed.data) + 1024 > fabric.max_payload:
            self._drop(f"{len(sealed.data)} bytes are more than the fabric carries ({fabric.max_payload})")
            return True
        try:
            await fabric.post(self.peer, sealed.data, f"{self._origin}-{sealed.number}")
        except nats.js.errors.APIError as error:
            if error.err_code == FULL:
                self._drop("its mailbox is full (max_mailbox_bytes)")
                return True
            return False
        except FAULTS:
            return False
        self._counters.forwarded_bytes += len(sealed.data)
        return True

    def _drop(self, why: str) -> None:
        self._counters.dropped_outgoing += 1
        log.warning("messages for node %s are dropped: %s", self.peer, why)


def _frame_size(frame: Frame) -> int:
    return len(frame.payload) + len(frame.topic) + 64


def _head(items: list[Item], payloads: list[bytes]) -> list[Item]:
    """As many items from the beginning as fit a batch, one at least."""
    size = 0
    for count, payload in enumerate(payloads):
        size += len(payload) + 128
        if size > BATCH_BYTES and count:
            return items[:count]
    return items[:]
