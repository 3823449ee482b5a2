from __future__ import annotations

import re

import numpy as np

from benchmarks.reproduction import overlay_worlds, paper_003


def test_the_page_is_written_from_a_small_run(tmp_path, monkeypatch):
    for module in (overlay_worlds, paper_003):
        monkeypatch.setattr(module, "PEERS", 120)
    for name, value in {"EVENTS": 60, "WARM_UP": 20, "PRINTED_EVENTS": 20, "EVENT_SPREADS": (50, 300)}.items():
        monkeypatch.setattr(paper_003, name, value)
    paper_003.reproduce(tmp_path, lambda _line: None)
    page = (tmp_path / "paper-003.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[\w+\]\(([\w.-]+)\)", page)
    assert len(pictures) == 4
    assert all((tmp_path / picture).stat().st_size < 150_000 for picture in pictures)
    assert "Lowest recall in all of these runs: 1.000" in page


def test_boxes_know_who_matches():
    boxes = overlay_worlds.Boxes(np.array([[0.0, 0.0], [np.nan, 5.0]]), np.array([[10.0, 10.0], [np.nan, 6.0]]))
    assert boxes.matching(np.array([3.0, 5.5])) == ["0", "1"]
    assert boxes.matching(np.array([900.0, 5.5])) == ["1"]
    assert boxes.matching(np.array([3.0, 7.0])) == ["0"]
