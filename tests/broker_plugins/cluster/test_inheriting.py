"""What is sent after a session that went on elsewhere is forgotten by its sender when the receiver's disk has it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from broker_plugins.cluster.inheriting import Inheriting
from broker_plugins.cluster.wire import AskInherit, MovedSession, Owed
from broker_plugins.engine.engine import Engine
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.session import Session
from broker_plugins.engine.store import Store

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0


def full(*_: Any) -> None:
    raise OSError("No space left on device")


async def test_what_is_sent_after_a_session_is_answered_for_when_it_is_on_disk(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    store = Store(tmp_path / "locus.db", strict=False, loop=loop)
    engine = Engine(loop, EngineOptions(), store)
    session = engine.sessions["c"] = Session(engine, "c", clean=False)
    store.put("sessions", ("c",), (0.0,))
    moving = SimpleNamespace(leaves=lambda _: False)
    inheriting = Inheriting(SimpleNamespace(engine=engine), moving, SimpleNamespace())  # type: ignore[arg-type]
    question = AskInherit("c", [Owed("t", b"m", 1, 1, False, 7, 2)], 99)
    write, store._write = store._write, full  # type: ignore[method-assign]
    asked = [asyncio.ensure_future(inheriting._receive(question)) for _ in range(2)]  # the second: no answer came
    async with asyncio.timeout(SECONDS):
        while not store.failures:
            await asyncio.sleep(0.01)
    assert not any(each.done() for each in asked), "the sender would forget what no disk has"
    store._write = write  # type: ignore[method-assign]
    assert await asyncio.wait_for(asyncio.gather(*asked), SECONDS) == [MovedSession(found=True)] * 2
    assert [entry.message.payload for entry in session.inflight.values()] == [b"m"]
    await store.close()
    again = Store(tmp_path / "locus.db", strict=False, loop=loop)
    assert [row[2] for row in again.rows("messages")] == [b"m"]
    await again.close()


async def test_who_asks_in_vain_may_ask_again_though_it_is_taken(tmp_path: Path) -> None:
    """An answer that nobody waits for any more harms nobody."""
    loop = asyncio.get_running_loop()
    store = Store(tmp_path / "locus.db", strict=False, loop=loop)
    engine = Engine(loop, EngineOptions(), store)
    engine.sessions["c"] = Session(engine, "c", clean=False)
    moving = SimpleNamespace(leaves=lambda _: False)
    inheriting = Inheriting(SimpleNamespace(engine=engine), moving, SimpleNamespace())  # type: ignore[arg-type]
    store.put("sessions", ("c",), (0.0,))
    given_up = asyncio.ensure_future(inheriting._receive(AskInherit("c", [], 1)))
    await asyncio.sleep(0)
    given_up.cancel()
    assert (await asyncio.wait_for(inheriting._receive(AskInherit("c", [], 1)), SECONDS)).found
    await store.close()
