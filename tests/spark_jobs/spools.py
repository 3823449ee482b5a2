"""Makes spools for tests, with the broker's own writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker_plugins.telemetry.schema import Kind, table
from broker_plugins.telemetry.spool import Batch, Spool

if TYPE_CHECKING:
    from pathlib import Path

INCARNATION = 1_700_000_000_000_000_000
START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
_BLANK: dict[Kind, Any] = {
    Kind.STRING: "",
    Kind.INT: 0,
    Kind.LONG: 0,
    Kind.DOUBLE: 0.0,
    Kind.BOOLEAN: False,
    Kind.TIME: START_US,
}


def columns(name: str, rows: list[dict[str, Any]], first: int) -> dict[str, list[Any]]:
    """Rows as columns of a table; what a row does not say is blank, or null where that is allowed."""
    found: dict[str, list[Any]] = {}
    for field in table(name).fields[2:]:
        blank = None if field.nullable else _BLANK[field.kind]
        found[field.name] = [row.get(field.name, blank) for row in rows]
    found["sequence"] = [row.get("sequence", first + at) for at, row in enumerate(rows)]
    found["weight"] = [row.get("weight", 1.0) for row in rows]
    found["at"] = [row.get("at", START_US) for row in rows]
    return found


def write(
    spool: Path, name: str, rows: list[dict[str, Any]], first: int = 1, node: str = "n1", incarnation: int = INCARNATION
) -> list[Path]:
    """Write rows as segments; their sequences count from `first`."""
    return Spool(spool, node, incarnation).write(Batch(name, columns(name, rows, first)))


def publishes(count: int, first: int = 1, step_us: int = 1_000, topic: str = "a/b") -> list[dict[str, Any]]:
    """Publishes, one each `step_us`, in the order of their sequences."""
    return [
        {"at": START_US + (first + n) * step_us, "topic": topic, "client": "c", "bytes": 10, "message": first + n}
        for n in range(count)
    ]
