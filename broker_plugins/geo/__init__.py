"""`$geo` subscriptions: where a client listens, on the globe or on a plane, at rest or moving.

`GeoPlugin` is the plugin; fences, zones, spots, tracks and detection are its parts and know no broker.
"""

from broker_plugins.geo.options import GeoCounters, GeoOptions
from broker_plugins.geo.plugin import POSITION_TOPIC, GeoPlugin

__all__ = ["POSITION_TOPIC", "GeoCounters", "GeoOptions", "GeoPlugin"]
