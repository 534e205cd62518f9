"""Rates against batch, latency against batch, and the roofline, as plotly figures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import log10

import numpy as np
import plotly.graph_objects as go

from kvplan.drawing import (
    FONT_SIZE,
    HOVER,
    MARGIN,
    Drawing,
    Line,
    blank,
    draw_line,
    draw_plan,
    line_name,
    linear_axis,
    log_axis,
    place,
    powers,
    write,
)
from kvplan.fleet import replica_gpus
from kvplan.labels import Canvas, Side, spread
from kvplan.palette import FEASIBLE_FILL, LIGHT, Palette
from kvplan.rates import Point, Rates, Roofline
from kvplan.report import Report
from kvplan.throughput import Operation
from kvplan.units import count, duration, mean, round_end, target

WIDTH, ROOFLINE_WIDTH = 920, 400
"""Pixels of a plot for which labels are placed: across the page, and between that and a phone, to suit both."""
RATES_HEIGHT, LATENCY_HEIGHT, ROOFLINE_HEIGHT = 290, 240, 320
NAMES_TOP, NAMES_RIGHT, UNTITLED_BOTTOM = 28, 44, 26
"""Pixels of the margins that hold names of limits and of lines, and of one below an axis that the next chart names."""
LIMIT_NAMES = {
    "memory": "memory",
    "tenant_quota": "quota",
    "max_num_seqs": "max_num_seqs",
    "tpot": "TPOT",
    "ttft": "TTFT",
}
LIMIT_DASHES = {"memory": "solid", "tpot": "dash", "ttft": "dot", "max_num_seqs": "longdash", "tenant_quota": "dashdot"}
LATENCY_TICKS = {0.001: "1 ms", 0.01: "10 ms", 0.1: "100 ms", 1: "1 s", 10: "10 s", 100: "100 s"}
LINE_SPACING, TOP_ROOM = 17, 1.04
NEAR, ROOM = 0.25, 0.15
"""Shares of the axis: within which two limits have their names on either side, and beyond which both have their values.
"""


def rates_figure(report: Report, found: Rates, per: str = "replica", palette: Palette = LIGHT) -> go.Figure:
    """Output tokens a second against batch, of a replica, for each of its GPUs, or for each user; the limits of the
    batch as lines, what meets all of them tinted, the plan as a dot and the next limit as a hollow one."""
    of = _rate_of(report, per)
    curve = np.array([of(operation) for operation in found.curve])
    batches = np.array([operation.concurrency for operation in found.curve])
    top = round_end(int(TOP_ROOM * curve.max()) + 1)
    drawing, canvas = _against_batch(found, RATES_HEIGHT, (0, top), palette, NAMES_TOP, UNTITLED_BOTTOM)
    linear_axis(drawing, f"Output tokens/s, {'each ' if per != 'replica' else ''}{per}", [0, top])
    drawing.layout["yaxis"]["tickformat"] = ",d"
    _draw_limits(drawing, canvas, found, palette, named=True)
    if min(found.limits.values()) >= 1:
        write(drawing, "feasible", canvas.x_range[0], top, palette.held, Side(1, -1, 8))
    hover = [
        f"<b>Output</b><br>{mean(value)} tokens/s {_of_whom(per)} at batch {count(batch)}"
        for value, batch in zip(curve, batches, strict=True)
    ]
    draw_line(drawing, Line("tokens/s", batches, curve, hover, palette.held, width=3, bold=True), canvas, log_y=False)
    own = of(found.own)
    draw_plan(
        drawing, canvas, palette, x=found.own.concurrency, y=own, height=own,
        value=mean(own), where=count(found.own.concurrency), what="tokens/s at batch",
    )  # fmt: skip
    if found.could is not None:
        apart = log10(found.could.concurrency / found.own.concurrency) > ROOM * canvas.x_range[1]
        _draw_could(drawing, canvas, palette, found.could, of(found.could), named=apart)
    return drawing.figure()


def latency_figure(report: Report, found: Rates, palette: Palette = LIGHT) -> go.Figure:
    """Time to the first token and between tokens against batch, with both targets."""
    batches = np.array([operation.concurrency for operation in found.curve])
    lines = [
        _latency_line("TTFT", "Time to first token", batches, [each.ttft_s for each in found.curve], palette.reference),
        _latency_line(
            "TPOT", "Time per output token", batches, [each.tpot_s for each in found.curve], palette.ink, True
        ),
    ]
    targets = {"TTFT": report.setting.ttft_s, "TPOT": report.setting.tpot_s}
    values = [*(float(value) for line in lines for value in line.y), *targets.values()]
    limits = (np.floor(log10(min(0.01, *values))), np.ceil(log10(max(1.0, *values))))
    drawing, canvas = _against_batch(found, LATENCY_HEIGHT, limits, palette, MARGIN["t"], MARGIN["b"])
    drawing.layout["xaxis"]["title"]["text"] = "Batch, sequences in the system"
    ticks = {value: words for value, words in LATENCY_TICKS.items() if limits[0] <= log10(value) <= limits[1]}
    log_axis(drawing, "yaxis", "Latency", ticks, limits)
    _draw_limits(drawing, canvas, found, palette, named=False)
    for line in lines:
        draw_line(drawing, line, canvas)
    _name_ends(drawing, canvas, lines)
    for name, aim in targets.items():
        _draw_target(drawing, canvas, palette, name, aim)
    return drawing.figure()


def roofline_figure(roof: Roofline, palette: Palette = LIGHT) -> go.Figure:
    """FLOP/s against FLOP for each byte read, log-log: what a device could at peak and as far as it reaches, and where
    the plan's decode and prefill stand."""
    ridge = roof.flop_per_s / roof.bytes_per_s
    intensities = [point.flop_per_byte for point in roof.points]
    x_range = (np.floor(log10(min(1.0, *intensities))), np.ceil(log10(max(1000.0, 3 * ridge, *intensities))))
    y_range = (
        log10(min(roof.bytes_per_s, *(p.flop_per_s for p in roof.points))) - 0.2,
        log10(roof.peak_flop_per_s) + 0.35,
    )
    drawing = blank(palette)
    drawing.layout |= {"height": ROOFLINE_HEIGHT}
    canvas = Canvas(ROOFLINE_WIDTH, ROOFLINE_HEIGHT - MARGIN["t"] - MARGIN["b"], x_range, y_range)
    decades = range(int(x_range[0]), int(x_range[1]) + 1)
    log_axis(
        drawing,
        "xaxis",
        "FLOP for each byte read",
        {10.0**power: count(10**power) if power >= 0 else f"{10.0**power:g}" for power in decades},
        x_range,
    )
    powers_of_ten = range(int(np.ceil(y_range[0])), int(np.floor(y_range[1])) + 1)
    log_axis(
        drawing,
        "yaxis",
        "FLOP/s of one device",
        {10.0**power: _flop_words(10.0**power).removesuffix("FLOP/s") for power in powers_of_ten},
        y_range,
    )
    x = np.geomspace(10 ** x_range[0], 10 ** x_range[1], 200)
    roofs = (
        Line(
            "peak",
            x,
            np.minimum(roof.peak_flop_per_s, roof.peak_bytes_per_s * x),
            _roof_hover("At peak", x, roof.peak_flop_per_s, roof.peak_bytes_per_s),
            palette.reference,
            dash="dash",
        ),
        Line(
            "reached",
            x,
            np.minimum(roof.flop_per_s, roof.bytes_per_s * x),
            _roof_hover("As far as it reaches", x, roof.flop_per_s, roof.bytes_per_s),
            palette.pool,
            width=3,
            bold=True,
        ),
    )
    # One name above the flat end and one below the slope, so that neither meets a point's on a small screen.
    for line, at, side in zip(roofs, (-1, len(x) // 6), (Side(-1, 1, 8), Side(1, -1, 8)), strict=True):
        draw_line(drawing, line, canvas)
        end = canvas.pixels(log10(line.x[at]), log10(line.y[at]))[0]
        canvas.take(end, side, line.name, FONT_SIZE)
        write(drawing, line_name(line), *canvas.values(end), line.colour, side)
    for point in roof.points:
        _draw_point(drawing, canvas, palette, point)
    return drawing.figure()


def _against_batch(
    found: Rates, height: int, y_range: tuple[float, float], palette: Palette, top: int, bottom: int
) -> tuple[Drawing, Canvas]:
    """A drawing whose x axis is the batch, the part that meets all limits tinted, with margins of so many pixels."""
    last = found.curve[-1].concurrency
    x_range = (-0.015 * log10(last), 1.005 * log10(last))
    drawing = blank(palette, top=top)
    drawing.layout |= {"height": height}
    drawing.layout["margin"] = drawing.layout["margin"] | {"r": NAMES_RIGHT, "b": bottom}
    log_axis(drawing, "xaxis", "", powers(1, last), x_range)
    first = min(found.limits.values())
    if first >= 1:
        drawing.shape(
            type="rect", x0=10 ** x_range[0], x1=min(first, 10 ** x_range[1]), yref="paper", y0=0, y1=1,
            fillcolor=FEASIBLE_FILL, line={"width": 0}, layer="below",
        )  # fmt: skip
    return drawing, Canvas(WIDTH, height - top - bottom, x_range, y_range)


def _draw_limits(drawing: Drawing, canvas: Canvas, found: Rates, palette: Palette, named: bool) -> None:
    """Vertical lines where each limit ends the batch, named above the plot; names apart from each other."""
    last = found.curve[-1].concurrency
    inside = {name: limit for name, limit in found.limits.items() if 1 <= limit <= last}
    for name, limit in inside.items():
        colour = palette.pool if name == "memory" else palette.limit
        drawing.shape(
            type="line", x0=limit, x1=limit, yref="paper", y0=0, y1=1, layer="between",
            line={"color": colour, "width": 1.8, "dash": LIMIT_DASHES[name]},
        )  # fmt: skip
        canvas.add_curve([log10(limit)] * 2, canvas.y_range)
    if named:
        _name_limits(drawing, inside, last, palette)


def _name_limits(drawing: Drawing, limits: dict[str, int], last: float, palette: Palette) -> None:
    """Each name above its line, or to the left and to the right of two that are near each other."""
    ordered = sorted(limits, key=limits.get)
    places = [log10(limits[name]) / log10(last) for name in ordered]
    gaps = [after - before for before, after in pairwise(places)]
    for name, before, after in zip(ordered, [1.0, *gaps], [*gaps, 1.0], strict=False):
        anchor = "center" if min(before, after) > NEAR else "left" if before <= after else "right"
        drawing.annotation(
            text=f"<b>{LIMIT_NAMES[name]}</b>", x=log10(limits[name]), yref="paper", y=1, yanchor="bottom",
            yshift=3, xanchor=anchor, showarrow=False,
            font={"size": FONT_SIZE, "color": palette.pool if name == "memory" else palette.limit},
        )  # fmt: skip


def _draw_could(
    drawing: Drawing, canvas: Canvas, palette: Palette, could: Operation, value: float, named: bool
) -> None:
    """What the next limit would allow: a hollow dot, and its value where there is room beside the plan's."""
    drawing.scatter(
        x=[could.concurrency], y=[value], mode="markers", cliponaxis=False, showlegend=False,
        marker={"size": 10, "color": palette.page, "line": {"color": palette.held, "width": 2.5}},
        hovertext=[f"<b>At the next limit</b><br>{mean(value)} tokens/s at batch {count(could.concurrency)}"],
        hovertemplate=HOVER,
    )  # fmt: skip
    if named:
        point = canvas.pixels(log10(could.concurrency), value)
        place(
            drawing, canvas, point, f"{mean(value)} at {count(could.concurrency)}", palette.held, FONT_SIZE, bold=True
        )


def _latency_line(name: str, what: str, batches, seconds, colour: str, bold: bool = False) -> Line:
    hover = [
        f"<b>{what}</b><br>{duration(value)} at batch {count(batch)}"
        for value, batch in zip(seconds, batches, strict=True)
    ]
    return Line(name, batches, np.array(seconds), hover, colour, width=2.5 if bold else 2, bold=bold)


def _draw_target(drawing: Drawing, canvas: Canvas, palette: Palette, name: str, aim: float) -> None:
    """A line across at a target, named where its name covers no curve."""
    drawing.shape(
        type="line", xref="paper", x0=0, x1=1, y0=aim, y1=aim, layer="between",
        line={"color": palette.limit, "width": 1.2, "dash": LIMIT_DASHES[name.lower()]},
    )  # fmt: skip
    canvas.add_curve(canvas.x_range, [log10(aim)] * 2, reference=True)
    words = f"{name} target {target(aim)}"
    point, side = canvas.place_along(float(canvas.pixels(0, log10(aim))[0, 1]), words, FONT_SIZE)
    write(drawing, words, *canvas.values(point), palette.limit, side)


def _name_ends(drawing: Drawing, canvas: Canvas, lines: list[Line]) -> None:
    heights = [float(canvas.pixels(0, log10(line.y[-1]))[0, 1]) for line in lines]
    right = canvas.pixels(log10(lines[0].x[-1]), 0)[0, 0]
    for line, height in zip(lines, spread(heights, LINE_SPACING, 8, canvas.height - 8), strict=True):
        write(drawing, line_name(line), *canvas.values((right, height)), line.colour, Side(1, 0, 6))


def _draw_point(drawing: Drawing, canvas: Canvas, palette: Palette, point: Point) -> None:
    decodes = point.name == "decode"
    bound = "reading" if point.parts.binding == "memory_bandwidth" else "computing"
    drawing.scatter(
        x=[point.flop_per_byte], y=[point.flop_per_s], mode="markers", cliponaxis=False, showlegend=False,
        marker={
            "size": 13, "symbol": "circle" if decodes else "diamond", "color": palette.ink if decodes else palette.held,
            "line": {"color": palette.page, "width": 2.5},
        },
        hovertext=[
            f"<b>{point.name.capitalize()}</b><br>{point.flop_per_byte:,.0f} FLOP a byte, "
            f"{_flop_words(point.flop_per_s)}"
            f"<br>{bound} takes most of its {duration(point.parts.total_s)}"
        ],
        hovertemplate=HOVER,
    )  # fmt: skip
    at = canvas.pixels(log10(point.flop_per_byte), log10(point.flop_per_s))
    colour = palette.ink if decodes else palette.held
    place(drawing, canvas, at, f"{point.name}: {bound}", colour, FONT_SIZE, bold=True)


def _roof_hover(what: str, x: np.ndarray, flop_per_s: float, bytes_per_s: float) -> list[str]:
    return [
        f"<b>{what}</b><br>{_flop_words(min(flop_per_s, bytes_per_s * value))} at {value:,.3g} FLOP/byte" for value in x
    ]


def _flop_words(flop_per_s: float) -> str:
    scale, name = (1e15, "P") if flop_per_s >= 1e15 else (1e12, "T") if flop_per_s >= 1e12 else (1e9, "G")
    return f"{flop_per_s / scale:,.3g} {name}FLOP/s"


def _rate_of(report: Report, per: str) -> Callable[[Operation], float]:
    gpus = replica_gpus(report.setting)
    return {
        "replica": lambda found: found.tokens_per_s,
        "GPU": lambda found: found.tokens_per_s / gpus,
        "user": lambda found: 1 / found.tpot_s,
    }[per]


def _of_whom(per: str) -> str:
    return {"replica": "of a replica", "GPU": "for each GPU", "user": "for each user"}[per]
