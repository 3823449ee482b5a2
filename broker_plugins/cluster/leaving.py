"""A session leaves this node: another one has its client, and gets what is owed to it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import msgspec

from broker_plugins.cluster.convergence import FROM, NUMBER
from broker_plugins.cluster.wire import MovedSession, Owed
from broker_plugins.engine.message import Message, message_of
from broker_plugins.engine.session import ASSIGNED, SENT, Outgoing
from broker_plugins.geo.plugin import GeoPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker_plugins.cluster.arrival import Arrivals
    from broker_plugins.cluster.forwarding import Forwarding
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.wire import AskCut, AskMore, AskMoving, AskSession
    from broker_plugins.engine.connection import Connection
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

HANDOVER = "$locus/handover"
"""Where a roaming client is told where to go; who subscribes to it is one."""
FENCE_S = 4.0
"""How long a move waits until what other nodes had sent here before they knew of it has come."""
ACKNOWLEDGE_S = 1.0
"""How long it waits until a roaming client has acknowledged what was sent to it."""
FLUSH_S = 1.0
CUT_S = 8.0
"""How long giving a session away may take: the sum of the above, and some."""
ANSWER_BYTES = 262_144
LINGER_S = 5.0
"""How long a roaming client may take to close the connection it leaves."""
RESOLVE_S = 1.5
"""How long a question about a session waits that is just moving."""
KEEP_S = 30.0
"""How long a session that was given away is held for a node that does not say that it has it."""


def is_roaming(session: Session) -> bool:
    """Whether a client follows its owner."""
    return HANDOVER in session.subscriptions


def geo_of(engine: Engine) -> GeoPlugin | None:
    """The plugin that knows where clients are."""
    return next((plugin for plugin in engine.hooks.plugins if isinstance(plugin, GeoPlugin)), None)


def entries_of(session: Session) -> list[Outgoing]:
    """Everything of QoS 1 and 2 owed to a session."""
    return [*session.inflight.values(), *(session.queue or ()), *(each for each in session.held or () if each.qos)]


def _nobody(session: Session) -> None:
    """Nobody looks."""


def _nothing(client_id: str) -> list[tuple[str, list[int]]]:  # noqa: ARG001  whoever it is
    """Nobody knows."""
    return []


class Leaving:
    """Sessions that go.

    Args:
        node: this node.
        forwarding: what comes from other nodes.
        arrivals: sessions that came lately.
    """

    def __init__(self, node: Node, forwarding: Forwarding, arrivals: Arrivals) -> None:
        self._node = node
        self._engine = node.engine
        self._forwarding = forwarding
        self._arrivals = arrivals
        self.given: dict[str, set[int]] = {}
        """Sessions another node was given, with what it was given; they end when it says that it has them."""
        self._moving: dict[str, asyncio.Future[None]] = {}
        """Done when a session that is being given away is gone."""
        self.departed: Callable[[Session], None] = _nobody
        """Told of every session that is elsewhere, while its subscriptions are known still."""
        self.all_had: Callable[[str], list[tuple[str, list[int]]]] = _nothing
        """What a session has had of nodes that were silent."""
        self._cuts: dict[int, asyncio.Task[MovedSession]] = {}
        """What was answered, by the question's mark, for who did not get the answer."""

    # Questions of other nodes.

    async def tell(self, question: AskMoving) -> MovedSession:
        """What a session is subscribed to; it stays here for now."""
        client_id = question.client_id
        await self._arrivals.settled(client_id, RESOLVE_S)
        moving = self._moving.get(client_id)
        if moving is not None:
            await asyncio.wait({moving}, timeout=RESOLVE_S)
        session = self._engine.sessions.get(client_id)
        if session is None:
            return MovedSession(found=False)
        if session.clean:
            if question.connects and session.connection is not None:
                self._node.counters.taken_over += 1
                log.info("client %s connected to another node; its connection here is closed", client_id)
                session.connection.close("taken over")  # [MQTT-3.1.4-2]
            return MovedSession(found=False)
        return self._described(client_id, session)

    def _described(self, client_id: str, session: Session) -> MovedSession:
        ordered = sorted(session.subscriptions.values(), key=lambda each: each.order)
        geo = geo_of(self._engine)
        return MovedSession(
            found=True,
            subscriptions=[(each.text, each.qos) for each in ordered],
            orders=[each.order for each in ordered],
            stale=client_id in self.given,
            roaming=is_roaming(session),
            id_floor=session.id_floor,
            place=None if geo is None else geo.position_of(session),
            owing=[feed.subscription.text for feed in session.feeds or ()],
            had=self.all_had(client_id),
        )

    async def cut(self, question: AskCut) -> MovedSession:
        """Give a session away, when all that was sent here before has come: from then on the other node delivers."""
        key = hash((question.client_id, question.token))
        task = self._cuts.get(key)
        if task is None:
            task = self._cuts[key] = self._engine.loop.create_task(self._cut(question))
            self._engine.loop.call_later(KEEP_S, self._cuts.pop, key, None)
        return await asyncio.shield(task)

    async def _cut(self, question: AskCut) -> MovedSession:
        client_id = question.client_id
        fenced = await self._forwarding.progress.all_marked(question.token, question.fences, FENCE_S)
        session = self._engine.sessions.get(client_id)
        if session is None or session.clean or client_id in self.given:
            return MovedSession(found=False)
        self._moving[client_id] = self._engine.loop.create_future()
        progress = self._forwarding.progress
        session.hold()
        # From here on nothing more is delivered by this node.
        here = self._node.name, self._node.number(self._engine.sequence)
        positions = [*progress.positions(), *((here[0], mail, here[1]) for mail in (False, True))]
        unhad = progress.unpublished()
        waiting0 = [] if session.queue0 is None else list(session.queue0)
        self.given[client_id] = set()
        self._engine.loop.call_later(KEEP_S, self._keep, client_id, session)
        await self._forwarding.flush(FLUSH_S)  # what this client published here comes before what it publishes there
        if session.connection is not None and is_roaming(session):
            await self._acknowledged(session)
        owed = [*session.inflight.values(), *(session.queue or ())]  # what is held since goes to the other node itself
        moved = self._described(client_id, session)
        moved.owed = chunk(map(self.owed, owed))
        moved.more = len(moved.owed) < len(owed)
        moved.inbound = sorted(session.inbound or ())
        self._part(session, question.node)
        self.given[client_id] = {id(entry) for entry in owed}
        moved.stale = False
        moved.fenced, moved.positions, moved.unhad = fenced, positions, unhad
        moved.waiting = [_owed0(item) for item in waiting0]
        return moved

    def more(self, question: AskMore) -> MovedSession:
        """What did not fit the first answer, of what another node was given."""
        session = self._engine.sessions.get(question.client_id)
        given = self.given.get(question.client_id)
        if session is None or given is None:
            return MovedSession(found=False)
        owed = [entry for entry in entries_of(session) if id(entry) in given][question.start :]
        moved = MovedSession(found=True, owed=chunk(map(self.owed, owed)))
        moved.more = len(moved.owed) < len(owed)
        return moved

    async def _acknowledged(self, session: Session) -> None:
        """Wait until a client has acknowledged what it was sent, so that nothing need be sent again elsewhere."""
        deadline = time.monotonic() + ACKNOWLEDGE_S
        while session.inflight and session.connection is not None and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.002)  # seldom, and for milliseconds

    def _part(self, session: Session, to: str) -> None:
        """End the connection of a client that has gone to another node."""
        connection = session.connection
        if connection is None:
            return
        self._node.counters.taken_over += 1
        if not is_roaming(session):
            log.info("client %s connected to node %s; its connection here is closed", session.client_id, to)
            connection.close("taken over")  # [MQTT-3.1.4-2]
            return
        payload = msgspec.json.encode({"node": to, "reason": "moved", "end": True})
        connection.send(Message(HANDOVER, payload).packet0())
        connection.flush()
        connection.will = None
        self._engine.forget_will(session)
        self._retire(connection, session)

    def _retire(self, connection: Connection, session: Session) -> None:
        """Leave it to the client to close.

        Its acknowledgements must not meet a closed socket, which would take from it what it has not read yet.
        """
        connection.parser.paused = True
        connection.session = None
        self._engine.disconnected(connection, session, "handed over")
        self._engine.loop.call_later(LINGER_S, connection.close, "handed over")

    def _keep(self, client_id: str, session: Session) -> None:
        """Nobody said that they have it: it stays, with what came since."""
        if self._engine.sessions.get(client_id) is session and session.held is not None and session.connection is None:
            session.release()
            self._resolved(client_id)

    def let_go(self, question: AskSession) -> MovedSession:
        """Close a client's connection, and give its session away; it ends here when the other node has it."""
        client_id = question.client_id
        session = self._engine.sessions.get(client_id)
        if session is None or (question.done and client_id not in self.given):
            return MovedSession(found=False)
        if session.connection is not None:
            self._node.counters.taken_over += 1
            log.info("client %s connected to another node; its connection here is closed", client_id)
            session.connection.close("taken over")  # [MQTT-3.1.4-2]
        if session.ended:
            return MovedSession(found=False)
        if not question.keep:
            self.end(session)
            return MovedSession(found=False)
        moved = self.snapshot(client_id, session)
        if question.done:
            self._node.counters.sessions_out += 1
            self.departed(session)
            self.end(session)
        else:
            self.given[client_id] = {id(entry) for entry in entries_of(session)}
        return moved

    # What leaves.

    def snapshot(self, client_id: str, session: Session) -> MovedSession:
        """A session with what is owed to it."""
        moved = self._described(client_id, session)
        given = self.given.get(client_id)
        arrival = self._arrivals.get(client_id)
        entries = entries_of(session)
        if given is not None:
            entries.sort(key=lambda entry: id(entry) not in given)
        moved.owed = [self.owed(entry) for entry in entries]
        moved.given = 0 if given is None else sum(id(entry) in given for entry in entries)
        moved.inbound = sorted(session.inbound or ())
        if arrival is not None:
            moved.since, moved.seen = arrival.since, list(arrival.seen)
        return moved

    def end(self, session: Session) -> None:
        """A session is elsewhere."""
        for entry in entries_of(session):
            entry.group = None  # it moves with its session, not to another member of the group
        self._engine.end_session(session)  # which calls `ended`

    def ended(self, client_id: str) -> None:
        """A session is gone, by whatever way."""
        self.given.pop(client_id, None)
        self._resolved(client_id)

    def _resolved(self, client_id: str) -> None:
        moving = self._moving.pop(client_id, None)
        if moving is not None and not moving.done():
            moving.set_result(None)

    def owed(self, entry: Outgoing) -> Owed:
        """A message as it travels with its session."""
        message = entry.message
        state = SENT if entry.state == ASSIGNED else entry.state
        owed = Owed(message.topic, message.payload, message.qos, entry.qos, entry.retain, entry.packet_id, state)
        # A message of a shared subscription went to one node only, and a retained one to its subscriber only.
        if entry.group is None and not entry.retain:
            known = origin_of(message, self._node.name, self._node.number)
            if known is not None:
                owed.origin, owed.number = known
        return owed


def chunk(owed: Iterable[Owed]) -> list[Owed]:
    """As many messages from the beginning as one answer takes, one at least."""
    size = 0
    found: list[Owed] = []
    for each in owed:
        size += len(each.payload) + len(each.topic) + 64
        if found and size > ANSWER_BYTES:
            break
        found.append(each)
    return found


def origin_of(message: Message, here: str, number: Callable[[int], int]) -> tuple[str, int] | None:
    """Where a message was published, and its number there; None where nobody knows any more."""
    properties = message.properties or {}
    if FROM in properties:
        return str(properties[FROM]), int(properties.get(NUMBER, 0))
    return (here, number(message.sequence)) if message.sequence else None


def _owed0(item: bytes | Message) -> Owed:
    """A QoS 0 message that waited for the client to read."""
    message = message_of(item) if isinstance(item, bytes) else item
    return Owed(message.topic, message.payload, message.qos, 0, isinstance(item, bytes) and bool(item[0] & 1), 0, 0)
