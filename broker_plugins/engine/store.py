"""Sessions and retained messages on disk: SQLite with a write-ahead log and group commit.

The engine notes what changed in a journal, the last change of each row only. While one group of changes is being
committed in a thread the next one gathers; acknowledgements that depend on a group wait for it (`when_safe`). A row
that came and went before its group was written costs no write at all.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from broker_plugins.engine.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger(__name__)

VERSION: Final = 1
RETRY_S: Final = 1.0

# Table -> (its columns, how many of them are its key). A noted row is a tuple of the other columns, None to delete it.
TABLES: Final = {
    "sessions": (("client", "left_at"), 1),
    "subscriptions": (("client", "filter", "qos", "position", "owed"), 2),
    "fed": (("client", "filter", "topic"), 3),
    "withheld": (("client", "filter", "topic"), 3),
    "messages": (("id", "topic", "payload", "qos"), 1),
    "deliveries": (("client", "position", "message", "qos", "retain", "packet_id", "state"), 2),
    "inbound": (("client", "packet_id", "held"), 2),
    "retained": (("topic", "payload", "qos", "properties"), 1),
    "outbox": (("number", "node", "batch"), 1),
    "places": (("name", "place"), 1),
    "wills": (("client", "topic", "payload", "qos", "retain"), 1),
}

Rows = dict[tuple[Any, ...], tuple[Any, ...] | None]


@dataclass(slots=True)
class _Group:
    """Changes that are committed together, and who waits for them."""

    tables: dict[str, Rows] = field(default_factory=lambda: {name: {} for name in TABLES})
    waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    dirty: bool = False


class Store:
    """The file of one broker.

    Args:
        path: the SQLite file.
        strict: whether a commit waits until the disk itself has it.
        loop: where waiters are called.
    """

    def __init__(self, path: Path, strict: bool, loop: asyncio.AbstractEventLoop) -> None:
        self.path = path
        self._loop = loop
        self.failures = 0
        """How many times a group could not be written and was tried again."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="locus-store")
        self._open = _Group()
        self._committing: _Group | None = None
        self._scheduled = False
        self._closed = False
        self._complained = False
        self.marks = 0
        """How many rows were noted so far: whether something noted one is seen by comparing."""
        self._retry: asyncio.TimerHandle | None = None
        self._connection = self._connect(strict)
        self.next_message_id = 1 + (self._scalar("SELECT MAX(id) FROM messages") or 0)

    def _connect(self, strict: bool) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0.2)
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={'FULL' if strict else 'NORMAL'}")
            connection.execute("PRAGMA journal_size_limit=67108864")
            connection.execute("BEGIN EXCLUSIVE")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                connection.close()
                raise StoreError(
                    f"{self.path} has version {version}, this broker reads version {VERSION}: move it away"
                )
            for table, (columns, keys) in TABLES.items():
                key = ", ".join(columns[:keys])
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns)}, PRIMARY KEY ({key})) WITHOUT ROWID"
                )
            connection.execute(f"PRAGMA user_version={VERSION}")
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            remedy = "another broker uses it" if "locked" in str(error) else "choose another data_dir"
            raise StoreError(f"cannot use {self.path}: {error}; {remedy}") from error
        except (sqlite3.DatabaseError, OSError) as error:
            raise StoreError(f"cannot use {self.path}: {error}; move it away or choose another data_dir") from error
        return connection

    def _scalar(self, query: str) -> Any:
        return self._connection.execute(query).fetchone()[0]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """Every row of a table in the order of its key: what was there when the broker started."""
        columns, keys = TABLES[table]
        query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {', '.join(columns[:keys])}"  # noqa: S608  our names
        return self._connection.execute(query).fetchall()

    def put(self, table: str, key: tuple[Any, ...], row: tuple[Any, ...]) -> None:
        """Note that a row is to be written."""
        group = self._open
        group.tables[table][key] = row
        self.marks += 1
        if not group.dirty:
            self._touch(group)

    def delete(self, table: str, key: tuple[Any, ...]) -> None:
        """Note that a row is to be deleted."""
        group = self._open
        group.tables[table][key] = None
        self.marks += 1
        if not group.dirty:
            self._touch(group)

    def _touch(self, group: _Group) -> None:
        group.dirty = True
        if not self._scheduled and self._committing is None:
            self._scheduled = True
            self._loop.call_soon(self._commit)

    @property
    def busy(self) -> bool:
        """Whether anything noted so far is not on disk yet."""
        return self._open.dirty or self._committing is not None

    def when_safe(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call back when everything noted so far is on disk: at once if it is. Callbacks keep their order."""
        if self._open.dirty:
            self._open.waiting.append((callback, arguments))
        elif self._committing is not None:
            self._committing.waiting.append((callback, arguments))
        else:
            callback(*arguments)

    def _commit(self) -> None:
        self._scheduled = False
        if self._committing is not None or not self._open.dirty or self._closed:
            return
        group = self._committing = self._open
        self._open = _Group()
        future = self._thread.submit(self._write, group.tables)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._committed, done.exception()))

    def _write(self, tables: dict[str, Rows]) -> None:
        connection = self._connection
        connection.execute("BEGIN")
        try:
            for table, rows in tables.items():
                if rows:
                    self._write_table(table, rows)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _write_table(self, table: str, rows: Rows) -> None:
        columns, keys = TABLES[table]
        puts = [key + row for key, row in rows.items() if row is not None]
        deletes = [key for key, row in rows.items() if row is None]
        if puts:
            marks = ", ".join("?" * len(columns))
            self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", puts)  # noqa: S608
        if deletes:
            where = " AND ".join(f"{column} = ?" for column in columns[:keys])
            self._connection.executemany(f"DELETE FROM {table} WHERE {where}", deletes)  # noqa: S608

    def _committed(self, error: BaseException | None) -> None:
        group = self._committing
        assert group is not None
        self._committing = None
        if error is not None:
            self._take_back(group, error)
            return
        if self._complained:
            self._complained = False
            log.warning("%s can be written again; acknowledgements go on", self.path)
        if self._open.dirty:
            self._commit()
        for callback, arguments in group.waiting:
            try:
                callback(*arguments)
            except Exception:
                log.exception("after a commit")

    def _take_back(self, group: _Group, error: BaseException) -> None:
        """Nothing of a failed group is on disk: it goes before what gathered since, and is tried again."""
        self.failures += 1
        if not self._complained:
            self._complained = True
            log.error("cannot write %s: %s; acknowledgements wait until it can be written again", self.path, error)
        for table, rows in self._open.tables.items():
            group.tables[table].update(rows)
        group.waiting.extend(self._open.waiting)
        self._open = group
        self._scheduled = True
        self._retry = self._loop.call_later(RETRY_S, self._commit)

    async def close(self, timeout_s: float = 10.0) -> None:
        """Write what is still to be written, and let the file go."""
        deadline = time.monotonic() + timeout_s
        while self.busy and time.monotonic() < deadline:
            safe = self._loop.create_future()
            self.when_safe(lambda safe=safe: safe.done() or safe.set_result(None))
            try:
                await asyncio.wait_for(safe, max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                log.error("%s could not be written before shutdown; what was not acknowledged is lost", self.path)  # noqa: TRY400
        self._closed = True  # what is noted from now on was never acknowledged
        if self._retry is not None:
            self._retry.cancel()
        self._thread.shutdown(wait=True)
        self._connection.close()
