"""The whole loop, all of it real: broker, traffic, spool, Spark, a policy trained and loaded; it costs less after.

A retained message is decided on when its turn comes, which is a moment after the SUBSCRIBE: if something newer reaches
the subscriber live before that, there is nothing to decide. So the reporters here let every subscriber be decided on
before they report again; how long that takes is the machine's affair.
"""

from __future__ import annotations

import re
import time
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from rl_policy import CostModel
from spark_jobs.ingest import Ingestion
from spark_jobs.lake import Lake
from spark_jobs.train_retained import record_of, train
from tests.brokers import ALLOW_ANONYMOUS, RunningBroker, free_port, locus
from tests.spark_jobs.clients import PATIENCE_S, Person, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rl_policy import DecisionRecord

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
COST = CostModel(kappa=2.0, d_max_s=0.6)
TOPICS = 48
SUBSCRIBERS = 3
ROUNDS = 8
GAP_S = 0.25
STAYING = [f"fleet/stays{topic}" for topic in range(TOPICS)]
LEAVING = [f"fleet/leaves{topic}" for topic in range(TOPICS)]
EXPECTED = len(STAYING + LEAVING) * SUBSCRIBERS


class Watched:
    """A broker with the retained and the telemetry plugin: what it says of its decisions."""

    def __init__(self, tmp_path: Path) -> None:
        self.spool, self.policy_file = tmp_path / "spool", tmp_path / "retained.policy"
        self._metrics = free_port()
        rule = {"policy": "learned", "kappa": COST.kappa, "d_max_s": COST.d_max_s}
        self.plugins: dict[str, Any] = {
            **ALLOW_ANONYMOUS,
            "broker_plugins.retained.plugin.RetainedPlugin": {
                "topics": {"fleet/#": rule},
                "policy_file": str(self.policy_file),
                "policy_poll_s": 0.2,
            },
            "broker_plugins.telemetry.plugin.TelemetryPlugin": {
                "spool_dir": str(self.spool),
                "node": "n1",
                "roll_s": 0.3,
            },
            "broker_plugins.prometheus.PrometheusPlugin": {"port": self._metrics},
        }

    def decided(self) -> int:
        """How often a policy has been asked."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=PATIENCE_S) as answer:
            found = re.search(rb"^locus_retained_decisions_total (\S+)", answer.read(), re.MULTILINE)
        assert found is not None
        return int(float(found[1]))

    def recorded(self) -> list[dict[str, Any]]:
        """The decisions whose outcome is in the spool."""
        directory = self.spool / "table=retained_decisions"
        segments = [path for path in directory.glob("hour=*/*.parquet") if not path.name.startswith(".")]
        return [row for path in segments for row in pq.ParquetFile(path).read().to_pylist()]


def morning(broker: RunningBroker, watched: Watched, recorded: int) -> None:
    """Two fleets report; one goes away, the other stays; then subscribers come, and all is recorded in the end."""
    with ExitStack() as stack:
        staying = stack.enter_context(Person(broker.port))
        with Person(broker.port) as leaving:
            for _ in range(ROUNDS):
                staying.publish(STAYING, b"x" * 100, retain=True)
                leaving.publish(LEAVING, b"x" * 100, retain=True)
                time.sleep(GAP_S)
        guests = []
        for phase in range(SUBSCRIBERS):
            staying.publish(STAYING, b"x" * 100, retain=True)
            time.sleep(GAP_S * phase / SUBSCRIBERS)
            before = watched.decided()
            guest = stack.enter_context(Person(broker.port))
            guest.subscribe(STAYING + LEAVING)
            wait_for(lambda upto=before + 2 * TOPICS: watched.decided() >= upto, "a decision for each subscription")
            guests.append(guest)
            time.sleep(GAP_S * (SUBSCRIBERS - phase) / SUBSCRIBERS)
        deadline = time.monotonic() + PATIENCE_S
        while len(watched.recorded()) < recorded:
            assert time.monotonic() < deadline, (len(watched.recorded()), recorded)
            staying.publish(STAYING, b"x" * 100, retain=True)
            time.sleep(GAP_S)
        for guest in guests:
            wait_for(lambda of=guest: all(of.received[topic, True] for topic in LEAVING), "what had been retained")
            wait_for(lambda of=guest: all(of.received[topic, False] for topic in STAYING), "what is reported live")
            assert all(guest.received[topic, True] == 1 for topic in LEAVING)
            assert all(guest.received[topic, True] <= 1 for topic in STAYING)


def mean_cost(records: list[DecisionRecord]) -> float:
    costs = [COST.of(r.wait_s, float("inf") if r.residual_s is None else r.residual_s) for r in records]
    return sum(costs) / len(costs)


def test_the_broker_learns_and_retained_messages_cost_less(spark: SparkSession, tmp_path: Path) -> None:
    watched, lake = Watched(tmp_path), Lake(tmp_path / "lake")

    def decisions() -> list[DecisionRecord]:
        Ingestion(spark, watched.spool, lake).start(None).awaitTermination()
        return [record_of(row.asDict()) for row in lake.read(spark, "retained_decisions").collect()]

    with locus(plugins=watched.plugins) as broker:
        morning(broker, watched, EXPECTED)
        before = decisions()
        trained = train(spark, lake, watched.policy_file, COST)
        assert trained.version is not None, trained
        wait_for(lambda: f"policy {trained.version}" in broker.log, "the policy in the broker's log")
        morning(broker, watched, 2 * EXPECTED)
    every = decisions()
    after = [record for record in every if record.policy_version == trained.version]
    assert len(every) == 2 * EXPECTED
    assert len(before) == EXPECTED
    assert {record.policy_version for record in before} == {"renewal"}
    assert len(after) == EXPECTED
    assert mean_cost(after) < mean_cost(before) - 0.05, (mean_cost(before), mean_cost(after), trained)


def test_a_decision_is_recorded_once_whoever_leaves_before_its_outcome(tmp_path: Path) -> None:
    """One subscriber leaves at once, one stays, and of a third the broker itself leaves before the outcome is known."""
    watched = Watched(tmp_path)
    with locus(plugins=watched.plugins) as broker:
        with Person(broker.port) as reporter:
            for _ in range(ROUNDS):
                reporter.publish(STAYING, b"x", retain=True)
                time.sleep(GAP_S)
            with Person(broker.port) as stays:
                stays.subscribe(STAYING)
                wait_for(lambda: watched.decided() >= TOPICS, "decisions for who stays")
                with Person(broker.port) as leaves:
                    leaves.subscribe(STAYING)
                    wait_for(lambda: watched.decided() >= 2 * TOPICS, "decisions for who leaves")
                wait_for(lambda: len(watched.recorded()) >= 2 * TOPICS, lambda: str(len(watched.recorded())))
        last = Person(broker.port)
        with last:
            last.subscribe(STAYING)
            wait_for(lambda: watched.decided() >= 3 * TOPICS, "decisions for who comes last")
    rows = watched.recorded()
    assert sorted(row["topic"] for row in rows) == sorted(3 * STAYING)
    assert all(row["residual_s"] is not None or row["observed_s"] > 0 for row in rows), "an outcome, or censored"
    assert len({(row["topic"], row["decided_at"]) for row in rows}) == 3 * TOPICS
