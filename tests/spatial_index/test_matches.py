from __future__ import annotations

import numpy as np
import pytest

from spatial_index import Matches

NAMES = np.array(["a", "b", "c", "d"], object)


def test_answers_come_in_the_order_of_the_questions():
    matches = Matches.of(np.array([2, 0, 1]), np.array([3, 0, 2]), NAMES, {})
    assert list(matches) == [["d", "a"], [], ["c"]]
    assert len(matches) == 3
    assert matches.offsets.tolist() == [0, 2, 2, 3]


def test_questions_answered_apart_take_their_place():
    matches = Matches.of(np.array([0, 1, 0, 0]), np.array([1]), NAMES, {0: [("x", 0), ("y", 1)], 2: [], 3: ["z"]})
    assert list(matches) == [[("x", 0), ("y", 1)], ["b"], [], ["z"]]


def test_there_is_no_answer_to_a_question_that_was_not_asked():
    matches = Matches.of(np.array([1]), np.array([1]), NAMES, {})
    with pytest.raises(IndexError, match="question 1 of 1"):
        matches[1]
