"""What nodes tell roaming clients, and what it takes to go from one connection of paho's to another."""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from clients.errors import ConnectError

if TYPE_CHECKING:
    from paho.mqtt import client as mqtt

    from clients.broker import Broker

logger = logging.getLogger("locus.client")

HANDOVER_TOPIC = "$locus/handover"
"""Where a node tells a roaming client to go."""
NODES_TOPIC = "$locus/nodes"
"""Where a node says which nodes there are."""
_END_S = 5.0


class Told(msgspec.Struct):
    """What a node says on `$locus/handover`."""

    node: str = ""
    address: str = ""
    reason: str = ""
    end: bool = False
    """Whether it was the last message of this connection."""


class Listed(msgspec.Struct):
    """A node as `$locus/nodes` names it."""

    node: str
    address: str


def at(broker: Broker, address: str) -> Broker:
    """The same way in at another node.

    Raises:
        ConnectError: The address is none.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConnectError(f"{address!r} is no address of a node: give host:port")
    return replace(broker, host=host.strip("[]"), port=int(port))


def listens(address: str, seconds: float) -> bool:
    """Whether somebody listens at an address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except (OSError, ValueError):
        return False
    return True


def is_over(info: mqtt.MQTTMessageInfo) -> bool:
    """Whether nothing more is to be waited for: it is acknowledged, or was never sent."""
    return bool(info.rc) or info.is_published()


def share_received(old: mqtt.Client, new: mqtt.Client) -> None:
    """Let both connections know the QoS 2 messages received and not released: they are those of one session.

    Paho has no other way to hand them from one client to another.
    """
    new._in_message_mutex = old._in_message_mutex  # noqa: SLF001
    new._in_messages = old._in_messages  # noqa: SLF001


def join(paho: mqtt.Client) -> None:
    """Wait for the end of a network thread whose connection is lost."""
    stopping = threading.Thread(target=paho.loop_stop, name="locus-joining", daemon=True)
    stopping.start()
    stopping.join(_END_S)


def stop(paho: mqtt.Client) -> None:
    """End a connection that is left."""
    paho.disconnect()
    join(paho)
