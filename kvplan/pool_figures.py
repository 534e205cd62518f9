"""The pool over time as plotly figures: occupancy against steps, requests that run, and the life of one request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from kvplan import palette as colours
from kvplan.cache import held_bytes
from kvplan.drawing import HOVER, Drawing, blank, count_axis, drawn_of, linear_axis, vertical, write
from kvplan.labels import Side
from kvplan.lifecycle import Lifecycle
from kvplan.palette import LIGHT, Palette
from kvplan.pool import Run, Runs
from kvplan.report import Report
from kvplan.simulate import Simulation
from kvplan.units import GIB, MIB, ceil_div, count, percent, round_end

OCCUPANCY_HEIGHT, RUNNING_HEIGHT, LIFE_HEIGHT = 250, 230, 250
NAMES_APART = 0.26
"""Of the height of the running chart, which two lines of words take."""
TICKS = 400
"""Preemptions that are marked one by one."""
POLICY_NAMES = {"reserve": "reserve", "on_demand": "on demand"}


def occupancy_figure(report: Report, run: Run, last: int, palette: Palette = LIGHT) -> go.Figure:
    """Blocks booked and tokens held, as shares of the pool, up to the step `last`, with each preemption as a tick at
    the top and the step in which the pool runs out."""
    found = run.outcome
    shown = drawn_of(found.timeline.steps, last)
    steps, booked = found.timeline.steps[shown], found.timeline.blocks[shown] / found.num_blocks
    held = _held_share(report, found, shown)
    drawing = blank(palette, top=24)
    drawing.layout["height"] = OCCUPANCY_HEIGHT
    count_axis(drawing, "Step", last)
    linear_axis(drawing, "Share of the pool", [0, 1.08], {0.25 * k: f"{25 * k}%" if k else "0" for k in range(5)})
    blocks, tokens = found.timeline.blocks[shown], found.timeline.tokens[shown]
    _area(drawing, steps, booked, (colours.POOL_FILL, palette.pool), "Booked", [f"{count(n)} blocks" for n in blocks])
    _area(drawing, steps, held, (colours.HELD_FILL, palette.held), "Held", [f"{count(n)} tokens" for n in tokens])
    drawing.shape(
        type="line", xref="paper", x0=0, x1=1, y0=1, y1=1, layer="between",
        line={"color": palette.limit, "width": 1.5, "dash": "dash"},
    )  # fmt: skip
    _mark_preemptions(drawing, found, last, palette)
    # Side by side, as the lines may lie close together.
    _name_below(drawing, "<b>booked</b>", steps, booked, 0.3, palette.pool)
    _name_below(drawing, "<b>held</b>", steps, held, 0.6, palette.held)
    if found.steps > last:
        write(drawing, f"<b>to {count(found.steps)} →</b>", last, 1.08, palette.muted, Side(-1, 1, 4))
    return drawing.figure()


def running_figure(runs: Runs, last: int, palette: Palette = LIGHT) -> go.Figure:
    """Requests that run against steps under both policies."""
    drawing = blank(palette)
    drawing.layout["height"] = RUNNING_HEIGHT
    drawing.layout["margin"] = drawing.layout["margin"] | {"r": 96}
    count_axis(drawing, "Step", last)
    top = 1.12 * max(1, runs.reserve.outcome.peak_running, runs.on_demand.outcome.peak_running)
    drawing.layout["yaxis"] |= {"range": [0, top], "nticks": 5, "tickformat": ",d"}
    drawing.layout["yaxis"]["title"]["text"] = "Requests running"
    for run, colour, width in ((runs.on_demand, palette.held, 2.5), (runs.reserve, palette.pool, 3)):
        found, name = run.outcome, POLICY_NAMES[run.outcome.policy]
        shown = drawn_of(found.timeline.steps, last)
        steps, running = found.timeline.steps[shown], found.timeline.running[shown]
        drawing.scatter(
            x=steps, y=running, mode="lines", line={"color": colour, "width": width}, showlegend=False,
            hovertemplate=HOVER,
            hovertext=[
                f"<b>{name.capitalize()}</b><br>{count(number)} requests run in step {count(step)}"
                for step, number in zip(steps, running, strict=True)
            ],
        )  # fmt: skip
    _name_means(drawing, [runs.on_demand, runs.reserve], last, top, palette)
    return drawing.figure()


def life_figure(life: Lifecycle, palette: Palette = LIGHT) -> go.Figure:
    """One request's memory against its steps: held, booked on demand, booked by reserve, and nothing after its end."""
    before, after = np.array([-0.04, 0.0]) * life.output, np.array([1.0, 1.08]) * life.output
    steps = np.concatenate([before, life.steps, after])
    drawing = blank(palette)
    drawing.layout["height"] = LIFE_HEIGHT
    drawing.layout["xaxis"] |= {"range": [float(steps[0]), float(steps[-1])], "nticks": 6, "tickformat": ",d"}
    drawing.layout["xaxis"]["title"]["text"] = "Step of the request"
    drawing.layout["xaxis"]["showgrid"] = False
    top = 1.25 * max(life.reserved_bytes, int(life.booked_bytes[-1]))
    unit, name = (GIB, "GiB") if top >= GIB / 2 else (MIB, "MiB")
    drawing.layout["yaxis"] |= {"range": [0, top / unit], "nticks": 5}
    drawing.layout["yaxis"]["title"]["text"] = f"{name} on each device"
    lines = (
        ("Reserve", np.full(life.steps.size, life.reserved_bytes), palette.pool, 3, "dash"),
        ("On demand", life.booked_bytes, palette.pool, 2, "solid"),
        ("Held", life.held_bytes, palette.held, 2, "solid"),
    )
    for what, sizes, colour, width, dash in lines:
        y = np.concatenate([[0, 0], sizes, [0, 0]]) / unit
        drawing.scatter(
            x=steps, y=y, mode="lines", line={"color": colour, "width": width, "dash": dash, "shape": "hv"},
            showlegend=False, hovertemplate=HOVER,
            hovertext=[
                f"<b>{what}</b><br>{size:,.2f} {name} in step {step:,.0f}" for step, size in zip(steps, y, strict=True)
            ],
        )  # fmt: skip
    # Side by side, as the lines may lie close together.
    names = (("reserve", 0.2, palette.pool, 1), ("on demand", 0.5, palette.pool, 1), ("held", 0.8, palette.held, -1))
    for (name, part, colour, up), (_, sizes, *_) in zip(names, lines, strict=True):
        place = min(int(life.steps.searchsorted(part * life.output)), life.steps.size - 1)
        write(drawing, f"<b>{name}</b>", part * life.output, float(sizes[place]) / unit, colour, Side(0, up, 4))
    return drawing.figure()


