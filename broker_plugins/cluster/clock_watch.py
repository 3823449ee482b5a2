"""Asks the other nodes what time it is there: a few times when they meet, and again every minute."""

from __future__ import annotations

import logging
from asyncio import gather
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.cluster.causal_wire import AskTime, Time
from broker_plugins.cluster.clock_offsets import ClockOffsets, sample
from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.wire import WireError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from broker_plugins.cluster.node import Node

log = logging.getLogger(__name__)

TIMES: Final = 5
PAUSE_US: Final = 60_000_000


class ClockWatch:
    """Knows how far other nodes' clocks are off.

    Args:
        node: this node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.offsets = ClockOffsets()
        self._asked_us = 0

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """What time it is here."""
        return {AskTime: lambda _: Time(self._node.steady_us())}

    async def ask_all(self, nodes: Iterable[str]) -> None:
        """Ask nodes the time, all at once and each several times."""
        await gather(*(self._ask(node) for node in nodes))

    def due(self) -> bool:
        """Whether it is time to ask again, once."""
        now = self._node.steady_us()
        if abs(now - self._asked_us) < PAUSE_US:
            return False
        self._asked_us = now
        return True

    async def _ask(self, node: str) -> None:
        question = encode(AskTime())
        for _ in range(TIMES):
            asked = self._node.steady_us()
            try:
                answer = decode(await self._node.fabric.ask(node, question), Time)
            except (*FAULTS, WireError) as error:
                log.debug("node %s does not say the time: %s", node, error)
                return
            self.offsets.add(node, sample(asked, answer.us, self._node.steady_us()))
