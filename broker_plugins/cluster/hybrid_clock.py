"""Hybrid logical clock: times that follow the wall clock and never contradict what a node has seen.

A reading is one integer: milliseconds since 1970 in the upper bits, a counter in the lower sixteen. Readings of one
clock strictly increase; a clock that has observed a reading of another node reads later than it, however far the two
wall clocks are apart. A counter that overflows runs into the next millisecond, which keeps the order.

Kulkarni, Demirbas, Madappa, Avva, Leone: Logical Physical Clocks (2014).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTER_BITS: Final = 16


class HybridClock:
    """The clock of one node.

    Args:
        wall_ms: reads the wall clock, in milliseconds since 1970.
        max_ahead_ms: how far ahead of the wall clock an observed reading may be; one beyond is not followed, so that
            a node whose clock is years ahead does not take the others with it.
    """

    __slots__ = ("_last", "_max_ahead", "_wall_ms", "ignored")

    def __init__(self, wall_ms: Callable[[], int], max_ahead_ms: int = 60_000) -> None:
        self._wall_ms = wall_ms
        self._last = 0
        self._max_ahead = max_ahead_ms
        self.ignored = 0
        """Readings that were too far ahead to be followed."""

    def now(self) -> int:
        """A reading later than every one made or followed before."""
        self._last = max(self._last + 1, self._wall_ms() << COUNTER_BITS)
        return self._last

    def observe(self, reading: int) -> None:
        """Another node made this reading: what is read from now on is later."""
        if reading > (self._wall_ms() + self._max_ahead) << COUNTER_BITS:
            self.ignored += 1
        elif reading > self._last:
            self._last = reading
