"""What nodes say to each other of causal groups, beside the control information in frames."""

from __future__ import annotations

import msgspec


class Seated(msgspec.Struct, array_like=True, gc=False):
    """A node has taken a seat."""

    node: str
    slot: int
    incarnation: int
    groups: str
    """A digest of the causal groups it is configured with."""


class AskTime(msgspec.Struct, array_like=True, tag=30, gc=False):
    """What time is it at yours?"""


class AskPast(msgspec.Struct, array_like=True, tag=31, gc=False):
    """A client is connecting to me: if it was at yours, tell me what must come before anything it publishes here."""

    client_id: str
    node: str
    """Who asks."""
    groups: str
    """A digest of the causal groups it is configured with."""


class Past(msgspec.Struct, array_like=True, gc=False):
    """What a client may have heard: for each group control information as of a message, or nothing."""

    controls: list[bytes]


class Time(msgspec.Struct, array_like=True, gc=False):
    """The time on a node's clock."""

    us: int
    """Microseconds since 1970."""
