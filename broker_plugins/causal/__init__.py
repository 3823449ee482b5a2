"""Δ-causal delivery: messages reach every node in causal order and in time, or not at all.

Pure state machines: the time and bytes go in, decisions come out. `CausalNode` is all a program needs; `CausalState`,
`WaitingRoom` and the wire format under it can be used apart.
"""

from __future__ import annotations

from broker_plugins.causal.core import CausalState, Control
from broker_plugins.causal.node import CausalNode, Delivery, Drop, DropReason, Outcome, Outgoing, Statistics
from broker_plugins.causal.roster import Roster, RosterError
from broker_plugins.causal.stamps import HybridClock, message_id, slots_in, split_message_id
from broker_plugins.causal.waiting_room import Waiter, WaitingRoom
from broker_plugins.causal.wire import ControlFormatError, Envelope, decode
from broker_plugins.causal.wire_coarse import grain_of

__all__ = [
    "CausalNode",
    "CausalState",
    "Control",
    "ControlFormatError",
    "Delivery",
    "Drop",
    "DropReason",
    "Envelope",
    "HybridClock",
    "Outcome",
    "Outgoing",
    "Roster",
    "RosterError",
    "Statistics",
    "Waiter",
    "WaitingRoom",
    "decode",
    "grain_of",
    "message_id",
    "slots_in",
    "split_message_id",
]
