"""Which nodes messages were sent on to: for the plugin that sends them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from broker_plugins.telemetry.recorder import records_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_plugins.engine import Message


class RouteNotes:
    """Records where messages of the sample went; the others, and all where telemetry is off, cost one comparison.

    Args:
        plugins: the plugins of the engine (`engine.hooks.plugins`), once all of them exist.
    """

    __slots__ = ("_records",)

    def __init__(self, plugins: Iterable[object]) -> None:
        self._records = records_of(plugins, "routes")

    def sent(self, message: Message, node: str, via: str) -> None:
        """A message was sent on to a node, since it has a `filter`, a `region` or `content` that the message meets."""
        records = self._records
        if not message.weight or records is None:
            return
        drawn = records.draw()
        if drawn:
            weight, size = message.weight * drawn, len(message.payload)
            records.add(time.time_ns() // 1_000, weight, message.sequence, message.topic, node, via, None, size)
