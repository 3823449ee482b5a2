"""Real clients, and what stands between them and the tables is killed with SIGKILL: in the end every count is theirs.

Traffic goes on while the Spark driver, the broker and the NATS server are killed at random moments, each started again.
A client that gets no answer does not try again, so what it knows is exact: what was answered counts once, what was not
may count once or not at all, and nothing else is there.

    LOCUS_KILLS=12 LOCUS_SEED=3 pytest tests/spark_jobs/test_exactly_once.py

A kill of the driver costs the start of a JVM, so the suite makes do with three kills of each kind of pipeline.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from nats.errors import Error as NatsError
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from spark_jobs.ingest import Ingestion
from spark_jobs.jetstream import STREAM
from spark_jobs.lake import Lake
from spark_jobs.metrics import Metrics, history
from spark_jobs.session import java_path
from spark_jobs.ship import ship
from tests.brokers import ALLOW_ANONYMOUS, free_port, locus
from tests.spark_jobs.clients import PATIENCE_S, wait_for
from tests.spark_jobs.servers import Nats

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(java_path() is None, reason="Spark needs Java: apt-get install openjdk-17-jre-headless"),
]
KILLS = int(os.environ.get("LOCUS_KILLS", "3"))
SEED = int(os.environ.get("LOCUS_SEED", "1"))
AT_ONCE = 5
"""Messages in flight."""


class Link:
    """A client that gives up when its connection is lost."""

    def __init__(self, port: int, client_id: str) -> None:
        self.lost = threading.Event()
        self.received: Counter[str] = Counter()
        self.connected = self.subscribed = False
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, reconnect_on_failure=False)
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.client.on_disconnect = lambda *_: self.lost.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self._until(lambda: self.connected)

    def _on_connect(self, *_: Any) -> None:
        self.connected = True

    def _on_subscribe(self, *_: Any) -> None:
        self.subscribed = True

    def _on_message(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        self.received[message.topic] += 1

    def _until(self, condition: Any) -> bool:
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and not self.lost.is_set():
            assert time.monotonic() < deadline
            time.sleep(0.002)
        return bool(condition())

    def subscribe(self, topic: str) -> bool:
        self.client.subscribe(topic, 1)
        return self._until(lambda: self.subscribed)

    def publish(self, topics: list[str]) -> list[bool]:
        """Publish to each with QoS 1: whether it was answered."""
        sent = [self.client.publish(topic, b"x", 1) for topic in topics]
        self._until(lambda: all(each.is_published() for each in sent))
        return [each.is_published() for each in sent]

    def leave(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Traffic(threading.Thread):
    """A subscriber and a publisher, again and again with new names, until it is told to stop."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.stop = threading.Event()
        self.certain: set[str] = set()
        """Topics whose publish was answered; every topic is published to once."""
        self.uncertain: set[str] = set()
        self.edge: set[str] = set()
        """Topics that were on their way when a connection was lost: who knows what their receiver was told."""
        self.received: Counter[str] = Counter()
        self.connected: set[str] = set()
        self.tried: set[str] = set()
        self.subscribed: set[str] = set()

    def run(self) -> None:
        life = number = 0
        while not self.stop.is_set():
            life += 1
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                links = []
                for name in (f"subscriber{life}", f"publisher{life}"):
                    self.tried.add(name)
                    links.append(Link(self._port, name))
                    stack.callback(links[-1].leave)
                    if links[-1].connected:
                        self.connected.add(name)
                subscriber, publisher = links
                if subscriber.subscribe("fleet/#"):
                    self.subscribed.add(f"subscriber{life}")
                    number = self._publish(subscriber, publisher, number)
                    self.received += subscriber.received
            time.sleep(0.05)

    def _publish(self, subscriber: Link, publisher: Link, number: int) -> int:
        last: list[str] = []
        while not (self.stop.is_set() or publisher.lost.is_set() or subscriber.lost.is_set()):
            topics = [f"fleet/{number + each}" for each in range(AT_ONCE)]
            number += AT_ONCE
            for topic, answered in zip(topics, publisher.publish(topics), strict=True):
                (self.certain if answered else self.uncertain).add(topic)
            last = topics
            if not publisher.lost.is_set():
                wait_for(
                    lambda: subscriber.lost.is_set() or all(subscriber.received[topic] for topic in last),  # noqa: B023 - called here
                    "what was published",
                )
        if publisher.lost.is_set() or subscriber.lost.is_set():
            self.edge.update(last)
        return number


