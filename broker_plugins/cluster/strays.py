"""Messages that come to a node whose client has left: a node that was cut off did not know where it went.

Such a node goes on acknowledging what its clients publish, and keeps it for the nodes that wanted it when it was last
told. If a session moves meanwhile, what was kept for its former node comes there too late. So a node remembers the
sessions that left while another node was silent, with their filters. What comes from that node for them, at QoS 1 and
2, it sends after them; where the session is now, it is seen to that it has everything once. When the silent node is
back and knows who wants what, it lets a mark follow what it had kept: then all of it has come.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from broker_plugins.cluster.convergence import message_of
from broker_plugins.cluster.node import Part
from broker_plugins.cluster.wire import AskMoving, AskStrays, MovedSession
from broker_plugins.engine.tree import FilterTree
from broker_plugins.grammar import GrammarError, parse_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import msgspec

    from broker_plugins.cluster.moving import Moving
    from broker_plugins.cluster.node import Node
    from broker_plugins.cluster.wire import Frame
    from broker_plugins.engine import Message, Subscription
    from broker_plugins.engine.session import Session

log = logging.getLogger(__name__)

Key = TypeVar("Key")
Value = TypeVar("Value")

SILENT_BEATS = 2.5
"""A node from which so many signs of life are missing may be cut off."""
QUIET_BEATS = 1.5
"""Of one from which so many are missing it is noted what comes, because another node may take it for cut off."""
KNOWS_BEATS = 2
"""After so many it knows again who wants what: it has been told, or has seen that it was not."""
MARK_S = 120.0
"""How long what a node had kept may take to come when it is back."""
AFTER_S = 30.0
"""How long it is still known what has come from it, for what others send after sessions."""
CAME_S = 4.0
ANSWER_S = 12.0
AT_ONCE = 200
MOST_GONE = 10_000
"""Sessions that left and are remembered, for all silent nodes together."""
MOST_STRAYS = 20_000
"""Messages that are to be sent after sessions."""
MOST_SEEN = 100_000
"""Messages of one node of which it is known that they came."""
MOST_TOLD = 5_000
"""Of these, what another node is told when a session moves."""


def _note(into: dict[Key, Value], key: Key, value: Value) -> None:
    """Remember something, and forget the oldest if it is too much."""
    into.pop(key, None)
    into[key] = value
    if len(into) > MOST_SEEN:
        del into[next(iter(into))]


class _Silent:
    """A node that is silent, or was until just now."""

    def __init__(self) -> None:
        self.gone: dict[str, list[str]] = {}
        """Clients that left this node meanwhile, with their filters."""
        self.filters: FilterTree[str] = FilterTree()
        self.came: dict[str, int] = {}
        """Clients whose sessions came here meanwhile, with how many messages there were then in the following."""
        self.seen: dict[int, int] = {}
        """What has come from it since, and when in a row."""
        self.given: dict[str, dict[int, None]] = {}
        """What clients have had besides: it was sent after their sessions, or came where these were before."""
        self.row = itertools.count()
        self.last = -1
        self.keeps = False
        """Whether it was silent for so long that it may keep something for this node that has not come yet."""

    def saw(self, number: int) -> None:
        self.last = next(self.row)
        _note(self.seen, number, self.last)

    def had(self, client_id: str, number: int) -> bool:
        """Whether a message came here when the session of a client was here, or was sent after it."""
        return number in self.given.get(client_id, ()) or self.seen.get(number, -1) > self.came.get(client_id, -1)

    def all_had(self, client_id: str) -> list[int]:
        """The latest messages that came here when the session was here, and those that were sent after it."""
        since = self.came.get(client_id, -1)
        seen = [number for number, at in self.seen.items() if at > since]
        return [*self.given.get(client_id, ()), *seen][-MOST_TOLD:]

    def give(self, client_id: str, number: int) -> None:
        _note(self.given.setdefault(client_id, {}), number, None)

    def forget_gone(self, client_id: str) -> None:
        for inner in self.gone.pop(client_id, ()):
            self.filters.remove(inner, client_id)


class Strays(Part):
    """Sends messages after sessions that have left.

    Args:
        node: this node.
        moving: sessions that come and go.
    """

    def __init__(self, node: Node, moving: Moving) -> None:
        super().__init__(node)
        self._moving = moving
        self._silent: dict[str, _Silent] = {}
        self._waiting: dict[str, deque[tuple[str, Frame]]] = {}
        """For each client what is to be sent after it, with the node it was published on."""
        self._count = 0
        self._sending = False
        self._since: dict[str, int] = {}
        """Clients whose sessions came here, with the number that a message published here had then."""
        moving.began = self._began
        moving.told = self.told

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], Any]]:
        """What was sent after a session that is here."""
        return {AskStrays: self._receive}

    # Sessions that come and go while a node is silent.

    def _began(self, client_id: str) -> None:
        """A session comes to this node."""
        _note(self._since, client_id, self.node.number(self.node.engine.sequence))
        for silent in self._silences(QUIET_BEATS).values():
            silent.forget_gone(client_id)
            _note(silent.came, client_id, silent.last)

    def watch(self, client_id: str) -> None:
        """A session goes on here without its former node: note what comes for it, whoever it is from."""
        self._silences(QUIET_BEATS, everybody=True)
        self._began(client_id)

    def departed(self, session: Session, *, everybody: bool = False) -> None:
        """A session has gone to another node: look for what comes from silent nodes, or from everybody for a while."""
        client_id = session.client_id
        self._since.pop(client_id, None)
        inners = [
            each.inner
            for each in session.subscriptions.values()
            if each.share is None and each.qos and not each.inner.startswith("$")
        ]
        self._note_silent(everybody)
        for silent in self._silent.values():
            silent.came.pop(client_id, None)
            silent.given.pop(client_id, None)
            silent.forget_gone(client_id)
            if not inners or not silent.keeps:
                continue
            while len(silent.gone) >= MOST_GONE:
                silent.forget_gone(next(iter(silent.gone)))
                self.node.counters.strays_dropped += 1
            silent.gone[client_id] = list(dict.fromkeys(inners))
            for inner in silent.gone[client_id]:
                silent.filters.add(inner, client_id)

    def subscribed(self, subscription: Subscription) -> None:
        """A client that came while the fabric was away has what is published here from its first subscription on."""
        client_id = subscription.session.client_id
        if client_id in self._moving.unclaimed and client_id not in self._since:
            self.watch(client_id)

    def all_had(self, client_id: str) -> list[tuple[str, list[int]]]:
        """What a session has had of the nodes that were silent."""
        found = [(name, silent.all_had(client_id)) for name, silent in self._silent.items()]
        return [(name, numbers) for name, numbers in found if numbers]

    def told(self, client_id: str, had: list[tuple[str, list[int]]]) -> None:
        """What a session that came has had where it was."""
        for name, numbers in had:
            for number in numbers:
                self._remember(name).give(client_id, number)

    def give(self, client_id: str, origin: str, number: int) -> None:
        """A session that is here has a message that did not come as others do."""
        self._remember(origin).give(client_id, number)

    def had(self, client_id: str, origin: str, number: int) -> bool:
        """Whether a session that is here has had a message."""
        if origin == self.node.name and self._had(client_id, number):
            return True
        silent = self._silent.get(origin)
        return silent is not None and silent.had(client_id, number)

    def _silences(self, beats: float, *, everybody: bool = False) -> dict[str, _Silent]:
        """What is remembered of the nodes that are silent now, or have not sent yet what they kept."""
        members = self.node.members
        for name in members.known() if everybody else members.silent(self.node.options.hello_s * beats):
            self._remember(name)
        return self._silent

    def _note_silent(self, everybody: bool = False) -> None:
        """Note which nodes may keep something."""
        members = self.node.members
        for name in members.known() if everybody else members.silent(self.node.options.hello_s * SILENT_BEATS):
            self._remember(name).keeps = True

    def _remember(self, name: str) -> _Silent:
        silent = self._silent.get(name)
        if silent is None:
            silent = self._silent[name] = _Silent()
            self.node.work(self._wait_for_rest(name))
        return silent

    # Messages.

    def take(self, message: Message, frame: Frame, origin: str) -> bool:  # noqa: ARG002  the frame tells it all
        """See what comes from a node that was silent."""
        silent = self._silent.get(origin)
        if silent is not None and frame.qos and frame.chosen is None and not frame.causal:
            silent.saw(frame.number)
            for client_id in dict.fromkeys(silent.filters.match(frame.topic)):
                self._put(client_id, origin, frame)
        return True

    def _put(self, client_id: str, origin: str, frame: Frame) -> None:
        if self._count >= MOST_STRAYS:
            self.node.counters.strays_dropped += 1
            return
        self._count += 1
        self._waiting.setdefault(client_id, deque()).append((origin, frame))

    async def beat(self) -> None:
        """Send what has come."""
        self._silences(QUIET_BEATS)
        self._note_silent()
        if self._waiting and not self._sending:
            self._sending = True
            self.node.work(self._send_all())

    async def _send_all(self) -> None:
        try:
            for client_id in list(self._waiting):
                await self._send(client_id)
        finally:
            self._sending = False

    async def _send(self, client_id: str) -> None:
        waiting = self._waiting.get(client_id, deque())
        asking = self._moving.asking
        holders = await asking.ask_all(self.node.members.alive(), AskMoving(client_id))
        holder = next((node for node, answer in holders.items() if not answer.stale), None)
        while waiting:
            origin = waiting[0][0]
            some = [frame for _, frame in itertools.takewhile(lambda each: each[0] == origin, waiting)][:AT_ONCE]  # noqa: B023  used at once
            question = AskStrays(client_id, origin, some)
            answer = await (self._receive(question) if holder is None else asking.ask(holder, question, ANSWER_S))
            if answer is None or not answer.found:
                break  # it is on its way, or nowhere
            for frame in some:
                if waiting and waiting[0][1] is frame:  # others may have been dropped meanwhile
                    waiting.popleft()
                    self._count -= 1
                    self.node.counters.strays_sent += 1
        if not waiting:
            self._waiting.pop(client_id, None)

    async def _receive(self, question: AskStrays) -> MovedSession:
        """Give a session what it wants of what was sent after it, and has not had."""
        client_id, origin = question.client_id, question.origin
        if client_id not in self.node.engine.sessions:
            return MovedSession(found=False)
        # What that node sent here itself must have come before it can be told what has not.
        if origin != self.node.name and not await self._moving.asking.all_came(origin, CAME_S):
            return MovedSession(found=False)
        engine, session = self.node.engine, self.node.engine.sessions.get(client_id)
        if session is None or session.held is not None or self._moving.leaves(client_id):
            return MovedSession(found=False)
        silent = self._remember(origin)
        for frame in question.frames:
            if self.had(client_id, origin, frame.number):
                continue
            message = message_of(frame, origin)
            message.retain = False
            if frame.clauses:
                try:
                    message.clauses = parse_topic(frame.clauses, engine.space)[1]
                except GrammarError as error:
                    log.warning("clauses from node %s cannot be read: %s", origin, error)
            qos = engine.wanted_by(session, message)
            if qos:
                session.deliver(message, qos)
                silent.give(client_id, frame.number)
                self.node.counters.strays_taken += 1
        await self._moving.safe()
        return MovedSession(found=True)

    def _had(self, client_id: str, number: int) -> bool:
        """Whether a message was published on this node when the session of a client was here."""
        return number > self._since.get(client_id, -1)

    # A node is back.

    async def _wait_for_rest(self, node: str) -> None:
        """Until a node is back and all has come that it had kept."""
        members, pause = self.node.members, self.node.options.hello_s
        silent = self._silent[node]
        while self._silent.get(node) is silent:
            await asyncio.sleep(pause * KNOWS_BEATS)
            if node in members.silent(pause * SILENT_BEATS):
                continue
            gone = dict(silent.gone)
            if not await self._moving.asking.all_came(node, MARK_S):
                continue
            for client_id, inners in gone.items():
                if silent.gone.get(client_id) is inners:
                    silent.forget_gone(client_id)
            silent.keeps = bool(silent.gone) or node in members.silent(pause * SILENT_BEATS)
            await asyncio.sleep(AFTER_S)
            if not silent.gone and node not in members.silent(pause * QUIET_BEATS):
                self.forgotten(node)

    def forgotten(self, node: str) -> None:
        """Nothing more comes from it that it had kept, or it is not expected back."""
        self._silent.pop(node, None)
        for client_id, waiting in list(self._waiting.items()):
            kept = deque(each for each in waiting if each[0] != node)
            self._count -= len(waiting) - len(kept)
            self.node.counters.strays_dropped += len(waiting) - len(kept)
            waiting.clear()
            waiting.extend(kept)
            if not waiting:
                del self._waiting[client_id]
