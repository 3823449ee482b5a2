"""Which messages a node has taken: each once, whichever way it comes."""

from __future__ import annotations

from typing import Final

MOST: Final = 65_536


class Taken:
    """The last messages that were taken, by the node they were published on and their number there.

    Args:
        most: how many are remembered.
    """

    __slots__ = ("_most", "_seen")

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._seen: dict[tuple[str, int], None] = {}

    def add(self, origin: str, number: int) -> bool:
        """Take a message; False if it was taken before."""
        key = (origin, number)
        if key in self._seen:
            return False
        if len(self._seen) >= self._most:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = None
        return True
