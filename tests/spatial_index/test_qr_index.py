from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spatial_index import WGS84, Circle, Plane, Point, Polygon, QRIndex, Sphere, cell_search, qr_core, qr_index
from spatial_index.crowd import Crowd
from spatial_index.slot_table import MOVING, STILL
from tests.spatial_index.qr_model import assert_answers, contains, meets

FLOOR = Plane(-20.0, -20.0, 20.0, 20.0)


@pytest.fixture(autouse=True)
def _fast_sweeps(monkeypatch):
    """Let boxes cool down within the few dozen steps of a test."""
    monkeypatch.setattr(qr_core, "SWEEP_EVERY", 3)
    monkeypatch.setattr(qr_core, "SWEEP_STEP", 16)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    """Let a batch of a few questions take several steps, and ask crowds both by themselves and together."""
    monkeypatch.setattr(qr_index, "BATCH_STEP", 3)
    monkeypatch.setattr(cell_search, "CROWD_COMPARISONS", 20)
    monkeypatch.setattr(cell_search, "WORTH_A_CALL", 12)


def small_cells(index):
    """Let cells overflow, split and merge with a handful of boxes."""
    index._r._run_limit = index._q._run_limit = 4
    return index


def check_structure(index):
    """Every box is in exactly the cells that its corners lead to, and every entry is a box that belongs there."""
    table = index._table
    wanted = {id(index._r): set(), id(index._q): set()}
    for slots in index._slots.values():
        for slot in slots if isinstance(slots, tuple) else (slots,):
            forest = index._q if table.side[slot] == MOVING else index._r
            corners = index._corners(slot)
            leaves = forest._leaves(corners)
            assert table.fine[slot] <= min(level for level, _ in leaves)
            wanted[id(forest)].update((level, key, slot) for level, key in leaves)
    for forest in (index._r, index._q):
        held = []
        for level, cells in enumerate(forest.cells):
            for key, cell in cells.items():
                if isinstance(cell, Crowd):
                    for place, slot in enumerate(cell.slots.tolist()):
                        corners = cell._corners[:, place].tolist()
                        assert corners == [table.x0[slot], table.y0[slot], -table.x1[slot], -table.y1[slot]]
                        assert table.crowded[slot]
                    held.extend((level, key, slot) for slot in cell.slots.tolist())
                else:
                    held.extend((level, key, slot) for slot in index._arena.slots(cell))
        assert len(held) == len(set(held))
        assert set(held) == wanted[id(forest)]
    occupied = {(level, id(cells)) for f in (index._r, index._q) for level, cells in enumerate(f.cells) if cells}
    assert {(level, id(get.__self__)) for level, get in index._levels} == occupied
    assert len(index._levels) == len(occupied)


def numbers(low, high):
    """Whole numbers, so that borders meet, and any others, so that they do not."""
    return st.integers(int(low), int(high)).map(float) | st.floats(low, high, allow_subnormal=False)


def boxes(space):
    bounds = space.bounds
    steps = st.sampled_from([1e-4, 0.01, 0.3, 1.0, 7.0])

    def near(x, y, width, height):
        return (x, y, min(x + width, bounds.east), min(y + height, bounds.north))

    around = st.builds(near, numbers(bounds.west, bounds.east), numbers(bounds.south, bounds.north), steps, steps)
    crowded = st.builds(near, numbers(3, 5), numbers(3, 5), steps, steps)
    anywhere = st.tuples(
        numbers(bounds.west, bounds.east),
        numbers(bounds.south, bounds.north),
        numbers(bounds.west, bounds.east),
        numbers(bounds.south, bounds.north),
    ).map(lambda box: (box[0], min(box[1], box[3]), box[2], max(box[1], box[3])))
    if isinstance(space, Plane):
        anywhere = anywhere.map(lambda box: (min(box[0], box[2]), box[1], max(box[0], box[2]), box[3]))
    return (around | crowded | crowded | anywhere).filter(lambda box: box[0] != box[2] and box[1] < box[3])


def shapes(space):
    bounds = space.bounds
    xs, ys = numbers(bounds.west, bounds.east), numbers(bounds.south, bounds.north)
    metres = [1.0, 500.0, 20_000.0, 900_000.0, 9_000_000.0, 19_000_000.0]
    radii = st.sampled_from(metres if isinstance(space, Sphere) else [0.01, 0.5, 3.0, 30.0])

    def diamond(x, y, size):
        east, west = x + size, x - size
        if isinstance(space, Sphere):
            east, west = east - 360 if east > 180 else east, west + 360 if west < -180 else west
        east, west = min(east, bounds.east), max(west, bounds.west)
        north, south = min(y + size, bounds.north), max(y - size, bounds.south)
        return Polygon([(east, y), (x, north), (west, y), (x, south), (east, y)])

    lower = st.floats(max(bounds.south + 1, -80), min(bounds.north - 1, 80), allow_subnormal=False)
    inner = xs if isinstance(space, Sphere) else st.floats(-19, 19, allow_subnormal=False)
    polygons = st.builds(diamond, inner, lower, st.sampled_from([0.01, 0.5, 8.0]))
    circles = st.builds(Circle, xs, ys, radii)
    return boxes(space) | boxes(space) | boxes(space) | circles | polygons | st.builds(Point, xs, ys)


