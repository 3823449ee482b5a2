"""Where the engine sits in amqtt: the only module that touches amqtt's private names.

A stock broker starts, reads its configuration and loads its plugins; then the engine takes its listeners, its
sessions and its data path over, and gives back what amqtt's plugins expect: authentication and topic checks, the
broker's context and its events. `PRIVATE_NAMES` lists every private name used here; a contract test says which one a
new amqtt broke.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import amqtt.broker
from amqtt.contexts import Action as HostAction
from amqtt.contexts import ListenerType
from amqtt.errors import BrokerError
from amqtt.events import BrokerEvents
from amqtt.plugins.authentication import FileAuthPlugin

from broker_plugins.engine.connection import Connection
from broker_plugins.engine.host_events import event_hooks, tapped_connection
from broker_plugins.engine.host_session import HostSession
from broker_plugins.engine.message import Message
from broker_plugins.engine.session import Session
from broker_plugins.engine.topics import check_topic_name
from broker_plugins.engine.websocket import WebSocketProtocol
from broker_plugins.engine.work import drive

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator

    from amqtt.adapters import ReaderAdapter, WriterAdapter
    from amqtt.broker import Broker, BrokerContext

    from broker_plugins.engine.access import Action
    from broker_plugins.engine.codec import Connect
    from broker_plugins.engine.engine import Engine
    from broker_plugins.engine.hooks import Hooks

log = logging.getLogger(__name__)

PRIVATE_NAMES = (
    ("amqtt.broker.BrokerContext", "_broker_instance", "how a plugin finds its broker"),
    ("amqtt.broker.Broker", "_create_server_instance", "replaced: listeners speak to the engine"),
    ("amqtt.broker.Broker", "_client_connected", "replaced: external listeners speak to the engine"),
    ("amqtt.broker.Broker", "_session_monitor", "replaced: the engine ends sessions itself"),
    ("amqtt.broker.Broker", "_sessions", "replaced by a view of the engine's sessions"),
    ("amqtt.broker.Broker", "_subscriptions", "replaced by a view of the engine's subscriptions"),
    ("amqtt.broker.Broker", "_retained_messages", "replaced by a view of the engine's retained messages"),
    ("amqtt.plugins.manager.PluginManager", "_auth_plugins", "read: who authenticates"),
    ("amqtt.plugins.manager.PluginManager", "_topic_plugins", "read: who guards topics"),
    ("amqtt.plugins.manager.PluginManager", "_event_plugin_callbacks", "read: which events anybody listens to"),
)

BACKLOG = 4096
LIFE_OF_THE_BROKER = {
    str(event)
    for event in (
        BrokerEvents.PRE_START,
        BrokerEvents.POST_START,
        BrokerEvents.PRE_SHUTDOWN,
        BrokerEvents.POST_SHUTDOWN,
    )
}


def broker_of(context: BrokerContext) -> Broker:
    """The broker a plugin was loaded by."""
    return cast("Broker", context._broker_instance)  # noqa: SLF001


def plugins_of(broker: Broker) -> list[object]:
    """The plugins a broker loaded, in the order of its configuration."""
    return list(broker.plugins_manager.plugins)


def _heard(broker: Broker) -> set[str]:
    """The events that some plugin listens to."""
    callbacks = broker.plugins_manager._event_plugin_callbacks  # noqa: SLF001
    return {str(event) for event, listeners in callbacks.items() if listeners}


def refuse_to_start(broker: Broker, reason: str) -> None:
    """Let the start of a broker fail with a reason, when it comes to its listeners."""

    async def fail(*_: object) -> None:
        raise BrokerError(reason)

    cast("Any", broker)._create_server_instance = fail  # noqa: SLF001


class HostGuard:
    """amqtt's authentication and topic plugins, asked without a task where they answer at once."""

    def __init__(self, broker: Broker) -> None:
        manager = broker.plugins_manager
        self._auth = list(manager._auth_plugins)  # noqa: SLF001
        self._topic = list(manager._topic_plugins)  # noqa: SLF001
        self._needs_task: set[int] = set()
        # Plugins that are told of sessions may keep things in them; nobody else needs the copy.
        self._keeps_sessions = bool(self._topic) or bool(_heard(broker) - LIFE_OF_THE_BROKER)

    @property
    def guards_topics(self) -> bool:
        """Whether there is a topic plugin."""
        return bool(self._topic)

    def authenticate(self, connection: Connection, connect: Connect) -> bool | Awaitable[bool]:
        """A client is in if some plugin says yes and none says no."""
        session = HostSession(connection, connect)
        calls: list[Any] = []
        for plugin in self._auth:
            if type(plugin) is FileAuthPlugin and connect.username is not None:
                # Checking a password takes tens of milliseconds of a processor: not on the event loop.
                calls.append((plugin, lambda p=plugin: asyncio.to_thread(asyncio.run, p.authenticate(session=session))))
            else:
                calls.append((plugin, lambda p=plugin: p.authenticate(session=session)))
        connection.host_session = session
        return self._ask(calls, _all_known)

    def adopt(self, connection: Connection, session: Session) -> None:
        """An authenticated client has got its session."""
        host_session = connection.host_session
        connection.host_session = None
        if host_session is None or not self._keeps_sessions:
            return
        host_session.settle(session)
        previous = session.host_session
        if previous is not None:
            host_session.attributes = previous.attributes
        session.host_session = host_session

    def may(self, session: Session, topic: str, action: Action) -> bool | Awaitable[bool]:
        """Allowed unless a plugin says no; None is no opinion."""
        wanted = HostAction(action.value)
        host_session = host_session_of(session)
        calls: list[Any] = [
            (plugin, lambda p=plugin: p.topic_filtering(session=host_session, topic=topic, action=wanted))
            for plugin in self._topic
        ]
        return self._ask(calls, _none_against)

    def _ask(
        self, calls: list[tuple[object, Callable[[], Coroutine[Any, Any, Any]]]], verdict: Callable[[list[Any]], bool]
    ) -> bool | Awaitable[bool]:
        answers: list[Any] = []
        for number, (plugin, call) in enumerate(calls):
            if id(plugin) in self._needs_task:
                return self._ask_rest(answers, calls[number:], verdict)
            coroutine = call()
            try:
                waits_for = coroutine.send(None)
            except StopIteration as stop:
                answers.append(stop.value)
            except Exception:  # noqa: BLE001  it may need a task around it, which it gets; its own faults show there
                self._needs_task.add(id(plugin))
                return self._ask_rest(answers, calls[number:], verdict)
            else:
                return self._ask_rest(answers, calls[number + 1 :], verdict, _going_on(coroutine, waits_for))
        return verdict(answers)

    async def _ask_rest(
        self,
        answers: list[Any],
        calls: list[tuple[object, Callable[[], Coroutine[Any, Any, Any]]]],
        verdict: Callable[[list[Any]], bool],
        begun: Awaitable[Any] | None = None,
    ) -> bool:
        try:
            if begun is not None:
                answers.append(await begun)
            answers.extend([await call() for _, call in calls])
        except Exception:
            log.exception("a plugin that guards the broker failed: the client is refused")
            return False
        return verdict(answers)


