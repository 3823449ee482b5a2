"""The dashboard's web application: NiceGUI's pages behind the gate."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI
from nicegui import app as pages
from nicegui import ui

from spark_jobs.dashboard.gate import Gate
from spark_jobs.dashboard.views import cluster_view, map_view, ranked_view, retained_view, traffic_view
from spark_jobs.dashboard.widgets import box, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from spark_jobs.dashboard.desk import Desk

STATIC: Final = Path(__file__).parent / "static"
_VIEWS: Final = {
    "/": map_view.show,
    "/traffic": traffic_view.show,
    "/retained": retained_view.show,
    "/ranked": ranked_view.show,
    "/cluster": cluster_view.show,
}
_MARK: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><circle cx="12" cy="12" r="9" fill="none" '
    'stroke="#2357c5" stroke-width="2.6"/><circle cx="12" cy="12" r="3.5" fill="#2357c5"/></svg>'
)


def build_app(desk: Desk, password: str | None) -> FastAPI:
    """The application; one for a process, for NiceGUI has one set of pages.

    Args:
        desk: what its pages show; started and stopped with the application.
        password: what visitors have to know, if anything.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        desk.start()
        try:
            yield
        finally:
            desk.stop()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    pages.add_static_files("/assets", STATIC, max_cache_age=0)
    ui.add_head_html('<link rel="stylesheet" href="/assets/dashboard.css">', shared=True)
    for path, show in _VIEWS.items():
        ui.page(path)(lambda show=show: show(desk))
    ui.run_with(
        app,
        title="Locus",
        favicon=_MARK,
        dark=None,
        language="en-US",
        tailwind=False,
        reconnect_timeout=10.0,
        message_history_length=50,  # a page that was away for longer gets everything anew
        binding_refresh_interval=None,
        show_welcome_message=False,
    )
    app.add_middleware(Gate, password=password)
    return app


@pages.exception_handler(404)
def _not_found(*_: object) -> None:
    with box("div", "l-main"):
        text("h1", "There is no such view")
        text("a", "To the map").props("href=/")
