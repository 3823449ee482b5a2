from __future__ import annotations

import json
import resource
import shutil
import socket
import time
from typing import NamedTuple

import pytest

from clients import doctor
from clients.cli import main
from clients.doctor import Health
from clients.machine import who_listens
from tests.brokers import free_port, locus


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def ports():
    chosen: dict[str, int] = {}
    while len(set(chosen.values())) < 4:
        chosen = {name: free_port() for name in ("port", "websocket-port", "dashboard-port", "metrics-port")}
    return [word for name, port in chosen.items() for word in (f"--{name}", str(port))]


def findings(capsys, *words):
    code = main(["doctor", "--json", *words])
    return code, {each["what"].partition(" (")[0]: each for each in json.loads(capsys.readouterr().out)}


def test_a_machine_on_which_tests_run_can_run_a_broker(ports, tmp_path, capsys):
    code, found = findings(capsys, *ports, "--data", str(tmp_path))
    assert code == 0
    assert found["Python"]["health"] == found["amqtt"]["health"] == found["disk"]["health"] == "ok"
    assert found[f"port {ports[1]}"] == {
        "what": f"port {ports[1]} (broker)",
        "health": "ok",
        "found": "free",
        "remedy": "",
    }
    for name in doctor.PACKAGES:
        assert name in found
    for each in found.values():
        assert bool(each["remedy"]) == (each["health"] != "ok")


def test_the_table_says_the_same(ports, tmp_path, capsys):
    assert main(["doctor", *ports, "--data", str(tmp_path / "not" / "there")]) == 0
    said = capsys.readouterr().out
    assert f"ok    port {ports[1]} (broker)" in said
    assert said.endswith(
        ("Everything is in place.\n", "A broker runs here; see the warnings for what else would be missing.\n")
    )


def test_a_broker_of_ours_may_be_running(ports, capsys):
    with locus() as broker:
        if who_listens(broker.port) is None:
            pytest.skip("this system does not tell who listens")
        code, found = findings(capsys, *ports, "--port", str(broker.port))
    assert code == 0
    assert found[f"port {broker.port}"]["health"] == "ok"
    assert found[f"port {broker.port}"]["found"].startswith("Locus listens there: ")


def test_a_taken_port_of_the_broker_is_a_failure(ports, capsys):
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        number = somebody.getsockname()[1]
        code, found = findings(capsys, *ports, "--port", str(number))
    assert code == 1
    taken = found[f"port {number}"]
    assert taken["health"] == "fail"
    assert taken["found"].startswith("is taken")
    assert "--port" in taken["remedy"]


def test_a_taken_port_of_the_dashboard_is_a_warning(ports, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        code, found = findings(capsys, *ports, "--dashboard-port", str(number))
    assert code == 0
    assert found[f"port {number}"]["health"] == "warn"


def test_without_java_a_broker_runs(ports, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, found = findings(capsys, *ports)
    assert code == 0
    assert found["Java"]["health"] == "warn"
    assert "apt-get install" in found["Java"]["remedy"]


@pytest.mark.parametrize(("free", "health"), [(10**8, Health.FAIL), (10**9, Health.WARN), (10**11, Health.OK)])
def test_room_on_the_disk(free, health, monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, free))
    assert doctor.disk(tmp_path).health is health


def test_a_directory_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    finding = doctor.disk(tmp_path)
    assert finding.health is Health.FAIL
    assert "cannot be written" in finding.found


@pytest.mark.parametrize(
    ("soft", "health"),
    [(256, Health.FAIL), (1024, Health.WARN), (65_536, Health.OK), (resource.RLIM_INFINITY, Health.OK)],
)
def test_open_files(soft, health, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, resource.RLIM_INFINITY))
    finding = doctor.files()
    assert finding.health is health
    assert ("ulimit -n 65536" in finding.remedy) == (health is not Health.OK)


def test_a_clock_that_jumps(monkeypatch):
    seconds = iter([100.0, 103.25])
    monkeypatch.setattr(time, "time", lambda: next(seconds))
    steady = iter([5.0, 5.25])
    monkeypatch.setattr(time, "monotonic", lambda: next(steady))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    finding = doctor.clock()
    assert finding.health is Health.WARN
    assert "jumped by +3.000 s" in finding.found


@pytest.mark.parametrize(("said", "health"), [("yes", Health.OK), ("no", Health.WARN), ("", Health.OK)])
def test_whether_the_clock_is_kept_right(said, health, monkeypatch, tmp_path):
    program = tmp_path / "timedatectl"
    program.write_text(f"#!/bin/sh\necho {said}\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    assert doctor.synchronised().health is health


def test_what_is_not_installed(monkeypatch):
    monkeypatch.setattr("clients.doctor.installed", lambda name: None)
    assert doctor.package("amqtt", "").health is Health.FAIL
    assert doctor.package("uvloop", "").health is Health.WARN
    assert doctor.package("pyspark", "spark").remedy == "pip install 'locus-mqtt[spark]', if you want it"
    assert doctor.package("locus-mqtt", "").remedy == "pip install -e ."
    monkeypatch.setattr("clients.doctor.nats_program", lambda: None)
    assert doctor.nats().health is Health.WARN
