"""The client library and the command line of Locus.

>>> from clients import LocusClient, Near
>>> with LocusClient("127.0.0.1") as client:  # doctest: +SKIP
...     client.subscribe("vehicles/#", print, area=Near(500))
...     client.update_position(126.97, 37.56)
"""

from __future__ import annotations

from broker_plugins.grammar import (
    WGS84,
    Box,
    Cell,
    Circle,
    Detect,
    Fence,
    GrammarError,
    Interval,
    Near,
    Position,
    Space,
    plane,
)
from clients.client import LocusClient
from clients.errors import (
    ClosedError,
    ConnectError,
    LocusClientError,
    NoAnswerError,
    NotConnectedError,
    PositionError,
    QueueFullError,
    SubscriptionRefusedError,
)
from clients.messages import Message, Payload
from clients.roaming import RoamingClient
from clients.stream import MessageStream
from clients.subscription import Subscription

__all__ = [
    "WGS84",
    "Box",
    "Cell",
    "Circle",
    "ClosedError",
    "ConnectError",
    "Detect",
    "Fence",
    "GrammarError",
    "Interval",
    "LocusClient",
    "LocusClientError",
    "Message",
    "MessageStream",
    "Near",
    "NoAnswerError",
    "NotConnectedError",
    "Payload",
    "Position",
    "PositionError",
    "QueueFullError",
    "RoamingClient",
    "Space",
    "Subscription",
    "SubscriptionRefusedError",
    "plane",
]
