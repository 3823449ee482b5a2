"""A subscriber that reads so many bytes a second and no more: `python -m benchmarks.slow_reader PORT COUNT RATE`.

It runs in a process of its own, so that it takes no turn from whoever measures meanwhile. It subscribes to `storm/#`
with QoS 1, acknowledges everything, and says as JSON what it received: it ends with the last of COUNT topics, or when
the broker has been silent for a while.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

from benchmarks.load import connect_packet, subscribe_packet

SILENCE_S = 3.0
CHUNK = 16_384
KERNEL_BYTES = 131_072
"""What the kernel may keep for this reader, so that it is the broker who has to wait."""


def read_slowly(port: int, count: int, rate: float) -> dict[str, float]:
    """Read until all topics have come, or nothing does any more."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
    connection.connect(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(SILENCE_S)
    connection.sendall(connect_packet("slow-reader"))
    while connection.recv(4)[:1] != b"\x20":
        pass
    connection.sendall(subscribe_packet(["storm/#"], 1))
    topics: set[bytes] = set()
    pending = bytearray()
    received = messages = 0
    started = last = time.monotonic()
    while len(topics) < count:
        early = received / rate - (time.monotonic() - started)
        if early > 0:
            time.sleep(early)
        try:
            data = connection.recv(CHUNK)
        except TimeoutError:
            break
        if not data:
            break
        received += len(data)
        last = time.monotonic()
        pending += data
        acknowledgements = bytearray()
        for first, body in _packets(pending):
            if first >> 4 == 3:
                size = struct.unpack_from("!H", body)[0]
                topics.add(bytes(body[2 : 2 + size]))
                messages += 1
                if first >> 1 & 3:
                    acknowledgements += b"\x40\x02" + body[2 + size : 4 + size]
        if acknowledgements:
            connection.sendall(acknowledgements)
    connection.close()
    return {"topics": len(topics), "messages": messages, "bytes": received, "seconds": last - started}


def _packets(pending: bytearray) -> list[tuple[int, bytes]]:
    """Cut whole packets off what has come."""
    found = []
    at = 0
    while True:
        length = shift = 0
        place = at + 1
        while place < len(pending):
            length |= (pending[place] & 0x7F) << shift
            shift += 7
            place += 1
            if pending[place - 1] < 0x80:
                break
        else:
            break
        if place + length > len(pending):
            break
        found.append((pending[at], bytes(pending[place : place + length])))
        at = place + length
    del pending[:at]
    return found


if __name__ == "__main__":
    print(json.dumps(read_slowly(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
