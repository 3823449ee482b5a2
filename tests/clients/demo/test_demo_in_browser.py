"""The whole demonstration as somebody sees it: `locus demo` with Spark, and a browser on its page."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import psutil
import pytest

from spark_jobs.session import java_path
from tests.clients.demo.test_demo import Demo, assert_nothing_is_left, demo, parts
from tests.mqtt_wire import connect, publish
from tests.spark_jobs.dashboard.browser import Visit, chromium, needs_chromium

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(java_path() is None, reason="Spark needs Java: apt-get install openjdk-17-jre-headless"),
    pytest.mark.xdist_group("demo-in-browser"),
    pytest.mark.timeout(1_500),
]
SPARK_S = 300.0
"""How long what goes through Spark may take: it has to start, and other work may be going on."""
LAPTOP, PHONE = {"width": 1440, "height": 900}, {"width": 375, "height": 812}
VEHICLES, SUBSCRIBERS, CITY_FENCES = 300, 36, 6
"""Of the city where nothing else is said."""
RECEIVED, DELIVERED = "locus_messages_received_total", "locus_deliveries_total"
DECISIONS, RECEIPTS = "locus_retained_decisions_total", "locus_ranked_receipts_total"
QUIET_S = 6.0
"""What has not changed for so long while the city is held does not change any more."""


@dataclass
class Place:
    """A demonstration that runs, and a page of it that is looked at."""

    running: Demo
    visit: Visit

    @property
    def page(self) -> Page:
        return self.visit.page

    def counters(self) -> dict[str, float]:
        """The broker's own counters, as Prometheus reads them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.running.ports[1]}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.partition(" ") for line in lines) if name != "#"}

    def part(self, word: str) -> psutil.Process:
        """The process of one part of the demonstration."""
        (found,) = parts(self.running, word)
        return found

    @contextmanager
    def held_city(self) -> Iterator[None]:
        """Hold the traffic, so that counts can be compared."""
        city = self.part("city")
        city.suspend()
        try:
            yield
        finally:
            city.resume()

    def shown(self, mark: str) -> float:
        """A number on the page; NaN where there is none yet."""
        return number(self.visit.text(mark))

    def total(self, tile: str) -> float:
        """The total in the note of a tile."""
        return number(self.page.locator(".l-tile", has_text=tile).locator(".l-note").inner_text())

    def layer(self, name: str) -> int:
        said = self.page.locator(".lm-layers label", has_text=name).locator(".lm-count").text_content()
        return int(said or 0)

    def drawn(self, chart: str) -> bool:
        """Whether a chart has lines or bars in it."""
        figure = self.page.locator(f"figure[aria-label^='{chart}']")
        lines = figure.locator("path.lc-line").evaluate_all("all => all.map(each => each.getAttribute('d'))")
        bars = figure.locator("rect").evaluate_all("all => all.map(each => each.getAttribute('height'))")
        return any("L" in line for line in lines if line) or any(float(height) > 1 for height in bars)

    def settled(self, *what: Callable[[], float]) -> list[float]:
        """Numbers, once none of them has changed for a while."""
        seen, since_s = [each() for each in what], time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since_s
            now = [each() for each in what]
            if now != seen:
                seen, since_s = now, time.monotonic()
            return time.monotonic() - since_s >= QUIET_S

        self.visit.wait(quiet, "the traffic to rest")
        return seen


