"""What all pages share: the board and its feed, the fences that are watched, and the lake, read for all at once."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt import client as mqtt

from spark_jobs.dashboard.board import Board
from spark_jobs.dashboard.explained import ANSWERS, question
from spark_jobs.dashboard.feed import CITY_FILTERS, OWN_FILTERS, Feed
from spark_jobs.dashboard.fence_watch import FenceWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from spark_jobs.dashboard.feed import Address
    from spark_jobs.dashboard.history import Handover, History

SPARK_QUIET_S: Final = 45.0
"""Without a new window for so long, Spark is taken to have stopped."""
FRESH_S: Final = 5.0
"""How long what was read from the lake is shown to further pages."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a dashboard was started with."""

    broker: Address
    topics: tuple[str, ...]
    receipts_topic: str
    lake: Path | None


def matches_any(filters: Sequence[str], topic: str) -> bool:
    """Whether one of some plain filters hears a topic: a broker may deliver twice to who asks twice."""
    return any(mqtt.topic_matches_sub(each, topic) for each in filters if not each.startswith("$"))


class Desk:
    """One for each dashboard.

    Args:
        options: what it was started with.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.board = Board(options.receipts_topic)
        receipts = () if matches_any(options.topics, options.receipts_topic) else (options.receipts_topic,)
        self._answers = f"{ANSWERS}{secrets.token_hex(8)}"
        filters = (*OWN_FILTERS, self._answers, *options.topics, *receipts)
        self.feed = Feed(options.broker, filters, self._take)
        self.fences = FenceWatch(options.broker, self._inner())
        self.history = _history(options.lake)
        self._shown_s = time.time()
        """Handovers up to this time have been shown on the map."""
        self.lake_fault = ""
        """Why the lake cannot be read; empty while it can."""
        self._read: dict[str, tuple[float, Any]] = {}
        self._reading: dict[str, asyncio.Lock] = {}

    def _inner(self) -> str:
        """What is listened to inside fences: the topics of the map, or all where that is a smart filter or several."""
        topics = self.options.topics
        if topics == CITY_FILTERS:
            return "city/+/+/pos"
        return topics[0] if len(topics) == 1 and not topics[0].startswith("$") else "#"

    def _take(self, topic: str, payload: bytes, now_s: float, retained: bool) -> None:
        self.board.take(topic, payload, now_s, retained=retained)

    def start(self) -> None:
        """Begin to listen."""
        self.feed.start()

    def stop(self) -> None:
        """Listen no more."""
        self.fences.close()
        self.feed.stop()

    def ask(self, topic: str) -> bool:
        """Ask the broker about a topic's retained message; False where it is away.

        Raises:
            BadTopicError: nothing can be retained under it.
        """
        asked = question(topic, self._answers)
        with self.board.lock:
            self.board.explained.pop(topic, None)
        return self.feed.publish(asked, b"")

    def spark(self) -> str:
        """Whether windows come: `yes`, `stopped` since some came before, or `no`."""
        with self.board.lock:
            heard_s = self.board.metrics.heard_s
            known = bool(self.board.metrics.nodes)
        if heard_s is not None and time.time() - heard_s < SPARK_QUIET_S:
            return "yes"
        return "stopped" if known else "no"

    async def handovers(self) -> list[Handover]:
        """The latest handovers in the lake; those that are new are shown on the map as well."""
        history = self.history
        if history is None:
            return []
        found: list[Handover] = await self.read("handovers", history.handovers, 1.5) or []
        with self.board.lock:
            for each in reversed(found):
                if each.at_s > self._shown_s and not self.board.told_live(each.client, each.at_s):
                    self.board.scene.hand_over(each.client, f"→ {each.to_node}")
        self._shown_s = max([self._shown_s, *(each.at_s for each in found)])
        return found

    async def read(self, what: str, work: Callable[[], Any], fresh_s: float = FRESH_S) -> Any:
        """Read something from the lake in a thread, or take what another page has just read.

        Where it cannot be read, `lake_fault` says why, and what was read before is returned, or None.
        """
        from spark_jobs.dashboard.history import UNREADABLE

        async with self._reading.setdefault(what, asyncio.Lock()):
            found = self._read.get(what)
            if found is None or time.monotonic() - found[0] > fresh_s:
                try:
                    value = await asyncio.to_thread(work)
                    self.lake_fault = ""
                except UNREADABLE as error:
                    self.lake_fault = str(error).partition("\n")[0][:200]
                    value = None if found is None else found[1]
                found = self._read[what] = (time.monotonic(), value)
            return found[1]


def _history(lake: Path | None) -> History | None:
    if lake is None:
        return None
    from spark_jobs.dashboard.history import History

    return History(lake)
