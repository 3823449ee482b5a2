from __future__ import annotations

import hashlib
import os
import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_policy import (
    ACTIONS,
    CostModel,
    Interval,
    LearnedPolicy,
    NotAPolicyFileError,
    PolicyFileDamagedError,
    PolicyFileError,
    PolicyFileUnreadableError,
    PolicyFileVersionError,
    PolicyNotAdmittedError,
    Verdict,
    decode_policy,
    encode_policy,
    read_policy,
    write_policy,
)
from rl_policy.policy_file import FORMAT_VERSION, MAGIC

COST = CostModel(0.2, 10.0)
POLICY = LearnedPolicy({10: 3, 125_312: 7}, COST)
PASSED = Verdict(passed=True, differences={"overall": Interval(-0.02, -0.03, -0.01, 60)})
DATA = encode_policy(POLICY, PASSED, "2026-01-01T00:00:00Z")

tables = st.dictionaries(st.integers(0, 2**40), st.integers(0, len(ACTIONS) - 1), max_size=50)


@given(tables, st.floats(0.01, 9.0), st.floats(0.0, 99.0), st.text())
def test_what_is_written_is_read(cells, kappa, d_max, when) -> None:
    read = decode_policy(encode_policy(LearnedPolicy(cells, CostModel(kappa, d_max)), PASSED, when))
    assert read.policy.cells == cells
    assert read.policy.cost == CostModel(kappa, d_max)
    assert read.trained_at == when
    assert read.differences == {"overall": (-0.02, -0.03, -0.01, 60)}


def test_the_version_names_the_content() -> None:
    other = encode_policy(LearnedPolicy({10: 4}, COST), PASSED, "2026-01-01T00:00:00Z")
    assert decode_policy(DATA).policy.version == decode_policy(DATA).policy.version
    assert decode_policy(DATA).policy.version != decode_policy(other).policy.version


@settings(max_examples=200)
@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_one_changed_byte_anywhere_is_refused(position, change) -> None:
    damaged = bytearray(DATA)
    damaged[position] ^= change
    with pytest.raises(PolicyFileError):
        decode_policy(bytes(damaged))


@given(st.integers(0, len(DATA) - 1))
def test_a_file_cut_short_is_refused(length) -> None:
    with pytest.raises((NotAPolicyFileError, PolicyFileDamagedError)):
        decode_policy(DATA[:length])


@given(st.binary(max_size=200).filter(lambda data: not data.startswith(MAGIC)))
def test_any_other_file_is_refused(data) -> None:
    with pytest.raises(NotAPolicyFileError, match="begins with"):
        decode_policy(data)


def test_another_format_is_refused_by_its_number() -> None:
    other = DATA[:8] + struct.pack(">H", FORMAT_VERSION + 1) + DATA[10:]
    with pytest.raises(PolicyFileVersionError, match=f"format {FORMAT_VERSION + 1}"):
        decode_policy(other)


def with_content(**changes: object) -> bytes:
    """A file whose checksum is right and whose content is changed."""
    content = msgspec.msgpack.decode(DATA[46:]) | changes
    packed = msgspec.msgpack.encode(content)
    return struct.pack(">8sHI32s", MAGIC, FORMAT_VERSION, len(packed), hashlib.sha256(packed).digest()) + packed


def test_content_that_makes_no_policy_is_refused_although_its_checksum_is_right() -> None:
    with pytest.raises(PolicyFileVersionError, match="other actions"):
        decode_policy(with_content(actions=["jump"]))
    with pytest.raises(PolicyFileDamagedError, match="names action"):
        decode_policy(with_content(chosen=[3, 99]))
    with pytest.raises(PolicyFileDamagedError, match="kappa"):
        decode_policy(with_content(kappa=-1.0))
    with pytest.raises(PolicyFileDamagedError, match="makes no policy"):
        decode_policy(with_content(cells=[1]))
    with pytest.raises(PolicyFileDamagedError, match="makes no policy"):
        decode_policy(with_content(cells="none"))


def test_a_policy_that_did_not_pass_the_gate_is_not_written(tmp_path) -> None:
    with pytest.raises(PolicyNotAdmittedError, match="worse for bursts"):
        write_policy(tmp_path / "p", POLICY, Verdict(passed=False, reasons=("worse for bursts",)), "now")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_whole(tmp_path) -> None:
    path = tmp_path / "retained.policy"
    write_policy(path, POLICY, PASSED, "first")
    write_policy(path, LearnedPolicy({}, COST), PASSED, "second")
    assert read_policy(path).trained_at == "second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["retained.policy"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = tmp_path / "retained.policy"
    write_policy(path, POLICY, PASSED, "first")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_policy(path, POLICY, PASSED, "second")
    assert read_policy(path).trained_at == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["retained.policy"]


def test_a_file_that_cannot_be_opened_is_refused(tmp_path) -> None:
    with pytest.raises(PolicyFileUnreadableError, match="nowhere"):
        read_policy(tmp_path / "nowhere")
    with pytest.raises(PolicyFileUnreadableError):
        read_policy(tmp_path)
