"""Long work in short turns: a generator runs a few milliseconds at a time, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

log = logging.getLogger(__name__)

SLICE_S: Final = 0.002
"""How long one piece of work may hold the event loop."""


def drive(
    loop: asyncio.AbstractEventLoop,
    work: Generator[Awaitable[Any] | None, Any, None],
    done: Callable[[], None] | None = None,
) -> None:
    """Run a generator to its end: it yields None where it may be interrupted, or an awaitable whose result it needs.

    The first turn runs at once; `done` is called at the end.
    """
    if begin(loop, work, done) and done is not None:
        done()


def begin(
    loop: asyncio.AbstractEventLoop,
    work: Generator[Awaitable[Any] | None, Any, None],
    later: Callable[[], None] | None,
) -> bool:
    """Run a generator as `drive` does; True if its first turn was all. If not, `later` is called at the end."""
    deadline = 0.0
    try:
        while True:
            wanted = work.send(None)
            if wanted is not None:
                break
            now = monotonic()
            if not deadline:
                deadline = now + SLICE_S
            elif now > deadline:
                break
    except StopIteration:
        return True
    except Exception:
        log.exception("a piece of work failed")
        return True
    _go_on(loop, work, later, wanted)
    return False


def _go_on(
    loop: asyncio.AbstractEventLoop,
    work: Generator[Awaitable[Any] | None, Any, None],
    done: Callable[[], None] | None,
    wanted: Awaitable[Any] | None,
) -> None:
    """The other turns of a generator that did not end in its first."""

    def turn(value: Any = None, error: BaseException | None = None) -> None:
        deadline = monotonic() + SLICE_S
        try:
            while True:
                wanted = work.send(value) if error is None else work.throw(error)
                value = error = None
                if wanted is not None or monotonic() > deadline:
                    wait(wanted)
                    return
        except StopIteration:
            pass
        except Exception:
            log.exception("a piece of work failed")
        if done is not None:
            done()

    def wait(wanted: Awaitable[Any] | None) -> None:
        if wanted is None:
            loop.call_soon(turn)
        else:
            asyncio.ensure_future(wanted, loop=loop).add_done_callback(arrived)

    def arrived(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            work.close()
            return
        error = future.exception()
        turn(None if error else future.result(), error)

    wait(wanted)
