"""The cluster plugin: what is published on one node reaches whoever wants it on the others, once."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_plugins.cluster.convergence import FROM, Convergence, is_shared, kept_properties, message_of, stamp_of
from broker_plugins.cluster.fabric import Fabric
from broker_plugins.cluster.hybrid_clock import HybridClock
from broker_plugins.cluster.interest import OtherWishes, OwnWishes, Wanting
from broker_plugins.cluster.lanes import Lane
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.mailbox import Mailbox
from broker_plugins.cluster.members import Members
from broker_plugins.cluster.moving import Moving
from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
from broker_plugins.cluster.server import NatsServer
from broker_plugins.cluster.wire import (
    DURABLE,
    AskBuckets,
    AskRetained,
    AskSession,
    AskWishes,
    Batch,
    Delta,
    Frame,
    Hello,
    Question,
    WireError,
    decode,
    encode,
)
from broker_plugins.engine import Plugin
from broker_plugins.engine.work import drive
from broker_plugins.grammar import GrammarError, build_topic, parse_topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from amqtt.broker import BrokerContext
    from nats.aio.msg import Msg

    from broker_plugins.engine import Message, Selection, Subscription
    from broker_plugins.engine.codec import Connect
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

GROUPS = "groups"
WISHES = "wishes."
REPAIR_S = 3.0
MAX_TOPICS = 65_536
DRAIN_S = 2.0
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
        self.incarnation = time.time_ns() // 1_000_000
        self.own = OwnWishes(self.options.node, self.incarnation)
        self.others = OtherWishes()
        self.members = Members(self.options.lease_s, self.options.away_s)
        self._clock = HybridClock(lambda: time.time_ns() // 1_000_000)
        self._numbers = itertools.count(self.incarnation << 20)
        self._lanes: dict[str, Lane] = {}
        self._wanting: dict[str, Wanting] = {}
        self._turns: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._announcing = False
        self._remembered = -1
        self._informed = asyncio.Event()
        self._server: NatsServer | None = None

    # The life of the broker.

    def start(self, engine: Engine) -> None:
        """Begin to look for the fabric; clients are served meanwhile."""
        self._engine = engine
        options = self.options
        if options.embedded:
            self._server = NatsServer(options.embedded_port, Path(options.embedded_dir))
            self._server.start()
        self.fabric = Fabric(
            options,
            self.incarnation,
            {
                "hello": self._heard(Hello, self._on_hello),
                "wishes": self._heard(Delta, self._on_delta),
                f"node.{options.node}": self._heard(Batch, self._take),
                f"ask.{options.node}": self._on_question,
            },
            self._joined,
        )
        self.convergence = Convergence(engine, options.node, self._clock, options.max_removals, self.counters)
        self.moving = Moving(engine, self.fabric, self.members, self.counters, self._number)
        self._mailbox = Mailbox(self.fabric, engine.store, self.counters, self._take_bytes)
        engine.loop.call_soon(self._recovered)

    def _recovered(self) -> None:
        """Sessions and retained messages are loaded: now there is something to tell."""
        self.convergence.load()
        store = self._engine.store
        for number, peer, batch in store.rows("outbox") if store is not None else ():
            self._lane(peer).restore(number, batch)
        self._work(self.fabric.run())
        self._work(self._mailbox.run())
        self._work(self._beat())

    def _work(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._engine.loop.create_task(coroutine)
        self._tasks.append(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("the cluster plugin failed", exc_info=task.exception())

    async def on_broker_post_shutdown(self) -> None:
        """Send what is still to be sent, leave the fabric, and stop a server of our own."""
        deadline = time.monotonic() + DRAIN_S
        for lane in self._lanes.values():
            lane.store = None  # it is closed
        for lane in self._lanes.values():
            if self.fabric.ready:
                await lane.drain(deadline - time.monotonic())
            lane.close()
        for task in list(self._tasks):
            task.cancel()
        await self.fabric.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)

    async def _joined(self) -> None:
        """The fabric is there: learn what the others want before clients of this node publish."""
        await self._say_hello()
        leased = [node for node in await self.fabric.leased() if node != self.options.node]
        await asyncio.gather(*(self._resync(node) for node in leased))
        known = self.others.nodes()
        for key in await self.fabric.directory_keys():
            node = key.removeprefix(WISHES)
            if key.startswith(WISHES) and node != self.options.node and node not in known:
                value, _ = await self.fabric.directory_get(key)
                if value:
                    self.members.expect(node)
                    self._changed(self.others.replace(decode(value, Delta)))
        self._informed.set()

    async def _remember(self) -> None:
        """Keep in the directory what others are to send here while this node is away."""
        if self._remembered != self.own.version:
            version, value = self.own.version, encode(self.own.durable(), squeeze=True)
            await self.fabric.directory_change(WISHES + self.options.node, lambda _: value)
            self._remembered = version

    # Signs of life.

    async def _beat(self) -> None:
        while True:
            try:
                if self.fabric.ready:
                    engine = self._engine
                    await self._say_hello()
                    await self.fabric.renew(
                        len(engine.connections), engine.subscription_count, len(self.own) + len(self.others)
                    )
                    await self._remember()
                    await self._mailbox.tidy()
                    await self._repair()
            except (*FAULTS, WireError) as error:
                log.debug("beat: %s: %s", type(error).__name__, error)
            for node in self.members.forgotten():
                self._forget(node)
            await asyncio.sleep(self.options.hello_s)

    async def _say_hello(self) -> None:
        hello = Hello(self.options.node, self.incarnation, self.own.version, self.convergence.ledger.digest)
        await self.fabric.publish(self.fabric.subject("hello"), encode(hello))

    async def _on_hello(self, hello: Hello) -> None:
        if hello.node == self.options.node:
            return
        came = self.members.heard(hello)
        if came:
            log.info("node %s is there", hello.node)
            await self._say_hello()
        if not self.others.is_current(hello.node, hello.incarnation, hello.version):
            self._work(self._resync(hello.node))

    async def _resync(self, node: str) -> None:
        if not self.members.ask(node):
            return
        self.counters.resyncs += 1
        try:
            answer = await self.fabric.ask(node, encode(AskWishes()))
            self._changed(self.others.replace(decode(answer, Delta)))
        except (*FAULTS, WireError) as error:
            log.debug("node %s does not say its filters: %s", node, error)
        finally:
            self.members.answered(node)

    async def _repair(self) -> None:
        for node in self.members.differing(self.convergence.ledger.digest, REPAIR_S):
            await self.convergence.repair(self.fabric, node)

    def _forget(self, node: str) -> None:
        log.info("node %s has been gone for %g s and is forgotten", node, self.options.away_s)
        self._changed(self.others.forget(node))
        lane = self._lanes.pop(node, None)
        if lane is not None:
            lane.abandon()

    # Filters.

    def on_subscribed(self, subscription: Subscription) -> None:
        """Announce a filter that is new on this node."""
        if not subscription.inner.startswith("$"):
            self.own.add(subscription.inner, _group(subscription), subscription.session.persistent)
            self._announce_soon()

    def on_unsubscribed(self, subscription: Subscription) -> None:
        """Announce a filter that this node does not hold any more."""
        if not subscription.inner.startswith("$"):
            self.own.remove(subscription.inner, _group(subscription), subscription.session.persistent)
            self._announce_soon()

    def _announce_soon(self) -> None:
        if not self._announcing:
            self._announcing = True
            self._engine.loop.call_soon(self._announce)

    def _announce(self) -> None:
        self._announcing = False
        delta = self.own.delta()
        if delta is not None and self.fabric.ready:
            self._work(self.fabric.publish(self.fabric.subject("wishes"), encode(delta)))

    async def _on_delta(self, delta: Delta) -> None:
        if delta.node == self.options.node:
            return
        changed = self.others.apply(delta)
        if changed is None:
            self._work(self._resync(delta.node))
        else:
            self._changed(changed)

    def _changed(self, inners: list[str]) -> None:
        if inners:
            self._wanting.clear()
        for inner in set(inners):
            self._engine.forget_routes(inner)

    def _wanted(self, topic: str) -> Wanting:
        wanting = self._wanting.get(topic)
        if wanting is None:
            if len(self._wanting) >= MAX_TOPICS:
                self._wanting.clear()
            wanting = self._wanting[topic] = self.others.wanting(topic)
        return wanting

    # Messages out.

    def concerns(self, topic: str) -> bool:
        """Topics that another node wants."""
        wanting = self._wanted(topic)
        return bool(wanting.nodes or wanting.groups)

    def on_retain(self, message: Message) -> bool | None:
        """Stamp a retained message, and send it to nodes that nobody subscribed on too."""
        if not is_shared(message):
            return None
        newer = self.convergence.keep(message)
        if message.properties is None or FROM not in message.properties:
            wanted = self._targets(message, {})
            frame = self._frame(message, [])
            for node in self.members.known():
                if node not in wanted:
                    self._lane(node).send(frame, message)
        return newer

    def select(self, message: Message, selection: Selection) -> None:
        """Forward a message to the nodes that want it; choose a node for each shared subscription."""
        properties = message.properties
        if properties is not None and FROM in properties:
            allowed = properties.get(GROUPS, ())
            selection.groups = {key: members for key, members in selection.groups.items() if key[1] in allowed}
            return
        if message.volatile or message.topic.startswith("$"):
            return
        assigned: dict[str, list[str]] = {}
        for group, nodes in self._wanted(message.topic).groups.items():
            here = next((key for key in selection.groups if key[1] == group), None)
            chosen = self._choose(group, [node for node in nodes if self._reachable(node, nodes[node], message)], here)
            if chosen is not None:
                assigned.setdefault(chosen, []).append(group)
                if here is not None:
                    del selection.groups[here]
        plain: Frame | None = None
        for node in self._targets(message, assigned):
            groups = assigned.get(node)
            if groups:
                self._lane(node).send(self._frame(message, groups), message)
            else:
                plain = plain or self._frame(message, [])
                self._lane(node).send(plain, message)

    def _choose(self, group: str, nodes: list[str], here: object) -> str | None:
        """The node whose turn it is to serve a shared subscription; None for this one."""
        candidates: list[str | None] = [*sorted(nodes)]
        if here is not None:
            candidates.append(None)
        if not candidates:
            return None
        turn = self._turns.get(group, -1) + 1
        if len(self._turns) >= MAX_TOPICS:
            self._turns.clear()
        self._turns[group] = turn
        return candidates[turn % len(candidates)]

    def _reachable(self, node: str, state: int, message: Message) -> bool:
        return self.members.is_alive(node) or (state == DURABLE and message.qos > 0)

    def _targets(self, message: Message, assigned: dict[str, list[str]]) -> dict[str, None]:
        nodes = self._wanted(message.topic).nodes
        found = {node: None for node, state in nodes.items() if self._reachable(node, state, message)}
        found.update(dict.fromkeys(assigned))
        return found

    def _frame(self, message: Message, groups: list[str]) -> Frame:
        frame = Frame(message.topic, message.payload, message.qos, message.retain, groups=groups)
        frame.number = self._number(message.sequence)
        if message.clauses is not None:
            try:
                frame.clauses = build_topic(message.topic, message.clauses, self._engine.space)
            except (GrammarError, ValueError) as error:
                log.warning("the clauses of a message to %r do not travel: %s", message.topic, error)
        if message.retain:
            frame.stamp, frame.properties = stamp_of(message), kept_properties(message)
        return frame

    def _number(self, sequence: int) -> int:
        """What tells a message from all others that were ever published on this node."""
        return (self.incarnation // 1000 << 32) + sequence

    def _lane(self, node: str) -> Lane:
        lane = self._lanes.get(node)
        if lane is None:
            lane = self._lanes[node] = Lane(self.fabric, node, self.counters, self._engine.store, self._numbers)
        return lane

    # Messages in.

    async def _take_bytes(self, data: bytes) -> None:
        try:
            await self._take(decode(data, Batch))
        except WireError as error:
            self.counters.unreadable += 1
            log.warning("a batch in the mailbox is left out: %s", error)

    async def _take(self, batch: Batch) -> None:
        """Publish the messages of another node to this node's clients, in order; they go no further.

        Without access control this does not wait, so that all of it is in one group of the store.
        """
        for message in self._messages(batch):
            if self._engine.guard is None:
                self._engine.publish(message)
            else:
                done = self._engine.loop.create_future()
                drive(self._engine.loop, self._engine.publish_guarded(message), partial(done.set_result, None))
                await done

    def _messages(self, batch: Batch) -> Iterator[Message]:
        for frame in batch.frames:
            self.counters.received += 1
            if frame.stamp is not None and self.convergence.ledger.stamp(frame.topic) == frame.stamp:
                continue  # a repair was faster
            message = message_of(frame, batch.origin)
            if frame.groups:
                assert message.properties is not None
                message.properties[GROUPS] = frame.groups
            if frame.clauses:
                try:
                    message.clauses = parse_topic(frame.clauses, self._engine.space)[1]
                except GrammarError as error:
                    log.warning("clauses from node %s cannot be read: %s", batch.origin, error)
            self.moving.saw(batch.origin, frame.number)
            yield message

    def _heard(self, kind: type[Any], handle: Callable[[Any], Awaitable[None]]) -> Callable[[Msg], Awaitable[None]]:
        async def heard(msg: Msg) -> None:
            try:
                value = decode(bytes(msg.data), kind)
            except WireError as error:
                self.counters.unreadable += 1
                log.warning("on %s: %s", msg.subject, error)
                return
            await handle(value)

        return heard

    async def _on_question(self, msg: Msg) -> None:
        try:
            question: Any = decode(bytes(msg.data), Question)  # type: ignore[arg-type]  # a union
        except WireError as error:
            self.counters.unreadable += 1
            log.warning("a question: %s", error)
            return
        if isinstance(question, AskWishes):
            await msg.respond(encode(self.own.snapshot(), squeeze=True))
        elif isinstance(question, AskBuckets):
            await msg.respond(encode(self.convergence.buckets()))
        elif isinstance(question, AskRetained):
            await msg.respond(encode(self.convergence.answer(question), squeeze=True))
        elif isinstance(question, AskSession):
            await msg.respond(encode(self.moving.let_go(question), squeeze=True))

    # Clients.

    def on_connecting(self, connect: Connect) -> Awaitable[None] | None:
        """Ask the other nodes to let go of a client before it gets its session here."""
        if not self._informed.is_set():
            return self._claim_informed(connect)
        return self.moving.claim(connect)

    async def _claim_informed(self, connect: Connect) -> None:
        try:
            await asyncio.wait_for(self._informed.wait(), INFORMED_S)
        except TimeoutError:
            self._informed.set()
        claim = self.moving.claim(connect)
        if claim is not None:
            await claim

    def on_session_ended(self, session: Session) -> None:
        """Forget where a session came from or went to."""
        self.moving.ended(session)


def _group(subscription: Subscription) -> str:
    return subscription.text if subscription.share is not None else ""
