"""What nodes say to each other, as compact binary: MessagePack arrays, decoded strictly into these types."""

from __future__ import annotations

import zlib
from typing import Final, TypeVar, cast

import msgspec

FORMAT: Final = b"\x02"
"""The first byte of everything sent; a node that reads another one leaves it alone."""
GONE: Final = 0
HELD: Final = 1
DURABLE: Final = 2
"""How a node holds a filter: not any more, by clients that are connected, by a session that outlives its connection."""
LOCAL: Final = 4
"""Added to how a filter is held: only by `$geo` subscriptions, for what happens in the blocks that it tells apart."""


class WireError(ValueError):
    """Bytes from another node that are nothing this node understands."""


class Stamp(msgspec.Struct, array_like=True, frozen=True, order=True, gc=False):
    """When something was said: hybrid time, then the name of the node that took it, so that no two are the same."""

    time: int
    node: str


class Frame(msgspec.Struct, array_like=True, gc=False):
    """One message on its way to one node."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    clauses: str = ""
    """The topic with its clauses as they were said, where there are any."""
    groups: list[str] = []
    """The shared filters for which the receiving node chooses the member that gets it."""
    stamp: Stamp | None = None
    """For a retained message: when it was said."""
    properties: bytes = b""
    """For a retained message: what plugins keep with it, as JSON."""
    number: int = 0
    """Tells the message from all others of the node it was published on."""
    chosen: tuple[int, int] | None = None
    """For one that the best of the whole cluster get: the question by which they were found, and how many of those
    named are served (-1: all); shared groups are those in `groups`."""
    causal: bytes = b""
    """For a message in a causal group: what must come before it there."""


class Batch(msgspec.Struct, array_like=True, gc=False):
    """Messages of one node for one other, in their order."""

    origin: str
    frames: list[Frame]


class Goodbye(msgspec.Struct, array_like=True, gc=False):
    """A node leaves."""

    node: str


class Hello(msgspec.Struct, array_like=True, gc=False):
    """A node is there; what it says of itself lets others see what they have missed."""

    node: str
    incarnation: int
    version: int
    """How many changes its filters have had."""
    digest: int
    """Of all its retained messages."""
    address: str = ""
    """Where clients reach it."""
    draining: bool = False
    """Whether it is about to be stopped, and takes no clients."""


class Applied(msgspec.Struct, array_like=True, gc=False):
    """A node knows all filters of another one up to a version."""

    node: str
    incarnation: int
    """Of the node whose filters these are."""
    version: int


class Wish(msgspec.Struct, array_like=True, gc=False):
    """A filter that a node holds, or does not hold any more."""

    inner: str
    group: str
    """The whole text of a shared filter; empty for any other."""
    state: int


class Delta(msgspec.Struct, array_like=True, gc=False):
    """What changed of a node's filters since a version."""

    node: str
    incarnation: int
    base: int
    version: int
    wishes: list[Wish]


class AskWishes(msgspec.Struct, array_like=True, tag=1, gc=False):
    """Tell me all your filters; the answer is a `Delta` from version 0."""


class AskBuckets(msgspec.Struct, array_like=True, tag=2, gc=False):
    """Tell me the digests of your retained messages, bucket by bucket."""


class AskRetained(msgspec.Struct, array_like=True, tag=3, gc=False):
    """Tell me the retained messages of a bucket after a topic."""

    bucket: int
    after: str = ""


class Owed(msgspec.Struct, array_like=True, gc=False):
    """A message owed to a session that moves."""

    topic: str
    payload: bytes
    message_qos: int
    qos: int
    retain: bool
    packet_id: int
    state: int
    origin: str = ""
    """Where it was published; empty where that is not known, or where no other node can have had it."""
    number: int = 0


class AskSession(msgspec.Struct, array_like=True, tag=4, gc=False):
    """A client is connecting to me: let go of it, and give me its session if that is to be kept."""

    client_id: str
    keep: bool
    done: bool = False
    """I have it: give me what came for it since, and forget it."""


