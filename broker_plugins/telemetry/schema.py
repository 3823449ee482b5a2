"""The telemetry schema: what the broker records of what it does, table by table and field by field.

This module is a contract: jobs read what the broker writes by it, and it imports neither of them, nor any library. Its
version counts up when a field or a table is added; nothing is ever renamed, retyped or removed. So whoever knows
version n reads every segment up to version n (a field younger than a segment is null in it), and refuses a newer one.

A segment is one Parquet file with records of one table. It is written under a hidden name and closed by renaming it:

    <spool>/table=publishes/hour=2026-05-04T09/<node>-<incarnation>-<first>-<last>-v2.parquet

`hour` is the hour (UTC) of the `at` of all its records. Within one table, node and incarnation, records are numbered
from 1 without a gap: what is missing was lost, and what is there twice was read twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final

VERSION: Final = 2
"""The version of the schema that this module describes."""


class SchemaError(ValueError):
    """Something is not what the schema says: a name, a version; the message says what and how to go on."""


class NewerSchemaError(SchemaError):
    """A segment was written by a newer broker than this program knows."""


class Kind(Enum):
    """The type of a field, by its name in Spark SQL."""

    STRING = "STRING"
    INT = "INT"
    LONG = "BIGINT"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TIME = "TIMESTAMP"
    """Microseconds since 1970 in UTC."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a table.

    Args:
        name: its name.
        kind: its type.
        meaning: what it says, in one line.
        nullable: whether it may be null in a segment of its own version.
        since: the version of the schema it came with.
    """

    name: str
    kind: Kind
    meaning: str
    nullable: bool = False
    since: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of record.

    Args:
        name: its name, also in the path of its segments.
        meaning: what one record stands for.
        own: the fields beside those that every table has.
        since: the version of the schema it came with.
    """

    name: str
    meaning: str
    own: tuple[Field, ...]
    since: int = 1

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields, in the order of the columns."""
        return COMMON + self.own

    def ddl(self) -> str:
        """The columns in Spark's words, for `readStream.schema(...)`; all may be null, as in an older segment."""
        return ", ".join(f"`{field.name}` {field.kind.value}" for field in self.fields)


COMMON: Final = (
    Field("node", Kind.STRING, "Name of the broker that recorded it."),
    Field("incarnation", Kind.LONG, "When that broker started, in nanoseconds since 1970: one for each run of it."),
    Field("sequence", Kind.LONG, "Number of the record in its table, node and incarnation, from 1 without a gap."),
    Field("at", Kind.TIME, "When it happened, by the broker's clock."),
    Field("weight", Kind.DOUBLE, "For how many such events the record stands: 1, or more where events are sampled."),
)
"""What every record begins with; node, incarnation and sequence together are its identity."""

_TOPIC = Field("topic", Kind.STRING, "Topic of the message, without message clauses.")
_BYTES = Field("bytes", Kind.LONG, "Bytes of the payload.")
_MESSAGE = Field("message", Kind.LONG, "The node's number of the message: joins what is recorded of one message.")
_RETAINED_TOPIC = Field("topic", Kind.STRING, "Topic of the retained message.")

