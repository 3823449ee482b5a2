"""What is known of each topic that opted in: its gaps, who published it last, and what was decided of late."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from rl_policy import GapStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_plugins.retained.decisions import Decision

KEPT_DECISIONS: Final = 8


class Topic:
    """One topic."""

    __slots__ = ("decisions", "gaps", "open", "publisher")

    def __init__(self) -> None:
        self.gaps = GapStatistics()
        self.publisher: tuple[str, int] | None = None
        """The client that published last and which of its connections that was; None where the broker itself did."""
        self.open: dict[Decision, None] = {}
        """Decisions that wait for the next publish."""
        self.decisions: deque[Decision] = deque(maxlen=KEPT_DECISIONS)
        """The last decisions, for whoever asks why."""


class Topics:
    """At most so many topics; the one longest without a publish makes room.

    Args:
        most: how many.
    """

    __slots__ = ("_most", "_topics")

    def __init__(self, most: int) -> None:
        self._most = most
        self._topics: OrderedDict[str, Topic] = OrderedDict()

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def get(self, name: str) -> Topic | None:
        """What is known of a topic."""
        return self._topics.get(name)

    def published(self, name: str, now_s: float, publisher: tuple[str, int] | None) -> tuple[Topic, Topic | None]:
        """A retained message was published: its topic, and the one that had to make room for it."""
        topics = self._topics
        topic = topics.get(name)
        evicted = None
        if topic is None:
            if len(topics) >= self._most:
                _, evicted = topics.popitem(last=False)
            topic = topics[name] = Topic()
        else:
            topics.move_to_end(name)
        topic.gaps.published(now_s)
        topic.publisher = publisher
        return topic, evicted

    def cleared(self, name: str) -> Topic | None:
        """The retained message was removed: what was known of its topic is forgotten and returned."""
        return self._topics.pop(name, None)
