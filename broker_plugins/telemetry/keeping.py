"""Keeps what was recorded from being lost with the process: the journal, and the marks where there is none."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from broker_plugins.telemetry.journal import ROLL_BYTES, Journal
from broker_plugins.telemetry.marks import Marks

if TYPE_CHECKING:
    from pathlib import Path

    from broker_plugins.telemetry.options import TelemetryCounters, TelemetryOptions
    from broker_plugins.telemetry.recorder import Room

log = logging.getLogger(__name__)

SLOW_S: Final = 0.5
"""A write that takes longer holds up the broker. One may be chance; after the second in a row the journal rests."""


class Keeping:
    """Writes down what was recorded, each time before the broker sends something.

    Args:
        spool: the spool's directory.
        incarnation: which run of the broker this is.
        options: its name, whether there is a journal, and retries.
        counters: where it is counted.
    """

    def __init__(self, spool: Path, incarnation: int, options: TelemetryOptions, counters: TelemetryCounters) -> None:
        self._spool = spool
        self._incarnation = incarnation
        self._options = options
        self._counters = counters
        self._journal = Journal(spool, options.node, incarnation) if options.journal == "turn" else None
        self._marks: Marks | None = None
        self._resting_until = 0.0
        self._failing = False
        self._slow = False
        self._written: dict[str, int] = {}

    @property
    def reliable(self) -> bool:
        """Whether everything that was kept so far is in the journal, or in segments."""
        return self._journal is not None and not self._failing

    def open(self) -> None:
        """Begin, before there is anything to keep."""
        self._mark()

    def keep(self, room: Room) -> None:
        """Write down what nobody was shown yet."""
        room.woken = False
        if self._marks is None:
            self._mark()
        touched = room.touched
        if not touched:
            return
        if self._journal is not None and (not self._failing or time.monotonic() >= self._resting_until):
            started = time.monotonic()
            try:
                self._journal.append([(records.name, records.unshown()) for records in touched])
            except OSError as error:
                self._rest(str(error))
            else:
                for records in touched:
                    records.shown()
                touched.clear()
                took_s = time.monotonic() - started
                was_slow, self._slow = self._slow, took_s > SLOW_S
                if self._slow and was_slow:
                    self._rest(f"a write took {took_s:.2f} s, and so did the last")
                elif self._failing and not self._slow:
                    self._failing = False
                    log.warning("the journal of telemetry in %s can be written again", self._spool)
                return
        if self._marks is not None:
            for records in touched:
                self._marks.made(records.name, records.made)
        if self._journal is None:
            for records in touched:
                records.shown()
            touched.clear()

    def _mark(self) -> None:
        if time.monotonic() < self._resting_until:
            return
        try:
            self._marks = Marks(self._spool, self._options.node, self._incarnation)
        except OSError as error:
            self._rest(str(error))

    def _rest(self, why: str) -> None:
        self._counters.journal_failures += 1
        self._resting_until = time.monotonic() + self._options.retry_s
        if not self._failing and self._journal is not None:
            self._failing = True
            log.error(
                "the journal of telemetry in %s: %s; the broker goes on without it and tries again every %g s: until"
                " then what is recorded is lost if the broker is killed",
                self._spool,
                why,
                self._options.retry_s,
            )

    def written(self, table: str, last: int) -> list[Path]:
        """Of a table, the records up to this one are in segments or given up: files of the journal that may go."""
        self._written[table] = last
        if self._marks is not None:
            self._marks.written(table, last)
        journal = self._journal
        if journal is None:
            return []
        if journal.bytes > ROLL_BYTES:
            journal.roll()
        return journal.settled(self._written)

    def close(self, complete: bool) -> None:
        """The broker ends; if all records are in segments, nothing is left for the next one."""
        journal, marks = self._journal, self._marks
        if journal is not None:
            journal.roll()
            if complete:
                for path in journal.files:
                    path.unlink(missing_ok=True)
        if marks is not None:
            if complete:
                marks.close()
            else:
                marks.release()
