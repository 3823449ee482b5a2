"""The few things that pages are made of: tiles, panels, charts, tables, explanations and the map's canvas."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Points = list[tuple[float, float | None]]
MOST_SHOWN: Final = 6
"""Rows of a list beside the map."""


def text(tag: str, said: str = "", classes: str = "") -> TextElement:
    """An element with a text in it."""
    return TextElement(tag=tag, text=said).classes(classes)


def box(tag: str, classes: str = "") -> ui.element:
    """An element for others."""
    return ui.element(tag).classes(classes)


def attributes(element: ui.element, **given: str) -> None:
    """Set attributes to any text, that of strangers too; an underscore in a name stands for a dash."""
    for name, value in given.items():
        element._props[name.replace("_", "-")] = value  # noqa: SLF001 - props() would read the text as its own words


@contextmanager
def panel(title: str, about: str = "") -> Iterator[ui.element]:
    """A framed part of a page with a heading."""
    with box("section", "l-panel") as section:
        attributes(section, aria_label=title)
        text("h2", title)
        if about:
            text("p", about, "l-about")
        yield section


class Tile:
    """One number with its name and a note.

    Args:
        name: what it is.
        mark: by which tests find it.
    """

    def __init__(self, name: str, mark: str = "") -> None:
        with box("div", "l-tile"):
            text("span", name, "l-name")
            self._value = text("span", "–", "l-value")
            if mark:
                self._value.props(f"data-mark={mark}")
            self._note = text("span", "", "l-note")

    def show(self, value: str, note: str = "") -> None:
        """Show another number."""
        self._value.set_text(value)
        self._value.classes(add="l-long") if len(value) > 9 else self._value.classes(remove="l-long")
        self._note.set_text(note)


class Chart(ui.element, component="static/chart.js"):
    """Values over time, or bars.

    Args:
        title: what it shows, for those who do not see it.
        names: the name of each series and the variable of its colour.
        unit: of the values.
        empty: said where there is nothing.
        kind: `lines` or `dots` over time, or `bars` for named classes.
    """

    def __init__(
        self, title: str, names: dict[str, str], unit: str = "", empty: str = "", *, kind: str = "lines"
    ) -> None:
        super().__init__()
        self._names = names
        self._props["title"] = title
        self._props["unit"] = unit
        self._props["empty"] = empty
        self._props["kind"] = kind
        self._props["series"] = [{"name": name, "color": color, "points": []} for name, color in names.items()]

    def show(self, **series: Any) -> None:
        """Show other points, given by the names of the series with blanks as underscores."""
        self.show_points([series[name.replace(" ", "_")] for name in self._names])

    def show_points(self, points: Sequence[Sequence[tuple[Any, float | None]]], most: int = 360) -> None:
        """Show other points, a list for each series in their order; the last ones where there are many."""
        shown = [
            {"name": name, "color": color, "points": [list(_rounded(p)) for p in each[-most:]]}
            for (name, color), each in zip(self._names.items(), points, strict=True)
        ]
        if shown != self._props["series"]:
            self._props["series"] = shown
            self.update()

    def span(self, from_s: float | None = None, to_s: float | None = None) -> None:
        """Show a stretch of time, whether there is something in all of it or not; what there is, if none is said."""
        wanted = None if from_s is None or to_s is None else [round(from_s), round(to_s)]
        if self._props.get("range") != wanted:
            self._props["range"] = wanted
            self.update()

    def say_empty(self, empty: str) -> None:
        """Say something else where there is nothing."""
        if self._props["empty"] != empty:
            self._props["empty"] = empty
            self.update()


def _rounded(point: tuple[Any, float | None]) -> tuple[Any, float | None]:
    at, value = point
    shown = round(at, 1) if isinstance(at, float) else at
    return shown, None if value is None else float(f"{value:.5g}")


class Table(ui.element, component="static/table.js"):
    """Rows and columns.

    Args:
        title: what it shows.
        columns: the label and kind of each: text, code, number, value (a number as a rule), when, share or state.
        empty: said where there are no rows.
    """

    def __init__(self, title: str, columns: dict[str, str], empty: str) -> None:
        super().__init__()
        self._props["title"] = title
        self._props["columns"] = [{"label": label, "kind": kind} for label, kind in columns.items()]
        self._props["rows"] = []
        self._props["empty"] = empty

    def show(self, rows: list[list[Any]]) -> None:
        """Show other rows."""
        if rows != self._props["rows"]:
            self._props["rows"] = rows
            self.update()


class Theme(ui.element, component="static/theme.js"):
    """The switch between light, dark and what the system has."""


class MapCanvas(ui.element, component="static/map.js"):
    """The map. It emits `shown` for every frame, and `fence` with the corners when one was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self._props["label"] = "Map"
        self._props["empty"] = []
        self._props["layersOn"] = ["blockR", "blockQ"]

    def label(self, said: str) -> None:
        """Say what is on it, for those who do not see it."""
        self._change("label", said)

    def explain(self, title: str, about: str, command: str = "") -> None:
        """Say why it is empty, for when it is."""
        self._change("empty", [title, about, command])

    def _change(self, prop: str, value: Any) -> None:
        if self._props[prop] != value:
            self._props[prop] = value
            self.update()


