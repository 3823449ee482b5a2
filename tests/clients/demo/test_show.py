from __future__ import annotations

import pytest

from clients.demo import show
from clients.demo.plan import DemoError
from clients.demo.show import MOST_EARLY, MOST_STARTS, Show


class Weak:
    """A process that ends whenever it was started."""

    exit_code = 1
    runs = False

    def __init__(self, name):
        self.name = name
        self.starts = 1
        self.started_s = 0.0

    def reap(self):
        pass

    def start(self):
        self.starts += 1

    def last_words(self):
        return "no room"


@pytest.mark.parametrize(("steady_s", "starts"), [(float("inf"), MOST_EARLY), (0.0, MOST_STARTS)])
def test_who_does_not_stay_is_given_up_after_a_while(monkeypatch, capsys, steady_s, starts):
    monkeypatch.setattr(show, "STEADY_S", steady_s)
    shown = Show(None, None, [], 1.0)
    broker, city = Weak("broker"), Weak("city")
    broker.runs = True
    shown._brokers.append(broker)
    shown._others.append(city)
    for _ in range(2 * starts):
        shown._look()
    assert city.starts == starts
    said = capsys.readouterr().out
    assert said.count("city ended with code 1; starting it again") == starts - 1
    assert said.count("city ended with code 1 and is not started again; it said: no room") == 1


def test_without_a_broker_there_is_nothing_to_show(monkeypatch):
    monkeypatch.setattr(show, "STEADY_S", float("inf"))
    shown = Show(None, None, [], 1.0)
    shown._brokers.append(Weak("broker"))
    for _ in range(MOST_EARLY - 1):
        shown._look()
    with pytest.raises(DemoError, match="broker ended with code 1 and is not started again; it said: no room"):
        shown._look()
