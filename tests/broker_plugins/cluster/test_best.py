"""Who is served where, against a plain sort of everybody."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from broker_plugins.cluster.best import best_of

accuracies = st.sampled_from([0.0, 0.1, 0.5, 1.0])


@st.composite
def worlds(draw):
    """Nodes with candidates, each node's in its order, ages distinct but for those of a group's parts."""
    nodes = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
    groups = {f"$share/g{number}/t": draw(accuracies) for number in range(draw(st.integers(0, 3)))}
    ages = iter(draw(st.permutations(range(60))))
    world = {}
    for node in nodes:
        found = [(draw(accuracies), next(ages), f"{node}{number}", "") for number in range(draw(st.integers(0, 6)))]
        found += [(accuracy, next(ages), "", group) for group, accuracy in groups.items() if draw(st.booleans())]
        world[node] = sorted(found)
    return world


@settings(max_examples=300, deadline=None)
@given(world=worlds(), most=st.one_of(st.none(), st.integers(1, 12)), data=st.data())
def test_the_best_of_all_are_served_and_a_group_once(world, most, data) -> None:
    turns = {}

    def turn(group: str, nodes: list[str]) -> str:
        assert group not in turns
        assert set(nodes) == {node for node, found in world.items() if any(each[3] == group for each in found)}
        turns[group] = data.draw(st.sampled_from(nodes))
        return turns[group]

    decision = best_of(world, most, turn)
    oldest = {}
    for each in sorted(each for found in world.values() for each in found):
        oldest.setdefault(each[3] or each[2], each)
    expected = sorted(oldest.values())[:most]
    assert decision.ranking == expected
    for node, found in world.items():
        singles = [each for each in found if not each[3]]
        assert singles[: decision.counts[node]] == [each for each in singles if each in expected]
        assert decision.groups[node] == [each[3] for each in expected if each[3] and turns[each[3]] == node]