def number(text: str) -> float:
    found = re.search(r"[\d.,]*\d", text)
    return float("nan") if found is None else float(found[0].replace(",", ""))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def place(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    data = tmp_path_factory.mktemp("demo")
    with demo("--data", str(data)) as running:
        page = running.wait_for("the dashboard is open").partition("open: ")[2]
        running.wait_for("Spark measures", SPARK_S)
        running.wait_for("everything runs")
        visit = Visit(browser, page, **LAPTOP)
        try:
            yield Place(running, visit)
        finally:
            visit.close()


def map_is_there(place: Place) -> bool:
    return (
        place.layer("Vehicles") == VEHICLES
        and place.layer("Subscribers") == SUBSCRIBERS
        and place.layer("Fences") == CITY_FENCES
        and place.layer("R blocks") > 0
        and place.layer("Q blocks") > 0
    )


def traffic_is_there(place: Place) -> bool:
    prefixes = place.page.locator("table", has_text="Prefix")
    return (
        place.shown("published-rate") > 0
        and place.shown("latency") > 0
        and place.drawn("Messages a second")
        and place.drawn("Latency quantiles")
        and prefixes.count() == 1
        and "city" in prefixes.inner_text()
    )


def retained_is_there(place: Place) -> bool:
    return place.shown("decisions") > 0 and place.drawn("Decisions") and place.drawn("Waits")


def ranked_is_there(place: Place) -> bool:
    return (
        place.shown("receipts") > 0
        and "city-worker" in place.page.locator("#content").inner_text()
        and place.drawn("Mean width")
    )


def cluster_is_there(place: Place) -> bool:
    nodes = place.page.locator("table", has_text="Published/s")
    return place.shown("nodes") == 1 and nodes.count() == 1 and "live" in nodes.inner_text()


VIEWS = {
    "/": ("map", map_is_there),
    "/traffic": ("traffic", traffic_is_there),
    "/ranked": ("ranked", ranked_is_there),
    "/cluster": ("cluster", cluster_is_there),
    "/retained": ("retained", retained_is_there),
}


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_has_something_to_show_light_and_dark_and_on_a_phone(place: Place, path: str) -> None:
    name, is_there = VIEWS[path]
    page = place.visit.go(path)
    place.visit.wait(lambda: is_there(place), f"all that {name} shows", SPARK_S)
    assert not page.locator("[data-mark=broker-away]").is_visible()
    dark = "document.body.classList.contains('body--dark')"
    try:
        place.visit.shoot(f"demo-{name}-light", whole=True)
        page.emulate_media(color_scheme="dark")
        place.visit.wait(lambda: page.evaluate(dark), "the dark")
        place.visit.shoot(f"demo-{name}-dark", whole=True)
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="light")
        place.visit.wait(lambda: not page.evaluate(dark), "the light")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], f"{name} is {width} px wide on a phone"
        place.visit.wait(lambda: is_there(place), f"all that {name} shows on a phone")
        place.visit.shoot(f"demo-{name}-phone", whole=True)
    finally:
        page.set_viewport_size(LAPTOP)
        page.emulate_media(color_scheme="light")
    place.visit.check()


def test_what_flows_is_what_the_broker_counts(place: Place) -> None:
    place.visit.go("/traffic")
    for tile, counter in (("Published a second", RECEIVED), ("Delivered a second", DELIVERED)):
        before = place.counters()[counter]
        first: list[float] = []

        def caught_up(tile: str = tile, before: float = before, first: list[float] = first) -> bool:
            first.append(place.total(tile))
            return first[-1] >= before

        place.visit.wait(caught_up, "a total that the broker had reached")
        assert before <= first[-1] <= place.counters()[counter]
        place.visit.wait(lambda tile=tile, seen=first[-1]: place.total(tile) > seen, "the total to move")
    # These go up and down, so that the same number is seen at some time.
    for mark, gauge in (("clients", "locus_connections_open"), ("subscriptions", "locus_subscriptions")):
        place.visit.wait(lambda mark=mark, gauge=gauge: place.shown(mark) == place.counters()[gauge], gauge)

    def rates_agree() -> bool:
        begun_s, begun = time.monotonic(), place.counters()[RECEIVED]
        place.page.wait_for_timeout(2_500)
        rate = (place.counters()[RECEIVED] - begun) / (time.monotonic() - begun_s)
        by_spark = number(place.page.locator("table tr", has_text="city").locator(".lt-number").first.inner_text())
        return all(rate / 3 < each < rate * 3 for each in (place.shown("published-rate"), by_spark))

    place.visit.wait(rates_agree, "rates of the page and of Spark like those of the broker", SPARK_S)
    place.visit.check()


def test_every_decision_and_every_receipt_is_counted_once(place: Place) -> None:
    # What Spark counts has gone through spool, lake and page; receipts come over MQTT.
    ranked = Visit(place.visit.context.browser, place.visit.address, **LAPTOP)
    try:
        ranked.go("/ranked")

        def on_page() -> float:
            return number(ranked.text("receipts"))

        place.visit.go("/retained")
        with place.held_city():
            receipts, told = place.settled(on_page, lambda: place.counters()[RECEIPTS])
        place.visit.wait(lambda: on_page() >= receipts + 5, "more receipts")
        with place.held_city():
            place.visit.wait(
                lambda: on_page() - receipts == place.counters()[RECEIPTS] - told, "as many receipts as the broker sent"
            )
            place.visit.wait(
                lambda: place.shown("decisions") == place.counters()[DECISIONS],
                "as many decisions as the broker took",
                SPARK_S,
            )
        ranked.check()
    finally:
        ranked.close()
    place.visit.check()


def draw(place: Place, name: str, middle: tuple[float, float], half: float) -> list[list[float]]:
    """Draw a fence on the map, its middle given as shares of its width and height; its ring as the broker kept it."""
    page = place.page
    page.locator(".l-field input").first.fill(name)
    page.locator("[data-mark=draw]").click()
    page.locator(".lm-drawing").wait_for()
    box = page.locator("canvas").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * middle[0], box["y"] + box["height"] * middle[1]
    for dx, dy in ((-half, -half), (half, -half), (half, half), (-half, half)):
        page.mouse.click(x + dx, y + dy)
    page.get_by_role("button", name="Close fence").click()
    with connect(place.running.ports[0], f"reader-of-{name}") as wire:
        wire.subscribe((f"locus/fence/{name}", 0))
        (kept,) = wire.messages(1, 90)
    ring: list[list[float]] = json.loads(kept.payload)["coordinates"][0]
    assert len(ring) == 5
    return ring


