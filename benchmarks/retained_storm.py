"""The retained storm: one subscriber to everything that is retained, which reads slower than a broker can send.

Locus and Mosquitto, each with its defaults, hold the same retained messages. A subscriber with QoS 1 reads 2 MB a
second; meanwhile a pair of bystanders exchanges messages. Counted are the messages that never come, the memory at its
peak (the kernel's own mark, nothing is sampled) and what the bystanders notice.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.latency import latency
from benchmarks.load import open_socket, packet, text
from benchmarks.report import Row, figure, median

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers import RunningBroker

PAYLOAD_BYTES = 1_000
RATE = 2_000_000.0
"""What the subscriber reads, in bytes a second."""
BOUND_BYTES = 8_388_608
"""What a broker may keep for one client: the default of `max_queued_bytes`."""
MEMORY_FACTOR = 1.2
BYSTANDER_RATE = 500.0
WINDOW = 500


@dataclass(slots=True, frozen=True)
class Storm:
    """What one broker made of it."""

    lost: int
    doubled: int
    seconds: float
    idle_bytes: int
    peak_bytes: int
    p99_before_us: float
    p99_us: float


def fill(broker: RunningBroker, count: int) -> None:
    """Publish the retained messages, acknowledged."""
    payload = bytes(PAYLOAD_BYTES)
    with open_socket(broker.port, "filler") as connection:
        for first in range(0, count, WINDOW):
            packets = [
                packet(0x33, text(f"storm/{number:07}") + (number - first + 1).to_bytes(2, "big") + payload)
                for number in range(first, min(first + WINDOW, count))
            ]
            connection.sendall(b"".join(packets))
            owed = 4 * len(packets)
            while owed:
                owed -= len(connection.recv(owed))


def resident(broker: RunningBroker, mark: str) -> int:
    """`VmRSS` or `VmHWM` of a broker's process, in bytes."""
    for line in Path(f"/proc/{broker.process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(mark):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the kernel does not tell {mark} of process {broker.process.pid}")


class Sky:
    """One broker on which a storm breaks loose, and what is noted of it."""

    def __init__(self, broker: RunningBroker, count: int) -> None:
        self.broker = broker
        self.before: list[float] = []
        self.during: list[float] = []
        self._count = count
        self._idle = 0
        self._reader: subprocess.Popen[bytes] | None = None

    def listen(self, seconds: float, into: list[float]) -> None:
        """Let the bystanders talk for a while."""
        into.append(latency(self.broker, rate=BYSTANDER_RATE, seconds=seconds).figures["p99"])

    def break_loose(self) -> None:
        """Let the slow subscriber come, in a process of its own."""
        self._idle = resident(self.broker, "VmRSS")
        # The kernel marks the peak anew from here on.
        Path(f"/proc/{self.broker.process.pid}/clear_refs").write_text("5", encoding="ascii")
        command = [sys.executable, "-m", "benchmarks.slow_reader", str(self.broker.port), str(self._count), str(RATE)]
        self._reader = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=peers.REPOSITORY)

    def outcome(self) -> Storm:
        """Wait until the subscriber has all, or gives up."""
        assert self._reader is not None
        with self._reader as reader:
            heard = json.loads(reader.communicate()[0])
        return Storm(
            lost=self._count - heard["topics"],
            doubled=heard["messages"] - heard["topics"],
            seconds=heard["seconds"],
            idle_bytes=self._idle,
            peak_bytes=resident(self.broker, "VmHWM"),
            p99_before_us=median(self.before),
            p99_us=median(self.during),
        )


def measure_storm(quick: bool, progress: Callable[[str], None]) -> tuple[list[Row], list[str]]:
    """The rows and remarks of the storm: both brokers at once, listened to in turn."""
    count, windows, seconds = (10_000, 2, 1.0) if quick else (100_000, 8, 2.5)
    with contextlib.ExitStack() as stack:
        skies = {"locus": Sky(stack.enter_context(peers.locus(plugins=peers.default_plugins())), count)}
        if peers.mosquitto_path():
            skies["mosquitto"] = Sky(stack.enter_context(peers.mosquitto()), count)
        for name, sky in skies.items():
            progress(f"storm: {count:,} retained messages for {name}")
            fill(sky.broker, count)
        for _ in range(windows):
            for sky in skies.values():
                sky.listen(seconds, sky.before)
        for sky in skies.values():
            sky.break_loose()
        progress("storm: a slow subscriber to all of them")
        time.sleep(0.5)  # until it has started
        for _ in range(windows):
            for sky in skies.values():
                sky.listen(seconds, sky.during)
        found = {name: sky.outcome() for name, sky in skies.items()}
    return rows_of(found, count), [remark_of(found, count)]


def rows_of(found: dict[str, Storm], count: int) -> list[Row]:
    """Locus against Mosquitto, and against what was to be reached."""
    ours, theirs = found["locus"], found.get("mosquitto")
    name = f"storm of {count:,} retained messages"
    allowed = MEMORY_FACTOR * ours.idle_bytes + BOUND_BYTES
    rows = [
        Row(f"{name}: received", "messages", count - ours.lost, "all of them", count, target=1.0),
        Row(
            f"{name}: peak memory",
            "MB",
            ours.peak_bytes / 1e6,
            f"{MEMORY_FACTOR:g}× idle + bound",
            allowed / 1e6,
            target=1.0,
            less_is_better=True,
            note=f"idle {ours.idle_bytes / 1e6:.0f} MB, so {(ours.peak_bytes - ours.idle_bytes) / 1e6:.1f} MB more",
        ),
        Row(
            f"{name}: a bystander's p99",
            "us",
            ours.p99_us,
            "before the storm",
            ours.p99_before_us,
            less_is_better=True,
        ),
    ]
    if theirs is not None:
        rows += [
            Row(
                f"{name}: received",
                "messages",
                count - ours.lost,
                "mosquitto",
                count - theirs.lost,
                note=f"mosquitto lost {theirs.lost:,}",
            ),
            Row(
                f"{name}: memory above idle",
                "MB",
                (ours.peak_bytes - ours.idle_bytes) / 1e6,
                "mosquitto",
                (theirs.peak_bytes - theirs.idle_bytes) / 1e6,
                less_is_better=True,
            ),
            Row(
                f"{name}: a bystander's p99",
                "us",
                ours.p99_us,
                "mosquitto",
                theirs.p99_us,
                less_is_better=True,
                note=f"mosquitto's was {figure(theirs.p99_before_us)} before; its storm was over in "
                f"{theirs.seconds:.1f} s, Locus's took {ours.seconds:.1f} s",
            ),
        ]
    return rows


def remark_of(found: dict[str, Storm], count: int) -> str:
    """How to read the rows."""
    head = (
        f"Storm: {count:,} retained messages of {PAYLOAD_BYTES:,} bytes, one subscriber with QoS 1 that reads "
        f"{RATE / 1e6:g} MB a second, both brokers with their defaults; {BYSTANDER_RATE:g} messages a second between "
        "two bystanders meanwhile, on each broker in turn."
    )
    said = [
        f"{name}: {count - each.lost:,} received, {each.lost:,} lost, {each.doubled:,} twice, in {each.seconds:.1f} s; "
        f"idle {each.idle_bytes / 1e6:.0f} MB, peak {each.peak_bytes / 1e6:.0f} MB; bystander's p99 "
        f"{each.p99_before_us:.0f} us before and {each.p99_us:.0f} us during it."
        for name, each in found.items()
    ]
    return "\n".join([head, *said])
