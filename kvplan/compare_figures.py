"""Plans side by side as plotly figures: one curve a plan, named at its end by the plan's letter."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

import numpy as np
import plotly.graph_objects as go

from kvplan.compare_curves import Curve
from kvplan.drawing import (
    FONT_SIZE,
    HOVER,
    LABEL_SIZE,
    MARGIN,
    Drawing,
    Line,
    blank,
    draw_line,
    linear_axis,
    log_axis,
    place,
    powers,
    write,
)
from kvplan.labels import Canvas, Side, spread
from kvplan.palette import LIGHT, Palette
from kvplan.units import count, round_end, short_tokens

WIDTH, HEIGHT = 440, 300
"""Pixels of a plot for which labels are placed, two to a row; and of a chart."""
NAMES_MARGIN = 28
LINE_SPACING = 16
LETTER_SIDE = Side(1, 0, 6)
LOOKS = {
    "A": {"colour": "ink", "dash": "solid", "symbol": "circle"},
    "B": {"colour": "second", "dash": "dash", "symbol": "square"},
    "C": {"colour": "third", "dash": "dot", "symbol": "diamond"},
    "D": {"colour": "fourth", "dash": "dashdot", "symbol": "triangle-up"},
}
"""How each plan is drawn: a colour of the palette, and a dash and a marker for who sees no colours."""


def ceilings_figure(curves: Sequence[Curve | None], palette: Palette = LIGHT) -> go.Figure:
    """Sequences that fit against context, log-log."""
    drawing, canvas = _against(curves, palette, "Context, tokens per sequence", short_tokens, (0.5, _top(curves)))
    ticks = {4**power: count(4**power) for power in range(16) if 4**power < 10 ** canvas.y_range[1]}
    log_axis(drawing, "yaxis", "Sequences that fit", ticks, canvas.y_range)
    return _drawn(drawing, curves, canvas, palette)


def utilisations_figure(curves: Sequence[Curve | None], palette: Palette = LIGHT) -> go.Figure:
    """Slot-steps used by static batches against batch."""
    drawing, canvas = _against(curves, palette, "Batch, sequences", count, (0, 1), log_y=False)
    ticks = {0.25 * quarter: f"{25 * quarter}%" if quarter else "0" for quarter in range(5)}
    linear_axis(drawing, "Slot-steps used", (0, 1), ticks)
    return _drawn(drawing, curves, canvas, palette, log_y=False)


def wastes_figure(curves: Sequence[Curve | None], palette: Palette = LIGHT) -> go.Figure:
    """Share of booked slots wasted against block size, log-log."""
    drawing, canvas = _against(curves, palette, "Block size, tokens", count, (0.0002, 1.6))
    log_axis(
        drawing, "yaxis", "Wasted, share of booked", {0.001: "0.1%", 0.01: "1%", 0.1: "10%", 1: "100%"}, canvas.y_range
    )
    return _drawn(drawing, curves, canvas, palette)


def outputs_figure(curves: Sequence[Curve | None], palette: Palette = LIGHT) -> go.Figure:
    """Output tokens a second of a replica against batch."""
    top = round_end(int(1.04 * max((float(curve.y.max()) for curve in curves if curve), default=1)) + 1)
    drawing, canvas = _against(curves, palette, "Batch, sequences in the system", count, (0, top), log_y=False)
    linear_axis(drawing, "Output tokens/s, a replica", (0, top))
    drawing.layout["yaxis"]["tickformat"] = ",d"
    return _drawn(drawing, curves, canvas, palette, log_y=False)


def _against(
    curves: Sequence[Curve | None], palette: Palette, title: str, words, limits: tuple[float, float], log_y: bool = True
) -> tuple[Drawing, Canvas]:
    """An empty chart over the x values of every curve, a log axis, with room for the letters at its right."""
    known = [curve for curve in curves if curve]
    first = min((float(curve.x[0]) for curve in known), default=1.0)
    last = max((float(curve.x[-1]) for curve in known), default=2.0)
    first, last = 2.0 ** floor(np.log2(first)), 2.0 ** ceil(np.log2(last))
    x_range = (log10(first) - 0.02, log10(max(last, 2 * first)) + 0.02)
    y_range = tuple(map(log10, limits)) if log_y else limits
    canvas = Canvas(WIDTH, HEIGHT - MARGIN["t"] - MARGIN["b"], x_range, y_range)
    drawing = blank(palette)
    drawing.layout |= {"height": HEIGHT, "margin": MARGIN | {"r": NAMES_MARGIN}}
    log_axis(drawing, "xaxis", title, powers(int(first), int(last), words), x_range)
    return drawing, canvas


def _drawn(
    drawing: Drawing, curves: Sequence[Curve | None], canvas: Canvas, palette: Palette, log_y: bool = True
) -> go.Figure:
    """Every curve, its letter at its end, and each plan's place on its own; the first plan lies on top."""
    shown = [(name, curve) for name, curve in zip(LOOKS, curves, strict=False) if curve]
    for name, curve in reversed(shown):
        draw_line(drawing, _line(name, curve, palette), canvas, log_y)
    _name_ends(drawing, shown, canvas, palette, log_y)
    standing = [(name, curve) for name, curve in shown if curve.at is not None]
    for name, curve in reversed(standing):
        _draw_marker(drawing, name, curve, palette)
    _name_places(drawing, standing, canvas, palette, log_y)
    return drawing.figure()


