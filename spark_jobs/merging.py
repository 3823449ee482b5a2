"""Puts small files of the lake together: a directory for many commits takes the place of one for each.

A file that is large enough is linked into the new directory, not written again; so a record is rewritten a few times
while its file is small, and then never more. Readers take the wider directory once it has its name; the narrower ones
stay for a while, for those that read them already.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from spark_jobs.ranges import live
from spark_jobs.takes import write_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from broker_plugins.telemetry.schema import Table

FAN_IN: Final = 16
"""So many directories of one size are put together into one of the next size."""
WIDEST: Final = FAN_IN**3
"""Commits in a directory at most: what is older than it need be goes by whole directories."""
LARGE: Final = 100_000
"""A file with so many records is not written again."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Directories of one table to put together.

    Args:
        table: the table.
        first: the first commit of the new directory.
        last: its last commit.
        parts: the directories.
        into: the new one, under the name it has until it is whole.
    """

    table: Table
    first: int
    last: int
    parts: tuple[Path, ...]
    into: Path


def merges(directory: Path, table: Table, kept: tuple[int, int], size: int) -> list[Merge]:
    """What there is to put together into directories of `size` commits.

    Args:
        directory: the table's.
        table: the table.
        kept: the commits that are, without the first one.
        size: how many commits.
    """
    whole: dict[int, list[Path]] = {}
    for first, last, path in live(directory):
        start = (first - 1) // size * size + 1
        if first > kept[0] and last < start + size <= kept[1] + 1:
            whole.setdefault(start, []).append(path)
    return [
        Merge(table, start, start + size - 1, tuple(parts), directory / f".{start}-{start + size - 1}")
        for start, parts in whole.items()
        if len(parts) > 1
    ]


def merge(work: Merge) -> int:
    """Write the new directory; how many records were written again."""
    shutil.rmtree(work.into, ignore_errors=True)
    work.into.mkdir(parents=True)
    small: list[Path] = []
    for number, path in enumerate(sorted(file for part in work.parts for file in part.glob("*.parquet"))):
        if pq.read_metadata(path).num_rows >= LARGE:
            link(path, work.into / f"{number:06d}.parquet")
        else:
            small.append(path)

    def records() -> Iterator[pa.Table]:
        for path in small:
            with pq.ParquetFile(path) as file:
                yield file.read(use_threads=False)

    return write_file(work.into / "together.parquet", work.table, records()) if small else 0


def link(path: Path, other: Path) -> None:
    """Give a file a second name, or a copy where the file system has no second names."""
    try:
        os.link(path, other)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK):
            raise
        shutil.copyfile(path, other)
