"""Trains the policy for retained messages from what the broker recorded of its decisions.

Idea: a decision's record tells what *every* wait would have cost, since publishes do not depend on it. Spark turns the
records of topics to learn from into sums, partition by partition; sums add, so each run only reads the commits since
the last one and adds them to what is known. Days fade. The policy grown from the sums is judged on topics it never
learned from, and written for the broker only if it is not worse than the renewal rule; the broker loads it by itself.

Command:

    python -m spark_jobs.train_retained --lake lake --policy-file retained.policy --kappa 0.2 --d-max-s 10

What one sees: how many decisions were new, what the gate found for each class of topics, and whether a policy was
written: `policy 3f9a… written to retained.policy: -0.021 messages a subscribe against the renewal rule`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark's own documentation

from rl_policy import (
    Batch,
    CostModel,
    DecisionRecord,
    Features,
    Gate,
    Presence,
    TrainingStatistics,
    Verdict,
    is_held_out,
    read_policy,
    write_policy,
)
from rl_policy.whole_file import write_whole
from spark_jobs.lake import Lake
from spark_jobs.session import build_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

MOST_JUDGED: Final = 200_000
"""Records of held-out topics that are kept to judge by, the latest: they are looked at one by one, in the driver."""
FADE_A_DAY: Final = 0.9
"""What a record counts after a day, and again after another."""
_FIELDS: Final = (
    "topic",
    "topic_class",
    "decided_at",
    "age_s",
    "gaps",
    "mean_gap_s",
    "typical_gap_s",
    "last_gap_s",
    "variation",
    "hour_of_day",
    "presence",
    "renewal_wait_s",
    "recent_wait_s",
    "wait_s",
    "policy_version",
    "propensity",
    "residual_s",
    "observed_s",
)


class TrainingStateError(ValueError):
    """What was learned before cannot be used; the message says why and what to do."""


class _State(msgspec.Struct):
    commit: int
    trained_s: float
    statistics: bytes
    judged: list[DecisionRecord]


class _Said(msgspec.Struct):
    """What the gate found, for whoever shows it: also when it let nothing pass."""

    passed: bool
    version: str | None
    trained_at: str
    differences: dict[str, tuple[float, float, float, int]]
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class Training:
    """What a run of the training came to.

    Args:
        records: decisions that were new.
        cells: cells of the table that have been seen.
        verdict: what the gate found.
        version: of the policy that was written; None if none was.
    """

    records: int
    cells: int
    verdict: Verdict
    version: str | None

    def __str__(self) -> str:
        said = [f"{self.records:,} new decisions, {self.cells:,} cells seen"]
        said += [f"  {name}: {interval}" for name, interval in self.verdict.differences.items()]
        said += [f"  not passed: {reason}" for reason in self.verdict.reasons]
        said.append("no policy written" if self.version is None else f"policy {self.version} written")
        return "\n".join(said)


def record_of(row: dict[str, Any]) -> DecisionRecord:
    """A row of the table `retained_decisions` as the record that training takes."""
    decided: datetime = row["decided_at"]
    residual, observed = row["residual_s"], row["observed_s"]
    return DecisionRecord(
        row["topic"],
        row["topic_class"],
        decided.timestamp(),
        Features(
            row["age_s"],
            row["gaps"],
            row["mean_gap_s"],
            row["typical_gap_s"],
            row["last_gap_s"],
            row["variation"],
            row["hour_of_day"],
            Presence(row["presence"]),
            row["renewal_wait_s"],
            row["recent_wait_s"],
        ),
        row["wait_s"],
        row["policy_version"],
        row["propensity"],
        residual,
        observed if residual is None else max(observed, residual),
    )


def summed(decisions: DataFrame, cost: CostModel) -> DataFrame:
    """Training statistics of the topics to learn from, as bytes: a row for each partition."""
    kappa, d_max_s = cost.kappa, cost.d_max_s

    def learn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records = [record_of(row) for batch in batches for row in batch.to_pylist()]
        records = [record for record in records if not is_held_out(record.topic)]
        if records:
            statistics = TrainingStatistics(CostModel(kappa, d_max_s))
            statistics.learn(records)
            columns = {"statistics": [statistics.to_bytes()], "records": [len(records)]}
            yield pa.RecordBatch.from_pydict(columns)

    return decisions.select(*_FIELDS).mapInArrow(learn, "statistics BINARY, records BIGINT")


def held_out(decisions: DataFrame, most: int = MOST_JUDGED) -> DataFrame:
    """The decisions on topics that are kept apart to judge by: the latest, at most so many."""

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(pa.array([is_held_out(topic) for topic in batch["topic"].to_pylist()], pa.bool_()))

    chosen = decisions.select(*_FIELDS)
    return chosen.mapInArrow(keep, chosen.schema).orderBy(F.desc("decided_at"), "topic").limit(most)


def train(
    spark: SparkSession,
    lake: Lake,
    policy_file: Path,
    cost: CostModel,
    *,
    topic_class: str | None = None,
    gate: Gate | None = None,
    now_s: float | None = None,
) -> Training:
    """Learn from the commits since the last run, and write a policy if it passes the gate.

    Args:
        spark: the session.
        lake: where the decisions are.
        policy_file: where the broker looks for its policy.
        cost: the cost model of the topics, as the broker is configured.
        topic_class: learn from topics that this filter of the broker's configuration opted in; from all if not said.
        gate: how strict the gate is.
        now_s: the time, in seconds since 1970.
    """
    now_s = time.time() if now_s is None else now_s
    state_path = lake.root / "training" / f"{policy_file.name}.state"
    state = _read_state(state_path, cost, now_s)
    statistics = TrainingStatistics.from_bytes(state.statistics)
    upto = lake.ledger().commit
    decisions = lake.read(spark, "retained_decisions", state.commit, upto)
    if topic_class is not None:
        decisions = decisions.where(F.col("topic_class") == topic_class)
    decisions = decisions.cache()
    try:
        rows = decisions.count()
        days = max(0.0, now_s - state.trained_s) / 86_400.0
        if rows and days > 0.01 and len(statistics):
            statistics.fade(FADE_A_DAY**days)
        for part in summed(decisions, cost).collect():
            statistics.merge(TrainingStatistics.from_bytes(bytes(part.statistics)))
        fresh = [record_of(row.asDict()) for row in held_out(decisions).collect()] if rows else []
    finally:
        decisions.unpersist()
    judged = sorted([*fresh, *state.judged], key=lambda record: -record.at_s)[:MOST_JUDGED]
    policy = statistics.fit()
    verdict = (gate or Gate()).judge(policy, Batch(judged, cost))
    version = None
    if verdict.passed:
        write_policy(policy_file, policy, verdict, datetime.fromtimestamp(now_s, UTC).isoformat())
        version = read_policy(policy_file).policy.version
    said = _Said(
        verdict.passed,
        version,
        datetime.fromtimestamp(now_s, UTC).isoformat(),
        {name: (i.mean, i.low, i.high, i.topics) for name, i in verdict.differences.items()},
        list(verdict.reasons),
    )
    write_whole(lake.root / "training" / f"{policy_file.name}.verdict.json", msgspec.json.encode(said))
    trained_s = now_s if rows else state.trained_s
    write_whole(state_path, msgspec.msgpack.encode(_State(upto, trained_s, statistics.to_bytes(), judged)))
    return Training(rows, len(statistics), verdict, version)


def _read_state(path: Path, cost: CostModel, now_s: float) -> _State:
    """What was learned before; a crash before it is written repeats a run, and comes to the same."""
    try:
        state = msgspec.msgpack.decode(path.read_bytes(), type=_State)
    except FileNotFoundError:
        return _State(0, now_s, TrainingStatistics(cost).to_bytes(), [])
    except msgspec.DecodeError as error:
        raise TrainingStateError(f"{path} is no state of training: {error}; remove it to train afresh") from error
    learned = TrainingStatistics.from_bytes(state.statistics).cost
    if learned != cost:
        raise TrainingStateError(f"{path} was learned for {learned}, not for {cost}; remove it to train afresh")
    return state


def run_every(seconds: float, once: bool, work: Callable[[], object]) -> None:
    """Do something now and then, or once, and print what came of it."""
    while True:
        print(work(), flush=True)
        if once:
            return
        time.sleep(seconds)


def main(argv: list[str] | None = None) -> int:
    """Run the job; see the head of this module."""
    parser = argparse.ArgumentParser(description="Train the policy for retained messages.")
    parser.add_argument("--lake", type=Path, required=True, help="the directory of the tables")
    parser.add_argument("--policy-file", type=Path, required=True, help="what the broker's policy_file names")
    parser.add_argument("--kappa", type=float, default=0.2, help="as the broker is configured (0.2)")
    parser.add_argument("--d-max-s", type=float, default=10.0, help="as the broker is configured (10)")
    parser.add_argument("--topic-class", help="only topics opted in by this filter of the broker's configuration")
    parser.add_argument("--every-s", type=float, default=0.0, help="train again and again; once if not said")
    parser.add_argument("--master", default="local[*]", help="Spark's master; empty leaves it to spark-submit")
    arguments = parser.parse_args(argv)
    spark = build_session("locus train_retained", arguments.master or None)
    cost = CostModel(arguments.kappa, arguments.d_max_s)
    lake = Lake(arguments.lake)
    run_every(
        arguments.every_s,
        arguments.every_s == 0.0,
        lambda: train(spark, lake, arguments.policy_file.absolute(), cost, topic_class=arguments.topic_class),
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
