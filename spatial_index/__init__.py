"""Pure data structures for places, intervals and regions: no I/O, useful without a broker."""

from spatial_index.errors import (
    BadAttribute,
    BadBox,
    BadCoordinate,
    BadCount,
    BadInterval,
    BadPolygon,
    BadShape,
    DuplicateId,
    SpatialIndexError,
    UnknownId,
)

__all__ = [
    "BadAttribute",
    "BadBox",
    "BadCoordinate",
    "BadCount",
    "BadInterval",
    "BadPolygon",
    "BadShape",
    "DuplicateId",
    "SpatialIndexError",
    "UnknownId",
]