_TABLES = (
    Table(
        "sessions",
        "A client came, left, or its session ended.",
        (
            Field("event", Kind.STRING, "`connected`, `disconnected` or `ended`."),
            Field("client", Kind.STRING, "Client identifier."),
            Field("clean", Kind.BOOLEAN, "Whether the session ends with its connection."),
            Field("address", Kind.STRING, "Where the client connected from.", nullable=True),
            Field("reason", Kind.STRING, "Why it was disconnected; empty after DISCONNECT.", nullable=True),
        ),
    ),
    Table(
        "subscriptions",
        "A subscription was made (or restored after a restart), or ended.",
        (
            Field("event", Kind.STRING, "`subscribed` or `unsubscribed`; one that is replaced ends and is made."),
            Field("client", Kind.STRING, "Client identifier."),
            Field("filter", Kind.STRING, "The filter as the client said it, with its prefixes."),
            Field("inner", Kind.STRING, "The ordinary topic filter in it."),
            Field("qos", Kind.INT, "QoS granted."),
            Field("group", Kind.STRING, "Group of a shared subscription.", nullable=True),
            Field("geo", Kind.BOOLEAN, "Whether it is a `$geo` subscription."),
            Field("where", Kind.BOOLEAN, "Whether it is a `$where` subscription."),
        ),
    ),
    Table(
        "publishes",
        "A message was taken. Those published to be retained are all here; others may be sampled.",
        (
            _MESSAGE,
            _TOPIC,
            Field("client", Kind.STRING, "Who published it; null for the broker itself.", nullable=True),
            Field("qos", Kind.INT, "QoS it was published with."),
            Field("retain", Kind.BOOLEAN, "Whether it was published to be retained."),
            _BYTES,
            Field("lon", Kind.DOUBLE, "Longitude (or x) of where it happens; the middle of a box.", nullable=True),
            Field("lat", Kind.DOUBLE, "Latitude (or y) of where it happens.", nullable=True),
        ),
    ),
    Table(
        "deliveries",
        "A message was handed to a receiver or to its queue; all receivers of a sampled message are here.",
        (
            _MESSAGE,
            _TOPIC,
            Field("client", Kind.STRING, "Who received it."),
            Field("qos", Kind.INT, "QoS it was delivered with."),
            _BYTES,
            Field("retained", Kind.BOOLEAN, "Whether it was sent because it was retained, to a new subscription."),
            Field("queued", Kind.BOOLEAN, "Whether it had to wait, since the receiver did not take what it was sent."),
            Field(
                "latency_us",
                Kind.LONG,
                "Microseconds from its arrival until it was on its way to the socket, or queued; null if retained.",
                nullable=True,
            ),
        ),
    ),
    Table(
        "drops",
        "A message did not reach a receiver, or nobody at all.",
        (
            Field("message", Kind.LONG, "The node's number of the message; null where it was not kept.", nullable=True),
            _TOPIC,
            Field("client", Kind.STRING, "Who did not get it; null for nobody in particular.", nullable=True),
            Field("qos", Kind.INT, "QoS it was published with."),
            _BYTES,
            Field("reason", Kind.STRING, "The counter that says why, such as `dropped_qos0` or `refused_publishes`."),
        ),
    ),
    Table(
        "positions",
        "A client told where it is.",
        (
            Field("client", Kind.STRING, "Client identifier."),
            Field("lon", Kind.DOUBLE, "Longitude, or x on a plane."),
            Field("lat", Kind.DOUBLE, "Latitude, or y on a plane."),
        ),
    ),
    Table(
        "matches",
        "A receiver was chosen for a message that went to the most accurate matches, or that asked for a receipt.",
        (
            _MESSAGE,
            _TOPIC,
            Field("client", Kind.STRING, "Who was chosen; a member of it where a shared group was."),
            Field("filter", Kind.STRING, "By which of its filters."),
            Field("rank", Kind.INT, "Its place among the chosen, from 1."),
            Field("accuracy", Kind.DOUBLE, "Width of the match, 0 to 1: smaller is more accurate."),
            Field("wanted", Kind.INT, "How many receivers were wanted; null for all.", nullable=True),
            Field("chosen", Kind.INT, "How many were chosen."),
        ),
    ),
    Table(
        "retained_decisions",
        "A policy had decided how long a retained message may wait for something newer, and now it is known what came.",
        (
            _RETAINED_TOPIC,
            Field("topic_class", Kind.STRING, "The configured filter that opted the topic in."),
            Field("decided_at", Kind.TIME, "When it was decided; `at` is when the outcome was known."),
            Field("age_s", Kind.DOUBLE, "Age of the retained message then."),
            Field("gaps", Kind.INT, "How many gaps between publishes were known."),
            Field("mean_gap_s", Kind.DOUBLE, "Their mean."),
            Field("typical_gap_s", Kind.DOUBLE, "The median of the last eight."),
            Field("last_gap_s", Kind.DOUBLE, "The last one."),
            Field("variation", Kind.DOUBLE, "Their standard deviation over their mean."),
            Field("hour_of_day", Kind.INT, "0 to 23, as the policy saw it.", nullable=True),
            Field("presence", Kind.INT, "Of the publisher: 0 unknown, 1 away, 2 steady, 3 back."),
            Field("renewal_wait_s", Kind.DOUBLE, "The wait by the renewal rule."),
            Field("recent_wait_s", Kind.DOUBLE, "The wait by the renewal rule from the last eight gaps."),
            Field("wait_s", Kind.DOUBLE, "The longest wait that was decided; 0 sends at once."),
            Field("policy_version", Kind.STRING, "By which policy."),
            Field("propensity", Kind.DOUBLE, "How likely that policy was to decide so."),
            Field("residual_s", Kind.DOUBLE, "When the next retained publish came; null if none did.", nullable=True),
            Field("observed_s", Kind.DOUBLE, "How long after the decision the topic was watched for it."),
            Field(
                "bytes", Kind.LONG, "Bytes of the topic's retained payload when the outcome was known.", nullable=True
            ),
            Field("saved", Kind.BOOLEAN, "Whether something newer came within the wait, so that it need not be sent."),
        ),
    ),
    Table(
        "routes",
        "A message was sent on to another node.",
        (
            _MESSAGE,
            _TOPIC,
            Field("to_node", Kind.STRING, "Where to."),
            Field("via", Kind.STRING, "Why: `filter`, `region` or `content`."),
            Field("block", Kind.STRING, "The region's block, where one decided.", nullable=True),
            _BYTES,
        ),
    ),
    Table(
        "totals",
        "A counter of the broker at one moment: exact also where other tables are sampled.",
        (
            Field("counter", Kind.STRING, "Its name, such as `messages_received`."),
            Field("value", Kind.LONG, "How far it has counted since the broker started."),
        ),
    ),
    Table(
        "handovers",
        "A client's session came from another node: it connected here, and that node let it go.",
        (
            Field("client", Kind.STRING, "Client identifier."),
            Field("from_node", Kind.STRING, "Where it was."),
            Field("to_node", Kind.STRING, "Where it is now: the node that recorded it."),
            Field("subscriptions", Kind.INT, "Subscriptions that came along."),
            Field("queued", Kind.INT, "Messages owed to the client that came along."),
        ),
        since=2,
    ),
    Table(
        "losses",
        "Records were made by a broker that was killed, and are nowhere: see `journal`. None where it is on and works.",
        (
            Field("lost_incarnation", Kind.LONG, "The run that made them; the node is the same."),
            Field("lost_table", Kind.STRING, "Their table."),
            Field("first", Kind.LONG, "Sequence of the first one."),
            Field("last", Kind.LONG, "Sequence of the last one."),
        ),
        since=2,
    ),
)

