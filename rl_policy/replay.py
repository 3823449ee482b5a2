"""Replay: take a topic's life again, decision by decision, knowing at each only what was known then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_policy.features import Presence, features_of
from rl_policy.gaps import GapStatistics
from rl_policy.records import Batch, DecisionRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from rl_policy.cost import CostModel
    from rl_policy.policies import Policy
    from rl_policy.worlds import Trace


def records_of(trace: Trace, cost: CostModel) -> list[DecisionRecord]:
    """What would have been recorded of one topic if every subscriber had been sent to at once.

    A subscriber before the first publish is no decision: there is nothing to send.
    """
    gaps = GapStatistics()
    publishes, records = trace.publishes_s, []
    position = 0
    away = trace.away_s
    for now in trace.subscribes_s.tolist():
        after = int(np.searchsorted(publishes, now, side="right"))
        for time in publishes[position:after].tolist():
            gaps.published(time)
        position = after
        hour = int((now + trace.starts_at_s) / 3600.0) % 24
        features = features_of(gaps, now, cost, hour=hour, presence=presence_at(away, gaps.last_publish_s, now))
        if features is None:
            continue
        residual = float(publishes[after]) - now if after < len(publishes) else None
        watched = trace.end_s - now
        if residual is not None:
            watched = max(watched, residual)
        records.append(
            DecisionRecord(trace.topic, trace.topic_class, now, features, 0.0, "send", 1.0, residual, watched)
        )
    return records


def presence_at(away_s: NDArray[np.float64] | None, published_s: float | None, now_s: float) -> Presence:
    """What the broker knew of a publisher at `now_s` that had last published at `published_s`."""
    if away_s is None or published_s is None:
        return Presence.UNKNOWN
    spell = int(np.searchsorted(away_s[:, 0], now_s, side="right")) - 1
    if spell < 0:
        return Presence.STEADY
    back = away_s[spell, 1]
    if now_s < back:
        return Presence.AWAY
    return Presence.BACK if back > published_s else Presence.STEADY


def batch_of(traces: Iterable[Trace], cost: CostModel) -> Batch:
    """The records of many topics."""
    return Batch([record for trace in traces for record in records_of(trace, cost)], cost)


@dataclass(slots=True, frozen=True)
class Outcome:
    """What one policy's waits came to, record by record.

    Args:
        policy: its name.
        costs: the cost of each decision, always to send being 1.
        sent: whether the retained message was sent in the end.
        waited_s: how long each subscriber had nothing.
    """

    policy: str
    costs: NDArray[np.float64]
    sent: NDArray[np.bool_]
    waited_s: NDArray[np.float64]


def outcome_of_waits(name: str, waits_s: NDArray[np.float64], batch: Batch) -> Outcome:
    """What given waits come to."""
    if len(waits_s) and not (waits_s.min() >= 0.0 and waits_s.max() <= batch.cost.d_max_s):
        raise ValueError(
            f"{name} waits between {waits_s.min()} and {waits_s.max()} s; 0 to {batch.cost.d_max_s} allowed"
        )
    residual = batch.residual_s
    return Outcome(name, batch.costs(waits_s), residual > waits_s, np.minimum(residual, waits_s))


def outcome_of(policy: Policy, batch: Batch) -> Outcome:
    """Ask the policy at every record."""
    waits = np.array([policy.choose(record.features, batch.cost).wait_s for record in batch.records], dtype=np.float64)
    return outcome_of_waits(policy.name, waits, batch)


def clairvoyant(batch: Batch) -> Outcome:
    """The outcome of knowing the future: no policy is better."""
    best = np.array([batch.cost.best_wait(residual) for residual in batch.residual_s.tolist()], dtype=np.float64)
    return outcome_of_waits("clairvoyant", best, batch)


def weighted_mean(values: NDArray[np.float64] | NDArray[np.bool_], weights: NDArray[np.float64]) -> float:
    """The mean of what the records tell, censored ones made up for."""
    return float(np.dot(values, weights) / weights.sum())


def rows_of_class(batch: Batch, topic_class: str) -> NDArray[np.intp]:
    """Which records belong to one class of topics."""
    return np.flatnonzero(np.array([name == topic_class for name in batch.classes]))


def classes_of(batch: Batch) -> Sequence[str]:
    """The classes in a batch, in the order they appear."""
    return list(dict.fromkeys(batch.classes))
