"""What nodes say comes back as it was said, and nothing else is taken for it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker_plugins.cluster.wire import (
    FORMAT,
    AskRetained,
    AskSession,
    AskWishes,
    Batch,
    Frame,
    Hello,
    Stamp,
    WireError,
    decode,
    encode,
)

stamps = st.none() | st.builds(Stamp, st.integers(0, 2**63 - 1), st.text(max_size=5))
frames = st.builds(
    Frame,
    st.text(max_size=20),
    st.binary(max_size=50),
    st.integers(0, 2),
    st.booleans(),
    st.text(max_size=10),
    st.lists(st.text(max_size=5), max_size=3),
    stamps,
    st.binary(max_size=9),
)


@given(st.builds(Batch, st.text(max_size=5), st.lists(frames, max_size=5)), st.booleans())
def test_a_batch_comes_back(batch: Batch, squeeze: bool) -> None:
    assert decode(encode(batch, squeeze), Batch) == batch


def test_questions_are_told_apart() -> None:
    any_question: Any = AskWishes | AskRetained | AskSession
    for question in (AskWishes(), AskRetained(3, "a"), AskSession("c", keep=True)):
        assert decode(encode(question), any_question) == question


@given(st.binary(max_size=60))
@example(b"\x92\xa2\x00\x80")  # a string that is not UTF-8
def test_noise_raises_nothing_but_a_wire_error(data: bytes) -> None:
    for whole in (data, FORMAT + b"-" + data, FORMAT + b"z" + data):
        with contextlib.suppress(WireError):
            decode(whole, Batch)


def test_another_version_is_named() -> None:
    with pytest.raises(WireError, match="one version of Locus"):
        decode(bytes([FORMAT[0] + 1]) + encode(Hello("a", 1, 1, 1))[1:], Hello)
