"""The filter grammar: what a client can say in a topic, for the broker that reads it and the client that writes it.

Smart filters are prefixes of an ordinary topic filter; message clauses are a last level of a topic. Both are parsed to
frozen values, built from them, and explained in words. This package knows no broker and no network, and imports
nothing else of Locus.

    >>> parse_filter("$where/speed>80/vehicles/+/pos").where["speed"]
    Interval(low=80.0, high=inf, low_open=True, high_open=True)
    >>> parse_topic("alerts/fire/@top:3")
    ('alerts/fire', Clauses(at=None, area=None, top=3, ttl=None, reply=None))
"""

from __future__ import annotations

from broker_plugins.grammar.areas import Area, Box, Cell, Circle, Detect, Fence, Geo, Near, Position
from broker_plugins.grammar.clauses import (
    NO_CLAUSES,
    Clauses,
    bare_topic,
    build_topic,
    may_have_clauses,
    parse_topic,
)
from broker_plugins.grammar.errors import GrammarError
from broker_plugins.grammar.explain import explain_filter, explain_topic
from broker_plugins.grammar.filters import (
    SmartFilter,
    build_filter,
    canonical_filter,
    inner_filter,
    is_smart,
    parse_filter,
)
from broker_plugins.grammar.geohash import decode_geohash, encode_geohash
from broker_plugins.grammar.intervals import Condition, Interval, Where
from broker_plugins.grammar.limits import DEFAULT_LIMITS, Limits
from broker_plugins.grammar.space import WGS84, Space, plane

__all__ = [
    "DEFAULT_LIMITS",
    "NO_CLAUSES",
    "WGS84",
    "Area",
    "Box",
    "Cell",
    "Circle",
    "Clauses",
    "Condition",
    "Detect",
    "Fence",
    "Geo",
    "GrammarError",
    "Interval",
    "Limits",
    "Near",
    "Position",
    "SmartFilter",
    "Space",
    "Where",
    "bare_topic",
    "build_filter",
    "build_topic",
    "canonical_filter",
    "decode_geohash",
    "encode_geohash",
    "explain_filter",
    "explain_topic",
    "inner_filter",
    "is_smart",
    "may_have_clauses",
    "parse_filter",
    "parse_topic",
    "plane",
]
