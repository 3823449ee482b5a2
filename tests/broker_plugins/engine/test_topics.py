from __future__ import annotations

import pytest

from broker_plugins.engine.errors import ProtocolViolation
from broker_plugins.engine.topics import check_topic_name, filter_fault, matches

# Section 4.7 of the standard, example by example.
MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/#", "sport", True),
    ("#", "a/b", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("#", "$SYS/x", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/x", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("a//b", "a//b", True),
    ("a/+/b", "a//b", True),
    ("ACCOUNTS", "accounts", False),
]


@pytest.mark.parametrize(("text", "topic", "expected"), MATCHES)
def test_matches_as_the_standard_says(text: str, topic: str, expected: bool) -> None:
    assert matches(text, topic) is expected


@pytest.mark.parametrize("text", ["a/#/b", "a#", "#a", "a/b#", "+a", "a/+b/c", "", "##", "a/++"])
def test_a_malformed_filter_has_a_fault(text: str) -> None:
    assert filter_fault(text)


@pytest.mark.parametrize("text", ["#", "+", "a/+/#", "/", "//", "+/+", "$SYS/#", "a b/c"])
def test_a_well_formed_filter_has_none(text: str) -> None:
    assert filter_fault(text) is None


def test_a_topic_name_is_checked() -> None:
    assert check_topic_name("düsseldorf/✓".encode()) == "düsseldorf/✓"
    for raw in (b"", b"a/+", b"#", b"\xff", b"a\0"):
        with pytest.raises(ProtocolViolation):
            check_topic_name(raw)
