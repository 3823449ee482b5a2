from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from spatial_index import BadCount, Block, assign
from spatial_index.spaces import Box

BOX = Box(0, 0, 1, 1)

some_blocks = st.lists(
    st.tuples(st.floats(0, 100), st.sampled_from(["", "a", "b", "c", "dead"])), min_size=1, max_size=40
).map(lambda rows: [Block(f"r{number}", BOX, owner, load) for number, (load, owner) in enumerate(rows)])


def filled(blocks, owners, nodes):
    totals = dict.fromkeys(nodes, 0.0)
    for block in blocks:
        totals[owners[block.id]] += block.load
    return totals


@settings(max_examples=200, deadline=None)
@given(some_blocks, st.sets(st.sampled_from("abcde"), min_size=1))
def test_every_block_gets_a_living_owner_and_no_node_is_needlessly_full(blocks, nodes):
    owners = assign(blocks, nodes)
    assert set(owners) == {block.id for block in blocks}
    assert set(owners.values()) <= nodes
    totals = filled(blocks, owners, nodes)
    share = sum(totals.values()) / len(nodes)
    heaviest = max(block.load for block in blocks)
    # No schedule can promise less than a share and one block.
    assert max(totals.values()) <= max(share * 1.1, share + heaviest) + 1e-3


@settings(max_examples=100, deadline=None)
@given(some_blocks, st.sets(st.sampled_from("abcde"), min_size=1))
def test_assigning_again_moves_nothing(blocks, nodes):
    owners = assign(blocks, nodes)
    settled = [Block(block.id, block.box, owners[block.id], block.load) for block in blocks]
    assert assign(settled, nodes) == owners


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 6), st.integers(8, 40))
def test_a_dead_nodes_blocks_move_and_no_others(count, blocks):
    nodes = [f"n{number}" for number in range(count)]
    world = [Block(f"r{number}", BOX, "", 1.0) for number in range(blocks)]
    owners = assign(world, nodes)
    settled = [Block(block.id, block.box, owners[block.id], block.load) for block in world]
    after = assign(settled, nodes[1:], tolerance=0.5)
    moved = {name for name in owners if owners[name] != after[name]}
    assert moved == {name for name, node in owners.items() if node == nodes[0]}


def test_strength_and_idle_blocks():
    world = [Block(f"r{number}", BOX) for number in range(30)]
    owners = assign(world, {"strong": 2.0, "weak": 1.0})
    assert sum(node == "strong" for node in owners.values()) == 20
    owners = assign(world, ["a", "b"], {"r0": 100.0})
    assert sum(node != owners["r0"] for node in owners.values()) == 29


def test_bad_numbers_are_refused():
    world = [Block("q", BOX)]
    with pytest.raises(BadCount, match="no nodes"):
        assign(world, [])
    with pytest.raises(BadCount, match="'a'"):
        assign(world, {"a": 0.0})
    with pytest.raises(BadCount, match="nan"):
        assign(world, ["a"], {"q": math.nan})
    with pytest.raises(BadCount, match="tolerance"):
        assign(world, ["a"], tolerance=-1)
