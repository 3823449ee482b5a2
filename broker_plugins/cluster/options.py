"""What an operator can set of the cluster, and what it counts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from broker_plugins.cluster.causal_rules import read_rules
from broker_plugins.engine import EngineError
from broker_plugins.node_name import default_node

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass
class ClusterOptions:
    """Options of `broker_plugins.cluster.plugin.ClusterPlugin`."""

    node: str = ""
    """Name of this node, another one on every node and the same after a restart; the machine's name if not said."""
    cluster: str = "locus"
    """Name of the cluster; clusters with different names may share a fabric."""
    address: str = ""
    """Where clients reach this node, as `host:port`; `LOCUS_ADDRESS` of the environment if not said. Roaming clients
    are led only to nodes that have one."""
    servers: list[str] = field(default_factory=lambda: ["nats://127.0.0.1:4222"])
    """NATS servers, any of which will do; `tls://` for an encrypted connection."""
    embedded: bool = False
    """Start a NATS server of our own on `embedded_port`, for a cluster that has no other."""
    embedded_port: int = 4222
    """Port of that server on 127.0.0.1."""
    embedded_dir: str = "nats-data"
    """Directory of that server's streams."""
    user: str = ""
    """User at the fabric, where it asks for one."""
    password: str = ""
    """Password of that user."""
    credentials_file: str = ""
    """NATS credentials, in place of user and password."""
    tls_ca_file: str = ""
    """Certificates that the fabric's own is checked against."""
    tls_certificate_file: str = ""
    """Certificate by which this node is known to the fabric."""
    tls_key_file: str = ""
    """Key of that certificate."""
    replicas: int = 1
    """NATS servers that keep each stream; 3 survives the loss of one of three."""
    hello_s: float = 1.0
    """Time between two signs of life."""
    lease_s: float = 4.0
    """Silence after which a node is taken for gone."""
    granting_s: float = 1.0
    """The longest a SUBACK waits until all nodes that are there know the filters."""
    handover_pause_s: float = 5.0
    """The least time between two moves of a roaming client, and between two times it is told of one."""
    away_s: float = 86_400.0
    """How long messages are kept for the persistent sessions of a node that is gone."""
    max_mailbox_bytes: int = 268_435_456
    """Bytes of QoS 1 and 2 messages that wait for one node in the fabric; one more is dropped and counted."""
    max_outgoing_bytes: int = 67_108_864
    """Bytes of messages on their way to one node and not yet taken by the fabric; one more is dropped and counted."""
    max_removals: int = 100_000
    """Removals of retained messages that are remembered, so that a node that was away learns of them."""
    content: str = "direct"
    """How messages find `$where` subscriptions on other nodes: `direct` to the nodes whose summaries cover them; by an
    `overlay` of nodes that pass them on; `plain` to every node that has one for the topic. All deliver the same."""
    max_content_boxes: int = 32
    """Boxes by which a node tells the others what its `$where` subscriptions to one filter want."""
    max_content_filters: int = 10_000
    """Filters for which it does; messages of the others go to every node that holds one."""
    overlay_cap: float = 8.0
    """How many times the mean a node passes on for another one, by `content: overlay`, before others do it."""
    overlay_patience_s: float = 0.5
    """How long a message that was passed on waits for one that was sent before it by another way, and may be lost."""
    top_answer_s: float = 1.0
    """How long a message for the best receivers waits for another node to name its own; then they are left out."""
    max_top_waiting: int = 10_000
    """Messages that wait for such answers; one more of QoS 0 is dropped and counted."""
    block_capacity: float = 500.0
    """Positions and positioned messages a second that one block of the map takes; a busier one is split, and so is one
    with so large a part of all of them that it could not be shared out among the nodes."""
    block_border: float = 100.0
    """How far beyond its block's border a client may go before it belongs to another: metres, or units of the plane."""
    block_depth: int = 2
    """How often the map is quartered before anything is known of the load; blocks are not merged beyond that."""
    max_blocks: int = 4096
    """Blocks of the map; when there are so many, busy ones are not split any more."""
    weigh_s: float = 5.0
    """Time between two looks at how busy the blocks are."""
    slow_regions_file: str = ""
    """Slow regions as `spark_jobs.mine_regions` proposes them; if not said, nodes find them from what they see."""

    causal: dict[str, Any] = field(default_factory=dict)
    """Causal groups: by topic filter, the first that matches, how long a message lives, such as `250ms`. Its messages
    reach every node's subscribers in causal order and within that time, or not at all. The same on all nodes."""
    causal_skew_ms: float = 5.0
    """How far the clocks of nodes in a causal group are taken to be apart at least; what is measured widens it."""
    causal_clock_part: float = 0.5
    """Part of a group's lifetime by which another node's clock may be off; with one that is off by more, messages are
    exchanged as ordinary ones, unordered."""
    max_causal_waiting: int = 10_000
    """Messages of one causal group that wait on this node for others to come first; one more is dropped and counted."""
    max_causal_waiting_bytes: int = 67_108_864
    """Bytes of messages of all causal groups that wait; one that would be more is dropped and counted."""
    clock_offset_ms: float = 0.0
    """For tests: added to this node's clock."""

    def __post_init__(self) -> None:
        self.address = self.address or os.environ.get("LOCUS_ADDRESS", "")
        self.node = self.node or default_node()
        for option in ("node", "cluster"):
            value = getattr(self, option)
            if not _NAME.fullmatch(value):
                raise EngineError(f"{option}: {value!r} has other characters than letters, digits, - and _")
        if not self.servers and not self.embedded:
            raise EngineError("servers: name a NATS server, or say `embedded: true`")
        if not 0 < self.hello_s < self.lease_s:
            raise EngineError(f"hello_s ({self.hello_s}) is above 0 and below lease_s ({self.lease_s})")
        if self.content not in ("direct", "overlay", "plain"):
            raise EngineError(f"content: {self.content!r} is neither direct, overlay nor plain")
        if self.max_content_boxes < 1 or self.max_content_filters < 1:
            raise EngineError("max_content_boxes and max_content_filters are at least 1")
        if not self.overlay_patience_s > 0:
            raise EngineError(f"overlay_patience_s: {self.overlay_patience_s} is not above 0")
        if not self.overlay_cap >= 2:
            raise EngineError(f"overlay_cap: {self.overlay_cap} is below 2: nobody may be left to pass anything on")
        if not self.top_answer_s > 0 or self.max_top_waiting < 1:
            raise EngineError("top_answer_s is above 0, and max_top_waiting at least 1")
        for option in ("max_mailbox_bytes", "max_outgoing_bytes", "max_removals", "replicas", "max_blocks"):
            if getattr(self, option) < 1:
                raise EngineError(f"{option}: {getattr(self, option)} is too small; it is at least 1")
        for option in ("block_capacity", "weigh_s"):
            if not getattr(self, option) > 0:
                raise EngineError(f"{option}: {getattr(self, option)} is too small; it is above 0")
        if not 0 <= self.block_depth <= 5:
            raise EngineError(
                f"block_depth: {self.block_depth} is not from 0 to 5; busy blocks are split by themselves"
            )
        if not self.block_border >= 0:
            raise EngineError(f"block_border: {self.block_border} is below 0")

        self.causal_rules = read_rules(self.causal)
        if not 0 < self.causal_clock_part <= 1:
            raise EngineError(f"causal_clock_part: {self.causal_clock_part} is not above 0 and up to 1")
        if not 0 <= self.causal_skew_ms <= 60_000:
            raise EngineError(f"causal_skew_ms: {self.causal_skew_ms} is not from 0 to 60000")
        for option in ("max_causal_waiting", "max_causal_waiting_bytes"):
            if getattr(self, option) < 1:
                raise EngineError(f"{option}: {getattr(self, option)} is too small; it is at least 1")


