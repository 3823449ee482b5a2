"""`locus pub`: publish a message, at a place, to the best matches, for a while."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clients.options import UsageError, add_connection, client_from, guarded, numbers, seconds

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus pub`."""
    parser.add_argument("topic", metavar="TOPIC", help="such as alerts/fire")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-m", "--message", metavar="TEXT", help="the payload")
    what.add_argument("-f", "--file", type=Path, metavar="FILE", help="a file with the payload; - is standard input")
    what.add_argument("-n", "--nothing", action="store_true", help="no payload; with -r this clears what is retained")
    parser.add_argument("--at", type=numbers("LON", "LAT"), metavar="LON,LAT", help="where (--at=-0.13,51.5)")
    parser.add_argument("--area", type=numbers("W", "S", "E", "N"), metavar="W,S,E,N", help="where it matters")
    parser.add_argument("--top", type=int, metavar="K", help="only to the K most accurate matches")
    parser.add_argument("--ttl", type=seconds, metavar="TIME", help="how long it is worth having: 250ms, 1.5s, 2m")
    parser.add_argument("--reply", metavar="TOPIC", help="where the broker sends a receipt of who matched")
    parser.add_argument("-r", "--retain", action="store_true", help="have the broker keep it")
    parser.add_argument("-q", "--qos", type=int, choices=(0, 1, 2), default=0, help="the QoS (0)")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Publish the message, and return 0 when it is sent (QoS 0) or acknowledged."""
    return guarded("pub", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    payload = _payload(arguments)
    with client_from(arguments) as client:
        client.publish(
            arguments.topic,
            payload,
            at=arguments.at,
            area=arguments.area,
            top=arguments.top,
            ttl_s=arguments.ttl,
            reply=arguments.reply,
            qos=arguments.qos,
            retain=arguments.retain,
        )
    return 0


def _payload(arguments: argparse.Namespace) -> bytes:
    if arguments.nothing:
        return b""
    if arguments.file is None:
        text: str = arguments.message
        return text.encode(errors="surrogateescape")  # bytes that are not UTF-8 come from a shell like this
    if str(arguments.file) == "-":
        return sys.stdin.buffer.read()
    try:
        contents: bytes = arguments.file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {arguments.file}: {error.strerror}") from error
    return contents
