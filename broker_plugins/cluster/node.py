"""What the parts of the cluster plugin share: who this node is, and how it reaches the others."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from broker_plugins.cluster.hybrid_clock import HybridClock
from broker_plugins.cluster.members import Members
from broker_plugins.cluster.steady_clock import SteadyClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Mapping

    import msgspec

    from broker_plugins.cluster.fabric import Fabric
    from broker_plugins.cluster.options import ClusterCounters, ClusterOptions
    from broker_plugins.cluster.wire import Frame
    from broker_plugins.engine import Message, Subscription
    from broker_plugins.engine.engine import Engine

log = logging.getLogger(__name__)


class Node:
    """This node.

    Args:
        options: what the operator set.
        counters: what to count in.
    """

    engine: Engine
    fabric: Fabric

    def __init__(self, options: ClusterOptions, counters: ClusterCounters) -> None:
        self.options = options
        self.counters = counters
        self.name = options.node
        self._clock_offset_us = round(options.clock_offset_ms * 1000)
        self.incarnation = time.time_ns() // 1_000_000
        self.members = Members(options.lease_s, options.away_s)
        self.clock = HybridClock(lambda: self.wall_us() // 1000)
        self._steady = SteadyClock(self.wall_us)
        self.draining = False
        """Whether this node is about to be stopped, and takes no clients."""
        self._tasks: set[asyncio.Task[None]] = set()

    def wall_us(self) -> int:
        """The wall clock of this node, in microseconds since 1970."""
        return time.time_ns() // 1000 + self._clock_offset_us

    def steady_us(self) -> int:
        """The same for deadlines: it is never set back."""
        return self._steady.now()

    def work(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Do something that takes a while; what fails is logged."""
        task = self.engine.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("the cluster plugin failed", exc_info=task.exception())

    def rest(self) -> None:
        """Stop all work."""
        for task in list(self._tasks):
            task.cancel()

    def number(self, sequence: int) -> int:
        """What tells a message from all others that were ever published on this node."""
        return (self.incarnation // 1000 << 32) + sequence


class Part:
    """One subject of the cluster; a part defines what it takes part in, the rest does nothing.

    Args:
        node: what it shares with the others.
    """

    def __init__(self, node: Node) -> None:
        self.node = node

    def subjects(self) -> Mapping[str, tuple[type[Any], Callable[[Any], None]]]:
        """What to do with what other nodes say, by the subject below the cluster's name, with its type."""
        return {}

    def questions(self) -> Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]:
        """What to answer other nodes, by the type of the question (whose tag is its own)."""
        return {}

    def recovered(self) -> None:
        """Sessions and retained messages are loaded; the fabric has not been looked for yet."""

    async def joined(self) -> None:
        """The fabric is there, or there again; clients wait for this."""

    async def beat(self) -> None:
        """Called every `hello_s` while the fabric is there."""

    def came(self, node: str) -> None:
        """Another node is there, or there again after a restart."""

    def left(self, node: str) -> None:
        """Another node has said nothing for `lease_s`, or said goodbye."""

    def forgotten(self, node: str) -> None:
        """A node has been away for `away_s`: it is not expected back."""

    def subscribed(self, subscription: Subscription) -> None:
        """A subscription was made here, replaced or restored."""

    def unsubscribed(self, subscription: Subscription) -> None:
        """A subscription ended here."""

    def route(self, message: Message, nodes: dict[str, int]) -> dict[str, int]:  # noqa: ARG002  parts look at it
        """Of the nodes that want a message published here (with `HELD` or `DURABLE`), those it is to be sent to.

        A part leaves out the ones that have no use for it, and those it sends it to itself. A retained message is of
        use to all of them.
        """
        return nodes

    def take(self, message: Message, frame: Frame, origin: str) -> bool:  # noqa: ARG002  parts look at it
        """A message came from another node; False keeps it from being published now: this part will."""
        return True
