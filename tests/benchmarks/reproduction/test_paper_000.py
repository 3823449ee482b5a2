from __future__ import annotations

import re

from benchmarks.reproduction import paper_000, region_discovery
from benchmarks.reproduction.mobile_world import MobileWorldSettings


def test_the_page_is_written_from_a_small_run(tmp_path, monkeypatch):
    for name, value in {
        "SEEDS": (1,),
        "SIZES": (200, 300),
        "MAIN": 200,
        "ROUNDS": 10,
        "LONG_ROUNDS": 20,
        "EVERY": 10,
        "PRINTED_EVENTS": 20,
    }.items():
        monkeypatch.setattr(paper_000, name, value)
    monkeypatch.setattr(region_discovery, "SEEDS", range(1, 2))
    monkeypatch.setattr(region_discovery, "WORLDS", {"small": MobileWorldSettings(users=300)})
    told = []
    paper_000.reproduce(tmp_path, told.append)
    page = (tmp_path / "paper-000.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[\w+\]\(([\w.-]+)\)", page)
    assert len(pictures) == 4
    assert all((tmp_path / picture).stat().st_size < 150_000 for picture in pictures)
    assert re.search(r"deliveries in all runs\n0 were lost", page)
    assert len(told) == 9
