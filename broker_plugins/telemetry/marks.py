"""How far every table has come, in a page of memory that outlives the process.

Where the journal is off, or cannot be written, a broker that is killed loses records. The page then tells the next one
which: of every table the sequence of the last record made, and of the last one that is in a segment. A lock on its file
tells whether its broker still runs.

    <spool>/.journal/<node>-<incarnation>.marks
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import struct
from typing import TYPE_CHECKING, Final

from broker_plugins.telemetry.journal import DIRECTORY
from broker_plugins.telemetry.schema import NODE_PATTERN, TABLES

if TYPE_CHECKING:
    from pathlib import Path

SIZE: Final = 4_096
_PAIR: Final = struct.Struct("<QQ")
_PLACES: Final = {name: 16 * number for number, name in enumerate(TABLES)}  # tables are only ever added at the end
_NAME = re.compile(rf"{NODE_PATTERN}-" r"(?P<incarnation>\d{1,19})\.marks")


class Marks:
    """The page of one run of a broker; its file is locked until the process ends.

    Args:
        directory: the spool.
        node: the broker's name.
        incarnation: which run of it this is.

    Raises:
        OSError: there is no room for it.
    """

    def __init__(self, directory: Path, node: str, incarnation: int) -> None:
        self.path = directory / DIRECTORY / f"{node}-{incarnation}.marks"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._descriptor, 0, SIZE)  # so that a full disk cannot strike a write to memory
            self._page = mmap.mmap(self._descriptor, SIZE)
        except OSError:
            os.close(self._descriptor)
            self.path.unlink(missing_ok=True)
            raise

    def made(self, table: str, sequence: int) -> None:
        """A record was made."""
        struct.pack_into("<Q", self._page, _PLACES[table], sequence)

    def written(self, table: str, sequence: int) -> None:
        """The records up to this one are in segments, or will never be."""
        struct.pack_into("<Q", self._page, _PLACES[table] + 8, sequence)

    def close(self) -> None:
        """Nothing is left to be told: remove the page."""
        if self._descriptor >= 0:
            self.path.unlink(missing_ok=True)
            self.release()

    def release(self) -> None:
        """Let the file go, and leave it to the next broker."""
        if self._descriptor >= 0:
            self._page.close()
            os.close(self._descriptor)
            self._descriptor = -1


def incarnation_of(name: str, node: str) -> int | None:
    """Whose page a file is, by its name; None if it is none of this node."""
    match = _NAME.fullmatch(name)
    return int(match["incarnation"]) if match is not None and match["node"] == node else None


def in_use(path: Path) -> bool:
    """Whether the broker a page belongs to still runs."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read(path: Path) -> dict[str, tuple[int, int]]:
    """By table, the last record made and the last one written as a page tells; nothing if there is no page."""
    try:
        page = path.read_bytes()[:SIZE].ljust(SIZE, b"\0")
    except FileNotFoundError:
        return {}
    return {name: _PAIR.unpack_from(page, place) for name, place in _PLACES.items()}
