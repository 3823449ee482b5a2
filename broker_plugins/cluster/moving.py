"""A client is connected to one node at a time, and its session is where it is.

When a client connects here and another node has its session, this node subscribes to what the session wants before the
other one lets go: what comes here meanwhile is held. Every node confirms that it sends here too, and lets a mark follow
what it sent to the old node before. When all marks have come there, the old node stops delivering at one moment and
says how far it has got with the messages of each node. When marks that the nodes let follow their messages to this one
have come here too, what is held up to there is left out, and the rest follows what the old node gives away: the client
has everything once and in order, at QoS 0 too.
"""

from __future__ import annotations

import itertools
import logging
import time
from typing import TYPE_CHECKING

from broker_plugins.cluster.arrival import Arrival, Arrivals
from broker_plugins.cluster.asking import Asking
from broker_plugins.cluster.leaving import CUT_S, Leaving, geo_of, origin_of
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.wire import (
    AskAdopt,
    AskCut,
    AskFence,
    AskMore,
    AskMoving,
    AskSession,
    MovedSession,
)
from broker_plugins.engine.hooks import Refused
from broker_plugins.engine.message import Message
from broker_plugins.engine.session import Outgoing, Session
from broker_plugins.telemetry.recorder import records_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    import msgspec

    from broker_plugins.cluster.announcing import Announcing
    from broker_plugins.cluster.forwarding import Forwarding
    from broker_plugins.cluster.node import Node
    from broker_plugins.engine.codec import Connect

log = logging.getLogger(__name__)

GRACE_S = 1.0
"""How long the old node still takes messages where not everybody confirmed: until everybody knows where it is."""
MOST_UNCLAIMED = 100_000
HOLD_S = 30.0
"""How long messages are held for a client that does not take its session after all."""


async def _nothing(client_id: str, silent: set[str] | None = None) -> None:
    """Nothing is known of nodes that are away."""


def _noone(client_id: str, had: list[tuple[str, list[int]]] | None = None) -> None:
    """Nobody looks."""


