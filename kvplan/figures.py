"""Report and curves -> plotly figures, for the dashboard, for notebooks and for files.

Shared rules: each line is named at its end, one colour a concept, fixed ranges so that nothing but the data moves,
values on hover as "what / value at x".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

import numpy as np
import plotly.graph_objects as go

from kvplan import palette as colours
from kvplan.backlog import MOST_SLOTS, Backlog
from kvplan.batching import Policy, Schedule, schedule
from kvplan.curves import CeilingCurve, Comparison, UtilisationCurve
from kvplan.drawing import (
    FONT_SIZE,
    HEIGHT,
    HOVER,
    MARGIN,
    Drawing,
    Line,
    blank,
    count_axis,
    draw_line,
    draw_plan,
    fill_between,
    line_name,
    linear_axis,
    log_axis,
    name_along,
    note,
    place,
    powers,
    region,
    vertical,
    write,
)
from kvplan.labels import Canvas, Side, spread
from kvplan.palette import LIGHT, Palette
from kvplan.report import Report
from kvplan.units import GIB, count, gib, gib_or_less, percent, short_tokens

NOMINAL_WIDTH = 560
UTILISATION_HEIGHT, SLOTS_HEIGHT = 250, 236
LINE_SPACING = 17
LABEL_BAND = 0.233
"""How far the ceiling chart runs on behind its last context, as a share of its range (to 3.1 times of 1k to 128k); the
band holds the names of the lines."""
SMALLEST_BOX = 0.012
"""Sequences of at least this share of the memory chart are outlined one by one; lower ones would be all outline."""


def ceiling_figure(
    report: Report,
    curve: CeilingCurve,
    shown: Sequence[Comparison] = (),
    top: int = 2048,
    palette: Palette = LIGHT,
) -> go.Figure:
    """Batch ceiling against context, log-log: reserve, on demand, the comparisons, max_num_seqs, and the plan."""
    longest = report.setting.model.max_position_embeddings
    first, last = log10(curve.contexts[0]), log10(curve.contexts[-1])
    x_range = (first - 0.01 * (last - first), last + LABEL_BAND * (last - first))
    y_range = (log10(0.5), log10(top))
    canvas = Canvas(NOMINAL_WIDTH, HEIGHT - MARGIN["t"] - MARGIN["b"], x_range, y_range)

    drawing = blank(palette)
    log_axis(
        drawing,
        "xaxis",
        "Context, tokens per sequence",
        powers(curve.contexts[0], curve.contexts[-1], short_tokens),
        x_range,
    )
    log_axis(drawing, "yaxis", "Sequences that fit", {4**k: count(4**k) for k in range(11) if 4**k < top}, y_range)
    region(drawing, x0=longest, x1=10 ** x_range[1], y0=0, y1=1, yref="paper")
    region(drawing, x0=0, x1=1, xref="paper", y0=0.5, y1=1)
    note(drawing, palette, f"model max<br>{short_tokens(longest)}", log10(longest), y_range[0])
    note(drawing, palette, "not one fits", x_range[0], y_range[0])
    lines = _ceiling_lines(curve, shown, palette)
    for line in lines:
        draw_line(drawing, line, canvas)
    limited = _draw_sequence_limit(drawing, report, canvas, palette)
    _name_line_ends(drawing, lines, canvas, last=curve.contexts[-1])
    _draw_ceiling_plan(drawing, report, canvas, palette)
    if limited:
        _name_sequence_limit(drawing, report, canvas, palette)
    return drawing.figure()


def memory_figure(report: Report, palette: Palette = LIGHT) -> go.Figure:
    """One device's memory, true to scale, from below: weights, overhead, pool, left free; what does not fit runs over.

    The pool is cut into the sequences it holds, each filled by the share of its booking that it holds on average.
    """
    memory = report.memory
    overhead = memory.activation_bytes + memory.workspace_bytes + memory.overhead_bytes
    parts = [
        ("Weights", memory.weight_bytes, palette.weights, palette.muted, [gib(memory.weight_bytes)]),
        ("Overhead", overhead, palette.overhead, palette.overhead_text, [gib(overhead), *_estimated(report)]),
        ("KV pool", memory.pool_bytes, colours.POOL_FILL, palette.pool, _pool_words(report, palette)),
        ("Left free", max(0, memory.left_free_bytes), "rgba(0,0,0,0)", palette.muted, [gib(memory.left_free_bytes)]),
    ]
    used = sum(size for _, size, *_ in parts)
    over = used > memory.total_bytes
    top = memory.total_bytes / GIB if not over else used / GIB * 1.03

    drawing = blank(palette, left=46)
    drawing.layout |= {"barmode": "stack", "bargap": 0}
    drawing.layout["margin"] = drawing.layout["margin"] | {"r": WORDS_WIDTH}
    drawing.layout["xaxis"] |= {"visible": False, "range": [0, 1]}
    drawing.layout["yaxis"]["showgrid"] = False
    linear_axis(drawing, "GiB", [0, top])
    for name, size, fill, _, words in parts:
        if size:
            _bar(drawing, palette, name, size, fill, words, hatched=name == "Left free")
    _cut_pool(drawing, report, (memory.weight_bytes + overhead) / GIB, top, palette.held)

    labels, below = [], 0
    for name, size, _, colour, words in parts:
        if size:
            labels.append(((below + size / 2) / GIB, colour, [f"<b>{name}</b>", *words]))
        below += size
    if over:
        _device_line(drawing, memory.total_bytes / GIB, palette)
        labels.append((memory.total_bytes / GIB, palette.limit, ["<b>Device</b>", gib(memory.total_bytes)]))
    _stack_labels(drawing, labels, top)
    return drawing.figure()


def utilisation_figure(report: Report, curve: UtilisationCurve, palette: Palette = LIGHT) -> go.Figure:
    """Slot-steps used against batch: continuous, static on this workload, static if lengths were exponential."""
    found, end = report.batching, log10(curve.batches[-1])
    x_range, y_range = (0.0, end + 0.03), (0.0, 1.0)
    canvas = Canvas(NOMINAL_WIDTH, UTILISATION_HEIGHT - 24 - MARGIN["b"], x_range, y_range)

    def line(name: str, what: str, values: np.ndarray, colour: str, **look) -> Line:
        hover = [
            f"<b>{what}</b><br>{percent(value)} used at batch {count(batch)}"
            for value, batch in zip(values, curve.batches, strict=True)
        ]
        return Line(name, curve.batches, values, hover, colour, **look)

    ones = np.ones_like(curve.static)
    static = line("static", "Static", curve.static, palette.static, width=3, bold=True)
    exponential = line(
        "1/H<sub>B</sub>", "If exponential, 1/H<sub>B</sub>", curve.exponential, palette.reference, dash="dash"
    )
    continuous = line("continuous", "Continuous", ones, palette.held, width=2.5, bold=True)

    drawing = blank(palette, top=24)
    drawing.layout["height"] = UTILISATION_HEIGHT
    log_axis(drawing, "xaxis", "Batch, sequences", powers(1, curve.batches[-1]), x_range)
    linear_axis(drawing, "Slot-steps used", y_range, {0.25 * k: f"{25 * k}%" if k else "0" for k in range(5)})
    fill_between(drawing, curve.batches, ones, curve.static, colours.IDLE_FILL)
    if curve.low is not None:
        fill_between(drawing, curve.batches, curve.high, curve.low, colours.BAND_FILL)
    points = {each.name: draw_line(drawing, each, canvas, log_y=False) for each in (exponential, static, continuous)}

    write(drawing, "<b>continuous</b>", end, 1, palette.held, Side(-1, 1, 4))
    if curve.static[-1] < 0.9:
        write(drawing, "<b>slots idle</b>", end, 0.5 + max(curve.static[-1], 0.4) / 2, palette.wasted, Side(-1, 0, 6))
    draw_plan(
        drawing, canvas, palette, x=found.batch, y=found.static_utilisation, height=found.static_utilisation,
        value=percent(found.static_utilisation), where=count(found.batch), what="used at batch",
    )  # fmt: skip
    name_along(drawing, static, canvas, points[static.name])
    name_along(drawing, exponential, canvas, points[exponential.name], shown="1/HB", first=0.6, last=0.98)
    return drawing.figure()


def slots_figure(backlog: Backlog, policy: Policy, last: int, palette: Palette = LIGHT) -> go.Figure:
    """Slots × steps up to the step `last`, one bar a request: working, and with static batches finished and waiting
    for the longest of the batch."""
    run = schedule(backlog.lengths, backlog.slots, policy)
    steps = int(run.until.max())
    shown = (run.slots < MOST_SLOTS) & (run.starts < last)
    drawing = blank(palette, top=24)
    drawing.layout |= {"height": SLOTS_HEIGHT, "barmode": "overlay", "bargap": 0.12}
    _slot_axes(drawing, min(backlog.slots, MOST_SLOTS), last)
    _slot_bars(drawing, run, shown & (run.until > run.ends), palette.waiting, last, palette, waiting=True)
    _slot_bars(drawing, run, shown, palette.held, last, palette)
    if policy == "static":
        key = (
            f"<b style='color:{palette.held}'>■</b> working  <b style='color:{palette.waiting}'>■</b> finished, waiting"
        )
        write(drawing, key, 0, 0.5, palette.muted, Side(1, 1, 4))
    if steps > last:
        write(drawing, f"<b>to {count(steps)} →</b>", last, 0.5, palette.wasted, Side(-1, 1, 4))
    else:
        vertical(drawing, steps, palette)
        write(drawing, f"<b>all done at {count(steps)}</b>", steps, 0.5, palette.ink, Side(-1, 1, 4))
    return drawing.figure()


def _slot_axes(drawing: Drawing, rows: int, last: int) -> None:
    """Slots from 1 at the top, steps from 0 to `last`."""
    every = max(1, round(rows / 4))
    ticks = [1, *range(every, rows + 1, every)] if every > 1 else list(range(1, rows + 1))
    drawing.layout["yaxis"] |= {"range": [rows + 0.5, 0.5], "tickvals": ticks, "showgrid": False}
    drawing.layout["yaxis"]["title"]["text"] = "Slot"
    count_axis(drawing, "Step", last)


def _slot_bars(
    drawing: Drawing, run: Schedule, shown: np.ndarray, colour: str, last: int, palette: Palette, waiting: bool = False
) -> None:
    """A bar for each request shown: its work, or what it waits afterwards. The outline makes the next one a gap."""
    begin, end = (run.ends, run.until) if waiting else (run.starts, run.ends)
    requests = np.flatnonzero(shown & (begin < last))
    what = "finished, waiting" if waiting else "working"
    drawing.bar(
        orientation="h", base=begin[requests], x=np.minimum(end[requests], last) - begin[requests],
        y=run.slots[requests] + 1, marker={"color": colour, "line": {"color": palette.page, "width": 0.7}},
        hovertext=[
            f"<b>Request {request + 1:,}</b><br>{what} from step {begin[request]:,} to {end[request]:,} in slot "
            f"{run.slots[request] + 1}"
            for request in requests
        ],
        hovertemplate=HOVER, showlegend=False,
    )  # fmt: skip


def _ceiling_lines(curve: CeilingCurve, shown: Sequence[Comparison], palette: Palette) -> list[Line]:
    """The lines as far as one sequence fits. They run through the quotients; hovering gives the whole sequences."""

    def line(name: str, found: CeilingCurve, quotient: np.ndarray, what: str, colour: str, **look) -> Line:
        fits = quotient >= 1
        hover = [
            f"<b>{what}</b><br>{count(value)} sequences at {count(context)} tokens"
            for value, context in zip(quotient[fits], found.contexts[fits], strict=True)
        ]
        return Line(name, found.contexts[fits], quotient[fits], hover, colour, **look)

    compared = [
        line(
            other.name, other.curve, other.curve.memory_quotient, other.name, palette.reference,
            dash="dash" if "kv_dtype" in other.changes else "dot",
        )
        for other in shown
    ]  # fmt: skip
    own = [
        line("on demand", curve, curve.on_demand_quotient, "On demand, mean", palette.held, width=2.5, bold=True),
        line("reserve", curve, curve.memory_quotient, "Reserve", palette.pool, width=3, bold=True),
    ]
    return [each for each in compared + own if each.x.size]


def _name_line_ends(drawing: Drawing, lines: Sequence[Line], canvas: Canvas, last: int) -> None:
    """Names in the band behind the last context, apart from each other; a line that ends earlier is named where it
    falls below one sequence."""
    reaching = [line for line in lines if line.x[-1] == last]
    heights = [float(canvas.pixels(0, log10(line.y[-1]))[0, 1]) for line in reaching]
    for line, height in zip(reaching, spread(heights, LINE_SPACING, 34, canvas.height - 8), strict=True):
        end = np.array([canvas.pixels(log10(last), 0)[0, 0], height])
        canvas.take(end, Side(1, 0, 8), line.name, FONT_SIZE)
        write(drawing, line_name(line), *canvas.values(end), line.colour, Side(1, 0, 8))
    for line in lines:
        if line not in reaching:
            end = canvas.pixels(log10(line.x[-1]), log10(line.y[-1]))
            place(drawing, canvas, end, line.name, line.colour, FONT_SIZE, bold=line.bold)


def _draw_sequence_limit(drawing: Drawing, report: Report, canvas: Canvas, palette: Palette) -> bool:
    """A line across at max_num_seqs, where that is inside the chart."""
    limit = report.capacity.max_num_seqs
    if not canvas.y_range[0] < log10(limit) < canvas.y_range[1]:
        return False
    drawing.shape(
        type="line", xref="paper", x0=0, x1=1, y0=limit, y1=limit, layer="between",
        line={"color": palette.limit, "width": 1.8, "dash": "dash"},
    )  # fmt: skip
    canvas.add_curve(canvas.x_range, [log10(limit)] * 2, reference=True)
    return True


def _name_sequence_limit(drawing: Drawing, report: Report, canvas: Canvas, palette: Palette) -> None:
    name = f"max_num_seqs {count(report.capacity.max_num_seqs)}"
    height = float(canvas.pixels(0, log10(report.capacity.max_num_seqs))[0, 1])
    point, side = canvas.place_along(height, name, FONT_SIZE)
    write(drawing, name, *canvas.values(point), palette.limit, side)


def _draw_ceiling_plan(drawing: Drawing, report: Report, canvas: Canvas, palette: Palette) -> None:
    """The plan's dot on the ceiling, and the hollow one on what it could be on demand."""
    capacity, context = report.capacity, report.plan.context
    if capacity.batch_ceiling < 1:
        vertical(drawing, context, palette)
        return
    y = capacity.memory_quotient if capacity.binding == "memory" else capacity.batch_ceiling
    draw_plan(
        drawing, canvas, palette, x=context, y=y, height=log10(y),
        value=count(capacity.batch_ceiling), where=short_tokens(context), what="sequences at",
    )  # fmt: skip
    if capacity.on_demand_ceiling > capacity.batch_ceiling:
        mean = capacity.on_demand_quotient
        drawing.scatter(
            x=[context], y=[mean], mode="markers", cliponaxis=False, showlegend=False,
            marker={"size": 10, "color": palette.page, "line": {"color": palette.held, "width": 2.5}},
            hovertext=[f"<b>On demand, mean</b><br>{count(mean)} sequences at {count(context)} tokens"],
            hovertemplate=HOVER,
        )  # fmt: skip
        point = canvas.pixels(log10(context), log10(mean))
        place(drawing, canvas, point, f"{count(mean)} on average", palette.held, FONT_SIZE, bold=True)