def last_step(runs: Runs) -> int:
    """Up to which step both pictures of a run go: a round number behind the end of the shorter one."""
    return round_end(min(runs.reserve.outcome.steps, runs.on_demand.outcome.steps))


def _held_share(report: Report, found: Simulation, shown: np.ndarray) -> np.ndarray:
    """What the running requests hold, as a share of the pool: as many times what one of their mean length holds, and a
    shared prefix once. Right to half a token a request where every layer grows with each token and nothing is shared,
    else about."""
    line, lengths, shared = found.timeline, report.setting.lengths, report.setting.shared_prefix_tokens
    running = line.running[shown]
    each = np.rint(line.tokens[shown] / np.maximum(1, running)).astype(np.int64)
    sharing = float(lengths.shares @ (lengths.prompts > shared)) if shared else 0.0
    again = np.maximum(0, running * sharing - 1) * shared * report.cache.bytes_per_token
    held = (running * held_bytes(report.setting, each) - again) / report.engine.bytes_per_block
    return np.clip(held, 0, line.blocks[shown]) / found.num_blocks


def _area(
    drawing: Drawing, steps: np.ndarray, share: np.ndarray, look: tuple[str, str], what: str, amounts: list[str]
) -> None:
    """A share of the pool against steps, filled; `look` is its fill and its line."""
    fill, colour = look
    drawing.scatter(
        x=steps, y=share, mode="lines", fill="tozeroy", fillcolor=fill, line={"color": colour, "width": 1.6},
        showlegend=False, hovertemplate=HOVER,
        hovertext=[
            f"<b>{what}</b><br>{amount}, {percent(part)} of the pool in step {count(step)}"
            for step, part, amount in zip(steps, share, amounts, strict=True)
        ],
    )  # fmt: skip


def _mark_preemptions(drawing: Drawing, found: Simulation, last: int, palette: Palette) -> None:
    at, times = np.unique(found.preempted_at[found.preempted_at <= last], return_counts=True)
    if not at.size:
        return
    if at.size > TICKS:
        every = ceil_div(at.size, TICKS)
        at, times = at[::every], times[::every]
    drawing.scatter(
        x=at, y=np.full(at.size, 1.04), mode="markers", showlegend=False, cliponaxis=False,
        marker={"symbol": "line-ns", "size": 9, "line": {"color": palette.wasted, "width": 1.6}},
        hovertext=[
            f"<b>Preempted</b><br>{count(number)} in step {count(step)}"
            for step, number in zip(at, times, strict=True)
        ],
        hovertemplate=HOVER,
    )  # fmt: skip
    first = int(found.preempted_at[0])
    vertical(drawing, first, palette)
    write(drawing, f"<b>runs out at {count(first)}</b>", first, 1.08, palette.wasted, Side(1, 1, 4))


def _name_below(drawing: Drawing, words: str, steps: np.ndarray, values: np.ndarray, part: float, colour: str) -> None:
    """A line's name at this part of its length, below it where there is room."""
    if steps.size:
        at = int(part * (steps.size - 1))
        below = values[at] > 0.2
        write(drawing, words, int(steps[at]), float(values[at]), colour, Side(0, -1 if below else 1, 8))


def _name_means(drawing: Drawing, runs: Sequence[Run], last: int, top: float, palette: Palette) -> None:
    """Each policy's name and mean beside its line's right end, in the margin, apart from each other."""
    heights = [run.outcome.running_before_drain / top for run in runs]
    if abs(heights[0] - heights[1]) < NAMES_APART:
        upper = min(0.95, max(NAMES_APART, sum(heights) / 2 + NAMES_APART / 2))
        heights = [upper, upper - NAMES_APART]
    for run, height, colour in zip(runs, heights, (palette.held, palette.pool), strict=True):
        words = f"<b>{POLICY_NAMES[run.outcome.policy]}</b><br>{count(run.outcome.running_before_drain)} on average"
        write(drawing, words, last, height * top, colour, Side(1, 0, 8))
