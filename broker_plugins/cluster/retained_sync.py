"""Which retained message is the newest, and where two nodes differ: pure bookkeeping for convergence.

Every topic has the stamp of its last retained message, or of its removal. The newest stamp wins on every node, so nodes
that have heard the same things hold the same messages, in whatever order they heard them. Removals are remembered in a
bounded number. Digests over buckets of topics let two nodes find what one of them missed without telling each other
everything.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from hashlib import blake2b
from typing import Final

from broker_plugins.cluster.wire import Stamp

BUCKETS: Final = 256
NEVER: Final = Stamp(0, "")
"""The stamp of what was retained before there was a cluster."""


def bucket_of(topic: str) -> int:
    """The bucket of a topic."""
    return zlib.crc32(topic.encode()) % BUCKETS


def _mark(payload: bytes) -> int:
    return zlib.crc32(payload) if payload else -1


class RetainedLedger:
    """Stamps of retained messages and of removals.

    Args:
        max_removals: how many removals are remembered; the oldest is forgotten first. A node that was away for longer
            than it takes to remove that many topics may bring a removed message back.
    """

    def __init__(self, max_removals: int) -> None:
        self._max_removals = max_removals
        self._stamps: dict[str, tuple[Stamp, int]] = {}
        self._removals: OrderedDict[str, Stamp] = OrderedDict()
        self.digests = [0] * BUCKETS
        self._topics: list[set[str]] = [set() for _ in range(BUCKETS)]
        self.removals_forgotten = 0

    @property
    def digest(self) -> int:
        """One number for everything."""
        return int.from_bytes(blake2b(repr(self.digests).encode(), digest_size=8).digest(), "big") >> 1

    def stamp(self, topic: str) -> Stamp | None:
        """When a topic's retained message was said or removed; None if nothing is known of it."""
        removed = self._removals.get(topic)
        if removed is not None:
            return removed
        known = self._stamps.get(topic)
        return None if known is None else known[0]

    def _known(self, topic: str) -> tuple[Stamp, int] | None:
        known = self._stamps.get(topic)
        if known is None and topic in self._removals:
            return self._removals[topic], -1
        return known

    def wants(self, topic: str, stamp: Stamp, payload: bytes) -> bool:
        """Whether a retained message, or with an empty payload a removal, is newer than what is known."""
        known = self._known(topic)
        # Two messages with the same stamp are of a time before the cluster: any rule will do that all nodes share.
        return known is None or known < (stamp, _mark(payload))

    def accept(self, topic: str, stamp: Stamp, payload: bytes) -> bool:
        """Note a retained message or a removal; False if what is known is as new or newer."""
        if not self.wants(topic, stamp, payload):
            return False
        before, mark = self._known(topic), _mark(payload)
        if before is not None:
            self._toggle(topic, *before)
            self._stamps.pop(topic, None)
            self._removals.pop(topic, None)
        self._toggle(topic, stamp, mark)
        if payload:
            self._stamps[topic] = (stamp, mark)
        else:
            self._removals[topic] = stamp
            if len(self._removals) > self._max_removals:
                oldest, when = self._removals.popitem(last=False)
                self._toggle(oldest, when, -1)
                self.removals_forgotten += 1
        return True

    def _toggle(self, topic: str, stamp: Stamp, mark: int) -> None:
        bucket = bucket_of(topic)
        raw = f"{topic}\0{stamp.time}\0{stamp.node}\0{mark}".encode()
        self.digests[bucket] ^= int.from_bytes(blake2b(raw, digest_size=8).digest(), "big") >> 1
        topics = self._topics[bucket]
        if topic in topics:
            topics.remove(topic)
        else:
            topics.add(topic)

    def topics(self, bucket: int, after: str) -> list[str]:
        """The topics of a bucket beyond one, sorted."""
        return sorted(topic for topic in self._topics[bucket] if topic > after)
