from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING

import pytest

from broker_plugins.engine import store as store_module
from broker_plugins.engine.errors import StoreError
from broker_plugins.engine.store import Store

if TYPE_CHECKING:
    from pathlib import Path


def open_store(path: Path, *, strict: bool = False) -> Store:
    return Store(path / "locus.db", strict, asyncio.get_running_loop())


async def safe(store: Store) -> None:
    done = asyncio.get_running_loop().create_future()
    store.when_safe(done.set_result, None)
    await asyncio.wait_for(done, 10)


@pytest.mark.parametrize("strict", [False, True])
async def test_what_is_safe_is_there_for_another_reader(tmp_path: Path, strict: bool) -> None:
    store = open_store(tmp_path, strict=strict)
    store.put("retained", ("a",), (b"1", 1, None))
    store.put("retained", ("b",), (b"2", 0, None))
    await safe(store)
    store.delete("retained", ("a",))
    store.put("retained", ("b",), (b"3", 2, b"{}"))
    await store.close()
    again = open_store(tmp_path)
    assert again.rows("retained") == [("b", b"3", 2, b"{}")]
    await again.close()


async def test_callbacks_keep_their_order_over_groups(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    called: list[int] = []
    store.when_safe(called.append, 0)
    assert called == [0], "nothing to wait for"
    for number in range(1, 200):
        if number % 3:
            store.put("retained", (f"t{number}",), (b"x", 0, None))
        store.when_safe(called.append, number)
        if number % 50 == 0:
            await asyncio.sleep(0)
    await safe(store)
    assert called == list(range(200))
    await store.close()


async def test_a_row_that_came_and_went_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    written: list[str] = []
    write = store._write_table

    def note(table: str, rows: store_module.Rows) -> None:
        written.extend(f"{table} {key} {row}" for key, row in rows.items())
        write(table, rows)

    monkeypatch.setattr(store, "_write_table", note)
    store.put("messages", (1,), ("t", b"x", 1))
    store.delete("messages", (1,))
    await safe(store)
    assert written == ["messages (1,) None"]
    await store.close()


async def test_a_disk_that_fails_holds_up_acknowledgements_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_module, "RETRY_S", 0.01)
    store = open_store(tmp_path)
    write = store._write
    broken = True

    def fail(tables: dict[str, store_module.Rows]) -> None:
        if broken:
            raise sqlite3.OperationalError("database or disk is full")
        write(tables)

    monkeypatch.setattr(store, "_write", fail)
    called: list[str] = []
    store.put("retained", ("a",), (b"1", 0, None))
    store.when_safe(called.append, "first")
    while store.failures < 3:
        await asyncio.sleep(0.005)
        store.put("retained", ("a",), (b"2", 0, None))
        store.put("retained", (f"b{store.failures}",), (b"3", 0, None))
        store.when_safe(called.append, "more")
    assert called == []
    assert store.busy
    assert sum("cannot write" in record.message for record in caplog.records) == 1, "said once"
    broken = False
    await safe(store)
    assert called[0] == "first"
    assert set(called[1:]) == {"more"}
    assert any("can be written again" in record.message for record in caplog.records)
    rows = {row[0]: row[1] for row in store.rows("retained")}
    assert rows["a"] == b"2"
    assert len(rows) > 1
    await store.close()


async def test_a_file_of_another_version_or_kind_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "locus.db")) as database:
        database.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match=r"version 99.*move it away"):
        open_store(tmp_path)
    (tmp_path / "locus.db").write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(StoreError, match="move it away"):
        open_store(tmp_path)


async def test_a_second_store_on_the_same_file_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreError, match="another broker uses it"):
        open_store(tmp_path)
    await store.close()


async def test_what_is_noted_after_the_end_is_neither_written_nor_called_safe(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put("retained", ("a",), (b"1", 1, None))
    await store.close()
    called: list[None] = []
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    store.put("retained", ("b",), (b"2", 1, None))
    store.when_safe(called.append, None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not called
    assert not faults
    again = open_store(tmp_path)
    assert [row[0] for row in again.rows("retained")] == ["a"]
    await again.close()
