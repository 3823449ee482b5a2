"""`locus fence put|list|rm`: the fences in which `$geo/fence:NAME` listens."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clients.errors import FenceError, NoAnswerError, SubscriptionRefusedError
from clients.fences import FENCE_PREFIX, fence_topic, read_fence
from clients.messages import encode
from clients.options import UsageError, add_connection, client_from, guarded, seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from broker_plugins.grammar import Space
    from clients.client import LocusClient
    from clients.messages import Message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus fence`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    put = actions.add_parser("put", help="publish a fence, or change it", description="Publish a fence, or change it.")
    put.add_argument("name", metavar="NAME", help="what subscribers call it: $geo/fence:NAME/…")
    put.add_argument("file", type=Path, metavar="FILE", help="a GeoJSON Polygon or a Feature of one; - is stdin")
    listing = actions.add_parser("list", help="show all fences", description="Show all fences of the broker.")
    listing.add_argument("--json", action="store_true", help="print one JSON object a fence, with its geometry")
    listing.add_argument(
        "--quiet", type=seconds, default=0.5, metavar="TIME", help="all are there when none came for so long (500ms)"
    )
    rm = actions.add_parser("rm", help="remove a fence", description="Remove a fence: its subscriptions fall silent.")
    rm.add_argument("name", metavar="NAME")
    for action in (put, listing, rm):
        add_connection(action)


def run(arguments: argparse.Namespace) -> int:
    """Put, list or remove."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {"put": _put, "list": _list, "rm": _remove}
    return guarded(f"fence {arguments.action}", lambda: actions[arguments.action](arguments))


def _put(arguments: argparse.Namespace) -> int:
    topic = fence_topic(arguments.name)
    try:
        text = sys.stdin.buffer.read() if str(arguments.file) == "-" else arguments.file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {arguments.file}: {error.strerror}") from error
    fence = read_fence(text, arguments.plane)
    with client_from(arguments) as client:
        client.publish(topic, fence.geometry, qos=1, retain=True)
        _see_it_kept(client, topic, fence.geometry, arguments.timeout)
    print(f"{arguments.name}: {fence.vertices} vertices, {_area(fence.area_m2)}")
    return 0


def _see_it_kept(client: LocusClient, topic: str, geometry: dict[str, Any], timeout_s: float) -> None:
    """Read the fence back: MQTT 3.1.1 acknowledges a publication also where the broker refuses it."""
    kept = threading.Event()

    def compare(message: Message) -> None:
        if message.payload == encode(geometry):
            kept.set()

    try:
        client.subscribe(topic, compare)
    except SubscriptionRefusedError:
        print(f"locus fence put: published, but {topic} cannot be read back to see that it is kept", file=sys.stderr)
        return
    if not kept.wait(timeout_s):
        raise FenceError(
            f"the broker did not keep the fence at {topic}: this client may not publish there, "
            "or the fence exceeds max_fence_points; the broker's log says which"
        )


def _remove(arguments: argparse.Namespace) -> int:
    topic = fence_topic(arguments.name)
    with client_from(arguments) as client:
        client.publish(topic, None, qos=1, retain=True)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    fences = _Fences()
    client = client_from(arguments)
    client.subscribe(f"{FENCE_PREFIX}+", fences.add)
    with client:
        fences.wait_until_quiet(arguments.quiet, arguments.timeout)
    for name, text in sorted(fences.found.items()):
        print(_as_json(name, text, arguments.plane) if arguments.json else _as_line(name, text, arguments.plane))
    return 0


class _Fences:
    """Collects what is retained. MQTT does not say when all of it has come, so silence has to."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._count = 0

    def add(self, message: Message) -> None:
        with self._changed:
            name = message.topic.removeprefix(FENCE_PREFIX)
            if message.payload:
                self.found[name] = message.payload
            else:
                self.found.pop(name, None)
            self._count += 1
            self._changed.notify()

    def wait_until_quiet(self, quiet_s: float, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                seen = self._count
                if not self._changed.wait_for(lambda seen=seen: self._count != seen, quiet_s):  # type: ignore[misc]  # mypy cannot infer a lambda with a default
                    return
                if time.monotonic() > deadline:
                    raise NoAnswerError(
                        f"fences still come after {timeout_s:g} s ({len(self.found)} so far): give a longer --timeout"
                    )


def _as_line(name: str, text: bytes, space: Space) -> str:
    try:
        fence = read_fence(text, space)
    except FenceError as error:
        return f"{name}\tnot a fence: {error}"
    return f"{name}\t{fence.vertices} vertices\t{_area(fence.area_m2)}"


def _as_json(name: str, text: bytes, space: Space) -> str:
    try:
        fence = read_fence(text, space)
    except FenceError as error:
        return json.dumps({"name": name, "error": str(error)}, ensure_ascii=False)
    described = {
        "name": name,
        "vertices": fence.vertices,
        "area_m2": round(fence.area_m2, 3),
        "geometry": fence.geometry,
    }
    return json.dumps(described, ensure_ascii=False)


def _area(area_m2: float) -> str:
    return f"{area_m2:,.0f} m²" if area_m2 < 1e6 else f"{area_m2 / 1e6:,.2f} km²"
