"""Files and directories that are named after the commits in them, such as `1-16`; no Spark is needed to find them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_RANGE = re.compile(r"(\d+)-(\d+)")


def ranges(directory: Path) -> list[tuple[int, int, Path]]:
    """What lies in a directory under a name like `1-16`, with both numbers."""
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _RANGE.fullmatch(path.name.removesuffix(".parquet"))
        if match:
            found.append((int(match[1]), int(match[2]), path))
    return sorted(found)


def live(directory: Path) -> list[tuple[int, int, Path]]:
    """Of `ranges`, those that are not contained in a wider one."""
    found = sorted(ranges(directory), key=lambda entry: (entry[0], -entry[1]))
    kept: list[tuple[int, int, Path]] = []
    for first, last, path in found:
        if not kept or last > kept[-1][1]:
            kept.append((first, last, path))
    return kept