class AskMoving(msgspec.Struct, array_like=True, tag=20, gc=False):
    """Tell me what a client's session is subscribed to, and go on serving it for now."""

    client_id: str
    connects: bool = False
    """Whether the client is connecting to me: a session that ends with its connection is over then."""


class AskFence(msgspec.Struct, array_like=True, tag=21, gc=False):
    """You know what I want: mark in all ways from you to a node that what follows comes to me as well."""

    node: str
    token: int


class AskCut(msgspec.Struct, array_like=True, tag=22, gc=False):
    """When all these nodes have marked their ways to you: let go of a client, and give me its session."""

    client_id: str
    node: str
    """Who asks."""
    token: int
    fences: list[str]


class AskDrain(msgspec.Struct, array_like=True, tag=23, gc=False):
    """Let all clients go, or take clients again; without `change`: how far is it?"""

    drain: bool = True
    change: bool = True


class AskAdopt(msgspec.Struct, array_like=True, tag=24, gc=False):
    """Take the session of a client that is not connected from me."""

    client_id: str


class AskMore(msgspec.Struct, array_like=True, tag=25, gc=False):
    """Give me more of what is owed to a session that you gave me, from a place on."""

    client_id: str
    start: int


class AskInherit(msgspec.Struct, array_like=True, tag=26, gc=False):
    """You took a client's session over while I was away: here is what I had taken for it before."""

    client_id: str
    owed: list[Owed]
    token: int = 0
    """Tells it from all others, for who is asked again."""


class AskStrays(msgspec.Struct, array_like=True, tag=27, gc=False):
    """These messages came to me for a client whose session I gave away while their node was silent."""

    client_id: str
    origin: str
    frames: list[Frame]


class SessionNote(msgspec.Struct, array_like=True, gc=False):
    """What the fabric remembers of a session, for the case that its node dies."""

    client_id: str
    node: str
    subscriptions: list[tuple[str, int]]
    orders: list[int] = []
    place: tuple[float, float] | None = None


class Inherited(msgspec.Struct, array_like=True, gc=False):
    """A session of a node that was away is elsewhere, or has ended."""

    client_id: str
    ended: bool = False
    created: str = ""
    """When the mailbox of the node was made from which its mail was read."""
    after: int = 0
    """It was read from the first message after this one: up to here the node itself delivers what it had not."""
    late: bool = False
    """The client connected elsewhere when there was no fabric: nobody knew then where it was."""


class Taken(msgspec.Struct, array_like=True, gc=False):
    """How far a node has read its mailbox."""

    node: str
    created: str
    """When the mailbox was made."""
    number: int


class Draining(msgspec.Struct, array_like=True, gc=False):
    """What is left on a node."""

    draining: bool
    connected: int
    """Clients that are connected."""
    roaming: int
    """Those among them that go when they are told."""
    sessions: int
    """Sessions of clients that are not connected."""
    blocks: int


class Fenced(msgspec.Struct, array_like=True, gc=False):
    """The marks are on their way."""


class Buckets(msgspec.Struct, array_like=True, gc=False):
    """Digests of retained messages."""

    digests: list[int]


class Retained(msgspec.Struct, array_like=True, gc=False):
    """Retained messages of a bucket in the order of their topics; a removal has an empty payload."""

    frames: list[Frame]
    more: bool


