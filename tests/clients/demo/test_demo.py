"""`locus demo` as a user has it: a process that is started, watched and stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from benchmarks.peers import free_port

PATIENCE_S = 150.0
QUICK = ("--vehicles", "30", "--people", "10", "--subscribers", "3", "--no-dashboard")


@dataclass
class Demo:
    process: subprocess.Popen[str]
    ports: list[int]
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None

    def wait_for(self, words: str, patience_s: float = PATIENCE_S) -> str:
        """The line with these words, once it is there."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            more_may_come = self.reader is not None and self.reader.is_alive()
            for line in list(self.lines):
                if words in line:
                    return line
            assert more_may_come, "\n".join(self.lines)
            time.sleep(0.05)
        raise AssertionError(f"{words!r} was not said within {patience_s:g} s:\n" + "\n".join(self.lines))

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def demo(*words: str, nodes: int = 1, read: bool = True, **environment: str):
    """A demonstration on free ports; `words` are further ones of the command."""
    while True:
        port, metrics = free_port(), free_port()
        ports = [*range(port, port + nodes), *range(metrics, metrics + nodes)]
        ports += [free_port() for _ in range(3)]
        if len(set(ports)) == len(ports) and all(map(is_free, ports)):
            break
    command = [sys.executable, "-m", "clients.cli", "demo", "--port", str(port), "--metrics-port", str(metrics)]
    command += ["--websocket-port", str(ports[-1]), "--nats-port", str(ports[-2]), "--dashboard-port", str(ports[-3])]
    command += ["--nodes", str(nodes), *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment}
    )
    running = Demo(process, ports)

    def read_lines():
        assert process.stdout is not None
        for line in process.stdout:
            running.lines.append(line.rstrip("\n"))

    if read:
        running.reader = threading.Thread(target=read_lines, daemon=True)
        running.reader.start()
    try:
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        if running.reader is not None:
            running.reader.join(PATIENCE_S)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(condition, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def parts(running: Demo, word: str) -> list[psutil.Process]:
    """The processes of one part of the demonstration."""
    found = []
    for process in running.family():
        with suppress(psutil.Error):  # it has just ended, as helpers of Spark do
            if process.cmdline()[1:4] == ["-m", "clients.cli", word]:
                found.append(process)
    return found


def assert_nothing_is_left(running: Demo, family: list[psutil.Process]) -> None:
    assert not [process for process in family if runs(process)]
    assert not [port for port in running.ports if not is_free(port)]


def data_of(running: Demo) -> Path:
    return Path(re.search(r"logs are in (.*)/logs", running.wait_for("logs are in")).group(1))


def test_the_city_moves_and_an_interrupt_leaves_nothing_behind():
    with demo("--no-spark", *QUICK) as running:
        running.wait_for("the city moves")
        data = data_of(running)
        assert data.exists()
        family = running.family()
        assert len(family) == 3  # a broker, a city and a guardian
        assert not any(map(is_free, (running.ports[0], running.ports[1], running.ports[-1])))
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE_S) == 0
        assert_nothing_is_left(running, family)
        assert not data.exists()
        running.wait_for("everything has stopped")


def test_without_java_the_rest_runs_and_a_broker_that_dies_comes_back(tmp_path):
    nowhere = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    with demo("--data", str(tmp_path / "data"), *QUICK, **nowhere) as running:
        assert "no Java found. Spark needs Java 17" in running.wait_for("Without Spark, for want of Java")
        running.wait_for("the city moves")
        (broker,) = [process for process in running.family() if "broker" in process.cmdline()]
        wait_until(lambda: time.time() - broker.create_time() > 6.0, "time does not pass")
        broker.kill()
        running.wait_for("broker ended with code -9; starting it again")
        wait_until(lambda: not is_free(running.ports[0]), "the broker did not come back")
        family = running.family()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE_S) == 0
        assert_nothing_is_left(running, family)
    assert (tmp_path / "data" / "logs" / "broker.log").exists()


def test_a_broker_that_is_taken_away_twice_at_once_comes_back_twice():
    said = "broker ended with code -9; starting it again"
    with demo("--no-spark", *QUICK) as running:
        running.wait_for("the city moves")
        for times in (1, 2):
            wait_until(lambda: len(parts(running, "broker")) == 1, "there is no broker")
            parts(running, "broker")[0].kill()
            wait_until(lambda times=times: sum(said in line for line in running.lines) == times, f"{said}, {times}")
        wait_until(lambda: not is_free(running.ports[0]), "the broker did not come back")
        family = running.family()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE_S) == 0
        assert_nothing_is_left(running, family)


def test_nothing_outlives_a_demonstration_that_is_killed():
    with demo("--no-spark", *QUICK) as running:
        running.wait_for("the city moves")
        data = data_of(running)
        family = running.family()
        running.process.kill()
        running.process.wait()
        wait_until(lambda: not any(map(runs, family)), "processes were left behind")
        assert_nothing_is_left(running, family)
        assert not data.exists()


def test_a_demonstration_that_nobody_reads_ends_as_well():
    with demo("--no-spark", *QUICK, read=False) as running:
        assert running.process.stdout is not None
        while "the city moves" not in running.process.stdout.readline():
            assert running.process.poll() is None
        family = running.family()
        running.process.stdout.close()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE_S) == 0
        assert_nothing_is_left(running, family)


def test_a_cluster_is_shown_and_ended():
    pytest.importorskip("nats")
    with demo("--no-spark", *QUICK, nodes=3) as running:
        assert "3 brokers listen on ports" in running.wait_for("brokers listen")
        running.wait_for("the city moves")
        family = running.family()
        assert len(family) == 6  # NATS, three nodes, a city and a guardian
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE_S) == 0
        assert_nothing_is_left(running, family)


def test_a_taken_port_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "clients.cli", "demo", "--no-spark", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(
        rf"locus demo: port {port}, for the broker, is taken( by .* \(process \d+\))?: stop whoever holds it, "
        r"or choose another one with --port\n",
        done.stderr,
    )
