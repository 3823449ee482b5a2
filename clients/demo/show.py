"""Gives a demonstration: starts its processes in order, says what happens and when, and ends them all."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

from clients.city import topics
from clients.city.connection import Connection
from clients.demo.plan import HOST, DemoError
from clients.demo.processes import Child, memory_bytes, stop_all
from clients.machine import nats_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clients.demo.plan import Plan
    from clients.demo.processes import Guard

START_S: Final = 90.0
"""How long a broker may take to listen."""
STEADY_S: Final = 5.0
"""Whoever ends before it has run for so long ended early, and might only end again."""
MOST_EARLY: Final = 3
"""Whoever ended early so often in a row is not started again."""
MOST_STARTS: Final = 20
"""Whoever was started so often is not, either."""
POLL_S: Final = 0.05
METRICS: Final = "locus/metrics/+/1s"


class Show:
    """A demonstration that runs.

    Args:
        plan: what it consists of.
        guard: ends everything if this process cannot.
        told: signals that have come; the demonstration ends with the first one, and in haste with the second.
        patience_s: how long everybody may take to end.
    """

    def __init__(self, plan: Plan, guard: Guard, told: list[int], patience_s: float) -> None:
        self._plan = plan
        self._guard = guard
        self._told = told
        self._patience_s = patience_s
        self._began_s = time.monotonic()
        self._nats: list[Child] = []
        self._brokers: list[Child] = []
        self._others: list[Child] = []
        self._early: dict[str, int] = {}
        """How often in a row somebody ended early, by name."""
        self._given_up: set[str] = set()
        self._watch: Connection | None = None
        self._seen: set[str] = set()
        self._awaited: dict[str, Callable[[], str | None]] = {}

    def run(self) -> int:
        """Start everything, and go on until told to stop or until there is no broker any more; the exit code."""
        try:
            self._start()
            while not self._told:
                self._look()
                time.sleep(POLL_S)
        except _ToldError:
            pass
        finally:
            self._stop()
        return 0

    @property
    def _children(self) -> list[Child]:
        return [*self._nats, *self._brokers, *self._others]

    def _say(self, line: str) -> None:
        try:
            print(f"{time.monotonic() - self._began_s:6.1f} s  {line}", flush=True)
        except OSError:  # nobody reads any more, or the terminal is gone; that must not keep us from ending everybody
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    # Starting.

    def _start(self) -> None:
        plan = self._plan
        for sentence in plan.missing:
            self._say(sentence)
        if plan.nodes > 1:
            program = nats_program()
            assert program is not None
            words = ["-c", str(plan.write_nats_configuration())]
            nats = self._started(Child("NATS", words, self._log("nats"), self._guard, program=program), self._nats)
            self._await_port(nats, plan.nats_port)
        for number, path in enumerate(plan.write_configurations(), start=1):
            name = "broker" if plan.nodes == 1 else f"node{number}"
            self._started(Child(name, ["broker", "-c", str(path)], self._log(name), self._guard), self._brokers)
        for broker, port in zip(self._brokers, plan.broker_ports, strict=True):
            self._await_port(broker, port)
        self._say(self._listening())
        self._watch = Connection(
            HOST, plan.port, "demo", filters=[topics.vehicle("v0"), METRICS], on_message=self._arrived
        )
        self._begin("city", plan.city_words(), self._moves)
        if plan.dashboard:
            self._begin("dashboard", plan.dashboard_words(), self._serves)
        if plan.spark:
            self._begin("pipeline", plan.pipeline_words(), self._measures)
            self._say("Spark is starting, which takes half a minute or more; what it measures is shown then")

    def _listening(self) -> str:
        plan = self._plan
        metrics = f"metrics at http://{HOST}:{plan.metrics_port}/metrics"
        if plan.nodes == 1:
            return f"the broker listens on {HOST}:{plan.port}, WebSockets on {plan.websocket_port}, {metrics}"
        ports = ", ".join(map(str, plan.broker_ports))
        return f"{plan.nodes} brokers listen on ports {ports} of {HOST}; {metrics} and the ports after it"

    def _log(self, name: str) -> Path:
        return self._plan.data / "logs" / f"{name}.log"

    def _started(self, child: Child, among: list[Child]) -> Child:
        among.append(child)
        child.start()
        return child

    def _begin(self, name: str, words: list[str], happened: Callable[[], str | None]) -> None:
        self._started(Child(name, words, self._log(name), self._guard), self._others)
        self._awaited[name] = happened

    def _await_port(self, child: Child, port: int) -> None:
        deadline = time.monotonic() + START_S
        while not _answers(port):
            if self._told:
                raise _ToldError
            if not child.runs:
                raise DemoError(f"{child.name} ended with code {child.exit_code}; it said: {child.last_words()}")
            if time.monotonic() > deadline:
                raise DemoError(f"{child.name} does not listen on port {port} after {START_S:g} s; see {child.log}")
            time.sleep(POLL_S)

    # What is waited for, and what is said when it happens.

    def _moves(self) -> str | None:
        if "city" not in self._seen:
            return None
        return f"the city moves: locus sub -p {self._plan.port} '$geo/circle:126.97,37.56,500m/city/vehicles/+/pos'"

    def _serves(self) -> str | None:
        return f"the dashboard is open: {self._plan.page}" if _answers(self._plan.dashboard_port) else None

    def _measures(self) -> str | None:
        if "metrics" not in self._seen:
            return None
        return f"Spark measures: locus top -p {self._plan.port}, or locus/metrics/#"

    def _arrived(self, topic: str, _payload: bytes) -> None:
        self._seen.add("metrics" if topic.startswith("locus/metrics/") else "city")

    # Going on.

    def _look(self) -> None:
        for name, happened in list(self._awaited.items()):
            line = happened()
            if line is not None:
                del self._awaited[name]
                self._say(line)
                if not self._awaited:
                    self._all_there()
        if not self._awaited and self._watch is not None:
            self._watch.leave()
            self._watch = None
        for child in self._children:
            if not child.runs and child.name not in self._given_up:
                self._revive(child)

    def _all_there(self) -> None:
        mebibytes = memory_bytes(self._children) / 2**20
        self._say(f"everything runs, in {mebibytes:,.0f} MiB of memory; logs are in {self._plan.data / 'logs'}")
        self._say("Ctrl-C stops it all")

    def _revive(self, child: Child) -> None:
        code = child.exit_code
        child.reap()
        early = time.monotonic() - child.started_s < STEADY_S
        self._early[child.name] = self._early.get(child.name, 0) + 1 if early else 0
        if self._early[child.name] < MOST_EARLY and child.starts < MOST_STARTS:
            self._say(f"{child.name} ended with code {code}; starting it again")
            child.start()
            return
        self._given_up.add(child.name)
        self._awaited.pop(child.name, None)
        reason = f"{child.name} ended with code {code} and is not started again; it said: {child.last_words()}"
        if child in self._nats or all(broker.name in self._given_up for broker in self._brokers):
            raise DemoError(reason)
        self._say(reason)

    def _stop(self) -> None:
        began_s = time.monotonic()
        self._say("stopping")
        before = len(self._told)

        def hurry() -> bool:
            return len(self._told) > before

        if self._watch is not None:
            self._watch.close()
        # At once, because the pipeline ends sooner when brokers record no more; but they leave their cluster before it.
        stop_all([*self._others, *self._brokers], self._patience_s, hurry)
        stop_all(self._nats, self._patience_s, hurry)
        self._say(f"everything has stopped, in {time.monotonic() - began_s:.1f} s")


class _ToldError(Exception):
    """Somebody asked to stop before everything had started."""


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
        return True
    return False
