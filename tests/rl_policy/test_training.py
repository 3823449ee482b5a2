from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_policy import (
    ACTIONS,
    Batch,
    Caution,
    CostModel,
    DecisionRecord,
    Presence,
    StatisticsError,
    TrainingStatistics,
    batch_of,
    make_traces,
    outcome_of,
    records_of,
)
from rl_policy.policies import RenewalPolicy

from .test_policies import SEEN

COST = CostModel(0.2, 10.0)
SEND = ACTIONS.index("send")
RECORDS = [r for trace in make_traces(5, 2, 40, ("poisson", "day-night")) for r in records_of(trace, COST)]


def table_of(statistics: TrainingStatistics) -> dict[int, int]:
    return dict(statistics.fit(Caution(min_weight=3.0)).cells)


def trained(records: list[DecisionRecord]) -> TrainingStatistics:
    statistics = TrainingStatistics(COST)
    statistics.learn(records)
    return statistics


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, len(RECORDS) - 1), max_size=4, unique=True).map(sorted), st.randoms())
def test_partitions_merged_in_any_order_are_the_whole(cuts, rng) -> None:
    # Uncensored records: their weights do not depend on their company.
    known = [r for r in RECORDS if r.observed_s >= COST.d_max_s]
    parts = [known[a:b] for a, b in zip([0, *cuts], [*cuts, len(known)], strict=True)]
    rng.shuffle(parts)
    merged = TrainingStatistics(COST)
    for part in parts:
        merged.merge(TrainingStatistics.from_bytes(trained(part).to_bytes()))
    whole = trained(known)
    assert merged._sums.keys() == whole._sums.keys()
    for cell, sums in whole._sums.items():
        np.testing.assert_allclose(merged._sums[cell], sums, rtol=1e-9, atol=1e-9)
    assert table_of(merged) == table_of(whole)


def test_merging_leaves_the_other_as_it_was() -> None:
    one, other = TrainingStatistics(COST), trained(RECORDS[:20])
    before = other.to_bytes()
    one.merge(other)
    one.learn(RECORDS[20:60])
    assert other.to_bytes() == before


def test_a_cell_departs_from_the_renewal_rule_only_for_a_better_action() -> None:
    # The renewal rule waits 2.25 s in vain: to send is better by 0.45 in every record.
    silent = [DecisionRecord(f"t{i}", "k", 0.0, SEEN, 0.0, "send", 1.0, None, 100.0) for i in range(50)]
    policy = trained(silent).fit()
    assert ACTIONS[policy.action(SEEN)] == "send"
    # It is right: nothing is better than to wait for the publish that comes.
    lively = [DecisionRecord(f"t{i}", "k", 0.0, SEEN, 0.0, "send", 1.0, 2.2, 100.0) for i in range(50)]
    assert trained(lively).fit().cells == {}


def test_too_few_records_change_nothing() -> None:
    silent = [DecisionRecord(f"t{i}", "k", 0.0, SEEN, 0.0, "send", 1.0, None, 100.0) for i in range(19)]
    assert trained(silent).fit().cells == {}


def test_a_covariate_is_learned_and_other_situations_are_left_alone() -> None:
    away = msgspec.structs.replace(SEEN, presence=Presence.AWAY)
    steady = msgspec.structs.replace(SEEN, presence=Presence.STEADY)
    records = [DecisionRecord(f"t{i}", "k", 0.0, away, 0.0, "send", 1.0, None, 100.0) for i in range(50)]
    records += [DecisionRecord(f"t{i}", "k", 0.0, steady, 0.0, "send", 1.0, 2.2, 100.0) for i in range(50)]
    policy = trained(records).fit()
    assert policy.choose(away, COST).wait_s == 0.0
    assert policy.choose(steady, COST).wait_s == SEEN.renewal_wait_s


def test_what_fades_counts_less_and_is_forgotten_in_the_end() -> None:
    statistics = trained(RECORDS)
    cell = max(statistics._sums, key=statistics.weight)
    weight = statistics.weight(cell)
    statistics.fade(0.5)
    assert statistics.weight(cell) == pytest.approx(weight / 2)
    for _ in range(20):
        statistics.fade(0.5)
    assert len(statistics) == 0


def test_on_its_own_records_the_table_is_not_worse_than_the_renewal_rule() -> None:
    batch = batch_of(make_traces(6, 6, 80), COST)
    statistics = TrainingStatistics(COST)
    statistics.learn_batch(batch)
    learned = outcome_of(statistics.fit(), batch)
    renewal = outcome_of(RenewalPolicy(), batch)
    assert np.dot(learned.costs, batch.weights) < np.dot(renewal.costs, batch.weights)


def test_statistics_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(StatisticsError, match="cannot be merged"):
        TrainingStatistics(COST).merge(TrainingStatistics(CostModel(1.0, 10.0)))
    with pytest.raises(StatisticsError, match="in statistics for"):
        TrainingStatistics(COST).learn_batch(Batch([], CostModel(1.0, 10.0)))
    with pytest.raises(StatisticsError, match="above 0"):
        TrainingStatistics(COST).fade(0.0)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data.replace(b"send", b"dens")]
)
def test_damaged_statistics_are_refused(damage) -> None:
    with pytest.raises(StatisticsError, match="train afresh"):
        TrainingStatistics.from_bytes(damage(trained(RECORDS[:30]).to_bytes()))


def test_no_records_no_table() -> None:
    statistics = TrainingStatistics(COST)
    statistics.learn([])
    assert TrainingStatistics.from_bytes(statistics.to_bytes()).fit().cells == {}
