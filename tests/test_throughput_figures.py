"""Figures of throughput: what is drawn is what the rates say, limits stand where they bind, names cover nothing."""

from itertools import pairwise

import numpy as np
import pytest
from test_pool import KINDS

from kvplan import Plan, evaluate, rates
from kvplan.labels import CHARACTER_WIDTH
from kvplan.palette import DARK, LIGHT
from kvplan.throughput_figures import LIMIT_NAMES, latency_figure, rates_figure, roofline_figure
from kvplan.units import count, mean

PLANS = {
    **KINDS,
    "on demand": Plan(admission="on_demand"),
    "one slot": Plan(max_num_seqs=1),
    "no batch": Plan(tpot_s=0.001),
    "slow": Plan(gpu="t4", model="llama-3.2-3b", weight_dtype="fp16", context=2048),
    "large batch": Plan(batch=4000, gpu="h200", tp=8, max_num_seqs=5000, admission="on_demand", tpot_s=10),
    "pipeline": Plan(model="llama-3.3-70b", tp=4, pp=2),
    "speculative": Plan(spec_method="eagle3", spec_tokens=3, acceptance_rate=0.7),
}
NARROW = 560
"""Pixels of a plot on a small screen."""
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def found(plan):
    report = evaluate(plan)
    return report, rates.rates(report)


def figures(plan, palette=LIGHT):
    report, own = found(plan)
    per = [rates_figure(report, own, per, palette) for per in ("replica", "GPU", "user")]
    return [*per, latency_figure(report, own, palette), roofline_figure(rates.roofline(report, own), palette)]


def texts(figure):
    return [note.text for note in figure.layout.annotations]


@each_plan
def test_curves_are_the_operations(plan):
    _, own = found(plan)
    replica, _, user, latency, _ = figures(plan)
    assert list(replica.data[0].x) == [each.concurrency for each in own.curve]
    assert list(replica.data[0].y) == [each.tokens_per_s for each in own.curve]
    assert list(user.data[0].y) == [1 / each.tpot_s for each in own.curve]
    assert list(latency.data[0].y) == [each.ttft_s for each in own.curve]
    assert list(latency.data[1].y) == [each.tpot_s for each in own.curve]


@each_plan
def test_the_plan_is_a_dot_with_its_value_beside_it(plan):
    _, own = found(plan)
    figure = figures(plan)[0]
    dot = next(trace for trace in figure.data if trace.mode == "markers")
    assert (dot.x[0], dot.y[0]) == (own.own.concurrency, own.own.tokens_per_s)
    assert f"<b>{mean(own.own.tokens_per_s)} at {count(own.own.concurrency)}</b>" in texts(figure)


@each_plan
def test_every_limit_in_reach_is_a_line_with_its_name(plan):
    _, own = found(plan)
    last = own.curve[-1].concurrency
    reached = {name: limit for name, limit in own.limits.items() if 1 <= limit <= last}
    for number in (0, 3):
        figure = figures(plan)[number]
        lines = {shape.x0 for shape in figure.layout.shapes if shape.type == "line" and shape.x0 == shape.x1}
        assert set(reached.values()) <= lines
    named = {f"<b>{LIMIT_NAMES[name]}</b>" for name in reached}
    assert named <= set(texts(figures(plan)[0]))


@each_plan
def test_only_what_meets_every_limit_is_tinted(plan):
    _, own = found(plan)
    tinted = [shape for shape in figures(plan)[0].layout.shapes if shape.type == "rect"]
    least = min(own.limits.values())
    assert len(tinted) == (least >= 1)
    if tinted and least <= own.curve[-1].concurrency:
        assert tinted[0].x1 == least


@each_plan
def test_both_points_stand_under_the_roof(plan):
    report, own = found(plan)
    roof = rates.roofline(report, own)
    figure = figures(plan)[-1]
    for point in roof.points:
        least = min(roof.peak_flop_per_s, roof.peak_bytes_per_s * point.flop_per_byte)
        assert 0 < point.flop_per_s <= least * (1 + 1e-9)
    markers = [trace for trace in figure.data if trace.mode == "markers"]
    assert [trace.x[0] for trace in markers] == [point.flop_per_byte for point in roof.points]


@each_plan
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_nothing_is_drawn_outside_its_axes_and_no_limit_names_overlap(plan, palette):
    for figure in figures(plan, palette):
        low, high = figure.layout.xaxis.range
        for trace in figure.data:
            x = np.log10(np.array(trace.x, dtype=float))
            assert (x >= low - 1e-9).all()
            assert (x <= high + 1e-9).all()
    named = figures(plan, palette)[0]
    spans = sorted(span_of(note, named.layout.xaxis.range) for note in named.layout.annotations if note.yref == "paper")
    assert all(left[1] <= right[0] for left, right in pairwise(spans))


def span_of(note, limits):
    """From where to where a name above the plot goes, in pixels of a narrow page."""
    at, width = (
        (note.x - limits[0]) / (limits[1] - limits[0]) * NARROW,
        len(note.text) * note.font.size * CHARACTER_WIDTH,
    )
    left = at - {"left": 0, "center": width / 2, "right": width}[note.xanchor]
    return left, left + width - 7 * note.font.size * CHARACTER_WIDTH


def test_prefill_computes_and_decode_reads():
    """The default plan: decode on the slope of the roof, prefill under its flat part."""
    report, own = found(Plan())
    decode, prefill = rates.roofline(report, own).points
    assert (decode.parts.binding, prefill.parts.binding) == ("memory_bandwidth", "compute")
    ridge = 989.4e12 / 3.35e12
    assert decode.flop_per_byte < ridge < prefill.flop_per_byte


@pytest.mark.parametrize(("fields", "named"), [({}, True), ({"admission": "on_demand"}, False)])
def test_the_next_limit_is_a_hollow_dot_whose_value_stands_where_there_is_room(fields, named):
    """54 and 240 are far from each other, 240 and 364 are not."""
    _, own = found(Plan(**fields))
    figure = figures(Plan(**fields))[0]
    hollow = [trace for trace in figure.data if trace.mode == "markers"][1]
    assert (hollow.x[0], hollow.y[0]) == (own.could.concurrency, own.could.tokens_per_s)
    label = f"<b>{mean(own.could.tokens_per_s)} at {count(own.could.concurrency)}</b>"
    assert (label in texts(figure)) == named
