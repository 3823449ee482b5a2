"""All that the pages show, behind one lock: the feed's thread writes, the pages' event loop reads."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from spark_jobs.dashboard.explained import ANSWERS, Explanation, read_explanation
from spark_jobs.dashboard.matches import RECEIPTS, Matches
from spark_jobs.dashboard.payloads import read_object
from spark_jobs.dashboard.regions import CAUSAL_TOPIC, REGIONS_TOPIC, CausalGroup, Regions, read_causal, read_regions
from spark_jobs.dashboard.scene import Scene
from spark_jobs.dashboard.traffic import Figures, Metrics

MOST_HANDOVERS: Final = 50
HANDOVERS: Final = "locus/metrics/handovers"
"""Where roaming clients tell that they went from one node to another: JSON objects with `client`, `from` and `to`."""
SAME_S: Final = 20.0
"""What the lake has of a handover that was told live lies at most so far from it."""
CLUSTER: Final = "$SYS/broker/locus/cluster/"
MOST_TOLD: Final = 500
MOST_EXPLAINED: Final = 50
MOST_TOLD_BYTES: Final = 200_000


class Board:
    """What is known, for all pages.

    Args:
        receipts_topic: where receipts of ranked messages come.
    """

    def __init__(self, receipts_topic: str = RECEIPTS) -> None:
        self.lock = threading.Lock()
        self.scene = Scene()
        self.metrics = Metrics()
        self.figures = Figures()
        self.matches = Matches(receipts_topic)
        self.handovers: deque[tuple[float, str, str]] = deque(maxlen=MOST_HANDOVERS)
        """When, which client, and from where to where, as it was told live."""
        self.cluster: dict[str, Any] = {}
        """What else came below `$SYS/broker/locus/cluster/`, by the rest of the topic."""
        self.regions = Regions()
        """Which node owns which block; none without a cluster."""
        self.causal: list[CausalGroup] = []
        self.explained: dict[str, Explanation] = {}
        """The latest answers about retained messages, by topic."""
        self.messages = 0
        """Messages taken in since the start."""

    def take(self, topic: str, payload: bytes, now_s: float, *, retained: bool = False) -> None:
        """Take in one message."""
        with self.lock:
            self.messages += 1
            if topic == HANDOVERS:
                content = read_object(payload) or {}
                client, before, after = content.get("client"), content.get("from"), content.get("to")
                if isinstance(client, str) and isinstance(before, str) and isinstance(after, str):
                    self.handovers.append((now_s, client[:80], f"{before[:60]} → {after[:60]}"))
                    self.scene.hand_over(client, f"→ {after}")
            elif topic == REGIONS_TOPIC:
                self.regions = read_regions(payload) or Regions()
                self.scene.show_regions(self.regions.blocks)
            elif topic == CAUSAL_TOPIC:
                self.causal = read_causal(payload)
            elif topic.startswith(ANSWERS):
                self._take_explanation(payload)
            elif topic.startswith(CLUSTER):
                self._take_cluster(topic.removeprefix(CLUSTER), payload)
            elif topic.startswith("locus/metrics/"):
                self.metrics.take(topic, payload, now_s, retained=retained)
            elif not self.scene.take(topic, payload, now_s) and not self.matches.take(topic, payload, now_s):
                self.figures.take(topic, payload, now_s)

    def _take_explanation(self, payload: bytes) -> None:
        found = read_explanation(payload)
        if found is not None:
            self.explained.pop(found.topic, None)
            while len(self.explained) >= MOST_EXPLAINED:
                del self.explained[next(iter(self.explained))]
            self.explained[found.topic] = found

    def told_live(self, client: str, at_s: float) -> bool:
        """Whether a handover in the lake is one that was told live."""
        return any(who == client and abs(when_s - at_s) < SAME_S for when_s, who, _ in self.handovers)

    def _take_cluster(self, name: str, payload: bytes) -> None:
        if not payload:
            self.cluster.pop(name, None)
        elif len(payload) <= MOST_TOLD_BYTES and (name in self.cluster or len(self.cluster) < MOST_TOLD):
            content = read_object(payload)
            self.cluster[name] = payload.decode(errors="replace") if content is None else content
