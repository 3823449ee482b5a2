"""Buckets of latencies, and what a cube's rows are told apart by: the part of the metrics that needs no Spark."""

from __future__ import annotations

import math
from typing import Final

GROWTH: Final = 1.05
"""By how much a bucket of latencies is wider than the one before."""
NO_BUCKET: Final = -1
GAUGES: Final = ("connections", "subscriptions")
"""Metrics whose values are changes: what is shown is their sum since the broker started."""


def bucket_of(latency_us: float) -> int:
    """The bucket of a latency."""
    return max(0, math.ceil(math.log(max(latency_us, 1.0)) / math.log(GROWTH)))


def latency_in(bucket: int) -> float:
    """The latency that stands for a bucket: off by 2.5 % at most."""
    return 2.0 * GROWTH**bucket / (GROWTH + 1.0) if bucket else 1.0
