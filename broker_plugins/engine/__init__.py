"""The data path of a Locus broker: MQTT 3.1.1 from the bytes of a socket to the receivers of a message.

What plugins are written against is exported here; everything else is the engine's own business.
"""

from broker_plugins.engine.errors import EngineError, ProtocolViolation, StoreError
from broker_plugins.engine.hooks import Hooks, Refused, Selection
from broker_plugins.engine.message import Message
from broker_plugins.engine.plugin import EnginePlugin, Plugin
from broker_plugins.engine.subscription import Subscription

__all__ = [
    "EngineError",
    "EnginePlugin",
    "Hooks",
    "Message",
    "Plugin",
    "ProtocolViolation",
    "Refused",
    "Selection",
    "StoreError",
    "Subscription",
]
