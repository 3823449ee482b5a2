"""Who was matched with what: receipts of messages that went to their best matches, and what each receiver wanted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_jobs.dashboard.payloads import number, read_object

RECEIPTS: Final = "city/jobs/receipts"
OFFERS: Final = "city/jobs/board"
"""Where an offer is shown to whoever looks on, just before it goes to its best matches."""
WORKERS: Final = "city/workers/"
MOST_RECEIPTS: Final = 200
MOST_WISHES: Final = 2_000


@dataclass(frozen=True, slots=True)
class Receiver:
    """One of those a message went to: its rank, how narrow its filter was, and who it is where that is told."""

    rank: int
    accuracy: float
    name: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one message."""

    topic: str
    count: int
    receivers: tuple[Receiver, ...]
    heard_s: float
    numbers: str = ""
    """What was offered, as far as it was told."""


class Matches:
    """The latest receipts.

    Args:
        receipts_topic: where publishers have their receipts sent.
    """

    def __init__(self, receipts_topic: str = RECEIPTS) -> None:
        self._topic = receipts_topic
        self._receipts: deque[Receipt] = deque(maxlen=MOST_RECEIPTS)
        self._wishes: dict[str, str] = {}
        self._offered = ""
        self.total = 0
        """Receipts since the start."""
        self.unmatched = 0
        """Those of messages that nobody got."""

    def take(self, topic: str, payload: bytes, now_s: float) -> bool:
        """Take in a message; whether it was a receipt or told what somebody wants."""
        if topic == self._topic:
            receipt = read_receipt(payload, now_s)
            if receipt is None:
                return False
            self._receipts.append(replace(receipt, numbers=self._offered))
            self._offered = ""
            self.total += 1
            self.unmatched += receipt.count == 0
            return True
        if topic == OFFERS:
            self._offered = numbers_said(read_object(payload) or {})
            return True
        if topic.startswith(WORKERS):
            self._take_wish(payload)
            return True
        return False

    def _take_wish(self, payload: bytes) -> None:
        content = read_object(payload)
        if content is None:
            return
        client, wish = content.get("client"), content.get("filter")
        if isinstance(client, str) and isinstance(wish, str):
            if client not in self._wishes and len(self._wishes) >= MOST_WISHES:
                self._wishes.pop(next(iter(self._wishes)))
            self._wishes[client] = wish[:200]

    def latest(self, most: int = 12) -> list[Receipt]:
        """The last receipts, newest first."""
        return list(reversed(self._receipts))[:most]

    def wish_of(self, client: str) -> str:
        """The filter a client holds, as far as it is told."""
        return self._wishes.get(client, "")

    def mean_accuracy(self, most: int = 50) -> float | None:
        """How narrow the best match was on average, over the last receipts with one."""
        best = [receipt.receivers[0].accuracy for receipt in self.latest(most) if receipt.receivers]
        return sum(best) / len(best) if best else None

    def accuracies(self) -> list[tuple[float, float | None]]:
        """The best accuracy of each receipt over time."""
        return [(r.heard_s, r.receivers[0].accuracy if r.receivers else None) for r in self._receipts]

    def rate(self, now_s: float) -> float:
        """Receipts a second over the last minute, or since the oldest that is kept."""
        recent = [receipt.heard_s for receipt in self._receipts if receipt.heard_s >= now_s - 60.0]
        if not recent:
            return 0.0
        whole = len(recent) == len(self._receipts) == MOST_RECEIPTS
        return len(recent) / max(1.0, now_s - recent[0] if whole else min(60.0, now_s - self._receipts[0].heard_s))


def read_receipt(payload: bytes, now_s: float) -> Receipt | None:
    """A receipt as the ranked plugin writes it; None for anything else."""
    content = read_object(payload)
    if content is None:
        return None
    topic, count, listed = content.get("topic"), number(content.get("count")), content.get("receivers")
    if not isinstance(topic, str) or count is None or not isinstance(listed, list):
        return None
    receivers = tuple(found for each in listed[:20] if (found := _receiver(each)) is not None)
    return Receipt(topic, int(count), receivers, now_s)


def numbers_said(content: dict[str, Any]) -> str:
    """The numbers of an offer in a line, without where it is."""
    found = {name: number(value) for name, value in content.items() if name not in ("lon", "lat", "job")}
    return ", ".join(f"{name} {value:g}" for name, value in found.items() if value is not None)[:120]


def _receiver(value: Any) -> Receiver | None:
    if not isinstance(value, dict):
        return None
    rank, accuracy = number(value.get("rank")), number(value.get("accuracy"))
    if rank is None or accuracy is None:
        return None
    name = value.get("client", value.get("group", ""))
    return Receiver(int(rank), accuracy, name if isinstance(name, str) else "")
