"""What can go wrong between a client and its broker; each error names the value and the remedy.

What is wrong in a filter or a topic itself is a `GrammarError`, which points at the character, before anything is sent.
"""

from __future__ import annotations


class LocusClientError(Exception):
    """Any failure of the client library but a `GrammarError`."""


class ConnectError(LocusClientError):
    """The broker cannot be reached or does not let this client in."""


class NotConnectedError(LocusClientError):
    """The connection is lost and did not come back in time."""


class ClosedError(LocusClientError):
    """The client, or a subscription of it, was used after it had been closed."""


class NoAnswerError(LocusClientError, TimeoutError):
    """The broker did not answer in time."""


class QueueFullError(LocusClientError):
    """Too many messages wait for their acknowledgement."""


class SubscriptionRefusedError(LocusClientError):
    """The broker answered a subscription with SUBACK 0x80.

    Attributes:
        filter: The filter as it was sent.
        inner: The ordinary filter in it, which access control judges.
    """

    def __init__(self, text: str, inner: str) -> None:
        super().__init__(text, inner)
        self.filter = text
        self.inner = inner

    def __str__(self) -> str:
        reasons = [f"this client may not read {self.inner!r}", "the filter exceeds a limit of the broker"]
        if self.filter != self.inner:
            reasons.append("the broker runs without the plugin for its prefix")
        return (
            f"the broker refused the subscription {self.filter!r} (SUBACK 0x80): "
            f"{', or '.join(reasons)}; the broker's log says which"
        )


class PositionError(LocusClientError, ValueError):
    """A position is outside the space, or a distance is not one."""


class FenceError(LocusClientError, ValueError):
    """A fence is not a valid GeoJSON polygon, or its name is not one."""
