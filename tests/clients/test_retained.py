from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from clients.cli import main
from clients.retained import described
from tests.broker_plugins.retained.policies import WAIT, write
from tests.brokers import ALLOW_ANONYMOUS, RunningBroker, locus
from tests.mqtt_wire import Kind, connect, publish

if TYPE_CHECKING:
    from collections.abc import Iterator

RETAINED = "broker_plugins.retained.plugin.RetainedPlugin"
RANKED = "broker_plugins.ranked.plugin.RankedPlugin"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    file = write(tmp_path_factory.mktemp("policies") / "policy", WAIT, 3600.0)
    rule = {"d_max_s": 3600.0, "policy": "learned", "policy_file": str(file)}
    plugins = {**ALLOW_ANONYMOUS, RANKED: {}, RETAINED: {"topics": {"bus/#": rule}}}
    with locus(plugins=plugins) as running:
        yield running


def test_it_explains_what_was_decided(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    with connect(broker.port, "publisher") as publisher, connect(broker.port, "subscriber") as subscriber:
        for number in range(3):
            publisher.send(publish("bus/7", b"%d" % number, qos=1, packet_id=1, retain=True))
            publisher.expect(Kind.PUBACK)
        subscriber.subscribe(("bus/7", 1))
        assert main(["retained", "explain", "bus/7", "-p", str(broker.port)]) == 0
        said = capsys.readouterr().out
        assert "bus/7: a message is retained" in said
        assert "the learned policy" in said
        assert "waits of up to 3600 s, 5 s of them worth one message" in said
        assert "the last 2 gaps" in said
        assert "subscribers waiting: 1" in said
        assert "wait up to 3600.00 s (table: 100% of the longest wait); still waiting" in said
        assert main(["retained", "explain", "bus/7", "--json", "-p", str(broker.port)]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["decisions"][0]["features"]["presence"] == 2  # its publisher is connected


def test_topics_without_a_rule(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retained", "explain", "train/7", "-p", str(broker.port)]) == 0
    said = capsys.readouterr().out
    assert "nothing is retained" in said
    assert "no rule matches it" in said
    assert main(["retained", "explain", "bus/new", "-p", str(broker.port)]) == 0
    assert "nothing was published to it" in capsys.readouterr().out


@pytest.mark.parametrize("plugin", [None, RANKED])
def test_a_broker_without_the_plugin(capsys: pytest.CaptureFixture[str], plugin: str | None) -> None:
    plugins = {**ALLOW_ANONYMOUS, **({plugin: {}} if plugin else {})}
    with locus(plugins=plugins) as broker:
        assert main(["retained", "explain", "bus/7", "-p", str(broker.port), "--timeout", "500ms"]) == 1
    assert "without its retained plugin" in capsys.readouterr().err


def test_decisions_in_words() -> None:
    rule = {"filter": "t", "d_max_s": 10.0, "kappa": 0.2, "policy": "renewal", "policy_version": "renewal"}
    known = {"gaps": 0, "mean_gap_s": None, "variation": 1.0, "age_s": 2.0}
    made = {"at_s": 90.0, "reason": "r", "residual_s": None, "wait_s": 3.0}
    decisions = [
        {**made, "outcome": "saved", "residual_s": 1.25},
        {**made, "outcome": "sent"},
        {**made, "outcome": "sent", "wait_s": 0.0},
        {**made, "outcome": "unknown"},
    ]
    answer = {"explains": "t", "retained": True, "waiting": 0, "rule": rule, "known": known, "decisions": decisions}
    assert described(answer, 100.0).splitlines()[1:] == [
        "  rule t: the policy renewal decides; waits of up to 10 s, 5 s of them worth one message",
        "  published once, 2.0 s ago",
        "  subscribers waiting: 0",
        "  10.0 s ago: wait up to 3.00 s (r); something newer came after 1.25 s, so it was not sent",
        "  10.0 s ago: wait up to 3.00 s (r); sent",
        "  10.0 s ago: sent at once (r)",
        "  10.0 s ago: wait up to 3.00 s (r); ended before the outcome was known",
    ]
