"""A file is replaced whole or not at all, and the disk has it with its name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Self

import pytest

from broker_plugins import passwords
from rl_policy.whole_file import write_whole
from spark_jobs.ledger import Ledger, write_ledger


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was flushed to disk, in order: the directory, or a file with what was in it."""
    seen: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        seen.append("directory" if is_directory else Path(f"/proc/self/fd/{descriptor}").read_text())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return seen


def test_the_file_is_on_disk_before_its_name(tmp_path: Path, flushed: list[str]) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    write_whole(path, b"new")
    assert path.read_text() == "new"
    assert flushed == ["new", "directory"]
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    path = tmp_path / "kept"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if fails == "write":
        opened = os.fdopen

        class Narrow:
            def __init__(self, descriptor: int, mode: str) -> None:
                self._file = opened(descriptor, mode)

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                self._file.close()

            write = staticmethod(full)

        monkeypatch.setattr(os, "fdopen", Narrow)
    elif fails == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]


def test_all_who_keep_a_file_keep_it_so(tmp_path: Path, flushed: list[str]) -> None:
    passwords._write(tmp_path / "passwords", "ann:hash\n")
    assert flushed == ["ann:hash\n", "directory"]
    flushed.clear()
    write_ledger(tmp_path / "deeper" / "ledger.json", Ledger())
    assert flushed[-1] == "directory"
    assert len(flushed) == 2
