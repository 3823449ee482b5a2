"""What nodes say to each other about the map."""

from __future__ import annotations

import msgspec


class Charted(msgspec.Struct, array_like=True, gc=False):
    """A node says which version of the blocks it goes by."""

    node: str
    tree: int
    """The version; 0 if it knows none."""


class Load(msgspec.Struct, array_like=True, gc=False):
    """Where something happened on a node lately."""

    node: str
    seconds: float
    """How long it watched."""
    count: int
    """How many positions and positioned messages there were."""
    xs: list[float]
    """A fair sample of their places."""
    ys: list[float]


class AskBlocks(msgspec.Struct, array_like=True, tag=10, gc=False):
    """Tell me the blocks as you know them; the answer is a `Chart`."""


class ChartedBlock(msgspec.Struct, array_like=True, gc=False):
    """One block."""

    id: str
    box: tuple[float, float, float, float]
    owner: str
    load: float


class Chart(msgspec.Struct, array_like=True, gc=False):
    """The blocks of the map, with what they weigh now."""

    version: int
    bounds: tuple[float, float, float, float]
    capacity: float
    blocks: list[ChartedBlock]


class AskSightings(msgspec.Struct, array_like=True, tag=11, gc=False):
    """Tell me how clients moved on your node; the answer is `Sightings`."""


class Sightings(msgspec.Struct, array_like=True, gc=False):
    """Reports of clients' positions, as columns of 8-byte numbers in the machine's order of this node."""

    users: bytes
    times: bytes
    xs: bytes
    ys: bytes
