"""The house style of every figure: a blank drawing, its axes, lines with a name, the plan's dot, and words.

No legend, no title, fixed margins, thin grid, quiet ticks; labels stand where they cover nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log2, log10

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio

from kvplan import palette as colours
from kvplan.labels import Canvas, Side
from kvplan.palette import Palette
from kvplan.units import count

HEIGHT = 420
POINTS = 700
"""Of a run against its steps that are drawn at most."""
FONT_SIZE, LABEL_SIZE, NOTE_SIZE = 12, 14, 11
MARGIN = {"l": 56, "r": 20, "t": 10, "b": 46, "pad": 0}
NO_TEMPLATE = pio.templates["none"].to_plotly_json()
HOVER = "%{hovertext}<extra></extra>"


@dataclass(frozen=True)
class Line:
    """One curve of a chart: its name at the end, its look, and what hovering says before the value."""

    name: str
    x: np.ndarray
    y: np.ndarray
    hover: Sequence[str]
    colour: str
    width: float = 1.6
    dash: str = "solid"
    bold: bool = False


@dataclass
class Drawing:
    """What a figure is made of, gathered as plain data."""

    layout: dict
    data: list[dict] = field(default_factory=list)
    shapes: list[dict] = field(default_factory=list)
    annotations: list[dict] = field(default_factory=list)

    def scatter(self, **parts) -> None:
        self.data.append({"type": "scatter", **parts})

    def bar(self, **parts) -> None:
        self.data.append({"type": "bar", **parts})

    def shape(self, **parts) -> None:
        self.shapes.append(parts)

    def annotation(self, **parts) -> None:
        self.annotations.append(parts)

    def figure(self) -> go.Figure:
        """The figure as it is: to have plotly check each part takes longer than all that a page works out for it. Tests
        hold that each would pass, and what is changed afterwards is checked as usual."""
        lists = {name: parts for name in ("shapes", "annotations") if (parts := getattr(self, name))}
        layout = self.layout | lists | {"template": NO_TEMPLATE}
        figure = go.Figure({"data": self.data, "layout": layout}, _validate=False)
        for part in (figure, figure.layout, *figure.data):
            part._validate = True
        return figure


def blank(palette: Palette, top: int = MARGIN["t"], left: int = MARGIN["l"]) -> Drawing:
    """An empty drawing in the house style: no legend, no title, fixed margins, thin grid, quiet ticks."""
    axis = {
        "fixedrange": True,
        "automargin": False,
        "gridcolor": colours.GRID,
        "gridwidth": 1,
        "zeroline": False,
        "showline": False,
        "ticklabelstandoff": 4,
        "tickfont": {"color": palette.muted, "size": FONT_SIZE},
        "minor": {"showgrid": False},
    }
    title = {"font": {"color": palette.muted, "size": FONT_SIZE}, "standoff": 8}
    layout = {
        "height": HEIGHT,
        "margin": MARGIN | {"t": top, "l": left},
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": FONT_SIZE, "color": palette.muted, "family": '"Source Sans", "Source Sans 3", sans-serif'},
        "hoverlabel": {
            "bgcolor": palette.page,
            "bordercolor": palette.border,
            "font": {"color": palette.ink, "size": FONT_SIZE},
            "align": "left",
            "namelength": 0,
        },
        "xaxis": axis | {"showline": True, "linecolor": palette.reference, "title": dict(title)},
        "yaxis": axis | {"title": dict(title)},
    }
    return Drawing(layout)


def log_axis(drawing: Drawing, name: str, title: str, ticks: dict[float, str], limits: tuple[float, float]) -> None:
    axis = drawing.layout[name]
    axis |= {"type": "log", "range": list(limits), "tickvals": list(ticks), "ticktext": list(ticks.values())}
    axis["title"]["text"] = title


def linear_axis(drawing: Drawing, title: str, limits: Sequence[float], ticks: dict[float, str] | None = None) -> None:
    axis = drawing.layout["yaxis"]
    axis["range"] = list(limits)
    axis["title"]["text"] = title
    drawing.layout["xaxis"]["showgrid"] = False
    if ticks:
        axis |= {"tickvals": list(ticks), "ticktext": list(ticks.values())}


def count_axis(drawing: Drawing, title: str, last: int, ticks: int = 6) -> None:
    """An x axis that counts from 0 to `last`: steps, slots."""
    axis = drawing.layout["xaxis"]
    axis |= {"range": [0, last], "nticks": ticks, "tickformat": ",d", "showgrid": False}
    axis["title"]["text"] = title


def name_rows(drawing: Drawing, names: Sequence[str]) -> None:
    """A y axis of named rows, the first at the top."""
    axis = drawing.layout["yaxis"]
    axis |= {"tickvals": list(range(len(names))), "ticktext": list(names), "showgrid": False}
    axis["range"] = [len(names) - 0.5, -0.5]


def drawn_of(steps: np.ndarray, last: int) -> np.ndarray:
    """Which of a run's steps, in ascending order, are drawn up to the step `last`: evenly spread, as more would be
    nearer to each other than pixels."""
    inside = int(steps.searchsorted(last, side="right"))
    return np.unique(np.linspace(0, max(0, inside - 1), min(inside, POINTS)).astype(int))


def powers(first: int, last: int, words: Callable[[int], str] = count) -> dict[int, str]:
    """Ticks at powers of two within the range, at most eleven of them."""
    powers = range(int(np.ceil(log2(first))), int(np.floor(log2(last))) + 1)
    step = 1 + len(powers) // 12
    return {2**power: words(2**power) for power in list(powers)[::step]}


def draw_line(drawing: Drawing, line: Line, canvas: Canvas, log_y: bool = True) -> np.ndarray:
    """Draw a line whose x axis is a log one; returns its pixels on the canvas."""
    drawing.scatter(
        x=line.x, y=line.y, mode="lines", name=line.name, hovertext=line.hover, showlegend=False,
        hovertemplate=HOVER, cliponaxis=not line.bold,
        line={"color": line.colour, "width": line.width, "dash": line.dash},
    )  # fmt: skip
    return canvas.add_curve(np.log10(line.x), np.log10(line.y) if log_y else line.y)


def fill_between(drawing: Drawing, x: np.ndarray, upper: np.ndarray, lower: np.ndarray, fill: str) -> None:
    drawing.scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([upper, lower[::-1]]), fill="toself", fillcolor=fill,
        line={"width": 0}, hoverinfo="skip", showlegend=False, mode="lines",
    )  # fmt: skip


def region(drawing: Drawing, **corners) -> None:
    drawing.shape(type="rect", fillcolor=colours.OUTSIDE_FILL, line={"width": 0}, layer="below", **corners)


def vertical(drawing: Drawing, x: float, palette: Palette) -> None:
    drawing.shape(
        type="line", x0=x, x1=x, yref="paper", y0=0, y1=1, layer="between",
        line={"color": palette.ink, "width": 1, "dash": "dot"},
    )  # fmt: skip


def draw_plan(
    drawing: Drawing,
    canvas: Canvas,
    palette: Palette,
    *,
    x: float,
    y: float,
    height: float,
    value: str,
    where: str,
    what: str,
) -> None:
    """The plan: a dot in ink with a ring in the page's colour, a dotted line through its x, and "value at x" beside it.

    `height` is y as the axis counts it, log10 on a log axis.
    """
    vertical(drawing, x, palette)
    drawing.scatter(
        x=[x], y=[y], mode="markers", cliponaxis=False, showlegend=False,
        marker={"size": 13, "color": palette.ink, "line": {"color": palette.page, "width": 2.5}},
        hovertext=[f"<b>This plan</b><br>{value} {what} {where}"], hovertemplate=HOVER,
    )  # fmt: skip
    point = canvas.pixels(log10(x), height)
    place(drawing, canvas, point, f"{value} at {where}", palette.ink, LABEL_SIZE, bold=True)
    canvas.add_curve([log10(x), log10(x)], canvas.y_range)


def name_along(
    drawing: Drawing,
    line: Line,
    canvas: Canvas,
    points: np.ndarray,
    shown: str | None = None,
    first: float = 0.4,
    last: float = 0.9,
) -> None:
    """A line's name beside it, somewhere between two shares of its length; `shown` is how the name looks when drawn."""
    some = [points[int(index)] for index in np.linspace((len(points) - 1) * first, (len(points) - 1) * last, 8)]
    point, side = canvas.place(some, shown or line.name, FONT_SIZE)
    write(drawing, line_name(line), *canvas.values(point), line.colour, side)


