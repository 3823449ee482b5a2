"""A bad network for tests: TCP proxies that delay what passes, or are cut, and NATS servers joined by them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
from typing import TYPE_CHECKING, Self

from broker_plugins.cluster.server import program
from tests.brokers import free_port
from tests.mqtt_wire import wait_for

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import ExitStack
    from pathlib import Path


class SlowNetwork:
    """Proxies in a thread of their own; `delay_s` holds for every byte that comes from now on, in both directions."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[int, asyncio.Event] = {}
        self._refused: set[int] = set()
        self._sinks: dict[int, set[asyncio.StreamWriter]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def proxy(self, to: int) -> int:
        """A port that leads to another one, with the delay."""

        async def listen() -> int:
            is_open = asyncio.Event()
            is_open.set()

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if port in self._refused:
                    writer.close()
                    return
                try:
                    there, back = await asyncio.open_connection("127.0.0.1", to)
                except OSError:
                    writer.close()
                    return
                for source, sink in ((reader, back), (there, writer)):
                    self._sinks[port].add(sink)
                    self._run(self._carry(source, sink, port))

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            port = int(server.sockets[0].getsockname()[1])
            self._open[port] = is_open
            self._sinks[port] = set()
            return port

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    def cut(self, port: int, *, silently: bool) -> None:
        """Let nothing pass a proxy: connections are broken and refused, or silently hold what comes."""

        async def close() -> None:
            if silently:
                self._open[port].clear()
                return
            self._refused.add(port)
            for sink in list(self._sinks[port]):
                sink.transport.abort()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(10)

    def mend(self, port: int) -> None:
        """Let everything pass a proxy again, first what it held."""

        async def reopen() -> None:
            self._refused.discard(port)
            self._open[port].set()

        asyncio.run_coroutine_threadsafe(reopen(), self._loop).result(10)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, port: int) -> None:
        """Carry bytes in their order, each chunk so much later than it came."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._run(self._release(due, sink, port))
        data = b"-"
        while data:
            try:
                data = await source.read(65_536)
            except OSError:
                data = b""
            due.put_nowait((self._loop.time() + self.delay_s, data))

    async def _release(self, due: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter, port: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                at, data = await due.get()
                await asyncio.sleep(max(0.0, at - self._loop.time()))
                await self._open[port].wait()
                if not data:
                    break
                sink.write(data)
                await sink.drain()
        self._sinks[port].discard(sink)
        sink.close()


class NatsCluster:
    """Three NATS servers: the middle one is near to both others, which reach each other through the slow network."""

    def __init__(self, directory: Path, stack: ExitStack, network: SlowNetwork) -> None:
        self._network = network
        self._processes: list[subprocess.Popen[bytes]] = []
        stack.callback(self._end)
        for attempt in range(5):  # somebody else may take a port between our looking and our using it
            self._directory = directory / f"nats-{attempt}"
            self._start()
            wait_for(lambda: self._whole() or self._broken(), "the NATS servers to be one cluster", 60)
            if not self._broken():
                return
            self._end()
        raise AssertionError(f"the NATS servers do not start: see {directory}")

    def _start(self) -> None:
        every: set[int] = set()
        while len(every) < 6:
            every.add(free_port())
        self.ports, routes = list(every)[:3], list(every)[3:]
        for number in range(3):
            # All dial the middle one (as does itself, for JetStream asks for a route to somewhere); of each other the
            # outer two learn from it, under the address of a proxy.
            dials = f'routes: ["nats://127.0.0.1:{routes[1]}"]'
            told = "" if number == 1 else f'advertise: "127.0.0.1:{self._network.proxy(routes[number])}"'
            store = self._directory / f"n{number}"
            store.mkdir(parents=True)
            configuration = store / "nats.conf"
            configuration.write_text(
                f'server_name: n{number}\nlisten: "127.0.0.1:{self.ports[number]}"\n'
                f'jetstream {{ store_dir: "{store}" }}\n'
                f'cluster {{ name: far\nlisten: "127.0.0.1:{routes[number]}"\n{dials}\n{told}\n}}\n'
            )
            with (store / "log").open("ab") as log:
                process = subprocess.Popen(
                    [program(), "-c", str(configuration)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._processes.append(process)

    def _whole(self) -> bool:
        logs = [(self._directory / f"n{number}" / "log").read_text() for number in range(3)]
        return any("JetStream cluster new metadata leader" in each for each in logs) and all(
            "Route connection created" in each for each in logs
        )

    def _broken(self) -> bool:
        return any(process.poll() is not None for process in self._processes)

    def _end(self) -> None:
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait()

    def url(self, number: int) -> str:
        return f"nats://127.0.0.1:{self.ports[number]}"
