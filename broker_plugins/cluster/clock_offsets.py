"""How far other nodes' clocks are off, as far as questions and answers can tell.

A node that is asked the time answers with its clock. Whoever asked at `t0` and had the answer at `t3` knows that the
other clock was read somewhere in between: it is off by the answer less the middle, and by no more than half the round
trip more or less, whatever the two ways took each. The quickest of several round trips says most. Clocks drift, so what
a sample says becomes less certain with its age; and a sample that contradicts an older one means that a clock was set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DRIFT: Final = 200e-6
"""How much two clocks drift apart, at most: quartz does 50 parts in a million, a clock that is being slewed more."""
MAX_AGE_US: Final = 600_000_000
MAX_SAMPLES: Final = 16


@dataclass(slots=True, frozen=True)
class Sample:
    """One question and its answer.

    Args:
        at_us: when it was asked, by the clock of this node.
        offset_us: by how much the other clock was ahead, according to it.
        error_us: how wrong that may be.
    """

    at_us: int
    offset_us: int
    error_us: int

    def error_at(self, now_us: int) -> int:
        """How wrong it may be by now."""
        return self.error_us + round(abs(now_us - self.at_us) * DRIFT)


def sample(asked_us: int, answer_us: int, answered_us: int) -> Sample:
    """What a question asked and answered at these times of this node's clock says, if the answer was `answer_us`."""
    middle = (asked_us + answered_us) // 2
    return Sample(asked_us, answer_us - middle, max(0, answered_us - asked_us) // 2 + 1)


class ClockOffsets:
    """The clocks of the other nodes against this one's."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: dict[str, list[Sample]] = {}

    def add(self, node: str, new: Sample) -> None:
        """Take in what a question brought."""
        samples = self._samples.get(node, [])
        for old in samples:
            if abs(new.offset_us - old.offset_us) > new.error_us + old.error_at(new.at_us):
                samples = []  # a clock was set: what was known is of no use
                break
        samples.append(new)
        self._samples[node] = [each for each in samples if abs(new.at_us - each.at_us) <= MAX_AGE_US][-MAX_SAMPLES:]

    def forget(self, node: str) -> None:
        """A node has gone, or is another one now."""
        self._samples.pop(node, None)

    def best(self, node: str, now_us: int) -> Sample | None:
        """What is known best of a node's clock; None if nothing is."""
        samples = self._samples.get(node)
        return min(samples, key=lambda each: each.error_at(now_us)) if samples else None

    def apart_us(self, node: str, now_us: int) -> int | None:
        """How far a node's clock may be from this one's at most; None if nothing is known."""
        best = self.best(node, now_us)
        return None if best is None else abs(best.offset_us) + best.error_at(now_us)

    def widest_us(self, now_us: int) -> int:
        """How far any known clock may be from this one's."""
        return max((self.apart_us(node, now_us) or 0 for node in self._samples), default=0)