class Driver:
    """`python -m spark_jobs.ingest` as a process, and how many commits it told of."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "spark_jobs.ingest", *arguments, "--trigger-s", "0.1", "--master", "local[2]"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.commits = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.commits += line.startswith("commit ")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


class Site:
    """All the processes; any of them can be killed, and is started again."""

    def __init__(self, tmp_path: Path, source: str, stack: contextlib.ExitStack) -> None:
        self.spool, self.lake, self.port = tmp_path / "spool", Lake(tmp_path / "lake"), free_port()
        self._stack, self._directory = stack, tmp_path / "broker"
        self._directory.mkdir()
        self._telemetry = {"spool_dir": str(self.spool), "node": "n1", "roll_s": 0.3, "max_messages_per_s": 0}
        self.nats = Nats(tmp_path / "nats")
        arguments = ["--lake", str(self.lake.root)]
        self.from_nats = source == "jetstream"
        if self.from_nats:
            self.nats.start()
            stack.callback(self.nats.kill)
            self._start_shipping()
            self.start_broker()
            wait_for(lambda: self.shipped > 0, "a first segment in the stream")
            arguments += ["--nats", self.nats.url, "--files-at-once", "5"]
        else:
            self.start_broker()
            arguments += ["--spool", str(self.spool), "--files-at-once", "5"]
        self._arguments = arguments
        self.start_driver()
        stack.callback(lambda: self.driver.kill())

    def start_broker(self) -> None:
        plugins = {**ALLOW_ANONYMOUS, "broker_plugins.telemetry.plugin.TelemetryPlugin": self._telemetry}
        self.life = self._stack.enter_context(contextlib.ExitStack())
        self.broker = self.life.enter_context(locus(plugins=plugins, directory=self._directory, port=self.port))

    def start_driver(self) -> None:
        self.driver = Driver(self._arguments)

    def _start_shipping(self) -> None:
        self.shipped, stop = 0, threading.Event()

        def work() -> None:
            while not stop.is_set():
                with contextlib.suppress(NatsError, OSError, TimeoutError):
                    self.shipped += ship(self.spool, self.nats.url)[0]
                stop.wait(0.1)

        shipper = threading.Thread(target=work)
        shipper.start()
        self._stack.callback(shipper.join)
        self._stack.callback(stop.set)

    def kill(self, what: str, again: bool) -> None:
        if what == "driver":
            self.driver.kill()
            if again:
                self.start_driver()
        elif what == "nats":
            self.nats.kill()
            self.nats.start()
        else:
            self.broker.kill()
            self.life.close()
            self.start_broker()

    def wait_for_commits(self, count: int) -> None:
        """Wait for so many more; a driver that gave up without NATS is started again, as a supervisor would."""
        before = self.driver.commits

        def made() -> bool:
            nonlocal before
            if self.driver.process.poll() is not None:
                self.start_driver()
                before = 0
            return self.driver.commits >= before + count

        wait_for(made, "commits of the driver", 2 * PATIENCE_S)


@pytest.mark.parametrize("source", ["spool", "jetstream"])
def test_every_count_is_what_the_clients_counted_whatever_is_killed(
    source: str, spark: SparkSession, tmp_path: Path
) -> None:
    dice = random.Random(f"{SEED} {source}")
    kinds = ["driver", "broker", "nats"] if source == "jetstream" else ["broker", "driver", "driver"]
    schedule = [kinds[number % 3] for number in range(KILLS)]
    dice.shuffle(schedule)
    with contextlib.ExitStack() as stack:
        site = Site(tmp_path, source, stack)
        traffic = Traffic(site.port)
        traffic.start()
        stack.callback(traffic.join)
        stack.callback(traffic.stop.set)
        for number, what in enumerate(schedule):
            site.wait_for_commits(dice.randrange(1, 4))
            time.sleep(dice.random() * 0.5)
            site.kill(what, again="driver" in schedule[number + 1 :])
        so_far = len(traffic.certain)
        wait_for(lambda: len(traffic.certain) > so_far, "traffic after the last kill")
        traffic.stop.set()
        traffic.join()
        site.life.close()  # the broker ends as it should
        site.driver.kill()
        if source == "jetstream":
            wait_for(lambda: ship(site.spool, site.nats.url)[0] == 0, "everything in the stream")
        else:
            again = site.spool / "table=publishes" / "hour=2026-01-02T00"  # some come once more, under another hour
            again.mkdir()
            for path in sorted(site.spool.glob("table=publishes/hour=*/*.parquet"))[::3]:
                shutil.copy(path, again / path.name)
        ingest(spark, site)
        check(spark, site.lake, traffic)


def ingest(spark: SparkSession, site: Site) -> None:
    if site.from_nats:
        ingestion = Ingestion(spark, site.lake.root / "landing", site.lake)
        ingestion.start_from_jetstream(site.nats.url, STREAM, None).awaitTermination()
    else:
        Ingestion(spark, site.spool, site.lake).start(None).awaitTermination()


def check(spark: SparkSession, lake: Lake, traffic: Traffic) -> None:
    ledger = lake.ledger()
    assert ledger.missing() == 0
    assert (ledger.counts.quarantined, ledger.counts.vanished, ledger.tables.get("losses", 0)) == (0, 0, 0)
    tables = {
        name: lake.read(spark, name).collect() for name in ("publishes", "deliveries", "sessions", "subscriptions")
    }
    for name, rows in tables.items():
        identities = Counter((row.node, row.incarnation, row.sequence) for row in rows)
        assert len(identities) == len(rows) == ledger.tables[name], name
    published = Counter(row.topic for row in tables["publishes"])
    assert traffic.certain, "there was traffic"
    assert {topic: published[topic] for topic in traffic.certain} == dict.fromkeys(traffic.certain, 1)
    assert published.keys() <= traffic.certain | traffic.uncertain
    assert set(published.values()) == {1}
    delivered = Counter(row.topic for row in tables["deliveries"])
    away_from_kills = (traffic.certain | traffic.uncertain) - traffic.edge
    assert {topic: delivered[topic] for topic in away_from_kills} == {
        topic: traffic.received[topic] for topic in away_from_kills
    }
    assert all(traffic.received[topic] <= delivered[topic] <= 1 for topic in traffic.edge)
    assert delivered.keys() <= published.keys()
    came = Counter(row.client for row in tables["sessions"] if row.event == "connected")
    assert traffic.connected <= came.keys() <= traffic.tried
    assert set(came.values()) == {1}
    subscribed = Counter(row.client for row in tables["subscriptions"] if row.event == "subscribed")
    assert traffic.subscribed <= subscribed.keys()
    assert set(subscribed.values()) == {1}
    Metrics(spark, lake).catch_up()
    rows = history(spark, lake, 60).where("scope = 'node'").collect()
    for metric, counted in (("publishes", published), ("deliveries", delivered), ("connects", came)):
        assert sum(row[metric] for row in rows) == counted.total(), metric
