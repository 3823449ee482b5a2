from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reproduction.causal_printed import ALL_MENDS, Mends, PrintedNodes
from benchmarks.reproduction.causal_storm import LocusNodes, Storm, Weather, stormy_weathers
from broker_plugins.causal import CausalNode, CausalState, DropReason, Roster

LIFE = 250_000
NAMES = ["a", "b", "c", "d"]


def group(**options):
    return {name: CausalNode(name, Roster(NAMES), lifetime_us=LIFE, **options) for name in NAMES}


def payloads(outcome):
    return [delivery.payload for delivery in outcome.deliveries]


def reasons(outcome):
    return [drop.reason for drop in outcome.drops]


def test_an_answer_waits_for_what_it_answers():
    nodes = group()
    question = nodes["a"].send(1_000_000, ["b", "c"])
    nodes["b"].receive(1_010_000, question.control["b"], "question")
    answer = nodes["b"].send(1_010_100, ["a", "c"])
    assert payloads(nodes["c"].receive(1_020_000, answer.control["c"], "answer")) == []
    assert nodes["c"].waiting == 1
    assert nodes["c"].next_wakeup() == 1_000_000 + LIFE + 1
    outcome = nodes["c"].receive(1_090_000, question.control["c"], "question")
    assert payloads(outcome) == ["question", "answer"]
    assert [delivery.sender for delivery in outcome.deliveries] == ["a", "b"]
    assert [delivery.waited_us for delivery in outcome.deliveries] == [0, 70_000]
    assert nodes["c"].next_wakeup() is None
    assert nodes["c"].statistics.waited == 1


def test_what_never_comes_blocks_for_its_lifetime_and_no_longer():
    nodes = group()
    question = nodes["a"].send(1_000_000, ["b", "c"])
    nodes["b"].receive(1_010_000, question.control["b"])
    answer = nodes["b"].send(1_010_100, ["c"])
    nodes["c"].receive(1_020_000, answer.control["c"], "answer")
    assert payloads(nodes["c"].poll(1_250_000)) == []
    assert payloads(nodes["c"].poll(1_250_001)) == ["answer"]
    late = nodes["c"].receive(1_250_001, question.control["c"], "question")
    assert reasons(late) == [DropReason.LATE]


def test_concurrent_messages_do_not_wait_for_each_other():
    nodes = group()
    one = nodes["a"].send(1_000_000, ["c"])
    two = nodes["b"].send(1_000_000, ["c"])
    assert payloads(nodes["c"].receive(1_010_000, two.control["c"], 2)) == [2]
    assert payloads(nodes["c"].receive(1_020_000, one.control["c"], 1)) == [1]


def test_doubles_are_dropped_delivered_or_waiting():
    nodes = group()
    first = nodes["a"].send(1_000_000, ["b"])
    second = nodes["a"].send(1_000_100, ["b"])
    nodes["b"].receive(1_010_000, second.control["b"])
    assert reasons(nodes["b"].receive(1_010_000, second.control["b"])) == [DropReason.DUPLICATE]
    nodes["b"].receive(1_010_000, first.control["b"])
    assert reasons(nodes["b"].receive(1_020_000, first.control["b"])) == [DropReason.DUPLICATE]
    assert nodes["b"].statistics.dropped[DropReason.DUPLICATE] == 2


def test_what_comes_late_behind_a_later_one_is_late_not_double():
    nodes = group()
    first = nodes["a"].send(1_000_000, ["b"])
    second = nodes["a"].send(1_200_000, ["b"])
    nodes["b"].receive(1_250_001, second.control["b"])
    assert reasons(nodes["b"].receive(1_250_002, first.control["b"])) == [DropReason.LATE]


def test_a_stamp_from_a_hopeless_clock_is_dropped():
    nodes = group(skew_us=5_000)
    future = nodes["a"].send(1_000_000 + LIFE + 10_001, ["b"])
    assert reasons(nodes["b"].receive(1_000_000, future.control["b"])) == [DropReason.AHEAD]


def test_a_stranger_is_dropped():
    nodes = group()
    message = nodes["a"].send(1_000_000, ["b"])
    nodes["b"].member_left("a", 1_000_100)
    outcome = nodes["b"].receive(1_000_200, message.control["b"])
    assert [(drop.sender, drop.reason) for drop in outcome.drops] == [("a", DropReason.STRANGER)]


