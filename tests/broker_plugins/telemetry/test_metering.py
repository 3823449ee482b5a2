"""What a thread has used of a processor is known, on any system."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from broker_plugins.telemetry import metering
from broker_plugins.telemetry.metering import processor_times

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_processor_time_of_the_thread_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in (metering._SCHEDULED, tmp_path / "missing", tmp_path):
        monkeypatch.setattr(metering, "_SCHEDULED", source)
        before_s, waited_s = processor_times()
        while time.thread_time() < before_s + 0.02:
            pass
        after_s, waited_later_s = processor_times()
        assert after_s > before_s
        assert waited_later_s >= waited_s >= 0.0
