"""Draws what Δ-causal delivery does: a run of real `CausalNode`s on a scripted network, as a space-time diagram."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import matplotlib as mpl

from broker_plugins.causal import CausalNode, Roster

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("north", "south", "west")
LIFETIME_US = 250_000


@dataclass(slots=True, frozen=True)
class Scripted:
    """A message of the script; times in milliseconds, no travel time where the network loses the copy."""

    label: str
    at: int
    sender: str
    travel: dict[str, int | None]


@dataclass(slots=True)
class Fate:
    """What became of a copy: when it came, and when it was delivered, if ever."""

    message: Scripted
    destination: str
    arrived: float
    delivered: float | None = None


SCRIPT = (
    Scripted("m1", 20, "north", {"south": 40, "west": 190}),
    Scripted("m2", 80, "south", {"west": 40, "north": 30}),
    Scripted("m3", 330, "north", {"south": 40, "west": None}),
    Scripted("m4", 390, "south", {"west": 50}),
    Scripted("m5", 440, "north", {"south": 290}),
)


def play(script: tuple[Scripted, ...] = SCRIPT) -> list[Fate]:
    """Let the nodes decide."""
    nodes = {name: CausalNode(name, Roster(NAMES), lifetime_us=LIFETIME_US) for name in NAMES}
    fates: list[Fate] = []
    events: list[tuple[int, int, str, Scripted | None, int, bytes]] = []
    origin = 1_000_000
    for order, planned in enumerate(script):
        heappush(events, (origin + planned.at * 1000, order, "", planned, -1, b""))
    count = len(script)

    def settle(name: str, now: int) -> None:
        wakeup = nodes[name].next_wakeup()
        if wakeup is not None and wakeup > now:
            heappush(events, (wakeup, count + len(events), name, None, -1, b""))

    while events:
        now, order, name, message, fate, control = heappop(events)
        moment = (now - origin) / 1000
        if message is not None and not name:
            sent = nodes[message.sender].send(now, message.travel)
            for destination, travel in message.travel.items():
                if travel is None:
                    continue
                fates.append(Fate(message, destination, message.at + travel))
                arrival = (now + travel * 1000, order + 100, destination, message, len(fates) - 1)
                heappush(events, (*arrival, sent.control[destination]))
            continue
        node = nodes[name]
        outcome = node.poll(now) if message is None else node.receive(now, control, fate)
        for delivery in outcome.deliveries:
            fates[delivery.payload].delivered = moment
        settle(name, now)
    return fates


def draw(path: Path) -> None:
    """Write the picture."""
    fates = play()
    height = {name: len(NAMES) - 1 - place for place, name in enumerate(NAMES)}
    figure, axes = plt.subplots(figsize=(9.5, 3.6))
    for name, y in height.items():
        axes.plot([0, 760], [y, y], color="#444", lw=1, zorder=1)
        axes.text(-8, y, name, ha="right", va="center")
    colours = {message.label: f"C{place}" for place, message in enumerate(SCRIPT)}
    for message in SCRIPT:
        y = height[message.sender]
        axes.plot(message.at, y, "o", color=colours[message.label], zorder=3)
        axes.text(message.at - 4, y + 0.14, message.label, color=colours[message.label], ha="right", weight="bold")
        for destination, travel in message.travel.items():
            if travel is None:
                x, target = message.at + 150, y + (height[destination] - y) * 0.75
                axes.plot([message.at, x], [y, target], ":", color=colours[message.label])
                axes.text(x, target, f"✗ to {destination}, lost", color=colours[message.label], va="top", ha="center")
    for fate in fates:
        colour, y = colours[fate.message.label], height[fate.destination]
        axes.annotate(
            "",
            (fate.arrived, y),
            (fate.message.at, height[fate.message.sender]),
            arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.4},
        )
        if fate.delivered is None:
            axes.text(fate.arrived + 3, y + 0.1, "late: dropped", color=colour)
            continue
        before = sum(
            (other.destination, other.delivered) == (fate.destination, fate.delivered)
            and other.message.at < fate.message.at
            for other in fates
        )
        axes.plot(fate.delivered + 11 * before, y, "s", color=colour, zorder=3)  # side by side where at one moment
        if fate.delivered > fate.arrived:
            axes.plot([fate.arrived, fate.delivered], [y - 0.1, y - 0.1], color=colour, lw=6, alpha=0.45, zorder=2)
            middle = (fate.arrived + fate.delivered) / 2
            axes.text(middle, y - 0.36, f"{fate.message.label} waits", color=colour, ha="center")
    axes.set_xlim(-60, 790)
    axes.set_ylim(-0.6, len(NAMES) - 0.5)
    axes.set_yticks([])
    axes.set_xlabel(f"time in ms; a message lives Δ = {LIFETIME_US // 1000} ms; squares are deliveries")
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