class Machine(RuleBasedStateMachine):
    space = WGS84

    @initialize()
    def begin(self):
        self.index = small_cells(QRIndex(self.space))
        self.model = {}
        self.count = 0

    def new(self):
        self.count += 1
        return self.count

    @rule(data=st.data(), moving=st.booleans())
    def insert(self, data, moving):
        shape, key = data.draw(shapes(self.space)), self.new()
        self.index.insert(key, shape, moving=moving)
        self.model[key] = shape

    @rule(data=st.data(), moving=st.booleans())
    def insert_many(self, data, moving):
        rows = data.draw(st.lists(boxes(self.space), max_size=25))
        keys = [self.new() for _ in rows]
        self.index.insert_many(keys, np.array(rows).reshape(-1, 4), moving=moving)
        self.model.update(zip(keys, rows, strict=True))

    @rule(data=st.data(), copies=st.integers(2, 12))
    def insert_copies(self, data, copies):
        box = data.draw(boxes(self.space))
        for _ in range(copies):
            key = self.new()
            self.index.insert(key, box)
            self.model[key] = box

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def move_anywhere(self, data):
        key = data.draw(st.sampled_from(sorted(self.model)))
        shape = data.draw(shapes(self.space))
        self.index.move(key, shape)
        self.model[key] = shape

    @precondition(lambda self: self.model)
    @rule(data=st.data(), step=st.sampled_from([1e-7, 1e-3, 0.4]), times=st.integers(1, 6))
    def walk(self, data, step, times):
        key = data.draw(st.sampled_from(sorted(self.model)))
        box = self.model[key]
        assume(isinstance(box, tuple))
        for _ in range(times):
            box = (
                (box[0], box[1], box[2] + step, box[3])
                if box[0] > box[2]
                else (box[0] + step, box[1], box[2] + step, box[3])
            )
            if max(box[0], box[2]) > self.space.bounds.east or box[0] == box[2]:
                return
            self.index.move(key, box)
            self.model[key] = box

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def move_many(self, data):
        keys = data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True))
        rows = [data.draw(boxes(self.space)) for _ in keys]
        self.index.move_many(keys, np.array(rows).reshape(-1, 4))
        self.model.update(zip(keys, rows, strict=True))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data):
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.index.remove(key)
        del self.model[key]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_many(self, data):
        keys = data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True))
        self.index.remove_many(keys)
        for key in keys:
            del self.model[key]

    def places(self):
        bounds = self.space.bounds
        corner = [(box[0], box[1]) for box in self.model.values() if isinstance(box, tuple)]
        anywhere = st.tuples(numbers(bounds.west, bounds.east), numbers(bounds.south, bounds.north))
        return anywhere | st.sampled_from(corner) if corner else anywhere

    @rule(data=st.data())
    def ask_at(self, data):
        places = data.draw(st.lists(self.places(), min_size=1, max_size=5))
        batch = self.index.at_many(np.array([x for x, _ in places]), np.array([y for _, y in places]))
        for (x, y), together in zip(places, batch, strict=True):
            found = self.index.at(x, y)
            assert_answers(found, self.model, lambda shape, x=x, y=y: contains(self.space, shape, x, y))
            assert sorted(together) == sorted(found)

    @rule(data=st.data())
    def ask_intersecting(self, data):
        asked = data.draw(st.lists(boxes(self.space), min_size=1, max_size=3))
        batch = self.index.intersecting_many(np.array(asked))
        for box, together in zip(asked, batch, strict=True):
            found = self.index.intersecting(box)
            assert_answers(found, self.model, lambda shape, box=box: meets(self.space, shape, box))
            assert sorted(together) == sorted(found)

    @invariant()
    def structure_holds(self):
        if hasattr(self, "index"):
            check_structure(self.index)
            assert sorted(self.index) == sorted(self.model)
            assert len(self.index) == len(self.model)


class FloorMachine(Machine):
    space = FLOOR


budget = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False
)
TestSphere = Machine.TestCase
TestSphere.settings = budget
TestFloor = FloorMachine.TestCase
TestFloor.settings = budget


def wandering(count=2000, seed=3):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 10, (count, 2))
    sizes = np.exp(rng.uniform(np.log(0.001), np.log(2), (count, 1)))
    return np.hstack((low, low + sizes))


def brute(rows, x, y):
    return np.nonzero((rows[:, 0] <= x) & (x <= rows[:, 2]) & (rows[:, 1] <= y) & (y <= rows[:, 3]))[0].tolist()


