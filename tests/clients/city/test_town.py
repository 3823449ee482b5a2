from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from clients.city import Town, topics

BROKER = Path(__file__).parents[3] / "clients" / "demo" / "broker.yaml"


def test_the_map_holds_everybody():
    town = Town(3, vehicles=20, people=20, subscribers=6, workers=2)
    shown = town.map()
    west, south, east, north = shown["bounds"]
    for mover in (*town.vehicles.values(), *town.people.values(), *town.subscribers.values()):
        for _ in range(50):
            lon, lat = town.plane.globe(mover.advance(2.0).point)
            assert west - 1e-6 <= lon <= east + 1e-6
            assert south - 1e-6 <= lat <= north + 1e-6
    assert all(west <= lon <= east and south <= lat <= north for line in shown["streets"] for lon, lat in line)
    assert shown["square"][0] == shown["square"][-1]


def test_a_seed_makes_one_town():
    def ways(seed):
        town = Town(seed, vehicles=5, people=4, subscribers=3)
        everybody = (*town.vehicles.values(), *town.people.values(), *town.subscribers.values())
        return [mover.advance(1.0) for _ in range(20) for mover in everybody], town.map(), town.workers, town.fences

    assert ways(11) == ways(11)
    assert ways(11) != ways(12)


def test_there_is_a_crowd_on_the_square():
    town = Town(1)
    west, south = map(min, zip(*town.map()["square"], strict=True))
    east, north = map(max, zip(*town.map()["square"], strict=True))
    places = [town.plane.globe(person.advance(0.0).point) for person in town.people.values()]
    assert sum(west <= lon <= east and south <= lat <= north for lon, lat in places) >= len(places) // 2


def test_fewer_than_nobody_is_refused():
    with pytest.raises(ValueError, match="vehicles: -1 is below 0"):
        Town(vehicles=-1)


def test_the_broker_of_the_demonstration_ranks_what_offers_have():
    plugins = yaml.safe_load(BROKER.read_text(encoding="utf-8"))["plugins"]
    declared = plugins["broker_plugins.ranked.plugin.RankedPlugin"]["topics"][topics.OFFERS]["attributes"]
    assert {name: tuple(domain) for name, domain in declared.items()} == topics.ATTRIBUTES
