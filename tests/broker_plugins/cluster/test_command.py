"""`locus cluster up` and `locus cluster status`, as a user calls them."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from broker_plugins.cluster import command
from clients.cli import main
from tests.brokers import free_port
from tests.mqtt_wire import connect, publish, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LOCUS = [sys.executable, "-m", "clients.cli", "cluster"]


def run_of_ports(count: int) -> int:
    """The first of some ports in a row that are most likely free."""
    return free_port() // 10 * 10 if count <= 10 else free_port()


def test_up_and_status(tmp_path: Path) -> None:
    port, nats_port = run_of_ports(3), free_port()
    options = ["--port", str(port), "--nats-port", str(nats_port), "--metrics-port", str(run_of_ports(3))]
    output = tmp_path / "output"
    with output.open("wb") as file:
        up = subprocess.Popen(
            [*LOCUS, "up", "--nodes", "3", "--data-dir", str(tmp_path / "data"), *options],
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: "Ctrl-C" in output.read_text() or up.poll() is not None, "the cluster to be up", 40)
        assert up.poll() is None, output.read_text()
        with connect(port, "sub") as subscriber, connect(port + 2, "pub") as publisher:
            subscriber.subscribe(("hello/#", 0))
            got = []

            def heard() -> bool:
                publisher.send(publish("hello/world", b"Hello"))
                got.extend(subscriber.messages_until_ping())
                return bool(got)

            wait_for(heard, "a message to cross the cluster")
            assert {(each.topic, each.payload) for each in got} == {("hello/world", b"Hello")}
            status = subprocess.run(
                [*LOCUS, "status", "--server", f"nats://127.0.0.1:{nats_port}"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert status.returncode == 0, status.stderr
            lines = status.stdout.splitlines()
            assert "map version" in status.stdout
            assert [line.split()[:2] for line in lines[1:4]] == [
                [f"node-{number + 1}", f"127.0.0.1:{port + number}"] for number in range(3)
            ]
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(30) == 0
    status = subprocess.run(
        [*LOCUS, "status", "--server", f"nats://127.0.0.1:{nats_port}"], capture_output=True, text=True, check=False
    )
    assert status.returncode == 1
    assert "no NATS server answers" in status.stderr


def test_a_full_disk_is_said_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/node-1/broker.yaml")

    monkeypatch.setattr(command, "_up", full)
    assert main(["cluster", "up"]) == 1
    assert "/data/node-1/broker.yaml: No space left on device; see --data-dir" in capsys.readouterr().err
