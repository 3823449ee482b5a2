"""What nodes announce of the contents they want, and what the others make of it."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_plugins.cluster.content_summary import covers
from broker_plugins.cluster.contents import OtherContents, OwnContents
from broker_plugins.cluster.wire import ContentDelta, decode, encode

INNERS = ("jobs/#", "jobs/+", "cars/1")
values = st.integers(0, 9).map(float)
wants = st.one_of(st.none(), st.tuples(values, values).map(lambda pair: (("v", min(pair), max(pair)),)))


class AnnouncedAgainstHeld(RuleBasedStateMachine):
    """A listener that loses some deltas never believes that a node does not want what it wants."""

    @initialize(filters=st.integers(1, 3))
    def start(self, filters):
        self.own = OwnContents("a", 1, 3, filters)
        self.other = OtherContents()
        self.held: list[tuple[str, object]] = []
        self.behind = True

    def _tell(self, delta: ContentDelta, lost: bool = False) -> None:
        if lost:
            self.behind = True
        elif self.other.apply(decode(encode(delta), ContentDelta)):
            self.behind = False
        else:
            self.behind = True

    @rule(inner=st.sampled_from(INNERS), box=wants, lost=st.booleans())
    def subscribe(self, inner, box, lost):
        self.own.add(inner, box)
        self.held.append((inner, box))
        delta = self.own.delta()
        if delta is not None:
            self._tell(delta, lost)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 1000))
    def unsubscribe(self, pick):
        self.own.remove(*self.held.pop(pick % len(self.held)))

    @rule()
    def beat(self):
        self.own.tighten()
        self._tell(self.own.delta() or self.own.nothing_new())
        if self.behind:
            assert self.other.wanted("a", ["jobs/#"]) is None  # it knows that it does not know

    @rule()
    def resync(self):
        self.other.replace(decode(encode(self.own.snapshot()), ContentDelta))
        self.behind = False

    @invariant()
    def nothing_wanted_is_left_out(self):
        if not hasattr(self, "own") or self.behind:
            return
        for inner in INNERS:
            known = self.other.wanted("a", [inner])
            if known is not None:
                boxes = [box for matcher in known for box in matcher.boxes]
                for held, box in self.held:
                    if held == inner:
                        assert box is not None
                        assert any(covers(cover, box) for cover in boxes)


AnnouncedAgainstHeld.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestAnnounced = AnnouncedAgainstHeld.TestCase


def test_a_filter_is_open_as_long_as_somebody_wants_any_content() -> None:
    own, other = OwnContents("a", 1, 4, 10), OtherContents()
    own.add("t", (("v", 1.0, 2.0),))
    first = own.delta()
    assert first is not None
    other.replace(own.snapshot())
    known = other.wanted("a", ["t"])
    assert known is not None
    assert known[0].wants({"v": 1.5})
    assert not known[0].wants({"v": 3})
    assert other.wanted("a", ["t", "#"]) is None  # of one of these nothing is known
    own.add("t", None)
    opened = own.delta()
    assert opened is not None
    assert other.apply(opened)
    assert other.wanted("a", ["t"]) is None
    own.remove("t", None)
    assert own.delta() is None  # with the next beat
    own.tighten()
    closed = own.delta()
    assert closed is not None
    assert other.apply(closed)
    assert other.wanted("a", ["t"]) is not None


def test_another_life_of_a_node_is_another_node() -> None:
    own, other = OwnContents("a", 1, 4, 10), OtherContents()
    own.add("t", (("v", 1.0, 2.0),))
    own.delta()
    other.replace(own.snapshot())
    reborn = OwnContents("a", 2, 4, 10)
    assert not other.apply(reborn.nothing_new())
    assert other.wanted("a", ["t"]) is None


def test_more_filters_than_are_summarised_are_left_open() -> None:
    own, other = OwnContents("a", 1, 4, 2), OtherContents()
    for number in range(5):
        own.add(f"t/{number}", (("v", 1.0, 2.0),))
    own.delta()
    other.replace(own.snapshot())
    assert [other.wanted("a", [f"t/{number}"]) is None for number in range(5)] == [False, False, True, True, True]
    assert own.boxes == 2
