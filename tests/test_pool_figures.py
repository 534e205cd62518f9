"""Figures of the pool: what is drawn is what the runs say, ranges stand still, and every trace is small."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import plotly.io
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan import Plan, drawing, evaluate, lifecycle, pool
from kvplan.palette import DARK, LIGHT
from kvplan.pool_figures import TICKS, last_step, life_figure, occupancy_figure, running_figure
from kvplan.simulate import simulate
from kvplan.units import GIB, MIB

ROOT = Path(__file__).parents[1]
BLOCK = 2 * MIB
"""128 KiB a token x 16 tokens: a block of the default model."""
SMALL = Plan(kv_cache_memory_bytes=600 * BLOCK, context=4096, step_s=0.02)
BACKLOG = [(0, 1599, 1000)] * 60
"""Six of them fill a pool of 600 blocks with their first token, and each takes another with its second."""
PLANS = {
    "default": Plan(),
    "seeded": Plan(workload="seeded-200", max_num_seqs=16),
    "small": SMALL,
    "gemma": Plan(model="gemma-3-27b"),
    "deepseek-v4": Plan(model="deepseek-v4-flash", gpu="b200", tp=8),
    "states alone": Plan(model="falcon-mamba-7b"),
    "one slot": Plan(max_num_seqs=1),
    "shared prefix": Plan(shared_prefix_tokens=1000),
}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def run(plan, requests=None):
    report = evaluate(plan)
    if requests is None:
        requests = pool.requests_of(report.setting, pool.usual_number(report))
    return report, pool.runs(report, requests)


def every_figure(plan, requests=None, palette=LIGHT):
    report, runs = run(plan, requests)
    last = last_step(runs)
    return [
        occupancy_figure(report, runs.reserve, last, palette),
        occupancy_figure(report, runs.on_demand, last, palette),
        running_figure(runs, last, palette),
        life_figure(lifecycle.lifecycle(report), palette),
    ]


def texts(figure):
    return [annotation.text for annotation in figure.layout.annotations]


def named(figure, name):
    """The one trace whose hover begins with this name."""
    (found,) = (trace for trace in figure.data if trace.hovertext and trace.hovertext[0].startswith(f"<b>{name}</b>"))
    return found


# Every figure


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@each_plan
def test_every_plan_draws_valid_figures_with_finite_numbers(plan, palette):
    for figure in every_figure(plan, palette=palette):
        assert plotly.io.from_json(figure.to_json()).to_dict() == figure.to_dict()
        for trace in figure.data:
            assert np.isfinite(np.asarray(trace.y, dtype=float)).all()
            assert len(trace.x) == len(trace.y) == len(trace.hovertext) > 0


@each_plan
def test_no_figure_has_a_legend_a_title_or_more_points_than_pixels(plan):
    for figure in every_figure(plan):
        assert figure.layout.showlegend is False
        assert figure.layout.title.text is None
        assert not figure.layout.template.layout.to_plotly_json()
        assert all(len(trace.x) <= 1000 for trace in figure.data)
        assert len(json.dumps(figure.to_plotly_json(), default=list)) < 300_000


def test_requests_that_are_all_rejected_draw_empty_figures():
    report, runs = run(SMALL, [(0, 4096, 10)] * 5)
    last = last_step(runs)
    for figure in (occupancy_figure(report, runs.on_demand, last), running_figure(runs, last)):
        assert all(len(trace.x) == 0 for trace in figure.data)


def test_figures_need_no_dashboard():
    """Headless: plotly and numpy, but neither streamlit nor pandas."""
    program = (
        "import sys; from kvplan import Plan, evaluate, lifecycle, pool, pool_figures as f; report = evaluate(Plan());"
        "runs = pool.runs(report, pool.requests_of(report.setting, 50)); last = f.last_step(runs);"
        "f.occupancy_figure(report, runs.reserve, last); f.running_figure(runs, last);"
        "f.life_figure(lifecycle.lifecycle(report)); print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"streamlit", "pandas"} & set(found.stdout.split())


# Occupancy


def test_booked_and_held_are_the_shares_of_the_run():
    requests = BACKLOG[:7]
    report, runs = run(SMALL, requests)
    figure = occupancy_figure(report, runs.on_demand, last_step(runs))
    line = simulate(requests, SMALL, policy="on_demand").timeline
    booked, held = named(figure, "Booked"), named(figure, "Held")
    places = np.searchsorted(line.steps, booked.x)
    assert (line.steps[places] == booked.x).all()
    assert booked.y == pytest.approx(line.blocks[places] / 600)
    # A token is a sixteenth of a block; a request is taken to hold the mean of those that run, in whole tokens.
    assert held.y == pytest.approx(line.tokens[places] / (600 * 16), abs=6 * 0.5 / (600 * 16))
    assert booked.hovertext[0] == "<b>Booked</b><br>600 blocks, 100% of the pool in step 1"
    assert held.hovertext[0] == "<b>Held</b><br>9,600 tokens, 100% of the pool in step 1"
    assert [trace.fill for trace in figure.data] == ["tozeroy", "tozeroy", None]


def test_reserve_books_what_is_never_held():
    """Three requests of 163 blocks: 489 of 600, from the first step on; they hold 1,600 tokens each in the first."""
    report, runs = run(SMALL, BACKLOG[:6])
    figure = occupancy_figure(report, runs.reserve, last_step(runs))
    assert named(figure, "Booked").x[0] == 1
    assert set(named(figure, "Booked").y) == {489 / 600}
    assert named(figure, "Held").y[0] == pytest.approx(3 * 1600 / 9600)
    assert len(figure.data) == 2
    assert not any("runs out" in text for text in texts(figure))


@each_plan
def test_what_is_held_is_never_more_than_what_is_booked(plan):
    report, runs = run(plan)
    last = last_step(runs)
    for one in (runs.reserve, runs.on_demand):
        figure = occupancy_figure(report, one, last)
        booked, held = np.array(named(figure, "Booked").y), np.array(named(figure, "Held").y)
        assert (held <= booked + 1e-9).all()
        assert booked.max() <= 1


def test_what_states_hold_is_held_too():
    """1,024 states of 19 MiB in blocks of as much: held is what is booked, a third of the pool."""
    report, runs = run(Plan(model="falcon-mamba-7b", step_s=0.02))
    figure = occupancy_figure(report, runs.on_demand, last_step(runs))
    assert named(figure, "Booked").y[0] == pytest.approx(1024 / report.engine.num_blocks)
    assert named(figure, "Held").y[0] == pytest.approx(named(figure, "Booked").y[0], rel=0.01)


@each_plan
def test_the_ranges_are_the_same_under_both_policies(plan):
    report, runs = run(plan)
    last = last_step(runs)
    ranges = {
        (figure.layout.xaxis.range, figure.layout.yaxis.range)
        for figure in (occupancy_figure(report, one, last) for one in (runs.reserve, runs.on_demand))
    }
    assert ranges == {((0, last), (0, 1.08))}
    for figure in every_figure(plan)[:2]:
        assert figure.layout.xaxis.fixedrange
        assert figure.layout.yaxis.fixedrange
        assert max(max(trace.x) for trace in figure.data) <= last


def test_each_step_with_a_preemption_has_a_tick():
    report, runs = run(SMALL, BACKLOG)
    last = last_step(runs)
    preempted = runs.on_demand.outcome.preempted_at
    steps, times = np.unique(preempted[preempted <= last], return_counts=True)
    assert 0 < steps.size <= TICKS
    ticks = named(occupancy_figure(report, runs.on_demand, last), "Preempted")
    assert list(ticks.x) == steps.tolist()
    assert [text.split("<br>")[1] for text in ticks.hovertext] == [
        f"{number} in step {step:,}" for step, number in zip(steps.tolist(), times.tolist(), strict=True)
    ]
    assert set(ticks.y) == {1.04}


def test_of_very_many_preemptions_some_are_marked():
    """Thousands of short answers in a small pool: in more steps one is preempted than are marked one by one."""
    report, runs = run(SMALL, [(0, 300, 40)] * 6000)
    last = last_step(runs)
    steps = np.unique(runs.on_demand.outcome.preempted_at)
    steps = steps[steps <= last]
    assert steps.size > TICKS
    ticks = named(occupancy_figure(report, runs.on_demand, last), "Preempted")
    assert len(ticks.x) <= TICKS
    assert set(ticks.x) <= set(steps.tolist())


def test_where_the_pool_runs_out_is_said():
    report, runs = run(SMALL, BACKLOG)
    figure = occupancy_figure(report, runs.on_demand, last_step(runs))
    assert "<b>runs out at 2</b>" in texts(figure)
    assert any(shape.x0 == shape.x1 == 2 for shape in figure.layout.shapes)


def test_a_pool_that_runs_out_behind_the_picture_has_no_mark():
    report, runs = run(SMALL, [(0, 0, 3000)] * 6)
    assert runs.on_demand.outcome.preempted_at[0] == 1601
    figure = occupancy_figure(report, runs.on_demand, 1000)
    assert len(figure.data) == 2
    assert not any("runs out" in text for text in texts(figure))


def test_a_run_that_goes_on_behind_the_picture_says_so():
    report, runs = run(SMALL, BACKLOG)
    steps, last = runs.reserve.outcome.steps, last_step(runs)
    assert runs.on_demand.outcome.steps <= last < steps
    assert f"<b>to {steps:,} →</b>" in texts(occupancy_figure(report, runs.reserve, last))
    assert not any("→" in text for text in texts(occupancy_figure(report, runs.on_demand, last)))


def test_the_pools_end_is_drawn():
    report, runs = run(SMALL, BACKLOG)
    lines = [(shape.y0, shape.y1) for shape in occupancy_figure(report, runs.on_demand, 100).layout.shapes]
    assert (1, 1) in lines


# Requests that run


def test_the_running_figure_names_both_policies_with_their_means():
    _, runs = run(SMALL, BACKLOG)
    words = texts(running_figure(runs, last_step(runs)))
    assert words == [
        f"<b>on demand</b><br>{int(runs.on_demand.outcome.running_before_drain)} on average",
        f"<b>reserve</b><br>{int(runs.reserve.outcome.running_before_drain)} on average",
    ]


@each_plan
def test_the_running_figure_has_a_line_for_each_policy_in_a_range_that_holds_both(plan):
    _, runs = run(plan)
    figure = running_figure(runs, last_step(runs))
    assert len(figure.data) == 2
    top = figure.layout.yaxis.range[1]
    assert figure.layout.xaxis.range == (0, last_step(runs))
    for trace, one in zip(figure.data, (runs.on_demand, runs.reserve), strict=True):
        assert max(trace.y) <= one.outcome.peak_running < top
    assert all(0 <= note.y <= top for note in figure.layout.annotations)
    heights = [note.y / top for note in figure.layout.annotations]
    assert abs(heights[0] - heights[1]) >= 0.18 - 1e-9


def test_colours_are_those_of_the_palette():
    report, runs = run(SMALL, BACKLOG)
    for palette in (LIGHT, DARK):
        figure = occupancy_figure(report, runs.on_demand, 100, palette)
        assert named(figure, "Booked").line.color == palette.pool
        assert named(figure, "Held").line.color == palette.held
        assert named(figure, "Preempted").marker.line.color == palette.wasted
        assert [trace.line.color for trace in running_figure(runs, 100, palette).data] == [palette.held, palette.pool]


def test_both_pictures_end_at_a_round_step_behind_the_shorter_run():
    _, runs = run(PLANS["seeded"])
    assert (runs.reserve.outcome.steps, last_step(runs)) == (1148, 1250)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.just(0), st.integers(0, 4000), st.integers(1, 3000)), min_size=1, max_size=60))
def test_any_run_is_drawn(requests):
    report, runs = run(SMALL, requests)
    last = last_step(runs)
    assert last >= min(runs.reserve.outcome.steps, runs.on_demand.outcome.steps)
    for one in (runs.reserve, runs.on_demand):
        figure = occupancy_figure(report, one, last)
        shown = named(figure, "Booked")
        inside = one.outcome.timeline.steps[one.outcome.timeline.steps <= last]
        assert len(shown.x) == min(inside.size, drawing.POINTS)
        assert (shown.x[0], shown.x[-1]) == (inside[0], inside[-1])


# The life of one request


def test_a_life_begins_and_ends_with_nothing():
    life = lifecycle.lifecycle(evaluate(SMALL), prompt=1000, output=500)
    figure = life_figure(life)
    assert [trace.hovertext[2].split("</b>")[0] for trace in figure.data] == ["<b>Reserve", "<b>On demand", "<b>Held"]
    for trace in figure.data:
        assert not trace.y[[0, 1, -2, -1]].any()
        assert trace.x[1] == 0
        assert trace.x[-2] == 500
        assert trace.line.shape == "hv"
    assert figure.layout.xaxis.range == pytest.approx((-20, 540))
    assert {"<b>reserve</b>", "<b>on demand</b>", "<b>held</b>"} == set(texts(figure))


@pytest.mark.parametrize(
    ("prompt", "unit", "title"), [(100, MIB, "MiB on each device"), (3500, GIB, "GiB on each device")]
)
def test_a_life_has_the_unit_that_suits_it(prompt, unit, title):
    life = lifecycle.lifecycle(evaluate(SMALL), prompt=prompt, output=100)
    figure = life_figure(life)
    assert figure.layout.yaxis.title.text == title
    reserve, on_demand, held = figure.data
    assert set(reserve.y[2:-2]) == {life.reserved_bytes / unit}
    assert on_demand.y[2:-2] == pytest.approx(life.booked_bytes / unit)
    assert held.y[2:-2] == pytest.approx(life.held_bytes / unit)
    assert max(max(trace.y) for trace in figure.data) < figure.layout.yaxis.range[1]


def test_a_life_of_one_step_is_drawn():
    figure = life_figure(lifecycle.lifecycle(evaluate(SMALL), prompt=10, output=1))
    assert all(len(trace.x) == 5 for trace in figure.data)
