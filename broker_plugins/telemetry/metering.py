"""What recording costs, as far as it can be told while it happens, and the pace that follows from it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker_plugins.telemetry.pace import EARLY_S, Pace

if TYPE_CHECKING:
    from broker_plugins.engine.engine import Engine
    from broker_plugins.telemetry.options import TelemetryOptions
    from broker_plugins.telemetry.writer import Writer

MESSAGE_S: Final = 6e-6
"""What a message of the sample costs beside what is measured: it is not passed on as it came, and it is written."""
DELIVERY_S: Final = 1e-6
"""The same for each of its receivers."""
FIRST_S: Final = 25e-6
"""What the first of a turn costs more: what is done now and then finds the processor's caches full of other things."""
TURN_S: Final = 50e-6
"""Recording takes no longer than this, and what a turn costs anyway: else the processor was given to somebody else."""

_SCHEDULED: Final = Path("/proc/thread-self/schedstat")  # Linux


def processor_times() -> tuple[float, float]:
    """How long this thread has run, and how long it has waited for a processor (0 where the system does not tell)."""
    try:
        used_ns, waited_ns, _ = _SCHEDULED.read_bytes().split()
    except (OSError, ValueError):
        return time.thread_time(), 0.0
    return int(used_ns) / 1e9, int(waited_ns) / 1e9


class Metering:
    """Keeps the share of messages that the engine tells of within what may be recorded and what it may cost.

    Args:
        options: both bounds.
        most: the largest share that is ever recorded.
    """

    __slots__ = (
        "_busy_s",
        "_engine",
        "_looked_at",
        "_most",
        "_spent_s",
        "_started_s",
        "_too_many",
        "_turn_s",
        "_waited_s",
        "_writer",
        "_written_s",
        "drops",
        "messages",
    )

    def __init__(self, options: TelemetryOptions, most: float) -> None:
        self._most = most
        self.messages = Pace(options.max_messages_per_s, options.max_cost)
        """Of publishes and deliveries."""
        self.drops = Pace(options.max_messages_per_s)
        """Of drops."""
        self._started_s = self._turn_s = 0.0
        self._spent_s = self._busy_s = self._written_s = self._waited_s = 0.0
        self._too_many = False

    def start(self, engine: Engine, writer: Writer) -> None:
        """The broker starts."""
        self._engine = engine
        self._writer = writer
        self._looked_at = time.monotonic()
        self._busy_s, self._waited_s = processor_times()
        engine.sample(self._most)

    def begin(self, messages: int, deliveries: int) -> bool:
        """Something is about to be recorded in this turn; whether it is the first."""
        self._turn_s += MESSAGE_S * messages + DELIVERY_S * deliveries
        if self._started_s:
            return False
        self._turn_s += FIRST_S
        self._started_s = time.perf_counter()
        return True

    def recorded(self, count: int, pace: Pace) -> None:
        """So many of a kind were recorded."""
        if pace.recorded(count):
            self._too_many = True

    def end(self) -> None:
        """The turn is over."""
        if self._started_s:
            took_s = time.perf_counter() - self._started_s
            self._spent_s += self._turn_s + min(took_s, TURN_S + self._turn_s)
            self._started_s = self._turn_s = 0.0
        if self._too_many and time.monotonic() - self._looked_at >= EARLY_S:
            self.look()

    def look(self) -> None:
        """See how much there was, and what it cost; let the engine tell of the share that fits."""
        engine = self._engine
        counters = engine.counters
        now, written_s = time.monotonic(), self._writer.spent_s
        used_s, waited_s = processor_times()
        elapsed_s = max(now - self._looked_at, 1e-6)
        events = engine.sequence + counters.deliveries
        share = self._most * self.messages.seen(
            events,
            elapsed_s,
            used_s - self._busy_s,
            self._spent_s,
            written_s - self._written_s,
            waited_s - self._waited_s,
        )
        self._looked_at, self._busy_s, self._written_s, self._waited_s = now, used_s, written_s, waited_s
        self._spent_s, self._too_many = 0.0, False
        if share != engine.sampling:
            engine.sample(share)
        self.drops.seen(
            counters.dropped_qos0
            + counters.dropped_queue_full
            + counters.dropped_retained
            + counters.refused_publishes
            + counters.refused_receives,
            elapsed_s,
        )