def place(drawing: Drawing, canvas: Canvas, point: np.ndarray, text: str, colour: str, size: int, bold: bool) -> None:
    """A label beside a point, where it covers nothing."""
    spot, side = canvas.place(list(point), text, size)
    write(drawing, f"<b>{text}</b>" if bold else text, *canvas.values(spot), colour, side, size)


def note(drawing: Drawing, palette: Palette, text: str, x: float, y: float) -> None:
    drawing.annotation(
        text=text, x=x, y=y, xshift=6, yshift=4, xanchor="left", yanchor="bottom", align="left",
        showarrow=False, font={"size": NOTE_SIZE, "color": palette.muted},
    )  # fmt: skip


def write(drawing: Drawing, words: str, x: float, y: float, colour: str, side: Side, size: int = FONT_SIZE) -> None:
    """Words beside a point; on a log axis x and y are log10 values, as annotations have them."""
    drawing.annotation(
        text=words, x=x, y=y, showarrow=False, align="left",
        xanchor={1: "left", 0: "center", -1: "right"}[side.right],
        yanchor={1: "bottom", 0: "middle", -1: "top"}[side.up],
        xshift=side.right * side.gap, yshift=side.up * side.rise,
        font={"size": size, "color": colour},
    )  # fmt: skip


def line_name(line: Line) -> str:
    return f"<b>{line.name}</b>" if line.bold else line.name
