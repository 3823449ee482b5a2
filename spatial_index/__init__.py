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
from spatial_index.interval import Interval
from spatial_index.overlay_election import Election
from spatial_index.overlay_tree import Delivery, OverlayBox, OverlayTree
from spatial_index.ranked_boxes import RankedBoxes
from spatial_index.ranked_intervals import RankedIntervals

__all__ = [
    "BadAttribute",
    "BadBox",
    "BadCoordinate",
    "BadCount",
    "BadInterval",
    "BadPolygon",
    "BadShape",
    "Delivery",
    "DuplicateId",
    "Election",
    "Interval",
    "OverlayBox",
    "OverlayTree",
    "RankedBoxes",
    "RankedIntervals",
    "SpatialIndexError",
    "UnknownId",
]
