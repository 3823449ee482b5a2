"""Receipts as the ranked plugin writes them."""

from __future__ import annotations

import json

import pytest

from spark_jobs.dashboard.matches import MOST_RECEIPTS, Matches, read_receipt


def receipt(*accuracies: float) -> bytes:
    receivers = [{"rank": i, "accuracy": a, "client": f"w{i}"} for i, a in enumerate(accuracies, 1)]
    return json.dumps({"topic": "jobs", "count": len(accuracies), "receivers": receivers}).encode()


def test_the_latest_come_first_with_what_their_receivers_wanted() -> None:
    matches = Matches("jobs/receipts")
    matches.take("city/workers/1", b'{"client": "w1", "filter": "$where/age=20..25/jobs"}', 0.0)
    for at_s, accuracies in ((1.0, (0.5, 0.6)), (2.0, ()), (3.0, (0.1,))):
        assert matches.take("jobs/receipts", receipt(*accuracies), at_s)
    assert [len(each.receivers) for each in matches.latest(2)] == [1, 0]
    assert matches.wish_of("w1") == "$where/age=20..25/jobs"
    assert matches.wish_of("w2") == ""
    assert (matches.total, matches.unmatched) == (3, 1)
    assert matches.mean_accuracy() == pytest.approx(0.3)
    assert matches.accuracies() == [(1.0, 0.5), (2.0, None), (3.0, 0.1)]


def test_what_was_offered_stands_with_its_receipt() -> None:
    matches = Matches("r")
    offer = {"job": 4, "age": 24, "salary": 310.5, "lon": 1.0, "lat": 2.0, "kind": "x"}
    matches.take("city/jobs/board", json.dumps(offer).encode(), 0.0)
    matches.take("r", receipt(0.5), 0.1)
    matches.take("r", receipt(0.6), 0.2)
    assert [each.numbers for each in matches.latest()] == ["", "age 24, salary 310.5"]


def test_only_so_many_are_kept() -> None:
    matches = Matches("r")
    for number in range(MOST_RECEIPTS + 50):
        matches.take("r", receipt(0.5), number * 0.1)
    assert len(matches.latest(10_000)) == MOST_RECEIPTS
    assert matches.total == MOST_RECEIPTS + 50
    assert matches.rate((MOST_RECEIPTS + 50) * 0.1) == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b'{"topic": 1, "count": 1, "receivers": []}', b'{"topic": "t"}', b"\xff"]
)
def test_what_is_no_receipt_is_passed_over(payload: bytes) -> None:
    assert read_receipt(payload, 0.0) is None
    assert not Matches("r").take("r", payload, 0.0)


def test_receivers_may_be_unnamed_or_a_group_and_strange_ones_are_left_out() -> None:
    listed = [{"rank": 1, "accuracy": 0.1}, {"rank": 2, "accuracy": 0.2, "group": "g"}, {"rank": "x"}, 5]
    found = read_receipt(json.dumps({"topic": "t", "count": 4, "receivers": listed}).encode(), 0.0)
    assert found is not None
    assert [each.name for each in found.receivers] == ["", "g"]
