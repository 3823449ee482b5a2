"""What is on disk when the broker dies, and what it makes of that."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.brokers import free_port, locus
from tests.mqtt_wire import DISCONNECT, Kind, Will, acknowledge, connect, publish, subscribe, unsubscribe

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def port() -> int:
    return free_port()


def test_retained_messages_survive_a_kill(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port) as broker, connect(port, "p") as wire:
        for topic, payload in [("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("c", b"")]:
            wire.send(publish(topic, payload, qos=1, retain=True))
            wire.expect(Kind.PUBACK)
        broker.kill()
    with locus(directory=tmp_path, port=port), connect(port, "s") as wire:
        wire.send(subscribe(("#", 1)))
        assert [(m.topic, m.payload, m.retain) for m in wire.messages(2)] == [("a", b"3", True), ("b", b"2", True)]


def test_a_session_survives_with_its_subscriptions_and_queue(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port) as broker:
        with connect(port, "s", clean=False) as wire:
            wire.subscribe(("t/#", 2), ("gone", 1))
            wire.send(unsubscribe("gone"))
            wire.expect(Kind.UNSUBACK)
        with connect(port, "p") as sender:
            for at in range(20):
                sender.send(publish(f"t/{at}", b"%d" % at, qos=1, packet_id=at + 1))
                sender.expect(Kind.PUBACK)
        broker.kill()
    with locus(directory=tmp_path, port=port), connect(port, "p") as sender:
        sender.send(publish("t/late", b"20", qos=2, packet_id=1), publish("gone", b"no", qos=1, packet_id=2))
        sender.expect(Kind.PUBREC)
        sender.expect(Kind.PUBACK)
        with connect(port, "s", clean=False) as wire:
            assert [int(message.payload) for message in wire.messages(21)] == list(range(21))
            assert wire.messages_until_ping() == []


def test_a_clean_session_leaves_nothing_behind(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port):
        for clean in (False, True):
            with connect(port, "s", clean=clean) as wire:
                wire.subscribe(("t", 1))
                wire.send(publish("t", b"m", qos=1))
                wire.expect(Kind.PUBLISH)
                wire.expect(Kind.PUBACK)
                wire.send(DISCONNECT)
                wire.wait_until_closed()
    with sqlite3.connect(tmp_path / "data" / "locus.db") as database:
        for table in ("sessions", "subscriptions", "messages", "deliveries", "inbound", "wills"):
            assert database.execute(f"SELECT COUNT(*) FROM {table}").fetchone() == (0,), table


def test_acknowledged_deliveries_are_forgotten(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port), connect(port, "s", clean=False) as wire:
        wire.subscribe(("t", 2))
        for at in range(1, 11):
            wire.send(publish("t", b"m", qos=at % 3, packet_id=at))
        over = Counter()
        while over[Kind.PUBACK] < 4 or over[Kind.PUBREL] < 3 or over[Kind.PUBCOMP] < 3 or over[Kind.PUBLISH] < 10:
            arrived = wire.read()
            over[arrived.kind] += 1
            answers = {Kind.PUBREC: Kind.PUBREL, Kind.PUBREL: Kind.PUBCOMP}
            if arrived.kind is Kind.PUBLISH and arrived.qos:
                wire.send(acknowledge(Kind.PUBACK if arrived.qos == 1 else Kind.PUBREC, arrived.packet_id))
            elif arrived.kind in answers:
                wire.send(acknowledge(answers[arrived.kind], arrived.packet_id))
        wire.send(DISCONNECT)
        wire.wait_until_closed()
    with sqlite3.connect(tmp_path / "data" / "locus.db") as database:
        for table in ("messages", "deliveries", "inbound"):
            assert database.execute(f"SELECT * FROM {table}").fetchall() == [], table


def test_a_qos_2_message_is_taken_once_though_the_broker_dies_in_between(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port) as broker:
        connect(port, "s", clean=False).subscribe(("t", 2))
        with connect(port, "p", clean=False) as sender:
            sender.send(publish("t", b"once", qos=2, packet_id=9))
            sender.expect(Kind.PUBREC)
            broker.kill()
    with locus(directory=tmp_path, port=port), connect(port, "p", clean=False) as sender:
        sender.send(publish("t", b"once", qos=2, packet_id=9, dup=True))
        sender.expect(Kind.PUBREC)
        sender.send(acknowledge(Kind.PUBREL, 9))
        sender.expect(Kind.PUBCOMP)
        sender.send(publish("t", b"next", qos=2, packet_id=9))
        sender.expect(Kind.PUBREC)
        with connect(port, "s", clean=False) as wire:
            assert [message.payload for message in wire.messages(2)] == [b"once", b"next"]


def test_a_qos_2_delivery_goes_on_with_its_packet_id(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port) as broker, connect(port, "s", clean=False) as wire:
        wire.subscribe(("t", 2))
        with connect(port, "p") as sender:
            for at in (1, 2):
                sender.send(publish("t", b"%d" % at, qos=2, packet_id=at))
                sender.expect(Kind.PUBREC)
        first, second = (wire.expect(Kind.PUBLISH) for _ in range(2))
        wire.send(acknowledge(Kind.PUBREC, first.packet_id))
        wire.expect(Kind.PUBREL)
        broker.kill()
    with locus(directory=tmp_path, port=port), connect(port, "s", clean=False) as wire:
        again = [wire.read() for _ in range(2)]
        assert (again[0].kind, again[0].packet_id) == (Kind.PUBREL, first.packet_id)
        assert (again[1].kind, again[1].packet_id, again[1].dup) == (Kind.PUBLISH, second.packet_id, True)


def test_the_will_of_a_client_cut_off_by_a_crash_is_published_after_it(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port) as broker:
        with connect(port, "s", clean=False) as wire:
            wire.subscribe(("will", 1))
        unlucky = connect(port, "unlucky", will=Will("will", b"gone", 1, retain=True))
        polite = connect(port, "polite", will=Will("will", b"never", 1))
        polite.send(DISCONNECT)
        polite.wait_until_closed()
        broker.kill()
        unlucky.close()
    with locus(directory=tmp_path, port=port), connect(port, "s", clean=False) as wire:
        with connect(port, "p") as sender:
            sender.send(publish("will", b"mark", qos=1))
        assert [message.payload for message in wire.messages(2)] == [b"gone", b"mark"]


def test_retained_messages_owed_to_a_subscription_are_still_owed_after_a_kill(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port, engine={"max_inflight": 2}) as broker:
        with connect(port, "p") as sender:
            for at in range(10):
                sender.send(publish(f"r/{at}", b"%d" % at, qos=1, retain=True))
                sender.expect(Kind.PUBACK)
        wire = connect(port, "s", clean=False)
        wire.send(subscribe(("r/#", 1)))
        wire.expect(Kind.SUBACK)
        wire.expect(Kind.PUBLISH)
        broker.kill()
    with locus(directory=tmp_path, port=port), connect(port, "s", clean=False) as wire:
        found: set[str] = set()
        while len(found) < 10:
            found |= {message.topic for message in wire.messages(1)}
        assert found == {f"r/{at}" for at in range(10)}


def test_durability_off_writes_nothing(tmp_path: Path, port: int) -> None:
    with locus(directory=tmp_path, port=port, engine={"durability": "off"}), connect(port, "s", clean=False) as wire:
        wire.send(publish("a", b"x", qos=1, retain=True))
        wire.expect(Kind.PUBACK)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("durability", ["batched", "strict"])
def test_both_durable_modes_keep_what_they_acknowledge(tmp_path: Path, port: int, durability: str) -> None:
    engine = {"durability": durability}
    with locus(directory=tmp_path, port=port, engine=engine) as broker:
        connect(port, "s", clean=False).subscribe(("t", 1))
        with connect(port, "p") as sender:
            sender.send(*[publish("t", b"%d" % at, qos=1, packet_id=at + 1) for at in range(200)])
            acknowledged = 0
            while acknowledged < 150:
                sender.expect(Kind.PUBACK)
                acknowledged += 1
            broker.kill()
    with locus(directory=tmp_path, port=port, engine=engine), connect(port, "s", clean=False) as wire:
        assert [int(message.payload) for message in wire.messages(150)] == list(range(150))


def test_a_second_broker_cannot_use_the_same_file(tmp_path: Path, port: int) -> None:
    import subprocess
    import sysconfig

    with locus(directory=tmp_path, port=port):
        program = f"{sysconfig.get_path('scripts')}/locus"
        second = subprocess.run(
            [program, "broker", "-c", str(tmp_path / "broker.yaml")], capture_output=True, text=True, timeout=30
        )
    assert second.returncode == 1
    assert "another broker uses it" in second.stderr
    assert "Traceback" not in second.stderr
