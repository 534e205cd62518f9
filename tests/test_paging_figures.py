"""Figures of paging: what is drawn is what the curves and the runs say, ranges stand still, and bars cover nothing."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import plotly.io
import pytest
from test_pool import KINDS

from kvplan import Plan, allocation, blocks, curves, drawing, evaluate, load_preset, paging_figures
from kvplan.allocators import ALLOCATORS, BUDDY
from kvplan.lengths import clipped
from kvplan.paging_figures import extent_figure, map_figure, shares_figure, table_figure, waste_figure
from kvplan.palette import DARK, LIGHT
from kvplan.units import round_end

ROOT = Path(__file__).parents[1]
PLANS = {
    **KINDS,
    "three requests": load_preset("three-requests-4096"),
    "block 1": Plan(block_size=1),
    "block 65,536": Plan(block_size=65_536, context=65_536, kv_cache_memory_bytes=10**11),
    "context 1": Plan(context=1),
    "seeded": Plan(workload="seeded-200"),
    "equal": Plan(workload="auto", output_dist="fixed", prompt_mean=1000, output_mean=24),
    "all rejected": Plan(workload="auto", prompt_mean=10_000, context=1024),
    "one slot": Plan(max_num_seqs=1),
}
NOTHING = ("falcon-mamba-7b", "context 1", "all rejected")
COMPARED = {name: plan for name, plan in PLANS.items() if name not in NOTHING}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
each_compared = pytest.mark.parametrize("plan", COMPARED.values(), ids=COMPARED)
each_stage = pytest.mark.parametrize("stage", curves.STAGES)
each_unit = pytest.mark.parametrize("unit", ["share", "tokens"])


def compared(plan, allocator=BUDDY):
    return allocation.compared(evaluate(plan), allocator)


def of_runs(plan, palette=LIGHT, allocator=BUDDY):
    """The figures of the allocators, none where nothing is compared."""
    found = compared(plan, allocator)
    if found is None:
        return []
    return [
        shares_figure(found, palette),
        *(map_figure(found, allocation.step_of(found, quarter), palette) for quarter in range(3)),
        extent_figure(found, round_end(allocation.last_step(found)), palette=palette),
    ]


def stages_of(report):
    """The stages at which a sequence holds something: without a prompt there is nothing before the first token."""
    prompts, _ = clipped(report.setting.lengths, report.plan.context)
    return [stage for stage in curves.STAGES if prompts.any() or stage != curves.WITH_PROMPT]


def of_curves(plan, palette=LIGHT):
    report = evaluate(plan)
    found = [curves.block_waste(report, stage) for stage in stages_of(report)]
    figures = [waste_figure(report, curve, unit, palette) for curve in found for unit in ("share", "tokens")]
    return [*figures, table_figure(report, found[0], palette)]


def texts(figure):
    return [annotation.text for annotation in figure.layout.annotations]


def dots(figure):
    return [trace for trace in figure.data if trace.mode == "markers"]


# The curves


@each_stage
@each_plan
def test_the_own_waste_is_the_curve_at_the_plans_block(plan, stage):
    report = evaluate(plan)
    if stage not in stages_of(report):
        return
    curve = curves.block_waste(report, stage)
    own = np.flatnonzero(curve.block_sizes == report.paging.block_size)
    assert curve.stage == stage
    if own.size:
        assert curve.own_tokens == pytest.approx(curve.tokens[own[0]])
        assert curve.own_share == pytest.approx(curve.share[own[0]])
    assert ((curve.share >= 0) & (curve.share < 1)).all()
    assert (curve.tokens <= curve.block_sizes - 1 + 1e-6).all()
    assert (curve.half_block_tokens == (curve.block_sizes - 1) / 2).all()
    assert curve.block_sizes[-1] >= report.paging.block_size


@each_plan
def test_the_own_waste_of_every_stage_is_the_reports(plan):
    report = evaluate(plan)
    if not report.cache.bytes_per_token:  # states alone: no block is left unfilled
        assert report.paging.waste_tokens == report.paging.waste_share == 0
        return
    found = {stage: curves.block_waste(report, stage) for stage in stages_of(report)}
    assert found[curves.AT_COMPLETION].own_tokens == pytest.approx(report.paging.waste_tokens)
    assert found[curves.AT_COMPLETION].own_share == pytest.approx(report.paging.waste_share)
    if curves.WITH_PROMPT in found:
        assert found[curves.WITH_PROMPT].own_tokens == pytest.approx(report.paging.prompt_waste_tokens)
    assert found[curves.OVER_LIFE].own_tokens == pytest.approx(report.paging.life_waste_tokens)
    entries = [curve.entries.tolist() for curve in found.values()]
    assert entries == [entries[0]] * len(entries)


@pytest.mark.parametrize("name", ["seeded", "context 1"])
def test_without_a_prompt_nothing_is_wasted_before_the_first_token(name):
    """No prompt, no block: nothing booked and nothing wasted, whatever the block size."""
    curve = curves.block_waste(evaluate(PLANS[name]), curves.WITH_PROMPT)
    assert (curve.own_tokens, curve.own_share) == (0, 0)
    assert not curve.tokens.any()
    assert not curve.share.any()


def test_completion_is_the_stage_where_none_is_chosen():
    report = evaluate(Plan())
    assert curves.block_waste(report).stage == curves.AT_COMPLETION
    assert curves.block_waste(report).own_share == report.paging.waste_share


def test_a_stage_by_hand():
    """A single request of 100 tokens and 28 more: 12 of 112 slots with the prompt; 0 of 128 at its end; over its life
    12 tokens that fill a block and 16 that fill another waste (11 + ... + 0 + 15 + ... + 0) / 28."""
    report = evaluate(Plan(workload="auto", output_dist="fixed", prompt_mean=100, output_mean=28))
    found = {stage: curves.block_waste(report, stage) for stage in curves.STAGES}
    prompt, end, life = found["with the prompt"], found["at completion"], found["over its life"]
    assert (prompt.own_tokens, prompt.own_share) == pytest.approx((12, 12 / 112))
    assert (end.own_tokens, end.own_share) == (0, 0)
    mean = (sum(range(12)) + sum(range(16))) / 28
    assert (life.own_tokens, life.own_share) == pytest.approx((mean, mean / (mean + 114.5)))


# Every figure


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@each_plan
def test_every_plan_draws_valid_figures_with_finite_numbers(plan, palette):
    for figure in (*of_curves(plan, palette), *of_runs(plan, palette)):
        assert len(plotly.io.from_json(figure.to_json()).data) == len(figure.data)
        for trace in figure.data:
            for values in (trace.x, trace.y, *([] if trace.type != "bar" or trace.base is None else [trace.base])):
                assert np.isfinite(np.asarray(values, dtype=float)).all()
            # Of very many extents none says its size.
            texts = [""] * len(trace.x) if trace.hoverinfo == "skip" else trace.hovertext
            assert len(trace.x) == len(trace.y) == len(texts)
            assert not any("nan" in text or "inf" in text for text in texts)


@each_plan
def test_no_figure_has_a_legend_a_title_or_a_template(plan):
    for figure in (*of_curves(plan), *of_runs(plan)):
        assert figure.layout.showlegend is False
        assert figure.layout.title.text is None
        assert not figure.layout.template.layout.to_plotly_json()
        assert figure.layout.xaxis.fixedrange
        assert figure.layout.yaxis.fixedrange
        assert figure.layout.xaxis.range is not None
        assert figure.layout.yaxis.range is not None


@each_compared
def test_figures_are_small_enough_to_send_at_every_move(plan):
    for figure in (*of_curves(plan), *of_runs(plan)):
        assert len(json.dumps(figure.to_plotly_json(), default=list)) < 300_000


def test_figures_need_no_dashboard():
    """Headless: plotly and numpy, but neither streamlit nor pandas."""
    program = (
        "import sys; from kvplan import Plan, allocation, curves, evaluate, paging_figures as f;"
        "report = evaluate(Plan()); curve = curves.block_waste(report); found = allocation.compared(report);"
        "f.waste_figure(report, curve); f.table_figure(report, curve); f.shares_figure(found); f.map_figure(found, 9);"
        "f.extent_figure(found, 9); print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"streamlit", "pandas"} & set(found.stdout.split())


# Waste against block size


@each_unit
@each_stage
def test_three_lines_and_the_plan(stage, unit):
    report = evaluate(Plan())
    curve = curves.block_waste(report, stage)
    figure = waste_figure(report, curve, unit)
    assert [trace.mode for trace in figure.data] == ["lines", "lines", "lines", "markers"]
    half, contiguous, paged, dot = figure.data
    values = (curve.half_block_share, curve.share) if unit == "share" else (curve.half_block_tokens, curve.tokens)
    for trace, wanted in ((half, values[0]), (paged, values[1])):
        seen = wanted > 0
        assert np.array(trace.x).tolist() == curve.block_sizes[seen].tolist()
        assert trace.y == pytest.approx(wanted[seen])
    found = report.paging
    flat = found.contiguous_waste_share if unit == "share" else found.contiguous_waste_tokens
    assert set(contiguous.y) == {flat}
    assert (dot.x[0], dot.y[0]) == (16, curve.own_share if unit == "share" else curve.own_tokens)
    assert half.hovertext[0].startswith("<b>Half a block</b><br>")
    assert paged.hovertext[0].startswith("<b>Paged</b><br>")
    assert paged.hovertext[0].endswith("wasted at block 2")
    assert contiguous.hovertext[0].startswith("<b>Contiguous at the context</b><br>")


@each_unit
def test_the_ranges_do_not_depend_on_the_stage_or_on_the_block(unit):
    ranges = {
        (figure.layout.xaxis.range, figure.layout.yaxis.range)
        for size in (1, 16, 24, 544, 1024)
        for stage in curves.STAGES
        for report in [evaluate(Plan(block_size=size))]
        for figure in [waste_figure(report, curves.block_waste(report, stage), unit)]
    }
    assert len(ranges) == 1


def test_the_range_of_shares_is_the_same_for_every_plan_of_ordinary_blocks():
    plans = [Plan(), Plan(context=1024), Plan(workload="seeded-200"), KINDS["gemma-3-27b"], KINDS["deepseek-v3"]]
    found = [of_curves(plan)[0].layout for plan in plans]
    assert len({(layout.xaxis.range, layout.yaxis.range) for layout in found}) == 1


@each_unit
def test_waste_that_is_none_is_said(unit):
    """Blocks of one token, and requests that end with their block, have no dot on a log axis."""
    for plan, size in ((PLANS["block 1"], 1), (PLANS["equal"], 16)):
        report = evaluate(plan)
        figure = waste_figure(report, curves.block_waste(report), unit)
        assert (f"nothing wasted at {size}" in texts(figure)) == (report.paging.waste_tokens == 0)
        assert len(dots(figure)) == (report.paging.waste_tokens > 0)


@each_plan
def test_what_is_drawn_of_the_plan_is_inside_the_ranges(plan):
    for figure in of_curves(plan):
        for trace in dots(figure):
            for value, (low, high) in (
                (trace.x[0], figure.layout.xaxis.range),
                (trace.y[0], figure.layout.yaxis.range),
            ):
                assert low <= np.log10(value) <= high


# Tables against block size


def test_the_table_of_a_sequence_in_kib():
    report = evaluate(Plan())
    curve = curves.block_waste(report)
    line, dot = table_figure(report, curve).data
    assert line.y == pytest.approx(curve.entries * 4 / 1024)
    assert dot.x[0] == 16
    place = list(curve.block_sizes).index(16)
    assert dot.y[0] == pytest.approx(curve.entries[place] * 4 / 1024)
    assert line.hovertext[place] == f"<b>Block table</b><br>{curve.entries[place]:,.1f} entries, 0.34 KiB at block 16"
    assert any(f"{curve.entries[place]:,.1f} entries at 16" in text for text in texts(table_figure(report, curve)))


@pytest.mark.parametrize("size", [1, 16, 24, 544, 5000])
def test_the_plans_entries_are_those_of_the_table_below(size):
    """Whatever the plan's block, the dot and the row of `blocks.table` are one number."""
    report = evaluate(Plan(block_size=size))
    (row,) = (row for row in blocks.table(report) if row["Block"] == size)
    (dot,) = dots(table_figure(report, curves.block_waste(report)))
    assert dot.y[0] == pytest.approx(row["Table entries"] * 4 / 1024, rel=1e-6)


