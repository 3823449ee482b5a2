"""Lets go of what is too old or too much in a lake: whole directories, oldest first, without harm to who reads them.

The ledger says up to which commit a table was dropped, and from then on nobody begins to read that; the files are
removed a while later, when those who had begun are done. What was taken stays known by its numbers: a dropped record is
never taken again.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from broker_plugins.telemetry.schema import TABLES
from spark_jobs.ranges import live
from spark_jobs.segments import bounds

if TYPE_CHECKING:
    from pathlib import Path

    from spark_jobs.keep import Keep
    from spark_jobs.lake import Lake
    from spark_jobs.ledger import Ledger


@lru_cache(maxsize=100_000)  # a directory never changes
def _measured(directory: Path) -> tuple[int, float]:
    """The bytes of a directory, and the time of its latest record in seconds since 1970."""
    size, latest = 0, 0.0
    for path in directory.glob("*.parquet"):
        size += path.stat().st_size
        at = bounds(pq.read_metadata(path), "at")[1]
        latest = max(latest, 0.0 if at is None else at.timestamp())
    return size, latest


def drop(lake: Lake, ledger: Ledger, keep: Keep, now_s: float) -> int:
    """Note in the ledger what is dropped from now on; how many directories that is. The caller writes the ledger."""
    if keep.everything:
        return 0
    kept = {
        name: [(last, path, *_measured(path)) for first, last, path in live(lake.directory(name))
               if first > ledger.dropped.get(name, 0)]
        for name in TABLES
    }  # fmt: skip
    dropped = 0

    def let_go(name: str) -> None:
        last, path, _, _ = kept[name].pop(0)
        ledger.dropped[name] = last
        os.utime(path)  # from now on: it is removed when nobody can be reading it any more

    if keep.max_age_s is not None:
        for name, entries in kept.items():
            while entries and entries[0][3] < now_s - keep.max_age_s:
                let_go(name)
                dropped += 1
    if keep.max_bytes is not None:
        total = sum(entry[2] for entries in kept.values() for entry in entries)
        while total > keep.max_bytes:
            _, name = min((entries[0][3], name) for name, entries in kept.items() if entries)
            total -= kept[name][0][2]
            let_go(name)
            dropped += 1
    return dropped
