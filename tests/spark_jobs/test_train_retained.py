from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rl_policy import CostModel, Gate, TrainingStatistics, batch_of, is_held_out, make_traces, read_policy, records_of
from spark_jobs.dashboard.history import History
from spark_jobs.ingest import Ingestion
from spark_jobs.lake import Lake
from spark_jobs.train_retained import TrainingStateError, record_of, summed, train
from tests.spark_jobs.spools import START_US, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rl_policy import DecisionRecord

pytestmark = pytest.mark.xdist_group("spark")
COST = CostModel(0.2, 10.0)


def row_of(record: DecisionRecord) -> dict[str, Any]:
    features = record.features
    at = START_US + round(record.at_s * 1e6)
    return {
        "at": at,
        "decided_at": at,
        "topic": record.topic,
        "topic_class": record.topic_class,
        **{name: getattr(features, name) for name in features.__struct_fields__ if name not in ("hour", "presence")},
        "hour_of_day": features.hour,
        "presence": int(features.presence),
        "wait_s": record.wait_s,
        "policy_version": record.policy_version,
        "propensity": record.propensity,
        "residual_s": record.residual_s,
        "observed_s": record.observed_s,
    }


@pytest.fixture(scope="module")
def records() -> list[DecisionRecord]:
    traces = make_traces(5, 40, 40, ("drifting",))
    found = [record for trace in traces for record in records_of(trace, COST)]
    return sorted(found, key=lambda record: record.at_s)


def test_the_sums_of_partitions_are_those_of_one_process(
    spark: SparkSession, tmp_path: Path, records: list[DecisionRecord]
) -> None:
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    Ingestion(spark, spool, lake).take(write(spool, "retained_decisions", [row_of(record) for record in records]))
    frame = lake.read(spark, "retained_decisions")
    read = {record_of(row.asDict()).topic for row in frame.collect()}
    assert read == {record.topic for record in records}
    together = TrainingStatistics(COST)
    for part in summed(frame.repartition(3), COST).collect():
        together.merge(TrainingStatistics.from_bytes(bytes(part.statistics)))
    alone = TrainingStatistics(COST)
    alone.learn([record for record in records if not is_held_out(record.topic)])
    assert together.fit().cells == alone.fit().cells
    assert len(together) == len(alone)


def test_training_goes_on_where_it_was_and_the_gate_decides(
    spark: SparkSession, tmp_path: Path, records: list[DecisionRecord]
) -> None:
    spool, lake, policy_file = tmp_path / "spool", Lake(tmp_path / "lake"), tmp_path / "retained.policy"
    ingestion = Ingestion(spark, spool, lake)
    rows = [row_of(record) for record in records]
    half = len(rows) // 2
    ingestion.take(write(spool, "retained_decisions", rows[:half]))
    strict = train(spark, lake, policy_file, COST, gate=Gate(min_topics=1_000))
    assert strict.records == half
    assert not policy_file.exists(), "what the gate does not let pass is not written"
    assert "not passed" in str(strict)
    shown = History(lake.root).gate()
    assert shown is not None
    assert (shown.passed, shown.reasons) == (False, strict.verdict.reasons), "whoever shows it learns of a refusal"
    ingestion.take(write(spool, "retained_decisions", rows[half:], half + 1))
    loose = train(spark, lake, policy_file, COST, gate=Gate(margin=0.5, min_topics=2))
    assert loose.records == len(rows) - half
    assert read_policy(policy_file).policy.version == loose.version
    shown = History(lake.root).gate()
    assert shown is not None
    assert (shown.passed, shown.version) == (True, loose.version)
    again = train(spark, lake, policy_file, COST, gate=Gate(margin=0.5, min_topics=2))
    assert again.records == 0
    assert again.cells == loose.cells
    assert train(spark, lake, tmp_path / "x.policy", COST, topic_class="no/such").records == 0
    with pytest.raises(TrainingStateError, match="remove it to train afresh"):
        train(spark, lake, policy_file, CostModel(0.3, 10.0))


def test_the_policy_is_better_on_topics_nobody_had_seen(spark: SparkSession, tmp_path: Path) -> None:
    from rl_policy import RenewalPolicy, outcome_of

    spool, lake, policy_file = tmp_path / "spool", Lake(tmp_path / "lake"), tmp_path / "retained.policy"
    traces = make_traces(11, 120, 100, ("drifting",))
    rows = [row_of(record) for trace in traces for record in records_of(trace, COST)]
    Ingestion(spark, spool, lake).take(write(spool, "retained_decisions", sorted(rows, key=lambda row: row["at"])))
    assert train(spark, lake, policy_file, COST).version is not None
    unseen = batch_of(make_traces(12, 40, 100, ("drifting",)), COST)
    learned = outcome_of(read_policy(policy_file).policy, unseen)
    assert learned.costs.mean() < outcome_of(RenewalPolicy(), unseen).costs.mean()
