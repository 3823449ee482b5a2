"""The schema says what it says: names that fit, a page that agrees, nothing imported."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.telemetry import (
    COMMON,
    TABLES,
    VERSION,
    NewerSchemaError,
    SchemaError,
    Segment,
    hour_of,
    node_of,
    parse_segment,
    partition,
    table,
)
from broker_plugins.telemetry.journal import JournalName, parse_name
from broker_plugins.telemetry.marks import incarnation_of
from broker_plugins.telemetry.schema import check_node

REPOSITORY = Path(__file__).parents[3]


def test_the_page_is_written_from_the_schema() -> None:
    path = REPOSITORY / "scripts" / "telemetry_reference.py"
    spec = importlib.util.spec_from_file_location("telemetry_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run: python scripts/telemetry_reference.py"


def test_the_tables_that_jobs_count_on_are_there() -> None:
    assert set(TABLES) >= {
        "sessions",
        "subscriptions",
        "publishes",
        "deliveries",
        "drops",
        "positions",
        "matches",
        "retained_decisions",
        "routes",
    }


@pytest.mark.parametrize("name", TABLES)
def test_fields_are_named_once_and_explained(name: str) -> None:
    fields = table(name).fields
    names = [field.name for field in fields]
    assert len(set(names)) == len(names)
    assert fields[: len(COMMON)] == COMMON
    assert not {"table", "hour"} & set(names), "these are names of partitions"
    assert all(field.meaning.endswith(".") and 1 <= field.since <= VERSION for field in fields)
    assert table(name).meaning.endswith(".")


def test_a_table_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r"'publish'.*publishes"):
        table("publish")


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}(\.[A-Za-z0-9_-]{1,30})?", fullmatch=True),
    st.integers(0, 2**63 - 1),
    st.integers(1, 2**62),
    st.integers(0, 10**6),
)
def test_what_a_name_is_made_of_is_read_from_it(node: str, incarnation: int, first: int, more: int) -> None:
    segment = Segment(check_node(node), incarnation, first, first + more)
    assert parse_segment(segment.name) == segment
    assert node_of(segment.name) == node
    assert parse_name(str(JournalName(node, incarnation, first))) == JournalName(node, incarnation, first)
    assert incarnation_of(f"{node}-{incarnation}.marks", node) == incarnation


@pytest.mark.parametrize(
    "name",
    [
        "part-0000.parquet",
        "n-1-000000000001-000000000000-v1.parquet",
        "n-1-000000000000-000000000001-v1.parquet",
        ".n-1-000000000001-000000000001-v1.parquet",
        "n-1-1-1-v1.parquet",
        "n-1-000000000001-000000000001-v1.parquet.crc",
    ],
)
def test_other_files_are_no_segments(name: str) -> None:
    with pytest.raises(SchemaError):
        parse_segment(name)


def test_a_newer_segment_is_refused_with_a_remedy() -> None:
    with pytest.raises(NewerSchemaError, match=rf"version {VERSION + 1} .*up to {VERSION}: update"):
        parse_segment(Segment("n", 1, 1, 1, VERSION + 1).name)


@pytest.mark.parametrize(
    "name", ["", "-a", "a/b", "a+", "#", "a b", "a*", "ä", "_a", ".a", "a..b", "a.", "a\n", "x" * 65]
)
def test_a_node_whose_name_would_not_fit_is_refused(name: str) -> None:
    with pytest.raises(SchemaError, match="letters, digits"):
        check_node(name)


def test_segments_lie_below_their_table_and_hour() -> None:
    assert hour_of(1_777_885_199_999_999) == "2026-05-04T08"
    assert hour_of(1_777_885_200_000_000) == "2026-05-04T09"
    assert partition("drops", "2026-05-04T09") == "table=drops/hour=2026-05-04T09"


def test_columns_in_the_words_of_spark() -> None:
    assert table("positions").ddl() == (
        "`node` STRING, `incarnation` BIGINT, `sequence` BIGINT, `at` TIMESTAMP, `weight` DOUBLE, "
        "`client` STRING, `lon` DOUBLE, `lat` DOUBLE"
    )


def test_the_contract_is_imported_without_the_broker_and_without_pyarrow() -> None:
    program = (
        "import sys, broker_plugins.telemetry;"
        "sys.exit(any(name.split('.')[0] in ('amqtt', 'pyarrow', 'msgspec')"
        " or name.startswith('broker_plugins.engine') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=False).returncode == 0
