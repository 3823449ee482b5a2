"""A small city for the dashboard's tests: it publishes what the contract says, until it is stopped.

Run as a program it does so until it is interrupted: `python tests/spark_jobs/dashboard/small_city.py PORT`.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from typing import Self

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

LON, LAT = 126.978, 37.566
STEP = 0.0018


class SmallCity:
    """Vehicles on a grid of streets, subscribers, alerts, receipts.

    Args:
        port: where the broker listens on 127.0.0.1.
        vehicles: how many there are.
    """

    def __init__(self, port: int, vehicles: int = 60) -> None:
        self.port = port
        self.vehicles = vehicles
        self.published = 0
        self._stop = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.reconnect_delay_set(1, 2)
        self._listeners: list[mqtt.Client] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._client.connect_async("127.0.0.1", self.port)
        self._client.loop_start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for client in (self._client, *self._listeners):
            client.disconnect()
            client.loop_stop()

    def listen_around(self, count: int) -> None:
        """Hold areas of which some move, so that the broker has an index with both sides."""
        for number in range(count):
            client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"near-{number}")
            client.connect("127.0.0.1", self.port)
            client.loop_start()
            lon, lat = self._at(number * 7, 0.0)
            client.publish("locus/me/position", json.dumps({"lon": lon, "lat": lat}))
            if number % 2:
                client.subscribe("$geo/near:250m/city/vehicles/+/pos")
            else:
                box = f"{lon - 0.002:.5f},{lat - 0.002:.5f},{lon + 0.002:.5f},{lat + 0.002:.5f}"
                client.subscribe(f"$geo/bbox:{box}/city/vehicles/+/pos")
            self._listeners.append(client)

    def _publish(self, topic: str, content: object, retain: bool = False) -> None:
        self._client.publish(topic, json.dumps(content), retain=retain)
        self.published += 1

    @staticmethod
    def _at(number: int, now_s: float) -> tuple[float, float]:
        """Where a vehicle is: along a street east-west or north-south, to and fro."""
        street = number % 9 - 4
        along = math.asin(math.sin(now_s * 0.08 + number * 1.7)) / (math.pi / 2) * 4.0
        x, y = (along, street) if number % 2 else (street, along)
        return LON + x * STEP * 1.25, LAT + y * STEP

    def _run(self) -> None:
        ends = range(-4, 5)
        across = [[[LON - 4 * STEP * 1.25, LAT + i * STEP], [LON + 4 * STEP * 1.25, LAT + i * STEP]] for i in ends]
        along = [[[LON + i * STEP * 1.25, LAT - 4 * STEP], [LON + i * STEP * 1.25, LAT + 4 * STEP]] for i in ends]
        bounds = [LON - 5 * STEP * 1.25, LAT - 5 * STEP, LON + 5 * STEP * 1.25, LAT + 5 * STEP]
        turn = 0
        while not self._stop.wait(0.25):
            turn += 1
            now_s = time.monotonic()
            if turn % 20 == 1:
                self._publish("city/map", {"center": [LON, LAT], "bounds": bounds, "streets": across + along}, True)
                for worker in range(4):
                    wish = f"$where/age=20..{25 + worker},salary>={300 - 20 * worker}/city/jobs/offers"
                    name = f"city-worker-{worker}"
                    self._publish(f"city/workers/{worker}", {"client": name, "filter": wish}, True)
            for number in range(turn % 4, self.vehicles, 4):
                lon, lat = self._at(number, now_s)
                before, _ = self._at(number, now_s - 0.1)
                heading = (90 if lon > before else 270) if number % 2 else 0
                group = "people" if number % 3 == 2 else "vehicles"
                content = {"lon": lon, "lat": lat, "speed": 9.0, "heading": heading}
                self._publish(f"city/{group}/x{number}/pos", content)
            if turn % 4 == 0:
                self._second(turn // 4, now_s)

    def _second(self, second: int, now_s: float) -> None:
        for number in range(5):
            lon, lat = self._at(number * 11 + 3, now_s * 0.3)
            self._publish(f"city/subscribers/s{number}/pos", {"lon": lon, "lat": lat, "radius_m": 300})
            near = [self._at(n, now_s) for n in range(0, self.vehicles, 3)]
            near = [p for p in near if abs(p[0] - lon) < 0.0035 and abs(p[1] - lat) < 0.0027]
            recent = [{"topic": "city/vehicles/x1/pos", "lon": x, "lat": y} for x, y in near[:6]]
            self._publish(f"city/subscribers/s{number}/received", {"received": second, "recent": recent})
        if second % 6 == 1:
            lon, lat = self._at(second * 5, now_s)
            self._publish("city/alerts/fire", {"kind": "fire", "text": f"Smoke, call {second}", "lon": lon, "lat": lat})
        sensor = second % 12
        lon, lat = self._at(sensor * 3, 0.0)
        reading = {"value": 17.3, "unit": "°C", "lon": lon, "lat": lat, "every_s": 5.0}
        self._publish(f"city/sensors/t{sensor}/temperature", reading, True)
        receivers = [
            {"rank": rank, "accuracy": 0.01 * rank * (1 + second % 5), "client": f"city-worker-{rank}"}
            for rank in range(1, second % 4 + 1)
        ]
        receipt = {"topic": "city/jobs/offers", "count": len(receivers), "receivers": receivers[:3]}
        self._publish("city/jobs/receipts", receipt)


if __name__ == "__main__":
    with SmallCity(int(sys.argv[1])) as city:
        city.listen_around(40)
        threading.Event().wait()
