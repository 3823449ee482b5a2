"""Brings records to the spool in a thread, and bears with a disk that is full: the broker never waits for it.

First of all it turns what a broker that was killed left in its journal into segments.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.telemetry.leftovers import Recovered, recover

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from broker_plugins.telemetry.keeping import Keeping
    from broker_plugins.telemetry.options import TelemetryCounters, TelemetryOptions
    from broker_plugins.telemetry.recorder import Recorder
    from broker_plugins.telemetry.spool import Rows, Spool

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
        keeping: who keeps records until they are written.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        spool: Spool,
        recorder: Recorder,
        options: TelemetryOptions,
        counters: TelemetryCounters,
        keeping: Keeping,
    ) -> None:
        self._loop = loop
        self._spool = spool
        self._recorder = recorder
        self._options = options
        self._counters = counters
        self._keeping = keeping
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="locus-telemetry")
        self._waiting: deque[Rows] = deque()
        self._busy = False
        self._retry: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[None] | None = None
        self._complete = True
        self.spent_s = 0.0
        """Processor time of the thread so far."""
        self._recovered = Recovered()
        self._recovering: asyncio.TimerHandle | None = None
        self._clearing = loop.call_later(0, self._clear)
        self.failing = False
        """Whether the last attempt to write failed."""
        self._recover()

    def _in_thread(self, work: Callable[..., Any], then: Callable[..., None], *arguments: Any) -> None:
        future = self._thread.submit(work, *arguments)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(then, done))

    def _recover(self) -> None:
        self._recovering = None
        self._in_thread(self._recover_in_thread, self._was_recovered, self._recovered)

    def _recover_in_thread(self, recovered: Recovered) -> None:
        spool = self._spool
        spool.warm_up()
        recover(spool.directory, spool.node, spool.incarnation, recovered)

    def _was_recovered(self, done: Future[None]) -> None:
        recovered, self._recovered = self._recovered, Recovered()
        self._counters.recovered_records += recovered.records
        self._counters.segments += recovered.segments
        self._counters.torn_journals += recovered.torn
        losses = self._recorder.tables["losses"]
        for loss in recovered.losses:
            log.warning(
                "of %s, records %d to %d of a broker that was killed are lost", loss.table, loss.first, loss.last
            )
            if losses.share:
                losses.note(loss.incarnation, loss.table, loss.first, loss.last)
        if recovered.records:
            log.info("%d records of a broker that was killed are in %s", recovered.records, self._spool.directory)
        error = done.exception()
        if error is not None:
            self._counters.write_failures += 1
            log.log(
                logging.DEBUG if isinstance(error, OSError) and self.failing else logging.ERROR,
                "what a broker that was killed left in %s cannot be written yet: %s",
                self._spool.directory,
                error,
            )
            self.failing = True
            self._recovering = self._loop.call_later(self._options.retry_s, self._recover)

    def write(self, batches: list[Rows]) -> None:
        """Write these after all others."""
        self._waiting.extend(batches)
        self._go_on()

    def _go_on(self) -> None:
        if self._busy or self._retry is not None or not self._waiting:
            if self._closing is not None and not self._closing.done() and not self._waiting:
                self._closing.set_result(None)
            return
        self._busy = True
        rows = self._waiting[0]
        self._in_thread(self._write_in_thread, lambda done: self._written(rows, done), rows)

    def _write_in_thread(self, rows: Rows) -> list[Path]:
        try:
            return self._spool.write_rows(rows)
        finally:
            self.spent_s = time.thread_time()

    def _written(self, rows: Rows, done: Future[list[Path]]) -> None:
        self._busy = False
        error = done.exception()
        if isinstance(error, OSError):
            self._failed(error)
            return
        self._waiting.popleft()
        if error is None:
            self._recorder.written(rows)
            self._counters.records += len(rows)
            self._counters.segments += len(done.result())
            if self.failing:
                self.failing = False
                log.warning("telemetry can be written to %s again", self._spool.directory)
        else:
            self._recorder.lost(rows)
            log.error("%d records of %s cannot be written and are lost", len(rows), rows.table, exc_info=error)
        settled = self._keeping.written(rows.table, rows.last)
        if settled:
            self._thread.submit(_remove, settled)
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
        count = sum(map(len, self._waiting))
        if self._keeping.reliable:
            log.error("%d records of telemetry could not be written before shutdown: they are in the journal", count)
        else:
            for rows in self._waiting:
                self._recorder.lost(rows)
            log.error("%d records of telemetry are lost: they could not be written before shutdown", count)
        self._waiting.clear()
        self._complete = False
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    def _clear(self) -> None:
        """Remove what is too old or too much."""
        self._clearing = self._loop.call_later(RETENTION_S, self._clear)
        options = self._options
        self._in_thread(self._spool.retain, self._cleared, time.time(), options.max_age_s, options.max_bytes)

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
        if self._recovering is not None:
            self._recovering.cancel()
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
        self._keeping.close(self._complete)


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
