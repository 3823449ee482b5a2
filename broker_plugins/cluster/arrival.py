"""Sessions that came to this node lately, and what has come for everybody since."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_plugins.cluster.wire import Owed


class Arrival:
    """What a node has had since a session came to it: none of that is owed by the node it came from."""

    __slots__ = ("awaited", "node", "seen", "since")

    def __init__(self, node: str, since: int, seen: Iterable[tuple[str, int]] = ()) -> None:
        self.node = node
        self.since = since
        self.seen = set(seen)
        self.awaited = 0
        """How many nodes are still to be asked for the rest."""

    def had(self, each: Owed) -> bool:
        """Whether a message came to this node after the session did."""
        return (each.origin, each.number) in self.seen or (each.origin == self.node and each.number > self.since)


class Arrivals:
    """The arrivals of a node, by client."""

    def __init__(self) -> None:
        self._lately: dict[str, Arrival] = {}
        self._coming: dict[str, asyncio.Future[None]] = {}

    def get(self, client_id: str) -> Arrival | None:
        """When a session came, if that was lately."""
        return self._lately.get(client_id)

    def note(self, client_id: str, arrival: Arrival) -> Arrival:
        """A session came."""
        self._lately[client_id] = arrival
        return arrival

    def forget(self, client_id: str) -> None:
        """Nothing more is awaited for a session."""
        self._lately.pop(client_id, None)

    def saw(self, origin: str, number: int) -> None:
        """A message came from another node."""
        for arrival in self._lately.values():
            arrival.seen.add((origin, number))

    # Those that are on their way.

    async def begin(self, client_id: str, seconds: float) -> None:
        """A session is going to be fetched, when nobody else does it; but nobody is waited for for long."""
        while (coming := self._coming.get(client_id)) is not None:
            done, _ = await asyncio.wait({coming}, timeout=seconds)
            if not done:
                break
        self._coming[client_id] = asyncio.get_running_loop().create_future()

    def over(self, client_id: str) -> None:
        """It is here, or there was none."""
        coming = self._coming.pop(client_id, None)
        if coming is not None and not coming.done():
            coming.set_result(None)

    async def settled(self, client_id: str, seconds: float) -> None:
        """Wait until a session that is being fetched is here, but not for long."""
        coming = self._coming.get(client_id)
        if coming is not None:
            await asyncio.wait({coming}, timeout=seconds)
