"""Pure data structures for places, intervals and regions: no I/O, useful without a broker."""

from spatial_index.errors import (
    BadAttribute,
    BadBox,
    BadCoordinate,
    BadCount,
    BadInterval,
    BadPolygon,
    BadShape,
    BadTree,
    DuplicateId,
    SpatialIndexError,
    UnknownId,
)
from spatial_index.index_stats import IndexBlock, IndexStats
from spatial_index.interval import Interval
from spatial_index.interval_skip_list import IntervalSkipList
from spatial_index.matches import Matches
from spatial_index.observations import Observations
from spatial_index.overlay_boxes import OverlayBox
from spatial_index.overlay_election import Election
from spatial_index.overlay_routing import Delivery
from spatial_index.overlay_tree import OverlayTree
from spatial_index.qr_index import QRIndex
from spatial_index.ranked_boxes import RankedBoxes
from spatial_index.ranked_intervals import RankedIntervals
from spatial_index.region_blocks import Block, Limits
from spatial_index.region_changes import adapt_tree, build_tree, with_owners, with_regions
from spatial_index.region_moves import Transfer, TreeDiff, apply_diff, assign, diff_trees
from spatial_index.region_tree import RegionTree
from spatial_index.shapes import Circle, Point, Polygon
from spatial_index.slow_regions import SlowRegion, SlowRegions, SlowRegionSettings, slow_regions
from spatial_index.spaces import WGS84, Box, Plane, Sphere

__all__ = [
    "WGS84",
    "BadAttribute",
    "BadBox",
    "BadCoordinate",
    "BadCount",
    "BadInterval",
    "BadPolygon",
    "BadShape",
    "BadTree",
    "Block",
    "Box",
    "Circle",
    "Delivery",
    "DuplicateId",
    "Election",
    "IndexBlock",
    "IndexStats",
    "Interval",
    "IntervalSkipList",
    "Limits",
    "Matches",
    "Observations",
    "OverlayBox",
    "OverlayTree",
    "Plane",
    "Point",
    "Polygon",
    "QRIndex",
    "RankedBoxes",
    "RankedIntervals",
    "RegionTree",
    "SlowRegion",
    "SlowRegionSettings",
    "SlowRegions",
    "SpatialIndexError",
    "Sphere",
    "Transfer",
    "TreeDiff",
    "UnknownId",
    "adapt_tree",
    "apply_diff",
    "assign",
    "build_tree",
    "diff_trees",
    "slow_regions",
    "with_owners",
    "with_regions",
]
