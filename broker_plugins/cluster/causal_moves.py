"""Clients that move: what one heard on its old node comes before what it publishes on its new one.

The nodes are the processes of causal order, so a client that changes its node would leave its past behind. The new node
therefore asks the others; the one that had the client answers with control information as of a message from it to the
new node, and the client is let in when that message could be delivered: when whatever the old node had delivered has
been delivered here too, or can no longer come. That takes no longer than a lifetime.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.causal import ControlFormatError
from broker_plugins.cluster.causal_wire import AskPast, Past
from broker_plugins.cluster.fabric import ANSWER_S
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.wire import WireError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import msgspec

    from broker_plugins.cluster.causal_groups import CausalGroups

log = logging.getLogger(__name__)

MAX_LEFT: Final = 65_536
"""Clients that are remembered after they have gone."""
SPARE_S: Final = 1.0


class CausalMoves:
    """Lets a client's past follow it from node to node.

    Args:
        order: the causal groups.
    """

    def __init__(self, order: CausalGroups) -> None:
        self._order = order
        self._left: dict[str, int] = {}

    @property
    def _longest_us(self) -> int:
        return max(group.rule.lifetime_us for group in self._order.groups)

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """What a client may have heard here."""
        return {AskPast: self._answer}

    def gone(self, client_id: str) -> None:
        """A client is not connected here any more."""
        if not self._order.groups:
            return
        self._left.pop(client_id, None)
        if len(self._left) >= MAX_LEFT:
            del self._left[next(iter(self._left))]
        self._left[client_id] = self._order.node.steady_us()

    def _was_here(self, client_id: str) -> bool:
        engine = self._order.node.engine
        session = engine.sessions.get(client_id)
        if session is not None and session.connection is not None:
            return True
        left = self._left.get(client_id)
        return left is not None and self._order.node.steady_us() - left <= 2 * self._longest_us

    def _answer(self, question: AskPast) -> Past:
        order = self._order
        if question.groups != order.digest or not order.groups or not self._was_here(question.client_id):
            return Past([])
        return Past([order.past(group, question.node) for group in order.groups])

    def follow(self, client_id: str, claim: Awaitable[None] | None) -> Awaitable[None] | None:
        """What is to be awaited before a client is let in; `claim` comes first."""
        nodes = self._order.node.members.alive() if self._order.groups else []
        return self._follow(client_id, claim, nodes) if nodes else claim

    async def _follow(self, client_id: str, claim: Awaitable[None] | None, nodes: list[str]) -> None:
        if claim is not None:
            await claim
        question = encode(AskPast(client_id, self._order.node.name, self._order.digest))
        waiting = [
            each for some in await asyncio.gather(*(self._ask(node, question) for node in nodes)) for each in some
        ]
        if waiting:
            await asyncio.wait(waiting, timeout=self._longest_us / 1e6 + SPARE_S)

    async def _ask(self, node: str, question: bytes) -> list[asyncio.Future[None]]:
        """Ask one node; what is to be waited for is in the answer."""
        order = self._order
        waiting: list[asyncio.Future[None]] = []
        try:
            # What comes later than a lifetime would tell of nothing that is still worth waiting for.
            patience = min(ANSWER_S, self._longest_us / 1e6)
            past = decode(await order.node.fabric.ask(node, question, patience), Past)
            for group, control in zip(order.groups, past.controls, strict=False):
                if control:
                    done: asyncio.Future[None] = order.node.engine.loop.create_future()
                    order.receive(group, control, done, node)
                    waiting.append(done)
        except (*FAULTS, WireError, ControlFormatError) as error:
            log.debug("node %s does not say what a client has heard: %s", node, error)
        return waiting
