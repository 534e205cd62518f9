"""A map of plans as a plotly figure: a cell for each plan, steps where a limit is crossed and where plans stop fitting.

Cells are bars, so that a click chooses one, a number stands only where it has room, and what does not run is hatched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from kvplan.drawing import HOVER, LABEL_SIZE, MARGIN, Drawing, blank, write
from kvplan.labels import Side
from kvplan.palette import LIGHT, Palette
from kvplan.shades import readable_on, shade
from kvplan.sweep_axes import PRESETS, Axis
from kvplan.sweep_grid import Cell, Map, borders, fitting, share, within
from kvplan.sweep_words import TITLES, hover, number, tick

HEIGHT, TOP, RIGHT = 420, 24, 52
"""Pixels of the figure, above its plot and at its right, where the limit has its name."""
NAMES, SLANTED = 124, 96
"""Pixels of names at the left, and of names below, which are slanted."""
MOST_TICKS = {"x": 8, "y": 16}
MOST_NUMBERS = 400
"""Cells up to which they carry their number, where it has room."""
LEAST_TEXT = 9
LID_WIDTH = 0.7
"""Of a cell."""
LID_HEIGHT = 0.42
"""Of a cell, above its middle."""
WIDTH, HALO = 2.2, 3
"""Pixels of a line, and in the page's colour around it, so that it is seen on every shade."""
STRIPES, THIN_STRIPES = 0.3, 0.15
"""Share of a cell that its pattern takes, and of one with a number."""
CLEAR = "rgba(0,0,0,0)"


def map_figure(
    found: Map, limit: float | None = None, chosen: tuple[int, int] | None = None, palette: Palette = LIGHT
) -> go.Figure:
    """A map, with the steps of `limit`, in the quantity's unit, and the cell that is `chosen` by column and row."""
    grid = found.grid
    left = NAMES if grid.y.field in PRESETS else MARGIN["l"]
    drawing = blank(palette, top=TOP, left=left)
    drawing.layout |= {"height": HEIGHT, "bargap": 0, "barmode": "overlay"}
    drawing.layout["uniformtext"] = {"minsize": LEAST_TEXT, "mode": "hide"}
    drawing.layout["margin"] |= {"r": RIGHT} | ({"b": SLANTED} if grid.x.field in PRESETS else {})
    _axis(drawing, "xaxis", grid.x, MOST_TICKS["x"])
    _axis(drawing, "yaxis", grid.y, MOST_TICKS["y"])
    if grid.x.field in PRESETS:
        drawing.layout["xaxis"]["tickangle"] = -30
    _cells(drawing, found, palette)
    _lids(drawing, found, palette)
    _lines(drawing, borders(fitting(found)), palette, "dot")
    if limit is not None:
        _lines(drawing, borders(within(found, limit)), palette, "dash")
        _name_limit(drawing, found, limit, palette)
    if chosen is not None:
        _outline(drawing, *chosen, palette)
    if found.own is not None:
        _dot(drawing, *found.own, palette)
    return drawing.figure()


def _axis(drawing: Drawing, name: str, axis: Axis, most: int) -> None:
    """Cells side by side, named in their middle; not more names than have room."""
    every = math.ceil(len(axis.values) / most)
    places = range(0, len(axis.values), every)
    words = {place: tick(axis.field, axis.values[place]) for place in places}
    drawing.layout[name] |= {
        "range": [-0.5, len(axis.values) - 0.5], "tickvals": list(words), "ticktext": list(words.values()),
        "tickangle": 0, "showgrid": False, "showline": False,
    }  # fmt: skip
    if axis.field not in PRESETS:
        drawing.layout[name]["title"]["text"] = TITLES[axis.field]


def _cells(drawing: Drawing, found: Map, palette: Palette) -> None:
    """A bar for each plan: shaded by its value, hatched where it does not fit, crossed where it is refused."""
    places = [(column, row) for row, cells in enumerate(found.cells) for column in range(len(cells))]
    cells = [found.cells[row][column] for column, row in places]
    fills = [_fill(found, cell, palette) for cell in cells]
    as_chosen = {"marker": {"opacity": 1}}
    drawing.bar(
        x=[column for column, _ in places], y=[1] * len(cells), base=[row - 0.5 for _, row in places], width=1,
        customdata=places, text=[_text(found, cell) if _is_numbered(found) else "" for cell in cells],
        textposition="inside", insidetextanchor="middle", textangle=0, constraintext="inside",
        insidetextfont={"size": LABEL_SIZE, "color": [readable_on(fill) for fill in fills]},
        marker={
            "color": fills, "line": {"color": palette.page, "width": 1 if _is_numbered(found) else 0},
            # Over a fill, a pattern is drawn in what contrasts with it.
            "pattern": {
                "shape": [_pattern(cell) for cell in cells], "fillmode": "overlay", "size": 7,
                "solidity": [STRIPES if cell.value is None else THIN_STRIPES for cell in cells],
            },
        },
        hovertext=[hover(found, column, row) for column, row in places], hovertemplate=HOVER, showlegend=False,
        selected=as_chosen, unselected=as_chosen,
    )  # fmt: skip