# Shares of the pool


@each_compared
def test_there_is_a_bar_trace_for_each_part(plan):
    found = compared(plan)
    figure = shares_figure(found)
    assert [trace.type for trace in figure.data] == ["bar"] * 3
    for trace, part, what in zip(
        figure.data, ("held", "reserved", "internal"), ("tokens", "for later", "never used"), strict=True
    ):
        assert trace.x == pytest.approx([getattr(run, part) for run in found.runs.values()])
        assert all(text.endswith(what) for text in trace.hovertext)
    assert (np.sum([trace.x for trace in figure.data], axis=0) <= 1 + 1e-9).all()
    assert figure.layout.xaxis.range == (0, 1)
    assert figure.layout.yaxis.range == (3.5, -0.5)
    assert figure.layout.yaxis.ticktext == ("declared maximum", "power of two", "true length", "paged")
    assert figure.layout.barmode == "stack"


def test_each_bar_says_what_it_holds_and_how_many_run():
    found = compared(load_preset("three-requests-4096"))
    held = [text for text in texts(shares_figure(found)) if text.endswith(" run")]
    assert [text.split(", ")[1] for text in held] == [f"{int(run.running):,} run" for run in found.runs.values()]
    assert held[0].endswith("held, 36 run")


# The map


@pytest.mark.parametrize("allocator", ALLOCATORS)
@each_compared
def test_bars_of_a_row_never_overlap(plan, allocator):
    found = compared(plan, allocator)
    for quarter in range(3):
        figure = map_figure(found, allocation.step_of(found, quarter))
        assert len(figure.data) == 9
        assert figure.layout.xaxis.range == (0, found.slots)
        assert figure.layout.yaxis.range == (2.5, -0.5)
        for row in range(3):
            traces = [trace for trace in figure.data if set(trace.y) == {row}]
            bars = sorted(
                (int(base), int(base + length))
                for trace in traces
                for base, length in zip(trace.base, trace.x, strict=True)
            )
            assert all(begin <= end for begin, end in bars)
            assert all(end <= begin for (_, end), (begin, _) in pairwise(bars))
            assert not bars or 0 <= bars[0][0] <= bars[-1][1] <= found.slots


