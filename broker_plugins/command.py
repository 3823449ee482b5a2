"""`locus broker`: a stock amqtt broker with the engine in it, uvloop, and defaults for a first try."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker_plugins.configuration import (
    DEFAULT_CONFIGURATION,
    HOW_TO_BEGIN,
    ConfigurationError,
    causes,
    plugins,
    read,
    why_not_started,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine

log = logging.getLogger(__name__)

TRY = """\
From another terminal:
    {sub} -t '$geo/circle:126.97,37.56,500m/vehicles/#' -v
    {pub} -t vehicles/7/pos -m '{{"lon": 126.9702, "lat": 37.5601}}'
    {sub} -t '$SYS/#' -v
"""

OF_A_FIRST_TRY = {
    "broker_plugins.geo.plugin.GeoPlugin",
    "broker_plugins.sys_topics.SysTopicsPlugin",
    "amqtt.plugins.authentication.AnonymousAuthPlugin",
}
"""What these lines work with."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus broker`."""
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="the broker's configuration (YAML, as amqtt has it); plugins of your own are found beside it",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print what is used without -c, to begin a file of your own with"
    )
    parser.add_argument("-d", "--debug", action="store_true", help="log everything")
    parser.add_argument("--no-uvloop", action="store_true", help="use Python's own event loop")


def run(arguments: argparse.Namespace) -> int:
    """Run a broker until it is told to stop."""
    if arguments.print_config:
        print(DEFAULT_CONFIGURATION.read_text(encoding="utf-8"), end="")
        return 0
    logging.basicConfig(
        level=logging.DEBUG if arguments.debug else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    for chatty in ("transitions", "amqtt", "websockets"):
        logging.getLogger(chatty).setLevel(logging.DEBUG if arguments.debug else logging.WARNING)
    if arguments.config is not None:
        sys.path.append(str(arguments.config.resolve().parent))  # last, so that it hides nothing
    try:
        configuration = read(arguments.config or DEFAULT_CONFIGURATION)
    except ConfigurationError as error:
        return _fail(str(error))
    return _runner(arguments.no_uvloop)(_serve(configuration))


def _fail(reason: str) -> int:
    print(f"locus broker: {reason}", file=sys.stderr)
    return 1


def _runner(plain: bool) -> Callable[[Coroutine[Any, Any, int]], int]:
    if not plain:
        with contextlib.suppress(ImportError):  # there is none for this platform
            import uvloop

            return uvloop.run
    return asyncio.run


async def _serve(configuration: dict[str, Any]) -> int:
    from amqtt.broker import Broker
    from amqtt.errors import AMQTTError, BrokerError, PluginError, PluginLoadError
    from amqtt.plugins.base import BaseAuthPlugin
    from dacite import DaciteError

    from broker_plugins.engine import EngineError

    loop = asyncio.get_running_loop()
    try:
        broker = Broker(configuration, loop=loop)
    except (
        BrokerError,
        PluginError,
        PluginLoadError,
        AMQTTError,
        DaciteError,
        EngineError,
        ValueError,
        OSError,
    ) as error:
        return _fail(f"the configuration is wrong: {causes(error)}")
    logging.getLogger("amqtt.broker").setLevel(logging.CRITICAL)  # its traceback adds nothing to the sentence below
    try:
        await broker.start()
    except (BrokerError, OSError) as error:
        return _fail(why_not_started(error, configuration))
    engine = next((plugin for plugin in broker.plugins_manager.plugins if hasattr(plugin, "engine")), None)
    if engine is None or engine.engine is None:
        return _fail(
            "the engine did not start: `plugins:` needs `broker_plugins.engine.plugin.EnginePlugin: {data_dir: data}`, "
            f"or the log above says why; {HOW_TO_BEGIN}"
        )
    if not any(isinstance(plugin, BaseAuthPlugin) for plugin in broker.plugins_manager.plugins):
        log.warning(
            "nobody may come in: no plugin under `plugins:` authenticates. For a first try, add "
            "`amqtt.plugins.authentication.AnonymousAuthPlugin: {allow_anonymous: true}`"
        )
    _settle_garbage_collection()
    print(_greeting(configuration, [listener["bind"] for listener in broker.listeners_config.values()]), flush=True)
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    await stop.wait()
    await broker.shutdown()
    return 0


def _greeting(configuration: dict[str, Any], addresses: list[str]) -> str:
    listening = f"Locus is listening on {', '.join(addresses)}."
    default, paths = configuration["listeners"]["default"], {path for path, _ in plugins(configuration)}
    port = str(default.get("bind", "")).rpartition(":")[2]
    if default.get("ssl") or default.get("type", "tcp") != "tcp" or not paths >= OF_A_FIRST_TRY:
        return listening
    option = "" if port in {"", "1883"} else f" -p {port}"
    return f"{listening} {TRY.format(sub=f'mosquitto_sub{option}', pub=f'mosquitto_pub{option}')}"


def _settle_garbage_collection() -> None:
    # Nothing on the data path makes reference cycles; a collection that walks every session would stall everybody.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
