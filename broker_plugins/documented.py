"""The words under the fields of a dataclass: reference pages and metrics quote them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import is_dataclass


def documented(cls: type) -> dict[str, str]:
    """The text under each field of a dataclass and its bases, in one line; a field without any is left out."""
    found: dict[str, str] = {}
    for each in reversed([each for each in cls.__mro__ if is_dataclass(each)]):
        found.update(_own(each))
    return found


def _own(cls: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[statement.target.id] = " ".join(str(following.value.value).split())
    return found
