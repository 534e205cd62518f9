"""The frontier of a fleet as a plotly figure: what splits of a replica cost, against their latency."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

import plotly.graph_objects as go

from kvplan.drawing import (
    FONT_SIZE,
    HOVER,
    MARGIN,
    NOTE_SIZE,
    Drawing,
    blank,
    draw_plan,
    log_axis,
    place,
    region,
    write,
)
from kvplan.fleet import Fleet
from kvplan.fleet_search import Found
from kvplan.fleet_words import TIMES, split, worst
from kvplan.frontier import Latency, Point, own, pareto, recommended
from kvplan.labels import NEAR, Box, Canvas, Side
from kvplan.palette import LIGHT, Palette
from kvplan.report import Report
from kvplan.units import LEAST_USD, count, duration, target, usd

NOMINAL_WIDTH, HEIGHT, TOP = 420, 360, 24
DOT, HOLLOW, AROUND = 8, 10, 18
"""Pixels of a dot, of a hollow one, and around each those that belong to it: a name so near would seem its own."""
ROUND = (1, 2, 5)
"""Where an axis may end, and has its ticks, in each power of ten."""
MOST_TICKS = 7

Spot = tuple[float, float]
"""Milliseconds, and USD an hour or GPUs."""


def frontier_figure(
    report: Report,
    points: tuple[Point, ...],
    found: Found | None = None,
    latency: Latency = "tpot_s",
    palette: Palette = LIGHT,
) -> go.Figure:
    """Cost of an hour against TPOT or TTFT at the peak, log-log: a dot for each split, a line through those that no
    other beats, the plan, and the cheapest that meets both targets, all by the closed form; and the plan as it was
    simulated. Where a GPU costs nothing, GPUs are the cost."""
    aim, priced = getattr(report.setting, latency), report.setting.gpu_hour_usd >= LEAST_USD
    spots = {id(point): (1000 * getattr(point, latency), _cost(point.fleet, priced)) for point in points}
    simulated = _simulated_spot(found, latency, priced)
    all_spots = [*spots.values(), *([simulated] if simulated else [])]
    x_range, x_ticks = _axis([1000 * aim, *(x for x, _ in all_spots)])
    y_range, y_ticks = _axis([y for _, y in all_spots])
    canvas = Canvas(NOMINAL_WIDTH, HEIGHT - TOP - MARGIN["b"], x_range, y_range)

    drawing = blank(palette, top=TOP)
    drawing.layout["height"] = HEIGHT
    log_axis(drawing, "xaxis", f"{TIMES[latency]} at the peak, ms", x_ticks, x_range)
    log_axis(drawing, "yaxis", "USD an hour" if priced else "GPUs", y_ticks, y_range)
    _draw_target(drawing, canvas, palette, aim)
    best = pareto(points, latency)
    _draw_best(drawing, canvas, palette, [spots[id(point)] for point in best])
    canvas.taken += [_around(canvas, spot) for spot in all_spots]

    mine, cheapest = own(points, report.plan), recommended(points)
    if mine is not None:
        _draw_mine(drawing, canvas, palette, mine, spots[id(mine)], latency, priced)
    if simulated:
        _draw_simulated(drawing, canvas, palette, found, simulated, latency, priced)
    # The first to be named has the most room.
    for point in sorted(points, key=lambda point: (point is not cheapest, point not in best)):
        if point is not mine:
            _draw_point(drawing, canvas, palette, point, spots[id(point)], priced, is_cheapest=point is cheapest)
    return drawing.figure()


def _cost(fleet: Fleet, priced: bool) -> float:
    return fleet.usd_per_hour if priced else float(fleet.gpus)


def _per(priced: bool) -> str:
    """What a cost is for, before the words that follow it."""
    return "an hour " if priced else ""


def _money(fleet: Fleet, priced: bool) -> str:
    return usd(fleet.usd_per_hour) if priced else f"{count(fleet.gpus)} GPUs"


def _simulated_spot(found: Found | None, latency: Latency, priced: bool) -> Spot | None:
    """Where the plan stands as simulated, by its 95th percentile; nowhere without one."""
    seconds = worst(getattr(found.verified[-1], latency)) if found and found.replicas else None
    return None if seconds is None else (1000 * seconds, _cost(found.fleet, priced))


def _axis(values: Sequence[float]) -> tuple[tuple[float, float], dict[float, str]]:
    """The ends of a log axis, the next round numbers beyond all values, and its ticks."""
    powers = [10.0**power for power in range(floor(log10(min(values))) - 1, ceil(log10(max(values))) + 2)]
    rounds = [step * power for power in powers for step in ROUND]
    low = max(value for value in rounds if value < min(values) / 1.05)
    high = min(value for value in rounds if value > max(values) * 1.05)
    ticks = [value for value in rounds if low <= value <= high]
    if len(ticks) > MOST_TICKS:
        ticks = [value for value in powers if low <= value <= high]
    return (log10(low), log10(high)), {value: f"{value:,g}" for value in ticks}


def _draw_target(drawing: Drawing, canvas: Canvas, palette: Palette, aim_s: float) -> None:
    """The target as a line with its name above the plot, and in grey what misses it."""
    aim = 1000 * aim_s
    region(drawing, x0=aim, x1=10 ** canvas.x_range[1], yref="paper", y0=0, y1=1)
    drawing.shape(
        type="line", x0=aim, x1=aim, yref="paper", y0=0, y1=1, layer="between",
        line={"color": palette.limit, "width": 1.8, "dash": "dash"},
    )  # fmt: skip
    canvas.add_curve([log10(aim)] * 2, canvas.y_range)
    across = canvas.pixels(log10(aim), canvas.y_range[0])[0][0] / canvas.width
    # In the middle above its line, but at either end of the axis towards the inside.
    side = Side(1 if across < 0.2 else -1 if across > 0.8 else 0, 1, 4)
    write(drawing, f"target {target(aim_s)}", log10(aim), canvas.y_range[1], palette.limit, side)


def _draw_best(drawing: Drawing, canvas: Canvas, palette: Palette, best: Sequence[Spot]) -> None:
    """Stairs through the best: what stands above them or to their right costs more or takes longer."""
    stairs = [*best[:1]]
    for x, y in best[1:]:
        stairs += [(x, stairs[-1][1]), (x, y)]
    xs, ys = [x for x, _ in stairs], [y for _, y in stairs]
    drawing.scatter(
        x=xs, y=ys, mode="lines", line={"color": palette.reference, "width": 1.6}, hoverinfo="skip", showlegend=False
    )
    canvas.add_curve([log10(x) for x in xs], [log10(y) for y in ys])


def _around(canvas: Canvas, spot: Spot) -> Box:
    """The place of a dot, which no name of another may come near."""
    left, bottom = _pixel(canvas, spot) - AROUND / 2
    return Box(left, bottom, AROUND, AROUND)


def _pixel(canvas: Canvas, spot: Spot):
    return canvas.pixels(log10(spot[0]), log10(spot[1]))[0]


def _dot(drawing: Drawing, spot: Spot, hover: str, size: int, fill: str, edge: str, width: float) -> None:
    drawing.scatter(
        x=[spot[0]], y=[spot[1]], mode="markers", cliponaxis=False, showlegend=False,
        marker={"size": size, "color": fill, "line": {"color": edge, "width": width}},
        hovertext=[hover], hovertemplate=HOVER,
    )  # fmt: skip


def _draw_mine(
    drawing: Drawing, canvas: Canvas, palette: Palette, mine: Point, spot: Spot, latency: Latency, priced: bool
) -> None:
    """The plan by the closed form; its label keeps off its own dotted line too."""
    canvas.add_curve([log10(spot[0])] * 2, canvas.y_range)
    draw_plan(
        drawing, canvas, palette, x=spot[0], y=spot[1], height=log10(spot[1]), value=_money(mine.fleet, priced),
        where=duration(getattr(mine, latency)), what=f"{_per(priced)}with {split(mine)}, {TIMES[latency]}",
    )  # fmt: skip


def _draw_simulated(
    drawing: Drawing, canvas: Canvas, palette: Palette, found: Found, spot: Spot, latency: Latency, priced: bool
) -> None:
    """The plan as simulated: a hollow dot in ink at its 95th percentile."""
    cost, seconds = f"{_money(found.fleet, priced)} {_per(priced)}".rstrip(), duration(spot[0] / 1000)
    hover = f"<b>This plan, simulated: {count(found.replicas)} replicas</b><br>{cost}, {TIMES[latency]} p95 {seconds}"
    _dot(drawing, spot, hover, HOLLOW, palette.page, palette.ink, 2.5)
    place(drawing, canvas, _pixel(canvas, spot)[None], "simulated, p95", palette.ink, FONT_SIZE, bold=True)


def _draw_point(
    drawing: Drawing, canvas: Canvas, palette: Palette, point: Point, spot: Spot, priced: bool, is_cheapest: bool
) -> None:
    """A dot with its split beside it: filled where it meets both targets; the cheapest that does hollow in green. A
    name that has no room beside its dot is left out, as it would seem another's; hovering tells it."""
    cost = f"{_money(point.fleet, True)} {_per(True)}for " if priced else ""
    hover = (
        f"<b>{count(point.plan.dp)} × {split(point)}</b><br>{cost}{count(point.fleet.gpus)} GPUs"
        f"<br>TTFT {duration(point.ttft_s)}, TPOT {duration(point.tpot_s)}"
    )
    pixel = _pixel(canvas, spot)[None]
    if is_cheapest:
        _dot(drawing, spot, hover, HOLLOW, palette.page, palette.held, 2.5)
        place(drawing, canvas, pixel, split(point), palette.held, FONT_SIZE, bold=True)
    else:
        _dot(drawing, spot, hover, DOT, palette.reference if point.meets else palette.page, palette.reference, 1.2)
        beside, side = canvas.place(pixel, split(point), NOTE_SIZE)
        *others, mine = canvas.taken
        if side.gap > NEAR[0].gap or any(mine.overlaps(other) for other in others):
            canvas.taken.pop()
        else:
            write(drawing, split(point), *canvas.values(beside), palette.reference, side, NOTE_SIZE)