class Moving:
    """Sessions that come and go.

    Args:
        node: this node.
        announcing: what this node wants, and who knows it.
    """

    def __init__(self, node: Node, announcing: Announcing) -> None:
        self._node = node
        self._announcing = announcing
        self._arrivals = Arrivals()
        self.saw = self._arrivals.saw
        """To be told of every message that comes from another node."""
        self.inherit: Callable[[str, set[str]], Awaitable[None]] = _nothing
        """Looks for a session whose node is away."""
        self.disown: Callable[[str, set[str]], Awaitable[None]] = _nothing
        """Ends such a session."""
        self.give_up: Callable[[str], Awaitable[None]] = _nothing
        """Sends what is here of a session after it, if it was taken over while this node was away."""

        self.began: Callable[[str], None] = _noone
        """Told of every session that comes here, before it has any subscription."""
        self.told: Callable[[str, list[tuple[str, list[int]]]], None] = _noone
        """Told what a session that came has had of nodes that were silent."""
        self.unclaimed: dict[str, bool] = {}
        """Clients that connected while the fabric was away, and whether with a clean session."""

    def start(self, forwarding: Forwarding) -> None:
        """The engine and the fabric are there."""
        self._engine = self._node.engine
        self._fabric = self._node.fabric
        self._forwarding = forwarding
        self.asking = Asking(self._node, self._announcing, forwarding)
        self.leaving = Leaving(self._node, forwarding, self._arrivals)
        self._records = records_of(self._engine.hooks.plugins, "handovers")

    def questions(self) -> dict[type[msgspec.Struct], Callable[..., msgspec.Struct | Awaitable[msgspec.Struct]]]:
        """What other nodes ask about sessions."""
        return {
            AskSession: self.leaving.let_go,
            AskMoving: self.leaving.tell,
            AskFence: self.asking.mark,
            AskCut: self.leaving.cut,
            AskAdopt: self._take_in,
            AskMore: self.leaving.more,
        }

    # A client connects here.

    def claim(self, connect: Connect) -> Awaitable[None] | None:
        """A client connects here: the other nodes let go of it, and one may have its session."""
        members = self._node.members
        if not self._fabric.ready:
            if len(self.unclaimed) < MOST_UNCLAIMED:
                self.unclaimed[connect.client_id] = connect.clean_session
            return None
        self.unclaimed.pop(connect.client_id, None)
        if not members.known() or self._node.draining:
            return None
        return self._claim(connect, members.alive())

    async def _claim(self, connect: Connect, nodes: list[str]) -> None:
        client_id = connect.client_id
        await self._arrivals.begin(client_id, CUT_S)
        try:
            silent: set[str] = set()
            if connect.clean_session:
                await self.asking.ask_all(nodes, AskSession(client_id, keep=False), silent)
                await self.disown(client_id, silent)
            else:
                await self._fetch(client_id, nodes)
        except FAULTS as error:
            log.warning("client %s: what nodes that are away have of it is not known: %s", client_id, error)
        finally:
            self._arrivals.over(client_id)

    async def _fetch(self, client_id: str, nodes: list[str]) -> None:
        silent: set[str] = set()
        found = await self.asking.ask_all(nodes, AskMoving(client_id, connects=True), silent)
        if found and client_id in self._engine.sessions:
            await self.give_up(client_id)
        mine = self._engine.sessions.get(client_id)
        if not found:
            if mine is None:
                await self.inherit(client_id, silent)
            else:
                self.leaving.ended(client_id)  # whoever was given it is gone: this is the best there is
        elif len(found) == 1 and mine is None and not any(answer.stale for answer in found.values()):
            ((source, told),) = found.items()
            await self._move(client_id, source, told)
        else:
            await self._bring_together(client_id, list(found))

    # A session without its client.

    async def send_away(self, client_id: str, to: str) -> None:
        """Let another node take the session of a client that is not connected."""
        await self.asking.ask(to, AskAdopt(client_id), CUT_S)

    async def _take_in(self, question: AskAdopt) -> MovedSession:
        client_id = question.client_id
        await self._arrivals.begin(client_id, CUT_S)
        try:
            await self._fetch(client_id, self._node.members.alive())
        finally:
            self._arrivals.over(client_id)
        session = self._engine.sessions.get(client_id)
        if session is not None and session.connection is None and session.held is not None:
            session.release()
        return MovedSession(found=session is not None)

    # The session is on one other node.

    async def _move(self, client_id: str, source: str, told: MovedSession) -> None:
        engine = self._engine
        session = self.begin_held(client_id)
        self.equip(session, told)
        self._arrive(client_id)
        token, fences = await self.asking.fence(source)
        cut = AskCut(client_id, self._node.name, token, fences)
        moved = await self.asking.ask(source, cut, CUT_S) or await self.asking.ask(source, cut, CUT_S)
        if engine.sessions.get(client_id) is not session:
            return  # ended meanwhile
        if moved is None or not moved.found:
            log.warning("client %s: node %s did not give its session away", client_id, source)
            self._arrivals.forget(client_id)
            return
        while moved.more:
            rest = await self.asking.ask(source, AskMore(client_id, len(moved.owed)), CUT_S)
            if rest is None or not rest.found:
                break  # it has what is left, and the client gets it when it connects again
            moved.owed += rest.owed
            moved.more = rest.more
        # What the old node has had may still be on its way here, and must be known for what it is when it comes.
        moved.fenced = await self.asking.caught_up() and moved.fenced
        if engine.sessions.get(client_id) is not session:
            return
        self._fill(session, moved)
        self._node.counters.handovers += told.roaming
        self._came(session, source)
        if moved.more:
            self._arrivals.forget(client_id)
        elif moved.fenced:
            await self.safe()
            done = AskSession(client_id, keep=True, done=True)
            if await self.asking.ask(source, done) is None:
                await self.asking.ask(source, done)
            self._arrivals.forget(client_id)
        else:
            self._node.counters.handovers_unfenced += 1
            self._finish_later(source, client_id)

    def _fill(self, session: Session, moved: MovedSession) -> None:
        """Give a session what it is owed, but for what its client has had on the old node."""
        positions = {(node, mail): number for node, mail, number in moved.positions}
        unhad = set(moved.unhad)
        self.told(session.client_id, moved.had)

        def had(entry: Outgoing) -> bool:
            # A message of a shared subscription came to one node only, and a retained one to its subscriber only.
            origin = None if entry.group or entry.retain else self.origin(entry.message)
            if origin is None or origin in unhad:
                return False
            return origin[1] <= positions.get((origin[0], entry.message.qos > 0), -1)

        self._node.counters.retransmissions += session.discard(had)
        waited = [Outgoing(Message(each.topic, each.payload, 0), 0, each.retain, None) for each in moved.waiting]
        session.put_first(waited)
        self._subscribe(session, moved)
        for text in moved.owing:
            if text in session.subscriptions:
                self._engine.feeds.begin(session.subscriptions[text])
        self._owe(session, moved)

    def origin(self, message: Message) -> tuple[str, int] | None:
        """Where a message was published, and its number there."""
        return origin_of(message, self._node.name, self._node.number)

    async def safe(self) -> None:
        """Wait until what was taken over is on disk."""
        store = self._engine.store
        if store is not None and store.busy:
            safe: asyncio.Future[None] = self._engine.loop.create_future()
            store.when_safe(safe.set_result, None)
            await safe

    def _hold_no_more(self, session: Session) -> None:
        if session.held is not None and not session.ended:
            session.release()

    # Several nodes have something of it.

    async def _bring_together(self, client_id: str, nodes: list[str]) -> None:
        """Take what there is from all nodes: one has the session, others what is left from before it moved."""
        found = await self.asking.ask_all(nodes, AskSession(client_id, keep=True))
        given = self.leaving.given
        whole = next((answer for answer in found.values() if not answer.stale), None)
        mine = self._engine.sessions.get(client_id)
        if mine is not None and client_id not in given:
            self._merge(client_id, mine, found)
            return
        if whole is not None and mine is not None:
            found["here"] = self.leaving.snapshot(client_id, mine)
            self.leaving.end(mine)
        elif mine is not None:
            self.leaving.ended(client_id)  # whoever had it is gone: this is the best there is
            return
        whole = whole or max(found.values(), key=lambda answer: len(answer.owed), default=None)
        if whole is None:
            return
        source = next(node for node, answer in found.items() if answer is whole)
        arrival = Arrival(source, whole.since, whole.seen) if whole.since else None
        for answer in found.values():
            if answer is not whole:
                whole.owed += [each for each in answer.owed[answer.given :] if arrival is None or not arrival.had(each)]
        self._adopt(client_id, source, whole)
        for node in found:
            if node != "here":
                self._finish_later(node, client_id)

    def _merge(self, client_id: str, mine: Session, found: dict[str, MovedSession]) -> None:
        """The session is here, and other nodes have something left of it: what that holds goes with this one."""
        for node, answer in found.items():
            self._deliver_rest(client_id, mine, answer)
            if not answer.stale:
                self._subscribe(mine, answer)
            if self._arrivals.get(client_id) is None:
                self._arrive(client_id)
            self._finish_later(node, client_id)

    def _deliver_rest(self, client_id: str, session: Session, rest: MovedSession) -> None:
        arrival = self._arrivals.get(client_id)
        for each in rest.owed[rest.given :]:
            if arrival is None or not arrival.had(each):
                session.deliver(Message(each.topic, each.payload, each.message_qos), each.qos, each.retain)

    def _adopt(self, client_id: str, source: str, moved: MovedSession) -> None:
        self._arrive(client_id)
        session = self._begin(client_id)
        self.told(client_id, moved.had)
        self.equip(session, moved)
        self._owe(session, moved)
        self._came(session, source)

    def _came(self, session: Session, source: str) -> None:
        self._node.counters.sessions_in += 1
        if self._records is not None:
            queued = len(session.inflight) + session.queued + len(session.held or ())
            self._records.note(session.client_id, source, self._node.name, len(session.subscriptions), queued)

    def _arrive(self, client_id: str) -> None:
        self._arrivals.note(client_id, Arrival(self._node.name, self._node.number(self._engine.sequence)))

    def _finish_later(self, node: str, client_id: str) -> None:
        arrival = self._arrivals.get(client_id)
        assert arrival is not None
        arrival.awaited += 1
        self._engine.loop.call_later(GRACE_S, lambda: self._node.work(self._finish(node, client_id)))

    async def _finish(self, node: str, client_id: str) -> None:
        """Every node knows by now where the client is: fetch what had gone to the old one meanwhile."""
        rest = await self.asking.ask(node, AskSession(client_id, keep=True, done=True))
        session = self._engine.sessions.get(client_id)
        if rest is not None and session is not None and rest.found:
            self._deliver_rest(client_id, session, rest)
        arrival = self._arrivals.get(client_id)
        if arrival is not None:
            arrival.awaited -= 1
            if not arrival.awaited:
                self._arrivals.forget(client_id)

    # What a session consists of.

    def begin_held(self, client_id: str) -> Session:
        """A session that takes what comes and sends nothing yet."""
        session = self._begin(client_id)
        session.hold()
        self._engine.loop.call_later(HOLD_S, self._hold_no_more, session)
        return session

    def equip(self, session: Session, moved: MovedSession) -> None:
        """Subscribe a session to what it was subscribed to, and put it where its client is."""
        self._subscribe(session, moved)
        geo = geo_of(self._engine)
        if geo is not None and moved.place is not None:
            geo.locate(session, *moved.place)

    def _begin(self, client_id: str) -> Session:
        self.began(client_id)
        session = Session(self._engine, client_id, clean=False)
        session.left_at = time.time()
        self._engine.sessions[client_id] = session
        if self._engine.store is not None:
            self._engine.store.put("sessions", (client_id,), (session.left_at,))
        return session

    def _owe(self, session: Session, moved: MovedSession) -> None:
        for packet_id in moved.inbound:
            self._engine.note_inbound(session, packet_id)
        session.number_from(moved.id_floor)
        used: set[int] = set()
        restored = []
        for each in moved.owed:
            # What was left on a node it had been on before has an identifier that may mean something else by now.
            packet_id = 0 if each.packet_id in used else each.packet_id
            used.add(packet_id)
            message = Message(each.topic, each.payload, each.message_qos)
            restored.append((message, each.qos, each.retain, packet_id, each.state, 0))
        session.restore(restored)
        if self._engine.store is not None:
            session.record_all()

    def _subscribe(self, session: Session, moved: MovedSession) -> None:
        engine = self._engine
        orders = moved.orders if engine.ages is not None else ()
        for (text, qos), order in itertools.zip_longest(moved.subscriptions, orders):
            if text in session.subscriptions:
                continue
            try:
                subscription = engine.read_filter(session, text, qos)
                subscription.order = order or subscription.order
                engine.adopt(subscription)
            except Refused as refused:
                log.warning("client %s: subscription %r does not move: %s", session.client_id, text, refused)
            else:
                engine.note_subscription(subscription, owed=0)

    def leaves(self, client_id: str) -> bool:
        """Whether a session is on its way to another node."""
        return client_id in self.leaving.given

    def ended(self, session: Session) -> None:
        """A session is gone, by whatever way: one of the same name later is another one."""
        if session.client_id not in self._engine.sessions:
            self.leaving.ended(session.client_id)
            self._arrivals.forget(session.client_id)
