"""The whole loop, all of it real: broker, traffic, spool, Spark, a policy trained and loaded; it costs less after."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from rl_policy import CostModel
from spark_jobs.ingest import Ingestion
from spark_jobs.lake import Lake
from spark_jobs.train_retained import record_of, train
from tests.brokers import ALLOW_ANONYMOUS, locus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from rl_policy import DecisionRecord

pytestmark = pytest.mark.xdist_group("spark")
COST = CostModel(kappa=2.0, d_max_s=0.6)
TOPICS = 48
SUBSCRIBERS = 3
GAP_S = 0.25


def wait_for(condition: Callable[[], bool], what: str, within_s: float = 40.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def connected(port: int) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    ready = threading.Event()
    client.on_connect = lambda *_: ready.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert ready.wait(20)
    return client


def leave(client: mqtt.Client) -> None:
    client.disconnect()
    client.loop_stop()


def morning(port: int) -> None:
    """Two fleets report; one goes away, the other stays; then subscribers come."""
    staying, leaving = connected(port), connected(port)
    stop = threading.Event()

    def report() -> None:
        rounds = 0
        while not stop.is_set():
            for topic in range(TOPICS):
                staying.publish(f"fleet/stays{topic}", b"x" * 100, qos=1, retain=True)
                if rounds < 8:
                    leaving.publish(f"fleet/leaves{topic}", b"x" * 100, qos=1, retain=True)
            rounds += 1
            if rounds == 8:
                gone.set()
            stop.wait(GAP_S)

    gone = threading.Event()
    reporter = threading.Thread(target=report)
    reporter.start()
    assert gone.wait(30)
    leave(leaving)
    guests = [connected(port) for _ in range(SUBSCRIBERS)]
    for guest in guests:
        for topic in range(TOPICS):
            guest.subscribe([(f"fleet/stays{topic}", 1), (f"fleet/leaves{topic}", 1)])
    time.sleep(2 * COST.d_max_s)  # until the outcome of every decision is known: that is a matter of time by its nature
    stop.set()
    reporter.join()
    for guest in guests:
        leave(guest)
    leave(staying)


def mean_cost(records: list[DecisionRecord]) -> float:
    costs = [COST.of(r.wait_s, float("inf") if r.residual_s is None else r.residual_s) for r in records]
    return sum(costs) / len(costs)


def test_the_broker_learns_and_retained_messages_cost_less(spark: SparkSession, tmp_path: Path) -> None:
    spool, lake, policy_file = tmp_path / "spool", Lake(tmp_path / "lake"), tmp_path / "retained.policy"
    rule = {"policy": "learned", "kappa": COST.kappa, "d_max_s": COST.d_max_s}
    plugins = {
        **ALLOW_ANONYMOUS,
        "broker_plugins.retained.plugin.RetainedPlugin": {
            "topics": {"fleet/#": rule},
            "policy_file": str(policy_file),
            "policy_poll_s": 0.2,
        },
        "broker_plugins.telemetry.plugin.TelemetryPlugin": {"spool_dir": str(spool), "node": "n1", "roll_s": 0.3},
    }
    expected = 2 * TOPICS * SUBSCRIBERS

    def decisions() -> list[DecisionRecord]:
        Ingestion(spark, spool, lake).start(None).awaitTermination()
        return [record_of(row.asDict()) for row in lake.read(spark, "retained_decisions").collect()]

    with locus(plugins=plugins) as broker:
        morning(broker.port)
        wait_for(lambda: len(decisions()) >= expected, "decisions of the first morning")
        before = decisions()
        trained = train(spark, lake, policy_file, COST)
        assert trained.version is not None, trained
        wait_for(lambda: f"policy {trained.version}" in broker.log, "the policy in the broker's log")
        morning(broker.port)
        wait_for(lambda: len(decisions()) >= 2 * expected, "decisions of the second morning")
        after = [record for record in decisions() if record.policy_version == trained.version]
    assert len(before) == expected
    assert {record.policy_version for record in before} == {"renewal"}
    assert len(after) == expected
    assert mean_cost(after) < mean_cost(before) - 0.05, (mean_cost(before), mean_cost(after), trained)
