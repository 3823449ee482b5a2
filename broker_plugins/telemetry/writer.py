"""Brings records to the spool in a thread, and bears with a disk that is full: the broker never waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from broker_plugins.telemetry.options import TelemetryCounters, TelemetryOptions
    from broker_plugins.telemetry.recorder import Recorder
    from broker_plugins.telemetry.spool import Batch, Spool

log = logging.getLogger(__name__)

RETENTION_S: Final = 30.0
"""Time between two looks for segments to remove."""


class Writer:
    """Writes batches in their order, one at a time.

    Args:
        loop: the broker's event loop.
        spool: where they go.
        recorder: who is told that their room is free.
        options: retention and retries.
        counters: where it is counted.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        spool: Spool,
        recorder: Recorder,
        options: TelemetryOptions,
        counters: TelemetryCounters,
    ) -> None:
        self._loop = loop
        self._spool = spool
        self._recorder = recorder
        self._options = options
        self._counters = counters
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="locus-telemetry")
        self._waiting: deque[Batch] = deque()
        self._busy = False
        self._retry: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[None] | None = None
        self._clearing = loop.call_later(0, self._clear)
        self.failing = False
        """Whether the last attempt to write failed."""

    def write(self, batches: list[Batch]) -> None:
        """Write these after all others."""
        self._waiting.extend(batches)
        self._go_on()

    def _go_on(self) -> None:
        if self._busy or self._retry is not None or not self._waiting:
            if self._closing is not None and not self._closing.done() and not self._waiting:
                self._closing.set_result(None)
            return
        self._busy = True
        batch = self._waiting[0]
        future = self._thread.submit(self._spool.write, batch)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._written, batch, done))

    def _written(self, batch: Batch, done: Future[list[Path]]) -> None:
        self._busy = False
        error = done.exception()
        if isinstance(error, OSError):
            self._failed(error)
            return
        self._waiting.popleft()
        if error is None:
            self._recorder.written(batch)
            self._counters.records += len(batch)
            self._counters.segments += len(done.result())
            if self.failing:
                self.failing = False
                log.warning("telemetry can be written to %s again", self._spool.directory)
        else:
            self._recorder.lost(batch)
            log.error("%d records of %s cannot be written and are lost", len(batch), batch.table, exc_info=error)
        self._go_on()

    def _failed(self, error: OSError) -> None:
        self._counters.write_failures += 1
        if not self.failing:
            self.failing = True
            log.error(
                "telemetry cannot be written to %s: %s; trying again every %g s, keeping up to %d records",
                self._spool.directory,
                error,
                self._options.retry_s,
                self._options.max_buffered_records,
            )
        if self._closing is not None:
            self._give_up()
            return
        self._retry = self._loop.call_later(self._options.retry_s, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._go_on()

    def _give_up(self) -> None:
        """The broker ends, and the disk does not take it."""
        lost = sum(map(len, self._waiting))
        for batch in self._waiting:
            self._recorder.lost(batch)
        self._waiting.clear()
        log.error("%d records of telemetry are lost: they could not be written before shutdown", lost)
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    def _clear(self) -> None:
        """Remove what is too old or too much."""
        self._clearing = self._loop.call_later(RETENTION_S, self._clear)
        options = self._options
        future = self._thread.submit(self._spool.retain, time.time(), options.max_age_s, options.max_bytes)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._cleared, done))

    def _cleared(self, done: Future[tuple[int, int]]) -> None:
        error = done.exception()
        if error is not None:
            log.warning("old segments of telemetry cannot be removed: %s", error)
            return
        removed, self._counters.spool_bytes = done.result()
        self._counters.removed_segments += removed

    async def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits, for so long at most, and end the thread."""
        self._clearing.cancel()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._closing = self._loop.create_future()
        self._go_on()
        try:
            await asyncio.wait_for(self._closing, timeout_s)
        except TimeoutError:
            self._give_up()
        self._thread.shutdown(wait=False, cancel_futures=True)
