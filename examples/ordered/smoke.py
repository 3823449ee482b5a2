"""A camera reports smoke, a control room answers, a display far away shows both: in which order?

python examples/ordered/smoke.py CAMERA ROOM DISPLAY        three nodes of a cluster, each HOST:PORT
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

ALARMS = 10


def client(name: str, address: str, subscription: str | None = None) -> Client:
    """A connected client whose subscription is granted: then all nodes know of it."""
    host, _, port = address.rpartition(":")
    ready = threading.Event()
    made = Client(CallbackAPIVersion.VERSION2, client_id=name)
    made.on_subscribe = made.on_connect = lambda *_: ready.set()
    made.connect(host or "127.0.0.1", int(port))
    made.loop_start()
    if ready.wait(timeout=60) and subscription is not None:
        ready.clear()
        made.subscribe(subscription)
    if not ready.wait(timeout=60):
        sys.exit(f"{name}: nobody answers at {address}")
    return made


def rehearse(place: str, addresses: list[str]) -> int:
    """Let it smoke; how often did the display show the answer before the alarm?"""
    shown: list[str] = []
    enough = threading.Semaphore(0)

    def on_alarm(room: Client, _data: Any, message: MQTTMessage) -> None:
        room.publish(f"{place}/answers", message.payload)

    def on_news(_display: Client, _data: Any, message: MQTTMessage) -> None:
        shown.append(f"{message.topic} {message.payload.decode()}")
        enough.release()

    camera = client(f"{place}-camera", addresses[0])
    room = client(f"{place}-room", addresses[1], f"{place}/alarms")
    display = client(f"{place}-display", addresses[2], f"{place}/#")
    room.on_message, display.on_message = on_alarm, on_news
    for number in range(ALARMS):
        camera.publish(f"{place}/alarms", str(number))
    for _ in range(2 * ALARMS):
        if not enough.acquire(timeout=60):
            sys.exit(f"the display has seen {len(shown)} of {2 * ALARMS} messages: {shown}")
    for each in (camera, room, display):
        each.disconnect()
        each.loop_stop()
    return sum(shown.index(f"{place}/answers {n}") < shown.index(f"{place}/alarms {n}") for n in range(ALARMS))


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    for place in ("lobby", "building"):
        print(f"{place}: {rehearse(place, sys.argv[1:])} of {ALARMS} answers came before their alarm", flush=True)


if __name__ == "__main__":
    main()
