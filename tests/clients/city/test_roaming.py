"""Roaming subscribers of the city on a real cluster."""

from __future__ import annotations

import threading
import time

import pytest

from clients import LocusClient
from clients.city import topics
from clients.city.roaming import MOST_WAITING, RoamingConnection
from clients.position import POSITION_TOPIC
from tests.broker_plugins.cluster.nodes import cluster
from tests.brokers import free_port

pytest.importorskip("nats")
pytestmark = pytest.mark.xdist_group("cluster-city")
PATIENCE_S = 90.0
HERE = {"lon": 126.97, "lat": 37.56}


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Subscriber:
    """Somebody at one place, who notes what comes and where they are moved to."""

    def __init__(self, name, port, nodes):
        self.heard = []
        self.moves = []
        self.connection = RoamingConnection(
            "127.0.0.1",
            port,
            name,
            nodes=nodes,
            filters=[f"$geo/near:300m/{topics.VEHICLE_POSITIONS}"],
            on_message=lambda topic, payload: self.heard.append((topic, payload)),
            greeting=lambda: [(POSITION_TOPIC, HERE, False)],
            moved=lambda before, after: self.moves.append((before, after)),
        )


def test_subscribers_move_to_the_node_that_owns_their_place(tmp_path):
    with cluster(tmp_path, "a", "b") as nodes:
        addresses = [f"127.0.0.1:{nodes.port(name)}" for name in ("a", "b")]
        two = [Subscriber(f"s-{name}", nodes.port(name), addresses) for name in ("a", "b")]
        try:
            wait_until(lambda: all(one.connection.up for one in two), "they did not connect")

            def moved():
                for one in two:
                    one.connection.publish(POSITION_TOPIC, HERE)
                time.sleep(0.2)
                return any(one.moves for one in two)

            wait_until(moved, "nobody was handed over")
            assert all(move[0] != move[1] and set(move) == set(addresses) for one in two for move in one.moves)
            with LocusClient(port=nodes.port("a"), timeout_s=PATIENCE_S) as client:

                def both_hear():
                    client.publish(topics.vehicle("v1"), HERE)
                    time.sleep(0.2)
                    return all(one.heard for one in two)

                wait_until(both_hear, "a message nearby was not heard")
            assert {topic for one in two for topic, _ in one.heard} == {"city/vehicles/v1/pos"}
        finally:
            for one in two:
                one.connection.leave()
            for one in two:
                one.connection.close()
        assert not [thread for thread in threading.enumerate() if thread.name in {"s-a", "s-b"}]


def test_without_a_cluster_nothing_is_said_and_nothing_is_left_behind():
    alone = Subscriber("s-alone", free_port(), [])
    assert not alone.connection.up
    for _ in range(2 * MOST_WAITING):
        assert not alone.connection.publish("a", {})
    alone.connection.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "s-alone"]
