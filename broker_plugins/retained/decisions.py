"""Decisions and what came of them, for telemetry and for whoever asks why.

A decision is open until the next retained publish of its topic or until the longest wait is over, whichever is first;
then what every wait would have cost is known. It is closed early, and *censored*, where its topic is cleared or
forgotten, or where too many are open.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING

from rl_policy import DecisionRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker_plugins.retained.topics import Topic
    from rl_policy import Features

log = logging.getLogger(__name__)


class Decision:
    """One policy's answer for one subscriber of one topic.

    Args:
        topic: the topic.
        topic_class: the filter that opted it in.
        at_s: when, in seconds since 1970.
        began_s: when, by the clock that waits are measured with.
        features: what was known; None where nothing was.
        wait_s: the longest wait it gave.
        reason: why, in words.
        policy_version: which policy it was.
    """

    __slots__ = (
        "at_s",
        "began_s",
        "closed",
        "features",
        "observed_s",
        "policy_version",
        "reason",
        "residual_s",
        "topic",
        "topic_class",
        "wait_s",
    )

    def __init__(
        self,
        topic: str,
        topic_class: str,
        at_s: float,
        began_s: float,
        features: Features | None,
        wait_s: float,
        reason: str,
        policy_version: str,
    ) -> None:
        self.topic = topic
        self.topic_class = topic_class
        self.at_s = at_s
        self.began_s = began_s
        self.features = features
        self.wait_s = wait_s
        self.reason = reason
        self.policy_version = policy_version
        self.closed = False
        self.residual_s: float | None = None
        """How long after it the next retained publish came; None while none came."""
        self.observed_s = 0.0
        """How long it was watched for that."""

    def record(self) -> DecisionRecord | None:
        """What telemetry keeps of it; None where nothing was known, so nothing can be learned."""
        if self.features is None:
            return None
        return DecisionRecord(
            self.topic,
            self.topic_class,
            self.at_s,
            self.features,
            self.wait_s,
            self.policy_version,
            1.0,  # no policy throws dice: the wait was certain
            self.residual_s,
            self.observed_s,
        )


class OpenDecisions:
    """The decisions that wait for their outcome.

    Args:
        most: how many may be open.
    """

    __slots__ = ("_count", "_heap", "_most", "_ticket", "censored", "listeners")

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[float, int, Decision, Topic]] = []  # by the end of the longest wait
        self._ticket = 0
        self._count = 0
        self.censored = 0
        self.listeners: list[Callable[[DecisionRecord], None]] = []
        """Who is told of every decision once it is closed."""

    def __len__(self) -> int:
        return self._count

    def open(self, decision: Decision, topic: Topic, d_max_s: float) -> None:
        """Watch for the outcome of a decision."""
        if self._count >= self._most:
            self._skip_closed()
            _, _, early, its_topic = self._heap[0]
            del its_topic.open[early]
            self._close(early, None, decision.began_s - early.began_s, whole=False)
        self._ticket += 1
        self._count += 1
        topic.open[decision] = None
        heapq.heappush(self._heap, (decision.began_s + d_max_s, self._ticket, decision, topic))
        if len(self._heap) > 2 * self._count + 64:  # mostly closed ones: keep the heap as bounded as the decisions
            self._heap = [entry for entry in self._heap if not entry[2].closed]
            heapq.heapify(self._heap)

    def published(self, topic: Topic, now_s: float) -> None:
        """A retained message was published: every open decision of its topic is closed by it."""
        if topic.open:
            closing, topic.open = topic.open, {}
            for decision in closing:
                residual = now_s - decision.began_s
                self._close(decision, residual, residual, whole=True)

    def forgotten(self, topic: Topic, now_s: float) -> None:
        """Nobody will know when the topic is published next."""
        closing, topic.open = topic.open, {}
        for decision in closing:
            self._close(decision, None, now_s - decision.began_s, whole=False)

    def due(self, now_s: float, most: int = 1_000) -> None:
        """Close the decisions whose longest wait is over, so many at a time."""
        while most and (end := self.next_end_s()) is not None and end <= now_s:
            most -= 1
            _, _, decision, topic = heapq.heappop(self._heap)
            del topic.open[decision]
            self._close(decision, None, now_s - decision.began_s, whole=True)

    def next_end_s(self) -> float | None:
        """When `due` should be asked next; None while nothing is open."""
        self._skip_closed()
        return self._heap[0][0] if self._heap else None

    def _skip_closed(self) -> None:
        while self._heap and self._heap[0][2].closed:
            heapq.heappop(self._heap)

    def _close(self, decision: Decision, residual_s: float | None, observed_s: float, whole: bool) -> None:
        decision.closed = True
        decision.residual_s, decision.observed_s = residual_s, observed_s
        self._count -= 1
        if not whole:
            self.censored += 1
        if not self.listeners or (record := decision.record()) is None:
            return
        for listener in self.listeners:
            try:
                listener(record)
            except Exception:
                log.exception("a listener to decisions failed")
