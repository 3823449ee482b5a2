"""Fences beside the map: draw one, or type one in, and see what happens inside."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.dashboard import said
from spark_jobs.dashboard.fence_watch import BadFenceError, check_name, fence_payload, square
from spark_jobs.dashboard.payloads import line, read_object, rings_of
from spark_jobs.dashboard.scene import MOST_FENCE_POINTS
from spark_jobs.dashboard.widgets import MOST_SHOWN, attributes, box, field, list_row, panel, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.dashboard.desk import Desk
    from spark_jobs.dashboard.widgets import MapCanvas

SURE_S: Final = 6.0
"""Within so much time the second press must come."""
KEPT_S: Final = 5.0
"""How long a fence may take to come back from the broker."""


def read_fence(payload: bytes) -> list[list[tuple[float, float]]]:
    """The rings of a fence as the map has them."""
    return rings_of(read_object(payload) or {}, MOST_FENCE_POINTS)


class FencePanel:
    """Draw a fence, or type one in, and see what happens inside."""

    def __init__(self, desk: Desk, canvas: MapCanvas) -> None:
        self._desk = desk
        self._canvas = canvas
        with panel("Fences", "Draw one, and see every message that happens inside it."):
            with box("div", "l-form"):
                self._name = field("Name", self._free_name(), wide=True)
                draw = text("button", "Draw on the map", "l-button l-primary").props("type=button data-mark=draw")
                draw.style("grid-column: 1 / -1").on("click", lambda _: self._draw())
            with box("details", "l-more"):
                text("summary", "Or type where it is")
                with box("div", "l-form").style("margin-top: 8px"):
                    lon, lat = self._middle()
                    self._lon = field("Longitude", f"{lon:.5f}")
                    self._lat = field("Latitude", f"{lat:.5f}")
                    self._size = field("Side of the square, m", "500")
                    put = text("button", "Put fence", "l-button").props("type=button").style("align-self: end")
                    put.on("click", lambda _: self._put_square())
            self._said = text("p", "", "l-said").props("role=status data-mark=fence-said")
            self._list = box("div")
            self._list.style("display: flex; flex-direction: column; gap: 10px")
        canvas.on("fence", lambda event: self._put(line(event.args, 1_000)))
        canvas.on("cancelled", lambda _: self._say("Nothing was drawn."))
        self._shown: dict[str, tuple[Any, Any]] = {}
        self._doubted: dict[str, float] = {}
        self._pending: tuple[str, list[list[tuple[float, float]]], float] | None = None
        self._shape: tuple[tuple[str, bool], ...] | None = None
        self.refresh()

    def _free_name(self) -> str:
        with self._desk.board.lock:
            taken = set(self._desk.board.scene.fences)
        return next(name for number in range(1, 1_000) if (name := f"fence-{number}") not in taken)

    def _middle(self) -> tuple[float, float]:
        with self._desk.board.lock:
            return self._desk.board.scene.middle or (0.0, 0.0)

    def _say(self, what: str, *, wrong: bool = False) -> None:
        self._said.set_text(what)
        self._said.classes(add="l-wrong") if wrong else self._said.classes(remove="l-wrong")

    def _draw(self) -> None:
        try:
            check_name(self._name.value)
        except BadFenceError as error:
            self._say(str(error), wrong=True)
            return
        self._say("Click the corners on the map; close the fence at the first corner, or with the button.")
        self._canvas.run_method("startDrawing")

    def _put_square(self) -> None:
        try:
            ring = square(float(self._lon.value), float(self._lat.value), float(self._size.value))
        except BadFenceError as error:
            self._say(str(error), wrong=True)
        except ValueError:
            self._say("Longitude, latitude and side are numbers.", wrong=True)
        else:
            self._put(ring)

    def _put(self, ring: list[tuple[float, float]]) -> None:
        name = self._name.value
        try:
            payload = fence_payload(ring)
            check_name(name)
        except BadFenceError as error:
            self._say(str(error), wrong=True)
            return
        if not self._desk.feed.publish(f"locus/fence/{name}", payload, retain=True):
            self._say("The broker is away: the fence was not put. Try again when it is back.", wrong=True)
            return
        self._desk.fences.watch(name)
        self._say(f"Published to locus/fence/{name}, retained; watching what happens inside.")
        self._pending = (name, read_fence(payload), time.monotonic() + KEPT_S)
        self.refresh()

    def _check_kept(self) -> None:
        """A broker cannot refuse a message in words: what it kept comes back, what it did not does not."""
        if self._pending is None:
            return
        name, rings, until_s = self._pending
        with self._desk.board.lock:
            kept = self._desk.board.scene.fence(name) == rings
        if kept:
            self._pending = None
            if self._name.value == name:
                self._name.put(self._free_name())
        elif time.monotonic() > until_s:
            self._pending = None
            self._desk.fences.leave(name)
            self._say(f"The broker did not keep {name}: its lines may cross, or you may not publish it.", wrong=True)

    def _remove(self, name: str) -> None:
        """Remove a fence at the second press: it may be somebody else's."""
        now_s = time.monotonic()
        if now_s - self._doubted.get(name, -SURE_S) >= SURE_S:
            self._doubted = {name: now_s}
            self._say(f"Press again to remove {name} for everybody.")
            return
        if self._desk.feed.publish(f"locus/fence/{name}", b"", retain=True):
            self._desk.fences.leave(name)
            self._say(f"{name} is removed.")
        else:
            self._say("The broker is away: the fence stays.", wrong=True)
        self.refresh()

    def refresh(self) -> None:
        """Show the fences there are and the latest messages of those watched."""
        self._check_kept()
        with self._desk.board.lock:
            names = self._desk.board.scene.fences[:40]
        watched = {each.name: each for each in self._desk.fences.all()}
        shape = tuple((name, name in watched) for name in [*watched, *(n for n in names if n not in watched)])
        if self._shape != shape:
            self._shape = shape
            self._rebuild(shape)
        now_s = time.time()
        for name, (count, items) in self._shown.items():
            if name not in watched:
                continue
            latest = watched[name].latest(MOST_SHOWN)
            count.set_text(f"{watched[name].count:,} messages inside" if latest else "No message inside yet.")
            for item, message in zip(items, [*latest, *[None] * MOST_SHOWN], strict=False):
                row, what, when = item
                row.set_visibility(message is not None)
                if message is not None:
                    what.set_text(message.topic)
                    when.set_text(said.ago(now_s - message.heard_s))

    def _rebuild(self, shape: tuple[tuple[str, bool], ...]) -> None:
        self._list.clear()
        self._shown = {}
        with self._list:
            if not shape:
                text("p", "There is no fence yet.", "l-none")
            for name, is_watched in shape:
                with box("div").props("role=group") as group:
                    attributes(group, aria_label=f"Fence {name}", data_fence=name)
                    with box("div").style("display: flex; gap: 8px; align-items: center"):
                        text("strong", name).style("flex: 1; overflow-wrap: anywhere")
                        if is_watched:
                            _small("Stop", f"Stop watching {name}", self._leave, name)
                        else:
                            _small("Watch", f"Watch {name}", self._watch, name)
                        _small("Remove", f"Remove {name}", self._remove, name)
                    if is_watched:
                        count = text("p", "", "l-none")
                        attributes(count, data_count=name)
                        with box("ul", "l-list"):
                            items = [list_row("l-code") for _ in range(MOST_SHOWN)]
                        self._shown[name] = (count, items)

    def _watch(self, name: str) -> None:
        try:
            self._desk.fences.watch(name)
        except BadFenceError as error:
            self._say(str(error), wrong=True)
        self.refresh()

    def _leave(self, name: str) -> None:
        self._desk.fences.leave(name)
        self.refresh()


def _small(label: str, meaning: str, work: Callable[[str], None], name: str) -> None:
    button = text("button", label, "l-button l-small").props("type=button").on("click", lambda _: work(name))
    attributes(button, aria_label=meaning)