def _line(name: str, curve: Curve, palette: Palette) -> Line:
    look = LOOKS[name]
    hover = [f"<b>Plan {name}</b><br>{words}" for words in curve.words]
    colour = getattr(palette, look["colour"])
    return Line(name, curve.x, curve.y, hover, colour, width=3 if name == "A" else 2.2, dash=look["dash"], bold=True)


def _name_ends(
    drawing: Drawing, shown: Sequence[tuple[str, Curve]], canvas: Canvas, palette: Palette, log_y: bool
) -> None:
    """The letters right of the last points, those at one x apart from each other."""
    ends = {name: canvas.pixels(log10(curve.x[-1]), _height(curve.y[-1], log_y))[0] for name, curve in shown}
    for across in {float(end[0]) for end in ends.values()}:
        # From the last plan up, so that of equal ends the first is on top.
        names = [name for name, end in reversed(ends.items()) if end[0] == across]
        heights = spread([float(ends[name][1]) for name in names], LINE_SPACING, 6, canvas.height - 6)
        for name, height in zip(names, heights, strict=True):
            point, colour = np.array([across, height]), getattr(palette, LOOKS[name]["colour"])
            canvas.take(point, LETTER_SIDE, name, FONT_SIZE)
            write(drawing, f"<b>{name}</b>", *canvas.values(point), colour, LETTER_SIDE)


def _draw_marker(drawing: Drawing, name: str, curve: Curve, palette: Palette) -> None:
    """A plan's own place on its curve."""
    (x, y), look = curve.at, LOOKS[name]
    line = {"color": palette.page, "width": 2}
    drawing.scatter(
        x=[x], y=[y], mode="markers", cliponaxis=False, showlegend=False,
        marker={"size": 12, "symbol": look["symbol"], "color": getattr(palette, look["colour"]), "line": line},
        hovertext=[f"<b>Plan {name}</b><br>{curve.label}"], hovertemplate=HOVER,
    )  # fmt: skip


def _name_places(
    drawing: Drawing, standing: Sequence[tuple[str, Curve]], canvas: Canvas, palette: Palette, log_y: bool
) -> None:
    """ "value at x" beside each marker; plans that stand at one place share the words."""
    names: dict[tuple, list[str]] = {}
    for name, curve in standing:
        names.setdefault((*curve.at, curve.label), []).append(name)
    for (x, y, label), here in names.items():
        colour = getattr(palette, LOOKS[here[0]]["colour"])
        point = canvas.pixels(log10(x), _height(y, log_y))
        place(drawing, canvas, point, f"{', '.join(here)} {label}", colour, LABEL_SIZE - 1, bold=True)


def _height(value: float, log_y: bool) -> float:
    return log10(value) if log_y else float(value)


def _top(curves: Sequence[Curve | None]) -> float:
    """A power of four above every ceiling, at least 2,048 sequences."""
    highest = max((float(curve.y[0]) for curve in curves if curve), default=1.0)
    return max(2048.0, 4.0 ** ceil(log10(highest) / log10(4)))
