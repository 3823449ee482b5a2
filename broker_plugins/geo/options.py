"""What an operator can set of the geo plugin, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from broker_plugins.grammar import WGS84, Space, plane
from broker_plugins.places import MAX_JSON_BYTES, BadRuleError, PayloadCounters, check_filter


@dataclass
class GeoOptions:
    """Options of `broker_plugins.geo.plugin.GeoPlugin`."""

    plane: list[int | float] = field(default_factory=list)
    """West, south, east and north of a flat space in metres, such as a factory floor; empty for the globe."""
    places: dict[str, dict[str, str]] = field(default_factory=dict)
    """By topic filter, where payloads say where they are: `lon` and `lat`, or `geojson`, each a JSON pointer."""
    track: list[str] = field(default_factory=list)
    """Topic filters; a client that publishes to one of these topics is where its message is."""
    max_json_bytes: int = MAX_JSON_BYTES
    """Largest payload that is looked into for a place; a larger one has none."""
    max_fence_points: int = 10_000
    """Points all rings of a fence may have together; a larger one is refused when it is published."""
    max_tracked_objects: int = 100_000
    """Objects whose last place is remembered for detect=enter, exit and cross; the one silent longest is forgotten."""
    max_tracked_insides: int = 1_000_000
    """Areas in which remembered objects may be all together; the object silent longest is forgotten."""
    blocks_interval_s: float = 0.0
    """Time between two pictures of the index's blocks on `$SYS/broker/locus/geo/blocks`; 0 never tells who is where."""
    max_blocks: int = 2_000
    """Blocks in one picture; what is left out is counted in it."""
    max_topics: int = 65_536
    """Topics whose filters are remembered between messages; all are forgotten and found anew when there are more."""

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name.startswith("max_") and value < 1:
                raise BadRuleError(f"{option.name}: {value} is too small; it is at least 1")
        if self.blocks_interval_s and not self.blocks_interval_s >= 0.1:
            raise BadRuleError(f"blocks_interval_s: {self.blocks_interval_s} is too short; it is at least 0.1, or 0")
        for text in self.track:
            check_filter(text, "track")
        try:
            self.space()
        except (TypeError, ValueError) as error:
            raise BadRuleError(f"plane: {self.plane} is not west, south, east, north: {error}") from None

    def space(self) -> Space:
        """Where places are."""
        if not self.plane:
            return WGS84
        west, south, east, north = map(float, self.plane)
        return plane(west, south, east, north)


@dataclass(slots=True)
class GeoCounters(PayloadCounters):
    """What the geo plugin did and what it could not do."""

    subscriptions: int = 0
    """`$geo` subscriptions there are."""
    filters: int = 0
    """Inner filters they have."""
    messages: int = 0
    """Messages with a place that were matched."""
    without_place: int = 0
    """Messages that a `$geo` subscription might have wanted, but nobody knows where they are."""
    outside_space: int = 0
    """Messages whose payload names a place that the space does not have."""
    positions: int = 0
    """Positions that clients told."""
    bad_positions: int = 0
    """Positions that could not be read."""
    fences: int = 0
    """Fences that subscriptions name and that are there."""
    refused_fences: int = 0
    """Fences refused because they are no polygon or too large."""
    tracked_objects: int = 0
    """Objects whose last place is remembered."""
    forgotten_objects: int = 0
    """Objects forgotten because there were too many: they will seem to be new."""
