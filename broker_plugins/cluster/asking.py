"""What a node asks the others while a session moves: who has it, and to mark how far their messages have gone."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

import nats.errors

from broker_plugins.cluster.leaving import FENCE_S
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.wire import AskFence, Fenced, MovedSession, WireError, decode, encode

if TYPE_CHECKING:
    import msgspec

    from broker_plugins.cluster.announcing import Announcing
    from broker_plugins.cluster.forwarding import Forwarding
    from broker_plugins.cluster.node import Node

log = logging.getLogger(__name__)

CLAIM_S = 3.0
"""How long a client waits for the other nodes to say whether they have its session; they are asked twice."""
SETTLING, SETTLING_S = 100, 0.02
KNOWN_S = 4.0
"""How long a move waits until all nodes know that this one wants what the session is subscribed to."""


class Asking:
    """Asks other nodes.

    Args:
        node: this node.
        announcing: what it wants, and who knows it.
        forwarding: the ways from here, and what comes from the others.
    """

    def __init__(self, node: Node, announcing: Announcing, forwarding: Forwarding) -> None:
        self._node = node
        self._announcing = announcing
        self._forwarding = forwarding

    # Marks.

    async def mark(self, question: AskFence) -> Fenced:
        """Let a mark follow what this node has sent to one, when it knows who wants what."""
        for _ in range(SETTLING):
            if self._node.fabric.settled:
                break
            await asyncio.sleep(SETTLING_S)
        # Other parts take in what the asking node announced just before; each does so within a turn of its own.
        for _ in range(3):
            await asyncio.sleep(0)
        self._forwarding.mark(question.node, question.token)
        return Fenced()

    async def known(self) -> bool:
        """Wait until all nodes know what this one wants, but not for long; whether they do."""
        known = self._announcing.known_everywhere(KNOWN_S)
        if known is not None:
            await known
        return self._announcing.is_known()

    async def fence(self, source: str) -> tuple[int, list[str]]:
        """Let every node that sends here now mark its ways to the old one; the mark, and whose are to come.

        Where not all of them know in time that they are to send here, a mark is awaited that nobody sends.
        """
        token = secrets.randbits(62)
        if not await self.known():
            return token, [""]
        marking = await self._marking([node for node in self._node.members.alive() if node != source], source, token)
        self._forwarding.mark(source, token)
        return token, [self._node.name, *marking]

    async def caught_up(self) -> bool:
        """Wait until all has come here that nodes had sent so far; False if one of them did not say so in time."""
        token = secrets.randbits(62)
        marking = await self._marking(self._node.members.alive(), self._node.name, token)
        return await self._forwarding.progress.all_marked(token, marking, FENCE_S)

    async def all_came(self, node: str, seconds: float) -> bool:
        """Wait until all has come that a node had for this one so far; False if it does not say so in time."""
        token = secrets.randbits(62)
        if not await self._marking([node], self._node.name, token):
            return False
        return await self._forwarding.progress.all_marked(token, [node], seconds)

    async def _marking(self, nodes: list[str], target: str, token: int) -> list[str]:
        """Those of some nodes that mark their ways to one, for all we know."""
        question = encode(AskFence(target, token))
        marking = await asyncio.gather(*(self._asked_to_mark(node, question) for node in nodes))
        return [node for node, marks in zip(nodes, marking, strict=True) if marks]

    async def _asked_to_mark(self, node: str, question: bytes) -> bool:
        """Whether a mark of a node is to be waited for: not if nobody is there any more."""
        try:
            await self._node.fabric.ask(node, question, CLAIM_S)
        except nats.errors.NoRespondersError:
            return False
        except FAULTS as error:
            log.info("node %s does not mark its messages: %s", node, error)
        return True

    # Sessions.

    async def ask_all(
        self, nodes: list[str], question: msgspec.Struct, silent: set[str] | None = None
    ) -> dict[str, MovedSession]:
        """The nodes that have something of a session; those that do not answer are put into `silent`."""
        answers = await asyncio.gather(*(self._ask_twice(node, question) for node in nodes))
        answered = list(zip(nodes, answers, strict=True))
        if silent is not None:
            silent.update(node for node, answer in answered if answer is None)
        return {node: answer for node, answer in answered if answer is not None and answer.found}

    async def _ask_twice(self, node: str, question: msgspec.Struct) -> MovedSession | None:
        """Ask a node; one that still gives signs of life is only slow."""
        answer = await self.ask(node, question)
        if answer is None and self._node.members.is_alive(node):
            answer = await self.ask(node, question)
        return answer

    async def ask(self, node: str, question: msgspec.Struct, seconds: float = CLAIM_S) -> MovedSession | None:
        """Ask a node about a session; None if it does not answer."""
        try:
            return decode(await self._node.fabric.ask(node, encode(question), seconds), MovedSession)
        except (*FAULTS, WireError) as error:
            log.info("node %s does not answer whether it has a client: %s", node, error)
            return None
