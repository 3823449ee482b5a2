"""The fabric nodes share: a connection to NATS that comes back by itself, leases, the directory and mailboxes.

Everything here may fail at any time and is tried again. A node that cannot reach the fabric goes on alone; it says so
once, and once more when the fabric is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from typing import TYPE_CHECKING

import msgspec
import nats
import nats.errors
import nats.js.errors
from nats.js import api

from broker_plugins.cluster.mail_reader import FAULTS, MailReader
from broker_plugins.cluster.visiting import proofs_of, servers_of, visit
from broker_plugins.engine import EngineError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from broker_plugins.cluster.options import ClusterOptions

log = logging.getLogger(__name__)

RETRY_S = 0.5
ANSWER_S = 2.0
DEDUPLICATION_S = 600.0
"""How long the fabric recognises a batch that is sent again."""


class Lease(msgspec.Struct):
    """What a node says of itself in the directory."""

    node: str
    incarnation: int
    address: str
    clients: int = 0
    subscriptions: int = 0
    filters: int = 0
    since: float = 0.0


class NameTakenError(Exception):
    """Another node with this name is alive."""


class Fabric:
    """One node's connection to the others.

    Args:
        options: where the servers are, and who we are.
        incarnation: a number that is another one after each start.
        subscriptions: what to do with messages on inner subjects, by the subject below the cluster's name.
        up: called when the fabric is there, or there again.
    """

    def __init__(
        self,
        options: ClusterOptions,
        incarnation: int,
        subscriptions: dict[str, Callable[[Msg], Awaitable[None]]],
        up: Callable[[], Awaitable[None]],
    ) -> None:
        self.options = options
        self.incarnation = incarnation
        self._subscriptions = subscriptions
        self._up = up
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._leases: KeyValue | None = None
        self._directory: KeyValue | None = None
        self.notes: KeyValue | None = None
        """What is remembered of persistent sessions."""
        self.inherited: KeyValue | None = None
        """Sessions that were taken over from nodes that were away."""
        self.settled = False
        """Whether the fabric is there and this node has learned what it must know before it takes its mail."""
        self._said: str | None = None
        self._closing = False
        self.ready = False
        """Whether the fabric is there and set up."""
        self.mailbox_created = ""
        """When this node's mailbox was made: one made anew counts from 1 again."""

    def subject(self, *parts: str) -> str:
        """An inner subject of this cluster; no topic of a client is ever a subject."""
        return ".".join(("locus", self.options.cluster, *parts))

    def mailbox(self, node: str) -> str:
        """The stream in which messages wait for a node."""
        return f"LOCUS_{self.options.cluster}_MAIL_{node}"

    @property
    def max_payload(self) -> int:
        """The most bytes one message may have."""
        return 0 if self._client is None else int(self._client.max_payload)

    # Coming and going.

    async def run(self) -> None:
        """Be connected, for as long as this is not cancelled."""
        while not self._closing:
            try:
                if self._client is None:
                    await self._connect()
                if not self.ready and self._client is not None and self._client.is_connected:
                    await self._settle()
                    self.ready = True
                    self._say("")
                    try:
                        await self._up()
                    finally:
                        self.settled = True
            except NameTakenError as error:
                self._say(str(error))
            except FAULTS as error:
                self._say(f"{type(error).__name__}: {error}")
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Give the lease back and leave."""
        self._closing = True
        client = self._client
        if client is None:
            return
        with contextlib.suppress(*FAULTS):
            if self.ready and self._leases is not None:
                await asyncio.wait_for(self._leases.delete(self.options.node), ANSWER_S)
        self.ready = False
        with contextlib.suppress(*FAULTS):
            await asyncio.wait_for(client.close(), ANSWER_S)

    def _say(self, trouble: str) -> None:
        """One line when the fabric goes, one when it is back."""
        if trouble and not self._said:
            log.warning(
                "node %s cannot reach the fabric (%s); it serves its own clients and joins when it can",
                self.options.node,
                trouble,
            )
        elif not trouble and self._said != "":
            log.info("node %s has joined cluster %s", self.options.node, self.options.cluster)
        self._said = trouble

    async def _connect(self) -> None:
        options = self.options
        client = await nats.connect(
            servers_of(options),
            name=f"locus {options.cluster}/{options.node}",
            connect_timeout=2,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            ping_interval=2,
            max_outstanding_pings=2,
            allow_reconnect=True,
            error_cb=self._failed,
            disconnected_cb=self._lost,
            **proofs_of(options),
        )
        for name, handler in self._subscriptions.items():
            await client.subscribe(self.subject(*name.split(".")), cb=handler)
        self._client = client
        self._js = client.jetstream(timeout=ANSWER_S)

    async def _failed(self, error: Exception) -> None:
        log.debug("fabric: %s", error)
        if self._client is None:  # still on its way to the first connection, which is tried for ever
            self._say(str(error) or type(error).__name__)

    async def _lost(self) -> None:
        if self.ready:
            self.ready = self.settled = False
            self._say("the connection is lost")

    async def _settle(self) -> None:
        """Make what this node needs in the fabric, where it is not there yet."""
        options = self.options
        js = self._js
        assert js is not None
        bucket = f"locus_{options.cluster}"
        self._leases = await self._bucket(f"{bucket}_leases", options.lease_s)
        self._directory = await self._bucket(f"{bucket}_directory", 0.0)
        self.notes = await self._bucket(f"{bucket}_sessions", options.away_s * 2)
        self.inherited = await self._bucket(f"{bucket}_inherited", options.away_s * 2)
        await self._take_lease()
        wanted = api.StreamConfig(
            name=self.mailbox(options.node),
            subjects=[self.subject("mail", options.node)],
            max_bytes=options.max_mailbox_bytes,
            max_age=options.away_s,
            discard=api.DiscardPolicy.NEW,
            storage=api.StorageType.FILE,
            num_replicas=options.replicas,
            duplicate_window=min(DEDUPLICATION_S, options.away_s),
        )
        try:
            info = await js.stream_info(self.mailbox(options.node))
        except nats.js.errors.NotFoundError:
            info = await js.add_stream(wanted)
        self.mailbox_created = str(info.created)

    async def _bucket(self, name: str, ttl_s: float) -> KeyValue:
        assert self._js is not None
        try:
            return await self._js.key_value(name)
        except nats.js.errors.NotFoundError:
            return await self._js.create_key_value(
                bucket=name, ttl=ttl_s or None, history=1, replicas=self.options.replicas
            )

    # Leases.

    async def _take_lease(self) -> None:
        """See that nobody else lives under our name.

        Raises:
            NameTakenError: somebody does.
        """
        held = await self._read_lease(self.options.node)
        if held is not None and held.incarnation != self.incarnation:
            # Our own former life, or another node: the first says nothing more.
            await asyncio.sleep(self.options.hello_s * 2.5)
            again = await self._read_lease(self.options.node)
            if again is not None and again.incarnation != self.incarnation and again.since != held.since:
                raise NameTakenError(f"another node is called {self.options.node!r}: give this one another `node:`")
        await self.renew(0, 0, 0)

    async def _read_lease(self, node: str) -> Lease | None:
        assert self._leases is not None
        try:
            entry = await self._leases.get(node)
        except nats.js.errors.KeyNotFoundError:
            return None
        return None if entry.value is None else msgspec.json.decode(entry.value, type=Lease)

    async def renew(self, clients: int, subscriptions: int, filters: int) -> None:
        """Say in the directory that this node is there."""
        assert self._leases is not None
        options = self.options
        lease = Lease(
            options.node, self.incarnation, options.address, clients, subscriptions, filters, round(time.time(), 3)
        )
        await self._leases.put(options.node, msgspec.json.encode(lease))

    async def leased(self) -> list[str]:
        """The names of the nodes that are there."""
        assert self._leases is not None
        return await _keys(self._leases)

    # The directory.

    async def directory_keys(self) -> list[str]:
        """Everything the directory has a value for."""
        assert self._directory is not None
        return await _keys(self._directory)

    async def directory_get(self, key: str) -> tuple[bytes | None, int]:
        """A value of the directory and its revision; nothing and 0 where there is none."""
        assert self._directory is not None
        try:
            entry = await self._directory.get(key)
        except nats.js.errors.KeyNotFoundError:
            return None, 0
        return entry.value, int(entry.revision or 0)

    async def directory_change(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        """Compare and set: apply a change to whatever the value is when it takes effect.

        `change` is given the value and returns the one to write, or None to leave it as it is; it may be called
        several times. Returns the value in force.

        Raises:
            nats.errors.Error: the fabric does not take it, for want of room for instance.
        """
        assert self._directory is not None
        while True:
            value, revision = await self.directory_get(key)
            wanted = change(value)
            if wanted is None:
                return value
            try:
                if revision:
                    await self._directory.update(key, wanted, last=revision)
                else:
                    await self._directory.create(key, wanted)
            except nats.js.errors.KeyWrongLastSequenceError:
                continue  # somebody was faster
            return wanted

    # Messages.

    async def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        """Send to whoever listens now; if nobody does, something without content comes on the subject `reply`."""
        if self._client is not None and self.ready:
            await self._client.publish(subject, data, reply)

    async def flush(self, seconds: float) -> None:
        """Wait until the server has what was sent."""
        if self._client is not None and self.ready:
            with contextlib.suppress(*FAULTS):
                await self._client.flush(max(1, math.ceil(seconds)))

    async def ask(self, node: str, question: bytes, seconds: float = ANSWER_S) -> bytes:
        """Ask another node something."""
        if self._client is None:
            raise nats.errors.ConnectionClosedError
        answer = await self._client.request(self.subject("ask", node), question, timeout=seconds)
        return bytes(answer.data)

    async def post(self, node: str, data: bytes, number: str) -> None:
        """Put something into a node's mailbox; returns when it is safe there. `number` tells it from all others."""
        if self._js is None or not self.ready:
            raise nats.errors.ConnectionClosedError
        await self._js.publish(
            self.subject("mail", node), data, stream=self.mailbox(node), headers={"Nats-Msg-Id": number}
        )

    async def collect(self, after: int) -> MailReader:
        """Read this node's mailbox from the first message after a number."""
        assert self._client is not None
        assert self._js is not None
        name = self.mailbox(self.options.node)
        info = await self._js.stream_info(name)
        reader = MailReader(self._client, name, max(after + 1, int(info.state.first_seq or 0)))
        await reader.open()
        return reader

    async def peek(self, node: str, after: int, upto: int, seconds: float) -> list[bytes]:
        """What waits in a node's mailbox after a number and up to another; it stays there.

        Raises:
            nats.errors.TimeoutError: it takes longer than the time given.
        """
        assert self._js is not None
        info = await self._js.stream_info(self.mailbox(node))
        start, last = max(after + 1, int(info.state.first_seq or 0)), min(upto, int(info.state.last_seq or 0))
        if start > last:
            return []
        deadline = time.monotonic() + seconds
        subscription = await self._js.pull_subscribe(
            self.subject("mail", node),
            stream=self.mailbox(node),
            config=api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=start,
                ack_policy=api.AckPolicy.NONE,
                inactive_threshold=10.0,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        found: list[bytes] = []
        try:
            while time.monotonic() < deadline:
                for message in await subscription.fetch(64, timeout=max(0.1, deadline - time.monotonic())):
                    number = int(message.metadata.sequence.stream)
                    if number <= last:
                        found.append(bytes(message.data))
                    if number >= last:
                        return found
            raise nats.errors.TimeoutError
        finally:
            with contextlib.suppress(*FAULTS):
                await subscription.unsubscribe()

    async def mailbox_state(self, node: str) -> tuple[str, int]:
        """When another node's mailbox was made, and the number of the last message in it; nothing if it has none."""
        assert self._js is not None
        try:
            info = await self._js.stream_info(self.mailbox(node))
        except nats.js.errors.NotFoundError:
            return "", 0
        return str(info.created), int(info.state.last_seq or 0)

    async def empty(self, upto: int) -> None:
        """Remove what was taken out of this node's mailbox."""
        if self._js is not None and self.ready:
            await self._js.purge_stream(self.mailbox(self.options.node), seq=upto + 1)


async def _keys(bucket: KeyValue) -> list[str]:
    try:
        return sorted(await bucket.keys())
    except nats.js.errors.NoKeysError:
        return []


async def read_leases(options: ClusterOptions) -> list[Lease]:
    """The nodes of a cluster, for somebody who is none of them.

    Raises:
        EngineError: there is no fabric, or it does not let us in.
    """
    client = await visit(options)
    try:
        leases = await client.jetstream(timeout=ANSWER_S).key_value(f"locus_{options.cluster}_leases")
        names = sorted(await leases.keys())
        found = []
        for name in names:
            with contextlib.suppress(nats.js.errors.KeyNotFoundError):  # it has just run out
                found.append(msgspec.json.decode((await leases.get(name)).value or b"", type=Lease))
    except (nats.js.errors.NotFoundError, nats.js.errors.NoKeysError):
        return []
    except FAULTS as error:
        raise EngineError(f"{', '.join(servers_of(options))} has no JetStream: {error}") from error
    else:
        return found
    finally:
        await client.close()
