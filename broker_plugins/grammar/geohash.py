"""Geohash cells: the box of a cell, and the cell of a position."""

from __future__ import annotations

_ALPHABET = "0123456789bcdefghjkmnpqrstuvwxyz"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}

MOST_CHARACTERS = 12
"""Twelve characters are 60 bits, a cell of 4 by 2 centimetres: finer than any receiver."""


def first_bad_character(cell: str) -> int:
    """The index of the first character that is not of a geohash, or -1."""
    return next((index for index, character in enumerate(cell) if character not in _VALUES), -1)


def _edge(index: int, span: float, count: int) -> float:
    """The lower edge of a stripe. Neighbours compute a common edge alike, so they share it to the last bit."""
    return span * index / count - span / 2.0


def _index(value: float, span: float, count: int) -> int:
    """The stripe in which a value lies, whatever the rounding of the division says."""
    index = min(int((value / span + 0.5) * count), count - 1)
    if value < _edge(index, span, count):
        return index - 1
    if index < count - 1 and value >= _edge(index + 1, span, count):
        return index + 1
    return index


def decode_geohash(cell: str) -> tuple[float, float, float, float]:
    """The box of a cell: west, south, east, north in degrees.

    Raises:
        ValueError: If `cell` is not a geohash of 1 to 12 lower-case characters.
    """
    if not 1 <= len(cell) <= MOST_CHARACTERS or first_bad_character(cell) >= 0:
        raise ValueError(f"{cell!r} is not a geohash: 1 to {MOST_CHARACTERS} characters of {_ALPHABET}")
    column = row = 0
    to_longitude = True
    for character in cell:
        value = _VALUES[character]
        for shift in (4, 3, 2, 1, 0):
            bit = value >> shift & 1
            if to_longitude:
                column = column << 1 | bit
            else:
                row = row << 1 | bit
            to_longitude = not to_longitude
    row_bits = 5 * len(cell) // 2
    columns, rows = 1 << 5 * len(cell) - row_bits, 1 << row_bits
    return (
        _edge(column, 360.0, columns),
        _edge(row, 180.0, rows),
        _edge(column + 1, 360.0, columns),
        _edge(row + 1, 180.0, rows),
    )


def encode_geohash(lon: float, lat: float, length: int) -> str:
    """The cell of `length` characters in which a position lies; an inner edge belongs to the cell east or north of it.

    Raises:
        ValueError: If the position is not on the earth or the length is not 1 to 12.
    """
    if not (-180.0 <= lon <= 180.0 and -90.0 <= lat <= 90.0):
        raise ValueError(f"({lon}, {lat}) is not a longitude in -180..180 and a latitude in -90..90")
    if not 1 <= length <= MOST_CHARACTERS:
        raise ValueError(f"a geohash has 1 to {MOST_CHARACTERS} characters, not {length}")
    row_bits = 5 * length // 2
    column_bits = 5 * length - row_bits
    column = _index(lon, 360.0, 1 << column_bits)
    row = _index(lat, 180.0, 1 << row_bits)
    characters = []
    value = 0
    for index in range(5 * length):
        if index % 2 == 0:
            column_bits -= 1
            bit = column >> column_bits & 1
        else:
            row_bits -= 1
            bit = row >> row_bits & 1
        value = value << 1 | bit
        if index % 5 == 4:
            characters.append(_ALPHABET[value])
            value = 0
    return "".join(characters)
