from __future__ import annotations

import re
from pathlib import Path

import rl_policy

PAGE = Path(__file__).parents[2] / "docs" / "structures" / "retained-policy.md"


def test_every_public_name_is_there() -> None:
    assert all(hasattr(rl_policy, name) for name in rl_policy.__all__)
    assert len(set(rl_policy.__all__)) == len(rl_policy.__all__)


def test_the_example_in_the_documentation_does_what_it_says() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    assert names["choice"] == rl_policy.Choice(2.0, "renewal rule over 19 gaps")
    book = names["book"]
    assert isinstance(book, rl_policy.DebtBook)
    assert len(book) == 0