@dataclass(slots=True)
class ClusterCounters:
    """What this node did for the cluster."""

    forwarded: int = 0
    """Messages sent to other nodes, counted once for each."""
    forwarded_bytes: int = 0
    """Bytes handed to the fabric for them."""
    announced_bytes: int = 0
    """Bytes by which other nodes were told of filters, and where they are listened to, and that theirs are known."""
    received: int = 0
    """Messages from other nodes."""
    repeated: int = 0
    """Batches that had been taken before and were not taken again."""
    dropped_outgoing: int = 0
    """Messages dropped because `max_outgoing_bytes` or the fabric's own bounds were reached."""
    dropped_away: int = 0
    """QoS 0 messages dropped because the fabric was away."""
    resyncs: int = 0
    """Times another node's filters were asked for as a whole."""
    retained_repairs: int = 0
    """Retained messages that another node had and this one had missed."""
    unreadable: int = 0
    """Messages between nodes that could not be read."""
    taken_over: int = 0
    """Connections closed because their client connected to another node."""
    handovers: int = 0
    """Roaming clients that moved here from another node and went on without a break."""
    handovers_told: int = 0
    """Times a roaming client was told to go to another node."""
    sessions_inherited: int = 0
    """Sessions taken over from nodes that were away."""
    inherited_mail: int = 0
    """Messages for them found in the mailboxes of those nodes."""
    notes_written: int = 0
    """Times the fabric was told what a persistent session is subscribed to."""
    notes_too_large: int = 0
    """Times that was more than the fabric is told of one session: it does not outlive its node elsewhere."""
    drained_refusals: int = 0
    """Clients refused because this node is drained."""
    handovers_unfenced: int = 0
    """Sessions that moved here while another node did not confirm in time that all on its way to the old one had
    come: what comes there later follows, out of order, and QoS 0 messages among it are lost."""
    retransmissions: int = 0
    """Messages that came here for a session that moved and had gone to its client on its old node already."""
    strays_sent: int = 0
    """Messages of a node that had been silent, sent after sessions that had left this node meanwhile."""
    strays_taken: int = 0
    """Those that were sent after sessions which are here now, and had not come otherwise."""
    strays_dropped: int = 0
    """Such messages, or sessions to look for them, that were too many."""
    subscribed_unknown: int = 0
    """Times a SUBACK did not wait any longer for another node to know the filters."""
    sessions_in: int = 0
    """Sessions that moved here."""
    sessions_out: int = 0
    """Sessions that moved to another node."""
    narrowed: int = 0
    """Messages that were not sent to a node with `$where` subscriptions to the topic because none wants the content."""
    content_boxes: int = 0
    """Boxes by which this node tells the others what its `$where` subscriptions want."""
    content_resyncs: int = 0
    """Times another node's boxes were asked for as a whole."""
    relayed: int = 0
    """Messages of other nodes that this one passed on, counted once for each node they went to."""
    relays_gone: int = 0
    """Messages that were to be passed on by a node that was gone, and were sent straight."""
    relays_late: int = 0
    """Messages that were passed on and came after later ones had not waited for them any longer."""
    top_asked: int = 0
    """Questions to other nodes whom they would serve with a message for the best receivers."""
    top_silent: int = 0
    """Those not answered in time, or not asked because their node is away: the receivers there were left out."""
    top_dropped: int = 0
    """Messages for the best receivers dropped because `max_top_waiting` was reached."""
    blocks: int = 0
    """Blocks of the map."""
    blocks_owned: int = 0
    """Blocks that this node owns."""
    block_moves: int = 0
    """Blocks that got another owner."""
    block_splits: int = 0
    """Blocks that were split."""
    block_merges: int = 0
    """Blocks that were made of smaller ones."""
    region_sent: int = 0
    """Positioned messages sent to a node because somebody listens in a block they touch, counted once for each."""
    region_spared: int = 0
    """Positioned messages not sent to a node that wants their topic, because nobody listens there."""
    region_unsure: int = 0
    """Positioned messages sent to a node because it was not known well enough where somebody listens."""
    causal_sent: int = 0
    """Messages of causal groups sent to other nodes with what comes before them, counted once for each."""
    causal_control_bytes: int = 0
    """Bytes of this control information."""
    causal_delivered: int = 0
    """Messages of causal groups from other nodes, delivered in order and in time."""
    causal_waited: int = 0
    """Those of them that came out of order, and waited for others to come first."""
    causal_waited_us: int = 0
    """How long they waited, all together, in microseconds."""
    causal_longest_wait_us: int = 0
    """How long the one that waited longest did, in microseconds."""
    causal_late: int = 0
    """Messages of causal groups dropped because they came after their lifetime."""
    causal_outlived: int = 0
    """Messages dropped because their own, shorter lifetime ended while they waited."""
    causal_stalled: int = 0
    """Messages dropped because this node was too busy to deliver them in time."""
    causal_overflows: int = 0
    """Messages dropped because `max_causal_waiting` or `max_causal_waiting_bytes` was reached."""
    causal_duplicates: int = 0
    """Messages of causal groups that had come before."""
    causal_strangers: int = 0
    """Messages dropped because they were for this node's life before a restart, or stamped far in the future."""
    causal_unordered: int = 0
    """Messages of causal groups exchanged as ordinary ones, because the other node's clock or groups do not fit."""
    causal_refusals: int = 0
    """Times another node was refused in a causal group because of its clock."""
