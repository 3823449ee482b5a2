"""Files that are there whole or not at all, also after a crash: policies, and what others keep beside them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Put a file in its place: readers see the old one or the new one, and once this returns the disk has the new one.

    It is for its owner alone to read and write. Directories on the way to it are made.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    flush_directory(path.parent)  # the new name must be on disk too


def flush_directory(path: Path) -> None:
    """Have the names in a directory on disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
