"""The processes of a demonstration: started in groups of their own, watched, and ended without a rest."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import psutil

from clients.demo import guardian

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

STOP_S: Final = 15.0
"""How long processes may take to end when they are asked to; Spark finishes what it is writing."""
STOP_IN_VAIN_S: Final = 4.0
"""The same where what they would still write is removed anyway."""
POLL_S: Final = 0.05


class Guard:
    """Has everything ended if this process is killed, or crashes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", guardian.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def watch(self, group: int) -> None:
        """End this group, too."""
        self._tell(f"+{group}")

    def forget(self, group: int) -> None:
        """That group has ended."""
        self._tell(f"-{group}")

    def tidy(self, directory: Path) -> None:
        """Remove this directory in the end."""
        self._tell(f"tidy {directory}")

    def close(self) -> None:
        """Let it do what is left to do, and wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody ended it; what follows is only less safe
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


class Child:
    """A process of the demonstration.

    Args:
        name: what it is, for people.
        words: the words of its `locus` command, or the whole command if `program` is given.
        log: the file its output goes to.
        guard: ends it if this process cannot.
        program: another program than `locus`.
    """

    def __init__(self, name: str, words: Sequence[str], log: Path, guard: Guard, *, program: str | None = None) -> None:
        self.name = name
        self.log = log
        self._guard = guard
        self._command = [program, *words] if program else [sys.executable, "-m", "clients.cli", *words]
        self._process: subprocess.Popen[bytes] | None = None
        self._group: int | None = None
        self.started_s = 0.0
        self.starts = 0

    def start(self) -> None:
        """Start it, and return at once."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for us; what it starts can be ended with it
            )
        self._group = self._process.pid
        self._guard.watch(self._group)
        self.started_s = time.monotonic()
        self.starts += 1

    @property
    def pid(self) -> int | None:
        """Its process, if it was started."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def runs(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def last_words(self, lines: int = 3) -> str:
        """The end of its log."""
        try:
            said = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join([line for line in said.splitlines() if line.strip()][-lines:])

    def family(self) -> list[psutil.Process]:
        """The process and all that it has started."""
        if self._process is None:
            return []
        try:
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        except psutil.Error:
            return []

    def ask(self) -> None:
        """Ask it to end. What it has started is left to it: Spark's own processes must not go before it."""
        if self.runs:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and its group at once."""
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)

    def reap(self) -> None:
        """Take note that it has ended, and end what it left behind."""
        if self._process is None or self._group is None:
            return
        self._process.wait()
        guardian.end([self._group], STOP_S)
        self._guard.forget(self._group)
        self._group = None


def stop_all(children: Iterable[Child], patience_s: float, hurry: Callable[[], bool]) -> None:
    """End processes and all that they have started; whoever does not end in time is killed.

    Args:
        children: what to end.
        patience_s: how long they may take.
        hurry: once it says so, nobody is waited for any longer.
    """
    running = [child for child in children if child.runs]
    families = [process for child in running for process in child.family()]
    for child in running:
        child.ask()
    deadline = time.monotonic() + patience_s
    while any(child.runs for child in running) and time.monotonic() < deadline and not hurry():
        time.sleep(POLL_S)
    for child in running:
        if child.runs:
            child.kill()
        child.reap()
    # Spark's workers are in a group of their own, and end when Spark has.
    deadline = time.monotonic() + STOP_S
    while (families := [process for process in families if _goes_on(process)]) and not hurry():
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    for process in families:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _goes_on(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def memory_bytes(children: Iterable[Child]) -> int:
    """Resident memory of processes and all that they have started."""
    whole = 0
    for child in children:
        for process in child.family():
            with contextlib.suppress(psutil.Error):
                whole += process.memory_info().rss
    return whole
