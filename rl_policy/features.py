"""What a policy may look at when a subscriber arrives, and how it is pooled into cells.

The numbers are relative wherever they can be (the age to the typical gap, the gaps to kappa), so that what is learned
on one topic holds for another. The hour of day and the presence of the publisher are what a renewal rule cannot see.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import msgspec

from rl_policy.renewal import DEFAULT_PRIOR, ExponentialPrior, recent_renewal_of, renewal_of

if TYPE_CHECKING:
    from rl_policy.cost import CostModel
    from rl_policy.gaps import GapStatistics

HOURS: Final = 24
YOUNG: Final = 9  # the level of cells for topics with few gaps
FEW_GAPS: Final = 4  # below this a topic has no pace and no burstiness worth a name

PACE_EDGES: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0)  # typical gap times kappa
BURST_EDGES: Final = (0.15, 0.5, 0.9, 1.3, 2.0)  # standard deviation over mean
SILENCE_EDGES: Final = (0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 2.0, 4.0, 10.0)  # age over the typical gap
TURN_EDGES: Final = (0.3, 0.7, 1.4, 3.0)  # typical gap over mean gap: has the pace changed?
LAST_EDGES: Final = (0.5, 2.0)  # last gap over typical gap: inside a burst, or just back from an outage?


class Presence(IntEnum):
    """What the broker knows of the client that last published to the topic."""

    UNKNOWN = 0
    AWAY = 1
    """It is not connected: nothing will come before it is back."""
    STEADY = 2
    """It is connected, and was so when it published."""
    BACK = 3
    """It has connected again since it published: many publishers report soon after that."""


class Features(msgspec.Struct, frozen=True, gc=False):
    """What is known at one SUBSCRIBE; also what telemetry records of it.

    Args:
        age_s: how long ago the last retained publish was.
        gaps: how many gaps are known, at most 64.
        mean_gap_s: their mean.
        typical_gap_s: the median of the last eight.
        last_gap_s: the last one.
        variation: standard deviation over mean of the gaps.
        hour: hour of day, 0 to 23, in whatever zone the caller keeps; None where it does not say.
        presence: what is known of the client that last published.
        renewal_wait_s: what the renewal rule says.
        recent_wait_s: what the renewal rule says from the last eight gaps alone.
    """

    age_s: float
    gaps: int
    mean_gap_s: float
    typical_gap_s: float
    last_gap_s: float
    variation: float
    hour: int | None
    presence: Presence
    renewal_wait_s: float
    recent_wait_s: float


def features_of(
    gaps: GapStatistics | None,
    now_s: float,
    cost: CostModel,
    *,
    hour: int | None = None,
    presence: Presence = Presence.UNKNOWN,
    prior: ExponentialPrior = DEFAULT_PRIOR,
) -> Features | None:
    """Look at one topic at `now_s`; None where nothing was ever published while we watched (then send at once)."""
    age = None if gaps is None else gaps.age_s(now_s)
    if gaps is None or age is None:
        return None
    if hour is not None and not 0 <= hour < HOURS:
        raise ValueError(f"hour is {hour}; it runs from 0 to 23")
    recent = gaps.recent()
    mean = gaps.mean_s
    known = mean if mean is not None else prior.gap_s
    return Features(
        age,
        len(gaps),
        known,
        recent[len(recent) // 2] if recent else known,
        gaps.last_s or known,
        gaps.variation,
        hour,
        presence,
        renewal_of(gaps, age, cost, prior),
        recent_renewal_of(gaps, age, cost, prior),
    )


def cells_of(features: Features, kappa: float) -> tuple[int, ...]:
    """The cells a situation falls in, finest first; each is contained in the next, the last holds nearly everything.

    A cell is one number: its level in the last decimal digit, its bins before it.
    """
    presence = int(features.presence)
    if features.gaps < FEW_GAPS:
        return ((presence * 10 + bisect_right(SILENCE_EDGES, features.age_s * kappa)) * 10 + YOUNG, presence * 10)
    typical = features.typical_gap_s
    kind = (presence * 10 + bisect_right(PACE_EDGES, typical * kappa)) * 10
    kind += bisect_right(BURST_EDGES, features.variation)
    silent = kind * 10 + bisect_right(SILENCE_EDGES, features.age_s / typical)
    turned = silent * 10 + bisect_right(TURN_EDGES, typical / features.mean_gap_s)
    lasting = turned * 10 + bisect_right(LAST_EDGES, features.last_gap_s / typical)
    coarser = (lasting * 10 + 4, turned * 10 + 3, silent * 10 + 2, kind * 10 + 1, presence * 10)
    if features.hour is None:
        return coarser
    # Two hours together: twelve parts of a day are enough to tell shifts apart and still fill.
    return ((lasting * 100 + features.hour // 2) * 10 + 5, *coarser)


def parent_of(cell: int) -> int | None:
    """The next coarser cell that contains `cell`; None for the coarsest."""
    level, bins = cell % 10, cell // 10
    if level == 0:
        return None
    if level == YOUNG:
        return bins // 10 * 10
    if level in {1, 5}:  # two digits finer than the next: pace and burstiness, the part of the day
        return bins // 100 * 10 + level - 1
    return bins // 10 * 10 + level - 1
