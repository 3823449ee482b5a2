"""What a broker finds of its former life when it starts."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from broker_plugins.engine.hooks import Refused
from broker_plugins.engine.message import Message
from broker_plugins.engine.session import Session

if TYPE_CHECKING:
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.store import Store
    from broker_plugins.engine.subscription import Subscription

log = logging.getLogger(__name__)


def recover(engine: Engine, store: Store) -> None:
    """Bring back retained messages, persistent sessions with what they are owed, and the wills of clients cut off."""
    started = time.monotonic()
    _recover_retained(engine, store)
    _recover_sessions(engine, store)
    _publish_wills(engine, store)
    if engine.sessions or len(engine.retained):
        log.info(
            "%d sessions and %d retained messages from %s in %.1f s",
            len(engine.sessions),
            len(engine.retained),
            store.path,
            time.monotonic() - started,
        )


def _recover_retained(engine: Engine, store: Store) -> None:
    for topic, payload, qos, properties in store.rows("retained"):
        message = Message(topic, payload, qos, retain=True)
        if properties:
            message.properties = msgspec.json.decode(properties)
        engine.retained.put(message)


def _recover_sessions(engine: Engine, store: Store) -> None:
    messages: dict[int, Message] = {}
    for number, topic, payload, qos in store.rows("messages"):
        message = messages[number] = Message(topic, payload, qos)
        message.stored_id = number
    owed: dict[str, list[Any]] = defaultdict(list)
    for client, position, number, qos, retain, packet_id, state in store.rows("deliveries"):
        owed[client].append((messages[number], qos, bool(retain), packet_id, state, position))
    inbound: dict[str, set[int]] = defaultdict(set)
    for client, packet_id, _ in store.rows("inbound"):
        inbound[client].add(packet_id)
    subscriptions: dict[str, list[Any]] = defaultdict(list)
    for client, text, qos, order, owes in store.rows("subscriptions"):
        subscriptions[client].append((order, text, qos, owes))
        engine.subscriptions_made = max(engine.subscriptions_made, order)
    fed, withheld = _topics_by_subscription(store, "fed"), _topics_by_subscription(store, "withheld")
    for client, left_at in store.rows("sessions"):
        session = Session(engine, client, clean=False)
        session.left_at = left_at or time.time()
        session.inbound = inbound.pop(client, None)
        engine.sessions[client] = session
        session.restore(owed.pop(client, []))
        for order, text, qos, owes in sorted(subscriptions.pop(client, []), key=itemgetter(0, 1)):
            subscription = _recover_subscription(engine, session, text, qos, order)
            held = withheld.get((client, text), ())
            if subscription is not None and (owes or held):
                engine.feeds.go_on(subscription, owes, fed.pop((client, text), ()), held)
                withheld.pop((client, text), None)
    for table, rest in (("fed", fed), ("withheld", withheld)):
        for (client, text), topics in rest.items():
            for topic in topics:
                store.delete(table, (client, text, topic))
    for number, message in messages.items():
        if not message.stored_refs:
            store.delete("messages", (number,))


def _topics_by_subscription(store: Store, table: str) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for client, text, topic in store.rows(table):
        found[client, text].append(topic)
    return found


def _recover_subscription(engine: Engine, session: Session, text: str, qos: int, order: int) -> Subscription | None:
    try:
        subscription = engine.read_filter(session, text, qos)
        subscription.order = order
        engine.adopt(subscription)
    except Refused as refused:
        log.warning("client %s: subscription %r is not restored: %s", session.client_id, text, refused)
        return None
    return subscription


def _publish_wills(engine: Engine, store: Store) -> None:
    """Clients that were connected when the broker died did not say goodbye [MQTT-3.1.2-8]."""
    for client, topic, payload, qos, retain in store.rows("wills"):
        store.delete("wills", (client,))
        sender = engine.sessions.get(client) or Session(engine, client, clean=True)
        engine.publish_as(sender, Message(topic, payload, qos, bool(retain), sender))
