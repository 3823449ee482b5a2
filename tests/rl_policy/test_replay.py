from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_policy import (
    CostModel,
    Presence,
    RenewalPolicy,
    SendPolicy,
    Trace,
    batch_of,
    clairvoyant,
    features_of,
    make_traces,
    outcome_of,
    outcome_of_waits,
    records_of,
)
from rl_policy.gaps import GapStatistics
from rl_policy.replay import classes_of, rows_of_class, weighted_mean

COST = CostModel(0.2, 10.0)
times = st.lists(st.floats(0.0, 200.0), min_size=1, max_size=40).map(lambda values: np.array(sorted(values)))


def trace(publishes: list[float], subscribes: list[float], end: float, away: list[tuple[float, float]] | None = None):
    spells = None if away is None else np.array(away).reshape(-1, 2)
    return Trace("t", "k", np.array(publishes), np.array(subscribes), end, spells)


@settings(max_examples=60, deadline=None)
@given(times, times)
def test_every_decision_knows_the_past_and_only_the_past(publishes, subscribes) -> None:
    life = Trace("t", "k", publishes, subscribes, 220.0)
    records = iter(records_of(life, COST))
    for now in subscribes.tolist():
        past = [time for time in publishes.tolist() if time <= now]
        if not past:
            continue
        known = GapStatistics()
        for time in past:
            known.published(time)
        record = next(records)
        assert record.features == features_of(known, now, COST, hour=0)
        coming = [time - now for time in publishes.tolist() if time > now]
        assert record.residual_s == (min(coming) if coming else None)
        assert record.observed_s >= 220.0 - now
    assert next(records, None) is None


def test_presence_is_what_the_broker_knew() -> None:
    life = trace([10.0, 50.0], [11.0, 21.0, 31.0, 51.0], 100.0, away=[(20.0, 30.0)])
    assert [record.features.presence for record in records_of(life, COST)] == [
        Presence.STEADY,
        Presence.AWAY,
        Presence.BACK,
        Presence.STEADY,
    ]
    unknown = records_of(trace([1.0], [2.0], 50.0), COST)
    assert [record.features.presence for record in unknown] == [Presence.UNKNOWN]


def test_the_end_of_the_trace_censors() -> None:
    batch = batch_of([trace([1.0, 2.0], [1.5, 45.0, 30.0], 50.0)], COST)
    assert len(batch) == 2  # five seconds are too few to tell what ten would have cost


def test_the_hour_is_that_of_the_trace() -> None:
    life = Trace("t", "k", np.array([0.0]), np.array([3600.0 * 25.5]), 1e6, None, starts_at_s=3600.0 * 5)
    assert records_of(life, COST)[0].features.hour == 6


def test_outcomes_count_what_was_sent_and_waited() -> None:
    batch = batch_of([trace([1.0, 4.0, 40.0], [2.0, 10.0], 100.0)], COST)
    outcome = outcome_of_waits("three", np.array([3.0, 3.0]), batch)
    assert outcome.sent.tolist() == [False, True]
    assert outcome.waited_s.tolist() == [2.0, 3.0]
    assert outcome.costs.tolist() == pytest.approx([0.4, 1.6])
    with pytest.raises(ValueError, match="allowed"):
        outcome_of_waits("eleven", np.array([11.0, 0.0]), batch)


def test_always_sending_costs_one_and_the_clairvoyant_least() -> None:
    batch = batch_of(make_traces(3, 3, 30), COST)
    assert np.all(outcome_of(SendPolicy(), batch).costs == 1.0)
    best = clairvoyant(batch)
    assert np.all(best.costs <= outcome_of(RenewalPolicy(), batch).costs + 1e-12)
    np.testing.assert_allclose(best.costs, batch.clairvoyant_costs())
    assert weighted_mean(best.costs, batch.weights) < 1.0


def test_classes_partition_the_batch() -> None:
    batch = batch_of(make_traces(3, 2, 10, ("poisson", "bursty")), COST)
    assert classes_of(batch) == ["poisson", "bursty"]
    rows = np.concatenate([rows_of_class(batch, name) for name in classes_of(batch)])
    assert sorted(rows.tolist()) == list(range(len(batch)))
