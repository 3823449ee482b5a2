"""Messages: those published here go to the nodes that want them, those of other nodes to this node's clients."""

from __future__ import annotations

import itertools
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from broker_plugins.cluster.convergence import FROM, is_shared, kept_properties, message_of, stamp_of
from broker_plugins.cluster.lanes import Lane
from broker_plugins.cluster.progress import Progress
from broker_plugins.cluster.wire import DURABLE, Batch, Frame, WireError, decode
from broker_plugins.engine.work import drive
from broker_plugins.grammar import GrammarError, build_topic, parse_topic
from broker_plugins.telemetry.routes import RouteNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from broker_plugins.cluster.announcing import Announcing
    from broker_plugins.cluster.causal_groups import CausalGroups
    from broker_plugins.cluster.causal_members import Group
    from broker_plugins.cluster.convergence import Convergence
    from broker_plugins.cluster.node import Node, Part
    from broker_plugins.engine import Message, Selection

log = logging.getLogger(__name__)

GROUPS = "groups"
MAX_GROUPS = 65_536
DRAIN_S = 2.0


class Forwarding:
    """Carries messages from node to node.

    Args:
        node: this node.
        announcing: who wants what.
        parts: those that decide where a message goes, and when one that came is published.
        convergence: the retained messages.
        order: the causal groups.
        saw: told of every message that came, by the node it was published on and its number there.
    """

    def __init__(
        self,
        node: Node,
        announcing: Announcing,
        parts: Sequence[Part],
        convergence: Convergence,
        order: CausalGroups,
        saw: Callable[[str, int], None],
    ) -> None:
        self._node = node
        self._announcing = announcing
        self._routing = [part.route for part in parts]
        self._taking = [part.take for part in parts]
        self._convergence = convergence
        self._order = order
        self._saw = saw
        self.routes = RouteNotes(node.engine.hooks.plugins)
        self.progress = Progress()
        self._numbers = itertools.count(node.incarnation << 20)
        self._lanes: dict[str, Lane] = {}
        self._turns: dict[str, int] = {}
        self.decided: dict[Message, dict[str, tuple[tuple[int, int] | None, list[str]]]] = {}
        """Messages about to be published of which it is decided already to which nodes they go: see `Frame.chosen`, and
        the shared filters that are served there."""

    # Out.

    def retain(self, message: Message) -> bool | None:
        """Stamp a retained message, and send it to nodes that nobody subscribed on too."""
        if not is_shared(message):
            return None
        newer = self._convergence.keep(message)
        if message.properties is None or FROM not in message.properties:
            wanted = self.targets(message)
            frame = self.frame(message)
            for node in self._node.members.known():
                if node not in wanted:
                    self.send(node, frame, message)
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
        if self.decided:
            decided = self.decided.pop(message, None)
            if decided is not None:
                for node, (which, groups) in decided.items():
                    frame = self.frame(message, groups)
                    frame.chosen = which
                    self.send(node, frame, message)
                return
        assigned: dict[str, list[str]] = {}
        for group, nodes in self._announcing.wanting(message.topic).groups.items():
            here = next((key for key in selection.groups if key[1] == group), None)
            chosen = self.choose(group, [node for node in nodes if self._reachable(node, nodes[node], message)], here)
            if chosen is not None:
                assigned.setdefault(chosen, []).append(group)
                if here is not None:
                    del selection.groups[here]
        targets = self.targets(message)
        causal = self._order.group_of(message.topic)
        if causal is not None:
            self._send_ordered(causal, message, targets, assigned)
            return
        for route in self._routing:
            targets = route(message, targets)
        plain: Frame | None = None
        for node in targets:
            if node not in assigned:
                plain = plain or self.frame(message)
                self.send(node, plain, message)
        for node, groups in assigned.items():
            self.send(node, self.frame(message, groups), message)

    def _send_ordered(
        self, causal: Group, message: Message, targets: dict[str, int], assigned: dict[str, list[str]]
    ) -> None:
        """Send a message of a causal group, to each node with what must come before it there.

        It goes to all that want the topic, straight, whatever is in it: who has heard of it is part of the order. A
        node that is not there now would have it too late.
        """
        nodes = [node for node in {**targets, **assigned} if self._node.members.is_alive(node)]
        controls = self._order.stamp(causal, message, nodes)
        frame = self.frame(message)
        for node in nodes:
            copy = msgspec.structs.replace(frame, groups=assigned.get(node, []), causal=controls.get(node, b""))
            self.send(node, copy, message)

    def choose(self, group: str, nodes: list[str], here: object) -> str | None:
        """The node whose turn it is to serve a shared subscription; None for this one."""
        candidates: list[str | None] = [*sorted(nodes)]
        if here is not None:
            candidates.append(None)
        if not candidates:
            return None
        turn = self._turns.get(group, -1) + 1
        if len(self._turns) >= MAX_GROUPS:
            self._turns.clear()
        self._turns[group] = turn
        return candidates[turn % len(candidates)]

    def _reachable(self, node: str, state: int, message: Message) -> bool:
        return self._node.members.is_alive(node) or (state == DURABLE and message.qos > 0)

    def targets(self, message: Message) -> dict[str, int]:
        """The nodes that want a message and can be reached."""
        nodes = self._announcing.wanting(message.topic).nodes
        return {node: state for node, state in nodes.items() if self._reachable(node, state, message)}

    def frame(self, message: Message, groups: list[str] | None = None) -> Frame:
        """A message as it travels."""
        frame = Frame(message.topic, message.payload, message.qos, message.retain, groups=groups or [])
        frame.number = self._node.number(message.sequence)
        if message.clauses is not None:
            try:
                frame.clauses = build_topic(message.topic, message.clauses, self._node.engine.space)
            except (GrammarError, ValueError) as error:
                log.warning("the clauses of a message to %r do not travel: %s", message.topic, error)
        if message.retain:
            frame.stamp, frame.properties = stamp_of(message), kept_properties(message)
        return frame

    def send(self, node: str, frame: Frame, message: Message) -> None:
        """Let a message go to a node; its publisher is acknowledged when it is safe there."""
        if message.weight:
            via = "region" if node in self._announcing.wanting(message.topic).local else "filter"
            self.routes.sent(message, node, via)
        self._lane(node).send(frame, message)

    def mark(self, node: str, token: int) -> None:
        """Let a mark follow all that is on its way to a node, by mail and without."""
        lane = self._lane(node)
        for qos in (0, 1):
            lane.mark(Frame("", b"", qos, retain=False, number=token))

    async def flush(self, seconds: float) -> None:
        """Wait until the fabric has what was published here so far and goes without mail; the bound is for all."""
        deadline = time.monotonic() + seconds
        for lane in self._lanes.values():
            await lane.flush(deadline - time.monotonic())
        await self._node.fabric.flush(max(0.01, deadline - time.monotonic()))

    def _lane(self, node: str) -> Lane:
        lane = self._lanes.get(node)
        if lane is None:
            here = self._node
            lane = self._lanes[node] = Lane(here.fabric, node, here.counters, here.engine.store, self._numbers)
        return lane

    def restore(self) -> None:
        """Send what waited on disk when this node stopped."""
        store = self._node.engine.store
        for number, peer, batch in store.rows("outbox") if store is not None else ():
            self._lane(peer).restore(number, batch)

    def forget(self, node: str) -> None:
        """Nothing more is sent to a node."""
        lane = self._lanes.pop(node, None)
        if lane is not None:
            lane.abandon()

    async def close(self) -> None:
        """Send what is still to be sent, and stop."""
        deadline = time.monotonic() + DRAIN_S
        for lane in self._lanes.values():
            lane.store = None  # it is closed
        for lane in self._lanes.values():
            if self._node.fabric.ready:
                await lane.drain(deadline - time.monotonic())
            lane.close()

    # In.

    async def take_bytes(self, data: bytes) -> None:
        """A batch came by mail."""
        try:
            await self.take(decode(data, Batch))
        except WireError as error:
            self._node.counters.unreadable += 1
            log.warning("a batch in the mailbox is left out: %s", error)

    async def take(self, batch: Batch) -> None:
        """Publish the messages of another node to this node's clients, in order; they go no further.

        Without access control this does not wait, so that all of it is in one group of the store.
        """
        for frame, message in self._messages(batch):
            for take in self._taking:
                if not take(message, frame, batch.origin):
                    self.progress.put_off(batch.origin, frame.number, message)
                    break
            else:
                await self.publish(message)
            self.progress.reached(batch.origin, frame.qos > 0, frame.number)

    async def take_relayed(self, origin: str, frame: Frame) -> None:
        """Publish a message that another node passed on, as if it had come from where it was published."""
        for each, message in self._messages(Batch(origin, [frame])):
            if all(take(message, each, origin) for take in self._taking):
                await self.publish(message)

    async def publish(self, message: Message) -> None:
        """Publish a message of another node here; waits only where access control does."""
        engine = self._node.engine
        if engine.guard is None:
            engine.publish(message)
        else:
            done = engine.loop.create_future()
            drive(engine.loop, engine.publish_guarded(message), partial(done.set_result, None))
            await done

    def _messages(self, batch: Batch) -> Iterator[tuple[Frame, Message]]:
        for frame in batch.frames:
            if not frame.topic:
                self.progress.marked(batch.origin, frame.qos > 0, frame.number)
                continue
            self._node.counters.received += 1
            if frame.stamp is not None and self._convergence.ledger.stamp(frame.topic) == frame.stamp:
                continue  # a repair was faster
            message = message_of(frame, batch.origin)
            if frame.groups:
                assert message.properties is not None
                message.properties[GROUPS] = frame.groups
            if frame.clauses:
                try:
                    message.clauses = parse_topic(frame.clauses, self._node.engine.space)[1]
                except GrammarError as error:
                    log.warning("clauses from node %s cannot be read: %s", batch.origin, error)
            self._saw(batch.origin, frame.number)
            yield frame, message
