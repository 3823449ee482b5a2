"""Asking why a retained message waits: the question, the answer, and a broker that gives it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from broker_plugins.grammar import parse_topic
from spark_jobs.dashboard.desk import Desk, Options
from spark_jobs.dashboard.explained import BadTopicError, question, read_explanation
from spark_jobs.dashboard.feed import Address
from tests.brokers import ALLOW_ANONYMOUS, locus
from tests.mqtt_wire import connect, publish, wait_for

if TYPE_CHECKING:
    from pathlib import Path

RETAINED = "broker_plugins.retained.plugin.RetainedPlugin"


def test_a_question_is_a_topic_with_a_clause_that_the_broker_reads() -> None:
    topic, clauses = parse_topic(question("a/b c/d", "locus/retained/explained/x"))
    assert topic == "locus/retained/explain/a/b c/d"
    assert clauses.reply == "locus/retained/explained/x"
    for wrong in ("", "a/+", "a/#", "$SYS/x", "a/@top:3", "x" * 600):
        with pytest.raises(BadTopicError):
            question(wrong, "r")


def test_what_is_no_answer_is_none() -> None:
    for strange in (b"", b"[]", b"{}", b'{"topic": "t", "count": 0, "receivers": []}'):
        assert read_explanation(strange) is None
    odd = b'{"explains": "t", "rule": 5, "known": [], "decisions": [5, {"outcome": []}], "waiting": "x"}'
    found = read_explanation(odd)
    assert found is not None
    assert found.decisions == ((0.0, 0.0, "", "", ""),)


def test_a_broker_answers(tmp_path: Path) -> None:
    plugins = {**ALLOW_ANONYMOUS, RETAINED: {"topics": {"s/#": {"policy": "renewal"}}}}
    with locus(plugins=plugins) as broker:
        desk = Desk(Options(Address("127.0.0.1", broker.port), ("city/#",), "city/jobs/receipts", tmp_path))
        desk.start()
        try:
            with connect(broker.port, "sensor") as sensor, connect(broker.port, "late") as late:
                for _ in range(3):
                    sensor.send(publish("s/1", b"17", retain=True))
                    sensor.messages_until_ping()
                    time.sleep(0.02)  # a gap to know
                late.subscribe(("s/1", 0))
                wait_for(lambda: desk.ask("s/1"), "a connection", 60)
                wait_for(lambda: "s/1" in desk.board.explained, "an answer", 60)
                found = desk.board.explained["s/1"]
                assert found.lines[0] == "A message is retained."
                assert "Rule s/#: policy renewal decides" in found.lines[1]
                assert "2 gaps" in found.lines[2]
                assert len(found.decisions) == 1
                assert desk.ask("other")
                wait_for(lambda: "other" in desk.board.explained, "an answer", 60)
                assert "No rule matches it" in desk.board.explained["other"].lines[1]
        finally:
            desk.stop()
