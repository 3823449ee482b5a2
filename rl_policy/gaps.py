"""What is remembered of each topic: the last 64 gaps between its retained publishes, in bounded memory.

A publish costs O(1): one slot of a ring and two running sums. The sorted copy that a decision needs is made when a
decision is taken, and kept until the next publish.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict

WINDOW = 64
RECENT = 8
SHORTEST_GAP_S = 1e-6  # two publishes in one tick of the clock; keeps means and rates finite


class TimeWentBackError(ValueError):
    """A time was given that lies before one given earlier."""


class GapStatistics:
    """The last `WINDOW` gaps of one topic.

    Times are seconds of any clock that does not go back; the caller reads it.
    """

    __slots__ = ("_next", "_ring", "_sorted", "_square", "_sum", "last_publish_s")

    def __init__(self) -> None:
        self._ring = array("d")
        self._next = 0
        self._sum = 0.0
        self._square = 0.0
        self._sorted: array[float] | None = None
        self.last_publish_s: float | None = None

    def __len__(self) -> int:
        """How many gaps are known, at most `WINDOW`."""
        return len(self._ring)

    def published(self, now_s: float) -> None:
        """A retained message was published at `now_s`."""
        last = self.last_publish_s
        if last is not None:
            if now_s < last:
                raise TimeWentBackError(f"a publish at {now_s} after one at {last}; give times of a monotonic clock")
            self._append(max(now_s - last, SHORTEST_GAP_S))
        self.last_publish_s = now_s

    def interrupted(self) -> None:
        """Publishes may have been missed (a restart): the gap that is running is not one to learn from."""
        self.last_publish_s = None

    def _append(self, gap_s: float) -> None:
        ring = self._ring
        self._sorted = None
        if len(ring) < WINDOW:
            ring.append(gap_s)
            self._sum += gap_s
            self._square += gap_s * gap_s
            return
        slot = self._next
        old = ring[slot]
        ring[slot] = gap_s
        self._next = (slot + 1) % WINDOW
        if self._next == 0:  # once a round the sums start afresh, so that rounding does not build up
            self._sum = sum(ring)
            self._square = sum(gap * gap for gap in ring)
        else:
            self._sum += gap_s - old
            self._square += gap_s * gap_s - old * old

    def age_s(self, now_s: float) -> float | None:
        """How long ago the last retained publish was; None where that is not known."""
        last = self.last_publish_s
        if last is None:
            return None
        if now_s < last:
            raise TimeWentBackError(f"asked at {now_s} after a publish at {last}; give times of a monotonic clock")
        return now_s - last

    def sorted(self) -> array[float]:
        """All known gaps, shortest first. Not to be changed."""
        if self._sorted is None:
            self._sorted = array("d", sorted(self._ring))
        return self._sorted

    def recent(self, count: int = RECENT) -> list[float]:
        """The last `count` gaps (or fewer), shortest first."""
        ring, size = self._ring, len(self._ring)
        taken = min(count, size)
        end = self._next if size == WINDOW else size
        start = end - taken
        newest = ring[start:end] if start >= 0 else ring[start:] + ring[:end]
        return sorted(newest)

    @property
    def last_s(self) -> float | None:
        """The most recent gap."""
        return self._ring[self._next - 1 if len(self._ring) == WINDOW else -1] if self._ring else None

    @property
    def sum_s(self) -> float:
        """The known gaps added up."""
        return max(self._sum, 0.0)

    @property
    def mean_s(self) -> float | None:
        """The mean gap."""
        size = len(self._ring)
        return max(self._sum / size, SHORTEST_GAP_S) if size else None

    @property
    def variation(self) -> float:
        """Standard deviation over mean: 0 for a clock, 1 for a Poisson process, more for bursts."""
        size = len(self._ring)
        if size < 2:
            return 1.0
        mean = max(self._sum / size, SHORTEST_GAP_S)
        variance = self._square / size - mean * mean
        return variance**0.5 / mean if variance > 0.0 else 0.0


class GapTable:
    """The gap statistics of at most `max_topics` topics; the one longest without a publish makes room.

    Args:
        max_topics: how many topics are remembered. A topic takes about 1.5 KB.
    """

    __slots__ = ("_topics", "evicted", "max_topics")

    def __init__(self, max_topics: int = 10_000) -> None:
        if max_topics < 1:
            raise ValueError(f"max_topics is {max_topics}; at least one topic must fit")
        self.max_topics = max_topics
        self.evicted = 0
        self._topics: OrderedDict[str, GapStatistics] = OrderedDict()

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def published(self, topic: str, now_s: float) -> None:
        """A retained message was published to `topic` at `now_s`."""
        topics = self._topics
        gaps = topics.get(topic)
        if gaps is None:
            if len(topics) >= self.max_topics:
                topics.popitem(last=False)
                self.evicted += 1
            gaps = topics[topic] = GapStatistics()
        else:
            topics.move_to_end(topic)
        gaps.published(now_s)

    def get(self, topic: str) -> GapStatistics | None:
        """What is known of `topic`, or None."""
        return self._topics.get(topic)

    def cleared(self, topic: str) -> None:
        """The retained message of `topic` was removed: nothing is remembered of it."""
        self._topics.pop(topic, None)

    def interrupted(self) -> None:
        """Publishes may have been missed on every topic."""
        for gaps in self._topics.values():
            gaps.interrupted()
