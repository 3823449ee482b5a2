"""A plugin in fifteen lines: what is published below `alarm/` is shouted, and only the caretaker hears it.

Load it by its path under `plugins:` of a broker's configuration, beside the engine; see broker.yaml in this folder.
"""

from broker_plugins.engine import Message, Plugin, Selection


class QuietHours(Plugin):
    """Keeps alarms from everybody but the client `caretaker`."""

    def concerns(self, topic: str) -> bool:
        return topic.startswith("alarm/")

    def on_publish(self, message: Message) -> None:
        message.payload = message.payload.upper()

    def select(self, message: Message, selection: Selection) -> None:
        selection.keep([session for session in selection.receivers if session.client_id == "caretaker"])
