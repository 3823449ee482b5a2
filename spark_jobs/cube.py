"""What the metrics are made of: sums by second, node, topic prefix and map cell, that add up in any order.

A cube is an Arrow table with the columns of `SCHEMA`. One record adds to a few of its rows, so cubes of two commits,
nodes or hours are added by adding what is equal in all but `value`. Late records are no special case: they add to a
second that has passed. A latency falls into a bucket, each 5 % wider than the one before, so a quantile read from
buckets is within 2.5 % of the exact one.

Records are summed in Arrow, by numbers wherever they can be: a topic is looked at once for each distinct one, and a
cell gets its name after the sum.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.buckets import GROWTH, NO_BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Numbers = np.ndarray[Any, Any]

CUBE: Final = (
    "`second` TIMESTAMP, `node` STRING, `incarnation` BIGINT, `scope` STRING, `key` STRING, `metric` STRING, "
    "`bucket` INT, `value` DOUBLE"
)
"""The columns of a cube in Spark's words."""
SCHEMA: Final = pa.schema(
    [
        ("second", pa.timestamp("us", tz="UTC")),
        ("node", pa.string()),
        ("incarnation", pa.int64()),
        ("scope", pa.string()),
        ("key", pa.string()),
        ("metric", pa.string()),
        ("bucket", pa.int32()),
        ("value", pa.float64()),
    ]
)
DIMENSIONS: Final = ("second", "node", "incarnation", "scope", "key", "metric", "bucket")
CELL_CHARACTERS: Final = 5
"""A geohash of five characters: about 5 km by 5 km."""
OWN_TOPICS: Final = "locus/metrics/"
"""What the pipeline itself publishes is left out, or a quiet broker would never be quiet."""
_COLUMNS, _ROWS = (5 * CELL_CHARACTERS + 1) // 2, 5 * CELL_CHARACTERS // 2
_ALPHABET: Final = np.frombuffer(b"0123456789bcdefghjkmnpqrstuvwxyz", np.uint8)
_SECOND_US: Final = 1_000_000


# Places.


def cells(lon: Numbers, lat: Numbers) -> Numbers:
    """The number of the geohash cell of each place; -1 for what is no place on the Earth."""
    with np.errstate(invalid="ignore"):
        on_earth = (np.abs(lon) <= 180.0) & (np.abs(lat) <= 90.0)  # false for what is not a number
        x = np.minimum(np.floor((np.where(on_earth, lon, 0.0) / 360.0 + 0.5) * (1 << _COLUMNS)), (1 << _COLUMNS) - 1)
        y = np.minimum(np.floor((np.where(on_earth, lat, 0.0) / 180.0 + 0.5) * (1 << _ROWS)), (1 << _ROWS) - 1)
    numbers: Numbers = np.where(on_earth, x.astype(np.int64) << _ROWS | y.astype(np.int64), -1)
    return numbers


