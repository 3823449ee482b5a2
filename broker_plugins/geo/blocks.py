"""A picture of the spatial indexes for whoever draws them, told only while somebody listens.

It shows roughly where subscribers are, so it is off unless an operator asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker_plugins.engine import Message

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from broker_plugins.engine.engine import Engine
    from broker_plugins.geo.spots import Group

BLOCKS_TOPIC: Final = "$SYS/broker/locus/geo/blocks"
DIGITS: Final = 6
"""Of a coordinate: a decimetre on the Earth."""


def picture(groups: Iterable[Group], most: int) -> dict[str, Any]:
    """The blocks of the indexes of some groups, the groups with most areas first, at most so many blocks.

    `blocks` has side, west, south, east, north and the number of boxes of each; `areas` counts the areas listened in,
    `indexes` the filters with so many areas that they have an index, and `left_out` the indexes not drawn to the end.
    """
    ordered = sorted(groups, key=lambda group: -len(group.spots))
    blocks: list[tuple[str, float, float, float, float, int]] = []
    left_out = 0
    for group in ordered:
        if group.index is None:
            continue
        for block in group.index.blocks():
            if len(blocks) >= most:
                left_out += 1
                break
            west, south, east, north = (round(side, DIGITS) for side in block.box)
            blocks.append((block.side, west, south, east, north, block.count))
    return {
        "areas": sum(len(group.spots) for group in ordered),
        "indexes": sum(group.index is not None for group in ordered),
        "left_out": left_out,
        "blocks": blocks,
    }


class BlockTeller:
    """Publishes the picture again and again.

    Args:
        engine: who publishes it.
        groups: the groups there are, asked each time.
        interval_s: time between two pictures.
        most: blocks in one.
    """

    def __init__(self, engine: Engine, groups: Callable[[], Iterable[Group]], interval_s: float, most: int) -> None:
        self._engine = engine
        self._groups = groups
        self._interval_s = interval_s
        self._most = most
        self._timer: asyncio.Handle = engine.loop.call_soon(self._tell)

    def stop(self) -> None:
        """Publish no more."""
        self._timer.cancel()

    def _tell(self) -> None:
        self._timer = self._engine.loop.call_later(self._interval_s, self._tell)
        route = self._engine.routes.find(BLOCKS_TOPIC)
        if route.targets or route.groups:
            payload = msgspec.json.encode(picture(self._groups(), self._most))
            self._engine.publish(Message(BLOCKS_TOPIC, payload))
