"""The frontier as a picture: a dot for each split, names that cover nothing, the target, and the plan twice."""

from itertools import combinations
from math import log10

import pytest
from test_fleet import RATED

from kvplan import Plan, evaluate, fleet_search, frontier, load_preset, presets
from kvplan.fleet import NO_FLEET, priced
from kvplan.fleet_figures import HEIGHT, NOMINAL_WIDTH, TOP, frontier_figure
from kvplan.fleet_search import Found, Trial
from kvplan.fleet_words import split
from kvplan.labels import CHARACTER_WIDTH, LINE_HEIGHT, Box
from kvplan.palette import DARK, LIGHT
from kvplan.units import duration, usd

READY = {name: load_preset(name) for name in presets("plan") if frontier.has_rate(evaluate(load_preset(name)))}
PLANS = {**RATED, **READY, "rate 3000": Plan(arrival_rate=3000), "rate 0.001": Plan(arrival_rate=0.001)}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
each_latency = pytest.mark.parametrize("latency", ["tpot_s", "ttft_s"])


def simulated(plan, replicas=2, ttft_s=0.5, tpot_s=0.03):
    """An answer as the search gives it."""
    trial = Trial(replicas, 1.0, 1.0, 2000, (3, 4), (ttft_s / 2, ttft_s), (tpot_s / 2, tpot_s), ())
    return Found(
        replicas, priced(evaluate(plan).setting, replicas, 200), 8, None, 20.0, 50.0, (trial,), (trial,), None, 9
    )


def figure_of(plan, latency="tpot_s", found=None, palette=LIGHT):
    return frontier_figure(evaluate(plan), frontier.frontier(plan), found, latency, palette)


def dots(figure):
    return [trace for trace in figure.data if trace.mode == "markers"]


def dot_with(figure, words):
    (found,) = [trace for trace in dots(figure) if words in trace.hovertext[0]]
    return found


def texts(figure):
    return [annotation.text for annotation in figure.layout.annotations]


def box_of(figure, annotation):
    """The pixels of a label on the nominal plot."""
    text = annotation.text.replace("<b>", "").replace("</b>", "")
    width, height = len(text) * annotation.font.size * CHARACTER_WIDTH, annotation.font.size * LINE_HEIGHT
    (x0, x1), (y0, y1) = figure.layout.xaxis.range, figure.layout.yaxis.range
    plot = HEIGHT - TOP - figure.layout.margin.b
    x = (annotation.x - x0) / (x1 - x0) * NOMINAL_WIDTH + annotation.xshift
    y = (annotation.y - y0) / (y1 - y0) * plot + annotation.yshift
    left = x - {"left": 0, "center": width / 2, "right": width}[annotation.xanchor]
    return Box(left, y - {"bottom": 0, "middle": height / 2, "top": height}[annotation.yanchor], width, height)


@each_plan
@each_latency
def test_every_split_has_a_dot_where_its_numbers_are(plan, latency):
    figure, points = figure_of(plan, latency), frontier.frontier(plan)
    assert len(dots(figure)) == len(points)
    own = frontier.own(points, plan)
    priced = evaluate(plan).setting.gpu_hour_usd > 0
    for point in points:
        words = "This plan" if point is own else f"{point.plan.dp:,} × {split(point)}<"
        dot = dot_with(figure, words)
        cost = point.fleet.usd_per_hour if priced else point.fleet.gpus
        assert (dot.x[0], dot.y[0]) == (1000 * getattr(point, latency), cost)


@each_plan
@each_latency
@pytest.mark.parametrize("with_answer", [False, True])
def test_no_name_covers_another_and_none_is_far_outside(plan, latency, with_answer):
    figure = figure_of(plan, latency, simulated(plan) if with_answer else None)
    boxes = [box_of(figure, annotation) for annotation in figure.layout.annotations]
    names = [annotation.text for annotation in figure.layout.annotations]
    overlapping = [
        (names[one], names[other])
        for one, other in combinations(range(len(boxes)), 2)
        if boxes[one].overlaps(boxes[other])
    ]
    assert overlapping == []
    assert all(box.left > -56 and box.left + box.width < NOMINAL_WIDTH + 20 for box in boxes)


@each_plan
@each_latency
def test_all_dots_and_the_target_are_inside_the_axes(plan, latency):
    figure = figure_of(plan, latency, simulated(plan, ttft_s=50, tpot_s=3))
    for axis, coordinate in ((figure.layout.xaxis, "x"), (figure.layout.yaxis, "y")):
        low, high = axis.range
        values = [log10(getattr(dot, coordinate)[0]) for dot in dots(figure)]
        assert all(low < value < high for value in values)
        assert 2 <= len(axis.tickvals) <= 12
        assert all(low - 1e-9 <= log10(tick) <= high + 1e-9 for tick in axis.tickvals)
    target = log10(1000 * getattr(evaluate(plan).setting, latency))
    assert figure.layout.xaxis.range[0] < target < figure.layout.xaxis.range[1]