def inside(place: Place, name: str) -> float:
    """How many messages in a fence the page tells of; NaN for none."""
    return number(place.page.locator(f"[data-count={name}]").inner_text())


def test_fences_are_drawn_and_their_messages_are_seen(place: Place) -> None:
    page = place.visit.go("/")
    place.visit.wait(lambda: place.layer("Vehicles") == VEHICLES, "vehicles")
    draw(place, "crowd", (0.5, 0.5), 60)
    place.visit.wait(lambda: inside(place, "crowd") > 10, "messages of those in the middle of the city")
    ring = draw(place, "nowhere", (0.95, 0.5), 30)  # where no street is
    lon, lat = (sum(corner[axis] for corner in ring[:4]) / 4 for axis in (0, 1))
    place.visit.wait(lambda: place.layer("Fences") == CITY_FENCES + 2, "both fences on the map")
    assert "No message inside yet" in page.locator("[data-count=nowhere]").inner_text()
    with connect(place.running.ports[0], "guest") as wire:
        for step in range(3):
            position = {"lon": lon + step * 1e-5, "lat": lat}
            wire.send(publish("city/vehicles/guest/pos", json.dumps(position).encode()))
            wire.send(publish("city/vehicles/guest/pos", json.dumps({"lon": lon - 1, "lat": lat}).encode()))
        wire.messages_until_ping()
    place.visit.wait(lambda: inside(place, "nowhere") == 3, "the three messages inside, and no other")
    assert page.locator("[data-fence=nowhere] li").first.inner_text().startswith("city/vehicles/guest/pos")
    assert place.counters()["locus_geo_fences"] == CITY_FENCES + 2
    place.visit.shoot("demo-fences")
    place.visit.check()


def test_the_page_says_that_the_broker_was_killed_and_everything_recovers(place: Place) -> None:
    page = place.visit.go("/")
    fence = page.locator("[data-fence=crowd]")
    if not fence.count():
        draw(place, "crowd", (0.5, 0.5), 60)
    place.visit.wait(lambda: inside(place, "crowd") > 0, "messages before")
    banner = page.locator("[data-mark=broker-away]")
    assert not banner.is_visible()
    broker, parent = place.part("broker"), psutil.Process(place.running.process.pid)
    parent.suspend()  # it would start the broker again before anybody has looked
    try:
        killed_s = time.time()
        broker.send_signal(signal.SIGKILL)
        banner.wait_for(state="visible")
        said = rf"127\.0\.0\.1:{place.running.ports[0]} is away since \d\d:\d\d:\d\d"
        place.visit.wait(lambda: re.search(said, banner.inner_text()), "since when it is away")
        place.visit.shoot("demo-broker-killed")
        for path in ("/traffic", "/retained", "/ranked", "/cluster", "/"):
            place.visit.go(path)
            banner.wait_for(state="visible")
    finally:
        parent.resume()
    place.running.wait_for("broker ended with code -9; starting it again")
    banner.wait_for(state="hidden")
    # The city comes back, fences are still there, and what happens in them is told again.
    place.visit.wait(lambda: place.layer("Vehicles") >= VEHICLES, "all vehicles")
    place.visit.wait(lambda: page.locator("[data-fence=crowd]").count() == 1, "the fence")
    before = inside(place, "crowd")
    place.visit.wait(lambda: inside(place, "crowd") > before + 10, "messages inside again")
    place.visit.go("/traffic")
    place.visit.wait(
        lambda: 0 < place.total("Published a second") <= place.counters()[RECEIVED], "the new broker's count"
    )
    first = place.total("Published a second")
    place.visit.wait(lambda: place.total("Published a second") > first, "numbers that move")
    # Spark measures what the new broker does.
    with connect(place.running.ports[0], "reader") as wire:
        wire.subscribe(("locus/metrics/node1/10s", 0))
        deadline = time.monotonic() + SPARK_S
        while True:
            (window,) = wire.messages(1, SPARK_S)
            content = json.loads(window.payload)
            if datetime.fromisoformat(content["from"]).timestamp() > killed_s and content["publishes"] > 0:
                break
            assert time.monotonic() < deadline, f"Spark tells of nothing after the broker was killed: {content}"
    place.visit.wait(lambda: not page.get_by_text("Spark has stopped").is_visible(), "no complaint about Spark")
    place.visit.check()


def test_an_interrupt_ends_all_of_it_and_frees_every_port(place: Place) -> None:
    running, family = place.running, place.running.family()
    assert len(family) >= 6  # guardian, broker, city, dashboard, pipeline and its Java
    place.page.goto("about:blank")
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(150) == 0
    running.wait_for("everything has stopped")
    assert_nothing_is_left(running, family)
