"""A clock for deadlines: it tells the time of day, and never stands still or goes back.

A wall clock that is set back would let waiting messages wait until it has caught up. This one goes on at its pace
instead, ahead of the wall clock by as much as that was set back; one that is set forward is followed at once. Other
nodes measure what it reads, so that they know how far it is off.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_US: Final = 20_000
"""The wall clock is followed when it is ahead by more: it was set, or this machine slept."""


class SteadyClock:
    """Microseconds since 1970.

    Args:
        wall_us: reads the wall clock.
        steady_us: reads a clock that only goes forward.
    """

    __slots__ = ("_difference", "_steady_us", "_wall_us")

    def __init__(
        self, wall_us: Callable[[], int], steady_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000
    ) -> None:
        self._wall_us = wall_us
        self._steady_us = steady_us
        self._difference = wall_us() - steady_us()

    def now(self) -> int:
        """The time."""
        steady = self._steady_us()
        wall = self._wall_us()
        if wall > steady + self._difference + STEP_US:
            self._difference = wall - steady
        return steady + self._difference
