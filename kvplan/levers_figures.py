"""Levers as plotly figures: how far each single change moves the ceiling and the cost, the furthest at the top."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from kvplan.drawing import HOVER, LABEL_SIZE, MARGIN, Drawing, blank, log_axis, name_rows, note, region, vertical, write
from kvplan.labels import Side
from kvplan.levers import Effect, Lever, Levers, keeps_price
from kvplan.levers_words import times
from kvplan.links import encode_link
from kvplan.palette import LIGHT, Palette
from kvplan.units import count, duration, usd
from kvplan.verdict import LIMITS

HEIGHT, TOP, NAMES = 420, 30, 124
"""Pixels of a chart, above its plot, and of the names at its left."""
BAR, ROOM = 15, 0.4
"""Pixels of a bar at most, and room for what stands at its end, as a share of the axis."""
FEW, MOST_TICKS = 3, 5
UNMOVED = 1e-3
"""A share by which a value may fall and still counts as unmoved."""
NONE_FITS = 0.5
"""Where an axis of sequences ends that has a plan without any."""


class Bar(NamedTuple):
    """One lever on one axis: from the plan's value to `value`, and further in outline to `beyond`."""

    lever: Lever
    value: float
    beyond: float
    words: str
    hover: str
    hollow: bool = False


class Axis(NamedTuple):
    """What an axis counts, the plan's value on it, 0 where it has none, from where the bars of such a plan begin, where
    ticks may be, how a value and how a tick are written, and whether more is better."""

    title: str
    now: float
    floor: float
    ticks: Sequence[float]
    words: Callable[[float], str]
    tick_words: Callable[[float], str]
    more_is_better: bool

    @property
    def base(self) -> float:
        return self.now or self.floor


def ceiling_figure(found: Levers, palette: Palette = LIGHT, linked: bool = True) -> go.Figure:
    """Sequences that run under each lever, in outline those memory would hold where another limit binds. `linked`: a
    name opens its plan, which it can only in the dashboard."""
    now = found.before.ceiling
    bars = [_ceiling_bar(found.before, lever) for lever in found.offered]
    axis = Axis("Sequences that run", now, NONE_FITS, [float(2**power) for power in range(41)], count, count, True)
    drawing = _tornado(bars, axis, palette.pool, palette, linked)
    if not now:
        region(drawing, xref="x", x0=NONE_FITS, x1=1, yref="paper", y0=0, y1=1)
        note(drawing, palette, "none now", math.log10(NONE_FITS), len(bars) - 0.5)
    return drawing.figure()


def cost_figure(found: Levers, palette: Palette = LIGHT, linked: bool = True) -> go.Figure:
    """What a million output tokens cost under each lever that has a cost, at least one; another GPU in outline, as its
    price is not known. `linked` as above."""
    bars = [_cost_bar(found.before, lever) for lever in found.priced]
    now, floor = found.before.usd_per_million_tokens or 0.0, min(bar.value for bar in bars) / 2
    axis = Axis("Dollars for a million output tokens", now, floor, _round_numbers((1, 2, 5)), usd, _round_usd, False)
    return _tornado(bars, axis, palette.held, palette, linked).figure()


def _ceiling_bar(before: Effect, lever: Lever) -> Bar:
    after = lever.after
    hidden = after.memory_ceiling > after.ceiling
    words = f"{count(after.ceiling)} ({count(after.memory_ceiling)})" if hidden else count(after.ceiling)
    holds = f", memory would hold {count(after.memory_ceiling)}" if hidden else ""
    change = f"{count(before.ceiling)} → {count(after.ceiling)} sequences {times(before.ceiling, after.ceiling)}"
    hover = f"{change.rstrip()}<br>{LIMITS[after.binding]} binds{holds}"
    return Bar(lever, after.ceiling, max(after.ceiling, after.memory_ceiling), words, _hover(lever, hover))


def _cost_bar(before: Effect, lever: Lever) -> Bar:
    after, now = lever.after, before.usd_per_million_tokens
    cost = after.usd_per_million_tokens
    change = f"{f'{usd(now)} → ' if now else ''}{usd(cost)} a million tokens {times(now, cost)}"
    gpus = f"{after.gpus} GPU{'' if after.gpus == 1 else 's'}"
    hover = f"{change.rstrip()}<br>at batch {count(after.batch)} on {gpus}, a step of {duration(after.decode_step_s)}"
    if not keeps_price(lever):
        hover += "<br>at the price of the plan's GPU; its own is not known"
    return Bar(lever, cost, cost, usd(cost), _hover(lever, hover), hollow=not keeps_price(lever))


