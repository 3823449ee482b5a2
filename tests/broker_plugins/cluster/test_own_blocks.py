"""What a node announces of where it listens is right on the others, while areas and blocks move and deltas are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker_plugins.cluster.interest import OtherWishes, OwnWishes
from broker_plugins.cluster.own_blocks import OwnBlocks
from broker_plugins.cluster.wire import Delta, decode, encode
from spatial_index import WGS84, Box, Limits, Plane, RegionTree, adapt_tree, with_owners, with_regions
from spatial_index.region_cells import names_at, names_touched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spatial_index.spaces import Space

INNERS = ("a", "b/#")
SPACES: tuple[Space, ...] = (WGS84, Plane(0.0, 0.0, 8.0, 8.0))
parts = st.integers(0, 32)


class Announced(RuleBasedStateMachine):
    """A node whose areas come, move and go over a map that changes, and one that hears of it over a bad line."""

    @initialize(space=st.sampled_from(SPACES))
    def begin(self, space: Space) -> None:
        self.space = space
        self.wishes = OwnWishes("x", 1)
        self.own = OwnBlocks(self.wishes, many=20)
        self.others = OtherWishes()
        self.areas: dict[int, tuple[str, Box]] = {}
        self.tree = RegionTree(space, Limits(capacity=10, max_depth=4))
        self.own.adopt(self.tree)

    def at(self, across: int, along: int) -> tuple[float, float]:
        """A place on a grid on which borders of blocks lie."""
        west, south, east, north = self.space.bounds
        return west + (east - west) * across / 32, south + (north - south) * along / 32

    @rule(key=st.integers(0, 20), inner=st.sampled_from(INNERS), x=parts, y=parts, width=parts, height=parts)
    def put(self, key: int, inner: str, x: int, y: int, width: int, height: int) -> None:
        if key in self.areas:
            inner = self.areas[key][0]
        box = Box(*self.at(x, y), *self.at(min(x + width // 2, 32), min(y + height // 2, 32)))
        self.areas[key] = (inner, box)
        self.own.put(key, inner, [box])

    @rule(key=st.integers(0, 20))
    def drop(self, key: int) -> None:
        self.areas.pop(key, None)
        self.own.drop(key)

    @rule(data=st.data())
    def weigh(self, data: st.DataObject) -> None:
        names = sorted(block.id for block in self.tree)
        heavy = data.draw(st.sets(st.sampled_from(names), max_size=3))
        self.change(adapt_tree(self.tree, {name: 11.0 if name in heavy else 0.5 for name in names}))

    @rule(x=st.integers(0, 24), y=st.integers(0, 24), side=st.integers(0, 6))
    def crowd(self, x: int, y: int, side: int) -> None:
        regions = [Box(*self.at(x, y), *self.at(x + side + 1, y + side + 1))] if side else []
        self.change(with_regions(self.tree, regions))

    @rule(owner=st.sampled_from("xyz"))
    def move(self, owner: str) -> None:
        self.change(with_owners(self.tree, {block.id: owner for block in self.tree}))

    def change(self, tree: RegionTree) -> None:
        self.tree = tree
        self.own.adopt(tree)

    @rule(lost=st.booleans())
    def announce(self, lost: bool) -> None:
        delta = self.wishes.delta()
        if delta is not None and not lost:
            self.others.apply(decode(encode(delta), Delta))

    @rule(places=st.lists(st.tuples(parts, parts), min_size=1, max_size=12))
    def ask(self, places: list[tuple[int, int]]) -> None:
        """All is announced, and asked for if something was lost: whoever listens at a place is found."""
        self.announce(lost=False)
        if not self.others.is_current("x", 1, self.wishes.version):
            self.others.replace(decode(encode(self.wishes.snapshot(), squeeze=True), Delta))
        for place in places:
            x, y = self.at(*place)
            names = names_at(self.tree, x, y)
            for inner in INNERS:
                told = self.others.listens("x", self.tree.version, [inner], names)
                boxes = [box for name, box in self.areas.values() if name == inner]
                if any(_holds(box, x, y) for box in boxes):
                    assert told is True
                touched = [names_touched(self.tree, [box], 1000) or frozenset() for box in boxes]
                if all(len(some) <= 20 for some in touched):
                    assert told is any(not names.isdisjoint(some) for some in touched)
        # In another version it may be anywhere, unless there is none at all.
        assert self.others.listens("x", self.tree.version + 1, INNERS, {"q"}) is (None if self.areas else False)

    def teardown(self) -> None:
        for key in list(getattr(self, "areas", ())):
            self.own.drop(key)
        if hasattr(self, "wishes"):
            assert len(self.wishes) == self.wishes.in_blocks == len(self.own) == 0


def _holds(box: Box, x: float, y: float) -> bool:
    return box.west <= x <= box.east and box.south <= y <= box.north


TestAnnounced = Announced.TestCase
TestAnnounced.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def told(wishes: OwnWishes) -> OtherWishes:
    """What another node knows of all that."""
    others = OtherWishes()
    wishes.delta()
    others.replace(wishes.snapshot())
    return others


def test_an_area_of_too_many_blocks_is_everywhere_until_they_are_few() -> None:
    wishes = OwnWishes("x", 1)
    own = OwnBlocks(wishes, many=3)
    whole = RegionTree(WGS84, Limits(capacity=1))
    quartered = adapt_tree(whole, {"q": 2.0})
    own.put("w", "a", [WGS84.bounds])
    for version, tree, everywhere in ((1, whole, False), (2, quartered, True), (3, whole, False)):
        own.adopt(RegionTree(WGS84, tree.limits, blocks=tree, version=version))
        others = told(wishes)
        assert wishes.in_blocks == 1
        assert others.listens("x", version, ["a"], {"any"}) is everywhere
        assert others.listens("x", version, ["a"], {"q"}) is True
        assert others.listens("x", version, ["b"], {"q"}) is False


def test_what_is_announced_is_bounded_and_nothing_is_lost_by_it() -> None:
    wishes = OwnWishes("x", 1)
    own = OwnBlocks(wishes, most=2)
    own.adopt(RegionTree(WGS84))
    for number in range(9):
        own.put(number, f"t/{number}", [Box(0.0, 0.0, 1.0, 1.0)])
    others = told(wishes)
    assert others.listens("x", 1, ["t/0"], {"elsewhere"}) is False
    for number in range(2, 9):
        assert others.listens("x", 1, [f"t/{number}"], {"elsewhere"}) is True


class Overtaken(RuleBasedStateMachine):
    """Two nodes that hear of new maps at different times, and of each other with delay: no listener is ever missed."""

    @initialize()
    def begin(self) -> None:
        self.wishes = OwnWishes("x", 1)
        self.own = OwnBlocks(self.wishes, many=20, at_once=1)
        self.steps: Iterator[None] = iter(())
        self.prepared = True
        self.others = OtherWishes()
        self.maps = [RegionTree(SPACES[1], Limits(capacity=10, max_depth=4))]
        self.here = self.there = 0  # which of them each goes by
        self.own.adopt(self.maps[0])
        self.line: list[Delta] = []
        self.areas: dict[int, tuple[Box, int]] = {}
        self.known = -1

    @rule(data=st.data())
    def draw_map(self, data: st.DataObject) -> None:
        tree = self.maps[-1]
        names = sorted(block.id for block in tree)
        heavy = data.draw(st.sets(st.sampled_from(names), max_size=3))
        changed = adapt_tree(tree, {name: 11.0 if name in heavy else 0.5 for name in names})
        if changed is not tree:
            self.maps.append(changed)

    @rule()
    def hear_of_map(self) -> None:
        if self.there < len(self.maps) - 1:
            self.there += 1
            self.steps, self.prepared = self.own.prepare(self.maps[self.there]), False

    @rule()
    def go_on(self) -> None:
        """A step of changing to another map; one that was not finished may have been given up for a newer one."""
        if next(self.steps, self) is self:
            if not self.prepared:
                self.own.commit()
            self.steps, self.prepared = self.own.tidy(), True
        self.announce()

    @rule()
    def hear_of_map_here(self) -> None:
        self.here = min(self.here + 1, len(self.maps) - 1)

    @rule(x=st.integers(0, 30), y=st.integers(0, 30), side=st.integers(1, 2))
    def listen(self, x: int, y: int, side: int) -> None:
        key = len(self.areas)
        box = Box(x / 4, y / 4, min(8.0, (x + side) / 4), min(8.0, (y + side) / 4))
        self.own.put(key, "a", [box])
        self.announce()
        self.areas[key] = (box, self.wishes.version)

    def announce(self) -> None:
        delta = self.wishes.delta()
        if delta is not None:
            self.line.append(delta)

    @rule(lost=st.booleans())
    def arrive(self, lost: bool) -> None:
        if self.line:
            delta = self.line.pop(0)
            if not lost and self.others.apply(delta) is None:
                self.others.replace(self.wishes.snapshot())
                self.known = self.wishes.version
            elif not lost:
                self.known = max(self.known, delta.version)

    @invariant()
    def nobody_is_missed(self) -> None:
        if not hasattr(self, "maps"):
            return
        tree = self.maps[self.here]
        for box, version in self.areas.values():
            if version <= self.known:
                x, y = (box.west + box.east) / 2, (box.south + box.north) / 2
                assert self.others.listens("x", tree.version, ["a"], names_at(tree, x, y)) is not False

    def teardown(self) -> None:
        """In the end everything is announced as if it had been put on this map in the first place."""
        if not hasattr(self, "maps"):
            return
        while not self.prepared:
            self.go_on()
        for _ in self.own.tidy():
            pass
        plain = OwnWishes("x", 1)
        own = OwnBlocks(plain, many=20)
        own.adopt(self.maps[self.there])
        for key, (box, _) in self.areas.items():
            own.put(key, "a", [box])
        for wishes in (plain, self.wishes):
            wishes.delta()
        assert _states(self.wishes) == _states(plain)


def _states(wishes: OwnWishes) -> set[tuple[str, str, int]]:
    return {(wish.inner, wish.group, wish.state) for wish in wishes.snapshot().wishes}


TestOvertaken = Overtaken.TestCase
TestOvertaken.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
