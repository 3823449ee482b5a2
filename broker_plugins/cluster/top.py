"""`top:K` over all nodes: a message for the best receivers waits until every node has named its own.

The node it is published on asks those that want the topic whom they would serve, each names its best, and the best of
all are served: each node is told how many of those it named. A publisher's later messages to the topic wait behind.
"""

from __future__ import annotations

import itertools
import logging
import time
from asyncio import gather
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.cluster.best import best_of
from broker_plugins.cluster.convergence import FROM, message_of
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.wire import AskBest, Best, WireError, decode, encode
from broker_plugins.grammar import NO_CLAUSES, GrammarError, parse_filter, parse_topic
from broker_plugins.ranked.choice import Verdict
from broker_plugins.ranked.plugin import RankedPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from broker_plugins.cluster.announcing import Announcing
    from broker_plugins.cluster.best import Candidate
    from broker_plugins.cluster.forwarding import Forwarding
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.overlay import Overlay
    from broker_plugins.cluster.wire import Frame
    from broker_plugins.engine import Message
    from broker_plugins.engine.hooks import Hooks
    from broker_plugins.engine.session import Session
    from broker_plugins.ranked.choice import Choice

    Key = tuple[Session | None, str]

log = logging.getLogger(__name__)

MOST_NAMED: Final = 10_000
"""Receivers that a node names at the most; a message for more of them is cut on each node for itself."""
MOST_KEPT: Final = 1_024
KEPT_S: Final = 30.0
"""How many answers a node keeps in mind, and for how long, until it is told how many of those it named are served."""


