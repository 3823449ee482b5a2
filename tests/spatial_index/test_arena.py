from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spatial_index.arena import Arena


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=300))
@settings(max_examples=60, deadline=None)
def test_runs_are_as_lists_and_never_share_an_entry(steps):
    arena, runs, model = Arena(), {}, {}
    for number, (name, grow) in enumerate(steps):
        held = model.setdefault(name, [])
        if grow and len(held) < 64:
            runs[name] = arena.append(runs[name], number) if held else arena.new(number)
            held.append(number)
        elif held:
            gone = held.pop(len(held) // 2)
            left = arena.remove(runs.pop(name), gone)
            assert (left is None) == (not held)
            if left is not None:
                runs[name] = left
        for key, run in runs.items():
            assert sorted(arena.slots(run)) == sorted(model[key])


def test_what_is_given_back_is_used_again():
    arena = Arena()
    run = arena.new(1)
    for slot in range(2, 33):
        run = arena.append(run, slot)
    arena.free(run)
    size = len(arena.entries)
    again = int(arena.build(np.array([3]), np.array([7, 8, 9]))[0])
    assert list(arena.slots(again)) == [7, 8, 9]
    run = arena.new(1)
    for slot in range(2, 33):
        run = arena.append(run, slot)
    assert len(arena.entries) == size + 4


def test_runs_built_at_once_hold_their_slots():
    arena, rng = Arena(), np.random.default_rng(2)
    arena.new(99)
    counts = rng.integers(1, 65, 200)
    slots = np.arange(counts.sum())
    runs = arena.build(counts, slots).tolist()
    assert [list(arena.slots(run)) for run in runs] == [
        part.tolist() for part in np.split(slots, np.cumsum(counts)[:-1])
    ]