def _pool_words(report: Report, palette: Palette) -> list[str]:
    capacity, booked = report.capacity, report.cache.request_bytes_booked
    words = [gib(report.memory.pool_bytes)]
    if capacity.batch_ceiling >= 1:
        held = percent(capacity.held_share)
        if shared := report.cache.request_bytes_shared:
            words.append(f"prefix {gib_or_less(shared)}, once")
        words.append(f"{count(capacity.batch_ceiling)} × {gib_or_less(booked - shared).removesuffix(' GiB')} booked")
        words.append(f'<span style="color:{palette.held}">{held} of it held</span>')
    return words


def _estimated(report: Report) -> list[str]:
    """The word and the band of an overhead that is an estimate."""
    band = report.memory.pool_band_bytes
    return [f"estimate, ± {gib(band)}"] if band else []


def _cut_pool(drawing: Drawing, report: Report, bottom: float, top: float, held_colour: str) -> None:
    """The shared prefix, then the pool's sequences as boxes, each filled from the left by the share it holds."""
    capacity = report.capacity
    if capacity.batch_ceiling < 1:
        return
    shared = report.cache.request_bytes_shared / GIB
    booked = report.cache.request_bytes_booked / GIB - shared
    sequences = min(capacity.batch_ceiling, capacity.memory_ceiling)
    if shared:
        drawing.shape(
            type="rect", x0=0, x1=1, y0=bottom, y1=bottom + shared,
            fillcolor=held_colour, line={"width": 0}, layer="above",
        )  # fmt: skip
        bottom += shared
    drawing.shape(
        type="rect", x0=0, x1=capacity.held_share, y0=bottom, y1=bottom + sequences * booked,
        fillcolor=held_colour, line={"width": 0}, layer="above",
    )  # fmt: skip
    if booked > SMALLEST_BOX * top:
        for index in range(sequences):
            drawing.shape(
                type="rect", x0=0, x1=1, y0=bottom + index * booked, y1=bottom + (index + 1) * booked,
                line={"color": colours.POOL_EDGE, "width": 1}, fillcolor="rgba(0,0,0,0)", layer="above",
            )  # fmt: skip


