from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial

import pytest

from benchmarks.reproduction import paper_004
from rl_policy import PaperModel, average_reward


def test_the_page_is_written_from_a_small_run(tmp_path, monkeypatch) -> None:
    small = {
        "OMEGAS": (0.3, 0.7),
        "LAMBDAS": (0.1, 0.6),
        "STEPS": 3_000,
        "CHECKPOINTS": (1_000, 2_000),
        "SEEDS": (0,),
        "average_reward": partial(average_reward, slots=100),
    }
    for name, value in small.items():
        monkeypatch.setattr(paper_004, name, value)
    paper_004.reproduce(tmp_path, lambda line: None)
    page = (tmp_path / "paper-004.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]+\]\(([\w.-]+)\)", page)
    assert len(pictures) == 3
    assert all(0 < (tmp_path / picture).stat().st_size < 150_000 for picture in pictures)
    # Both shapes of the paper's figures come out; the optimum does not depend on how long one learned.
    assert "the more so the smaller ω is:\nholds" in page
    assert "both fall as more is:\nholds" in page


def test_a_subscriber_is_left_with_nothing_as_often_as_nothing_is_published() -> None:
    quiet = replace(PaperModel(), lambda_p=0.1)
    assert paper_004.unserved(quiet, 5) == pytest.approx(math.exp(-0.5))


def test_nobody_is_left_with_nothing_where_freshness_is_all() -> None:
    assert paper_004.unserved(replace(PaperModel(), omega=1.0), 5) == 0.0