def cell_names(numbers: Numbers) -> list[str]:
    """The geohashes of cells."""
    x, y = numbers >> _ROWS, numbers & ((1 << _ROWS) - 1)
    bits = np.zeros(len(numbers), np.int64)
    for bit in range(5 * CELL_CHARACTERS):
        axis, left = (x, _COLUMNS) if bit % 2 == 0 else (y, _ROWS)
        bits = bits << 1 | axis >> (left - 1 - bit // 2) & 1
    characters = np.zeros((len(numbers), CELL_CHARACTERS), np.uint8)
    for at in range(CELL_CHARACTERS):
        characters[:, at] = _ALPHABET[bits >> 5 * (CELL_CHARACTERS - 1 - at) & 31]
    text = characters.tobytes().decode()
    return [text[at : at + CELL_CHARACTERS] for at in range(0, len(text), CELL_CHARACTERS)]


def _encoded(column: pa.ChunkedArray) -> tuple[Numbers, list[str | None]]:
    """A number for each distinct value, and the values."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # of no chunk at all
        return np.zeros(0, np.int64), []
    return whole.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), whole.dictionary.to_pylist()


def _prefixes(records: pa.Table) -> tuple[Numbers, list[str]]:
    """The first level of each record's topic as a number, -1 for the pipeline's own; and the levels."""
    numbers, topics = _encoded(records["topic"])
    names: dict[str, int] = {}
    of_topic = [
        -1 if topic is None or topic.startswith(OWN_TOPICS) else names.setdefault(topic.partition("/")[0], len(names))
        for topic in topics
    ]
    return np.array([*of_topic, -1], np.int64)[numbers], list(names)


# Sums.


def _summed(
    records: pa.Table, sums: Mapping[str, Numbers], places: Numbers, buckets: Numbers | None = None
) -> pa.Table:
    """Sum by second, node, place and bucket; records whose place is -1 are left out."""
    nodes, names = _encoded(records["node"])
    grouped = pa.table(
        {
            "second": records["at"].cast(pa.int64()).to_numpy() // _SECOND_US,
            "node": nodes,
            "incarnation": records["incarnation"],
            "place": places,
            "bucket": np.full(len(places), NO_BUCKET, np.int64) if buckets is None else buckets,
            **sums,
        }
    )
    if len(places) and places.min() < 0:
        grouped = grouped.filter(pc.greater_equal(grouped["place"], 0))
    keys = ["second", "node", "incarnation", "place", "bucket"]
    grouped = grouped.group_by(keys, use_threads=False).aggregate([(metric, "sum") for metric in sums])
    named = pa.array(names, pa.string()).take(grouped["node"].combine_chunks().cast(pa.int64()))
    return grouped.set_column(grouped.column_names.index("node"), "node", named)


def _laid_out(sums: pa.Table, metrics: Sequence[str], scope: str, keys: pa.Array | None = None) -> pa.Table:
    """A row of the cube for each sum that is not zero."""
    rows = sums.num_rows
    parts = []
    for metric in metrics:
        columns = [
            pc.multiply(sums["second"], _SECOND_US).cast(SCHEMA.field("second").type),
            sums["node"],
            sums["incarnation"],
            pa.repeat(pa.scalar(scope), rows),
            pa.repeat(pa.scalar(""), rows) if keys is None else keys,
            pa.repeat(pa.scalar(metric), rows),
            sums["bucket"].cast(pa.int32()),
            sums[f"{metric}_sum"].cast(pa.float64()),
        ]
        part = pa.table(columns, schema=SCHEMA)
        parts.append(part.filter(pc.not_equal(part["value"], 0.0)))
    return pa.concat_tables(parts)


def _by_prefix(records: pa.Table, sums: Mapping[str, Numbers]) -> pa.Table:
    """For each first level of topics, and for the node."""
    places, names = _prefixes(records)
    return _prefixes_and_node(_summed(records, sums, places), list(sums), names)


def _prefixes_and_node(found: pa.Table, metrics: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Rows of the cube from sums by prefix: those, and what they come to for the node."""
    keys = pa.array(names, pa.string()).take(found["place"].combine_chunks().cast(pa.int64()))
    of_node = _without(found, "place", metrics)
    return pa.concat_tables([_laid_out(found, metrics, "prefix", keys), _laid_out(of_node, metrics, "node")])


def _without(found: pa.Table, key: str, metrics: Sequence[str]) -> pa.Table:
    """Sums over all values of one of the keys."""
    kept = [name for name in ("second", "node", "incarnation", "place", "bucket") if name in found.column_names]
    kept.remove(key)
    whole = found.group_by(kept, use_threads=False).aggregate([(f"{metric}_sum", "sum") for metric in metrics])
    return whole.rename_columns([name.replace("_sum_sum", "_sum") for name in whole.column_names])


def _by_cell(records: pa.Table, sums: Mapping[str, Numbers]) -> pa.Table:
    """For each cell of the map."""
    places = cells(_numbers(records, "lon"), _numbers(records, "lat"))
    if "topic" in records.column_names:
        places = np.where(_prefixes(records)[0] < 0, -1, places)
    found = _summed(records, sums, places)
    keys = pa.array(cell_names(found["place"].to_numpy()), pa.string())
    return _laid_out(found, list(sums), "cell", keys)


def _by_node(records: pa.Table, sums: Mapping[str, Numbers]) -> pa.Table:
    return _laid_out(_summed(records, sums, np.zeros(records.num_rows, np.int64)), list(sums), "node")


def _numbers(records: pa.Table, name: str) -> Numbers:
    """A column of numbers; what is null is not a number."""
    found: Numbers = records[name].cast(pa.float64()).to_numpy()
    return found


# Tables.


def _publishes(records: pa.Table) -> pa.Table:
    weight = _numbers(records, "weight")
    sums = {"publishes": weight, "published_bytes": weight * _numbers(records, "bytes")}
    return pa.concat_tables([_by_prefix(records, sums), _by_cell(records, sums)])


def _deliveries(records: pa.Table) -> pa.Table:
    """Summed once, by bucket of latency; what has none, as what was retained, is in a bucket of its own."""
    weight, latency = _numbers(records, "weight"), _numbers(records, "latency_us")
    timed = np.isfinite(latency)
    buckets = np.ceil(np.log(np.maximum(np.where(timed, latency, 1.0), 1.0)) / math.log(GROWTH)).astype(np.int64)
    sums = {"deliveries": weight, "delivered_bytes": weight * _numbers(records, "bytes")}
    places, names = _prefixes(records)
    found = _summed(records, sums, places, np.where(timed, buckets, NO_BUCKET))
    counts = _without(found, "bucket", list(sums))
    counts = counts.append_column("bucket", pa.repeat(pa.scalar(NO_BUCKET, pa.int64()), counts.num_rows))
    latencies = found.filter(pc.not_equal(found["bucket"], NO_BUCKET)).drop_columns("delivered_bytes_sum")
    latencies = latencies.rename_columns(
        ["latency_sum" if name == "deliveries_sum" else name for name in latencies.column_names]
    )
    return pa.concat_tables(
        [_prefixes_and_node(counts, list(sums), names), _prefixes_and_node(latencies, ["latency"], names)]
    )


def _drops(records: pa.Table) -> pa.Table:
    return _by_prefix(records, {"drops": _numbers(records, "weight")})


def _sessions(records: pa.Table) -> pa.Table:
    weight = _numbers(records, "weight")
    came, left = (np.asarray(pc.equal(records["event"], event)) for event in ("connected", "disconnected"))
    return _by_node(records, {"connections": weight * came - weight * left, "connects": weight * came})


def _subscriptions(records: pa.Table) -> pa.Table:
    made = np.asarray(pc.equal(records["event"], "subscribed"))
    return _by_node(records, {"subscriptions": np.where(made, 1.0, -1.0) * _numbers(records, "weight")})


def _positions(records: pa.Table) -> pa.Table:
    sums = {"positions": _numbers(records, "weight")}
    return pa.concat_tables([_by_node(records, sums), _by_cell(records, sums)])


def _matches(records: pa.Table) -> pa.Table:
    weight = _numbers(records, "weight")
    return _by_prefix(records, {"matches": weight, "match_width": weight * _numbers(records, "accuracy")})


def _retained(records: pa.Table) -> pa.Table:
    weight, wait = _numbers(records, "weight"), _numbers(records, "wait_s")
    saved = np.asarray(records["saved"].fill_null(False)) * weight
    waited = np.fmin(_numbers(records, "residual_s"), wait)  # of a number and none, the number
    sums = {
        "retained_decisions": weight,
        "retained_saved": saved,
        "retained_bytes_saved": saved * np.nan_to_num(_numbers(records, "bytes")),
        "retained_waited_s": weight * waited,
    }
    return _by_prefix(records, sums)


def _routes(records: pa.Table) -> pa.Table:
    weight = _numbers(records, "weight")
    return _by_prefix(records, {"routes": weight, "routed_bytes": weight * _numbers(records, "bytes")})


def _handovers(records: pa.Table) -> pa.Table:
    return _by_node(records, {"handovers": _numbers(records, "weight")})


_TABLES: Final[dict[str, tuple[Callable[[pa.Table], pa.Table], tuple[str, ...]]]] = {
    "publishes": (_publishes, ("topic", "bytes", "lon", "lat")),
    "deliveries": (_deliveries, ("topic", "bytes", "latency_us")),
    "drops": (_drops, ("topic",)),
    "sessions": (_sessions, ("event",)),
    "subscriptions": (_subscriptions, ("event",)),
    "positions": (_positions, ("lon", "lat")),
    "matches": (_matches, ("topic", "accuracy")),
    "retained_decisions": (_retained, ("topic", "saved", "bytes", "residual_s", "wait_s")),
    "routes": (_routes, ("topic", "bytes")),
    "handovers": (_handovers, ()),
}
METRIC_TABLES: Final = tuple(_TABLES)
"""The tables that add to the cube."""


def needed(name: str) -> list[str]:
    """The columns of a table that the cube is made of."""
    return ["node", "incarnation", "at", "weight", *_TABLES[name][1]]


def cube_of(name: str, records: pa.Table) -> pa.Table:
    """What the records of a table add to the cube; nothing for a table that is none of `METRIC_TABLES`."""
    if name not in _TABLES or not records.num_rows:
        return SCHEMA.empty_table()
    return _TABLES[name][0](records)


def cube_file(path: Path, name: str, after: int, upto: int) -> bytes:
    """What the records of one file of the lake, of the commits in after..upto without after, add to the cube.

    It is what a worker does; the cube comes back as an Arrow stream.
    """
    with pq.ParquetFile(path, read_dictionary=[each for each in needed(name) if each in ("node", "topic")]) as file:
        records = file.read([*needed(name), "commit"], use_threads=False)
    commits = records["commit"]
    if records.num_rows and not after < pc.min(commits).as_py() <= pc.max(commits).as_py() <= upto:
        records = records.filter(pc.and_(pc.greater(commits, after), pc.less_equal(commits, upto)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(cube_of(name, records))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def added(cubes: Sequence[pa.Table]) -> pa.Table:
    """Cubes as one, equal rows added."""
    whole = pa.concat_tables([SCHEMA.empty_table(), *cubes])
    summed = whole.group_by(list(DIMENSIONS), use_threads=False).aggregate([("value", "sum")])
    return summed.rename_columns([*DIMENSIONS, "value"]).cast(SCHEMA)
