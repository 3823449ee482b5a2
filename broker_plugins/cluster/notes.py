"""What the fabric remembers of persistent sessions, so that they go on elsewhere when their node dies.

A note names a session's node and its subscriptions. It is written when these change, and a SUBACK waits for it. Notes
that nobody writes again disappear after twice `away_s`, so sessions are noted again from time to time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from typing import TYPE_CHECKING

import nats.js.errors

from broker_plugins.cluster.leaving import geo_of
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.wire import SessionNote, WireError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_plugins.cluster.node import Node
    from broker_plugins.engine import Subscription
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

AT_ONCE = 64
MAX_NOTE_BYTES = 262_144
WRONG_LAST_SEQUENCE = 10_071  # JetStream's own number for it


def key_of(client_id: str) -> str:
    """The key under which a session is noted: any text may be the name of a client."""
    return hashlib.sha256(client_id.encode()).hexdigest()[:40]


class Notes(Part):
    """Notes of this node's persistent sessions.

    Args:
        node: this node.
        leaves: whether a session is on its way to another node, by its client.
    """

    def __init__(self, node: Node, leaves: Callable[[str], bool]) -> None:
        super().__init__(node)
        self._leaves = leaves
        self._dirty: dict[str, None] = {}
        self._revisions: dict[str, tuple[int, float]] = {}
        """The notes this node has written, by client: which revision, and when."""
        self._writing = False
        self._joined = False
        """Whether this node has learned, since it reached the fabric, which of its sessions are elsewhere. A note that
        it wrote before would take the place of another node's, and the end of the session here would remove it."""
        self._waiting: list[asyncio.Future[None]] = []

    # When something changes.

    def subscribed(self, subscription: Subscription) -> None:
        """Note one more subscription."""
        self._change(subscription.session)

    def unsubscribed(self, subscription: Subscription) -> None:
        """Note one fewer."""
        self._change(subscription.session)

    def ended(self, session: Session) -> None:
        """A session is not here any more."""
        self._change(session)

    def _change(self, session: Session) -> None:
        if session.persistent:
            self._dirty[session.client_id] = None
            if not self._writing and self.node.fabric.settled:
                self._begin()

    async def joined(self) -> None:
        """Write what could not be written before."""
        self._joined = True
        self._begin()

    async def beat(self) -> None:
        """Write what failed, and again what is old."""
        old = time.monotonic() - self.node.options.away_s / 2
        for client_id in [each for each, (_, written) in self._revisions.items() if written < old][:AT_ONCE]:
            self._dirty[client_id] = None
        if self._dirty and not self._writing and self.node.fabric.settled:
            self._begin()

    def written(self, seconds: float) -> asyncio.Future[None] | None:
        """Done when all that has changed so far is noted, or when the time is up; None if it is noted."""
        if not self._dirty and not self._writing:
            return None
        if not self.node.fabric.settled:
            return None
        done: asyncio.Future[None] = self.node.engine.loop.create_future()
        self._waiting.append(done)
        self.node.engine.loop.call_later(seconds, _give_up, done)
        return done

    # Writing.

    def _begin(self) -> None:
        self._writing = True
        self.node.work(self._write())

    async def _write(self) -> None:
        try:
            await asyncio.sleep(0)  # what this turn changes is written at once
            while self._dirty and self.node.fabric.ready and (self._joined or self.node.fabric.settled):
                some = list(self._dirty)[:AT_ONCE]
                for client_id in some:
                    del self._dirty[client_id]
                await asyncio.gather(*(self._write_one(client_id) for client_id in some))
                if not self._dirty:
                    waiting, self._waiting = self._waiting, []
                    for done in waiting:
                        _give_up(done)
        finally:
            self._writing = self._joined = False

    async def _write_one(self, client_id: str) -> None:
        bucket = self.node.fabric.notes
        assert bucket is not None
        key, known = key_of(client_id), self._revisions.get(client_id)
        session = self.node.engine.sessions.get(client_id)
        try:
            if session is None or not session.persistent or not session.subscriptions:
                if self._revisions.pop(client_id, None) is not None and known is not None:
                    await bucket.delete(key, last=known[0])
                return
            if self._leaves(client_id):
                return
            note = encode(self._note(session), squeeze=True)
            if len(note) > MAX_NOTE_BYTES:
                self.node.counters.notes_too_large += 1
                return
            revision = await (bucket.put(key, note) if known is None else bucket.update(key, note, last=known[0]))
            self._revisions[client_id] = revision, time.monotonic()
            self.node.counters.notes_written += 1
        except FAULTS as error:
            if not _was_changed(error):
                log.debug("the note of client %s: %s", client_id, error)
                self._dirty[client_id] = None
                await asyncio.sleep(0.05)
            elif self._revisions.pop(client_id, None) is not None and client_id in self.node.engine.sessions:
                self._dirty[client_id] = None  # it was elsewhere since, and has come back

    def _note(self, session: Session) -> SessionNote:
        ordered = sorted(session.subscriptions.values(), key=lambda each: each.order)
        geo = geo_of(self.node.engine)
        return SessionNote(
            session.client_id,
            self.node.name,
            [(each.text, each.qos) for each in ordered],
            [each.order for each in ordered],
            None if geo is None else geo.position_of(session),
        )

    # Reading.

    async def read(self, client_id: str) -> SessionNote | None:
        """What is noted of a session."""
        bucket = self.node.fabric.notes
        assert bucket is not None
        try:
            entry = await bucket.get(key_of(client_id))
            note = decode(entry.value or b"", SessionNote)
        except nats.js.errors.KeyNotFoundError:
            return None
        except WireError as error:
            log.warning("the note of client %s: %s", client_id, error)
            return None
        return note if note.client_id == client_id else None


def _was_changed(error: Exception) -> bool:
    """Whether somebody else wrote a note since; anything else, such as no room for it, passes."""
    if isinstance(error, nats.js.errors.KeyWrongLastSequenceError):
        return True
    return isinstance(error, nats.js.errors.BadRequestError) and error.err_code == WRONG_LAST_SEQUENCE


def _give_up(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