def _hover(lever: Lever, words: str) -> str:
    return f"<b>{lever.name}</b><br>{words}<br>changes {', '.join(lever.changed)}; {lever.quality}"


def _tornado(bars: Sequence[Bar], axis: Axis, colour: str, palette: Palette, linked: bool) -> Drawing:
    """Bars from the plan's value on a log axis, the longest at the top; each name may be a link to its plan."""
    low, high = _range(bars, axis.base)
    ranked = sorted(bars, key=lambda bar: _rank(bar, axis))
    drawing = blank(palette, top=TOP, left=NAMES)
    drawing.layout |= {"height": HEIGHT, "barmode": "overlay"}
    name_rows(drawing, [_link(bar.lever, palette) if linked else bar.lever.name for bar in ranked])
    ticks = {value: axis.tick_words(value) for value in _ticks(axis.ticks, low, high)}
    log_axis(drawing, "xaxis", axis.title, ticks, (math.log10(low), math.log10(high)))
    width = min(0.66, BAR * len(ranked) / (HEIGHT - TOP - MARGIN["b"]))
    for row, bar in enumerate(ranked):
        _draw(drawing, row, bar, axis.base, colour, width)
        right = bar.value > axis.base * (1 - UNMOVED)
        end = bar.beyond if right else bar.value
        write(drawing, bar.words, math.log10(end), row, colour, Side(1 if right else -1, 0, 6))
    if axis.now:
        vertical(drawing, axis.now, palette)
        drawing.annotation(
            text=f"<b>now {axis.words(axis.now)}</b>", x=math.log10(axis.now), yref="paper", y=1, yanchor="bottom",
            showarrow=False, font={"color": palette.ink, "size": LABEL_SIZE},
        )  # fmt: skip
    return drawing


def _rank(bar: Bar, axis: Axis) -> tuple[float, float]:
    """What moves most comes first; where there is nothing to move from, the best."""
    if not axis.now:
        return (-bar.value if axis.more_is_better else bar.value), 0.0
    return -abs(math.log(bar.value / axis.now)), -bar.beyond


def _draw(drawing: Drawing, row: int, bar: Bar, base: float, colour: str, width: float) -> None:
    outline = {"color": "rgba(0,0,0,0)", "line": {"color": colour, "width": 1}}
    filled = {"color": colour, "line": {"color": colour, "width": 1}}
    parts = [(base, bar.value, outline if bar.hollow else filled)]
    parts += [(bar.value, bar.beyond, outline)] if bar.beyond > bar.value >= base else []
    for start, end, marker in parts:
        drawing.bar(
            orientation="h", y=[row], base=[start], x=[end - start], width=[width], marker=marker, showlegend=False,
            hovertext=[bar.hover], hovertemplate=HOVER,
        )  # fmt: skip


def _range(bars: Sequence[Bar], base: float) -> tuple[float, float]:
    """The ends of the axis: whole half octaves around every bar, and room for what stands at the ends of the bars."""
    values = [base, *(value for bar in bars for value in (bar.value, bar.beyond))]
    low, high = math.floor(2 * math.log2(min(values))) / 2, math.ceil(2 * math.log2(max(values))) / 2
    room = ROOM * max(high - low, 1)
    return 2 ** (low - (room if min(values) < base else 0)), 2 ** (high + room)


def _ticks(wide: Sequence[float], low: float, high: float) -> list[float]:
    """Ticks of a range, none nearer to the next than a share of it: those of a wide one, or every round number where
    these would be next to none."""
    inside = [value for value in wide if low <= value <= high]
    if len(inside) < FEW:
        inside = [value for value in _round_numbers(range(1, 10)) if low <= value <= high]
    chosen = inside[:1]
    for value in inside:
        if math.log(value / chosen[-1]) >= math.log(high / low) / MOST_TICKS:
            chosen.append(value)
    return chosen


def _round_numbers(digits: Iterable[int]) -> list[float]:
    return [float(f"{digit}e{power}") for power in range(-9, 10) for digit in digits]


def _round_usd(amount: float) -> str:
    """A round number of dollars, without decimals that say nothing; below one in cents at least."""
    return f"${amount:,.{max(2, -math.floor(math.log10(amount))) if amount < 1 else 0}f}"


def _link(lever: Lever, palette: Palette) -> str:
    """The name of a lever, a link to its plan; plotly would encode once more what is encoded already."""
    href = encode_link(lever.plan, "./", full=False)
    return lever.name if "%" in href else f'<a href="{href}" style="color:{palette.ink}">{lever.name}</a>'
