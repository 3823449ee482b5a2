"""A client's session as amqtt's plugins see it: the attributes they read, without the machinery amqtt's own carries."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from amqtt.session import Session as AmqttSession

if TYPE_CHECKING:
    from broker_plugins.engine.codec import Connect
    from broker_plugins.engine.connection import Connection
    from broker_plugins.engine.session import Session


class _State:
    """Stands for amqtt's state machine: says whether the client is connected."""

    __slots__ = ("_session",)

    def __init__(self, session: HostSession) -> None:
        self._session = session

    @property
    def state(self) -> str:
        """`connected` or `disconnected`."""
        return "connected" if self.is_connected() else "disconnected"

    def is_connected(self) -> bool:
        """Whether the client is connected."""
        session = self._session.engine_session
        return session is not None and session.connection is not None

    def is_disconnected(self) -> bool:
        """Whether it is not."""
        return not self.is_connected()


class HostSession(AmqttSession):
    """What authentication, topic and event plugins get for a session.

    amqtt's own constructor makes a state machine and two queues, 20 KB that nobody here uses; it is not called. Most
    plugins look at one or two attributes, so the others are found out when they are asked for.
    """

    def __init__(self, connection: Connection | None, connect: Connect | None) -> None:  # pylint: disable=super-init-not-called
        self._connection = connection
        self._connect = connect
        self.engine_session: Session | None = None
        self.client_id = connect.client_id if connect is not None else None
        self.username = connect.username if connect is not None else None
        self.is_anonymous = False

    @classmethod
    def offline(cls, session: Session) -> HostSession:
        """For a session whose client has not connected since the broker started."""
        host_session = cls(None, None)
        host_session.engine_session = session
        host_session.client_id = session.client_id
        host_session.username = session.username
        return host_session

    def settle(self, session: Session) -> None:
        """The client has got its session: find out what can only be known while it is connected."""
        self.engine_session = session
        for name in ("remote_address", "ssl_object", "last_connect_time"):
            getattr(self, name)
        self._connection = None  # it may end long before the session does

    def __getattr__(self, name: str) -> Any:
        """An attribute of amqtt's session that nobody asked for before."""
        if name.startswith("__"):
            raise AttributeError(name)
        connect = self.__dict__.get("_connect")
        if name in ("remote_address", "remote_port"):
            connection = self.__dict__.get("_connection")
            peer: tuple[str | None, int | None] = (connection.peer if connection else None) or (None, None)
            self.remote_address, self.remote_port = peer
        elif name == "ssl_object":
            connection = self.__dict__.get("_connection")
            transport = connection.transport if connection is not None else None
            self.ssl_object = transport.get_extra_info("ssl_object") if transport is not None else None
        elif name == "attributes":
            self.attributes: dict[str, Any] = {}
        elif name == "last_connect_time":
            self.last_connect_time = int(time.time())
        elif name == "clean_session":
            self.clean_session = connect.clean_session if connect is not None else False
        elif name == "keep_alive":
            self.keep_alive = connect.keep_alive_s if connect is not None else 0
        elif name == "password":
            password = connect.password if connect is not None else None
            self.password = password.decode("utf-8", "surrogateescape") if password is not None else None
        elif name == "parent":
            self.parent = 0
        elif name.startswith("will_"):
            will = connect.will if connect is not None else None
            self.will_flag = will is not None
            self.will_topic = will.topic if will else None
            self.will_message = will.payload if will else None
            self.will_qos = will.qos if will else None
            self.will_retain = will.retain if will else None
        if name not in self.__dict__:
            raise AttributeError(f"a session has no attribute {name!r}")
        return self.__dict__[name]

    @property
    def transitions(self) -> _State:
        """Whether the client is connected, as amqtt's state machine would say it."""
        return _State(self)

    @property
    def last_disconnect_time(self) -> int | None:
        """When the client left, in seconds since 1970."""
        session = self.engine_session
        return int(session.left_at) if session is not None and session.left_at else None

    @property
    def inflight_in_count(self) -> int:
        """QoS 2 messages received and not released."""
        session = self.engine_session
        return len(session.inbound) if session is not None and session.inbound else 0

    @property
    def inflight_out_count(self) -> int:
        """Messages sent and not acknowledged."""
        return len(self.engine_session.inflight) if self.engine_session is not None else 0

    @property
    def retained_messages_count(self) -> int:
        """Messages that wait for the client, which amqtt calls retained for it."""
        return self.engine_session.queued if self.engine_session is not None else 0

    def __repr__(self) -> str:
        return f"HostSession({self.client_id!r}, {self.transitions.state})"
