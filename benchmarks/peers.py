"""Brokers started beside us: Mosquitto, stock amqtt and Locus, each in its own process on a free loopback port.

Each is a context manager that writes a configuration into a directory of its own, waits until the port answers, and
leaves neither process nor directory behind. The tests use them too.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Plugins = Mapping[str, Mapping[str, Any]]

ENGINE = "broker_plugins.engine.plugin.EnginePlugin"
ANONYMOUS = "amqtt.plugins.authentication.AnonymousAuthPlugin"
ALLOW_ANONYMOUS: Plugins = {ANONYMOUS: {"allow_anonymous": True}}
START_SECONDS = 60.0
STOP_SECONDS = 10.0
REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_CONFIGURATION = REPOSITORY / "broker_plugins" / "default_broker.yaml"


class BrokerDidNotStartError(RuntimeError):
    """A broker's process ended, or its port stayed silent, before it served anyone."""


@dataclass(slots=True)
class RunningBroker:
    """A broker in a process of its own.

    Args:
        name: `mosquitto`, `amqtt` or `locus`.
        port: where it listens on 127.0.0.1.
        process: the process, for signals.
        directory: its configuration, log and data.
    """

    name: str
    port: int
    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def log(self) -> str:
        """What it has said so far, on standard output and standard error."""
        return (self.directory / "log").read_text(errors="replace")

    def cpu_seconds(self) -> float:
        """Processor time it has used, user and system."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def memory(self) -> int:
        """Bytes of memory that are its own (USS): what would be free if it ended now."""
        return int(psutil.Process(self.process.pid).memory_full_info().uss)

    def descriptors(self) -> int:
        """Open file descriptors."""
        return int(psutil.Process(self.process.pid).num_fds())

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end, insist after a while, and say how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                return self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.wait()


def free_port() -> int:
    """A loopback port nobody listens on, below the range from which outgoing connections take theirs."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def mosquitto_path() -> str | None:
    """Where Mosquitto is installed, None where it is not; Debian keeps it out of a user's PATH."""
    return shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


@contextlib.contextmanager
def mosquitto(*, settings: Sequence[str] = (), port: int | None = None) -> Iterator[RunningBroker]:
    """Mosquitto as Debian ships it, on loopback, without Nagle's delay.

    Args:
        settings: further lines for its configuration.
        port: where to listen, any free port if not said.
    """
    program = mosquitto_path()
    if program is None:
        raise BrokerDidNotStartError("mosquitto is not installed: apt-get install mosquitto")
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="locus-mosquitto-") as name:
        directory = Path(name)
        directory.chmod(0o777)  # started as root it becomes the user mosquitto, who must be able to save here
        lines = [
            "persistence true",
            f"persistence_location {directory}/",
            "set_tcp_nodelay true",
            f"listener {port} 127.0.0.1",
            "allow_anonymous true",
            *settings,
        ]
        config = directory / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        with _process("mosquitto", [program, "-c", str(config)], port, directory) as broker:
            yield broker


@contextlib.contextmanager
def stock_amqtt(
    *,
    plugins: Plugins = ALLOW_ANONYMOUS,
    settings: Mapping[str, Any] | None = None,
    listeners: Plugins | None = None,
    port: int | None = None,
) -> Iterator[RunningBroker]:
    """The broker `amqtt` as it is installed, without anything of ours.

    Args:
        plugins: its plugins with their options.
        settings: further top-level entries of its configuration.
        listeners: further listeners.
        port: where to listen, any free port if not said.
    """
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="locus-amqtt-") as name:
        directory = Path(name)
        config = _write_config(directory, port, plugins, settings, listeners)
        command = [sys.executable, "-m", "amqtt.scripts.broker_script", "-c", str(config)]
        with _process("amqtt", command, port, directory) as broker:
            yield broker


@contextlib.contextmanager
def locus(
    *,
    plugins: Plugins = ALLOW_ANONYMOUS,
    engine: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    listeners: Plugins | None = None,
    port: int | None = None,
    directory: Path | None = None,
) -> Iterator[RunningBroker]:
    """`locus broker` with the engine and the given plugins.

    Args:
        plugins: the plugins beside the engine, with their options.
        engine: options of the engine; `data_dir` is inside the broker's directory if not said.
        settings: further top-level entries of its configuration.
        listeners: further listeners.
        port: where to listen, any free port if not said.
        directory: where configuration, log and data go; kept afterwards, so that a broker killed can be started again
            on what it left. A temporary one if not said.

    Raises:
        BrokerDidNotStartError: it does not run, or something failed while it started.
    """
    port = port or free_port()
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="locus-broker-")))
        options = {**(plugins.get(ENGINE) or {}), "data_dir": str(directory / "data"), **(engine or {})}
        others = {path: those for path, those in plugins.items() if path != ENGINE}
        config = _write_config(directory, port, {ENGINE: options, **others}, settings, listeners)
        command = [str(Path(sysconfig.get_path("scripts")) / "locus"), "broker", "-c", str(config)]
        earlier = directory / "log"
        before = len(earlier.read_text(errors="replace")) if earlier.exists() else 0
        broker = stack.enter_context(_process("locus", command, port, directory))
        deadline = time.monotonic() + START_SECONDS
        while "Locus is listening" not in (said := broker.log[before:]) and time.monotonic() < deadline:
            time.sleep(0.01)  # its first port answers while others are still being opened
        if "Traceback" in said:  # amqtt goes on without a plugin that fails: this may be its own data path
            raise BrokerDidNotStartError(f"locus did not start whole; it said:\n{said[-4000:]}")
        yield broker


def default_plugins() -> Plugins:
    """The plugins of `make run`, with their options."""
    with DEFAULT_CONFIGURATION.open() as file:
        plugins: Plugins = yaml.safe_load(file)["plugins"]
    return plugins


def _write_config(
    directory: Path, port: int, plugins: Plugins, settings: Mapping[str, Any] | None, listeners: Plugins | None
) -> Path:
    """Write an amqtt configuration and say where it is."""
    entries = {
        **(settings or {}),
        "listeners": {
            "default": {"type": "tcp", "bind": f"127.0.0.1:{port}"},
            **{name: dict(options) for name, options in (listeners or {}).items()},
        },
        "plugins": {path: dict(options or {}) for path, options in plugins.items()},
    }
    path = directory / "broker.yaml"
    path.write_text(yaml.safe_dump(entries, sort_keys=False))
    return path


@contextlib.contextmanager
def _process(name: str, command: Sequence[str], port: int, directory: Path) -> Iterator[RunningBroker]:
    """Run a broker until the block ends; its output goes to `log` in its directory."""
    search = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search))}
    raise_descriptor_limit()  # inherited: a broker must be able to hold what the loads connect
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=directory
        )
    broker = RunningBroker(name, port, process, directory)
    try:
        _wait_until_it_answers(broker)
        yield broker
    finally:
        broker.stop()


def _wait_until_it_answers(broker: RunningBroker) -> None:
    """Return once the port takes connections."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if broker.process.poll() is not None:
            raise BrokerDidNotStartError(
                f"{broker.name} ended with {broker.process.returncode} before it listened on port {broker.port}; "
                f"it said:\n{broker.log[-4000:]}"
            )
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", broker.port), timeout=1):
            return
        time.sleep(0.02)
    raise BrokerDidNotStartError(
        f"{broker.name} did not listen on port {broker.port} within {START_SECONDS:g} s; it said:\n{broker.log[-4000:]}"
    )


def raise_descriptor_limit() -> int:
    """Allow this process, and what it starts, as many descriptors as the system permits; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
