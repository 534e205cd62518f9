"""Paging as plotly figures: waste and table against block size, and where a pool's slots go under each allocator."""

from __future__ import annotations

from math import log10

import numpy as np
import plotly.graph_objects as go

from kvplan import palette as colours
from kvplan.allocation import NAMES, Compared
from kvplan.allocators import map_at
from kvplan.blocks import ENTRY_BYTES
from kvplan.curves import WasteCurve
from kvplan.drawing import (
    HOVER,
    MARGIN,
    Drawing,
    Line,
    blank,
    count_axis,
    draw_line,
    draw_plan,
    drawn_of,
    log_axis,
    name_along,
    name_rows,
    note,
    powers,
    vertical,
    write,
)
from kvplan.labels import Canvas, Side
from kvplan.palette import LIGHT, Palette
from kvplan.report import Report
from kvplan.units import KIB, count, percent, percent_exact

NOMINAL_WIDTH = 420
OUTLINED, TELLING = 100, 400
"""Extents of a map that are outlined, as more would be all outline on a phone, and that say their size."""
HEIGHT, SHARES_HEIGHT, MAP_HEIGHT, EXTENT_HEIGHT = 300, 230, 210, 220


def waste_figure(report: Report, curve: WasteCurve, unit: str = "share", palette: Palette = LIGHT) -> go.Figure:
    """Waste against block size, log-log: `unit` "share" of booked slots, or "tokens" per sequence."""
    found = report.paging
    if unit == "share":
        wasted, half, contiguous, own = (
            curve.share,
            curve.half_block_share,
            found.contiguous_waste_share,
            curve.own_share,
        )
        words, title = percent, "Wasted, share of booked"
        y_range, ticks = (log10(0.0002), log10(1.6)), {0.001: "0.1%", 0.01: "1%", 0.1: "10%", 1: "100%"}
    else:
        wasted, half, contiguous, own = (
            curve.tokens,
            curve.half_block_tokens,
            found.contiguous_waste_tokens,
            curve.own_tokens,
        )
        words, title = _tokens, "Wasted, tokens per sequence"
        top = 2 * max(1024.0, contiguous, float(wasted.max()))
        y_range, ticks = (log10(0.3), log10(top)), {10**k: count(10**k) for k in range(9) if 10**k < top}
    x_range = (-0.02, log10(curve.block_sizes[-1]) + 0.03)
    canvas = Canvas(NOMINAL_WIDTH, HEIGHT - MARGIN["t"] - MARGIN["b"], x_range, y_range)

    drawing = blank(palette)
    drawing.layout["height"] = HEIGHT
    log_axis(drawing, "xaxis", "Block size, tokens", powers(1, curve.block_sizes[-1]), x_range)
    log_axis(drawing, "yaxis", title, ticks, y_range)
    lines = _waste_lines(curve, wasted, half, contiguous, words, palette)
    points = [draw_line(drawing, line, canvas) for line in lines]
    if own > 0:
        draw_plan(
            drawing, canvas, palette, x=found.block_size, y=own, height=log10(own),
            value=words(own), where=count(found.block_size), what="wasted at block",
        )  # fmt: skip
    else:
        vertical(drawing, found.block_size, palette)
        note(drawing, palette, f"nothing wasted at {count(found.block_size)}", log10(found.block_size), y_range[0])
    for line, drawn in zip(lines, points, strict=True):
        name_along(drawing, line, canvas, drawn)
    return drawing.figure()


