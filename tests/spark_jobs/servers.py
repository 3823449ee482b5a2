"""A real NATS server for tests of the pipeline."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sysconfig
import time
from pathlib import Path

from tests.brokers import free_port
from tests.spark_jobs.clients import PATIENCE_S


class Nats:
    """A nats-server with JetStream in a directory, to be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        server = Path(sysconfig.get_path("scripts")) / "nats-server"
        self._command = [str(server), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(directory)]

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
