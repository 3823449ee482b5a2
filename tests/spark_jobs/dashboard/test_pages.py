"""The dashboard as somebody sees it: a real browser, a real broker, and traffic between them."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest

from benchmarks.peers import default_plugins
from tests.brokers import RunningBroker, free_port, locus
from tests.mqtt_wire import connect, publish
from tests.spark_jobs.dashboard.browser import Visit, chromium, dashboard, needs_chromium
from tests.spark_jobs.dashboard.small_city import LAT, LON, SmallCity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = [needs_chromium, pytest.mark.xdist_group("browser"), pytest.mark.timeout(600)]
VIEWS = {"/": "Map", "/traffic": "Traffic", "/retained": "Retained", "/ranked": "Ranked", "/cluster": "Cluster"}


def broker_at(directory: Path, port: int) -> contextlib.AbstractContextManager[RunningBroker]:
    plugins = {name: dict(options or {}) for name, options in default_plugins().items()}
    plugins["broker_plugins.sys_topics.SysTopicsPlugin"] = {"interval_s": 0.5}
    plugins["broker_plugins.geo.plugin.GeoPlugin"] = {"blocks_interval_s": 0.5}
    rule = {"city/sensors/+/+": {"policy": "renewal"}}
    plugins["broker_plugins.retained.plugin.RetainedPlugin"] = {"topics": rule}
    del plugins["broker_plugins.prometheus.PrometheusPlugin"]
    return locus(plugins=plugins, port=port, directory=directory)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


class Place:
    """A broker with a small city, and a dashboard that shows it."""

    def __init__(self, directory: Path, listeners: int) -> None:
        self.directory = directory
        self.listeners = listeners
        self.port = free_port()
        self.address = ""
        self.broker: RunningBroker | None = None
        self._stack = contextlib.ExitStack()

    def start_broker(self) -> None:
        self.broker = self._stack.enter_context(broker_at(self.directory, self.port))

    def kill_broker(self) -> None:
        assert self.broker is not None
        self.broker.kill()

    def __enter__(self) -> Self:
        self.start_broker()
        self.address = self._stack.enter_context(dashboard(self.directory, self.port))
        city = self._stack.enter_context(SmallCity(self.port))
        city.listen_around(self.listeners)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(tmp_path_factory.mktemp("dashboard"), listeners=24) as found:
        yield found


@pytest.fixture
def visit(browser: Browser, place: Place) -> Iterator[Visit]:
    found = Visit(browser, place.address, 1440, 900)
    try:
        yield found
    finally:
        found.close()


def number(text: str) -> float:
    found = re.search(r"[\d.,]+", text)
    assert found is not None, text
    return float(found[0].replace(",", ""))


def layer_count(visit: Visit, name: str) -> int:
    said = visit.page.locator(".lm-layers label", has_text=name).locator(".lm-count").text_content()
    return int(said or 0)


@pytest.mark.parametrize(("width", "height", "scheme"), [(1440, 900, "light"), (375, 812, "dark")])
def test_every_view_opens_without_a_word_of_complaint_or_a_request_elsewhere(
    browser: Browser, place: Place, width: int, height: int, scheme: str
) -> None:
    visit = Visit(browser, place.address, width, height, color_scheme=scheme)
    try:
        for path, title in VIEWS.items():
            page = visit.go(path)
            assert page.title() == f"{title} · Locus"
            assert page.locator("nav a[aria-current=page]").inner_text() == title
            if path == "/":
                visit.wait(lambda: layer_count(visit, "Vehicles") > 0, "vehicles")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{path} is {wide} px wide on a screen of {width}"
            dark = "document.body.classList.contains('body--dark')"
            visit.wait(lambda dark=dark: visit.page.evaluate(dark) == (scheme == "dark"), "the theme")
            visit.shoot(f"{title.lower()}-{width}-{scheme}")
        visit.check()
    finally:
        visit.close()


def test_the_map_shows_what_moves_and_draws_it(visit: Visit) -> None:
    page = visit.go("/")
    visit.wait(lambda: layer_count(visit, "Vehicles") == 40 and layer_count(visit, "People") == 20, "all that moves")
    visit.wait(lambda: layer_count(visit, "Subscribers") == 5, "subscribers")
    visit.wait(
        lambda: layer_count(visit, "R blocks") > 0 and layer_count(visit, "Q blocks") > 0, "both sides of the index"
    )
    pixels = "(() => { const c = document.querySelector('canvas'); return c.toDataURL(); })()"
    first = page.evaluate(pixels)
    visit.wait(lambda: page.evaluate(pixels) != first, "movement")
    visit.wait(lambda: page.get_by_text("Q+R index").is_visible(), "a word on the index")
    visit.check()


def test_the_numbers_move_and_are_those_of_the_broker(visit: Visit, place: Place) -> None:
    page = visit.go("/traffic")
    heard: list[tuple[float, int]] = []
    stop = threading.Event()

    def listen() -> None:
        with connect(place.port, "counter") as wire:
            wire.subscribe(("$SYS/broker/publish/messages/received", 0))
            while not stop.is_set():
                (message,) = wire.messages(1, 60)
                heard.append((time.monotonic(), int(message.payload)))

    thread = threading.Thread(target=listen)
    thread.start()
    try:

        def shown() -> float:
            return number(page.locator(".l-tile", has_text="Published a second").locator(".l-note").inner_text())

        visit.wait(lambda: len(heard) > 3, "the broker's counters")
        visit.wait(lambda: shown() > 0, "a total")
        first = shown()
        visit.wait(lambda: shown() > first + 50, "the total to grow")
        # What the page shows is a value that the broker told: one that we heard as well.
        visit.wait(lambda: shown() in {value for _, value in heard}, "the broker's own number")
        visit.wait(lambda: visit.text("published-rate") != "–", "a rate")
        (t0, v0), (t1, v1) = heard[0], heard[-1]
        mean = (v1 - v0) / (t1 - t0)
        visit.wait(lambda: 0.2 * mean < number(visit.text("published-rate")) < 5 * mean, "a rate like ours")
        visit.wait(lambda: number(visit.text("clients")) >= 26, "24 listeners, the city, the dashboard")
    finally:
        stop.set()
        thread.join()
    visit.wait(lambda: "Spark is not started" in page.locator("#content").inner_text(), "what is missing")
    visit.check()


def test_windows_of_spark_appear_when_they_come(visit: Visit, place: Place) -> None:
    page = visit.go("/traffic")
    window = {"from": "2026-05-04T09:00:00Z", "seconds": 10, "publishes_per_s": 3, "latency_p99_us": 1234.0}
    with connect(place.port, "spark") as wire:
        wire.send(publish("locus/metrics/n1/10s", json.dumps(window).encode()))
        wire.send(publish("locus/metrics/n1/10s/prefix/city", json.dumps(window).encode()))
        wire.messages_until_ping()
    visit.wait(lambda: "1.23 ms" in visit.text("latency"), "a latency")
    visit.wait(lambda: "city" in page.locator("table", has_text="Prefix").inner_text(), "a prefix")
    visit.wait(lambda: not page.get_by_text("Spark is not started").is_visible(), "nothing to be missing")
    page.goto(f"{visit.address}/cluster")
    visit.wait(lambda: "n1" in page.locator("table", has_text="Node").first.inner_text(), "the node")
    visit.check()


def test_the_broker_is_asked_why_a_retained_message_waits(visit: Visit) -> None:
    page = visit.go("/retained")
    topic = page.locator(".l-ask input")
    topic.fill("city/sensors/#")
    page.locator("[data-mark=ask]").click()
    visit.wait(lambda: "without + and #" in visit.text("explained"), "the complaint")
    topic.fill("city/sensors/t1/temperature")
    page.locator("[data-mark=ask]").click()
    visit.wait(lambda: "Rule city/sensors/+/+: policy renewal decides" in visit.text("explained"), "an answer")
    visit.check()


def test_matches_come_with_their_receivers(visit: Visit) -> None:
    page = visit.go("/ranked")
    visit.wait(lambda: "city-worker-1" in page.locator("#content").inner_text(), "a receiver")
    before = number(visit.text("receipts"))
    visit.wait(lambda: number(visit.text("receipts")) > before, "another receipt")
    visit.wait(lambda: "$where/age" in page.locator("table").inner_text(), "what a receiver wants")
    visit.check()


def test_a_fence_is_drawn_with_the_mouse_and_its_messages_are_seen(visit: Visit, place: Place) -> None:
    page = visit.go("/")
    visit.wait(lambda: layer_count(visit, "Vehicles") > 0, "vehicles")
    page.locator(".l-field input").first.fill("drawn")
    page.locator("[data-mark=draw]").click()
    page.locator(".lm-drawing").wait_for()
    box = page.locator("canvas").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for dx, dy in ((-120, -90), (130, -80), (110, 100), (-100, 110)):
        page.mouse.click(x + dx, y + dy)
    page.get_by_role("button", name="Close fence").click()
    with connect(place.port, "reader") as wire:
        wire.subscribe(("locus/fence/drawn", 0))
        (kept,) = wire.messages(1, 60)
        ring = json.loads(kept.payload)["coordinates"][0]
        assert len(ring) == 5
        assert ring[0] == ring[-1]
        assert all(abs(lon - LON) < 0.01 and abs(lat - LAT) < 0.01 for lon, lat in ring)
    visit.wait(lambda: "messages inside" in page.locator("[data-count=drawn]").inner_text(), "messages inside")
    visit.wait(lambda: "city/" in page.locator("[data-fence=drawn] li").first.inner_text(), "a topic")
    visit.wait(lambda: layer_count(visit, "Fences") == 1, "the fence on the map")
    visit.wait(lambda: page.locator(".l-field input").first.input_value() == "fence-1", "a name for the next one")
    visit.shoot("map-with-a-fence")
    page.get_by_role("button", name="Remove drawn").click()
    page.get_by_role("button", name="Remove drawn").click()
    visit.wait(lambda: layer_count(visit, "Fences") == 0, "the fence to go")
    visit.check()


def test_a_fence_is_put_with_the_keyboard_alone(visit: Visit) -> None:
    page = visit.go("/")
    visit.wait(lambda: layer_count(visit, "Vehicles") > 0, "vehicles")
    page.locator(".l-field input").first.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("typed")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # past the button that draws, to what opens the form
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Put fence").focus()
    page.keyboard.press("Enter")
    visit.wait(lambda: layer_count(visit, "Fences") == 1, "the fence")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "who has the focus is seen"
    page.locator("canvas").focus()
    before = page.evaluate("document.querySelector('canvas').toDataURL()")
    page.keyboard.press("+")
    visit.wait(lambda: page.evaluate("document.querySelector('canvas').toDataURL()") != before, "the map to zoom")
    page.get_by_role("button", name="Remove typed").click()
    page.get_by_role("button", name="Remove typed").click()
    visit.wait(lambda: layer_count(visit, "Fences") == 0, "the fence to go")
    visit.check()


def test_what_is_being_typed_stays(visit: Visit) -> None:
    page = visit.go("/")
    visit.wait(lambda: layer_count(visit, "Vehicles") > 0, "vehicles")
    name = page.locator(".l-field input").first
    name.fill("half-a-na")
    alerts = page.locator("section", has_text="Alerts")
    before = alerts.inner_text()
    visit.wait(lambda: alerts.inner_text() != before, "something else on the page to change")
    assert name.input_value() == "half-a-na"


def test_a_fence_that_the_broker_refuses_is_said_so(visit: Visit) -> None:
    page = visit.go("/")
    page.locator(".l-field input").first.fill("bad name")
    page.locator("[data-mark=draw]").click()
    visit.wait(lambda: "no name for a fence" in visit.text("fence-said"), "the complaint")
    page.locator(".l-field input").first.fill("crossed")
    page.locator("[data-mark=draw]").click()
    page.locator(".lm-drawing").wait_for()
    box = page.locator("canvas").bounding_box()
    assert box is not None
    for dx, dy in ((300, 300), (500, 500), (500, 300), (300, 500)):  # a bow tie
        page.mouse.click(box["x"] + dx, box["y"] + dy)
    page.keyboard.press("Enter")
    visit.wait(lambda: "did not keep" in visit.text("fence-said"), "the refusal")
    visit.check()


def test_the_theme_is_changed_and_remembered(visit: Visit) -> None:
    page = visit.go("/traffic")
    dark = "document.body.classList.contains('body--dark')"
    assert not page.evaluate(dark)
    for _ in range(2):
        page.locator(".l-theme").click()
    visit.wait(lambda: page.evaluate(dark), "the dark")
    visit.go("/ranked")
    visit.wait(lambda: page.evaluate(dark), "the dark again")
    visit.check()


def test_the_page_says_when_the_broker_is_away_and_recovers(browser: Browser, tmp_path: Path) -> None:
    with Place(tmp_path, listeners=0) as own:
        visit = Visit(browser, own.address, 1440, 900)
        try:
            page = visit.go("/traffic")
            visit.wait(lambda: visit.text("clients") != "–", "numbers")
            banner = page.locator("[data-mark=broker-away]")
            banner.wait_for(state="hidden")
            own.kill_broker()
            banner.wait_for(state="visible")
            said = rf"127\.0\.0\.1:{own.port} is away since \d\d:\d\d:\d\d"
            visit.wait(lambda: re.search(said, banner.inner_text()), "since when")
            visit.wait(lambda: "Trying again" in banner.inner_text(), "what is being done about it")
            visit.shoot("broker-away")
            own.start_broker()
            banner.wait_for(state="hidden")
            before = number(page.locator(".l-tile", has_text="Published a second").locator(".l-note").inner_text())

            def grown() -> bool:
                said = page.locator(".l-tile", has_text="Published a second").locator(".l-note").inner_text()
                return number(said) not in (0.0, before)

            visit.wait(grown, "numbers that move again")
            visit.check()
        finally:
            visit.close()


def test_a_password_lets_in_and_nothing_else_does(browser: Browser, place: Place, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame\n")
    with dashboard(tmp_path, place.port, "--password-file", str(tmp_path / "password")) as address:
        visit = Visit(browser, address, 1440, 900)
        try:
            page = visit.page
            page.goto(f"{address}/traffic")
            assert page.url == f"{address}/login"
            page.get_by_label("Password").fill("open sesam")
            page.get_by_role("button", name="Sign in").click()
            page.get_by_text("That is not the password").wait_for()
            visit.problems.clear()  # the browser tells of the 401 that was asked for
            page.get_by_label("Password").fill("open sesame")
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_selector("canvas")
            visit.wait(lambda: layer_count(visit, "Vehicles") > 0, "vehicles, over a WebSocket that is let in")
            visit.check()
        finally:
            visit.close()
