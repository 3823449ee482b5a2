"""Draws the figures for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from clients.top.figures import SILENT_S, figure

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clients.top.figures import Figures

LONGEST_NAME = 48
ROWS = 8
"""Busiest topics shown."""
NO_PIPELINE = "Latencies, topics and decisions come from Spark: start `locus pipeline`, with telemetry on in the broker"


def picture(figures: Figures, broker: str, away: str | None, now_s: float) -> RenderableType:
    """Everything in one.

    Args:
        figures: what is known.
        broker: how to call it.
        away: why there is no connection; None if there is one.
        now_s: seconds since 1970.
    """
    parts: list[RenderableType] = [_head(figures, broker, away)]
    if figures.values:
        parts.append(_broker(figures))
    elif away is None:
        parts.append(Text("The broker tells nothing of itself: add SysTopicsPlugin to its `plugins:`", style="yellow"))
    if figures.owners:
        parts.append(_map(figures))
    measured_s = figures.measured_s()
    if measured_s is None:
        parts.append(Text(NO_PIPELINE, style="yellow"))
        return Group(*parts)
    silent_s = now_s - measured_s
    if silent_s > SILENT_S:
        parts.append(
            Text(f"What Spark shows is {duration(silent_s)} old: it is starting, slow or gone", style="yellow")
        )
    parts += [_nodes(figures), _topics(figures), _retained(figures)]
    return Group(*parts)


def _head(figures: Figures, broker: str, away: str | None) -> RenderableType:
    if away is not None:
        return Panel(Text(f"{broker} is away: {away}; trying again", style="bold red"), box=box.ROUNDED)
    uptime = figures.number("uptime")
    words = Text.assemble((broker, "bold green"), " is up" if uptime is None else f" is up for {duration(uptime)}")
    return Panel(words, box=box.ROUNDED)


def _broker(figures: Figures) -> RenderableType:
    grid = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for _ in range(3):
        grid.add_column(style="dim")
        grid.add_column(justify="right")
    grid.add_row(
        "messages in",
        _rate(figures, "publish/messages/received"),
        "clients",
        _whole(figures, "clients/connected"),
        "retained",
        _whole(figures, "retained messages/count"),
    )
    grid.add_row(
        "deliveries",
        _rate(figures, "publish/messages/sent"),
        "sessions",
        _whole(figures, "clients/total"),
        "stored",
        _bytes(figures.number("store/messages/bytes")),
    )
    grid.add_row(
        "dropped",
        _rate(figures, "publish/messages/dropped"),
        "subscriptions",
        _whole(figures, "subscriptions/count"),
        "memory",
        _bytes(figures.number("heap/current")),
    )
    grid.add_row(
        "bytes in, out",
        f"{_byte_rate(figures, 'bytes/received')}, {_byte_rate(figures, 'bytes/sent')}",
        "dropped in all",
        _whole(figures, "publish/messages/dropped"),
        "in all",
        _whole(figures, "publish/messages/received"),
    )
    return grid


def _table(title: str, *columns: str) -> Table:
    drawn = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        drawn.add_column(name, justify="right" if number else "left")
    return drawn


def _nodes(figures: Figures) -> RenderableType:
    drawn = _table("Nodes, last 10 s", "node", "in /s", "out /s", "drops /s", "p50", "p95", "p99", "clients", "filters")
    for node in sorted(figures.nodes.values(), key=lambda each: each.name):
        window = node.window
        drawn.add_row(
            plain(node.name),
            *(f"{figure(window, f'{name}_per_s'):,.1f}" for name in ("publishes", "deliveries", "drops")),
            *(latency(figure(window, f"latency_{name}_us") or None) for name in ("p50", "p95", "p99")),
            *(f"{figure(window, name):,.0f}" if name in window else "–" for name in ("connections", "subscriptions")),
        )
    return drawn


def _map(figures: Figures) -> RenderableType:
    drawn = _table("The map", "node", "blocks", "load /s")
    for name, share in sorted(figures.owners.items()):
        drawn.add_row(plain(name), f"{share.blocks:,}", f"{share.load:,.1f}")
    return drawn


def _topics(figures: Figures) -> RenderableType:
    drawn = _table("Busiest topics, last 10 s", "topic", "in /s", "out /s", "p99", "node")
    for prefix in figures.busiest(ROWS):
        window = prefix.window
        drawn.add_row(
            plain(f"{prefix.name}/…"),
            *(f"{figure(window, f'{name}_per_s'):,.1f}" for name in ("publishes", "deliveries")),
            latency(figure(window, "latency_p99_us") or None),
            plain(prefix.node),
        )
    return drawn if drawn.row_count else Text("No topics in the last 10 s", style="dim")


def _retained(figures: Figures) -> RenderableType:
    drawn = _table("Retained messages, last minute", "node", "decisions", "not sent", "bytes saved", "ranked", "width")
    for node in sorted(figures.nodes.values(), key=lambda each: each.name):
        window = node.minute or node.window
        decisions, saved = figure(window, "retained_decisions"), figure(window, "retained_saved")
        share = f" ({saved / decisions:.0%})" if decisions else ""
        drawn.add_row(
            plain(node.name),
            f"{decisions:,.0f}",
            f"{saved:,.0f}{share}",
            _bytes(figure(window, "retained_bytes_saved")),
            f"{figure(window, 'matches'):,.0f}",
            f"{figure(window, 'match_width_mean'):.3f}" if "match_width_mean" in window else "–",
        )
    return drawn


def _rate(figures: Figures, name: str) -> str:
    rate = figures.rates.get(name)
    return "–" if rate is None else f"{rate:,.1f} /s"


def _byte_rate(figures: Figures, name: str) -> str:
    rate = figures.rates.get(name)
    return "–" if rate is None else f"{_bytes(rate)}/s"


def _whole(figures: Figures, name: str) -> str:
    value = figures.number(name)
    return "–" if value is None else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.2f} GB"


def plain(name: str) -> Text:
    """A name that anybody may have made up: no markup, nothing that a terminal would obey, and not too long."""
    return Text("".join(each if each.isprintable() else "?" for each in name[:LONGEST_NAME]))


def latency(microseconds: float | None) -> str:
    """A latency as people say it."""
    if microseconds is None:
        return "–"
    return f"{microseconds:,.0f} µs" if microseconds < 1000 else f"{microseconds / 1000:,.1f} ms"


def duration(seconds: float) -> str:
    """A time as people say it."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    hours = whole // 3600
    return f"{hours} h {whole % 3600 // 60} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"