def table_figure(report: Report, curve: WasteCurve, palette: Palette = LIGHT) -> go.Figure:
    """What a larger block saves: KiB of a finished sequence's block table against block size, log-log."""
    size = report.paging.block_size
    sizes, kib = curve.block_sizes, curve.entries * ENTRY_BYTES / KIB
    x_range = (-0.02, log10(sizes[-1]) + 0.03)
    y_range = (log10(min(kib[-1], 0.01)) - 0.3, log10(max(kib[0], 10)) + 0.3)
    canvas = Canvas(NOMINAL_WIDTH, HEIGHT - MARGIN["t"] - MARGIN["b"], x_range, y_range)
    drawing = blank(palette)
    drawing.layout["height"] = HEIGHT
    log_axis(drawing, "xaxis", "Block size, tokens", powers(1, sizes[-1]), x_range)
    ticks = {10.0**k: f"{10.0**k:,g}" for k in range(-6, 7) if y_range[0] < k < y_range[1]}
    log_axis(drawing, "yaxis", "Block table, KiB per sequence", ticks, y_range)
    hover = [
        f"<b>Block table</b><br>{entries:,.1f} entries, {each:,.2f} KiB at block {count(block)}"
        for entries, each, block in zip(curve.entries, kib, sizes, strict=True)
    ]
    line = Line("block table", sizes, kib, hover, palette.reference, width=3, bold=True)
    points = draw_line(drawing, line, canvas)
    own = curve.own_entries * ENTRY_BYTES / KIB
    draw_plan(
        drawing, canvas, palette, x=size, y=own, height=log10(own),
        value=f"{curve.own_entries:,.1f} entries", where=count(size), what="a sequence at block",
    )  # fmt: skip
    name_along(drawing, line, canvas, points)
    return drawing.figure()


def shares_figure(found: Compared, palette: Palette = LIGHT) -> go.Figure:
    """Where the slots of the pool are on average, a bar for each allocator: holding tokens, for later, never used."""
    drawing = blank(palette, top=24, left=116)
    drawing.layout |= {"height": SHARES_HEIGHT, "barmode": "stack", "bargap": 0.35}
    drawing.layout["margin"] = drawing.layout["margin"] | {"r": 118}
    names = list(map(_short, found.runs))
    name_rows(drawing, names)
    ticks = [0, 0.5, 1]
    drawing.layout["xaxis"] |= {"range": [0, 1], "tickvals": ticks, "ticktext": [f"{each:.0%}" for each in ticks]}
    drawing.layout["xaxis"]["title"]["text"] = "Share of the pool"
    for name, what, fill in _parts(palette):
        values = [getattr(run, name) for run in found.runs.values()]
        drawing.bar(
            orientation="h", y=list(range(len(names))), x=values, marker={"color": fill, "line": {"width": 0}},
            showlegend=False, hovertemplate=HOVER,
            hovertext=[
                f"<b>{label}</b><br>{percent_exact(value)} of the pool: {what}"
                for label, value in zip(names, values, strict=True)
            ],
        )  # fmt: skip
    for row, run in enumerate(found.runs.values()):
        words = f"<b>{run.held:.0%}</b> held, {count(run.running)} run"
        write(drawing, words, 1, row, palette.ink, Side(1, 0, 8))
    _key(drawing, palette)
    return drawing.figure()


def map_figure(found: Compared, step: int, palette: Palette = LIGHT) -> go.Figure:
    """The pool in one step under each contiguous allocator, slot by slot: each extent with its tokens, what is kept for
    later and what is never used; white is free."""
    drawing = blank(palette, top=24, left=116)
    drawing.layout |= {"height": MAP_HEIGHT, "barmode": "overlay", "bargap": 0.25}
    name_rows(drawing, list(map(_short, found.contiguous)))
    count_axis(drawing, "Slot of the pool", found.slots, ticks=4)
    for row, run in enumerate(found.contiguous.values()):
        here = map_at(found.found, run, step)
        outline = {"color": palette.page, "width": 0.5 if here.begins.size < OUTLINED else 0}
        edges = (here.begins, here.begins + here.tokens, here.begins + here.finals, here.begins + here.sizes)
        for (_, what, fill), begin, end in zip(_parts(palette), edges[:-1], edges[1:], strict=True):
            hover = (
                _extent_hover(here.sizes, end - begin, what) if here.begins.size < TELLING else {"hoverinfo": "skip"}
            )
            drawing.bar(
                orientation="h", y=np.full(begin.size, row), base=begin, x=end - begin, showlegend=False,
                marker={"color": fill, "line": outline}, **hover,
            )  # fmt: skip
    _key(drawing, palette)
    return drawing.figure()


