"""How long a message takes at a steady rate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.load import (
    RECEIVE_BYTES,
    SILENCE_SECONDS,
    LoadError,
    Meter,
    Outcome,
    open_socket,
    publish_packets,
    subscribe,
)

if TYPE_CHECKING:
    from benchmarks.peers import RunningBroker

PERCENTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}
_SPIN_SECONDS = 2e-4


def latency(broker: RunningBroker, *, rate: float, seconds: float) -> Outcome:
    """Percentiles of the time from when a message was due to be sent until it arrived, in microseconds.

    Messages go out one by one at a steady rate whether or not earlier ones have arrived, so a broker that falls behind
    is not spared. While one is due or under way the generator spins, so that its own waking up is not measured; it
    sleeps in between, or the scheduler would take the processor from it at the wrong moment.
    """
    with (
        open_socket(broker.port, "latency-subscriber") as subscriber,
        open_socket(broker.port, "latency-publisher") as publisher,
    ):
        subscribe(subscriber, ["t/one"], 0)
        message = publish_packets(("t/one",), 0, 1).joined
        subscriber.setblocking(False)
        count = round(rate * seconds)
        due_times: list[float] = []
        arrivals: list[float] = []
        pending = 0
        meter = Meter(broker)
        clock = time.perf_counter
        started = clock() + 0.05
        while len(arrivals) < count:
            now = clock()
            due = started + len(due_times) / rate
            if now >= due and len(due_times) < count:
                publisher.sendall(message)
                due_times.append(due)
            try:
                pending += len(subscriber.recv(RECEIVE_BYTES))
            except BlockingIOError:
                if now > due + SILENCE_SECONDS:
                    break
                if len(arrivals) == len(due_times) and due - now > _SPIN_SECONDS:
                    time.sleep(due - now - _SPIN_SECONDS)
                continue
            complete, pending = divmod(pending, len(message))
            arrivals += [clock()] * complete
        if not arrivals:
            raise LoadError(f"none of {count} messages at {rate:g} a second arrived")
        waits = (np.array(arrivals) - np.array(due_times[: len(arrivals)])) * 1e6
        figures = {name: float(np.percentile(waits, share)) for name, share in PERCENTILES.items()}
        return meter.outcome(figures, dropped=count - len(arrivals))
