"""What a decision costs: a message sent that was not needed, or a second in which the subscriber had nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass


class CostModelError(ValueError):
    """A cost model was asked for with a number that has no meaning."""


@dataclass(slots=True, frozen=True)
class CostModel:
    """Cost = [R > w] + kappa · min(R, w), where R is the time to the next retained publish and w the longest wait.

    The retained message itself is the unit: to send it at once costs 1, whatever its size.

    Args:
        kappa: what one second of waiting costs, in retained messages. At 0.2 five seconds are worth one message.
        d_max_s: the longest wait that may be promised to a subscriber, in seconds.
    """

    kappa: float = 0.2
    d_max_s: float = 10.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.kappa) and self.kappa > 0):
            raise CostModelError(f"kappa is {self.kappa!r}; it must be a finite number above 0 (messages per second)")
        if not (math.isfinite(self.d_max_s) and self.d_max_s >= 0):
            raise CostModelError(f"d_max_s is {self.d_max_s!r}; it must be a finite number of seconds, 0 or more")

    def of(self, wait_s: float, residual_s: float) -> float:
        """What waiting up to `wait_s` costs when the next retained publish comes after `residual_s`."""
        if residual_s > wait_s:
            return 1.0 + self.kappa * wait_s
        return self.kappa * residual_s

    def best_wait(self, residual_s: float) -> float:
        """The wait of someone who knows the future: until the publish if that is cheaper than sending, else none."""
        if residual_s <= self.d_max_s and self.kappa * residual_s < 1.0:
            return residual_s
        return 0.0
