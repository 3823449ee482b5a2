"""The journal: records in the order they were made, in a file before a client can know of what they tell.

Segments are written every few seconds; until then records are in memory, and a broker that is killed takes them along.
So they are appended to the journal first, with one `write` for all that happened at once. What was written survives the
process, whatever ends it; not a machine that loses power, for nothing is synced.

    <spool>/.journal/<node>-<incarnation>-<number>.journal

A file is a row of frames: length and checksum, four bytes each, least significant first, then a msgpack array. The
first frame says who writes by which version of the schema; each other one has pairs of a table's name and its rows, the
columns in the order of the schema from `sequence` on. A frame that a kill cut off is the last one, and was never
acknowledged. When all records of a file are in segments the file is removed; what a killed broker left is turned into
segments by the next one (see `leftovers`).
"""

from __future__ import annotations

import errno
import os
import re
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker_plugins.telemetry.schema import NODE_PATTERN, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    Row = tuple[Any, ...]
    Entry = tuple[str, Sequence[Row]]

DIRECTORY: Final = ".journal"
"""Below the spool; hidden, so that nobody takes it for a partition."""
ROLL_BYTES: Final = 1 << 20
"""Size from which a file is followed by another."""
_FRAME: Final = struct.Struct("<II")
_NAME = re.compile(rf"{NODE_PATTERN}-" r"(?P<incarnation>\d{1,19})-(?P<number>\d{6,19})\.journal")
_encode = msgspec.msgpack.Encoder().encode


class JournalError(ValueError):
    """A file is no journal, or one of a newer broker; the message says which."""


@dataclass(frozen=True, slots=True)
class JournalName:
    """What the name of a journal's file tells."""

    node: str
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"{self.node}-{self.incarnation}-{self.number:06d}.journal"


def parse_name(name: str) -> JournalName | None:
    """Read the name of a file; None if it is no journal's."""
    match = _NAME.fullmatch(name)
    return None if match is None else JournalName(match["node"], int(match["incarnation"]), int(match["number"]))


@dataclass(slots=True)
class _File:
    """One file with the sequence of its last record of each table."""

    path: Path
    last: dict[str, int] = field(default_factory=dict)


class Journal:
    """Appends what one run of a broker records.

    Args:
        directory: the spool.
        node: the broker's name.
        incarnation: which run of it this is.
    """

    def __init__(self, directory: Path, node: str, incarnation: int) -> None:
        self.directory = directory / DIRECTORY
        self._node = node
        self._incarnation = incarnation
        self._number = 0
        self._descriptor = -1
        self._files: list[_File] = []
        self.bytes = 0
        """Size of the file that is written to."""

    @property
    def files(self) -> list[Path]:
        """Files whose records are not all settled, and the one that is written to."""
        return [file.path for file in self._files]

    def append(self, entries: Sequence[Entry]) -> None:
        """Write rows down; the first value of each is its sequence.

        Raises:
            OSError: they could not be written, and none of them is in the journal. The next call tries another file.
        """
        if self._descriptor < 0:
            self._open()
        payload = _encode(entries)
        self._write(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload)
        last = self._files[-1].last
        for table, rows in entries:
            last[table] = rows[-1][0]

    def _open(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._number += 1
        path = self.directory / str(JournalName(self._node, self._incarnation, self._number))
        self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        self.bytes = 0
        self._files.append(_File(path))
        payload = _encode((VERSION, self._node, self._incarnation))
        self._write(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload)

    def _write(self, frame: bytes) -> None:
        written = 0
        try:
            written = os.write(self._descriptor, frame)
        finally:
            self.bytes += written
            if written < len(frame):
                self.roll()  # what comes later must not stand behind half a frame
        if written < len(frame):
            raise OSError(errno.ENOSPC, f"{written} of {len(frame)} bytes could be written", self._files[-1].path)

    def roll(self) -> None:
        """Go on in another file from the next record on."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def settled(self, written: dict[str, int]) -> list[Path]:
        """Files that are needed no longer, as of every table the records up to a sequence are in segments.

        The caller removes them; they are forgotten here.
        """
        open_one = self._files[-1] if self._descriptor >= 0 else None
        done = [
            file
            for file in self._files
            if file is not open_one and all(written.get(table, 0) >= last for table, last in file.last.items())
        ]
        if done:
            self._files = [file for file in self._files if file not in done]
        return [file.path for file in done]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file has.

    Args:
        version: of the schema it was written by.
        entries: tables with their rows, in the order they were written.
        torn: whether its end is cut off or does not fit its checksum; what was cut off is not in `entries`.
    """

    version: int
    entries: list[tuple[str, list[list[Any]]]]
    torn: bool


def read(path: Path) -> Contents:
    """Read a file as far as it is whole.

    Raises:
        JournalError: it is no journal, or a newer broker wrote it.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    frames, end = [], 0
    for payload, after in _frames(data):
        frames.append(payload)
        end = after
    torn = end < len(data)
    if not frames:
        return Contents(VERSION, [], torn)  # killed before its first frame was whole
    try:
        version, _, _ = msgspec.msgpack.decode(frames[0], type=tuple[int, str, int])
    except msgspec.MsgspecError as error:
        raise JournalError(f"{path} is no journal: {error}; move it away") from error
    if version > VERSION:
        raise JournalError(
            f"{path}: written by version {version} of the telemetry schema, this broker reads up to {VERSION}:"
            " update it"
        )
    entries: list[tuple[str, list[list[Any]]]] = []
    for frame in frames[1:]:
        try:
            entries += msgspec.msgpack.decode(frame, type=list[tuple[str, list[list[Any]]]])
        except msgspec.MsgspecError as error:
            raise JournalError(f"{path} is no journal: {error}; move it away") from error
    return Contents(version, entries, torn)


def _frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Whole frames from the start on, with where each ends."""
    at = 0
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        start = at + _FRAME.size
        payload = data[start : start + length]
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        at = start + length
        yield payload, at