def test_a_short_lifetime_ends_while_waiting():
    nodes = group()
    nodes["a"].send(1_000_000, ["b"])
    hasty = nodes["a"].send(1_000_100, ["b"], lifetime_us=20_000)
    nodes["b"].receive(1_010_000, hasty.control["b"], "hasty")
    assert nodes["b"].next_wakeup() == 1_020_101
    assert reasons(nodes["b"].poll(1_020_101)) == [DropReason.OUTLIVED]


def test_a_full_room_drops_the_newest_and_counts_it():
    nodes = group(room_limit=1)
    nodes["a"].send(1_000_000, ["b"])
    second = nodes["a"].send(1_000_100, ["b"])
    third = nodes["a"].send(1_000_200, ["b"])
    nodes["b"].receive(1_001_000, third.control["b"], 3)
    outcome = nodes["b"].receive(1_002_000, second.control["b"], 2)
    assert [(drop.payload, drop.reason) for drop in outcome.drops] == [(3, DropReason.OVERFLOW)]
    assert nodes["b"].waiting == 1


@pytest.mark.parametrize(("late", "expected"), [(10_000, [2, 3]), (300_000, [])])
def test_a_late_host_delivers_in_order_within_its_grace(late, expected):
    nodes = group(grace_us=20_000)
    nodes["a"].send(1_000_000, ["b"])
    second = nodes["a"].send(1_000_100, ["b"])
    third = nodes["a"].send(1_000_200, ["b"])
    nodes["b"].receive(1_001_000, third.control["b"], 3)
    nodes["b"].receive(1_002_000, second.control["b"], 2)
    outcome = nodes["b"].poll(1_000_201 + LIFE + late)
    assert payloads(outcome) == expected
    assert reasons(outcome) == ([] if expected else [DropReason.STALLED, DropReason.STALLED])


def test_a_clock_set_back_revives_nothing():
    nodes = group()
    message = nodes["a"].send(1_000_000, ["b"])
    nodes["b"].poll(1_000_001 + LIFE)
    assert reasons(nodes["b"].receive(1_000_000, message.control["b"])) == [DropReason.LATE]


def test_a_node_joins_and_takes_part():
    nodes = group()
    for node in nodes.values():
        node.roster.join("e", 4)
    newcomer = CausalNode("e", Roster([*NAMES, "e"]), lifetime_us=LIFE)
    first = nodes["a"].send(1_000_000, ["b", "e"])
    nodes["b"].receive(1_001_000, first.control["b"])
    second = nodes["b"].send(1_001_100, ["e"])
    assert payloads(newcomer.receive(1_002_000, second.control["e"], 2)) == []
    assert payloads(newcomer.receive(1_003_000, first.control["e"], 1)) == [1, 2]


@settings(max_examples=60, deadline=None)
@given(st.integers(1_000_000, 2_000_000))
def test_every_decision_in_a_random_world_is_the_oracles(seed):
    weather = stormy_weathers(seed)
    tally = Storm(weather, LocusNodes(weather, wire=seed % 2 == 0), seed).run(500)
    assert (tally.violations, tally.disagreements) == (0, 0), tally.faults


HARD = Weather(skew_us=60_000, clock_grain_us=5_000, late_timer_share=0.3, doubling=0.0)


@pytest.mark.parametrize("missing", ["record_delivered", "strict_stamps", "skew_margin", "ordered_drain"])
def test_the_storm_finds_every_missing_mend(missing):
    mends = replace(ALL_MENDS, **{missing: False})
    assert Storm(HARD, PrintedNodes(HARD, mends), 5, decisions=False).run(6_000).violations > 0


def test_the_storm_acquits_the_mended_paper_and_convicts_the_print():
    assert Storm(HARD, PrintedNodes(HARD, ALL_MENDS), 5, decisions=False).run(3_000).violations == 0
    calm = Weather(doubling=0.0)
    assert Storm(calm, PrintedNodes(calm, Mends()), 5, decisions=False).run(1_000).violations > 0


def test_the_storm_finds_a_core_whose_margin_is_gone(monkeypatch):
    built = CausalState.__init__

    def without_margin(self, *arguments, **options):
        built(self, *arguments, **options)
        self.margin_us = -self.lifetime_us

    monkeypatch.setattr(CausalState, "__init__", without_margin)
    weather = Weather(skew_us=60_000)
    tally = Storm(weather, LocusNodes(weather), 3).run(3_000)
    assert tally.violations > 0
    assert tally.disagreements > 0
