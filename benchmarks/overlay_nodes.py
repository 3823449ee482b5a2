"""What travels between three brokers when messages find `$where` subscribers by each way."""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.cluster_nodes import nodes
from benchmarks.load import LoadError, open_socket, packet, subscribe, text
from benchmarks.report import Row

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from benchmarks.cluster_nodes import Nodes
    from benchmarks.report import Report

NODES = 3
SECONDS = 60.0
BATCH = 50
WAYS = ("plain", "direct", "overlay")


def measure_nodes(report: Report, quick: bool, progress: Callable[[str], None]) -> None:
    """The same subscribers and messages by each way."""
    count = 500 if quick else 5_000
    found: dict[str, tuple[float, float, list[int]]] = {}
    for way in WAYS:
        progress(f"{NODES} nodes, content: {way}")
        with nodes(NODES, {"content": way}) as running:
            found[way] = _run(running, count)
    plain = found["plain"]
    for way in WAYS[1:]:
        messages, size, delivered = found[way]
        note = "the same deliveries" if delivered == plain[2] else f"NOT the same deliveries: {delivered} {plain[2]}"
        report.rows.append(
            Row(
                f"messages between {NODES} nodes for one published, content: {way}",
                "",
                messages / count,
                "content: plain",
                plain[0] / count,
                less_is_better=True,
                note=note,
            )
        )
        report.rows.append(
            Row(
                f"bytes between {NODES} nodes for one published, content: {way}",
                "B",
                size / count,
                "content: plain",
                plain[1] / count,
                less_is_better=True,
            )
        )


def _run(running: Nodes, count: int) -> tuple[float, float, list[int]]:
    """Messages and bytes that nodes sent to each other, and how many each subscriber got."""
    rng = random.Random(7)
    middles = [(200.0, 200.0), (500.0, 500.0), (800.0, 800.0)]
    boxes: list[list[tuple[float, float, float, float]]] = []
    with ExitStack() as stack:
        listeners: list[socket.socket] = []
        for number, broker in enumerate(running.brokers):
            x, y = middles[number % len(middles)]
            mine = []
            for _ in range(100):
                left, low = rng.gauss(x, 120), rng.gauss(y, 120)
                mine.append((left, left + 30, low, low + 30))
            boxes.append(mine)
            listener = stack.enter_context(open_socket(broker.port, f"listener-{number}"))
            listener.settimeout(SECONDS)
            filters = [f"$where/a={left}..{right},b={low}..{high}/jobs" for left, right, low, high in mine]
            subscribe(listener, [*filters, "end"], 0)
            listeners.append(listener)
        time.sleep(3.0)  # every node has announced what it wants by then; no result depends on it but the saving
        before = running.counted("forwarded"), running.counted("forwarded_bytes")
        publisher = stack.enter_context(open_socket(running.brokers[0].port, "publisher"))
        expected = [0] * NODES
        for start in range(0, count, BATCH):
            packets = []
            for _ in range(BATCH):
                x, y = rng.choice(middles)
                event = (rng.gauss(x, 150), rng.gauss(y, 150))
                packets.append(packet(0x30, text("jobs") + json.dumps({"a": event[0], "b": event[1]}).encode()))
                for number, mine in enumerate(boxes):
                    expected[number] += any(a <= event[0] <= b and c <= event[1] <= d for a, b, c, d in mine)
            publisher.sendall(b"".join(packets))
            time.sleep(0.02 if start else 0.1)
        got = [_received(listener, wanted) for listener, wanted in zip(listeners, expected, strict=True)]
        if got != expected:
            raise LoadError(f"subscribers got {got} messages, and should have got {expected}")
        return running.counted("forwarded") - before[0], running.counted("forwarded_bytes") - before[1], got


def _received(listener: socket.socket, wanted: int) -> int:
    """Count messages until there are as many as wanted, or none comes any more; then whether there are more."""
    data = bytearray()
    count = 0
    deadline = time.monotonic() + SECONDS
    while True:
        listener.settimeout(max(0.01, deadline - time.monotonic()) if count < wanted else 0.5)
        try:
            data += listener.recv(1 << 16)
        except TimeoutError:
            return count
        at = 0
        while len(data) - at >= 2:
            length, shift, head = 0, 0, at + 1
            while head < len(data):
                length |= (data[head] & 0x7F) << shift
                shift += 7
                head += 1
                if data[head - 1] < 0x80:
                    break
            if len(data) < head + length:
                break
            count += data[at] >> 4 == 3
            at = head + length
        del data[:at]
