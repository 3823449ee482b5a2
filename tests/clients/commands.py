"""Run `locus` commands beside a test."""

from __future__ import annotations

import threading

from clients.cli import main


class Running:
    """A command in a thread; `ended()` waits for its exit code."""

    def __init__(self, *words: str) -> None:
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run, args=(list(words),), daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def ended(self) -> int | None:
        self._thread.join(20)
        return self.code

    def _run(self, words: list[str]) -> None:
        self.code = main(words)
