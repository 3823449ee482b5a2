"""Ends the processes of a demonstration whose own process is gone, however it ended.

Run beside it as a program of its own, with nothing but the standard library, so that it is small. It reads lines from
its standard input: `+GROUP` and `-GROUP` name process groups to end and those that have ended, `tidy PATH` a directory
to remove. When the input ends, so has whoever wrote it, and the guardian does what is left to do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE_S = 10.0
"""How long a group may take to end by itself."""


def alive(group: int) -> bool:
    """Whether a process group has anybody in it who still runs."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # it is empty, or by now somebody else's
        return False
    return not _only_zombies(group)


def _only_zombies(group: int) -> bool:
    """Whether nobody in a group runs: where nobody collects orphans, as in some containers, they remain as zombies."""
    found = False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):  # it has just ended
            continue
        if int(its_group) == group:
            if state != "Z":
                return False
            found = True
    return found


def end(groups: Iterable[int], patience_s: float = PATIENCE_S) -> None:
    """Ask groups to end, and insist after a while."""
    left = {group for group in groups if alive(group)}
    for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, patience_s)):
        for group in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        deadline = time.monotonic() + wait_s
        while (left := {group for group in left if alive(group)}) and time.monotonic() < deadline:
            time.sleep(0.05)


def main() -> int:
    """Wait for the end of the input, then end what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its input does
    groups: set[int] = set()
    tidy: list[str] = []
    for line in sys.stdin:
        word = line.rstrip("\n")
        if word.startswith("+"):
            groups.add(int(word[1:]))
        elif word.startswith("-"):
            groups.discard(int(word[1:]))
        elif word.startswith("tidy "):
            tidy.append(word.removeprefix("tidy "))
    end(groups)
    for path in tidy:
        shutil.rmtree(path, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
