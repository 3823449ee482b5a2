"""Numbers, sizes and times as a person reads them."""

from __future__ import annotations

import time

NOTHING = "–"


def count(value: float | None) -> str:
    """A whole number with separators."""
    return NOTHING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A number a second: three digits that matter, more only where they are whole."""
    if value is None:
        return NOTHING
    if abs(value) >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.2g}"


def size(value: float | None) -> str:
    """Bytes in the unit that suits them."""
    if value is None:
        return NOTHING
    for unit, letter in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {letter}"
    return f"{value:.0f} B"


def milliseconds(value: float | None) -> str:
    """A duration given in milliseconds."""
    if value is None:
        return NOTHING
    if value >= 1_000:
        return f"{value / 1_000:.3g} s"
    return f"{value:.3g} ms" if value >= 1 or value == 0 else f"{value * 1_000:.3g} µs"


def share(value: float | None) -> str:
    """A share of one, in per cent."""
    return NOTHING if value is None else f"{value * 100:.3g} %"


def ago(seconds: float) -> str:
    """How long ago, roughly."""
    if seconds < 2:
        return "now"
    if seconds < 90:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 5400 else f"{seconds / 3600:.1f} h ago"


def clock(at_s: float) -> str:
    """A time of today, to the second."""
    return time.strftime("%H:%M:%S", time.localtime(at_s))
