"""The answers to a batch of questions: one flat array of ids and where each question's part begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

Id = TypeVar("Id")


class Matches(Generic[Id]):
    """Answers in the order of the questions: `matches[i]` is the list of ids for question i.

    Attributes:
        offsets: n + 1 positions; the ids of question i are `ids[offsets[i] : offsets[i + 1]]`.
        ids: the ids of all answers, an array of objects.
    """

    __slots__ = ("ids", "offsets")

    def __init__(self, offsets: NDArray[np.int64], ids: NDArray[Any]) -> None:
        self.offsets = offsets
        self.ids = ids

    @classmethod
    def of(
        cls,
        lengths: NDArray[np.int64],
        rows: NDArray[np.int64],
        names: NDArray[Any],
        apart: Mapping[int, Sequence[Id]],
    ) -> Matches[Id]:
        """From how many rows of `names` each question has, those rows, and questions that were answered apart."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        ids = names.take(rows)
        for question in sorted(apart, reverse=True):
            # From the last one on, so that offsets before it still hold.
            answer = np.fromiter(apart[question], object, len(apart[question]))
            ids = np.insert(ids, offsets[question], answer)
            offsets[question + 1 :] += len(answer)
        return cls(offsets, ids)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, question: int) -> list[Id]:
        if not 0 <= question < len(self):
            raise IndexError(f"question {question} of {len(self)}")
        found: list[Id] = self.ids[self.offsets[question] : self.offsets[question + 1]].tolist()
        return found

    def __iter__(self) -> Iterator[list[Id]]:
        return (self[question] for question in range(len(self)))
