"""What the reproduction pages are made of: Markdown tables and small plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; everything but the first column is set to the right."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join([" --- "] + [" ---: "] * (len(header) - 1)) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def line_plot(
    path: Path,
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    title: str,
    log_y: bool = False,
) -> None:
    """Write a plot of a few named curves."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.0), dpi=90)
    for (name, (xs, ys)), marker in zip(curves.items(), "osD^vPX*", strict=False):
        axes.plot(xs, ys, marker=marker, markersize=4, linewidth=1.5, label=name)
    axes.set(xlabel=x, ylabel=y, title=title)
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)
