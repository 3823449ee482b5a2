"""Writes docs/reference/telemetry-schema.md from the schema itself: fields and words stand in one place only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker_plugins.telemetry import Field

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "telemetry-schema.md"
HEAD = """\
# Telemetry schema, version {version}

<!-- Written by scripts/telemetry_reference.py; a test compares it with the code. -->

What `broker_plugins.telemetry.plugin.TelemetryPlugin` records. A segment is one Parquet file with records of one table,
closed by renaming it, so whatever has this name is whole:

```
<spool>/table=publishes/hour=2026-05-04T09/<node>-<incarnation>-<first>-<last>-v{version}.parquet
```

`hour` is the hour (UTC) of the `at` of all records in it; `first` and `last` are the sequences of its first and last
record. Names that start with a dot are segments being written: Spark leaves them alone, and so should you. The file's
metadata repeat what its name says under `locus.schema`, `locus.table`, `locus.node`, `locus.incarnation`, `locus.first`
and `locus.last`.

**Counting gaps and doubles.** Within one table, node and incarnation, `sequence` counts from 1 without a gap. A number
that is missing was lost on the way to the disk: a full buffer (`locus_telemetry_lost_records_total`), or a broker that
was killed while it could not write its journal (table `losses`). A number seen twice was read twice. Records that were
not sampled have no number, so they are no gap. What a killed broker had recorded and not yet put into a segment is in
its journal, `<spool>/.journal`; the next broker of that name turns it into segments of the killed one's incarnation.
See [what is exact](../guides/pipeline.md#what-is-exact-and-why).

**Sampling.** `weight` says for how many events a record stands: sum it to estimate how many there were. The table
`totals` has the broker's own counters, which are exact whatever is sampled.

**Evolution.** The version counts up when a field or a table is added; nothing is renamed, retyped or removed. A program
that knows version n reads all segments up to n, where a field younger than a segment is null, and refuses newer ones.
The version is in the name, so nothing has to be opened to find out. In Python the schema is `broker_plugins.telemetry`,
which imports nothing but the standard library: `TABLES["publishes"].ddl()` gives the columns for Spark, `parse_segment`
reads a name.

## Every table

{common}
"""


def rows(fields: Iterable[Field]) -> str:
    """A Markdown table of fields."""
    lines = ["| field | type | meaning |", "| --- | --- | --- |"]
    for field in fields:
        null = ", or null" if field.nullable else ""
        since = f" Since version {field.since}." if field.since > 1 else ""
        lines.append(f"| `{field.name}` | {field.kind.value.lower()}{null} | {field.meaning}{since} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    from broker_plugins.telemetry import COMMON, TABLES, VERSION

    parts = [HEAD.format(version=VERSION, common=rows(COMMON))]
    for table in TABLES.values():
        since = f" Since version {table.since}." if table.since > 1 else ""
        parts.append(f"## `{table.name}`\n\n{table.meaning}{since}\n\n{rows(table.own)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    PAGE.write_text(page(), encoding="utf-8")
