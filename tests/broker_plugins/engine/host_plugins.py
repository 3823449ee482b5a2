"""amqtt plugins that the tests load into a broker, by their path: they use amqtt's own interfaces only."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amqtt.broker import BrokerContext
from amqtt.plugins.base import BaseAuthPlugin, BasePlugin, BaseTopicPlugin

if TYPE_CHECKING:
    from amqtt.contexts import Action
    from amqtt.session import Session


class SlowDoor(BaseAuthPlugin):
    """Lets in who is called `friend`, after asking elsewhere."""

    async def authenticate(self, *, session: Session) -> bool | None:
        async with asyncio.timeout(5):  # works inside a task only
            await asyncio.sleep(0.01)
        return session.username == "friend"


class SlowGuard(BaseTopicPlugin):
    """Asks elsewhere about everything; `forbidden` topics are nobody's, `unreadable` ones cannot be received."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        await asyncio.sleep(0.001)
        if topic is not None and topic.startswith("forbidden"):
            return False
        return not (action is not None and action.value == "receive" and topic == "unreadable")


class Diary(BasePlugin[BrokerContext]):
    """Publishes every event it hears to `diary`, but for those about the diary."""

    async def _note(self, event: str, what: Any) -> None:
        await self.context.broadcast_message("diary", json.dumps([event, what]).encode())

    async def on_broker_client_connected(self, *, client_id: str, client_session: Session) -> None:
        await self._note("connected", [client_id, client_session.username, client_session.transitions.state])

    async def on_broker_client_disconnected(self, *, client_id: str, client_session: Session) -> None:
        await self._note("disconnected", client_id)

    async def on_broker_client_subscribed(self, *, client_id: str, topic: str, qos: int) -> None:
        await self._note("subscribed", [client_id, topic, qos])

    async def on_broker_client_unsubscribed(self, *, client_id: str, topic: str) -> None:
        await self._note("unsubscribed", [client_id, topic])

    async def on_broker_message_received(self, *, client_id: str, message: Any) -> None:
        await self._note("received", [client_id, message.topic, message.data.decode()])

    async def on_broker_retained_message(self, *, client_id: str | None, retained_message: Any) -> None:
        await self._note("retained", [retained_message.topic, retained_message.data.decode()])


class PacketCounter(BasePlugin[BrokerContext]):
    """Counts packets by type and retains the counts."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.counts: dict[str, int] = {}

    async def _count(self, direction: str, packet: Any) -> None:
        name = f"{direction} {type(packet).__name__}"
        self.counts[name] = self.counts.get(name, 0) + 1
        await self.context.retain_message("packets", json.dumps(self.counts).encode())

    async def on_mqtt_packet_received(self, *, packet: Any, session: Session | None = None) -> None:
        await self._count("in", packet)

    async def on_mqtt_packet_sent(self, *, packet: Any, session: Session | None = None) -> None:
        await self._count("out", packet)


class Steward(BasePlugin[BrokerContext]):
    """Uses the broker's context: makes a session with a subscription when the broker starts."""

    @dataclass
    class Config:
        client: str = "absent"

    async def on_broker_post_start(self) -> None:
        await self.context.add_subscription(self.config.client, "for/absent", 1)
        names = [session.client_id for session in self.context.sessions]
        await self.context.retain_message("steward/sessions", json.dumps(names).encode())
        await self.context.retain_message("steward/filters", json.dumps(list(self.context.subscriptions)).encode())
        assert self.context.get_session(self.config.client) is not None
        assert "steward/sessions" in self.context.retained_messages