def extent_figure(found: Compared, last: int, of_free: bool = False, palette: Palette = LIGHT) -> go.Figure:
    """The largest free extent against steps, as a share of the pool, or of all free slots: there, below 1, what is free
    lies in pieces."""
    drawing = blank(palette, top=24)
    drawing.layout["height"] = EXTENT_HEIGHT
    count_axis(drawing, "Step", last)
    largest = max(int(run.largest[run.steps <= last].max(initial=0)) for run in found.contiguous.values())
    top = 1.05 if of_free else max(0.01, 1.1 * largest / found.slots)
    drawing.layout["yaxis"] |= {"range": [0, top], "nticks": 4, "tickformat": ".0%" if top > 0.08 else ".1%"}
    drawing.layout["yaxis"]["title"]["text"] = f"Largest free, of {'all free' if of_free else 'the pool'}"
    looks = ((palette.wasted, "solid"), (palette.reference, "dash"), (palette.held, "dot"))
    for (kind, run), (colour, dash) in zip(found.contiguous.items(), looks, strict=True):
        shown = drawn_of(run.steps, last)
        steps, free = run.steps[shown], run.free_slots[shown]
        share = run.largest[shown] / (np.maximum(1, free) if of_free else found.slots)
        if of_free:
            share[free == 0] = 1.0  # a full pool has nothing that could lie in pieces
        name = _short(kind)
        drawing.scatter(
            x=steps, y=share, mode="lines", line={"color": colour, "width": 1.6, "dash": dash, "shape": "hv"},
            showlegend=False, hovertemplate=HOVER,
            hovertext=[
                f"<b>{name.capitalize()}</b><br>{count(largest)} of {count(free)} free slots at step {count(at)}"
                for largest, free, at in zip(run.largest[shown], free, steps, strict=True)
            ],
        )  # fmt: skip
    words = "  ".join(
        f"<b style='color:{colour}'>{mark}</b> {_short(kind)}"
        for kind, (colour, _), mark in zip(found.contiguous, looks, ("━", "╍", "┅"), strict=True)
    )
    write(drawing, words, 0, top, palette.muted, Side(1, 1, 4))
    return drawing.figure()


def _extent_hover(sizes: np.ndarray, slots: np.ndarray, what: str) -> dict:
    texts = [
        f"<b>Extent of {count(size)} slots</b><br>{count(part)} slots: {what}"
        for size, part in zip(sizes, slots, strict=True)
    ]
    return {"hovertext": texts, "hovertemplate": HOVER}


def _short(kind: str) -> str:
    """An allocator as an axis names it."""
    return NAMES[kind].removeprefix("Contiguous, ").lower()


def _parts(palette: Palette) -> tuple[tuple[str, str, str], ...]:
    """The parts of an extent: their field, what they are, and their colour."""
    return (
        ("held", "tokens", palette.held),
        ("reserved", "for later", colours.POOL_EDGE),
        ("internal", "never used", palette.waiting),
    )


def _key(drawing: Drawing, palette: Palette) -> None:
    words = "  ".join(f"<b style='color:{fill}'>■</b> {what}" for _, what, fill in _parts(palette))
    drawing.annotation(
        text=words, xref="paper", yref="paper", x=0, y=1, xanchor="left", yanchor="bottom", showarrow=False,
        font={"color": palette.muted},
    )  # fmt: skip


def _waste_lines(curve: WasteCurve, wasted, half, contiguous: float, words, palette: Palette) -> list[Line]:
    """Paged, half a block and contiguous; block 1 wastes nothing, which a log axis cannot show."""
    sizes = curve.block_sizes

    def line(name: str, values: np.ndarray, what: str, colour: str, **look) -> Line:
        seen = values > 0
        hover = [
            f"<b>{what}</b><br>{words(value)} wasted at block {count(size)}"
            for value, size in zip(values[seen], sizes[seen], strict=True)
        ]
        return Line(name, sizes[seen], values[seen], hover, colour, **look)

    flat = np.full(sizes.size, float(contiguous))
    lines = [
        line("half a block", half, "Half a block", palette.reference, dash="dot"),
        line(
            f"contiguous {words(contiguous)}", flat, "Contiguous at the context", palette.wasted, width=2, dash="dash"
        ),
        line("paged, wasted", wasted, "Paged", palette.wasted, width=3, bold=True),
    ]
    return [each for each in lines if each.x.size]


def _tokens(value: float) -> str:
    return f"{value:,.1f} tokens" if value < 100 else f"{value:,.0f} tokens"
