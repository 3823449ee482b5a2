"""Sessions of a node that is away go on here, with what is known of them; what the node kept follows when it is back.

The fabric knows a session's subscriptions (`notes`). The mailbox of the node that is away has the messages it had not
taken: those after the number it said last, just before it took them. What it had taken is on its disk. When it is back,
it learns before it reads its mail which of its sessions are elsewhere, and sends them what it had taken, or had said to
take and did not come to.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any

import nats.js.errors

from broker_plugins.cluster.convergence import message_of
from broker_plugins.cluster.leaving import chunk, entries_of
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.notes import key_of
from broker_plugins.cluster.wire import (
    AskInherit,
    AskMoving,
    Batch,
    Inherited,
    MovedSession,
    Taken,
    WireError,
    decode,
    encode,
)
from broker_plugins.engine.message import Message
from broker_plugins.engine.session import Outgoing
from broker_plugins.engine.work import drive
from broker_plugins.grammar import GrammarError, parse_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    import msgspec

    from broker_plugins.cluster.mailbox import Mailbox
    from broker_plugins.cluster.moving import Moving
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.notes import Notes
    from broker_plugins.cluster.strays import Strays
    from broker_plugins.cluster.wire import SessionNote
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

PEEK_S = 5.0
READ_S = 5.0
"""How long a session that goes on here waits for this node to read its mail."""
MOST_RECEIVED = 4096
TRIES = 3
LOOK_BEATS = 5
"""How often a node looks whether sessions were taken over that it has still."""


class Inheriting(Part):
    """Takes sessions over from nodes that are away, and gives up those that were taken over.

    Args:
        node: this node.
        moving: sessions that come and go.
        notes: what is remembered of them.
    """

    def __init__(self, node: Node, moving: Moving, notes: Notes) -> None:
        super().__init__(node)
        self._moving = moving
        self._notes = notes
        self._taken: dict[str, Taken] = {}
        self._received: dict[int, None] = {}
        """What was sent after sessions that went on here."""
        self._giving_up = asyncio.Lock()
        self._caught_up: set[str] = set()
        """Clients whose sessions have the mail that this node had said to take."""
        self._sending: dict[str, tuple[AskInherit, list[Outgoing]]] = {}
        """What is sent after a session that goes on elsewhere, the same until it has come."""
        self._beats = 0
        self.mailbox: Mailbox
        self.strays: Strays
        moving.inherit = self.inherit
        moving.disown = self.disown
        moving.give_up = self.give_up

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """How far nodes have read their mail."""
        return {"taken": (Taken, self._on_taken)}

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], Any]]:
        """What a node that is back had taken for a session."""
        return {AskInherit: self._receive}

    def _on_taken(self, taken: Taken) -> None:
        if taken.node != self.node.name:
            self._taken[taken.node] = taken

    # A client of a node that is away connects here.

    async def inherit(self, client_id: str, silent: set[str]) -> None:
        """Let a session go on here whose node is away or does not answer."""
        note = await self._noted_away(client_id, silent)
        if note is None:
            return
        await self._read_up()
        if client_id in self.node.engine.sessions:
            return
        moving, engine = self._moving, self.node.engine
        log.info("client %s: node %s is away, its session goes on here", client_id, note.node)
        session = moving.begin_held(client_id)
        self.strays.watch(client_id)
        # The node that is away goes on, when it is back, with deliveries under the identifiers it gave them.
        session.number_from(secrets.randbelow(60_000) + 1)
        told = MovedSession(found=True, subscriptions=note.subscriptions, orders=note.orders, place=note.place)
        moving.equip(session, told)
        taken = self._taken.get(note.node)
        created, last = await self._mailbox_of(note.node)
        after = taken.number if taken is not None and taken.created == created else 0
        await self._put(note.node, Inherited(client_id, created=created, after=after))
        await moving.asking.known()
        noted = self._notes.written(self.node.options.granting_s)
        if noted is not None:
            await noted
        self.node.counters.sessions_inherited += 1
        try:
            created, last = await self._mailbox_of(note.node)
            mail = await self.node.fabric.peek(note.node, after, last, PEEK_S) if created else []
        except FAULTS as error:
            log.warning("client %s: the mail of node %s waits for it: %s", client_id, note.node, error)
            await self._put(note.node, Inherited(client_id, created=created, after=last))
            return
        if engine.sessions.get(client_id) is session and session.held is not None:
            self._deliver(session, mail)

    async def _read_up(self) -> None:
        """Take first what is in this node's own mailbox: of that, the session has had on its node what it wants."""
        created, last = await self.node.fabric.mailbox_state(self.node.name)
        deadline = time.monotonic() + READ_S
        while time.monotonic() < deadline:
            if self._taken_of(created) >= last:
                return
            await asyncio.sleep(0.01)

    async def _noted_away(self, client_id: str, silent: set[str]) -> SessionNote | None:
        members, name = self.node.members, self.node.name
        if not silent and all(members.is_alive(node) for node in members.known()):
            return None  # nobody is missing
        try:
            note = await self._notes.read(client_id)
        except FAULTS as error:
            log.info("client %s: its note is not read: %s", client_id, error)
            return None
        if note is None or (note.node != name and members.is_alive(note.node) and note.node not in silent):
            return None
        return note

    async def _mailbox_of(self, node: str) -> tuple[str, int]:
        return ("", 0) if node == self.node.name else await self.node.fabric.mailbox_state(node)

    def _deliver(self, session: Session, mail: list[bytes]) -> None:
        """Give a session what it wants of the mail, before what came since; what came both ways once."""
        found: list[Outgoing] = []
        known: set[tuple[str, int]] = set()
        for message, origin, number in self._messages(mail):
            qos = self.node.engine.wanted_by(session, message)
            if qos:
                found.append(Outgoing(message, qos, False, None))
                known.add((origin, number))
                self.strays.give(session.client_id, origin, number)
        session.discard(lambda entry: self._moving.origin(entry.message) in known)
        session.put_first(found)
        self.node.counters.inherited_mail += len(found)

    def _messages(self, mail: list[bytes]) -> Iterator[tuple[Message, str, int]]:
        for data in mail:
            try:
                batch = decode(data, Batch)
            except WireError as error:
                self.node.counters.unreadable += 1
                log.warning("a batch in another mailbox is left out: %s", error)
                continue
            for frame in batch.frames:
                if not frame.topic or frame.groups:
                    continue  # a mark, or for whoever of a group is there when that node is back
                message = message_of(frame, batch.origin)
                message.retain = False
                if frame.clauses:
                    try:
                        message.clauses = parse_topic(frame.clauses, self.node.engine.space)[1]
                    except GrammarError as error:
                        log.warning("clauses from node %s cannot be read: %s", batch.origin, error)
                yield message, batch.origin, frame.number

    async def disown(self, client_id: str, silent: set[str]) -> None:
        """A client begins anew here: what a node that is away has of it is to end."""
        note = await self._noted_away(client_id, silent)
        if note is not None and note.node != self.node.name:
            await self._put(note.node, Inherited(client_id, ended=True))

    async def _put(self, node: str, inherited: Inherited) -> None:
        bucket = self.node.fabric.inherited
        assert bucket is not None
        for tries in range(TRIES):
            try:
                await bucket.put(f"{node}.{key_of(inherited.client_id)}", encode(inherited))
            except FAULTS:
                if tries + 1 == TRIES:
                    raise
            else:
                return

    def _receive(self, question: AskInherit) -> Awaitable[MovedSession] | MovedSession:
        """Take what is sent after a session; the node that sends it forgets it when this is answered."""
        client_id = question.client_id
        session = self.node.engine.sessions.get(client_id)
        if question.token in self._received:
            return self._taken_over()  # it asks again: perhaps the disk did not take it so far
        if session is None or session.held is not None or self._moving.leaves(client_id):
            return MovedSession(found=False)  # not here, or on its way: to be asked again
        if len(self._received) >= MOST_RECEIVED:
            self._received.pop(next(iter(self._received)))
        self._received[question.token] = None
        for each in question.owed:
            if each.origin:
                if self.strays.had(client_id, each.origin, each.number):
                    continue
                self.strays.give(client_id, each.origin, each.number)
            message = Message(each.topic, each.payload, each.message_qos)
            entry = Outgoing(message, each.qos, each.retain, None)
            entry.packet_id, entry.state = each.packet_id, each.state
            if not session.take_up(entry):
                session.deliver(message, each.qos, each.retain)
        return self._taken_over()

    async def _taken_over(self) -> MovedSession:
        """Said when it is on disk: before that, the only copy that survives a crash is with the node that asks."""
        store = self.node.engine.store
        if store is not None and store.busy:
            safe: asyncio.Future[None] = self.node.engine.loop.create_future()
            store.when_safe(_set, safe)
            await safe
        return MovedSession(found=True)

    # This node was away.

    async def joined(self) -> None:
        """Learn which sessions are elsewhere, before any mail is taken for them."""
        await self._give_up_all(before_mail=True)
        await self._claim_all_late()

    async def _claim_all_late(self) -> None:
        unclaimed = self._moving.unclaimed
        for client_id, clean in list(unclaimed.items()):
            try:
                await self._claim_late(client_id, clean)
            except FAULTS as error:
                log.info("client %s: what nodes that were away have of it is not known yet: %s", client_id, error)
                return
            unclaimed.pop(client_id, None)

    async def _claim_late(self, client_id: str, clean: bool) -> None:
        """A client connected here while the fabric was away: its session is here now, not where it was before."""
        note = await self._notes.read(client_id)
        if note is None or note.node == self.node.name:
            return
        session = self.node.engine.sessions.get(client_id)
        if clean or session is None:
            if clean:
                await self._put(note.node, Inherited(client_id, ended=True))
            return
        created, last = await self._mailbox_of(note.node)
        taken = self._taken.get(note.node)
        after = taken.number if taken is not None and taken.created == created else 0
        await self._put(note.node, Inherited(client_id, created=created, after=after, late=True))
        mail = await self.node.fabric.peek(note.node, after, last, PEEK_S) if created else []
        for message, origin, number in self._messages(mail):
            qos = self.node.engine.wanted_by(session, message)
            if qos and not self.strays.had(client_id, origin, number):
                session.deliver(message, qos)
                self.strays.give(client_id, origin, number)

    async def beat(self) -> None:
        """Look again: a node may be taken for gone and not notice it."""
        self._beats += 1
        await self._claim_all_late()
        if self._beats % LOOK_BEATS == 0:
            await self._give_up_all()

    async def _give_up_all(self, before_mail: bool = False) -> None:
        bucket = self.node.fabric.inherited
        assert bucket is not None
        try:
            keys = await bucket.keys()
        except nats.js.errors.NoKeysError:
            return
        for key in keys:
            if key.startswith(self.node.name + "."):
                await self._give_up_noted(key, before_mail)

    async def give_up(self, client_id: str) -> None:
        """Let a session go that was taken over, now."""
        await self._give_up_noted(f"{self.node.name}.{key_of(client_id)}")

    async def _give_up_noted(self, key: str, before_mail: bool = False) -> None:
        bucket = self.node.fabric.inherited
        assert bucket is not None
        async with self._giving_up:
            try:
                entry = await bucket.get(key)
            except nats.js.errors.KeyNotFoundError:
                return  # it was not taken over, or it is given up
            if await self._give_up(decode(entry.value or b"", Inherited), before_mail):
                await bucket.delete(key, last=entry.revision)

    async def _give_up(self, inherited: Inherited, before_mail: bool) -> bool:
        """Let a session go that is elsewhere; False if it is to be tried again."""
        client_id, engine = inherited.client_id, self.node.engine
        session = engine.sessions.get(client_id)
        if session is None or inherited.ended:
            if session is not None:
                self._moving.leaving.end(session)
            return True
        if session.connection is not None:
            if await self._is_here(client_id):
                return True
            session.connection.close("taken over")  # [MQTT-3.1.4-2]
        if client_id not in self._caught_up:
            self._catch_up(session, await self._untaken(inherited))
            self._caught_up.add(client_id)
        if before_mail:
            self._unsubscribe(session, inherited.late)
        holders = await self._moving.asking.ask_all(
            self.node.members.alive() or await self._others(), AskMoving(client_id)
        )
        holder = next((node for node, answer in holders.items() if not answer.stale), None)
        if holder is None:
            return False
        self._unsubscribe(session, inherited.late)
        while entries := entries_of(session):
            if client_id not in self._sending:
                some = chunk(map(self._moving.leaving.owed, entries))
                self._sending[client_id] = AskInherit(client_id, some, secrets.randbits(62)), entries[: len(some)]
            question, given = self._sending[client_id]
            answer = await self._moving.asking.ask(holder, question)
            if answer is None or not answer.found:
                return False
            del self._sending[client_id]
            for entry in given:
                session.give(entry)
        if engine.sessions.get(client_id) is session:
            self.node.counters.sessions_out += 1
            self._moving.leaving.end(session)
        self._caught_up.discard(client_id)
        return True

    def _unsubscribe(self, session: Session, late: bool) -> None:
        if session.subscriptions:
            self.strays.departed(session, everybody=late)
            engine = self.node.engine
            drive(engine.loop, engine.unsubscribe(session, list(session.subscriptions)))

    async def _untaken(self, inherited: Inherited) -> list[bytes]:
        """Mail that this node had said to take and did not come to: nobody else has read it."""
        taken = self._taken_of(inherited.created)
        if inherited.created != self.node.fabric.mailbox_created or inherited.after <= taken:
            return []
        return await self.node.fabric.peek(self.node.name, taken, inherited.after, PEEK_S)

    def _taken_of(self, created: str) -> int:
        """How far this node has read its mailbox, if it is the one that was made then: before its first mail, not."""
        begun, taken = self.mailbox.place
        return taken if begun == created else 0

    def _catch_up(self, session: Session, mail: list[bytes]) -> None:
        for message, _, _ in self._messages(mail):
            qos = self.node.engine.wanted_by(session, message)
            if qos:
                session.deliver(message, qos)

    async def _others(self) -> list[str]:
        return [node for node in await self.node.fabric.leased() if node != self.node.name]

    async def _is_here(self, client_id: str) -> bool:
        """Whether a client that is connected here is nowhere else: then it has come back."""
        holders = await self._moving.asking.ask_all(self.node.members.alive(), AskMoving(client_id))
        return not any(not answer.stale for answer in holders.values())


def _set(safe: asyncio.Future[None]) -> None:
    if not safe.done():  # who waited may have given up
        safe.set_result(None)
