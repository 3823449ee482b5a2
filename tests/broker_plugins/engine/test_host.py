"""A stock amqtt broker with the engine in it: its configuration, its plugins, its events and its context still work."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_plugins.engine.host import PRIVATE_NAMES
from tests.brokers import ALLOW_ANONYMOUS, ENGINE, free_port, locus
from tests.mqtt_wire import (
    DISCONNECT,
    Kind,
    Packet,
    Wire,
    connect,
    connect_packet,
    publish,
    subscribe,
    unsubscribe,
    wait_for,
)

HERE = "tests.broker_plugins.engine.host_plugins."
SCRIPTS = Path(sysconfig.get_path("scripts"))
REPOSITORY = Path(__file__).parents[3]


# The contract with amqtt.


@pytest.mark.parametrize(("owner", "name", "use"), PRIVATE_NAMES)
async def test_amqtt_still_has_the_private_names_we_use(owner: str, name: str, use: str) -> None:
    """Where this fails, a new amqtt has moved `name`: `host` must find what it is called now."""
    from amqtt.broker import Broker

    broker = Broker({"listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:0"}}, "plugins": {}})
    owners: dict[str, Any] = {
        "amqtt.broker.BrokerContext": broker.plugins_manager.context,
        "amqtt.broker.Broker": broker,
        "amqtt.plugins.manager.PluginManager": broker.plugins_manager,
    }
    module, _, cls = owner.rpartition(".")
    assert isinstance(owners[owner], getattr(importlib.import_module(module), cls))
    assert hasattr(owners[owner], name), f"{owner}.{name} is gone; the engine needs it: {use}"


def test_only_one_module_touches_private_names_of_amqtt() -> None:
    for path in (REPOSITORY / "broker_plugins").rglob("*.py"):
        source = path.read_text()
        if path.name != "host.py":
            assert "_broker_instance" not in source, path
            for _, name, _ in PRIVATE_NAMES:
                assert f".{name}" not in source.replace(f"self.{name}", ""), f"{path} uses {name}"


def test_a_stock_broker_with_the_example_configuration(tmp_path: Path) -> None:
    port = free_port()
    configuration = yaml.safe_load((REPOSITORY / "examples/plugin/broker.yaml").read_text())
    configuration["listeners"]["default"]["bind"] = f"127.0.0.1:{port}"
    file = tmp_path / "broker.yaml"
    file.write_text(yaml.safe_dump(configuration))
    process = subprocess.Popen(
        [sys.executable, "-m", "amqtt.scripts.broker_script", "-c", str(file)],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'examples/plugin'}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def answers() -> bool:
            try:
                connect(port, "probe").close()
            except OSError:
                return False
            return True

        wait_for(answers, "amqtt to listen", 20)
        with connect(port, "caretaker") as wire:
            assert wire.subscribe(("alarm/#", 1), ("alarm/#/x", 0)) == [1, 0x80]
            wire.send(publish("alarm/x", b"fire", qos=2, packet_id=7))
            assert wire.expect(Kind.PUBLISH).payload == b"FIRE"
        assert (tmp_path / "data" / "locus.db").exists()
    finally:
        process.terminate()
        process.wait(10)


# Starting.


def run_broker(configuration: dict[str, Any], directory: Path) -> subprocess.CompletedProcess[str]:
    file = directory / "broker.yaml"
    file.write_text(yaml.safe_dump(configuration))
    command = [SCRIPTS / "locus", "broker", "-c", file]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=30, check=False)


def test_what_is_wrong_is_a_sentence(tmp_path: Path) -> None:
    listeners = {"default": {"type": "tcp", "bind": f"127.0.0.1:{free_port()}"}}
    plugins: dict[str, Any] = {ENGINE: {"data_dir": "data"}, **ALLOW_ANONYMOUS}
    with locus() as broker:
        taken = {"default": {"type": "tcp", "bind": f"127.0.0.1:{broker.port}"}}
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"listeners": taken, "plugins": plugins}, "address already in use"),
            ({"listeners": listeners, "plugins": {ENGINE: {"durability": "maybe"}}}, "'maybe' is none of"),
            ({"listeners": listeners, "plugins": {ENGINE: {"max_inflight": 0}}}, "max_inflight: 0 is too small"),
            ({"listeners": listeners, "plugins": {ENGINE: {"max_speed": 1}}}, "max_speed"),
            ({"listeners": listeners, "plugins": {"no.such.Plugin": {}}}, "no.such.Plugin"),
            ({"listeners": listeners, "plugins": {ENGINE: {"data_dir": "/proc/nowhere"}}}, "choose another data_dir"),
            ({"listeners": listeners, "plugins": dict(ALLOW_ANONYMOUS)}, "EnginePlugin"),
        ]
        for configuration, words in wrong:
            result = run_broker(configuration, tmp_path)
            assert result.returncode == 1, words
            assert words in result.stderr
            assert "Traceback" not in result.stderr, words
    missing = subprocess.run(
        [SCRIPTS / "locus", "broker", "-c", "missing.yaml"], capture_output=True, text=True, timeout=30, check=False
    )
    assert missing.returncode == 1
    assert "cannot read missing.yaml" in missing.stderr


def test_a_broker_stops_when_asked() -> None:
    with locus() as broker:
        wires = [connect(broker.port, f"c{at}") for at in range(5)]
        assert broker.stop() == 0
        for wire in wires:
            wire.wait_until_closed()


# Plugins of amqtt.


def answer(port: int, **credentials: Any) -> int:
    with Wire(port) as wire:
        wire.send(connect_packet("c", **credentials))
        return wire.expect(Kind.CONNACK).return_code


def test_the_password_file_plugin(tmp_path: Path) -> None:
    from pwdlib import PasswordHash
    from pwdlib.hashers.argon2 import Argon2Hasher

    file = tmp_path / "passwords"
    file.write_text("alice:" + PasswordHash((Argon2Hasher(),)).hash("wonderland") + "\n")
    plugins = {"amqtt.plugins.authentication.FileAuthPlugin": {"password_file": str(file)}}
    with locus(plugins=plugins) as broker:
        assert answer(broker.port, username="alice", password="wonderland") == 0
        assert answer(broker.port, username="alice", password="looking glass") == 4
        assert answer(broker.port, username="bob", password="wonderland") == 4
        assert answer(broker.port) == 5
        assert "wonderland" not in broker.log


def test_no_anonymous_clients_where_they_are_not_wanted() -> None:
    with locus(plugins={"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": False}}) as broker:
        assert answer(broker.port) == 5
        assert answer(broker.port, username="somebody") == 0


def test_nobody_comes_in_where_no_plugin_vouches() -> None:
    with locus(plugins={}) as broker:
        assert answer(broker.port) == 5


def test_a_door_that_asks_elsewhere() -> None:
    with locus(plugins={HERE + "SlowDoor": {}}) as broker:
        assert answer(broker.port, username="friend") == 0
        assert answer(broker.port, username="foe") == 4
        with Wire(broker.port) as wire:  # packets that follow CONNECT wait for the answer
            wire.send(connect_packet("eager", username="friend"), subscribe(("t", 0)), publish("t", b"m"))
            wire.expect(Kind.CONNACK)
            assert wire.messages(1)[0].payload == b"m"


def test_the_access_control_list_plugin() -> None:
    acl = {"publish_acl": {"anonymous": ["ok/#"]}, "acl": {"anonymous": ["ok/#", "read/+"]}}
    plugins = {**ALLOW_ANONYMOUS, "amqtt.plugins.topic_checking.TopicAccessControlListPlugin": acl}
    with locus(plugins=plugins) as broker, connect(broker.port, "c") as wire:
        assert wire.subscribe(("ok/x", 0), ("secret", 0), ("#", 0), ("read/+", 1)) == [0, 0x80, 0x80, 1]
        assert wire.subscribe(("$share/g/secret", 0), ("$geo/bbox:0,0,1,1/secret", 0)) == [0x80, 0x80]
        wire.send(publish("read/x", b"no", qos=1), publish("ok/x", b"yes", qos=1, packet_id=2))
        found = wire.messages_until_ping()
        assert [message.payload for message in found] == [b"yes"]


def test_a_guard_that_asks_elsewhere_keeps_order_and_forbids() -> None:
    with (
        locus(plugins={**ALLOW_ANONYMOUS, HERE + "SlowGuard": {}}) as broker,
        connect(broker.port, "s") as receiver,
        connect(broker.port, "p") as sender,
    ):
        assert receiver.subscribe(("#", 1), ("forbidden/x", 0)) == [1, 0x80]
        packets = []
        for at in range(30):
            topic = ["ok", "forbidden/y", "unreadable"][at % 3]
            packets.append(publish(topic, b"%d" % at, qos=1, packet_id=at + 1, retain=True))
        sender.send(*packets)
        assert [sender.expect(Kind.PUBACK).packet_id for _ in range(30)] == list(range(1, 31))
        assert [int(message.payload) for message in receiver.messages(10)] == list(range(0, 30, 3))
        with connect(broker.port, "late") as late:
            late.subscribe(("#", 1))
            assert [message.topic for message in late.messages(1)] == ["ok"]
            assert late.messages_until_ping() == []


def test_events_reach_plugins_that_listen() -> None:
    with (
        locus(plugins={**ALLOW_ANONYMOUS, HERE + "Diary": {}}) as broker,
        connect(broker.port, "reader") as reader,
    ):
        reader.subscribe(("diary", 0))
        with connect(broker.port, "actor", username="ada") as actor:
            actor.subscribe(("t", 1))
            actor.send(publish("t", b"hi", retain=True))
            actor.send(unsubscribe("t"), DISCONNECT)
            actor.wait_until_closed()
        expected = [
            ["connected", ["actor", "ada", "connected"]],
            ["subscribed", ["actor", "t", 1]],
            ["received", ["actor", "t", "hi"]],
            ["retained", ["t", "hi"]],
            ["unsubscribed", ["actor", "t"]],
            ["disconnected", "actor"],
        ]
        heard: list[Any] = []
        while not all(event in heard for event in expected):
            heard += [json.loads(message.payload) for message in reader.messages(1)]


def test_packet_events_carry_packets_of_amqtt() -> None:
    with (
        locus(plugins={**ALLOW_ANONYMOUS, HERE + "PacketCounter": {}}) as broker,
        connect(broker.port, "actor") as actor,
    ):
        actor.subscribe(("t", 1))
        actor.send(publish("t", b"hi", qos=1))
        actor.messages_until_ping()
        expected = {
            "in ConnectPacket",
            "out ConnackPacket",
            "in SubscribePacket",
            "out SubackPacket",
            "in PublishPacket",
            "out PublishPacket",
            "out PubackPacket",
            "in PubackPacket",
            "in PingReqPacket",
            "out PingRespPacket",
        }

        def counted() -> set[str]:
            with connect(broker.port, "auditor") as auditor:
                auditor.send(subscribe(("packets", 0)))
                return set(json.loads(auditor.messages(1)[0].payload))

        wait_for(lambda: expected <= counted(), "all packets to be counted")


def test_amqtts_own_sys_and_logging_plugins() -> None:
    plugins = {
        **ALLOW_ANONYMOUS,
        "amqtt.plugins.sys.broker.BrokerSysPlugin": {"sys_interval": 1},
        "amqtt.plugins.logging_amqtt.EventLoggerPlugin": {},
        "amqtt.plugins.logging_amqtt.PacketLoggerPlugin": {},
    }
    with locus(plugins=plugins) as broker, connect(broker.port, "c") as wire:
        wire.subscribe(("$SYS/broker/messages/publish/received", 0), ("$SYS/broker/clients/connected", 0))
        wire.send(publish("a"), publish("b"))
        found: list[Packet] = []
        while not {("$SYS/broker/messages/publish/received", b"2"), ("$SYS/broker/clients/connected", b"1")} <= {
            (message.topic, message.payload) for message in found
        }:
            found += wire.messages(1)


def test_the_context_of_the_broker() -> None:
    with locus(plugins={**ALLOW_ANONYMOUS, HERE + "Steward": {}}) as broker, connect(broker.port, "c") as wire:
        wire.send(subscribe(("steward/#", 0)))
        found = {message.topic: json.loads(message.payload) for message in wire.messages(2)}
        assert found == {"steward/sessions": ["absent"], "steward/filters": ["for/absent"]}
        wire.send(publish("for/absent", b"welcome", qos=1))
        wire.expect(Kind.PUBACK)
        with connect(broker.port, "absent", clean=False) as absent:
            assert [message.payload for message in absent.messages(1)] == [b"welcome"]


def test_our_sys_topics() -> None:
    plugins = {**ALLOW_ANONYMOUS, "broker_plugins.sys_topics.SysTopicsPlugin": {"interval_s": 0.2}}
    with locus(plugins=plugins) as broker, connect(broker.port, "c") as wire:
        wire.send(subscribe(("$SYS/broker/clients/connected", 0)))
        while wire.messages(1)[0].payload != b"1":
            pass


@pytest.mark.skipif(shutil.which("amqtt") is None and not (SCRIPTS / "amqtt").exists(), reason="no amqtt script")
def test_a_plugin_without_the_engine_says_so(tmp_path: Path) -> None:
    port = free_port()
    configuration = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {**ALLOW_ANONYMOUS, "examples.plugin.quiet_hours.QuietHours": {}},
    }
    file = tmp_path / "broker.yaml"
    file.write_text(yaml.safe_dump(configuration))
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [SCRIPTS / "amqtt", "-c", file], stderr=out, stdout=out, env={"PYTHONPATH": str(REPOSITORY)}
        )
    try:
        wait_for(lambda: "QuietHours does nothing without the engine" in log.read_text(), "the warning", 20)
    finally:
        process.terminate()
        process.wait(10)
