"""Messages that nodes pass on for each other: the plan of its way travels with a message.

QoS 0 only: a message of QoS 1 or 2 is acknowledged when every node that must deliver it has it in its mailbox, and its
publisher's node sees to that itself. A node that is gone is noticed by the fabric at once: whoever was to be reached
through it is then sent the message straight.
"""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.cluster.content_trees import nested
from broker_plugins.cluster.in_order import InOrder
from broker_plugins.cluster.lanes import BATCH_BYTES
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.taken import Taken
from broker_plugins.cluster.wire import Hop, Relay, Relayed, encode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from nats.aio.msg import Msg

    from broker_plugins.cluster.forwarding import Forwarding
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.wire import Frame
    from broker_plugins.engine import Message

log = logging.getLogger(__name__)

MOST_UNDERWAY: Final = 1_024
"""Batches that are remembered in case the node they went to turns out to be gone."""


class Relaying(Part):
    """Sends messages along their plans, and passes on those of the others.

    Args:
        node: this node.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._places: dict[str, int] = {}
        self._epochs: dict[str, int] = {}
        self._outgoing: dict[str, list[Relayed]] = {}
        self._bytes = 0
        """How much is on its way to the fabric."""
        self._underway: dict[int, list[Relayed]] = {}
        self._batches = itertools.count(1)
        self._taken = Taken()
        self._order: InOrder[tuple[str, Frame]] = InOrder(node.options.overlay_patience_s)
        self._ready: list[tuple[str, Frame]] = []
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, forwarding: Forwarding) -> None:
        """Say how messages are published here."""
        self._forwarding = forwarding

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """What other nodes send here, to be delivered and passed on."""
        return {f"relay.{self.node.name}": (Relay, self._on_relay)}

    def came(self, node: str) -> None:
        """Its messages are numbered anew."""
        self._places.pop(node, None)

    def forgotten(self, node: str) -> None:
        """Nobody waits for its messages any more."""
        self._places.pop(node, None)
        self._epochs.pop(node, None)
        self._publish_later(self._order.forget(node))

    # Out.

    def send(self, message: Message, hops: Iterable[tuple[str, str]]) -> None:
        """Let a message go its way."""
        frame = self._forwarding.frame(message)
        hops = list(hops)
        for parent, child in hops if message.weight else ():
            if parent == self.node.name:
                self._forwarding.routes.sent(message, child, "content")
        self._send(self.node.name, frame, self._hops(nested(hops, self.node.name)))

    def _hops(self, below: dict[str, Any]) -> list[Hop]:
        return [Hop(node, self._epoch(node), self._place(node), self._hops(further)) for node, further in below.items()]

    def _place(self, node: str) -> int:
        place = self._places[node] = self._places.get(node, 0) + 1
        return place

    def _epoch(self, node: str) -> int:
        if node not in self._places:
            self._epochs[node] = max(time.time_ns() // 1_000, self._epochs.get(node, 0) + 1)
        return self._epochs[node]

    def _send(self, origin: str, frame: Frame, hops: Iterable[Hop]) -> None:
        counters = self.node.counters
        for hop in hops:
            size = _size(frame)
            if self._bytes + size > self.node.options.max_outgoing_bytes:
                counters.dropped_outgoing += 1
                continue
            self._bytes += size
            if not self._outgoing:
                self.node.engine.loop.call_soon(self._flush)
            self._outgoing.setdefault(hop.node, []).append(Relayed(origin, hop.epoch, hop.place, frame, hop.below))
            counters.forwarded += 1
            if origin != self.node.name:
                counters.relayed += 1

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, {}
        for node, items in outgoing.items():
            size = 0
            batch: list[Relayed] = []
            for item in items:
                size += _size(item.frame)
                if batch and size > BATCH_BYTES:
                    self.node.work(self._publish_batch(node, batch))
                    size, batch = 0, []
                batch.append(item)
            self.node.work(self._publish_batch(node, batch))

    async def _publish_batch(self, node: str, items: list[Relayed]) -> None:
        fabric, counters = self.node.fabric, self.node.counters
        if not fabric.ready:
            counters.dropped_away += len(items)
            self._bytes -= sum(_size(item.frame) for item in items)
            return
        number = next(self._batches)
        while len(self._underway) >= MOST_UNDERWAY:
            del self._underway[next(iter(self._underway))]
        self._underway[number] = [item for item in items if item.below]
        data = encode(Relay(items))
        try:
            reply = fabric.subject("unheard", self.node.name, str(number))
            await fabric.publish(fabric.subject("relay", node), data, reply)
            counters.forwarded_bytes += len(data)
        except FAULTS as error:
            counters.dropped_away += len(items)
            log.debug("to %s: %s", node, error)
        finally:
            self._bytes -= sum(_size(item.frame) for item in items)

    async def on_unheard(self, msg: Msg) -> None:
        """A node was gone when something was sent to it: pass on what it was to pass on."""
        items = self._underway.pop(int(msg.subject.rpartition(".")[2]), ())
        for item in items:
            self.node.counters.relays_gone += 1
            self._send(item.origin, item.frame, item.below)

    # In.

    def _on_relay(self, relay: Relay) -> None:
        now = time.monotonic()
        for item in relay.items:
            self._send(item.origin, item.frame, item.below)
            if self._taken.add(item.origin, item.frame.number):
                came = (item.origin, item.frame)
                self._publish_later(self._order.take(item.origin, item.epoch, item.place, came, now))
            else:
                self.node.counters.repeated += 1
        self._wait()

    def _wait(self) -> None:
        if self._timer is None and self._order.waits:
            self._timer = self.node.engine.loop.call_later(self.node.options.overlay_patience_s / 2, self._look)

    def _look(self) -> None:
        self._timer = None
        self._publish_later(self._order.overdue(time.monotonic()))
        self.node.counters.relays_late = self._order.late
        self._wait()

    def _publish_later(self, ready: list[tuple[str, Frame]]) -> None:
        self._ready += ready
        if self._ready and not self._busy:
            self._busy = True
            self.node.work(self._publish_ready())

    async def _publish_ready(self) -> None:
        try:
            while self._ready:
                some, self._ready = self._ready, []
                for origin, frame in some:
                    await self._forwarding.take_relayed(origin, frame)
        finally:
            self._busy = False


def _size(frame: Frame) -> int:
    return len(frame.payload) + len(frame.topic) + 256
