"""The engine as a plugin of amqtt, and the base class of the plugins that build on it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from amqtt.broker import BrokerContext
from amqtt.plugins.base import BasePlugin

from broker_plugins.engine.engine import Engine
from broker_plugins.engine.errors import EngineError
from broker_plugins.engine.hooks import Hooks
from broker_plugins.engine.host import Host, HostGuard, broker_of, plugins_of, refuse_to_start
from broker_plugins.engine.options import EngineOptions
from broker_plugins.engine.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amqtt.broker import Broker

log = logging.getLogger(__name__)


class Plugin(BasePlugin[BrokerContext], Hooks):
    """Base of a plugin that decides or hears what the engine does: override the hooks you need."""

    async def on_broker_post_start(self) -> None:
        """Say so where the engine is missing: this plugin would silently do nothing."""
        if not any(isinstance(plugin, EnginePlugin) for plugin in plugins_of(broker_of(self.context))):
            log.error(
                "%s does nothing without the engine: add broker_plugins.engine.plugin.EnginePlugin to `plugins:`",
                type(self).__name__,
            )


class EnginePlugin(BasePlugin[BrokerContext]):
    """Replaces the data path of the broker that loads it."""

    Config = EngineOptions

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.engine: Engine | None = None
        self._host: Host | None = None

    async def on_broker_pre_start(self) -> None:
        """Build the engine and take the broker over, before its listeners are opened."""
        broker = broker_of(self.context)
        try:
            self._take_over(broker)
        except EngineError as error:
            # amqtt would go on without us, and serve clients with what this plugin is there to replace.
            refuse_to_start(broker, str(error))
        except Exception as error:
            log.exception("a plugin failed to start")
            refuse_to_start(broker, f"a plugin failed to start: {type(error).__name__}: {error}")

    def _take_over(self, broker: Broker) -> None:
        options: EngineOptions = self.config
        loop = self.context.loop
        assert loop is not None
        if broker.config.session_expiry_interval and not options.session_expiry_s:
            options.session_expiry_s = float(broker.config.session_expiry_interval)
        store = None
        if options.durability != "off":
            path = Path(options.data_dir) / "locus.db"
            store = Store(path, options.durability == "strict", loop)
        engine = Engine(loop, options, store, HostGuard(broker))
        self.engine = engine
        self._host = Host(broker, engine)
        plugins: Sequence[Hooks] = [plugin for plugin in plugins_of(broker) if isinstance(plugin, Hooks)]
        engine.start([*plugins, *self._host.event_hooks()])
        self._host.take_over()

    async def on_broker_pre_shutdown(self) -> None:
        """Close connections and the store before the broker cleans up."""
        if self.engine is not None and self._host is not None:
            await self.engine.stop()
            self._host.give_back()
