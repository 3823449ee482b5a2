"""Decision records: what a SUBSCRIBE looked like, what was decided, and when the next retained publish came.

Publishes do not depend on what the broker chose, so one record tells afterwards what *every* wait would have cost,
except where the record ends before the longest wait does: then it is censored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rl_policy.censoring import censoring_weights
from rl_policy.features import Features, cells_of
from rl_policy.learned import action_waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rl_policy.cost import CostModel


class DecisionRecord(msgspec.Struct, frozen=True):
    """One decision and its outcome.

    Args:
        topic: the topic decided on.
        topic_class: which class it belongs to: the filter that opted it in, or the kind of world it was made by.
        at_s: when.
        features: what was known.
        wait_s: the wait chosen.
        policy_version: by which policy.
        propensity: how likely that policy was to choose it; 1 for policies without dice.
        residual_s: how long after the decision the next retained publish came; None while none came.
        observed_s: how long after the decision the topic was watched; at least `residual_s` where there is one.
    """

    topic: str
    topic_class: str
    at_s: float
    features: Features
    wait_s: float
    policy_version: str
    propensity: float
    residual_s: float | None
    observed_s: float

    def __post_init__(self) -> None:
        if self.residual_s is not None and self.residual_s > self.observed_s:
            raise ValueError(f"a publish after {self.residual_s} s in a record that ends after {self.observed_s} s")


class Batch:
    """Many records as columns, with the censored ones weighed away.

    Args:
        records: the records; those whose outcome is not known up to `d_max_s` are dropped and the others weighed up.
        cost: the cost model to judge by.
    """

    __slots__ = ("classes", "cost", "records", "residual_s", "topics", "weights")

    def __init__(self, records: Sequence[DecisionRecord], cost: CostModel) -> None:
        longest = cost.d_max_s
        ended = np.array([math.inf if r.residual_s is None else r.residual_s for r in records], dtype=np.float64)
        watched = np.array([r.observed_s for r in records], dtype=np.float64)
        weights = censoring_weights(np.minimum(ended, longest), watched, np.isfinite(ended))
        keep = np.flatnonzero(weights > 0.0)
        self.cost = cost
        self.records = [records[row] for row in keep.tolist()]
        self.weights = weights[keep]
        self.residual_s = ended[keep]
        self.topics = [record.topic for record in self.records]
        self.classes = [record.topic_class for record in self.records]

    def __len__(self) -> int:
        return len(self.records)

    def costs(self, waits_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """What waits (one for each record, or one column for each action) cost."""
        residual = self.residual_s if waits_s.ndim == 1 else self.residual_s[:, None]
        return (residual > waits_s) + self.cost.kappa * np.minimum(residual, waits_s)

    def action_costs(self) -> NDArray[np.float64]:
        """What every action would have cost (columns) in every record (rows)."""
        return self.costs(action_waits([record.features for record in self.records], self.cost.d_max_s))

    def clairvoyant_costs(self) -> NDArray[np.float64]:
        """What someone who knows the future would have paid."""
        residual = self.residual_s
        return np.where(residual <= self.cost.d_max_s, np.minimum(self.cost.kappa * residual, 1.0), 1.0)

    def cells(self) -> list[tuple[int, ...]]:
        """The cells of every record, finest first."""
        kappa = self.cost.kappa
        return [cells_of(record.features, kappa) for record in self.records]
