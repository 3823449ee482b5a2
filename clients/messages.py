"""What arrives, and what is sent: messages with their payloads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from broker_plugins.grammar import Position

Payload: TypeAlias = bytes | bytearray | str | int | float | Mapping[str, Any] | Sequence[Any] | None
"""Bytes go as they are, text as UTF-8, None as nothing, and everything else as JSON."""

_UNREAD: Any = object()
_COORDINATES = (("lon", "lat"), ("lng", "lat"), ("longitude", "latitude"))


@dataclass(slots=True, eq=False)
class Message:
    """A message as it was delivered, its clauses removed by the broker.

    Attributes:
        topic: The topic it was published to.
        payload: Its bytes.
        qos: The QoS of the delivery.
        retain: Whether it was kept by the broker and comes because of a new subscription.
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    _document: Any = field(default=_UNREAD, init=False, repr=False)

    @property
    def text(self) -> str:
        """The payload as UTF-8; what is none shows as the replacement character."""
        return self.payload.decode(errors="replace")

    def json(self) -> Any:
        """The payload as JSON, decoded once.

        Raises:
            ValueError: If it is none.
        """
        if self._document is _UNREAD:
            try:
                self._document = msgspec.json.decode(self.payload)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ValueError(f"the payload of {self.topic!r} is no JSON: {error}") from error
        return self._document

    @property
    def place(self) -> Position | None:
        """The place the payload says it is at, None if it says none.

        It reads `lon`/`lat`, `lng`/`lat` or `longitude`/`latitude`, or a GeoJSON point, as the broker does where no
        clause and no rule says otherwise; neither of these reaches a subscriber.
        """
        try:
            document = self.json()
        except ValueError:
            return None
        return _place_in(document)


def encode(payload: Payload) -> bytes:
    """The bytes of a payload.

    Raises:
        TypeError: If it is neither bytes nor text nor can be written as JSON.
    """
    match payload:
        case bytes() | bytearray():
            return bytes(payload)
        case str():
            return payload.encode()
        case None:
            return b""
        case _:
            return msgspec.json.encode(payload)


def number_at(document: Any, path: Sequence[str]) -> float | None:
    """The number that nested members lead to, None if there is none; a truth value is no number."""
    for name in path:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    if isinstance(document, bool) or not isinstance(document, (int, float)):
        return None
    try:
        number = float(document)
    except OverflowError:  # an integer beyond every double
        return None
    return number if math.isfinite(number) else None


def _place_in(document: Any) -> Position | None:
    for lon_name, lat_name in _COORDINATES:
        lon, lat = number_at(document, (lon_name,)), number_at(document, (lat_name,))
        if lon is not None and lat is not None:
            return Position(lon, lat)
    if isinstance(document, dict) and document.get("type") == "Feature":
        document = document.get("geometry")
    match document:
        case {"type": "Point", "coordinates": [lon, lat, *_]}:
            lon, lat = number_at({"": lon}, ("",)), number_at({"": lat}, ("",))
            if lon is not None and lat is not None:
                return Position(lon, lat)
    return None
