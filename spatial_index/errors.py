"""What the structures of this package refuse, each refusal naming the value; a structure is unchanged after one."""

# ruff: noqa: N818 - the names say what was refused, and all of them are a SpatialIndexError

from __future__ import annotations


class SpatialIndexError(ValueError):
    """Any refusal by a structure of this package."""


class BadCoordinate(SpatialIndexError):
    """A coordinate that is NaN, infinite where a bound is meant, or outside the space."""


class BadBox(SpatialIndexError):
    """A box whose sides are inverted, missing or outside the space."""


class BadInterval(SpatialIndexError):
    """An interval that is inverted, contains nothing, or has ends that are no numbers."""


class BadShape(SpatialIndexError):
    """A shape that cannot be indexed, such as a circle without a positive radius."""


class BadPolygon(BadShape):
    """A ring that is unclosed, crosses itself, has too few corners or no area."""


class BadCount(SpatialIndexError):
    """A number of results, a capacity or a length that is not what is asked for, such as k below one."""


class BadAttribute(SpatialIndexError):
    """An attribute that is not declared, or a domain that cannot be used."""


class UnknownId(SpatialIndexError):
    """An id that the structure does not hold."""


class DuplicateId(SpatialIndexError):
    """An id that the structure holds already, or that a batch names twice."""


class BadTree(SpatialIndexError):
    """A stored region tree, or a diff for one, whose blocks do not fit together."""
