"""Does it stay fast? The same message among few and among a million areas, over few and over very many filters.

In one process and without sockets: only what finding receivers takes, in processor time. The areas shrink as there are
more of them, so that five of a filter's areas hold a place, however many there are.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.report import Row
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.message import Message
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.session import Session
from broker_plugins.geo import GeoOptions, GeoPlugin

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS: Final = 1_000
MESSAGES: Final = 5_000
HOLDING: Final = 5
"""Areas of a filter that hold a place, on average."""
WIDTH, HEIGHT = 180.0, 90.0


def _microseconds(filters: int, areas: int) -> float:
    """Processor time to route a message, with so many areas under each of so many filters."""
    loop = asyncio.new_event_loop()
    engine = Engine(loop, EngineOptions())
    engine.start([GeoPlugin(cast("Any", SimpleNamespace(config=GeoOptions())))])
    pick = random.Random(7)
    sessions = [Session(engine, f"client-{number}", clean=True) for number in range(CLIENTS)]
    height = HEIGHT * math.sqrt(HOLDING / areas)
    width = WIDTH * math.sqrt(HOLDING / areas)
    for number in range(filters * areas):
        west, south = pick.uniform(-WIDTH / 2, WIDTH / 2 - width), pick.uniform(-HEIGHT / 2, HEIGHT / 2 - height)
        box = f"{west:.6f},{south:.6f},{west + width:.6f},{south + height:.6f}"
        text = f"$geo/bbox:{box}/t/{number % filters}/pos"
        engine.adopt(engine.read_filter(sessions[number % CLIENTS], text, 0))
    messages = []
    for _ in range(MESSAGES):
        place = f'{{"lon":{pick.uniform(-60, 60):.6f},"lat":{pick.uniform(-30, 30):.6f}}}'
        messages.append(Message(f"t/{pick.randrange(filters)}/pos", place.encode(), 0, sender=sessions[0]))
    for message in messages:  # routes are found once a topic: not what is measured here
        engine.publish(message)
    started = time.process_time()
    for message in messages:
        engine.publish(message)
    taken = time.process_time() - started
    loop.close()
    return taken / MESSAGES * 1e6


def scale_rows(quick: bool, progress: Callable[[str], None]) -> list[Row]:
    """How long a message takes among many areas and among many filters, as against a thousand areas of four filters."""
    many, wide = (25_000, 10_000) if quick else (250_000, 100_000)
    progress("locus: routing among a thousand areas, among very many, and among very many filters")
    few = _microseconds(4, 250)
    among_areas, among_filters = _microseconds(4, many), _microseconds(wide, 10)
    loads = (
        (f"route a message among {4 * many:,} areas of 4 filters", among_areas),
        (f"route a message among {wide:,} filters of 10 areas", among_filters),
    )
    return [Row(load, "us", value, "1,000 areas of 4", few, less_is_better=True) for load, value in loads]