@each_plan
def test_what_misses_a_target_is_hollow_and_the_cheapest_is_hollow_in_green(plan):
    points = frontier.frontier(plan)
    figure, cheapest, own = figure_of(plan), frontier.recommended(points), frontier.own(points, plan)
    for point in points:
        if point is own:
            assert dot_with(figure, "This plan").marker.color == LIGHT.ink
            continue
        marker = dot_with(figure, f"× {split(point)}<").marker
        if point is cheapest:
            assert (marker.color, marker.line.color) == (LIGHT.page, LIGHT.held)
        else:
            assert marker.color == (LIGHT.reference if point.meets else LIGHT.page)
    green = [annotation for annotation in figure.layout.annotations if annotation.font.color == LIGHT.held]
    assert len(green) == (cheapest is not None and cheapest is not own)


@each_plan
@each_latency
def test_the_stairs_go_through_the_best(plan, latency):
    figure, points = figure_of(plan, latency), frontier.frontier(plan)
    (stairs,) = [trace for trace in figure.data if trace.mode == "lines"]
    best = {1000 * getattr(point, latency) for point in frontier.pareto(points, latency)}
    assert set(stairs.x) == best
    assert list(stairs.y) == sorted(stairs.y)
    assert list(stairs.x) == sorted(stairs.x, reverse=True)


def test_the_plan_is_labelled_with_its_cost_and_latency():
    plan = Plan(model="llama-3.1-70b", tp=4, arrival_rate=20, gpu_hour_usd=2.5)
    own = frontier.own(frontier.frontier(plan), plan)
    assert f"<b>{usd(own.fleet.gpus * 2.5)} at {duration(own.tpot_s)}</b>" in texts(figure_of(plan))


def test_the_plan_as_simulated_is_a_second_hollow_dot_at_its_worst_percentile():
    plan = Plan(arrival_rate=100)
    figure = figure_of(plan, "tpot_s", simulated(plan, replicas=7, tpot_s=0.031))
    dot = dot_with(figure, "This plan, simulated: 7 replicas")
    assert (dot.x[0], dot.y[0]) == (31, 8)
    assert dot.marker.color == LIGHT.page
    assert "<b>simulated, p95</b>" in texts(figure)
    assert len(dots(figure)) == 1 + len(frontier.frontier(plan))
    assert dot_with(figure_of(plan, "ttft_s", simulated(plan)), "simulated").x[0] == 500


def test_without_an_answer_there_is_no_second_dot():
    plan = Plan(tpot_s=0.001)
    none = fleet_search.Found(None, NO_FLEET, 8.0, None, 20.0, 50.0, (), (), None, 9)
    assert figure_of(plan, found=none) == figure_of(plan)


def test_outputs_of_one_token_have_a_place_only_on_the_axis_of_first_tokens():
    plan = Plan(arrival_rate=100)
    trial = Trial(2, 1.0, 1.0, 2000, (3,), (0.5,), (None,), ())
    found = Found(2, priced(evaluate(plan).setting, 2, 1), 8, None, 20.0, 50.0, (trial,), (trial,), None, 9)
    assert len(dots(figure_of(plan, "ttft_s", found))) == 1 + len(dots(figure_of(plan, "tpot_s", found)))


def test_the_target_is_named_and_what_lies_beyond_is_shaded():
    figure = figure_of(Plan(tpot_s=0.025))
    assert "target 25 ms" in texts(figure)
    (region,) = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert region.x0 == pytest.approx(25)
    assert "target 2 s" in texts(figure_of(Plan(), "ttft_s"))


def test_where_a_gpu_costs_nothing_gpus_are_the_cost():
    assert figure_of(Plan()).layout.yaxis.title.text == "USD an hour"
    free = figure_of(RATED["free"], found=simulated(RATED["free"]))
    assert free.layout.yaxis.title.text == "GPUs"
    assert any("GPUs at" in text for text in texts(free))


@each_latency
def test_the_axis_names_its_latency_and_unit(latency):
    name = {"tpot_s": "TPOT", "ttft_s": "TTFT"}[latency]
    assert figure_of(Plan(), latency).layout.xaxis.title.text == f"{name} at the peak, ms"


def test_each_theme_has_its_colours():
    plan = Plan(model="llama-3.1-70b", tp=4, arrival_rate=20)
    light, dark = figure_of(plan), figure_of(plan, palette=DARK)
    assert [trace.x for trace in light.data] == [trace.x for trace in dark.data]
    assert dot_with(dark, "This plan").marker.color == DARK.ink
    assert dark.layout.hoverlabel.bgcolor == DARK.page


def test_the_house_style_holds():
    layout = figure_of(Plan()).layout
    assert not layout.showlegend
    assert layout.dragmode is False
    assert layout.height == HEIGHT
    assert (layout.xaxis.type, layout.yaxis.type) == ("log", "log")
