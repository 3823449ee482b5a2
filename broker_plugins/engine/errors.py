"""What a client can do wrong, and what an operator can."""

from __future__ import annotations


class ProtocolViolation(Exception):  # noqa: N818  a violation is what the standard calls it
    """A client broke the protocol: its connection is closed and one line of the log says why.

    Args:
        clause: the clause of MQTT 3.1.1 that was broken, such as `MQTT-3.3.2-2`, or a word such as `limit`.
        reason: what was wrong, in words, with the offending value.
    """

    def __init__(self, clause: str, reason: str) -> None:
        super().__init__(f"[{clause}] {reason}")
        self.clause = clause
        self.reason = reason


class EngineError(Exception):
    """The engine cannot do what its configuration or its host asks of it."""


class StoreError(EngineError):
    """The file of sessions and retained messages cannot be used."""
