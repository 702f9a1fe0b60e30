"""Figures in the style of the reports: colours, titles, labels, and files."""

import colorsys
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.core.files import write_atomic

# Okabe and Ito's colours without yellow and black, and two of Paul Tol's: distinguishable for colour-blind readers
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255")
# pages: page.css has the same, and lighter ones for dark mode
BLACK, DARK, GREY, LIGHT = "#000000", "#404040", "#808080", "#C8C8C8"
NAME_WIDTH = 28
DPI = 150


def new_figure(
    width: float, height: float, title: str, subtitle: str, rows: int = 1, columns: int = 1
) -> tuple[Any, list[Any], float]:
    """Return a figure with title and subtitle, its axes, and the top of the axes as a fraction of the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)  # pyplot would have global state and look for a display
    lines = textwrap.wrap(subtitle, round(13 * width))[:3]
    figure.text(0.02, 1 - 0.16 / height, escape(title), fontsize=14, fontweight="bold", va="top")
    figure.text(0.02, 1 - 0.46 / height, escape("\n".join(lines)), fontsize=10, color=DARK, va="top", linespacing=1.3)
    panels: list[Any] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(GREY)
        axes.tick_params(color=GREY, labelsize=10)
        axes.xaxis.label.set_size(11)
        axes.yaxis.label.set_size(11)
    return figure, panels, 1 - (0.62 + 0.19 * len(lines)) / height


def make_room_left(figure: Any, panels: Sequence[Any]) -> None:
    """Move the left edge of the axes so that labels and the widest tick label begin 0.2 inches from the left."""
    missing = 0.2 * figure.dpi - min(axes.yaxis.get_tightbbox(figure.canvas.get_renderer()).x0 for axes in panels)
    figure.subplots_adjust(left=figure.subplotpars.left + missing / figure.bbox.width)


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write a figure as PNG, atomically."""
    write_atomic(path, png_bytes(figure))
    return Path(path)


def png_bytes(figure: Any) -> bytes:
    """Draw a figure."""
    picture = io.BytesIO()
    figure.savefig(picture, dpi=DPI, format="png")
    return picture.getvalue()


def spread(wanted: Sequence[float], gap: float, end: float) -> list[float]:
    """Move ascending positions as little as possible (least squares) to be ``gap`` apart, between 0 and ``end``."""
    from scipy.optimize import isotonic_regression  # slow to import, and --check does not need it

    if not wanted:
        return []
    steps = gap * np.arange(len(wanted))
    flat = isotonic_regression(np.asarray(wanted) - steps).x
    return (flat.clip(0.0, max(end - steps[-1], 0.0)) + steps).tolist()


def further_colour(k: int) -> str:
    """Return a colour for the ``k``-th candidate behind those of COLOURS: hues in golden angles, in two strengths."""
    red, green, blue = colorsys.hls_to_rgb(0.618 * k % 1.0, 0.42 if k % 2 else 0.58, 0.6)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def escape(text: str) -> str:
    """Escape dollar signs, which begin a formula in matplotlib."""
    return text.replace("$", r"\$")


def show_message(axes: Any, message: str) -> None:
    """Write a message into empty axes."""
    axes.text(0.5, 0.5, message, transform=axes.transAxes, ha="center", va="center", fontsize=12, color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])
