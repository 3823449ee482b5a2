"""Thousands of clients over real sockets that move, subscribe, leave and return, against brute force.

One random step after the other: what a step does has taken effect before the next one, so the oracle knows exactly
who must have received what. It is written from the documentation, not from the code: circles by haversine, polygons by
shapely, every subscription of every client looked at for every message.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import shapely

from benchmarks.peers import raise_descriptor_limit
from broker_plugins.engine.topics import matches
from broker_plugins.grammar import Box, Cell, Circle, Detect, Fence, Near, SmartFilter, parse_filter
from tests.broker_plugins.smart import plugins, polygon
from tests.brokers import locus
from tests.mqtt_wire import DISCONNECT, Kind, Wire, connect, publish, unsubscribe

if TYPE_CHECKING:
    from tests.mqtt_wire import Packet

CLIENTS, TEAMS, STEPS = 2_000, 20, 2_500
DOMAINS = {"v": (0.0, 100.0), "w": (0.0, 10.0)}
Place = tuple[float, float]


@dataclass
class Subscription:
    smart: SmartFilter
    qos: int
    order: int
    since: int
    accuracy: float = 1.0


@dataclass
class Client:
    name: str
    clean: bool
    wire: Wire | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    position: Place | None = None
    expected: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)

    def collect(self) -> None:
        """Read all that has come, until nothing more comes."""
        assert self.wire is not None
        while got := self.wire.messages_until_ping():
            self.note(got)

    def note(self, got: list[Packet]) -> None:
        self.received.update(f"{'R' if each.retain else ''}{each.payload.decode()}" for each in got)


@dataclass
class Event:
    topic: str
    place: Place | None
    values: dict[str, float]
    qos: int
    payload: str


def metres(one: Place, other: Place) -> float:
    (x, y), (u, v) = (tuple(map(math.radians, place)) for place in (one, other))
    half = math.sin((v - y) / 2) ** 2 + math.cos(y) * math.cos(v) * math.sin((u - x) / 2) ** 2
    return 2 * 6_371_008.8 * math.asin(math.sqrt(half))


class City:
    """The broker's clients, and what each of them must have received."""

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.random = random.Random(seed)
        self.numbers = itertools.count(1)
        self.sequence = 0
        self.fences: dict[str, shapely.Polygon] = {}
        self.retained: dict[str, Event] = {}
        self.seen: dict[tuple[str, str, str], tuple[int, bool]] = {}
        """By client, filter and topic: when the object was last heard of, and whether it was inside then."""
        self.sender = connect(port, "sender")
        self.clients = [Client(f"c{number}", clean=number % 2 == 0) for number in range(CLIENTS)]
        self.teams = [[Client(f"t{number}-{member}", clean=True) for member in range(3)] for number in range(TEAMS)]
        self.owed: Counter[int] = Counter()

    # What clients do.

    def begin(self) -> None:
        for client in itertools.chain(self.clients, *self.teams):
            self.arrive(client)
        for number, team in enumerate(self.teams):
            text = f"$share/team{number}/" + self.filter_text()
            for member in team:
                self.subscribe(member, text)
        for client in self.clients:
            for _ in range(3):
                self.subscribe(client, self.filter_text())

    def arrive(self, client: Client) -> None:
        client.wire = connect(self.port, client.name, clean=client.clean)
        if client.clean:
            client.subscriptions.clear()
            client.position = None

    def leave(self, client: Client) -> None:
        client.collect()
        assert client.wire is not None
        client.wire.send(DISCONNECT)
        client.wire.wait_until_closed()
        client.wire.close()
        client.wire = None

    def subscribe(self, client: Client, text: str) -> None:
        wire, qos = client.wire, self.random.randrange(2)
        assert wire is not None
        client.collect()
        assert wire.subscribe((text, qos)) == [qos]
        smart = parse_filter(text)
        old = client.subscriptions.get(text)
        new = Subscription(smart, qos, next(self.numbers), self.sequence)
        if old is not None:
            new.order, new.since = old.order, old.since
        for name, (low, high) in DOMAINS.items():
            for condition in smart.where.conditions if smart.where else ():
                if condition.attribute == name:
                    covered = min(condition.interval.high, high) - max(condition.interval.low, low)
                    new.accuracy *= max(0.0, covered) / (high - low)
        client.subscriptions[text] = new
        if smart.share is None and (smart.geo is None or smart.geo.detect is Detect.INSIDE):
            for event in self.retained.values():
                if self.inside(client, new, event):
                    client.expected[f"R{event.payload}"] += 1
        client.collect()

    def filter_text(self) -> str:
        pick = self.random
        lon, lat = pick.uniform(-1, 1), pick.uniform(-1, 1)
        areas = (
            f"bbox:{lon:.4f},{lat:.4f},{lon + pick.uniform(0.1, 1):.4f},{lat + pick.uniform(0.1, 1):.4f}",
            f"circle:{lon:.4f},{lat:.4f},{pick.uniform(5, 60):.2f}km",
            f"near:{pick.uniform(10, 80):.2f}km",
            f"fence:f{pick.randrange(4)}",
            f"cell:{pick.choice(['s00', 'eb', '7zz', 'kp'])}",
        )
        geo = f"$geo/{pick.choice(areas)}"
        detect = pick.choice(["", "", ";detect=enter", ";detect=exit"])
        low = pick.uniform(0, 80)
        where = f"$where/v={low:.2f}..{low + pick.uniform(1, 60):.2f}"
        if pick.random() < 0.3:
            where += f",w>{pick.uniform(0, 9):.2f}"
        inner = pick.choice(["a/#", "a/+/x", "b/#", "b/1/x", "+/2/x"])
        prefixes = pick.choice([[geo + detect], [where], [geo, where], [where, geo + detect], []])
        return "/".join([*prefixes, inner])

    # What is published.

    def event(self) -> Event:
        pick = self.random
        number = next(self.numbers)
        topic = f"{pick.choice('ab')}/{pick.randrange(6)}/x"
        place = None if pick.random() < 0.1 else (round(pick.uniform(-1, 2), 5), round(pick.uniform(-1, 2), 5))
        values = {name: round(pick.uniform(0, high * 1.1), 3) for name, (_, high) in DOMAINS.items()}
        if pick.random() < 0.1:
            del values["w"]
        return Event(topic, place, values, pick.randrange(2), json.dumps({**values, "n": number}))

    def publish(self) -> None:
        event = self.event()
        top = self.random.choice([None, None, 1, 5, 50])
        retain = self.random.random() < 0.05
        clauses = [] if event.place is None else [f"at:{event.place[0]},{event.place[1]}"]
        if top is not None:
            clauses.append(f"top:{top}")
        if clauses and event.place is not None and self.random.random() < 0.5:
            # The same place in the payload instead.
            clauses = clauses[1:]
            event.payload = json.dumps({**json.loads(event.payload), "lon": event.place[0], "lat": event.place[1]})
        topic = event.topic + (f"/@{';'.join(clauses)}" if clauses else "")
        self.sender.send(publish(topic, event.payload.encode(), qos=event.qos, retain=retain))
        if event.qos:
            self.sender.expect(Kind.PUBACK)
        self.sender.messages_until_ping()
        self.sequence += 1
        self.expect(event, top)
        if retain:
            self.retained[event.topic] = event

    def expect(self, event: Event, top: int | None) -> None:
        """Work out who gets a message, by looking at everybody."""
        found: list[tuple[float, int, Client | int, Subscription]] = []
        for client in self.clients:
            found += [(each.accuracy, each.order, client, each) for each in self.wanting(client, event)]
        for number, team in enumerate(self.teams):
            members = [(each, client) for client in team for each in self.wanting(client, event) if client.wire]
            if members:
                first = min((each.order for each, _ in members))
                found.append((members[0][0].accuracy, first, number, members[0][0]))
        if top is not None:
            found.sort(key=lambda each: each[:2])
        who_is = {self.key(who): who for _, _, who, _ in found}
        taken: dict[str | int, None] = {}
        for _, _, who, each in found:
            if top is not None and len(taken) == top:
                break
            if isinstance(who, int) or who.wire is not None or (not who.clean and each.qos and event.qos):
                taken[self.key(who)] = None
        for key in taken:
            receiver = who_is[key]
            if isinstance(receiver, int):
                self.owed[receiver] += 1
            else:
                receiver.expected[event.payload] += 1

    @staticmethod
    def key(who: Client | int) -> str | int:
        return who if isinstance(who, int) else who.name

    def wanting(self, client: Client, event: Event) -> list[Subscription]:
        return [each for text, each in client.subscriptions.items() if self.wants(client, text, each, event)]

    def wants(self, client: Client, text: str, each: Subscription, event: Event) -> bool:
        geo = each.smart.geo
        if geo is None or geo.detect is Detect.INSIDE:
            return self.inside(client, each, event)
        if not matches(each.smart.inner, event.topic) or event.place is None:
            return False
        here = self.holds(client, each, event.place)
        when, before = self.seen.get((client.name, text, event.topic), (-1, False))
        known = when > each.since
        self.seen[client.name, text, event.topic] = (self.sequence, here is True)
        if not self.satisfied(each, event):
            return False
        if geo.detect is Detect.ENTER:
            return here is True and not (known and before)
        return here is False and known and before

    def inside(self, client: Client, each: Subscription, event: Event) -> bool:
        if not matches(each.smart.inner, event.topic) or not self.satisfied(each, event):
            return False
        return each.smart.geo is None or (event.place is not None and self.holds(client, each, event.place) is True)

    def satisfied(self, each: Subscription, event: Event) -> bool:
        if each.smart.where is None:
            return True
        return all(
            condition.attribute in event.values and condition.interval.contains(event.values[condition.attribute])
            for condition in each.smart.where.conditions
        )

    def holds(self, client: Client, each: Subscription, place: Place) -> bool | None:
        """Whether an area holds a place; None where nobody knows where the area is."""
        assert each.smart.geo is not None
        area = each.smart.geo.area
        if isinstance(area, Cell):
            area = area.box
        if isinstance(area, Box):
            return area.west <= place[0] <= area.east and area.south <= place[1] <= area.north
        if isinstance(area, Circle):
            return metres((area.lon, area.lat), place) <= area.radius
        if isinstance(area, Near):
            return None if client.position is None else metres(client.position, place) <= area.radius
        assert isinstance(area, Fence)
        fence = self.fences.get(area.name)
        return None if fence is None else bool(fence.covers(shapely.Point(place)))

    # One random step.

    def step(self) -> None:
        pick = self.random
        if pick.random() < 0.25:
            self.publish()
            return
        client = pick.choice(self.clients)
        if client.wire is None:
            self.arrive(client)
            client.collect()
        elif (action := pick.random()) < 0.15:
            self.leave(client)
        elif action < 0.5:
            client.position = (round(pick.uniform(-1, 2), 5), round(pick.uniform(-1, 2), 5))
            report = {"lon": client.position[0], "lat": client.position[1]}
            client.wire.send(publish("locus/me/position", json.dumps(report).encode()))
            client.collect()
        elif action < 0.7:
            self.subscribe(client, self.filter_text())
        elif action < 0.8 and client.subscriptions:
            self.subscribe(client, pick.choice(list(client.subscriptions)))
        elif action < 0.95 and client.subscriptions:
            text = pick.choice(list(client.subscriptions))
            client.collect()
            client.wire.send(unsubscribe(text))
            client.wire.expect(Kind.UNSUBACK)
            del client.subscriptions[text]
        else:
            self.change_fence()

    def change_fence(self) -> None:
        pick = self.random
        name = f"f{pick.randrange(4)}"
        if pick.random() < 0.3:
            self.fences.pop(name, None)
            payload = b""
        else:
            x, y, size = pick.uniform(-1, 1), pick.uniform(-1, 1), pick.uniform(0.2, 1)
            corners = [(x, y), (x + size, y), (x + size / 2, y + size / 2), (x + size, y + size), (x, y + size)]
            self.fences[name] = shapely.Polygon(corners)
            payload = polygon(*corners)
        self.sender.send(publish(f"locus/fence/{name}", payload, retain=True))
        self.sender.messages_until_ping()

    def compare(self) -> tuple[int, int]:
        """Let everyone return and compare; how many messages were received, and how many of them retained ones."""
        for client in self.clients:
            if client.wire is None:
                self.arrive(client)
            client.collect()
            assert client.received == client.expected, f"{client.name}: {list(client.subscriptions)}"
        for number, team in enumerate(self.teams):
            for member in team:
                member.collect()
            shared = sum((member.received for member in team), Counter())
            assert sum(shared.values()) == self.owed[number]
            assert all(count == 1 for count in shared.values())
        everything = sum((client.received for client in self.clients), Counter())
        retained = sum(count for payload, count in everything.items() if payload.startswith("R"))
        return sum(everything.values()), retained


@pytest.mark.timeout(170)
@pytest.mark.parametrize("seed", [1])
def test_everyone_receives_exactly_what_they_asked_for(seed) -> None:
    raise_descriptor_limit()
    topics = {"#": {"attributes": {name: list(domain) for name, domain in DOMAINS.items()}}}
    with locus(plugins=plugins(ranked={"topics": topics})) as broker:
        city = City(broker.port, seed)
        for number in range(4):
            if number:
                city.change_fence()
        city.begin()
        for _ in range(STEPS):
            city.step()
        received, retained = city.compare()
        assert received > 20_000
        assert retained > 100
        assert "plugin" not in broker.log