class MovedSession(msgspec.Struct, array_like=True, gc=False):
    """A session as it leaves its node."""

    found: bool
    subscriptions: list[tuple[str, int]] = []
    """Filters with their QoS, in the order of their age."""
    owed: list[Owed] = []
    given: int = 0
    """How many of these were given to another node before: then this is what is left of a session that has moved."""
    stale: bool = False
    since: int = 0
    """If it came here lately: the number of the last message published here before."""
    seen: list[tuple[str, int]] = []
    """If it came here lately: messages of other nodes that came since."""
    inbound: list[int] = []
    roaming: bool = False
    """Whether its client comes here because it was told to."""
    place: tuple[float, float] | None = None
    """Where its client is."""
    orders: list[int] = []
    """How old its subscriptions are, where that counts for the whole cluster."""
    owing: list[str] = []
    """Filters whose retained messages were still being sent."""
    waiting: list[Owed] = []
    """QoS 0 messages that its client had not read yet."""
    fenced: bool = False
    """Whether everything that other nodes sent before they knew of the move had come: then `positions` is exact."""
    positions: list[tuple[str, bool, int]] = []
    """For each node and each of its ways (by mail or not) the last message that this session has had."""
    unhad: list[tuple[str, int]] = []
    """Messages up to there that it has not had all the same."""
    more: bool = False
    """Whether more is owed than is here."""
    id_floor: int = 0
    """Packet identifiers up to here are not given: they may mean something on a node that is away."""
    had: list[tuple[str, list[int]]] = []
    """What its client has had of nodes that were silent, by their numbers."""


class Content(msgspec.Struct, array_like=True, gc=False):
    """Boxes that cover what a node's subscriptions to a filter want; None where they want any content."""

    inner: str
    boxes: list[tuple[tuple[str, float, float], ...]] | None


class ContentDelta(msgspec.Struct, array_like=True, gc=False):
    """What changed of the contents a node wants since a version."""

    node: str
    incarnation: int
    base: int
    version: int
    contents: list[Content]


class Hop(msgspec.Struct, array_like=True, gc=False):
    """A node that a message is to be passed on to, and what that one passes it on to."""

    node: str
    epoch: int
    """Since when messages of the publisher's node for that one are numbered."""
    place: int
    """The number of this one."""
    below: list[Hop]


class Relayed(msgspec.Struct, array_like=True, gc=False):
    """A message that nodes pass on for each other."""

    origin: str
    epoch: int
    place: int
    frame: Frame
    below: list[Hop]


class Relay(msgspec.Struct, array_like=True, gc=False):
    """Messages for one node, to be delivered and passed on."""

    items: list[Relayed]


class AskBest(msgspec.Struct, array_like=True, tag=41, gc=False):
    """Whom would you serve with this message, best first? Keep in mind whom you named until I say how many."""

    origin: str
    token: int
    """Tells this question from all others of its node."""
    frame: Frame
    most: int
    """How many are wanted at the most; 0 for all."""


class Best(msgspec.Struct, array_like=True, gc=False):
    """Who would be served on a node."""

    found: list[tuple[float, int, str, str]]
    """Accuracy, age, client, and the whole text of a shared group (or nothing), best first."""
    count: int
    """How many these are; those listed may be fewer."""


class AskContents(msgspec.Struct, array_like=True, tag=40, gc=False):
    """Tell me all contents you want; the answer is a `ContentDelta` from version 0."""


T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[object, msgspec.msgpack.Decoder[object]] = {}


def encode(value: msgspec.Struct, squeeze: bool = False) -> bytes:
    """The bytes of a value; `squeeze` compresses what is large and seldom sent."""
    raw = _encoder.encode(value)
    return FORMAT + (b"z" + zlib.compress(raw, 1) if squeeze else b"-" + raw)


def decode(data: bytes, kind: type[T]) -> T:
    """The value in bytes from another node.

    Raises:
        WireError: they are of another format, or not of this kind.
    """
    if data[:1] != FORMAT or data[1:2] not in (b"-", b"z"):
        raise WireError(f"{data[:2]!r} begins no message of this version: run one version of Locus on all nodes")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        raw = data[2:] if data[1:2] == b"-" else zlib.decompress(data[2:])
        return cast("T", decoder.decode(raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error) as error:
        raise WireError(f"a message between nodes cannot be read: {error}") from error
