"""Plugins that the tests load into a broker, by their path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqtt.contexts import Action
from amqtt.plugins.base import BasePlugin, BaseTopicPlugin

from broker_plugins.engine.hooks import Hooks

if TYPE_CHECKING:
    from amqtt.session import Session

    from broker_plugins.engine.hooks import Selection
    from broker_plugins.engine.message import Message


class NoOpinion(BaseTopicPlugin):
    """Answers None, which amqtt's documentation says is ignored."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        return None


class AllowEverything(BaseTopicPlugin):
    """Permits whatever is asked."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        return True


class NoSecrets(BaseTopicPlugin):
    """Lets everyone subscribe to everything, but nobody receive what is below `secret/`."""

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        return not (action == Action.RECEIVE and topic is not None and topic.startswith("secret/"))


class NothingFor(BasePlugin[Any], Hooks):
    """Wants no message to reach the client `barred`, by each means the broker offers."""

    async def on_broker_message_broadcast(self, *, client_id: str, message: Any) -> bool:
        return False

    def select(self, message: Message, selection: Selection) -> None:
        for session in list(selection.receivers):
            if session.client_id == "barred":
                selection.remove(session)
