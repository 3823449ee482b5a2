from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from clients import LocusClient
from clients.cli import main
from clients.sub import TIMED_OUT
from tests.brokers import ALLOW_ANONYMOUS, free_port, locus
from tests.clients.commands import Running
from tests.clients.scripted_broker import ScriptedBroker
from tests.mqtt_wire import Kind


@pytest.fixture(scope="module")
def broker():
    plugins = {**ALLOW_ANONYMOUS, "broker_plugins.geo.plugin.GeoPlugin": {}}
    with locus(plugins=plugins) as running:
        with LocusClient(port=running.port) as client:
            client.publish("kept/a", "alpha", retain=True, qos=1)
            client.publish("kept/b", b"\xff\x00", retain=True, qos=1)
            client.publish("placed/a", {"lon": 1, "lat": 2}, retain=True, qos=1)
            client.publish("placed/b", {"lon": 50, "lat": 2}, retain=True, qos=1)
        yield running


def sub(broker, *words: str) -> int:
    return main(["sub", "-p", str(broker.port), *words])


def test_it_prints_payloads(broker, capsys):
    assert sub(broker, "-C", "1", "kept/a") == 0
    assert capsys.readouterr().out == "alpha\n"


def test_it_prints_topics_too(broker, capsys):
    assert sub(broker, "-v", "-C", "1", "kept/+", "-W", "5s") == 0
    assert capsys.readouterr().out in ("kept/a alpha\n", "kept/b \ufffd\x00\n")


def test_it_prints_json(broker, capsys):
    assert sub(broker, "--json", "-C", "2", "kept/+") == 0
    lines = sorted(map(json.loads, capsys.readouterr().out.splitlines()), key=lambda line: line["topic"])
    assert lines == [
        {"topic": "kept/a", "qos": 0, "retain": True, "payload": "alpha"},
        {"topic": "kept/b", "qos": 0, "retain": True, "payload_base64": "/wA="},
    ]


def test_smart_filters(broker, capsys):
    assert sub(broker, "-v", "-W", "500ms", "-C", "2", "$geo/bbox:0,0,10,10/placed/+") == TIMED_OUT
    assert capsys.readouterr().out == 'placed/a {"lon":1,"lat":2}\n'


def test_without_a_count_the_end_of_the_time_is_no_failure(broker, capsys):
    assert sub(broker, "-W", "50ms", "nothing/here") == 0
    assert capsys.readouterr().out == ""


def test_live_messages_for_several_filters_come_once_each(broker, capsys):
    running = Running("sub", "-p", str(broker.port), "-C", "3", "-q", "1", "live/#", "live/a")
    with LocusClient(port=broker.port) as client:
        number = 0
        while running.alive:
            client.publish("live/a", str(number), qos=1)
            number += 1
    assert running.ended() == 0
    first, *rest = map(int, capsys.readouterr().out.split())
    assert rest == [first + 1, first + 2]


def test_a_refused_filter_is_named(capsys):
    with ScriptedBroker() as scripted:
        scripted.refuse.add("$where/a>1/x")
        assert sub(scripted, "$where/a>1/x", "y") == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("locus sub: the broker refused the subscription '$where/a>1/x' (SUBACK 0x80)")


def test_a_refusal_on_return_ends_it(capsys):
    with ScriptedBroker() as scripted:
        running = Running("sub", "-p", str(scripted.port), "x")
        scripted.wait_for(Kind.SUBSCRIBE)
        scripted.refuse.add("x")
        scripted.cut()
        assert running.ended() == 1
    assert "refused the subscription 'x'" in capsys.readouterr().err


def test_a_wrong_filter_is_pointed_at(broker, capsys):
    assert sub(broker, "$geo/near:500/x") == 1
    assert capsys.readouterr().err == "$geo/near:500/x\n             ^ RADIUS needs a unit, m or km: for example 500m\n"


@pytest.mark.parametrize("words", [["-C", "0", "x"], ["--password-file", "/nowhere", "x"], ["--key", "/k", "x"]])
def test_options_that_make_no_sense(broker, words, capsys):
    assert sub(broker, *words) == 1
    assert capsys.readouterr().err.startswith("locus sub: ")


def test_a_duration_needs_to_be_one(capsys):
    with pytest.raises(SystemExit):
        main(["sub", "-W", "soon", "x"])
    assert "'soon' is not a duration" in capsys.readouterr().err


def test_nobody_there(capsys):
    assert main(["sub", "-p", str(free_port()), "x"]) == 1
    assert "cannot reach a broker" in capsys.readouterr().err


def test_an_interrupt_ends_it_quietly(broker):
    command = [sys.executable, "-m", "clients.cli", "sub", "-p", str(broker.port), "-v", "kept/a"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"kept/a alpha\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors == b""


def test_a_reader_who_leaves_ends_it_quietly(broker):
    """As `locus sub … | head -1` does."""
    command = [sys.executable, "-m", "clients.cli", "sub", "-p", str(broker.port), "busy"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    with LocusClient(port=broker.port) as client:
        client.publish("busy", "x", retain=True, qos=1)
        process.stdout.readline()
        process.stdout.close()
        while process.poll() is None:
            client.publish("busy", "y", qos=1)
        client.publish("busy", None, retain=True, qos=1)
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