def _all_known(answers: list[Any]) -> bool:
    given = [answer for answer in answers if answer is not None]
    return bool(given) and all(given)


def _none_against(answers: list[Any]) -> bool:
    return all(answer is None or answer for answer in answers)


@types.coroutine
def _going_on(coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that was begun outside a task."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001  handed on to the coroutine it belongs to
            step: Any = coroutine.throw
            argument: Any = error
        else:
            step, argument = coroutine.send, value
        try:
            waits_for = step(argument)
        except StopIteration as stop:
            return stop.value


def host_session_of(session: Session) -> HostSession:
    """What amqtt's plugins know a session by; made for one that has not been connected since the broker started."""
    if session.host_session is None:
        session.host_session = HostSession.offline(session)
    return cast("HostSession", session.host_session)


class SessionsView(Mapping[str, tuple[HostSession, None]]):
    """The engine's sessions as amqtt keeps its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getitem__(self, client_id: str) -> tuple[HostSession, None]:
        return host_session_of(self._engine.sessions[client_id]), None

    def __setitem__(self, client_id: str, _: object) -> None:
        """`BrokerContext.add_subscription` stores the session it had made; the engine has it already."""

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._engine.sessions))

    def __len__(self) -> int:
        return len(self._engine.sessions)


class SubscriptionsView(Mapping[str, list[tuple[HostSession, int]]]):
    """The engine's subscriptions as amqtt keeps its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def _all(self) -> dict[str, list[tuple[HostSession, int]]]:
        found: dict[str, list[tuple[HostSession, int]]] = {}
        for session in self._engine.sessions.values():
            for text, subscription in session.subscriptions.items():
                found.setdefault(text, []).append((host_session_of(session), subscription.qos))
        return found

    def __getitem__(self, text: str) -> list[tuple[HostSession, int]]:
        return self._all()[text]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def values(self) -> Any:
        """All at once: asked one by one each would be looked for anew."""
        return self._all().values()

    def items(self) -> Any:
        """All at once, likewise."""
        return self._all().items()


class RetainedView(Mapping[str, amqtt.broker.RetainedApplicationMessage]):
    """The engine's retained messages as amqtt keeps its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getitem__(self, topic: str) -> amqtt.broker.RetainedApplicationMessage:
        entry = self._engine.retained.get(topic)
        if entry is None:
            raise KeyError(topic)
        message = entry.message
        return amqtt.broker.RetainedApplicationMessage(None, topic, message.payload, message.qos)

    def __iter__(self) -> Iterator[str]:
        return (message.topic for message in list(self._engine.retained))

    def __len__(self) -> int:
        return len(self._engine.retained)


class Host:
    """A stock broker whose data path is the engine."""

    def __init__(self, broker: Broker, engine: Engine) -> None:
        self._broker = broker
        self._engine = engine
        self._new_connection: Callable[[Engine, str], Connection] = Connection

    def event_hooks(self) -> list[Hooks]:
        """Hooks that fire amqtt's events, for those that somebody listens to."""
        heard = _heard(self._broker)
        self._new_connection = tapped_connection(self._broker.plugins_manager, heard, host_session_of) or Connection
        return event_hooks(self._broker.plugins_manager, heard, host_session_of)

    def take_over(self) -> None:
        """Put the engine where the broker's own data path was."""
        broker: Any = self._broker
        broker._create_server_instance = self._create_server  # noqa: SLF001
        broker._client_connected = self._external_connected  # noqa: SLF001
        broker._session_monitor = self._no_session_monitor  # noqa: SLF001
        broker._sessions = SessionsView(self._engine)  # noqa: SLF001
        broker._subscriptions = SubscriptionsView(self._engine)  # noqa: SLF001
        broker._retained_messages = RetainedView(self._engine)  # noqa: SLF001
        broker.internal_message_broadcast = self._broadcast
        broker.retain_message = self._retain
        broker.create_offline_session = self._create_offline_session
        broker.add_subscription = self._add_subscription

    def give_back(self) -> None:
        """Leave the broker with nothing of the engine's to clean up."""
        broker: Any = self._broker
        broker._sessions, broker._subscriptions, broker._retained_messages = {}, {}, {}  # noqa: SLF001

    async def _create_server(
        self,
        listener_name: str,
        listener_type: ListenerType,
        address: str | None,
        port: int,
        ssl_context: ssl.SSLContext | None,
    ) -> asyncio.Server:
        engine = self._engine
        limit = self._broker.listeners_config[listener_name].get("max_connections", -1)
        if limit > 0:
            engine.listener_limits[listener_name] = limit
        new = self._new_connection

        def tcp() -> asyncio.Protocol:
            return new(engine, listener_name)

        def websocket() -> asyncio.Protocol:
            return WebSocketProtocol(new(engine, listener_name))

        if listener_type not in (ListenerType.TCP, ListenerType.WS):
            raise BrokerError(f"listener {listener_name!r}: type {listener_type!r} is none of tcp, ws, external")
        factory = tcp if listener_type == ListenerType.TCP else websocket
        host = address.strip("[]") if address else None
        return await engine.loop.create_server(
            factory, host, port, reuse_address=True, ssl=ssl_context, backlog=BACKLOG
        )

    async def _no_session_monitor(self) -> None:
        await asyncio.Event().wait()

    async def _external_connected(self, listener_name: str, reader: ReaderAdapter, writer: WriterAdapter) -> None:
        """Serve a connection that something else accepted: packets are read whole, as amqtt's adapters want it."""
        from broker_plugins.engine.external import serve

        await serve(self._new_connection(self._engine, listener_name), reader, writer)

    async def _broadcast(self, topic: str, data: bytes, qos: int | None = None) -> None:
        self._engine.publish(Message(check_topic_name(topic.encode()), bytes(data), qos or 0))

    async def _retain(self, _: object, topic_name: str, data: bytes | None, qos: int | None = None) -> None:
        message = Message(check_topic_name(topic_name.encode()), bytes(data or b""), qos or 0, retain=True)
        self._engine.retain(message)

    def _create_offline_session(self, client_id: str) -> tuple[None, HostSession]:
        session = self._engine.sessions.get(client_id)
        if session is None:
            session = self._engine.sessions[client_id] = Session(self._engine, client_id, clean=False)
            if self._engine.store is not None:
                self._engine.store.put("sessions", (client_id,), (0.0,))
        return None, host_session_of(session)

    async def _add_subscription(self, subscription: tuple[str, int], session: HostSession) -> int:
        codes = bytearray()
        done = self._engine.loop.create_future()
        assert session.engine_session is not None
        drive(
            self._engine.loop,
            self._engine.subscribe_alone(session.engine_session, [subscription], codes),
            lambda: done.set_result(None),
        )
        await done
        return codes[0]
