from __future__ import annotations

from typing import TYPE_CHECKING

from broker_plugins.retained.policy_source import PolicySource
from rl_policy import CostModel
from tests.broker_plugins.retained.policies import SEND, WAIT, write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

COST = CostModel(0.2, 5.0)


def test_a_file_that_comes_later_is_taken_into_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = PolicySource(tmp_path / "policy", COST)
    with caplog.at_level("INFO"):
        for _ in range(3):
            source.look()
    assert source.policy is None
    assert source.refused == 0
    assert [record.levelname for record in caplog.records] == ["INFO"]  # said once, not at every look
    assert "the renewal rule decides until there is one" in caplog.text
    write(source.path, WAIT, 5.0)
    source.look()
    assert source.policy is not None
    assert source.loaded == 1


def test_a_new_file_replaces_the_policy(tmp_path: Path) -> None:
    source = PolicySource(write(tmp_path / "policy", WAIT, 5.0), COST)
    source.look()
    first = source.policy
    source.look()
    assert source.policy is first
    write(source.path, SEND, 5.0)
    source.look()
    assert source.policy is not None
    assert first is not None
    assert source.policy.version != first.version


def test_a_file_that_cannot_be_used_leaves_the_policy_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = PolicySource(write(tmp_path / "policy", WAIT, 5.0), COST)
    source.look()
    kept = source.policy
    good = source.path.read_bytes()
    for bad in (good[:-1], good[:20], b"nothing of the kind", bytes([*good[:-1], good[-1] ^ 1])):
        source.path.write_bytes(bad)
        refused = source.refused
        source.look()
        source.look()
        assert source.policy is kept
        assert source.refused == refused + 1
    assert len(caplog.records) == 4
    assert f"policy {kept.version} stays in use" in caplog.text  # type: ignore[union-attr]
    source.path.unlink()
    source.look()
    assert source.policy is kept


def test_a_policy_for_another_cost_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = PolicySource(write(tmp_path / "policy", WAIT, 7.0), COST)
    source.look()
    assert source.policy is None
    assert "learned for kappa 0.2 and d_max_s 7, not for 0.2 and 5" in caplog.text