TABLES: Final[dict[str, Table]] = {table.name: table for table in _TABLES}
"""Every table by its name."""


def table(name: str) -> Table:
    """A table by its name.

    Raises:
        SchemaError: there is none of that name.
    """
    found = TABLES.get(name)
    if found is None:
        raise SchemaError(f"there is no table {name!r} in version {VERSION}; tables are {', '.join(TABLES)}")
    return found


# Segments.

NODE_PATTERN: Final = r"(?P<node>[A-Za-z0-9][A-Za-z0-9_.-]{0,63})"
"""A node at the start of a file's name. Whatever dashes it has, it ends before the last ones, which part numbers."""
# Spark overlooks files that start with a dot or an underscore; between dots of a JetStream subject there is something.
_NODE = re.compile(r"(?=.{1,64}$)[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_SEGMENT = re.compile(
    rf"{NODE_PATTERN}-"
    r"(?P<incarnation>\d{1,19})-(?P<first>\d{12,19})-(?P<last>\d{12,19})"
    r"-v(?P<version>\d{1,6})\.parquet"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """What the name of a segment tells.

    Args:
        node: who wrote it.
        incarnation: in which run.
        first: the sequence of its first record.
        last: the sequence of its last record; there are `last - first + 1` records in it at most.
        version: the version of the schema it was written by.
    """

    node: str
    incarnation: int
    first: int
    last: int
    version: int = VERSION

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.node}-{self.incarnation}-{self.first:012d}-{self.last:012d}-v{self.version}.parquet"


def check_node(name: str) -> str:
    """A node's name, if it can stand in the name of a segment, in a topic and in a JetStream subject as it is.

    Raises:
        SchemaError: it cannot.
    """
    if not _NODE.fullmatch(name):
        raise SchemaError(
            f"node {name!r}: use up to 64 letters, digits, dashes, underscores and single dots between them, a letter"
            " or digit first"
        )
    return name


def node_of(name: str) -> str:
    """Whose segment a file is, whatever the version of its schema.

    Raises:
        SchemaError: it is no segment's name.
    """
    match = _SEGMENT.fullmatch(name)
    if match is None:
        raise SchemaError(f"{name!r} is no segment: expected <node>-<incarnation>-<first>-<last>-v<version>.parquet")
    return match["node"]


def parse_segment(name: str) -> Segment:
    """Read the name of a segment's file.

    Raises:
        NewerSchemaError: it was written by a newer version than this one.
        SchemaError: it is no segment's name.
    """
    match = _SEGMENT.fullmatch(name)
    if match is None:
        raise SchemaError(f"{name!r} is no segment: expected <node>-<incarnation>-<first>-<last>-v<version>.parquet")
    segment = Segment(
        match["node"], int(match["incarnation"]), int(match["first"]), int(match["last"]), int(match["version"])
    )
    if segment.version > VERSION:
        raise NewerSchemaError(
            f"{name}: written by version {segment.version} of the telemetry schema, this program reads up to {VERSION}:"
            " update it"
        )
    if segment.first < 1 or segment.last < segment.first:
        raise SchemaError(f"{name!r} is no segment: records {segment.first} to {segment.last} cannot be")
    return segment


def hour_of(at_us: int) -> str:
    """The partition of a time in microseconds since 1970: its hour in UTC, such as `2026-05-04T09`."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H")


def partition(table_name: str, hour: str) -> str:
    """The directory of a table's segments of one hour, below the spool."""
    return f"table={table(table_name).name}/hour={hour}"
