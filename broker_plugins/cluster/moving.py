"""A client is connected to one node at a time, and its session is where it is."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker_plugins.cluster.convergence import FROM, NUMBER
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.wire import AskSession, MovedSession, Owed, WireError, decode, encode
from broker_plugins.engine.hooks import Refused
from broker_plugins.engine.message import Message
from broker_plugins.engine.session import ASSIGNED, SENT, Outgoing, Session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from broker_plugins.cluster.fabric import Fabric
    from broker_plugins.cluster.members import Members
    from broker_plugins.cluster.options import ClusterCounters
    from broker_plugins.engine.codec import Connect
    from broker_plugins.engine.engine import Engine

log = logging.getLogger(__name__)

CLAIM_S = 1.0
"""How long a client waits for the other nodes to let go of it."""
GRACE_S = 1.0
"""How long the old node still takes messages for a session that has moved: until everybody knows where it is."""


class Arrival:
    """What a node has had since a session came to it: none of that is owed by the node it came from."""

    __slots__ = ("awaited", "node", "seen", "since")

    def __init__(self, node: str, since: int, seen: Iterable[tuple[str, int]] = ()) -> None:
        self.node = node
        self.since = since
        self.seen = set(seen)
        self.awaited = 0
        """How many nodes are still to be asked for the rest."""

    def had(self, each: Owed) -> bool:
        """Whether a message came to this node after the session did."""
        return (each.origin, each.number) in self.seen or (each.origin == self.node and each.number > self.since)


class Moving:
    """Sessions that come and go.

    Args:
        engine: where they are.
        fabric: how to reach the other nodes.
        members: which nodes there are.
        counters: what to count in.
        number: what messages of this node are known by, from their sequence.
    """

    def __init__(
        self,
        engine: Engine,
        fabric: Fabric,
        members: Members,
        counters: ClusterCounters,
        number: Callable[[int], int],
    ) -> None:
        self._engine = engine
        self._fabric = fabric
        self._members = members
        self._counters = counters
        self._given: dict[str, set[int]] = {}
        """Sessions another node was given, with what it was given; they end when it says that it has them."""
        self._number = number
        self._arrived: dict[str, Arrival] = {}
        """Sessions that came lately, and what came for everybody since."""
        self._tasks: set[asyncio.Task[None]] = set()

    def claim(self, connect: Connect) -> Awaitable[None] | None:
        """A client connects here: the other nodes let go of it, and one may have its session."""
        nodes = self._members.alive()
        if not nodes or not self._fabric.ready:
            return None
        return self._claim(connect, nodes)

    async def _claim(self, connect: Connect, nodes: list[str]) -> None:
        client_id = connect.client_id
        question = encode(AskSession(client_id, not connect.clean_session))
        answers = await asyncio.gather(*(self._ask(node, question) for node in nodes))
        found = {
            node: answer for node, answer in zip(nodes, answers, strict=True) if answer is not None and answer.found
        }
        whole = next((answer for answer in found.values() if not answer.stale), None)
        mine = self._engine.sessions.get(client_id)
        if mine is not None and client_id not in self._given:
            self._merge(client_id, mine, found)
            return
        if whole is not None and mine is not None:
            found["here"] = self._snapshot(client_id, mine)
            self._end(mine)
        elif mine is not None:
            self._given.pop(client_id)  # whoever had it is gone: this is the best there is
            return
        whole = whole or max(found.values(), key=lambda answer: len(answer.owed), default=None)
        if whole is None:
            return
        source = next(node for node, answer in found.items() if answer is whole)
        arrival = Arrival(source, whole.since, whole.seen) if whole.since else None
        for answer in found.values():
            if answer is not whole:
                whole.owed += [each for each in answer.owed[answer.given :] if arrival is None or not arrival.had(each)]
        self._adopt(client_id, whole)
        for node in found:
            if node != "here":
                self._finish_later(node, client_id)

    def _merge(self, client_id: str, mine: Session, found: dict[str, MovedSession]) -> None:
        """The session is here, and other nodes have something left of it: what that holds goes with this one."""
        for node, answer in found.items():
            arrival = self._arrived.get(client_id)
            for each in answer.owed[answer.given :]:
                if arrival is None or not arrival.had(each):
                    mine.deliver(Message(each.topic, each.payload, each.message_qos), each.qos, each.retain)
            if not answer.stale:
                self._subscribe(mine, answer)
            if arrival is None:
                self._arrive(client_id)
            self._finish_later(node, client_id)

    def _arrive(self, client_id: str) -> None:
        self._arrived[client_id] = Arrival(self._fabric.options.node, self._number(self._engine.sequence))

    def _finish_later(self, node: str, client_id: str) -> None:
        self._arrived[client_id].awaited += 1
        self._engine.loop.call_later(GRACE_S, self._finish_soon, node, client_id)

    def _finish_soon(self, node: str, client_id: str) -> None:
        task = self._engine.loop.create_task(self._finish(node, client_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, node: str, client_id: str) -> None:
        """Every node knows by now where the client is: fetch what had gone to the old one meanwhile."""
        rest = await self._ask(node, encode(AskSession(client_id, keep=True, done=True)))
        session = self._engine.sessions.get(client_id)
        arrival = self._arrived.get(client_id)
        if arrival is not None:
            arrival.awaited -= 1
            if not arrival.awaited:
                del self._arrived[client_id]
        if rest is None or session is None or not rest.found:
            return
        for each in rest.owed[rest.given :]:
            if arrival is None or not arrival.had(each):
                session.deliver(Message(each.topic, each.payload, each.message_qos), each.qos, each.retain)

    def saw(self, origin: str, number: int) -> None:
        """A message came from another node."""
        for arrival in self._arrived.values():
            arrival.seen.add((origin, number))

    async def _ask(self, node: str, question: bytes) -> MovedSession | None:
        try:
            return decode(await self._fabric.ask(node, question, CLAIM_S), MovedSession)
        except (*FAULTS, WireError) as error:
            log.info("node %s does not answer whether it has a client: %s", node, error)
            return None

    # Here it leaves.

    def let_go(self, question: AskSession) -> MovedSession:
        """Close a client's connection, and give its session away; it ends here when the other node has it."""
        client_id = question.client_id
        session = self._engine.sessions.get(client_id)
        if session is None or (question.done and client_id not in self._given):
            return MovedSession(found=False)
        if session.connection is not None:
            self._counters.taken_over += 1
            log.info("client %s connected to another node; its connection here is closed", client_id)
            session.connection.close("taken over")  # [MQTT-3.1.4-2]
        if session.ended:
            return MovedSession(found=False)
        if not question.keep:
            self._end(session)
            return MovedSession(found=False)
        moved = self._snapshot(client_id, session)
        if question.done:
            self._counters.sessions_out += 1
            self._end(session)
        else:
            self._given[client_id] = {id(entry) for entry in _entries(session)}
        return moved

    def _snapshot(self, client_id: str, session: Session) -> MovedSession:
        given = self._given.get(client_id)
        arrival = self._arrived.get(client_id)
        ordered = sorted(session.subscriptions.values(), key=lambda each: each.order)
        entries = _entries(session)
        if given is not None:
            entries.sort(key=lambda entry: id(entry) not in given)
        return MovedSession(
            found=True,
            subscriptions=[(each.text, each.qos) for each in ordered],
            owed=[self._owed(entry) for entry in entries],
            given=0 if given is None else sum(id(entry) in given for entry in entries),
            stale=given is not None,
            inbound=sorted(session.inbound or ()),
            since=0 if arrival is None else arrival.since,
            seen=[] if arrival is None else list(arrival.seen),
        )

    def _end(self, session: Session) -> None:
        for entry in _entries(session):
            entry.group = None  # it moves with its session, not to another member of the group
        self._engine.end_session(session)  # which calls `ended`

    def _owed(self, entry: Outgoing) -> Owed:
        message = entry.message
        state = SENT if entry.state == ASSIGNED else entry.state
        owed = Owed(message.topic, message.payload, message.qos, entry.qos, entry.retain, entry.packet_id, state)
        properties = message.properties or {}
        # A message of a shared subscription went to one node only, and a retained one to its subscriber only.
        if entry.group is None and not entry.retain:
            if FROM in properties:
                owed.origin, owed.number = str(properties[FROM]), int(properties.get(NUMBER, 0))
            elif message.sequence:
                owed.origin, owed.number = self._fabric.options.node, self._number(message.sequence)
        return owed

    # Here it arrives.

    def _adopt(self, client_id: str, moved: MovedSession) -> None:
        engine = self._engine
        self._counters.sessions_in += 1
        self._arrive(client_id)
        session = Session(engine, client_id, clean=False)
        engine.sessions[client_id] = session
        store = engine.store
        if store is not None:
            store.put("sessions", (client_id,), (0.0,))
        for packet_id in moved.inbound:
            engine.note_inbound(session, packet_id)
        self._subscribe(session, moved)
        used: set[int] = set()
        restored = []
        for each in moved.owed:
            # What was left on a node it had been on before has an identifier that may mean something else by now.
            packet_id = 0 if each.packet_id in used else each.packet_id
            used.add(packet_id)
            message = Message(each.topic, each.payload, each.message_qos)
            restored.append((message, each.qos, each.retain, packet_id, each.state, 0))
        session.restore(restored)
        if store is not None:
            session.record_all()

    def _subscribe(self, session: Session, moved: MovedSession) -> None:
        engine = self._engine
        for text, qos in moved.subscriptions:
            if text in session.subscriptions:
                continue
            try:
                subscription = engine.read_filter(session, text, qos)
                engine.adopt(subscription)
            except Refused as refused:
                log.warning("client %s: subscription %r does not move: %s", session.client_id, text, refused)
            else:
                engine.note_subscription(subscription, owed=False)

    def ended(self, session: Session) -> None:
        """A session is gone, by whatever way: one of the same name later is another one."""
        if session.client_id not in self._engine.sessions:
            self._given.pop(session.client_id, None)
            self._arrived.pop(session.client_id, None)


def _entries(session: Session) -> list[Outgoing]:
    return [*session.inflight.values(), *(session.queue or ())]
