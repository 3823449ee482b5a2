"""How far this node has got with the messages of the others: what a session here has had when it leaves.

Messages come from a node by two ways, by mail and without, each in the order of their numbers. The number of the last
one says all of what was before, but for those that a part of the cluster puts off. A mark that a node lets follow its
messages says that everything it had sent until then has come.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_plugins.engine.message import Message

MAX_MARKS: Final = 4096
MAX_LATER: Final = 4096


class Progress:
    """What has come from each node."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, bool], int] = {}
        self._later: dict[tuple[str, int], Message] = {}
        """Messages that a part of the cluster publishes when their time has come, by their node and number."""
        self._marks: dict[int, set[tuple[str, bool]]] = {}
        self._waiting: dict[int, list[tuple[set[tuple[str, bool]], asyncio.Future[bool]]]] = {}

    def reached(self, node: str, mail: bool, number: int) -> None:
        """A message has come, and whoever is here and wants it has it."""
        self._positions[node, mail] = number

    def put_off(self, node: str, number: int, message: Message) -> None:
        """A message has come and may be published later, or never; one that has a sequence has been published."""
        if message.sequence:
            return
        if len(self._later) >= MAX_LATER:
            self._tidy()
        self._later[node, number] = message

    def _tidy(self) -> None:
        self._later = {known: message for known, message in self._later.items() if not message.sequence}
        while len(self._later) >= MAX_LATER:
            self._later.pop(next(iter(self._later)))

    def positions(self) -> list[tuple[str, bool, int]]:
        """The last message of each node and way."""
        return [(node, mail, number) for (node, mail), number in self._positions.items()]

    def unpublished(self) -> list[tuple[str, int]]:
        """Messages before these positions that are not published yet."""
        self._tidy()
        return list(self._later)

    # Marks.

    def marked(self, node: str, mail: bool, token: int) -> None:
        """A mark has come."""
        if token not in self._marks and len(self._marks) >= MAX_MARKS:
            self._marks.pop(next(iter(self._marks)))
        marks = self._marks.setdefault(token, set())
        marks.add((node, mail))
        for wanted, done in self._waiting.get(token, ()):
            if wanted <= marks and not done.done():
                done.set_result(True)

    async def all_marked(self, token: int, nodes: list[str], seconds: float) -> bool:
        """Wait until a mark has come from each of these nodes by both ways; False if the time is up."""
        wanted = {(node, mail) for node in nodes for mail in (False, True)}
        try:
            if wanted <= self._marks.get(token, set()):
                return True
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(token, []).append((wanted, done))
            return await asyncio.wait_for(done, seconds)
        except TimeoutError:
            return False
        finally:
            self._marks.pop(token, None)
            self._waiting.pop(token, None)