class _Held:
    """A message that waits."""

    __slots__ = ("decide", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.decide: Callable[[], None] | None = None
        """Set when it can go on: says who gets it."""


class TopK(Part):
    """Finds the best receivers in the whole cluster.

    Args:
        node: this node.
        announcing: which filters each node holds.
        overlay: which contents each node wants.
    """

    def __init__(self, node: Node, announcing: Announcing, overlay: Overlay) -> None:
        super().__init__(node)
        self._announcing = announcing
        self._overlay = overlay
        self._ranked: RankedPlugin | None = None
        self._tokens = itertools.count(node.incarnation << 20)
        self._held: dict[Key, deque[_Held]] = {}
        self._busy: set[Key] = set()
        self._waiting = 0
        self._kept: dict[tuple[str, int], tuple[float, Choice]] = {}
        self.ordered: Callable[[str], object | None] = _unordered
        """Tells whether the messages of a topic go to all nodes in an order of their own: these are cut on each."""

    def start(self, plugin: Hooks, forwarding: Forwarding) -> None:
        """Take part in what is published here.

        Args:
            plugin: which `on_publish` calls `hold`.
            forwarding: how messages go to other nodes.
        """
        self._plugin = plugin
        self._forwarding = forwarding

    def recovered(self) -> None:
        """Find who ranks receivers here."""
        plugins = self.node.engine.hooks.plugins
        self._ranked = next((plugin for plugin in plugins if isinstance(plugin, RankedPlugin)), None)

    # On the node a message is published on.

    def hold(self, message: Message) -> bool | None:
        """False if a message waits: for the other nodes to name their best, or for another one before it."""
        ranked = self._ranked
        if ranked is None or message.volatile or (message.properties is not None and FROM in message.properties):
            return None
        key = (message.sender, message.topic)
        top, reply = ranked.wishes(message)
        queue = self._held.get(key)
        nodes: list[str] = []
        if (top is not None and top <= MOST_NAMED) or (top is None and reply is not None):
            nodes = self._to_ask(message)
        if queue is None and not nodes:
            return None
        if self._waiting >= self.node.options.max_top_waiting and not message.qos:
            self.node.counters.top_dropped += 1
            self.node.engine.dropped(None, message, "top_dropped")
            return False
        held = _Held(message)
        self._waiting += 1
        message.owe()
        if queue is None:
            queue = self._held[key] = deque()
        queue.append(held)
        if nodes:
            selection = self.node.engine.gather(message)
            choice = ranked.choose(message, selection, top)
            self.node.work(self._ask(key, held, choice, nodes, top))
        else:
            held.decide = _nothing
            self._go_on(key)
        return False

    def _to_ask(self, message: Message) -> list[str]:
        """The nodes that may have receivers for a message."""
        if self.ordered(message.topic) is not None or not self.node.fabric.ready:
            return []
        wanting = self._announcing.wanting(message.topic)
        useless = self._overlay.without_use(message)
        nodes = dict.fromkeys(node for node in wanting.nodes if node not in useless)
        for group in wanting.groups.values():
            nodes |= dict.fromkeys(group)
        alive = [node for node in nodes if self.node.members.is_alive(node)]
        self.node.counters.top_silent += len(nodes) - len(alive)
        return alive

    async def _ask(self, key: Key, held: _Held, choice: Choice, nodes: list[str], top: int | None) -> None:
        token = next(self._tokens)
        question = encode(AskBest(self.node.name, token, self._forwarding.frame(held.message), top or 0))
        answers = await gather(*(self._answer(node, question) for node in nodes))
        named = {node: answer for node, answer in zip(nodes, answers, strict=True) if answer is not None}
        named[self.node.name] = self._named(choice, top)
        held.decide = lambda: self._decide(held.message, token, choice, named, top)
        self._go_on(key)

    async def _answer(self, node: str, question: bytes) -> Best | None:
        self.node.counters.top_asked += 1
        try:
            return decode(await self.node.fabric.ask(node, question, self.node.options.top_answer_s), Best)
        except (*FAULTS, WireError) as error:
            self.node.counters.top_silent += 1
            log.debug("node %s does not say whom it would serve; its receivers are left out: %s", node, error)
            return None

    def _decide(self, message: Message, token: int, choice: Choice, named: dict[str, Best], top: int | None) -> None:
        """Say who gets a message, here and on the other nodes."""
        name = self.node.name
        found = {node: best.found for node, best in named.items()}
        decision = best_of(found, top, self._turn)
        chosen: dict[str, tuple[tuple[int, int] | None, list[str]]] = {}
        for node, best in named.items():
            count, groups = decision.counts[node], decision.groups[node]
            if node != name and (count or groups or message.retain or (top is None and best.count)):
                chosen[node] = ((token, -1 if top is None else count), groups)
        for node in self._forwarding.targets(message):
            if node not in chosen and top is None and node not in named:
                chosen[node] = (None, [])  # it gets it as any other message
            elif node not in chosen and message.retain:
                chosen[node] = ((token, 0), [])
        self._forwarding.decided[message] = chosen
        total = len(decision.ranking)
        if top is None:
            total += sum(best.count - len(best.found) for best in named.values())
        ranking = [(accuracy, client, self._share(text)) for accuracy, _, client, text in decision.ranking]
        most = None if top is None else decision.counts[name]
        assert self._ranked is not None
        self._ranked.decided(message, Verdict(most, decision.groups[name], choice, ranking, total))

    def _share(self, text: str) -> str:
        """The name of a shared group, by the whole text of its filter."""
        try:
            return (parse_filter(text, self.node.engine.space).share or "") if text else ""
        except GrammarError:
            return text  # of a node with another space

    def _turn(self, group: str, nodes: list[str]) -> str:
        name = self.node.name
        others = [node for node in nodes if node != name]
        return self._forwarding.choose(group, others, name if name in nodes else None) or name

    def _go_on(self, key: Key) -> None:
        """Publish what need not wait any longer, one after the other."""
        queue = self._held.get(key)
        if queue is None or key in self._busy:
            return
        if not queue:
            del self._held[key]
            return
        held = queue[0]
        if held.decide is None:
            return
        queue.popleft()
        self._busy.add(key)
        message = held.message
        held.decide()

        def done() -> None:
            self._waiting -= 1
            self._busy.discard(key)
            store = self.node.engine.store
            if message.qos and store is not None:
                store.when_safe(_settle, message)
            else:
                message.settle()
            self._forwarding.decided.pop(message, None)
            # Not at once: a long queue would become as deep a call.
            self.node.engine.loop.call_soon(self._go_on, key)

        self.node.engine.resume(message, self._plugin, done)

    # On the nodes that are asked.

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """Whom this node would serve."""
        return {AskBest: self._on_question}

    def _on_question(self, question: AskBest) -> Best:
        ranked = self._ranked
        if ranked is None:
            return Best([], 0)
        engine = self.node.engine
        message = message_of(question.frame, question.origin)
        message.sequence = engine.sequence
        if question.frame.clauses:
            try:
                message.clauses = parse_topic(question.frame.clauses, engine.space)[1]
            except GrammarError as error:
                log.warning("clauses from node %s cannot be read: %s", question.origin, error)
        choice = ranked.choose(message, engine.gather(message), question.most or None)
        while len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[question.origin, question.token] = (time.monotonic(), choice)
        return self._named(choice, question.most or None)

    def _named(self, choice: Choice, top: int | None) -> Best:
        assert self._ranked is not None
        options = self._ranked.options
        most = min(top or options.max_receipt_receivers, MOST_NAMED)
        found: list[Candidate] = []
        for at, ((accuracy, each), age) in enumerate(zip(choice.chosen, choice.ages, strict=True)):
            if at >= most and each.share is None:
                continue  # all groups are named: one node serves each
            client = each.session.client_id if options.name_receivers else ""
            found.append((accuracy, age, client, each.text if each.share is not None else ""))
        return Best(found, len(choice.chosen))

    def take(self, message: Message, frame: Frame, origin: str) -> bool:
        """Serve those of whom it was decided."""
        if frame.chosen is not None and self._ranked is not None:
            token, count = frame.chosen
            kept = self._kept.pop((origin, token), None)
            most = None if count < 0 else count
            self._ranked.decided(message, Verdict(most, frame.groups, None if kept is None else kept[1]))
            if message.clauses is None:
                message.clauses = NO_CLAUSES  # so that who ranks receivers sees it on any topic
        return True

    async def beat(self) -> None:
        """Forget what nobody will come back to."""
        before = time.monotonic() - KEPT_S
        for key in [key for key, (since, _) in self._kept.items() if since < before]:
            del self._kept[key]


def _nothing() -> None:
    """Nothing was to be decided."""


def _unordered(_: str) -> None:
    """No topic is."""


def _settle(message: Message) -> None:
    message.settle()
