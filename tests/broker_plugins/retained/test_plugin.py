"""Each promise to a subscriber that waits, on a clock that the test moves."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from broker_plugins.engine.hooks import Hooks, Selection
from broker_plugins.engine.message import Message
from broker_plugins.engine.options import EngineOptions
from broker_plugins.grammar import parse_topic
from broker_plugins.places import BadRuleError
from broker_plugins.retained import RetainedOptions, RetainedPlugin
from rl_policy import Presence
from tests.broker_plugins.retained.desk import D_MAX_S, Desk

if TYPE_CHECKING:
    from broker_plugins.engine.session import Session
    from rl_policy import DecisionRecord


def shown(desk: Desk, client: str) -> list[str]:
    return [repr(each) for each in desk.got(client)]


def waiting(desk: Desk | None = None, *, clean: bool = True, qos: int = 1, text: str = "d/x") -> Desk:
    """A client `a` that waits for d/x, which holds 1."""
    desk = desk or Desk()
    desk.publish("d/x", b"1", retain=True, qos=1)
    desk.connect("a", clean)
    desk.subscribe("a", text, qos)
    assert shown(desk, "a") == []
    assert len(desk.plugin.book) == 1
    return desk


def test_a_topic_that_did_not_opt_in_is_sent_at_once() -> None:
    desk = Desk()
    desk.publish("other", b"1", retain=True)
    desk.connect("a")
    desk.subscribe("a", "#")
    assert shown(desk, "a") == ["other=1 retained"]
    assert desk.plugin.counters.decisions == 0


def test_it_comes_by_its_deadline_and_once() -> None:
    desk = waiting()
    desk.clock.advance(D_MAX_S - 0.1)
    assert shown(desk, "a") == []
    desk.clock.advance(0.1)
    assert shown(desk, "a") == ["d/x=1 retained"]
    desk.clock.advance(10 * D_MAX_S)
    assert shown(desk, "a") == []


def test_a_shorter_wait_is_a_nearer_deadline() -> None:
    desk = Desk()
    desk.policy.wait_s = 3.0
    waiting(desk)
    desk.clock.advance(3.0)
    assert shown(desk, "a") == ["d/x=1 retained"]


def test_a_newer_retained_message_settles_the_debt() -> None:
    desk = waiting()
    desk.publish("d/x", b"2", retain=True, qos=1)
    assert shown(desk, "a") == ["d/x=2"]
    desk.clock.advance(2 * D_MAX_S)
    assert shown(desk, "a") == []
    assert (desk.plugin.counters.saved, desk.plugin.counters.sent_at_deadline) == (1, 0)


def test_a_newer_one_of_lower_qos_does_not_but_it_is_what_is_sent_then() -> None:
    desk = waiting()
    desk.publish("d/x", b"2", retain=True, qos=0)
    assert shown(desk, "a") == ["d/x=2"]
    desk.clock.advance(D_MAX_S)
    assert shown(desk, "a") == ["d/x=2 retained"]


def test_a_subscription_of_qos_0_is_paid_by_qos_0() -> None:
    desk = waiting(qos=0)
    desk.publish("d/x", b"2", retain=True, qos=0)
    assert shown(desk, "a") == ["d/x=2"]
    desk.clock.advance(D_MAX_S)
    assert shown(desk, "a") == []


def test_one_that_was_dropped_does_not() -> None:
    desk = Desk(EngineOptions(max_inflight=1, max_queued_messages=1))
    desk.publish("d/x", b"1", retain=True)
    desk.connect("a")
    desk.subscribe("a", "d/x")
    desk.subscribe("a", "flood")
    for _ in range(3):
        desk.publish("flood", b"0")  # one on the way, one in the queue, one dropped
    desk.publish("d/x", b"2", retain=True)
    assert len(desk.plugin.book) == 1
    desk.clock.advance(D_MAX_S)  # due, and there is still no room
    assert desk.plugin.counters.put_off
    assert shown(desk, "a") == ["flood=0", "flood=0"]
    desk.clock.advance(1.0)
    assert shown(desk, "a") == ["d/x=2 retained"]


def test_an_empty_retained_message_cancels_it() -> None:
    desk = waiting()
    desk.publish("d/x", b"", retain=True)
    desk.clock.advance(2 * D_MAX_S)
    assert shown(desk, "a") == ["d/x="]
    assert desk.plugin.counters.cancelled == 1


def test_unsubscribing_cancels_it() -> None:
    desk = waiting()
    desk.unsubscribe("a", "d/x")
    desk.clock.advance(2 * D_MAX_S)
    assert shown(desk, "a") == []
    assert len(desk.plugin.book) == 0


def test_unsubscribing_one_of_two_filters_leaves_it_to_the_other() -> None:
    desk = waiting()
    desk.subscribe("a", "d/#")
    desk.unsubscribe("a", "d/x")
    desk.clock.advance(D_MAX_S)
    assert shown(desk, "a") == ["d/x=1 retained"]


def test_a_live_message_does_not_overtake_it() -> None:
    desk = waiting()
    desk.publish("d/x", b"2", retain=False)
    assert shown(desk, "a") == ["d/x=1 retained", "d/x=2"]
    desk.clock.advance(2 * D_MAX_S)
    assert shown(desk, "a") == []
    assert desk.plugin.counters.sent_before_live == 1


class OnlyToGroups(Hooks):
    """Keeps messages from ordinary subscriptions, as conditions that do not hold would."""

    def select(self, message: Message, selection: Selection) -> None:
        selection.keep([])


def test_a_live_message_through_a_shared_subscription_does_not_either() -> None:
    desk = Desk()
    desk.engine.start([desk.plugin, OnlyToGroups()])
    waiting(desk)
    desk.subscribe("a", "$share/g/d/x")
    desk.publish("d/x", b"2")
    assert shown(desk, "a") == ["d/x=1 retained", "d/x=2"]


def test_where_only_the_live_message_finds_room_the_older_one_is_given_up() -> None:
    desk = Desk()
    desk.publish("d/x", b"1", retain=True, qos=0)  # cannot wait for a client that is away
    desk.connect("a", clean=False)
    desk.subscribe("a", "d/x", 1)
    desk.disconnect("a")
    desk.publish("d/x", b"2", qos=1)
    assert desk.plugin.counters.overtaken == 1
    desk.connect("a", clean=False)
    desk.clock.advance(D_MAX_S)
    assert shown(desk, "a") == ["d/x=2"]


def test_subscribing_again_never_extends_a_deadline() -> None:
    desk = waiting()
    desk.clock.advance(6.0)
    desk.subscribe("a", "d/x")
    assert shown(desk, "a") == []
    desk.clock.advance(4.0)
    assert shown(desk, "a") == ["d/x=1 retained"]
    assert desk.engine.sessions["a"].subscriptions["d/x"].held is None


def test_subscribing_again_may_bring_it_nearer() -> None:
    desk = waiting()
    desk.policy.wait_s = 0.0
    desk.subscribe("a", "d/x")
    assert shown(desk, "a") == ["d/x=1 retained"]
    desk.clock.advance(2 * D_MAX_S)
    assert shown(desk, "a") == []


def test_a_clean_session_takes_its_debts_with_it() -> None:
    desk = waiting()
    desk.disconnect("a")
    assert len(desk.plugin.book) == 0
    desk.connect("a")
    desk.clock.advance(2 * D_MAX_S)
    assert shown(desk, "a") == []


@pytest.mark.parametrize("qos", [0, 1])
def test_a_persistent_session_keeps_them(qos: int) -> None:
    desk = waiting(clean=False, qos=qos)
    desk.disconnect("a")
    desk.clock.advance(3.0)
    desk.connect("a", clean=False)
    assert shown(desk, "a") == []  # there is time left
    desk.disconnect("a")
    desk.clock.advance(2 * D_MAX_S)
    desk.connect("a", clean=False)
    assert shown(desk, "a") == ["d/x=1 retained"]


def test_what_comes_while_it_is_away_comes_after_it() -> None:
    desk = waiting(clean=False)
    desk.disconnect("a")
    desk.publish("d/x", b"2")
    desk.connect("a", clean=False)
    assert shown(desk, "a") == ["d/x=1 retained", "d/x=2"]


def test_a_persistent_session_that_starts_clean_is_owed_nothing() -> None:
    desk = waiting(clean=False)
    desk.disconnect("a")
    desk.connect("a", clean=True)
    desk.clock.advance(2 * D_MAX_S)
    assert shown(desk, "a") == []


@pytest.mark.parametrize("qos", [0, 1])
def test_after_a_restart_it_is_due_at_once(qos: int) -> None:
    desk = waiting(clean=False, qos=qos)
    desk.restart()
    for number in range(5):  # the policy could judge again by now
        desk.clock.advance(0.5)
        desk.publish("d/y", b"%d" % number, retain=True)
    desk.connect("a", clean=False)
    assert shown(desk, "a") == ["d/x=1 retained"]
    desk.restart()
    desk.connect("a", clean=False)
    assert shown(desk, "a") == []  # it was paid


def test_what_was_paid_is_not_sent_again_after_a_restart() -> None:
    desk = waiting(clean=False)
    desk.clock.advance(D_MAX_S)
    assert shown(desk, "a") == ["d/x=1 retained"]
    desk.restart()
    desk.connect("a", clean=False)
    assert shown(desk, "a") == []


def test_overflow_is_sent_at_once() -> None:
    desk = Desk(options=RetainedOptions(max_debts_per_client=2))
    for number in range(3):
        desk.publish(f"d/{number}", b"1", retain=True)
    desk.connect("a")
    desk.subscribe("a", "d/#")
    assert shown(desk, "a") == ["d/2=1 retained"]
    assert desk.plugin.counters.overflowed == 1


class Picky(Hooks):
    """Lets only some retained messages pass, as the plugins for places and numbers do."""

    def on_retained(self, subscription: Any, message: Message) -> bool:
        return message.payload == b"2"


@pytest.mark.parametrize("first", [True, False])
def test_other_plugins_are_asked_about_what_is_sent_in_the_end(first: bool) -> None:
    desk = Desk()
    plugins = [desk.plugin, Picky()]
    desk.engine.start(plugins if first else plugins[::-1])
    waiting(desk)
    desk.publish("d/x", b"2", retain=True, qos=0)
    desk.clock.advance(D_MAX_S)
    assert shown(desk, "a") == ["d/x=2"]  # not once more at the deadline


class Broken(Hooks):
    def on_retained(self, subscription: Any, message: Message) -> bool:
        raise RuntimeError("on purpose")


def test_a_plugin_that_fails_keeps_nothing_back() -> None:
    desk = Desk()
    desk.engine.start([Broken(), desk.plugin])
    desk.publish("other", b"1", retain=True)
    waiting(desk)
    desk.subscribe("a", "other")
    assert shown(desk, "a") == ["other=1 retained"]
    desk.clock.advance(D_MAX_S)
    assert shown(desk, "a") == ["d/x=1 retained"]
    assert desk.engine.counters.plugin_faults == 3


class Gatekeeper:
    """Denies a client a topic from some moment on, after having thought about it."""

    guards_topics = True

    def __init__(self, desk: Desk) -> None:
        self.denied = False
        self._desk = desk

    def may(self, session: Session, topic: str, action: object) -> bool:
        return not self.denied


def test_who_may_not_receive_it_any_more_does_not_get_it() -> None:
    desk = waiting()
    desk.engine.guard = gatekeeper = Gatekeeper(desk)  # type: ignore[assignment]
    gatekeeper.denied = True
    desk.clock.advance(D_MAX_S)
    assert shown(desk, "a") == []
    assert desk.plugin.counters.cancelled == 1


def test_decisions_are_told_when_their_outcome_is_known() -> None:
    desk = Desk()
    told: list[DecisionRecord] = []
    desk.plugin.decisions.append(told.append)
    desk.plugin.decisions.append(lambda _: 1 / 0)  # type: ignore[arg-type,return-value]  # its own fault
    waiting(desk)
    desk.clock.advance(4.0)
    assert told == []
    desk.publish("d/x", b"2", retain=True)
    [record] = told
    assert (record.topic, record.topic_class, record.wait_s, record.policy_version) == ("d/x", "d/#", 10.0, "scripted")
    assert (record.residual_s, record.observed_s, record.propensity) == (4.0, 4.0, 1.0)
    assert (record.features.gaps, record.features.age_s, record.features.presence) == (0, 0.0, Presence.UNKNOWN)
    desk.subscribe("a", "d/#")
    desk.clock.advance(2 * D_MAX_S)
    assert (told[1].residual_s, told[1].observed_s) == (None, D_MAX_S)
    desk.subscribe("a", "d/#")
    desk.clock.advance(1.0)
    desk.publish("d/x", b"", retain=True)
    assert (told[2].residual_s, told[2].observed_s) == (None, 1.0)  # censored
    assert desk.plugin.open_decisions.censored == 1


def test_what_the_policy_is_told_of_the_publisher() -> None:
    desk = Desk()
    told: list[DecisionRecord] = []
    desk.plugin.decisions.append(told.append)
    desk.connect("publisher")

    def decided() -> Presence:
        desk.connect("a")
        desk.subscribe("a", "d/x")
        desk.clock.advance(2 * D_MAX_S)
        return told[-1].features.presence

    desk.engine.publish(Message("d/x", b"1", 1, retain=True, sender=desk.engine.sessions["publisher"]))
    assert decided() is Presence.STEADY
    desk.disconnect("publisher")
    assert decided() is Presence.AWAY
    desk.connect("publisher")
    assert decided() is Presence.BACK


def test_topics_are_forgotten_when_there_are_too_many() -> None:
    desk = Desk(options=RetainedOptions(max_topics=2))
    for name in ("d/a", "d/b", "d/a", "d/c"):
        desk.publish(name, b"1", retain=True)
    assert len(desk.plugin.topics) == 2
    assert desk.plugin.topics.get("d/b") is None
    assert desk.plugin.counters.topics_evicted == 1


def ask(desk: Desk, topic: str) -> dict[str, Any] | None:
    desk.connect("curious")
    desk.subscribe("curious", "answers")
    bare, clauses = parse_topic(f"locus/retained/explain/{topic}/@reply:answers", desk.engine.space)
    message = Message(bare, b"", 1, sender=desk.engine.sessions["curious"])
    message.clauses = clauses
    desk.engine.publish(message)
    desk.clock.spin()
    found = desk.got("curious")
    return json.loads(found[0].payload) if found else None


def test_explaining_a_topic() -> None:
    desk = waiting()
    answer = ask(desk, "d/x")
    assert answer is not None
    assert (answer["explains"], answer["retained"], answer["waiting"]) == ("d/x", True, 1)
    assert answer["rule"] == {
        "filter": "d/#",
        "d_max_s": 10.0,
        "kappa": 0.2,
        "policy": "scripted",
        "policy_version": "scripted",
    }
    assert answer["decisions"][0]["outcome"] == "open"
    desk.publish("d/x", b"2", retain=True)
    desk.subscribe("a", "d/#")
    desk.clock.advance(D_MAX_S)
    answer = ask(desk, "d/x")
    assert answer is not None
    assert [each["outcome"] for each in answer["decisions"]] == ["sent", "saved"]
    assert answer["known"]["gaps"] == 1


def test_explaining_a_topic_that_did_not_opt_in() -> None:
    answer = ask(Desk(), "other")
    assert answer is not None
    assert (answer["rule"], answer["known"], answer["decisions"]) == (None, None, [])


def test_who_may_not_receive_a_topic_may_not_know_of_it() -> None:
    desk = waiting()
    desk.engine.guard = gatekeeper = Gatekeeper(desk)  # type: ignore[assignment]
    assert ask(desk, "d/x") is not None
    gatekeeper.denied = True
    desk.connect("curious")
    session = desk.engine.sessions["curious"]
    message = Message("locus/retained/explain/d/x", b"", 1, sender=session)
    message.clauses = parse_topic("t/@reply:answers", desk.engine.space)[1]
    assert desk.plugin.on_publish(message) is False
    desk.clock.spin()
    assert desk.plugin.counters.explained == 1


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        ({"a/#/b": {}}, "'#' stands alone"),
        ({"a": {"dmax": 3}}, "'dmax' is none of d_max_s"),
        ({"a": {"kappa": 0}}, "kappa is 0.0"),
        ({"a": {"d_max_s": "soon"}}, "could not convert"),
        ({"a": {"prior_gap_s": 0}}, "mean gap 0.0 s"),
        ({"a": {"policy": "guess"}}, "'guess' is none of send, renewal, learned"),
        ({"a": {"policy": "learned"}}, "needs a policy_file"),
    ],
)
def test_bad_rules_are_refused_by_name(topics: dict[str, dict[str, Any]], words: str) -> None:
    with pytest.raises(BadRuleError, match=words):
        RetainedPlugin(SimpleNamespace(config=RetainedOptions(topics=topics)))


@pytest.mark.parametrize("option", ["max_topics", "max_debts", "max_open_decisions", "policy_poll_s"])
def test_bounds_are_above_zero(option: str) -> None:
    with pytest.raises(BadRuleError, match=option):
        RetainedOptions(**{option: 0})


def test_the_first_rule_that_matches_holds() -> None:
    topics = {"a/b": {"d_max_s": 1, "policy": "send"}, "a/#": {}}
    plugin = RetainedPlugin(SimpleNamespace(config=RetainedOptions(topics=topics)))
    assert [(rule.text, rule.policy.name, rule.cost.d_max_s) for rule in plugin.rules] == [
        ("a/b", "send", 1.0),
        ("a/#", "renewal", 10.0),
    ]
    assert plugin.concerns("a/c")
    assert not plugin.concerns("b")
