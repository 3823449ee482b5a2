"""What the broker records of what it does. Only the contract is imported here: jobs read it without the broker."""

from broker_plugins.telemetry.schema import (
    COMMON,
    TABLES,
    VERSION,
    Field,
    Kind,
    NewerSchemaError,
    SchemaError,
    Segment,
    Table,
    hour_of,
    node_of,
    parse_segment,
    partition,
    table,
)

__all__ = [
    "COMMON",
    "TABLES",
    "VERSION",
    "Field",
    "Kind",
    "NewerSchemaError",
    "SchemaError",
    "Segment",
    "Table",
    "hour_of",
    "node_of",
    "parse_segment",
    "partition",
    "table",
]
