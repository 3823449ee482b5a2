"""The one error of the grammar: what is wrong, in which text, and at which character."""

from __future__ import annotations

import unicodedata

_SHOWN_WHOLE = 100
_SHOWN_BEFORE = 48
_SHOWN_AFTER = 28
_QUOTED = 32


class GrammarError(ValueError):
    """A filter or topic that does not parse.

    `str(error)` is one line fit for a log, whatever characters the text contains; `error.render()` is the text with a
    caret under the offending character, fit for a terminal.

    Attributes:
        text: All that was being parsed.
        position: The index in `text` of the offending character; `len(text)` if something is missing at the end.
        reason: What is wrong there, and what would be right.
    """

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(text, position, reason)
        self.text = text
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        before, offending, after = _excerpt(self.text, self.position)
        where = f"character {self.position + 1}" if self.position < len(self.text) else "the end"
        return f"{_printable(self.reason)} (at {where} of '{before}{offending}{after}')"

    def render(self) -> str:
        """The text, a caret under the offending character, and the reason beside the caret."""
        before, offending, after = _excerpt(self.text, self.position)
        return f"{before}{offending}{after}\n{' ' * _columns(before)}^ {_printable(self.reason)}"


def quoted(part: str) -> str:
    """A part of a text in quotes, cut where it is long: a log line must not grow with what a client sends."""
    return f"'{part}'" if len(part) <= _QUOTED else f"'{part[: _QUOTED - 1]}…'"


def _excerpt(text: str, position: int) -> tuple[str, str, str]:
    """What stands before, at and after a position, made printable, and cut where the text is long."""
    short = len(text) <= _SHOWN_WHOLE
    first = 0 if short else max(0, position - _SHOWN_BEFORE)
    last = len(text) if short else position + 1 + _SHOWN_AFTER
    before = ("…" if first else "") + _printable(text[first:position])
    after = _printable(text[position + 1 : last]) + ("…" if last < len(text) else "")
    return before, _printable(text[position : position + 1]), after


def _printable(text: str) -> str:
    """The text with what a terminal or a log would act upon (line ends, controls, surrogates) escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _columns(text: str) -> int:
    """How many columns of a terminal the text takes: two for a wide character, none for a combining one."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
