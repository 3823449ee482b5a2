"""What is delivered to a session while it moves between brokers: kept in its order until it is known where it goes.

A session that arrives is subscribed before the broker it comes from lets go of it, so for a moment messages come to
both. What comes here is held, QoS 0 too, and what the other broker has delivered is taken out before the client gets
the rest. A session that leaves is held from the moment on from which another broker delivers to its client.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_plugins.engine.session import Outgoing, Session


MOST_IDS: Final = 65_535


class Holding:
    """The part of a session that holds messages."""

    __slots__ = ("held",)

    held: list[Outgoing] | None
    """What comes while the session moves between brokers; None while it does not."""

    def hold(self) -> None:
        """From now on keep all that is delivered, and send nothing."""
        session = cast("Session", self)
        if self.held is None:
            self.held = []
            session.out = None
            for subscription in session.subscriptions.values():
                session.engine.forget_routes(subscription.inner)  # none of them is plain any more

    def keep(self, entry: Outgoing) -> bool:
        """Hold a message; False if there is no room for it."""
        session = cast("Session", self)
        assert self.held is not None
        size = entry.message.size
        if not session.has_room(size) or len(self.held) >= session.engine.options.max_queued_messages:
            session.overflow(entry.message)
            return False
        self.held.append(entry)
        session.account(size)
        if entry.qos and session.persistent and session.engine.store is not None:
            session.record(entry)
        return True

    def discard(self, unwanted: Callable[[Outgoing], bool]) -> int:
        """Take held messages out that need not be delivered any more; how many."""
        session = cast("Session", self)
        kept: list[Outgoing] = []
        before = self.held or ()
        for entry in before:
            if unwanted(entry):
                session.account(-entry.message.size)
                if entry.position:
                    session.forget(entry)
            else:
                kept.append(entry)
        self.held = kept
        return len(before) - len(kept)

    def put_first(self, entries: Iterable[Outgoing]) -> None:
        """Hold messages that are older than all the others."""
        session = cast("Session", self)
        assert self.held is not None
        older = list(entries)
        for entry in older:
            session.account(entry.message.size)
            if entry.qos and session.persistent and session.engine.store is not None:
                session.record(entry)
        self.held = older + self.held

    def number_from(self, floor: int) -> None:
        """Give packet identifiers above a number only: those below may be in use elsewhere."""
        session = cast("Session", self)
        if not session.inflight and floor + session.engine.options.max_inflight <= MOST_IDS:
            session.top_id = session.id_floor = floor
            session.free_ids = None

    def take_up(self, entry: Outgoing) -> bool:
        """Go on with a delivery that another broker began; False if its packet identifier is in use here."""
        session = cast("Session", self)
        packet_id = entry.packet_id
        if not packet_id or packet_id in session.inflight:
            return False
        session.inflight[packet_id] = entry
        if session.free_ids and packet_id in session.free_ids:
            session.free_ids.remove(packet_id)
        if session.persistent and session.engine.store is not None:
            session.record(entry)
        if session.connection is not None and self.held is None:
            session.send_again(entry)
        return True

    def give(self, entry: Outgoing) -> None:
        """A delivery is another broker's from now on."""
        session = cast("Session", self)
        if session.inflight.get(entry.packet_id) is entry:
            del session.inflight[entry.packet_id]
        elif session.queue and entry in session.queue:
            session.queue.remove(entry)
            session.account(-entry.message.size)
        if entry.position:
            session.forget(entry)

    def release(self) -> None:
        """Hold no more: what was held waits its turn behind what waited before; QoS 0 only for who is connected."""
        session = cast("Session", self)
        held, self.held = self.held, None
        waiting: deque[Outgoing] = deque()
        for entry in held or ():
            if entry.qos:
                waiting.append(entry)
            else:
                session.account(-entry.message.size)
                if session.connection is not None:
                    session.wait_qos0(entry.packet0())
        if waiting:
            session.queue = (session.queue or deque()) + waiting
        for subscription in session.subscriptions.values():
            session.engine.forget_routes(subscription.inner)