class Explain:
    """A box that says what is missing and what to do about it."""

    def __init__(self, title: str, about: str, command: str = "") -> None:
        with box("div", "l-explain").props("role=status") as self._box:
            self._title = text("strong", title)
            self._about = text("span", about)
            self._command = text("code", command)
        self._command.set_visibility(bool(command))

    def show(self, visible: bool, title: str = "", about: str = "", command: str = "") -> None:
        """Show or hide it, with another text where one is given."""
        if title:
            self._title.set_text(title)
            self._about.set_text(about)
            self._command.set_text(command)
            self._command.set_visibility(bool(command))
        self._box.set_visibility(visible)


class Pick:
    """Buttons of which one is pressed.

    Args:
        label: what is picked.
        choices: their names; the first is pressed.
        changed: called with the name of another one.
    """

    def __init__(self, label: str, choices: Sequence[str], changed: Any) -> None:
        self.value = choices[0]
        self._changed = changed
        self._buttons: dict[str, TextElement] = {}
        with box("div", "l-pick").props(f'role=group aria-label="{label}"'):
            for name in choices:
                button = text("button", name).props("type=button").on("click", lambda _, name=name: self._pick(name))
                self._buttons[name] = button
        self._show()

    def _pick(self, name: str) -> Any:
        self.value = name
        self._show()
        return self._changed(name)

    def _show(self) -> None:
        for name, button in self._buttons.items():
            button.props(f"aria-pressed={'true' if name == self.value else 'false'}")


def field(label: str, value: str, *, wide: bool = False) -> Field:
    """A text field with its label."""
    with box("label", "l-field l-wide" if wide else "l-field"):
        text("span", label)
        return Field(value)


class Field(ui.element, component="static/field.js"):
    """A plain text field."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self.value = value
        self._props["start"] = value
        self.on("typed", lambda event: self._typed(event.args))

    def _typed(self, said: Any) -> None:
        if isinstance(said, str):
            self.value = said[:200]

    def put(self, value: str) -> None:
        """Put something else into it."""
        self.value = value
        self.run_method("put", value)


def list_row(classes: str = "") -> tuple[ui.element, TextElement, TextElement]:
    """A row of a list, hidden at first: the row, what, and when."""
    with box("li") as row:
        what = text("span", "", f"l-what {classes}")
        when = text("span", "", "l-when")
    row.set_visibility(False)
    return row, what, when


class Rows:
    """A list of the latest of something: what and when."""

    def __init__(self, empty: str, most: int = MOST_SHOWN) -> None:
        self._empty = text("p", empty, "l-none")
        with box("ul", "l-list"):
            self._items = [list_row() for _ in range(most)]

    def show(self, rows: list[tuple[str, str]]) -> None:
        """Show other rows."""
        self._empty.set_visibility(not rows)
        for i, (row, what, when) in enumerate(self._items):
            row.set_visibility(i < len(rows))
            if i < len(rows):
                what.set_text(rows[i][0])
                when.set_text(rows[i][1])