@each_compared
def test_a_map_shows_what_is_not_free(plan):
    """Bars of a row are all slots but the free ones of the step, and those that requests hold beside their extents."""
    found = compared(plan)
    step = allocation.step_of(found, 1)
    figure = map_figure(found, step)
    for row, run in enumerate(found.contiguous.values()):
        if run.steps.size:
            free = run.free_slots[np.searchsorted(run.steps, step, side="right") - 1]
            drawn = sum(int(np.sum(trace.x)) for trace in figure.data[3 * row : 3 * row + 3])
            running = run.placed.first_steps <= step
            running &= (step <= run.placed.last_steps) & (run.placed.sizes > 0)
            assert drawn == found.slots - free - found.fixed_slots * running.sum()


def test_an_extent_says_its_size_and_its_parts():
    found = compared(load_preset("three-requests-4096"))
    figure = map_figure(found, 1)
    held, later, unused = figure.data[:3]
    assert sorted(held.base) == list(range(0, 36 * 4096, 4096))
    assert set(held.x + later.x + unused.x) == {4096}
    assert held.hovertext[0] == f"<b>Extent of 4,096 slots</b><br>{held.x[0]:,} slots: tokens"
    assert later.hovertext[0] == f"<b>Extent of 4,096 slots</b><br>{later.x[0]:,} slots: for later"
    assert unused.hovertext[0] == f"<b>Extent of 4,096 slots</b><br>{unused.x[0]:,} slots: never used"
    assert len(held.x) == 36


