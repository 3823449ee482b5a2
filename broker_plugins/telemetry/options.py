"""What an operator can set of telemetry, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_plugins.telemetry.schema import SchemaError, check_node, table


@dataclass
class TelemetryOptions:
    """Options of `broker_plugins.telemetry.plugin.TelemetryPlugin`."""

    enabled: bool = True
    """Whether anything is recorded."""
    spool_dir: str = "telemetry"
    """Directory of the segments; made if it is missing."""
    node: str = ""
    """Name of this broker in every record; if it is empty its name in the cluster, or else the machine's. Where the
    cluster has a name for it, this is the same or empty."""
    shares: dict[str, float] = field(default_factory=dict)
    """By table, the share of events that is recorded, 0 to 1; all where it is not said. Records tell their weight."""
    max_messages_per_s: int = 2_000
    """Publishes and deliveries recorded in a second, and as many drops; of more the share that fits is recorded. 0 sets
    no bound, and none to what recording costs either."""
    max_cost: float = 0.02
    """Share of the broker's processor time that may go into recording messages; of more messages the share that fits is
    recorded. A broker whose processor is idle may spend as if it were busy to 15 %."""
    look_into_payloads: bool = True
    """Whether recorded messages are looked into for where they happen, as `$geo` does; else only clauses count."""
    journal: str = "turn"
    """`turn` appends what is recorded to a journal before what it tells of leaves the broker, so that a broker that is
    killed loses none of it; `off` leaves it in memory until its segment is closed, and only counts what is lost."""
    roll_s: float = 2.0
    """Time after which what was recorded is written and its segments are closed; five times that for tables other than
    publishes, deliveries and drops that have few records, and for `totals` while others are written."""
    roll_records: int = 20_000
    """Records of one table after which its segment is closed before that time."""
    max_buffered_records: int = 200_000
    """Records in memory, those being written too; what finds no room is lost, counted, and a gap in the sequences."""
    max_age_s: float = 86_400.0
    """Age at which this node's segments are removed."""
    max_bytes: int = 1_073_741_824
    """Bytes of this node's segments; the oldest are removed when there are more."""
    retry_s: float = 5.0
    """Time between two attempts to write while the spool cannot be written."""

    def __post_init__(self) -> None:
        if self.node:
            check_node(self.node)
        for name, share in self.shares.items():
            table(name)
            if not 0.0 <= share <= 1.0:
                raise SchemaError(f"shares: {name}: {share} does not lie between 0 (nothing) and 1 (everything)")
        for name in ("roll_s", "roll_records", "max_buffered_records", "max_age_s", "max_bytes", "retry_s"):
            if getattr(self, name) <= 0:
                raise SchemaError(f"{name}: {getattr(self, name)} is too small; it is above 0")
        if self.journal not in ("turn", "off"):
            raise SchemaError(f"journal: {self.journal!r} is neither 'turn' nor 'off'")
        if not 0.0 < self.max_cost <= 1.0:
            raise SchemaError(f"max_cost: {self.max_cost} does not lie above 0 and up to 1 (all of the processor time)")
        if self.max_messages_per_s < 0:
            raise SchemaError(f"max_messages_per_s: {self.max_messages_per_s} is below 0; 0 sets no bound")


@dataclass(slots=True)
class TelemetryCounters:
    """What became of the records."""

    records: int = 0
    """Records written."""
    segments: int = 0
    """Segments closed."""
    lost_records: int = 0
    """Records lost because the buffer was full or could not be written; each is a gap in the sequences of its table."""
    write_failures: int = 0
    """Attempts to write that failed."""
    journal_failures: int = 0
    """Attempts to write to the journal that failed or took too long; it then rests for `retry_s`."""
    recovered_records: int = 0
    """Records of brokers that were killed, found in their journal and written."""
    torn_journals: int = 0
    """Journals of brokers that were killed whose end was cut off, in a record nobody had been told of."""
    removed_segments: int = 0
    """Segments removed because they were too old or too many."""
    buffered_records: int = 0
    """Records in memory now."""
    spool_bytes: int = 0
    """Bytes of this node's segments when they were last counted."""
