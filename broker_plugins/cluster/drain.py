"""`locus cluster drain`: let all clients of a node go elsewhere, so that it can be stopped."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.visiting import options_of, visit
from broker_plugins.cluster.wire import AskDrain, Draining, WireError, decode, encode
from broker_plugins.engine import EngineError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from nats.aio.client import Client

    from broker_plugins.cluster.options import ClusterOptions

ANSWER_S = 2.0
LOOK_S = 0.25


def run(arguments: argparse.Namespace) -> int:
    """Drain a node; 0 if nothing is left on it that can go."""
    say: Callable[[str], None] = lambda line: print(line, flush=True)  # noqa: E731
    empty = asyncio.run(drain(options_of(arguments), arguments.node, arguments.undo, arguments.timeout, say))
    return 0 if empty else 1


async def drain(options: ClusterOptions, node: str, undo: bool, seconds: float, say: Callable[[str], None]) -> bool:
    """Ask a node to let its clients go, and wait until they have; False if some are left when the time is up.

    Raises:
        EngineError: there is no fabric, it does not let us in, or there is no such node.
    """
    client, cluster = await visit(options), options.cluster
    try:
        left = await _ask(client, cluster, node, AskDrain(drain=not undo))
        if undo:
            say(f"{node} takes clients again")
            return True
        return await _wait(client, cluster, node, left, seconds, say)
    finally:
        await client.close()


async def _wait(
    client: Client, cluster: str, node: str, left: Draining, seconds: float, say: Callable[[str], None]
) -> bool:
    deadline = time.monotonic() + seconds
    said = ""
    while True:
        line = _words(node, left)
        if line != said:
            said = line
            say(line)
        if not left.draining:
            say(f"{node} is not drained any more: somebody undid it")
            return False
        if not (left.connected or left.sessions or left.blocks):
            say(f"{node} can be stopped")
            return True
        if time.monotonic() > deadline:
            plain = left.connected - left.roaming
            if left.blocks or left.sessions or left.roaming:
                say(f"{node} is not empty after {seconds:g} s")
                return False
            say(f"{node} can be stopped; {plain} clients do not roam and will have to connect elsewhere")
            return True
        await asyncio.sleep(LOOK_S)
        left = await _ask(client, cluster, node, AskDrain(change=False))


def _words(node: str, left: Draining) -> str:
    return (
        f"{node}: {left.connected} clients ({left.roaming} roam), "
        f"{left.sessions} sessions of absent ones, {left.blocks} blocks"
    )


async def _ask(client: Client, cluster: str, node: str, question: AskDrain) -> Draining:
    try:
        answer = await client.request(f"locus.{cluster}.ask.{node}", encode(question), timeout=ANSWER_S)
        return decode(bytes(answer.data), Draining)
    except (*FAULTS, WireError) as error:
        raise EngineError(
            f"cluster {cluster!r} has no node {node!r} that answers: see `locus cluster status`"
        ) from error
