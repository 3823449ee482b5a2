"""What pages share: the lake is read once for all of them, and new handovers reach the map once."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from spark_jobs.dashboard.desk import Desk, Options
from spark_jobs.dashboard.feed import CITY_FILTERS, Address
from spark_jobs.dashboard.history import Handover
from spark_jobs.dashboard.traffic import Span

if TYPE_CHECKING:
    from pathlib import Path


def desk_of(tmp_path: Path, *topics: str) -> Desk:
    return Desk(Options(Address("127.0.0.1", 1), topics or ("city/#",), "city/jobs/receipts", tmp_path))


async def test_several_pages_read_once(tmp_path: Path) -> None:
    desk, reads = desk_of(tmp_path), []

    def work() -> int:
        reads.append(1)
        time.sleep(0.05)
        return len(reads)

    assert await asyncio.gather(*(desk.read("x", work) for _ in range(5))) == [1] * 5
    assert await desk.read("y", work) == 2
    assert await desk.read("x", work, fresh_s=0.0) == 3


async def test_a_lake_that_cannot_be_read_is_said_so_and_the_last_of_it_stays(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    (tmp_path / "metrics" / "cube").mkdir(parents=True)
    damaged = tmp_path / "metrics" / "cube" / "1-1.parquet"
    damaged.write_bytes(b"PAR1 no more")
    history = desk.history
    assert history is not None
    assert await desk.read("past", lambda: history.past(Span(60, 10), 0.0)) is None
    assert "1-1.parquet" in desk.lake_fault
    damaged.unlink()
    assert await desk.read("past", lambda: history.past(Span(60, 10), 0.0), fresh_s=0.0) is not None
    assert desk.lake_fault == ""
    damaged.write_bytes(b"PAR1 no more")
    assert await desk.read("past", lambda: history.past(Span(60, 10), 0.0), fresh_s=0.0) is not None
    assert desk.lake_fault


async def test_new_handovers_are_shown_on_the_map_once(tmp_path: Path) -> None:
    desk = desk_of(tmp_path)
    assert desk.history is not None
    desk.board.take("city/subscribers/a/pos", json.dumps({"lon": 1, "lat": 2}).encode(), time.time())
    seen = desk.board.scene.revision
    now_s = time.time()
    client = "city-subscriber-a"
    found = [Handover(now_s + 1, client, "n1", "n2"), Handover(now_s - 60, client, "n2", "n1")]
    desk.history.handovers = lambda: found  # type: ignore[method-assign]
    for _ in range(2):
        assert await desk.handovers() == found
        desk._read.clear()
    assert desk.board.scene.frame(seen, now_s)["handovers"] == [[1, 2, "→ n2"]]
    live = json.dumps({"client": client, "from": "127.0.0.1:1", "to": "127.0.0.1:2"}).encode()
    desk.board.take("locus/metrics/handovers", live, now_s + 100)
    seen = desk.board.scene.revision
    found.insert(0, Handover(now_s + 103, client, "n2", "n3"))
    await desk.handovers()
    assert desk.board.scene.frame(seen, now_s)["handovers"] == [], "the map has shown it already"


def test_fences_listen_to_the_topics_of_the_map(tmp_path: Path) -> None:
    assert desk_of(tmp_path)._inner() == "city/#"
    assert desk_of(tmp_path, *CITY_FILTERS)._inner() == "city/+/+/pos"
    assert desk_of(tmp_path, "fleet/+/pos")._inner() == "fleet/+/pos"
    assert desk_of(tmp_path, "a/#", "b/#")._inner() == "#"
    assert desk_of(tmp_path, "$geo/near:1km/a/#")._inner() == "#"


def test_spark_is_there_while_windows_come(tmp_path: Path) -> None:
    desk, window = desk_of(tmp_path), b'{"from": "2026-05-04T09:00:00Z", "seconds": 10}'
    assert desk.spark() == "no"
    desk.board.take("locus/metrics/n1/10s", window, time.time(), retained=True)
    assert desk.spark() == "stopped"
    desk.board.take("locus/metrics/n1/10s", window, time.time())
    assert desk.spark() == "yes"
