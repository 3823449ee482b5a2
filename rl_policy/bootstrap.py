"""Confidence intervals by resampling topics.

Decisions on one topic resemble one another, so the topic is what is drawn again, with all its decisions; to draw single
decisions would make every interval too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(slots=True, frozen=True)
class Interval:
    """A mean, the interval it lies in, and from how many topics that is known."""

    mean: float
    low: float
    high: float
    topics: int

    def __str__(self) -> str:
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}] over {self.topics} topics"


def bootstrap_mean(
    values: NDArray[np.float64],
    weights: NDArray[np.float64],
    topics: Sequence[str],
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The weighted mean of `values` and its interval over resampled topics.

    Args:
        values: one for each decision.
        weights: one for each decision.
        topics: which topic each decision belongs to.
        confidence: how often the interval should hold the truth.
        resamples: how many times the topics are drawn again.
        seed: the same seed draws the same topics.
    """
    if not len(values) or len(values) != len(weights) or len(values) != len(topics):
        raise ValueError(
            f"{len(values)} values, {len(weights)} weights, {len(topics)} topics; one each, and at least one"
        )
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"a confidence of {confidence}; give one between 0 and 1, such as 0.95")
    _, owner = np.unique(np.asarray(topics), return_inverse=True)
    count = int(owner.max()) + 1
    sums = np.bincount(owner, weights=values * weights, minlength=count)
    masses = np.bincount(owner, weights=weights, minlength=count)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=resamples)
    means = (draws @ sums) / (draws @ masses)
    low, high = np.quantile(means, [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0])
    return Interval(float(sums.sum() / masses.sum()), float(low), float(high), count)
