"""When a client is to go to another node: its place has another owner, or this node is about to be stopped.

Who subscribes to `$locus/handover` is a roaming client. It is told there where to go, it alone, and again until it has
gone. It stays where it is until it is `block_border` beyond its block, and for `handover_pause_s` after each move, so
that a border is not crossed back and forth. Any other client stays on its node, which gets for it what it wants.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec

from broker_plugins.cluster.leaving import HANDOVER, geo_of
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.wire import AskDrain, Draining
from broker_plugins.engine.codec import ConnectCode
from broker_plugins.engine.message import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.regions import Regions
    from broker_plugins.engine import Subscription
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

NODES = "$locus/nodes"
"""Where clients learn which nodes there are."""


FIGURES = "$SYS/broker/locus/cluster/handovers"
AT_ONCE = 64
"""Sessions that are given away at once while this node is drained."""


async def _nobody(client_id: str, to: str) -> None:
    """There is no way to other nodes yet."""


class Told(msgspec.Struct):
    """What a roaming client is told."""

    node: str
    address: str
    reason: str
    """`owner`: its place belongs to that node; `drain`: this node is about to be stopped."""


class Listed(msgspec.Struct):
    """A node that takes clients."""

    node: str
    address: str


class Roamer:
    """A roaming client."""

    __slots__ = ("block", "rests_until")

    def __init__(self, rests_until: float) -> None:
        self.block: str | None = None
        """The block it is taken to be in."""
        self.rests_until = rests_until
        """It is not told to go before."""


class Handover(Part):
    """Tells roaming clients where to go.

    Args:
        node: this node.
        regions: whose a place is.
        clock: seconds that only grow.
    """

    def __init__(self, node: Node, regions: Regions, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(node)
        self._regions = regions
        self._clock = clock
        self._roamers: dict[Session, Roamer] = {}
        self._listed: bytes | None = None
        self._said: bytes | None = None
        self._turn = 0
        self.send_away: Callable[[str, str], Awaitable[None]] = _nobody
        """Lets a node take the session of a client that is not connected."""

    def __len__(self) -> int:
        return len(self._roamers)

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """To be drained, and how far that is."""
        return {AskDrain: self.drain}

    # Who roams.

    def recovered(self) -> None:
        """Hear where clients are."""
        geo = geo_of(self.node.engine)
        if geo is not None:
            geo.moved.append(self.moved)

    def subscribed(self, subscription: Subscription) -> None:
        """A client says that it follows its owner."""
        if subscription.inner == HANDOVER and subscription.session not in self._roamers:
            arriving = subscription.session.held is not None
            pause = self.node.options.handover_pause_s if arriving else 0.0
            self._roamers[subscription.session] = Roamer(self._clock() + pause)

    def unsubscribed(self, subscription: Subscription) -> None:
        """It does not any more, or it is gone."""
        if subscription.inner == HANDOVER:
            self._roamers.pop(subscription.session, None)

    # Where it is to go.

    def moved(self, session: Session, lon: float, lat: float) -> None:
        """A client says where it is."""
        roamer = self._roamers.get(session)
        if roamer is None:
            return
        block = self._regions.block_of(lon, lat, roamer.block)
        if block is None:
            return
        roamer.block = block.id
        owner = block.owner
        if owner and owner != self.node.name:
            self._tell(session, roamer, owner, "owner")

    def _tell(self, session: Session, roamer: Roamer, to: str, reason: str) -> None:
        now = self._clock()
        members = self.node.members
        if session.connection is None or now < roamer.rests_until or not members.takes_clients(to):
            return
        roamer.rests_until = now + self.node.options.handover_pause_s
        self.node.counters.handovers_told += 1
        told = msgspec.json.encode(Told(to, members.address(to), reason))
        session.deliver(Message(HANDOVER, told), 0)

    async def beat(self) -> None:
        """Tell clients again that have not gone yet, and all of them who there is."""
        self.look()
        if self.node.draining:
            await self._empty()

    async def _empty(self) -> None:
        """Give sessions away whose clients are not connected, some at a time."""
        engine, geo = self.node.engine, geo_of(self.node.engine)
        going = [
            session
            for session in engine.sessions.values()
            if session.persistent and session.connection is None and session.held is None
        ]
        sending = []
        for session in going[:AT_ONCE]:
            to = self._elsewhere(None if geo is None else geo.position_of(session))
            if to:
                sending.append(self.send_away(session.client_id, to))
        await asyncio.gather(*sending)

    def look(self) -> None:
        """Tell whoever should be elsewhere, because blocks moved, it did not hear, or this node is drained."""
        node = self.node
        going = {name for name in node.members.alive() if node.members.is_draining(name)}
        self._regions.draining = going | ({node.name} if node.draining else set())
        self._list_nodes()
        self._say_figures()
        geo = geo_of(node.engine)
        for session, roamer in list(self._roamers.items()):
            place = None if geo is None else geo.position_of(session)
            if node.draining:
                self._tell(session, roamer, self._elsewhere(place), "drain")
            elif place is not None:
                self.moved(session, *place)

    def _say_figures(self) -> None:
        """Say what moving costs, the figures by which networks of brokers are compared."""
        counters = self.node.counters
        figures = msgspec.json.encode(
            {
                "handovers": counters.handovers,
                "unfenced": counters.handovers_unfenced,
                "retransmissions": counters.retransmissions,
                "forwarded": counters.forwarded,
                "received": counters.received,
            }
        )
        if figures != self._said:
            self._said = figures
            self.node.engine.publish(Message(FIGURES, figures, retain=True, volatile=True))

    def _elsewhere(self, place: tuple[float, float] | None) -> str:
        """A node for a client that cannot stay: the owner of its place, or one after the other."""
        members = self.node.members
        owner = None if place is None else self._regions.owner_of(*place)
        if owner is not None and members.takes_clients(owner):
            return owner
        others = sorted(name for name in members.alive() if members.takes_clients(name))
        self._turn += 1
        return others[self._turn % len(others)] if others else ""

    def _list_nodes(self) -> None:
        node, members = self.node, self.node.members
        listed = [Listed(name, members.address(name)) for name in members.alive() if members.takes_clients(name)]
        if node.options.address and not node.draining:
            listed.append(Listed(node.name, node.options.address))
        payload = msgspec.json.encode(sorted(listed, key=lambda each: each.node))
        if payload != self._listed:
            self._listed = payload
            node.engine.publish(Message(NODES, payload, retain=True, volatile=True))

    # About to be stopped.

    def drain(self, question: AskDrain) -> Draining:
        """Begin to let everybody go, or stop it; how far it is."""
        node = self.node
        if question.change and node.draining != question.drain:
            node.draining = question.drain
            log.info("node %s %s", node.name, "is drained: it takes no clients" if question.drain else "takes clients")
            for roamer in self._roamers.values():
                roamer.rests_until = 0.0
            self.look()
        engine = node.engine
        connected = sum(1 for session in engine.sessions.values() if session.connection is not None)
        blocks = sum(block.owner == node.name for block in self._regions.tree or ())
        return Draining(
            node.draining,
            connected,
            sum(1 for session in self._roamers if session.connection is not None),
            sum(1 for session in engine.sessions.values() if session.persistent and session.connection is None),
            blocks,
        )

    def refuses(self, session: Session) -> ConnectCode | None:
        """Let nobody in while this node is drained."""
        if self.node.draining and session.connection is None:
            self.node.counters.drained_refusals += 1
            return ConnectCode.SERVER_UNAVAILABLE
        return None
