"""The broker is killed while clients publish and receive: the spool has all they know of, once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as mqtt
import pyarrow.dataset as ds
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from broker_plugins.telemetry import TABLES
from broker_plugins.telemetry.journal import DIRECTORY
from tests.brokers import ALLOW_ANONYMOUS, RunningBroker, locus
from tests.mqtt_wire import wait_for

if TYPE_CHECKING:
    from pathlib import Path

TELEMETRY = "broker_plugins.telemetry.plugin.TelemetryPlugin"
KILLS = 6


class Crowd:
    """Clients of one run of the broker, and what each of them knows when it is killed."""

    def __init__(self, run: int, port: int) -> None:
        self.run = run
        self.port = port
        self.connected: Counter[str] = Counter()
        self.subscribed: Counter[str] = Counter()
        self.sent: set[str] = set()
        self._topics: dict[int, str] = {}
        """The topic of each packet identifier of QoS 1 and 2."""
        self._told: list[int] = []
        self.received: Counter[tuple[str, str]] = Counter()
        self._gone = threading.Event()
        self._clients = [self._receiver(qos) for qos in range(3)]
        wait_for(lambda: sum(self.subscribed.values()) == 3, "all have subscribed", 60)
        self._publisher = self._client("publisher")
        self._publisher.on_publish = lambda _, __, packet_id, ___, ____: self._told.append(packet_id)
        self._publisher.connect("127.0.0.1", port)
        self._publisher.loop_start()
        wait_for(lambda: self.connected["publisher"], "the publisher is there", 60)
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _client(self, name: str) -> mqtt.Client:
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, reconnect_on_failure=False)
        client.max_inflight_messages_set(50)
        client.on_connect = lambda *_: self.connected.update([name])
        client.on_disconnect = lambda *_: self._gone.set()
        return client

    def _receiver(self, qos: int) -> mqtt.Client:
        name = f"receiver-{qos}"
        client = self._client(name)

        def subscribe(*_: Any) -> None:
            self.connected.update([name])
            client.subscribe("k/#", qos)

        client.on_connect = subscribe
        client.on_subscribe = lambda *_: self.subscribed.update([name])
        client.on_message = lambda _, __, message: self.received.update([(name, message.topic)])
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        return client

    def _publish(self) -> None:
        number = 0
        while not self._gone.is_set() and number < 50_000:  # a packet identifier means one message
            topic = f"k/{self.run}/{number}"
            self.sent.add(topic)
            packet_id = self._publisher.publish(topic, b"x" * (number % 40), number % 3).mid
            if number % 3:  # QoS 0 is not acknowledged
                self._topics[packet_id] = topic
            number += 1
            if number % 20 == 0:
                time.sleep(0.002)  # or it would only fill its own queue

    @property
    def acknowledged(self) -> Counter[str]:
        """Topics of what was acknowledged, by PUBACK or PUBCOMP."""
        return Counter(self._topics[each] for each in self._told.copy() if each in self._topics)

    def end(self) -> None:
        """The broker is gone; nothing arrives any more."""
        for client in (self._publisher, *self._clients):
            client.loop_stop()
        self._gone.set()
        self._thread.join(60)


def rows(spool: Path, table: str) -> list[dict[str, Any]]:
    if not (spool / f"table={table}").exists():
        return []
    return list(ds.dataset(spool / f"table={table}", partitioning="hive").to_table().to_pylist())


def options(spool: Path, **others: Any) -> dict[str, dict[str, Any]]:
    return {**ALLOW_ANONYMOUS, TELEMETRY: {"spool_dir": str(spool), "node": "n1", "max_messages_per_s": 0, **others}}


def nothing_left(spool: Path, broker: RunningBroker) -> bool:
    """Whether only the broker that runs now has anything in the journal."""
    names = {path.name.removesuffix(".marks").rsplit("-", 1)[-1] for path in (spool / DIRECTORY).glob("*.marks")}
    return len(names) == 1 and broker.process.poll() is None


@pytest.mark.parametrize("roll_s", [0.05, 30.0], ids=["while segments are closed", "long before a segment is closed"])
def test_all_that_was_acknowledged_or_received_is_in_the_spool_once(tmp_path: Path, roll_s: float) -> None:
    chance = random.Random(11)
    spool = tmp_path / "spool"
    crowds: list[Crowd] = []
    for run in range(KILLS):
        with locus(plugins=options(spool, roll_s=roll_s), directory=tmp_path) as broker:
            crowd = Crowd(run, broker.port)
            enough = chance.randrange(20, 400)
            wait_for(lambda crowd=crowd, enough=enough: len(crowd.acknowledged) >= enough, "traffic", 60)
            time.sleep(chance.random() * 0.05)
            broker.kill()
            crowd.end()
            crowds.append(crowd)
    with locus(plugins=options(spool), directory=tmp_path) as broker:
        wait_for(lambda: nothing_left(spool, broker), "what the killed ones left is in segments", 60)
    assert list((spool / DIRECTORY).iterdir()) == []
    assert rows(spool, "losses") == []

    by_run: dict[str, dict[int, list[int]]] = {}
    for table in TABLES:
        for row in rows(spool, table):
            by_run.setdefault(table, {}).setdefault(row["incarnation"], []).append(row["sequence"])
    for table, runs in by_run.items():
        for sequences in runs.values():
            assert sorted(sequences) == list(range(1, len(sequences) + 1)), table
    assert len(by_run["publishes"]) == KILLS

    published = Counter(row["topic"] for row in rows(spool, "publishes"))
    acknowledged = sum((crowd.acknowledged for crowd in crowds), Counter())
    sent = set().union(*(crowd.sent for crowd in crowds))
    assert set(acknowledged.values()) == set(published.values()) == {1}
    assert acknowledged.keys() <= published.keys() <= sent
    delivered = Counter((row["client"], row["topic"]) for row in rows(spool, "deliveries"))
    received: Counter[tuple[str, str]] = sum((crowd.received for crowd in crowds), Counter())
    assert set(delivered.values()) == {1}
    assert set(received.values()) == {1}
    assert received.keys() <= delivered.keys()
    assert {topic for _, topic in received} <= published.keys(), "what was received was published"
    assert {topic for _, topic in delivered} <= published.keys()
    connected = Counter(row["client"] for row in rows(spool, "sessions") if row["event"] == "connected")
    assert connected == sum((crowd.connected for crowd in crowds), Counter())
    subscribed = Counter(row["client"] for row in rows(spool, "subscriptions") if row["event"] == "subscribed")
    assert subscribed == sum((crowd.subscribed for crowd in crowds), Counter())


def test_without_a_journal_what_is_lost_is_told(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    settings = options(spool, journal="off", roll_s=60.0)
    with locus(plugins=settings, directory=tmp_path) as broker:
        crowd = Crowd(0, broker.port)
        wait_for(lambda: len(crowd.acknowledged) >= 50, "traffic", 60)
        broker.kill()
        crowd.end()
    with locus(plugins=settings, directory=tmp_path) as broker:
        wait_for(lambda: "records 1 to" in broker.log, "the next one says so", 60)
    assert rows(spool, "publishes") == []
    losses = {row["lost_table"]: row for row in rows(spool, "losses")}
    assert losses["sessions"]["first"] == 1
    assert losses["sessions"]["last"] == 4
    assert len(crowd.acknowledged) <= losses["publishes"]["last"] <= len(crowd.sent)
    assert losses["deliveries"]["last"] >= sum(crowd.received.values())
