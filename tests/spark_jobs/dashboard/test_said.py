"""Numbers as a person reads them."""

from __future__ import annotations

import pytest

from spark_jobs.dashboard import said


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0"), (0.123, "0.12"), (7.0, "7"), (12.34, "12.3"), (11.96, "12"), (1234.5, "1,234")],
)
def test_rates(value: float | None, shown: str) -> None:
    assert said.rate(value) == shown


def test_sizes_durations_shares_and_times() -> None:
    assert [said.size(value) for value in (None, 12, 1_500, 2_345_678, 5e9)] == [
        "–",
        "12 B",
        "1.5 kB",
        "2.35 MB",
        "5 GB",
    ]
    assert [said.milliseconds(value) for value in (None, 0.1234, 12.0, 2_500.0)] == ["–", "123 µs", "12 ms", "2.5 s"]
    assert [said.share(value) for value in (None, 0.0, 0.1234)] == ["–", "0 %", "12.3 %"]
    assert [said.ago(value) for value in (0.5, 30, 300, 9_000)] == ["now", "30 s ago", "5 min ago", "2.5 h ago"]
    assert said.count(1234567) == "1,234,567"
