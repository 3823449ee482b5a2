"""What is around every view: the way from one to another, how the broker is, and the switch of the theme."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from nicegui import ui

from spark_jobs.dashboard import said
from spark_jobs.dashboard.widgets import Theme, box, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.dashboard.desk import Desk

_ICON: Final = (
    '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" '
    'stroke-linejoin="round" aria-hidden="true">{}</svg>'
)
VIEWS: Final = {
    "/": ("Map", '<path d="M9 4 3 6v14l6-2 6 2 6-2V4l-6 2-6-2zM9 4v14M15 6v14"/>'),
    "/traffic": ("Traffic", '<path d="M3 17l5-6 4 4 4-7 5 5"/><path d="M3 21h18"/>'),
    "/retained": ("Retained", '<path d="M4 7l8-4 8 4v10l-8 4-8-4zM4 7l8 4 8-4M12 11v10"/>'),
    "/ranked": ("Ranked", '<path d="M5 20V12M12 20V5M19 20v-9"/>'),
    "/cluster": ("Cluster", '<path d="M10 3h4v4h-4zM3 17h4v4H3zM17 17h4v4h-4zM11 7l-5 10M13 7l5 10M7 19h10"/>'),
}
"""The views by their paths: name and icon."""
_BRAND: Final = (
    '<svg width="22" height="22" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2.2" '
    'aria-hidden="true"><circle cx="12" cy="12" r="9"/><circle cx="12" cy="12" r="3" fill="currentColor"/></svg>'
)


@contextmanager
def shell(desk: Desk, path: str, *, full: bool = False) -> Iterator[None]:
    """The frame of a page; what is made inside stands in its middle.

    Args:
        desk: what all pages share.
        path: which view it is.
        full: whether the view takes all the width.
    """
    name = VIEWS[path][0]
    ui.page_title(f"{name} · Locus")
    text("a", "Skip to the content", "l-skip").props("href=#content")
    with box("header", "l-top"):
        with box("a", "l-brand").props('href=/ aria-label="Locus, to the map"'):
            ui.html(_BRAND, sanitize=False, tag="span")
            text("span", "Locus")
        with box("nav", "l-nav").props("aria-label=Views"):
            for target, (title, icon) in VIEWS.items():
                with box("a").props(f"href={target}") as link:
                    ui.html(_ICON.format(icon), sanitize=False, tag="span")
                    text("span", title)
                if target == path:
                    link.props("aria-current=page")
        with box("div", "l-link").props("role=status"):
            dot = box("span", "l-dot").props("aria-hidden=true")
            state = text("span", "")
        Theme()
    with box("div", "l-banner l-bad").props("role=alert data-mark=broker-away") as banner:
        headline = text("strong")
        detail = text("span")
    with box("div", "l-banner l-warn").props("role=status data-mark=refused") as refused:
        refusal = text("span")
    with box("div", "l-banner l-warn").props("role=status data-mark=lake") as lake:
        fault = text("span")

    def refresh() -> None:
        link = desk.feed.link
        address = desk.options.broker.shown
        if link.connected:
            dot.classes(add="l-on")
        else:
            dot.classes(remove="l-on")
        state.set_text(address if link.connected else "broker away")
        banner.set_visibility(not link.connected)
        if not link.connected:
            away = f"since {said.clock(link.since_s)} ({said.ago(time.time() - link.since_s).removesuffix(' ago')})"
            headline.set_text(f"The broker at {address} is away {away}.")
            hint = "What is shown is from before." if link.connections else "Start one with: locus broker."
            detail.set_text(f"{link.reason[0].upper()}{link.reason[1:]}. {hint} Trying again every few seconds.")
        lake.set_visibility(bool(desk.lake_fault))
        fault.set_text(f"The lake cannot be read: {desk.lake_fault}. What comes from it is missing or old.")
        refused.set_visibility(link.connected and bool(desk.feed.refused))
        if desk.feed.refused:
            refusal.set_text(
                f"The broker does not let the dashboard subscribe to {', '.join(desk.feed.refused)}: "
                "what comes from there is missing."
            )

    refresh()
    ui.timer(1.0, refresh)
    with box("div", "l-main l-full" if full else "l-main").props("id=content"):
        yield


def heading(title: str, about: str) -> None:
    """The title of a view and a sentence on it."""
    with box("div"):
        text("h1", title)
        text("p", about)
