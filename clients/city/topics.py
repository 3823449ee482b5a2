"""Where the simulated city publishes, and in what shape: the contract with whoever watches it.

All payloads are JSON objects; lengths are metres, speeds metres a second, headings degrees clockwise from north, and
coordinates are WGS84 with the longitude first.

- `city/map`, retained: `{"center": [lon, lat], "bounds": [w, s, e, n], "streets": [[[lon, lat], ...], ...],
  "square": [[lon, lat], ...], "seed": 1}`; `square` is the closed ring of the crowded square.
- `city/vehicles/{id}/pos` and `city/people/{id}/pos`, each about once a second:
  `{"lon": 126.97, "lat": 37.56, "speed": 12.4, "heading": 271}`.
- `city/subscribers/{id}/pos`, about once a second: `{"lon": 126.97, "lat": 37.56, "radius_m": 300}`.
- `city/subscribers/{id}/received`, about once a second: `{"received": 812, "recent": [{"topic":
  "city/vehicles/v17/pos", "lon": ..., "lat": ...}, ...]}`: how many in all, and the last ones since the last report.
- `city/subscribers/{id}`: `{"online": true}` or, also as a will, `{"online": false}`.
- `city/jobs/offers`: `{"job": 41, "age": 24, "salary": 310, "distance_km": 1.2, "lon": ..., "lat": ...}`, for the three
  best, by `@top:3;reply:city/jobs/receipts`.
- `city/jobs/board`: the same offer, just before it, for those who look on: whoever subscribes to the offers themselves
  counts as a receiver, the least accurate one.
- `city/jobs/receipts`, the broker's receipt: `{"topic": "city/jobs/offers", "count": 3, "receivers": [{"rank": 1,
  "accuracy": 0.012, "client": "city-worker-7"}, ...]}`.
- `city/workers/{id}`, retained: `{"client": "city-worker-7", "filter": "$where/age=20..25,.../city/jobs/offers"}`.
- `city/sensors/{id}/{quantity}`, retained: `{"value": 17.3, "unit": "°C", "lon": ..., "lat": ..., "every_s": 5.0}`;
  `every_s` is the sensor's usual rhythm, though some are irregular and some fall silent.
- `city/alerts/{kind}`: `{"kind": "fire", "text": "...", "lon": ..., "lat": ...}`, published with `@at:LON,LAT`.
- `locus/metrics/handovers`: `{"client": "city-subscriber-r7", "from": "127.0.0.1:1883", "to": "127.0.0.1:1884"}`, when
  a roaming subscriber has moved to another node of a cluster.
- `locus/fence/{name}`, retained: a GeoJSON Polygon, as `$geo/fence:NAME` wants it.

Subscribers are MQTT clients named `city-subscriber-{id}` that tell `locus/me/position` and hold
`$geo/near:300m/city/vehicles/+/pos`. Watchers, `city-watcher-{name}`, hold `$geo/fence:{name};detect=enter/…`
and the same with `exit`; they report as the subscribers `watcher-{name}`, without a position. Visitors,
`city-visitor-{n}`, come, subscribe to sensors, and go.
"""

from __future__ import annotations

from typing import Final

MAP: Final = "city/map"
OFFERS: Final = "city/jobs/offers"
BOARD: Final = "city/jobs/board"
RECEIPTS: Final = "city/jobs/receipts"

VEHICLE_POSITIONS: Final = "city/vehicles/+/pos"
PEOPLE_POSITIONS: Final = "city/people/+/pos"
SUBSCRIBER_POSITIONS: Final = "city/subscribers/+/pos"
SUBSCRIBER_REPORTS: Final = "city/subscribers/+/received"
SUBSCRIBER_STATES: Final = "city/subscribers/+"
WORKERS: Final = "city/workers/+"
SENSORS: Final = "city/sensors/+/+"
ALERTS: Final = "city/alerts/+"
FENCES: Final = "locus/fence/+"
HANDOVERS: Final = "locus/metrics/handovers"

OFFER_TOP: Final = 3
"""How many workers an offer goes to."""
ATTRIBUTES: Final[dict[str, tuple[float, float]]] = {
    "age": (18.0, 70.0),
    "salary": (0.0, 1000.0),
    "distance_km": (0.0, 10.0),
}
"""What offers are ranked by, with the domains that the broker's configuration declares for them."""
NEAR_M: Final = 300
"""How far a roaming subscriber looks around."""
RECENT: Final = 20
"""How many messages a subscriber's report lists at most."""


def vehicle(name: str) -> str:
    """Where a vehicle's positions go."""
    return f"city/vehicles/{name}/pos"


def person(name: str) -> str:
    """Where a pedestrian's positions go."""
    return f"city/people/{name}/pos"


def subscriber_position(name: str) -> str:
    """Where a roaming subscriber shows itself."""
    return f"city/subscribers/{name}/pos"


def subscriber_report(name: str) -> str:
    """Where a subscriber tells what it received."""
    return f"city/subscribers/{name}/received"


def subscriber_state(name: str) -> str:
    """Where a subscriber tells that it came or went."""
    return f"city/subscribers/{name}"


def worker(name: str) -> str:
    """Where a worker shows which offers it wants."""
    return f"city/workers/{name}"


def sensor(name: str, quantity: str) -> str:
    """Where a sensor's readings go."""
    return f"city/sensors/{name}/{quantity}"


def alert(kind: str, lon: float, lat: float) -> str:
    """Where an alert goes, with the clause that says where it happened."""
    return f"city/alerts/{kind}/@at:{lon:.6f},{lat:.6f}"


def fence(name: str) -> str:
    """Where a fence is retained."""
    return f"locus/fence/{name}"
