"""Retained messages on every node: stamped where they are published, compared where they arrive, repaired by asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker_plugins.cluster.retained_sync import BUCKETS, NEVER, RetainedLedger
from broker_plugins.cluster.wire import AskBuckets, AskRetained, Buckets, Frame, Retained, Stamp, decode, encode
from broker_plugins.engine import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_plugins.cluster.fabric import Fabric
    from broker_plugins.cluster.hybrid_clock import HybridClock
    from broker_plugins.cluster.options import ClusterCounters
    from broker_plugins.engine.engine import Engine

STAMP = "stamp"
FROM = "node"
NUMBER = "number"
ANSWER_BYTES = 524_288


def is_shared(message: Message) -> bool:
    """Whether a retained message is everybody's: what a node says of itself is not."""
    return not message.volatile and not message.topic.startswith("$")


def stamp_of(message: Message) -> Stamp | None:
    """When a retained message was said, if that is known."""
    stamp = (message.properties or {}).get(STAMP)
    return None if stamp is None else Stamp(int(stamp[0]), str(stamp[1]))


class Convergence:
    """The retained messages of this node, compared with those of the others.

    Args:
        engine: where they are.
        node: the name of this node.
        clock: stamps what is published here.
        max_removals: how many removals are remembered.
        counters: what to count in.
        ordered: whether messages of a topic are delivered in an order; a repair then only keeps what was missed.
    """

    def __init__(
        self,
        engine: Engine,
        node: str,
        clock: HybridClock,
        max_removals: int,
        counters: ClusterCounters,
        ordered: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._engine = engine
        self._node = node
        self._clock = clock
        self._counters = counters
        self._ordered = ordered
        self.ledger = RetainedLedger(max_removals)

    def load(self) -> None:
        """Note what this node had retained when it started."""
        for message in self._engine.retained:
            if is_shared(message):
                stamp = stamp_of(message) or NEVER
                self._clock.observe(stamp.time)
                self.ledger.accept(message.topic, stamp, message.payload)

    def keep(self, message: Message) -> bool:
        """Stamp a message that is to be retained; False if this node has a newer one."""
        stamp = stamp_of(message)
        if stamp is None:
            stamp = Stamp(self._clock.now(), self._node)
            message.properties = {**(message.properties or {}), STAMP: [stamp.time, stamp.node]}
        else:
            self._clock.observe(stamp.time)
        return self.ledger.accept(message.topic, stamp, message.payload)

    # What other nodes ask.

    def buckets(self) -> Buckets:
        """The digests of all buckets."""
        return Buckets(self.ledger.digests)

    def answer(self, question: AskRetained) -> Retained:
        """Retained messages and removals of a bucket, as many as fit an answer."""
        frames: list[Frame] = []
        size = 0
        for topic in self.ledger.topics(question.bucket % BUCKETS, question.after):
            frame = self._frame(topic)
            if frame is None:
                continue
            size += len(frame.payload) + len(topic) + 100
            if frames and size > ANSWER_BYTES:
                return Retained(frames, more=True)
            frames.append(frame)
        return Retained(frames, more=False)

    def _frame(self, topic: str) -> Frame | None:
        stamp = self.ledger.stamp(topic)
        entry = self._engine.retained.get(topic)
        if stamp is None:
            return None
        if entry is None:
            return Frame(topic, b"", 0, retain=True, stamp=stamp)
        message = entry.message
        return Frame(topic, message.payload, message.qos, True, stamp=stamp, properties=kept_properties(message))

    # What this node asks.

    async def repair(self, fabric: Fabric, peer: str) -> None:
        """Ask a node for what this one has missed."""
        theirs = decode(await fabric.ask(peer, encode(AskBuckets())), Buckets).digests
        for bucket, digest in enumerate(theirs):
            if bucket < BUCKETS and digest != self.ledger.digests[bucket]:
                await self._repair_bucket(fabric, peer, bucket)

    async def _repair_bucket(self, fabric: Fabric, peer: str, bucket: int) -> None:
        after = ""
        while True:
            answer = decode(await fabric.ask(peer, encode(AskRetained(bucket, after))), Retained)
            for frame in answer.frames:
                if frame.stamp is not None and self.ledger.wants(frame.topic, frame.stamp, frame.payload):
                    missed = message_of(frame, peer)
                    if self._ordered(frame.topic):
                        self._engine.retain(missed)
                    else:
                        self._engine.publish(missed)
                    self._counters.retained_repairs += 1
            if not answer.more or not answer.frames:
                return
            after = answer.frames[-1].topic


def kept_properties(message: Message) -> bytes:
    """What plugins keep with a retained message, but for what the cluster adds itself."""
    kept = {
        name: value for name, value in (message.properties or {}).items() if name not in (STAMP, FROM, NUMBER, "groups")
    }
    return msgspec.json.encode(kept) if kept else b""


def message_of(frame: Frame, origin: str) -> Message:
    """The message in a frame from another node."""
    message = Message(frame.topic, frame.payload, frame.qos, frame.retain)
    message.properties = {FROM: origin, NUMBER: frame.number}
    if frame.properties:
        message.properties |= msgspec.json.decode(frame.properties)
    if frame.stamp is not None:
        message.properties[STAMP] = [frame.stamp.time, frame.stamp.node]
    return message