def _is_numbered(found: Map) -> bool:
    return len(found.grid.x.values) * len(found.grid.y.values) <= MOST_NUMBERS


def _fill(found: Map, cell: Cell, palette: Palette) -> str:
    if cell.value is None:
        return palette.page
    return shade(palette.page, _colour(found, palette), share(found.grid.scale, cell.value))


def _colour(found: Map, palette: Palette) -> str:
    """What is booked in its colour, and what works or is paid for its work in another."""
    works = found.grid.quantity.path.startswith(("capacity.on_demand", "throughput", "fleet"))
    return palette.held if works else palette.pool


def _text(found: Map, cell: Cell) -> str:
    if cell.value is not None:
        return number(found.grid.quantity, cell.value)
    return "–" if cell.fits else ""


def _pattern(cell: Cell) -> str:
    if cell.refused is not None:
        return "x"
    return "" if cell.fits else "/"


def _lids(drawing: Drawing, found: Map, palette: Palette) -> None:
    """A line near the top of every cell in which another limit binds before memory."""
    capped = [
        (column, row)
        for row, cells in enumerate(found.cells)
        for column, cell in enumerate(cells)
        if cell.binding in ("max_num_seqs", "tenant_quota")
    ]
    half = LID_WIDTH / 2
    lids = [(column - half, column + half, row + LID_HEIGHT, row + LID_HEIGHT) for column, row in capped]
    _lines(drawing, lids, palette, "solid", *((WIDTH, HALO) if _is_numbered(found) else (1, 0)))


def _lines(
    drawing: Drawing,
    lines: Sequence[tuple[float, float, float, float]],
    palette: Palette,
    dash: str,
    width: float = WIDTH,
    halo: float = HALO,
) -> None:
    """Straight lines in the colour of limits, each x0, x1, y0, y1."""
    if not lines:
        return
    xs = [part for x0, x1, _, _ in lines for part in (x0, x1, None)]
    ys = [part for _, _, y0, y1 in lines for part in (y0, y1, None)]
    for look in (
        {"color": palette.page, "width": width + halo},
        {"color": palette.limit, "width": width, "dash": dash},
    ):
        drawing.scatter(x=xs, y=ys, mode="lines", line=look, hoverinfo="skip", showlegend=False, cliponaxis=False)


def _name_limit(drawing: Drawing, found: Map, limit: float, palette: Palette) -> None:
    """The limit beside the end of its steps: above the map, else to its right, else nowhere."""
    columns, rows = len(found.grid.x.values), len(found.grid.y.values)
    name = f"{'≥' if found.grid.quantity.more_is_better else '≤'} {limit:,.12g}"
    lines = borders(within(found, limit))
    up = next((line for line in lines if line[0] == line[1] and line[3] == rows - 0.5), None)
    right = next((line for line in lines if line[2] == line[3] and line[1] == columns - 0.5), None)
    if up:
        write(drawing, f"<b>{name}</b>", up[0], up[3], palette.limit, Side(0, 1, 4))
    elif right:
        write(drawing, f"<b>{name}</b>", right[1], right[3], palette.limit, Side(1, 0, 6))


def _outline(drawing: Drawing, column: int, row: int, palette: Palette) -> None:
    """The cell that is chosen, in ink."""
    for colour, width in ((palette.page, 5), (palette.ink, 2.5)):
        drawing.shape(
            type="rect", x0=column - 0.5, x1=column + 0.5, y0=row - 0.5, y1=row + 0.5, layer="above",
            line={"color": colour, "width": width}, fillcolor=CLEAR,
        )  # fmt: skip


def _dot(drawing: Drawing, column: int, row: int, palette: Palette) -> None:
    """This plan: a dot in ink in the corner of its cell, as large on every map."""
    drawing.shape(
        type="circle", xsizemode="pixel", ysizemode="pixel", xanchor=column - 0.5, yanchor=row + 0.5,
        x0=4, x1=15, y0=-15, y1=-4, layer="above", fillcolor=palette.ink, line={"color": palette.page, "width": 2},
    )  # fmt: skip
