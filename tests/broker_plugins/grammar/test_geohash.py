from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.grammar import decode_geohash, encode_geohash

ALPHABET = "0123456789bcdefghjkmnpqrstuvwxyz"
longitudes = st.floats(-180, 180) | st.sampled_from([-180.0, 180.0, 0.0, -5e-324, 45.0])
latitudes = st.floats(-90, 90) | st.sampled_from([-90.0, 90.0, 0.0, -5e-324, 45.0])


def by_halving(cell: str) -> tuple[float, float, float, float]:
    """The definition: each bit halves the box, longitude first."""
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    bits = "".join(format(ALPHABET.index(character), "05b") for character in cell)
    for index, bit in enumerate(bits):
        if index % 2 == 0:
            middle = (west + east) / 2
            west, east = (middle, east) if bit == "1" else (west, middle)
        else:
            middle = (south + north) / 2
            south, north = (middle, north) if bit == "1" else (south, middle)
    return west, south, east, north


@pytest.mark.parametrize(
    ("lon", "lat", "cell"),
    # The example of the geohash article of Wikipedia, and two corners.
    [(-5.6, 42.6, "ezs42"), (10.40744, 57.64911, "u4pruydqqvj"), (-180, -90, "000000000000"), (180, 90, "zzzz")],
)
def test_known_cells(lon, lat, cell):
    assert encode_geohash(lon, lat, len(cell)) == cell


@given(st.text(ALPHABET, min_size=1, max_size=12))
def test_the_box_is_found_by_halving(cell):
    assert decode_geohash(cell) == pytest.approx(by_halving(cell), abs=1e-12)


@given(longitudes, latitudes, st.integers(1, 12))
def test_a_position_lies_in_its_cell(lon, lat, length):
    west, south, east, north = decode_geohash(encode_geohash(lon, lat, length))
    assert west <= lon < east or lon == east == 180
    assert south <= lat < north or lat == north == 90


@given(longitudes, latitudes, st.integers(2, 12))
def test_a_shorter_cell_is_a_prefix(lon, lat, length):
    assert encode_geohash(lon, lat, length).startswith(encode_geohash(lon, lat, length - 1))


@pytest.mark.parametrize("cell", ["", "wydma", "WYDM9", "0" * 13, "é"])
def test_what_is_not_a_cell_is_refused(cell):
    with pytest.raises(ValueError, match="is not a geohash"):
        decode_geohash(cell)


@pytest.mark.parametrize(("lon", "lat", "length"), [(181, 0, 5), (0, float("nan"), 5), (0, 0, 0), (0, 0, 13)])
def test_what_has_no_cell_is_refused(lon, lat, length):
    with pytest.raises(ValueError, match=r"latitude|1 to 12"):
        encode_geohash(lon, lat, length)
