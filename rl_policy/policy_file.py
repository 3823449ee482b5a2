"""The policy file: what training writes and a running broker loads, whole or not at all.

Layout: eight bytes `LOCUSPOL`, the format version (two bytes), the length of the content (four bytes), its SHA-256
    (32 bytes),
the content in MessagePack. Numbers are big-endian. It is written beside its place and renamed into it, so whoever reads
finds the old file or the new one. Whatever is wrong with a file has its own exception under `PolicyFileError`.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from rl_policy.cost import CostModel
from rl_policy.learned import ACTIONS, LearnedPolicy
from rl_policy.whole_file import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from rl_policy.gate import Verdict

MAGIC: Final = b"LOCUSPOL"
FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct(">8sHI32s")


class PolicyFileError(Exception):
    """A policy file cannot be used; the one in use stays."""


class PolicyFileUnreadableError(PolicyFileError):
    """The file cannot be opened or read."""


class NotAPolicyFileError(PolicyFileError):
    """The file does not begin as a policy file does."""


class PolicyFileVersionError(PolicyFileError):
    """The file has another format version, or was learned with other actions."""


class PolicyFileDamagedError(PolicyFileError):
    """The file is cut short or its checksum does not match."""


class PolicyNotAdmittedError(PolicyFileError):
    """The policy did not pass the gate, so it is not written."""


class _Content(msgspec.Struct, frozen=True):
    kappa: float
    d_max_s: float
    actions: tuple[str, ...]
    cells: list[int]
    chosen: list[int]
    trained_at: str
    verdict: dict[str, tuple[float, float, float, int]]


class PolicyFile(msgspec.Struct, frozen=True):
    """What a policy file says.

    Args:
        policy: the policy, its version being the first 12 hexadecimal digits of the file's checksum.
        trained_at: when it was trained, as the trainer wrote it.
        differences: learned minus renewal as the gate saw it: mean, low, high, topics; overall and for each class.
    """

    policy: LearnedPolicy
    trained_at: str
    differences: dict[str, tuple[float, float, float, int]]


def encode_policy(policy: LearnedPolicy, verdict: Verdict, trained_at: str) -> bytes:
    """The bytes of a policy file; a policy that did not pass the gate has none."""
    if not verdict.passed:
        raise PolicyNotAdmittedError(f"the policy did not pass the gate: {'; '.join(verdict.reasons)}")
    cells = sorted(policy.cells)
    content = msgspec.msgpack.encode(
        _Content(
            policy.cost.kappa,
            policy.cost.d_max_s,
            ACTIONS,
            cells,
            [policy.cells[cell] for cell in cells],
            trained_at,
            {name: (i.mean, i.low, i.high, i.topics) for name, i in verdict.differences.items()},
        )
    )
    return _HEADER.pack(MAGIC, FORMAT_VERSION, len(content), hashlib.sha256(content).digest()) + content


def decode_policy(data: bytes, where: str = "the policy") -> PolicyFile:
    """Read the bytes of a policy file; `where` names them in messages."""
    if data[: len(MAGIC)] != MAGIC:
        raise NotAPolicyFileError(f"{where} begins with {data[:8]!r}, not {MAGIC!r}; give a file that training wrote")
    if len(data) < _HEADER.size:
        raise PolicyFileDamagedError(f"{where} ends after {len(data)} bytes, inside its header; write it again")
    _, version, length, checksum = _HEADER.unpack_from(data)
    if version != FORMAT_VERSION:
        raise PolicyFileVersionError(f"{where} has format {version}, this Locus reads {FORMAT_VERSION}; train it again")
    content = data[_HEADER.size :]
    if len(content) != length:
        raise PolicyFileDamagedError(f"{where} holds {len(content)} bytes of content, not {length}; write it again")
    digest = hashlib.sha256(content)
    if digest.digest() != checksum:
        raise PolicyFileDamagedError(f"{where} does not match its checksum; write it again")
    try:
        read = msgspec.msgpack.decode(content, type=_Content)
        if read.actions != ACTIONS:
            raise PolicyFileVersionError(
                f"{where} was learned with other actions than this Locus knows; train it again"
            )
        cells = dict(zip(read.cells, read.chosen, strict=True))
        policy = LearnedPolicy(cells, CostModel(read.kappa, read.d_max_s), digest.hexdigest()[:12])
    except (msgspec.DecodeError, ValueError) as error:
        raise PolicyFileDamagedError(f"{where} has content that makes no policy: {error}; train it again") from error
    return PolicyFile(policy, read.trained_at, read.verdict)


def write_policy(path: Path, policy: LearnedPolicy, verdict: Verdict, trained_at: str) -> None:
    """Put a policy that passed the gate in its place, whole or not at all, and safe from a crash once this returns."""
    write_whole(path, encode_policy(policy, verdict, trained_at))


def read_policy(path: Path) -> PolicyFile:
    """Load a policy file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyFileUnreadableError(
            f"{path} cannot be read: {error.strerror}; check the path and its rights"
        ) from error
    return decode_policy(data, str(path))
