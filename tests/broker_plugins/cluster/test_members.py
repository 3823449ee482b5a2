"""A silent node is gone, then forgotten; one that speaks is there."""

from __future__ import annotations

from broker_plugins.cluster.members import Members
from broker_plugins.cluster.wire import Hello


def test_life_of_a_node() -> None:
    now = [0.0]
    members = Members(2.0, 10.0, lambda: now[0])
    assert members.heard(Hello("b", 1, 0, 7))
    assert not members.heard(Hello("b", 1, 0, 7))
    assert members.alive() == ["b"]
    assert members.heard(Hello("b", 2, 0, 7)), "it was started again"
    now[0] = 3.0
    assert not members.is_alive("b")
    assert members.known() == ["b"]
    assert members.heard(Hello("b", 2, 0, 7))
    now[0] = 14.0
    assert members.forgotten() == ["b"]
    assert members.forgotten() == members.known() == []


def test_one_question_at_a_time() -> None:
    members = Members(2.0, 10.0, lambda: 0.0)
    assert members.ask("b")
    assert not members.ask("b")
    members.answered("b")
    assert members.ask("b")


def test_repairs_wait_until_nodes_have_differed_for_a_while() -> None:
    now = [5.0]
    members = Members(100.0, 1000.0, lambda: now[0])
    members.heard(Hello("b", 1, 0, 7))
    assert members.differing(7, 3.0) == []
    now[0] = 7.0
    assert members.differing(8, 3.0) == []
    now[0] = 8.5
    assert members.differing(8, 3.0) == ["b"]
    assert members.differing(8, 3.0) == []


def test_clients_are_led_only_to_nodes_that_take_them() -> None:
    now = [0.0]
    members = Members(2.0, 10.0, lambda: now[0])
    members.heard(Hello("b", 1, 0, 7, "b:1883"))
    members.heard(Hello("c", 1, 0, 7))
    assert members.takes_clients("b")
    assert members.address("b") == "b:1883"
    assert not members.takes_clients("c"), "nobody knows where it is"
    assert not members.takes_clients("d")
    members.heard(Hello("b", 1, 0, 7, "b:1883", draining=True))
    assert members.is_draining("b")
    assert not members.takes_clients("b")
    members.heard(Hello("b", 1, 0, 7, "b:1883"))
    now[0] = 3.0
    assert not members.takes_clients("b"), "it has said nothing for a while"