# The largest free extent


@pytest.mark.parametrize("allocator", ALLOCATORS)
@each_compared
def test_the_largest_extent_is_a_share_of_what_is_free(plan, allocator):
    found = compared(plan, allocator)
    last = round_end(allocation.last_step(found))
    figure = extent_figure(found, last, of_free=True)
    assert len(figure.data) == 3
    assert figure.layout.xaxis.range == (0, last)
    assert figure.layout.yaxis.range == (0, 1.05)
    assert len({trace.line.dash for trace in figure.data}) == len({trace.line.color for trace in figure.data}) == 3
    for trace, run in zip(figure.data, found.contiguous.values(), strict=True):
        inside, drawn = run.steps[run.steps <= last], np.array(trace.x)
        assert set(drawn) <= set(inside)
        assert drawn.size == min(inside.size, drawing.POINTS)
        assert (drawn[0], drawn[-1]) == (inside[0], inside[-1])
        assert ((np.array(trace.y) >= 0) & (np.array(trace.y) <= 1)).all()
        assert [f"{step:,}" for step in drawn.tolist()] == [text.split(" at step ")[1] for text in trace.hovertext]


@each_compared
def test_the_largest_extent_of_the_pool_is_no_more_than_what_is_free(plan):
    found = compared(plan)
    last = round_end(allocation.last_step(found))
    for trace, run in zip(extent_figure(found, last).data, found.contiguous.values(), strict=True):
        free = run.free_slots[np.isin(run.steps, trace.x)]
        assert (np.array(trace.y) * found.slots <= free + 1e-6).all()
        assert np.max(trace.y, initial=0) * 1.05 <= extent_figure(found, last).layout.yaxis.range[1]


def test_a_full_pool_is_not_in_pieces():
    """With no slot free there is nothing to lie in pieces."""
    found = compared(load_preset("three-requests-4096"))
    figure = extent_figure(found, allocation.last_step(found), of_free=True)
    full = {int(step) for run in found.contiguous.values() for step in run.steps[run.free_slots == 0]}
    assert full
    drawn = [(step, share) for trace in figure.data for step, share in zip(trace.x, trace.y, strict=True)]
    maxima = figure.data[0]
    assert set(np.array(maxima.y)[np.isin(maxima.x, list(full))]) == {1.0}
    assert all(share > 0 for _, share in drawn)


def test_no_name_of_an_allocator_is_left_out():
    found = compared(Plan())
    assert {paging_figures._short(kind) for kind in found.runs} == {
        "declared maximum",
        "power of two",
        "true length",
        "paged",
    }
    assert all(
        name in texts(extent_figure(found, 100))[-1] for name in ("declared maximum", "power of two", "true length")
    )
