"""One application message on its way through the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_plugins.engine.codec import publish_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_plugins.engine.session import Session
    from broker_plugins.grammar import Clauses


class Message:
    """A message as it is published, stored and delivered.

    Args:
        topic: where it was published, without message clauses.
        payload: what was published.
        qos: the QoS it was published with.
        retain: whether it was published to be retained.
        sender: the session that published it; None for the broker itself.
        volatile: whether its retained copy is of no use after a restart, and so is not written to disk.
    """

    __slots__ = (
        "clauses",
        "debts",
        "heads",
        "payload",
        "properties",
        "qos",
        "retain",
        "sender",
        "sequence",
        "stored_id",
        "stored_refs",
        "taken_ns",
        "topic",
        "volatile",
        "weight",
        "when_settled",
        "whole",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        sender: Session | None = None,
        volatile: bool = False,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.sender = sender
        self.volatile = volatile
        self.sequence = 0
        """The engine's count of messages when it took this one: larger is newer."""
        self.weight = 0.0
        """For how many messages it stands in the sample that plugins hear of; 0 while it is not in the sample."""
        self.taken_ns = 0
        """When a message of the sample was taken, in nanoseconds since 1970."""
        self.clauses: Clauses | None = None
        """What its publisher said of it in the last level of its topic."""
        self.properties: dict[str, Any] | None = None
        """What plugins know of the message: its place, its clauses; None while nobody does."""
        self.stored_id = 0
        """The number of the message in the store, 0 while it is not there."""
        self.stored_refs = 0
        """How many deliveries in the store still need it."""
        self.debts = 0
        """How many things its acknowledgement waits for beside the store (see `owe`)."""
        self.when_settled: Callable[[], None] | None = None
        self.heads: list[bytes | None] = [None, None, None]
        self.whole: bytes | None = None

    def owe(self) -> None:
        """Let the acknowledgement of this message wait until `settle` was called as often as this.

        For plugins, while `Engine.publish` runs: somebody else has to take the message over before its publisher may
        forget it.
        """
        self.debts += 1

    def settle(self) -> None:
        """What the acknowledgement waited for has come."""
        self.debts -= 1
        if not self.debts and self.when_settled is not None:
            self.when_settled()

    def head(self, qos: int) -> bytes:
        """A live PUBLISH of this message at a QoS up to its packet identifier, made once."""
        head = self.heads[qos]
        if head is None:
            head = self.heads[qos] = publish_head(self.topic.encode(), len(self.payload), qos, retain=False)
        return head

    def packet0(self) -> bytes:
        """The whole PUBLISH at QoS 0, made once."""
        packet = self.whole
        if packet is None:
            packet = self.whole = self.head(0) + self.payload
        return packet

    def head_for(self, qos: int, retain: bool, dup: bool) -> bytes:
        """The same for a delivery that is retained or sent again."""
        if retain or dup:
            return publish_head(self.topic.encode(), len(self.payload), qos, retain, dup)
        return self.head(qos)

    def keep_place(self) -> None:
        """Put the place its clauses name where the store keeps it: a message outlives its clauses."""
        clauses = self.clauses
        if clauses is None or (clauses.at is None and clauses.area is None):
            return
        self.properties = dict(self.properties or {})
        if clauses.at is not None:
            self.properties["at"] = [clauses.at.lon, clauses.at.lat]
        if clauses.area is not None:
            area = clauses.area
            self.properties["area"] = [area.west, area.south, area.east, area.north]

    @property
    def size(self) -> int:
        """About how many bytes the message holds in a queue."""
        return len(self.payload) + len(self.topic) + 200

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.payload)} bytes, qos={self.qos}, retain={self.retain})"


def message_of(packet: bytes) -> Message:
    """The message in a QoS 0 PUBLISH that was passed on as it came; nobody knows any more who sent it."""
    at = 1
    while packet[at] & 0x80:
        at += 1
    start = at + 3
    end = start + int.from_bytes(packet[at + 1 : start], "big")
    return Message(packet[start:end].decode(), packet[end:])
