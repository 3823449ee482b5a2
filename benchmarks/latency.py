"""How long a message takes at a steady rate."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.load import (
    SILENCE_SECONDS,
    LoadError,
    Meter,
    Outcome,
    Publisher,
    Subscriber,
    open_socket,
    publish_packets,
    subscribe,
)

if TYPE_CHECKING:
    from benchmarks.peers import RunningBroker

PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}
HEARD_SECONDS = 30.0
_SPIN_SECONDS = 2e-4


def latency(
    broker: RunningBroker, *, rate: float, seconds: float, to: RunningBroker | None = None, qos: int = 0
) -> Outcome:
    """Percentiles of the time from when a message was due to be sent until it arrived, in microseconds.

    The subscriber is connected to the broker `to`, another node of its cluster, or to the same one.

    Messages go out one by one at a steady rate whether or not earlier ones have arrived, so a broker that falls behind
    is not spared. While one is due or under way the generator spins, so that its own waking up is not measured; it
    sleeps in between, or the scheduler would take the processor from it at the wrong moment.
    """
    with (
        open_socket((to or broker).port, "latency-subscriber") as listening,
        open_socket(broker.port, "latency-publisher") as sending,
    ):
        topic = f"t/{qos}/{'far' if to else 'near'}"
        subscribe(listening, [topic], qos)
        packets = publish_packets((topic,), qos)
        publisher, subscriber = Publisher(sending, packets, qos), Subscriber(listening, packets.size, qos)
        if to is not None:
            _wait_until_heard(publisher, subscriber)
        listening.setblocking(False)
        sending.setblocking(False)
        count = round(rate * seconds)
        due_times: list[float] = []
        arrivals: list[float] = []
        meter = Meter(broker)
        clock = time.perf_counter
        started = clock() + 0.05
        while len(arrivals) < count:
            now = clock()
            due = started + len(due_times) / rate
            if now >= due and len(due_times) < count:
                publisher.send(1)
                due_times.append(due)
            try:
                arrived = subscriber.receive()
            except BlockingIOError:
                if now > due + SILENCE_SECONDS:
                    break
                if len(arrivals) == len(due_times) and due - now > _SPIN_SECONDS:
                    time.sleep(due - now - _SPIN_SECONDS)
                continue
            arrivals += [clock()] * arrived
            if qos:
                with contextlib.suppress(BlockingIOError):
                    publisher.receive()
        if not arrivals:
            raise LoadError(f"none of {count} messages at {rate:g} a second arrived")
        waits = (np.array(arrivals) - np.array(due_times[: len(arrivals)])) * 1e6
        figures = {name: float(np.percentile(waits, share)) for name, share in PERCENTILES.items()}
        return meter.outcome(figures, dropped=count - len(arrivals))


def _wait_until_heard(publisher: Publisher, subscriber: Subscriber) -> None:
    """Send until something arrives, then wait for the rest: a subscription is known elsewhere a moment later."""
    deadline = time.monotonic() + HEARD_SECONDS
    subscriber.socket.settimeout(0.2)
    heard = 0
    while time.monotonic() < deadline:
        if not heard:
            publisher.send(1)
        try:
            heard += subscriber.receive()
        except TimeoutError:
            if heard:
                return
    raise LoadError(f"nothing that was published on one node reached the other within {HEARD_SECONDS:g} s")
