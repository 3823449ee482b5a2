"""Long work in short turns: a generator runs a few milliseconds at a time, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

log = logging.getLogger(__name__)

SLICE_S: Final = 0.004
"""How long one piece of work may hold the event loop."""


def drive(
    loop: asyncio.AbstractEventLoop,
    work: Generator[Awaitable[Any] | None, Any, None],
    done: Callable[[], None] | None = None,
) -> None:
    """Run a generator to its end: it yields None where it may be interrupted, or an awaitable whose result it needs.

    The first turn runs at once; what is short is over when this returns. `done` is called at the end.
    """

    def turn(value: Any = None, error: BaseException | None = None) -> None:
        deadline = monotonic() + SLICE_S
        try:
            while True:
                wanted = work.send(value) if error is None else work.throw(error)
                value = error = None
                if wanted is not None:
                    asyncio.ensure_future(wanted, loop=loop).add_done_callback(arrived)
                    return
                if monotonic() > deadline:
                    loop.call_soon(turn)
                    return
        except StopIteration:
            pass
        except Exception:
            log.exception("a piece of work failed")
        if done is not None:
            done()

    def arrived(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            work.close()
            return
        error = future.exception()
        turn(None if error else future.result(), error)

    turn()
