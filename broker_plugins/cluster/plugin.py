"""The cluster plugin: what is published on one node reaches whoever wants it on the others, once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_plugins.cluster.announcing import Announcing
from broker_plugins.cluster.causal_groups import CausalGroups
from broker_plugins.cluster.convergence import Convergence
from broker_plugins.cluster.fabric import Fabric
from broker_plugins.cluster.forwarding import Forwarding
from broker_plugins.cluster.handover import Handover
from broker_plugins.cluster.inheriting import Inheriting
from broker_plugins.cluster.listening import Listening
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.mailbox import Mailbox
from broker_plugins.cluster.moving import Moving
from broker_plugins.cluster.node import Node
from broker_plugins.cluster.notes import Notes
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.overlay import Overlay
from broker_plugins.cluster.regions import Regions
from broker_plugins.cluster.relaying import Relaying
from broker_plugins.cluster.server import NatsServer
from broker_plugins.cluster.strays import Strays
from broker_plugins.cluster.top import TopK
from broker_plugins.cluster.wire import (
    AskBuckets,
    AskRetained,
    Batch,
    Hello,
    WireError,
    decode,
    encode,
)
from broker_plugins.engine import Plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec
    from amqtt.broker import BrokerContext
    from nats.aio.msg import Msg

    from broker_plugins.cluster.node import Part
    from broker_plugins.engine import Message, Selection, Subscription
    from broker_plugins.engine.codec import Connect, ConnectCode
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

REPAIR_S = 3.0
INFORMED_S = 3.0
"""How long the first clients wait until this node knows what the others want; then it serves them without."""


class ClusterPlugin(Plugin):
    """Makes this broker a node of a cluster."""

    Config = ClusterOptions
    cuts = True  # it decides for whole groups of shared subscriptions, when all members are known

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.options: ClusterOptions = self.config
        self.counters = ClusterCounters()
        self.node = Node(self.options, self.counters)
        self.announcing = Announcing(self.node)
        self.relaying = Relaying(self.node)
        self.overlay = Overlay(self.node, self.announcing, self.relaying)
        self.top = TopK(self.node, self.announcing, self.overlay)
        self.regions = Regions(self.node)
        self.causal = CausalGroups(self.node)
        self.listening = Listening(self.node, self.announcing, self.regions)
        self.parts: list[Part] = [self.announcing, self.causal, self.regions, self.listening, self.overlay, self.top]
        self.parts.append(self.relaying)
        self._alive: set[str] = set()
        self._informed = asyncio.Event()
        self._server: NatsServer | None = None
        self.handover = Handover(self.node, self.regions)
        self.parts.append(self.handover)
        self.moving = Moving(self.node, self.announcing)
        self.notes = Notes(self.node, self.moving.leaves)
        self.inheriting = Inheriting(self.node, self.moving, self.notes)
        self.strays = Strays(self.node, self.moving)
        self.parts += [self.inheriting, self.notes]
        self.inheriting.strays = self.strays
        self.parts.insert(0, self.strays)  # it sees everything that comes

    @property
    def node_name(self) -> str:
        """What this broker is called; other plugins call it the same."""
        return self.node.name

    # The life of the broker.

    def start(self, engine: Engine) -> None:
        """Begin to look for the fabric; clients are served meanwhile."""
        options, node = self.options, self.node
        if options.embedded:
            self._server = NatsServer(options.embedded_port, Path(options.embedded_dir))
            self._server.start()
        node.engine = engine
        node.fabric = Fabric(options, node.incarnation, self._subjects(), self._joined)
        self.convergence = Convergence(
            engine, node.name, node.clock, options.max_removals, self.counters, self.causal.orders
        )
        self.forwarding = Forwarding(node, self.announcing, self.parts, self.convergence, self.causal, self.moving.saw)
        self.relaying.start(self.forwarding)
        self.top.start(self, self.forwarding)
        self.top.ordered = self.causal.group_of
        engine.ages = node.clock.now
        self._mailbox = Mailbox(node.fabric, engine.store, self.counters, self.forwarding.take_bytes)
        self.inheriting.mailbox = self._mailbox
        self.moving.start(self.forwarding)
        self.moving.leaving.departed = self.strays.departed
        self.moving.leaving.all_had = self.strays.all_had
        self.handover.send_away = self.moving.send_away
        self._answers: dict[type[msgspec.Struct], Callable[[Any], msgspec.Struct | Awaitable[msgspec.Struct]]] = {
            AskBuckets: lambda _: self.convergence.buckets(),
            AskRetained: self.convergence.answer,
            **self.moving.questions(),
        }
        for part in self.parts:
            self._answers |= part.questions()
        self._question: Any = reduce(or_, self._answers)
        engine.loop.call_soon(self._recovered)

    def _recovered(self) -> None:
        """Sessions and retained messages are loaded: now there is something to tell."""
        self.convergence.load()
        self.forwarding.restore()
        for part in self.parts:
            part.recovered()
        self.node.work(self.node.fabric.run())
        self.node.work(self._mailbox.run())
        self.node.work(self._beat())

    def stop(self) -> None:
        """The store closes next: what came after that would be noted nowhere, and is left in the mailbox."""
        if hasattr(self, "_mailbox"):  # it began
            self._mailbox.stop()

    async def on_broker_post_shutdown(self) -> None:
        """Send what is still to be sent, leave the fabric, and stop a server of our own."""
        await self.forwarding.close()
        self.node.rest()
        await self.node.fabric.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)

    async def _joined(self) -> None:
        """The fabric is there: learn what the others want before clients of this node publish."""
        await self._say_hello()
        for part in self.parts:
            await part.joined()
        self._informed.set()

    # Signs of life.

    async def _beat(self) -> None:
        while True:
            try:
                if self.node.fabric.ready:
                    await self._say_hello()
                    await self._renew()
                    await self._mailbox.tidy()
                    await self._repair()
                    for part in self.parts:
                        await part.beat()
            except (*FAULTS, WireError) as error:
                log.debug("beat: %s: %s", type(error).__name__, error)
            self._look_around()
            await asyncio.sleep(self.options.hello_s)

    def _look_around(self) -> None:
        """Tell the parts who has gone."""
        alive = set(self.node.members.alive())
        gone, self._alive = self._alive - alive, alive
        for node in gone:
            for part in self.parts:
                part.left(node)
        for node in self.node.members.forgotten():
            log.info("node %s has been gone for %g s and is forgotten", node, self.options.away_s)
            for part in self.parts:
                part.forgotten(node)
            self.forwarding.forget(node)

    async def _renew(self) -> None:
        engine, announcing = self.node.engine, self.announcing
        filters = len(announcing.own) + len(announcing.others)
        await self.node.fabric.renew(len(engine.connections), engine.subscription_count, filters)

    async def _say_hello(self) -> None:
        node = self.node
        hello = Hello(
            node.name,
            node.incarnation,
            self.announcing.own.version,
            self.convergence.ledger.digest,
            self.options.address,
            node.draining,
        )
        await node.fabric.publish(node.fabric.subject("hello"), encode(hello))

    async def _on_hello(self, hello: Hello) -> None:
        if hello.node == self.node.name:
            return
        came = self.node.members.heard(hello)
        if came:
            log.info("node %s is there", hello.node)
            self._alive.add(hello.node)
            for part in self.parts:
                part.came(hello.node)
            await self._say_hello()
        self.announcing.heard(hello)

    async def _repair(self) -> None:
        for node in self.node.members.differing(self.convergence.ledger.digest, REPAIR_S):
            await self.convergence.repair(self.node.fabric, node)

    # What other nodes say.

    def _subjects(self) -> dict[str, Callable[[Msg], Awaitable[None]]]:
        async def take(batch: Batch) -> None:
            await self.forwarding.take(batch)

        subjects: dict[str, Callable[[Msg], Awaitable[None]]] = {
            "hello": self._heard(Hello, self._on_hello),
            f"node.{self.node.name}": self._heard(Batch, take),
            f"ask.{self.node.name}": self._on_question,
            f"unheard.{self.node.name}.*": self.relaying.on_unheard,
        }
        for part in self.parts:
            for name, (kind, handle) in part.subjects().items():
                subjects[name] = self._heard(kind, handle)
        return subjects

    def _heard(
        self, kind: type[Any], handle: Callable[[Any], Awaitable[None] | None]
    ) -> Callable[[Msg], Awaitable[None]]:
        async def heard(msg: Msg) -> None:
            try:
                value = decode(bytes(msg.data), kind)
            except WireError as error:
                self.counters.unreadable += 1
                log.warning("on %s: %s", msg.subject, error)
                return
            handling = handle(value)
            if handling is not None:
                await handling

        return heard

    async def _on_question(self, msg: Msg) -> None:
        try:
            question = decode(bytes(msg.data), self._question)
        except WireError as error:
            self.counters.unreadable += 1
            log.warning("a question: %s", error)
            return
        answer = self._answers[type(question)](question)
        if isinstance(answer, Awaitable):
            self.node.work(self._respond(msg, answer))  # others need not wait for it
        else:
            await msg.respond(encode(answer, squeeze=True))

    async def _respond(self, msg: Msg, awaited: Awaitable[msgspec.Struct]) -> None:
        answer = await awaited
        with contextlib.suppress(*FAULTS):
            await msg.respond(encode(answer, squeeze=True))

    # Clients and their messages.

    def on_connecting(self, connect: Connect) -> Awaitable[None] | None:
        """Ask the other nodes to let go of a client before it gets its session here."""
        if not self._informed.is_set():
            return self._claim_informed(connect)
        return self.causal.moves.follow(connect.client_id, self.moving.claim(connect))

    async def _claim_informed(self, connect: Connect) -> None:
        try:
            await asyncio.wait_for(self._informed.wait(), INFORMED_S)
        except TimeoutError:
            self._informed.set()
        claim = self.causal.moves.follow(connect.client_id, self.moving.claim(connect))
        if claim is not None:
            await claim

    def on_connect(self, session: Session) -> ConnectCode | None:
        """Refuse clients while this node is drained."""
        return self.handover.refuses(session)

    def on_disconnected(self, session: Session, reason: str) -> None:  # noqa: ARG002  whatever it was
        """Remember who was here: it may have heard something."""
        self.causal.moves.gone(session.client_id)

    def on_session_ended(self, session: Session) -> None:
        """Forget where a session came from or went to."""
        self.moving.ended(session)
        self.notes.ended(session)

    def on_granting(self, subscriptions: Sequence[Subscription]) -> Awaitable[Any] | None:
        """Let the other nodes know what is wanted here before a client may rely on it."""
        if all(subscription.inner.startswith("$") for subscription in subscriptions):
            return None
        seconds = self.options.granting_s
        waits = [self.announcing.known_everywhere(seconds)]
        if subscriptions[0].session.persistent:
            waits.append(self.notes.written(seconds))
        found = [each for each in waits if each is not None]
        return asyncio.gather(*found) if found else None

    def on_subscribed(self, subscription: Subscription) -> None:
        """Let the parts know of a subscription."""
        for part in self.parts:
            part.subscribed(subscription)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        """Let the parts know that one has ended."""
        for part in self.parts:
            part.unsubscribed(subscription)

    def concerns(self, topic: str) -> bool:
        """Topics that another node wants."""
        wanting = self.announcing.wanting(topic)
        return bool(wanting.nodes or wanting.groups)

    def on_publish(self, message: Message) -> bool | None:
        """Hold a message for the best receivers until all nodes have named theirs."""
        return self.top.hold(message)

    def on_retain(self, message: Message) -> bool | None:
        """Stamp a retained message, and send it to nodes that nobody subscribed on too."""
        return self.forwarding.retain(message)

    def select(self, message: Message, selection: Selection) -> None:
        """Forward a message to the nodes that want it; choose a node for each shared subscription."""
        self.forwarding.select(message, selection)