def test_a_crowd_that_grows_moves_and_goes_is_always_found():
    index, rows, rng = QRIndex(FLOOR), wandering(), np.random.default_rng(0)
    index.insert_many(range(1000), rows[:1000])
    for key in range(1000, 2000):
        index.insert(key, tuple(rows[key]), moving=key % 2 == 0)
    for _ in range(6):
        rows = rows + np.tile(rng.normal(0, 0.05, (len(rows), 2)), 2)
        index.move_many(np.arange(1000), rows[:1000])
        for key in range(1000, 2000):
            index.move(key, tuple(rows[key].tolist()))
        check_structure(index)
        for x, y in rng.uniform(-1, 12, (40, 2)):
            assert sorted(index.at(x, y)) == brute(rows, x, y)
    assert index.stats().splits > 0
    assert index.stats().crowds > 0
    index.remove_many(range(2000))
    check_structure(index)
    assert index.stats().cells == 0
    assert not any(forest.split[level] for forest in (index._r, index._q) for level in range(30))


def test_bulk_load_into_a_full_index_finds_both():
    index, rows = QRIndex(FLOOR), wandering()
    for part in range(4):
        index.insert_many(range(part * 500, part * 500 + 500), rows[part * 500 : part * 500 + 500], moving=part == 2)
        check_structure(index)
    for x, y in np.random.default_rng(1).uniform(0, 12, (60, 2)):
        assert sorted(index.at(x, y)) == brute(rows, x, y)


def test_what_moves_goes_to_q_and_what_rests_goes_back():
    index = QRIndex(FLOOR)
    for key in range(20):
        index.insert(key, (key - 10, 0, key - 9, 1))
    assert (index.stats().still, index.stats().moving) == (20, 0)
    for step in range(4):
        index.move(5, (-5 + step / 10, 0, -4 + step / 10, 1))
    assert (index.stats().still, index.stats().moving) == (19, 1)
    for step in range(400):
        index.move(6, (-4 + step / 100, 0, -3 + step / 100, 1))
    assert index._table.side[index._slots[5]] == STILL
    assert index._table.side[index._slots[6]] == MOVING
    assert index.stats().to_q == 2
    assert index.stats().to_r == 1


def test_one_move_now_and_then_does_not_leave_the_r_side():
    index = QRIndex(FLOOR)
    index.insert("rare", (0, 0, 1, 1))
    index.insert("busy", (0, 0, 1, 1), moving=True)
    for turn in range(20):
        for step in range(30):
            index.move("busy", (step / 100, 0, 1 + step / 100, 1))
        index.move("rare", (turn / 100, 0, 1 + turn / 100, 1))
    assert index._table.side[index._slots["rare"]] == STILL


def test_any_number_of_ids_share_a_box():
    index = QRIndex()
    box = (126.9, 37.4, 127.1, 37.6)
    for key in range(250):
        index.insert(("seoul", key), box)
    index.insert_many([("seoul", key) for key in range(250, 500)], [box] * 250)
    assert len(index.at(127.0, 37.5)) == 500
    assert sorted(index.at_many([127.0, 180.0], [37.5, 0.0])[0]) == [("seoul", key) for key in range(500)]
    for key in range(0, 500, 2):
        index.remove(("seoul", key))
    assert sorted(index.at(127.0, 37.5)) == [("seoul", key) for key in range(1, 500, 2)]


def test_blocks_cover_the_boxes_and_count_them():
    index, rows = QRIndex(FLOOR), wandering(300)
    index.insert_many(range(300), rows)
    index.insert("mover", (-5, -5, -4, -4), moving=True)
    blocks = list(index.blocks())
    assert {block.side for block in blocks} == {"Q", "R"}
    assert sum(block.count for block in blocks) >= 301
    for x, y in ((row[0], row[1]) for row in rows):
        assert any(b.box.west <= x <= b.box.east and b.box.south <= y <= b.box.north for b in blocks)


def test_the_antimeridian_and_the_poles_are_one_place():
    index = QRIndex()
    index.insert("fiji", (177, -20, -178, -15))
    index.insert("east of it", (-180, -20, -170, -15))
    index.insert("north", (10, 85, 20, 90))
    index.insert("cap", Circle(0, 89, 300_000))
    assert sorted(index.at(180, -17)) == sorted(index.at(-180, -17)) == ["east of it", "fiji"]
    assert index.at(178, -17) == ["fiji"]
    assert sorted(index.at(-120, 90)) == ["cap", "north"]
    assert index.at(180, 89) == ["cap"]
    assert sorted(index.intersecting((170, -18, 180, -16))) == ["east of it", "fiji"]
    assert sorted(index.intersecting((100, 80, 110, 90))) == ["cap", "north"]


def test_a_box_that_ends_a_hair_before_a_meridian_does_not_touch_it():
    index = QRIndex()
    almost_round = (1.0, -10.0, -1e-163, 10.0)
    index.insert("almost round", almost_round)
    index.insert("east of Greenwich", (0.0, 0.0, 1e-4, 1.0))
    assert index.at(0.0, 5.0) == []
    assert index.at(-1e-163, 5.0) == ["almost round"]
    assert index.intersecting((0.0, 2.0, 0.5, 3.0)) == []
    assert index.intersecting(almost_round) == ["almost round"]
    assert list(index.at_many([0.0, -1e-163], [5.0, 5.0])) == [[], ["almost round"]]
    assert list(index.intersecting_many([(0.0, 2.0, 0.5, 3.0), almost_round])) == [[], ["almost round"]]
