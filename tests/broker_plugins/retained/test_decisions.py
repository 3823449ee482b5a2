from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_plugins.retained.decisions import Decision, OpenDecisions
from broker_plugins.retained.topics import Topic
from rl_policy import CostModel, DecisionRecord, GapStatistics, features_of

D_MAX_S = 10.0


def decision(at: float, topic: str = "t") -> Decision:
    gaps = GapStatistics()
    gaps.published(0.0)
    features = features_of(gaps, at, CostModel())
    return Decision(topic, "t/#", at, at, features, 1.0, "because", "v")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("open"), st.integers(0, 2)),
            st.tuples(st.just("publish"), st.integers(0, 2)),
            st.tuples(st.just("forget"), st.integers(0, 2)),
            st.tuples(st.just("wait"), st.sampled_from([1, 4, 12])),
        ),
        max_size=40,
    )
)
def test_every_decision_is_closed_once_with_what_was_seen(steps: list[tuple[str, int]]) -> None:
    told: list[DecisionRecord] = []
    decisions = OpenDecisions(1_000)
    decisions.listeners.append(told.append)
    topics = [Topic() for _ in range(3)]
    now = 0.0
    waiting: list[tuple[float, int]] = []  # when opened, topic
    expected: list[tuple[float, float | None, float]] = []
    for what, number in steps:
        if what == "open":
            decisions.open(decision(now), topics[number], D_MAX_S)
            waiting.append((now, number))
        elif what == "wait":
            now += number
            decisions.due(now)
            expected += [(at, None, now - at) for at, _ in waiting if now - at >= D_MAX_S]
            waiting = [each for each in waiting if now - each[0] < D_MAX_S]
        else:
            if what == "publish":
                decisions.published(topics[number], now)
            else:
                decisions.forgotten(topics[number], now)
            seen = [at for at, its in waiting if its == number]
            expected += [(at, now - at if what == "publish" else None, now - at) for at in seen]
            waiting = [each for each in waiting if each[1] != number]
        assert len(decisions) == len(waiting)
        ends = [at + D_MAX_S for at, _ in waiting]
        assert decisions.next_end_s() == (min(ends) if ends else None)
    assert sorted((r.at_s, r.observed_s) for r in told) == sorted((at, seen) for at, _, seen in expected)
    assert sum(r.residual_s is None for r in told) == sum(residual is None for _, residual, _ in expected)


def test_too_many_open_decisions_close_the_one_nearest_its_end() -> None:
    told: list[DecisionRecord] = []
    decisions = OpenDecisions(2)
    decisions.listeners.append(told.append)
    topic = Topic()
    for at in (1.0, 2.0, 3.0):
        decisions.open(decision(at), topic, D_MAX_S)
    assert [(record.at_s, record.residual_s, record.observed_s) for record in told] == [(1.0, None, 2.0)]
    assert (len(decisions), decisions.censored) == (2, 1)


def test_memory_stays_bounded_while_decisions_come_and_go() -> None:
    decisions, topic = OpenDecisions(1_000), Topic()
    for number in range(10_000):
        decisions.open(decision(float(number) / 1e6), topic, D_MAX_S)
        decisions.published(topic, float(number) / 1e6)
    assert len(decisions._heap) < 100
