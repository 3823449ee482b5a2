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

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine

DEFAULT_CONFIGURATION = Path(__file__).parent / "default_broker.yaml"

TRY = """\
Locus is listening on {listeners}. From another terminal:
    mosquitto_sub -t '$geo/circle:126.97,37.56,500m/vehicles/#' -v
    mosquitto_pub -t vehicles/7/pos -m '{{"lon": 126.9702, "lat": 37.5601}}'
    mosquitto_sub -t '$SYS/#' -v
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus broker`."""
    parser.add_argument(
        "-c", "--config", type=Path, default=DEFAULT_CONFIGURATION, help="an amqtt configuration (YAML); see docs/"
    )
    parser.add_argument("-d", "--debug", action="store_true", help="log everything")
    parser.add_argument("--no-uvloop", action="store_true", help="use Python's own event loop")


def run(arguments: argparse.Namespace) -> int:
    """Run a broker until it is told to stop."""
    logging.basicConfig(
        level=logging.DEBUG if arguments.debug else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    for chatty in ("transitions", "amqtt", "websockets"):
        logging.getLogger(chatty).setLevel(logging.DEBUG if arguments.debug else logging.WARNING)
    try:
        configuration = _read(arguments.config)
    except ConfigurationError as error:
        return _fail(str(error))
    return _runner(arguments.no_uvloop)(_serve(configuration))


class ConfigurationError(Exception):
    """The configuration cannot be used."""


def _fail(reason: str) -> int:
    print(f"locus broker: {reason}", file=sys.stderr)
    return 1


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        configuration = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {error}") from error
    if not isinstance(configuration, dict):
        raise ConfigurationError(f"{path} is empty: it needs `listeners:` and `plugins:`")
    return configuration


def _runner(plain: bool) -> Callable[[Coroutine[Any, Any, int]], int]:
    if not plain:
        with contextlib.suppress(ImportError):  # there is none for this platform
            import uvloop

            return uvloop.run
    return asyncio.run


async def _serve(configuration: dict[str, Any]) -> int:
    from amqtt.broker import Broker
    from amqtt.errors import AMQTTError, BrokerError, PluginError, PluginLoadError
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
        return _fail(f"the configuration is wrong: {_causes(error)}")
    logging.getLogger("amqtt.broker").setLevel(logging.CRITICAL)  # its traceback adds nothing to the sentence below
    try:
        await broker.start()
    except (BrokerError, OSError) as error:
        return _fail(_causes(error))
    engine = next((plugin for plugin in broker.plugins_manager.plugins if hasattr(plugin, "engine")), None)
    if engine is None or engine.engine is None:
        return _fail("the engine did not start; see the log above. Is EnginePlugin under `plugins:`?")
    _settle_garbage_collection()
    listeners = ", ".join(listener["bind"] for listener in broker.listeners_config.values())
    print(TRY.format(listeners=listeners), flush=True)
    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop.set)
    await stop.wait()
    await broker.shutdown()
    return 0


def _settle_garbage_collection() -> None:
    # Nothing on the data path makes reference cycles; a collection that walks every session would stall everybody.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _causes(error: BaseException) -> str:
    parts = [str(error) or type(error).__name__]
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
        if str(error) and str(error) not in parts[0]:
            parts.append(str(error))
    return ": ".join(parts)
