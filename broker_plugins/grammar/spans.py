"""Splitting that keeps positions, so that an error in a part can point into the whole."""

from __future__ import annotations


def spans(text: str, start: int, end: int, separator: str) -> list[tuple[int, int]]:
    """Where the parts of `text[start:end]` between one-character separators begin and end; at least one part."""
    found = []
    while (at := text.find(separator, start, end)) >= 0:
        found.append((start, at))
        start = at + 1
    found.append((start, end))
    return found
