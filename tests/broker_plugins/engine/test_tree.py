from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_plugins.engine.topics import filter_fault, matches
from broker_plugins.engine.tree import FilterTree

levels = st.sampled_from(["a", "b", "c", "", "$x"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.lists(st.sampled_from(["a", "b", "", "$x", "+", "#"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda text: filter_fault(text) is None)
)


class TreeMachine(RuleBasedStateMachine):
    """A tree does what a list of filters does that is asked one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.tree: FilterTree[int] = FilterTree()
        self.model: set[tuple[str, int]] = set()

    @rule(text=filters, value=st.integers(0, 5))
    def add(self, text: str, value: int) -> None:
        assert self.tree.add(text, value) is ((text, value) not in self.model)
        self.model.add((text, value))

    @rule(text=filters, value=st.integers(0, 5))
    def remove(self, text: str, value: int) -> None:
        assert self.tree.remove(text, value) is ((text, value) in self.model)
        self.model.discard((text, value))

    @rule(topic=topics)
    def match(self, topic: str) -> None:
        expected = sorted(value for text, value in self.model if matches(text, topic))
        assert sorted(self.tree.match(topic)) == expected

    @invariant()
    def counts(self) -> None:
        assert len(self.tree) == len(self.model)

    def teardown(self) -> None:
        for text, value in self.model:
            self.tree.remove(text, value)
        assert not self.tree._root.children, "an emptied tree keeps no branches"
        assert not self.tree._exact


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