WORD_LINE = 15.5
"""Height of a line of words beside the memory bar, in pixels."""
WORDS_WIDTH = 124
"""Pixels at the right of the memory bar for the words on its parts, however narrow the chart is."""


def _bar(drawing: Drawing, palette: Palette, name: str, size: int, fill: str, words: list[str], hatched: bool) -> None:
    marker = {"color": fill, "line": {"color": palette.page, "width": 1}}
    if hatched:
        marker["pattern"] = {"shape": "/", "fgcolor": colours.GRID, "size": 8}
    drawing.bar(
        x=[0.5], y=[size / GIB], width=1, marker=marker, showlegend=False,
        hovertext=[f"<b>{name}</b><br>" + "<br>".join(words)], hovertemplate=HOVER,
    )  # fmt: skip


def _device_line(drawing: Drawing, height: float, palette: Palette) -> None:
    drawing.shape(
        type="line", x0=0, x1=1, y0=height, y1=height, layer="above",
        line={"color": palette.limit, "width": 2, "dash": "dash"},
    )  # fmt: skip


def _stack_labels(drawing: Drawing, labels: list, top: float) -> None:
    """Words right of the bar at the middle of their part, pushed apart by how many lines each has."""
    height = HEIGHT - MARGIN["t"] - MARGIN["b"]
    labels = sorted(labels, key=lambda label: label[0])
    blocks = [len(words) * WORD_LINE for _, _, words in labels]
    middles, edge = [], 0.0
    for (value, _, _), block in zip(labels, blocks, strict=True):
        middles.append(max(value / top * height, edge + block / 2))
        edge = middles[-1] + block / 2 + 4
    edge = height
    for index in reversed(range(len(labels))):
        middles[index] = min(middles[index], edge - blocks[index] / 2)
        edge = middles[index] - blocks[index] / 2 - 4
    for (_, colour, words), middle in zip(labels, middles, strict=True):
        write(drawing, "<br>".join(words), 1, middle / height * top, colour, Side(1, 0, 12))
