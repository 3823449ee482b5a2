"""Access control that the tests of smart subscriptions load into a broker, by its path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin

if TYPE_CHECKING:
    from amqtt.session import Session


class Secrets(BaseTopicPlugin):
    """Nobody subscribes to `secret`, nobody but `insider` receives `hidden`, nobody publishes to `locked`."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        assert session is not None
        assert topic is not None
        if action == Action.SUBSCRIBE:
            return topic.split("/")[0] != "secret"
        if action == Action.RECEIVE:
            return topic.split("/")[0] != "hidden" or session.client_id.startswith("insider")
        return topic.split("/")[0] != "locked"


class SlowSecrets(Secrets):
    """The same, after having thought about it."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        await asyncio.sleep(0)
        return await super().topic_filtering(session=session, topic=topic, action=action)


class NoPositions(BaseTopicPlugin):
    """Nobody tells where it is."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        return topic != "locus/me/position"
