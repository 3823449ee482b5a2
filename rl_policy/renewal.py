"""The renewal rule: the wait that would have cost least over the topic's own last gaps.

A topic that has been silent for `age` will be published after `gap - age`, for some gap longer than the age. The last
gaps longer than the age are therefore a sample of what is to come; a few pseudo-observations of an exponential
distribution stand beside them, for topics that are young and for silences longer than any seen. The cost of a wait over
that sample is piecewise smooth, with a jump down where a gap ends, so its minimum is found exactly in one pass.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_policy.cost import CostModel
    from rl_policy.gaps import GapStatistics


@dataclass(slots=True, frozen=True)
class ExponentialPrior:
    """What is believed of a topic before its gaps are known.

    Args:
        weight: how many gaps the belief counts for. It must be above 0.
        gap_s: the mean gap believed in. A minute by default: an unknown topic is sent at once.
    """

    weight: float = 4.0
    gap_s: float = 60.0

    def __post_init__(self) -> None:
        if not (self.weight > 0 and self.gap_s > 0):
            raise ValueError(f"a prior of weight {self.weight} and mean gap {self.gap_s} s; both must be above 0")

    def mean_s(self, gaps: Sequence[float], total_s: float, age_s: float) -> float:
        """The mean of the exponential residual: the gaps shrunk to the belief, and never less than the age.

        Whoever has been silent for longer than ever is not about to speak at the old rate: a silence is expected to
        last about as long again.
        """
        return max((self.weight * self.gap_s + total_s) / (self.weight + len(gaps)), age_s)


DEFAULT_PRIOR = ExponentialPrior()


def renewal_wait(
    gaps: Sequence[float],
    total_s: float,
    age_s: float,
    cost: CostModel,
    prior: ExponentialPrior = DEFAULT_PRIOR,
) -> float:
    """The wait in [0, d_max_s] with the least expected cost; the shortest of them where several cost the same.

    Args:
        gaps: the topic's gaps, shortest first.
        total_s: their sum.
        age_s: how long ago the last retained publish was.
        cost: what waiting and sending cost.
        prior: the exponential belief beside the gaps.
    """
    kappa, d_max, weight = cost.kappa, cost.d_max_s, prior.weight
    mean = prior.mean_s(gaps, total_s, age_s)
    size = len(gaps)
    index = bisect_right(gaps, age_s)
    alive = size - index  # gaps that would still be running after the wait considered
    pull = weight * (1.0 / mean - kappa)  # above 0: the exponential part alone would rather wait
    scaled = weight * mean
    best_wait, best = 0.0, weight + alive
    start = 0.0
    ended = 0.0  # what the gaps that end within the wait have cost in seconds
    while True:
        # A stretch without a jump, up to the end of the next gap or d_max. Inside it the cost is convex if pull > 0.
        edge = gaps[index] - age_s if index < size else d_max
        last = edge >= d_max
        if last:
            edge = d_max
        if pull > 0.0 and alive:
            share = kappa * alive / pull
            if share < 1.0:
                inner = -mean * log(share)
                if start < inner < edge:
                    decay = exp(-inner / mean)
                    value = weight * decay + alive + kappa * (scaled * (1.0 - decay) + ended + alive * inner)
                    if value < best:
                        best, best_wait = value, inner
        # The end of the stretch, with every gap that ends there.
        while index < size and gaps[index] - age_s <= edge:
            ended += gaps[index] - age_s
            index += 1
            alive -= 1
        decay = exp(-edge / mean)
        waiting = kappa * (scaled * (1.0 - decay) + ended + alive * edge)
        value = weight * decay + alive + waiting
        if value < best:
            best, best_wait = value, edge
        start = edge
        if last or waiting >= best:  # the seconds only grow: no longer wait can be better
            return best_wait


def expected_cost(
    wait_s: float,
    gaps: Sequence[float],
    total_s: float,
    age_s: float,
    cost: CostModel,
    prior: ExponentialPrior = DEFAULT_PRIOR,
) -> float:
    """The cost of one wait over the same sample, said plainly: what `renewal_wait` minimises."""
    mean = prior.mean_s(gaps, total_s, age_s)
    residuals = [gap - age_s for gap in gaps if gap > age_s]
    decay = exp(-wait_s / mean)
    sampled = sum(cost.of(wait_s, residual) for residual in residuals)
    believed = prior.weight * (decay + cost.kappa * mean * (1.0 - decay))
    return (sampled + believed) / (len(residuals) + prior.weight)


def renewal_of(gaps: GapStatistics, age_s: float, cost: CostModel, prior: ExponentialPrior = DEFAULT_PRIOR) -> float:
    """The renewal rule over all the gaps kept of a topic."""
    return renewal_wait(gaps.sorted(), gaps.sum_s, age_s, cost, prior)


def recent_renewal_of(
    gaps: GapStatistics, age_s: float, cost: CostModel, prior: ExponentialPrior = DEFAULT_PRIOR
) -> float:
    """The renewal rule over the last few gaps alone: right sooner when a topic has changed its pace, noisier else."""
    recent = gaps.recent()
    return renewal_wait(recent, sum(recent), age_s, cost, prior)
