"""Figures of the levers: bars from the plan's value to each lever's, the furthest at the top, and names that link."""

import html
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import plotly.io
import pytest
from test_levers import DOES_NOT_FIT, PLANS, found_of

from kvplan import Plan, decode_link
from kvplan.levers import keeps_price
from kvplan.levers_figures import NONE_FITS, ceiling_figure, cost_figure
from kvplan.levers_words import usd
from kvplan.palette import DARK, LIGHT

ROOT = Path(__file__).parents[1]
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def figures(plan, palette=LIGHT):
    found = found_of(plan)
    drawn = [(ceiling_figure(found, palette), found.offered)] if found.offered else []
    return drawn + ([(cost_figure(found, palette), found.priced)] if found.priced else [])


def names(figure):
    return [re.sub("<[^>]*>", "", text) for text in figure.layout.yaxis.ticktext]


def words(figure):
    """What stands at the end of each row's bar."""
    return {
        int(note.y): note.text for note in figure.layout.annotations if note.yref != "paper" and "now" not in note.text
    }


def ends(bar):
    """Where a bar begins and ends, on the axis."""
    return bar.base[0], bar.base[0] + bar.x[0]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@each_plan
def test_every_plan_draws_valid_figures_inside_their_ranges(plan, palette):
    for figure, levers in figures(plan, palette):
        assert len(plotly.io.from_json(figure.to_json()).data) == len(figure.data) >= len(levers)
        low, high = figure.layout.xaxis.range
        for bar in figure.data:
            assert np.isfinite([*bar.x, *bar.base]).all()
            assert all(low - 1e-9 <= math.log10(end) <= high for end in ends(bar))
            assert not any(word in bar.hovertext[0] for word in ("nan", "inf", "None"))
        assert figure.layout.showlegend is False
        assert figure.layout.title.text is None
        assert figure.layout.height == 420
        assert 1 <= len(figure.layout.xaxis.tickvals) <= 5
        assert all(low <= math.log10(tick) <= high for tick in figure.layout.xaxis.tickvals)


@each_plan
def test_every_lever_has_a_row_whose_name_opens_its_plan(plan):
    for figure, levers in figures(plan):
        assert sorted(names(figure)) == sorted(lever.name for lever in levers)
        plans = {lever.name: lever.plan for lever in levers}
        for text, name in zip(figure.layout.yaxis.ticktext, names(figure), strict=True):
            href = html.unescape(re.search('href="([^"]*)"', text)[1])
            assert href.startswith("./")
            assert decode_link(href.removeprefix("./") or {}) == (plans[name], [])


def test_a_name_is_no_link_where_plotly_would_spoil_it():
    """It encodes % once more, so that a plus in a version would come back as %2B."""
    found = found_of(Plan(engine_version="0.29.1+g1a"))
    assert ceiling_figure(found).layout.yaxis.ticktext[0] == "admission on demand"


def test_bars_go_from_the_plans_ceiling_to_the_levers():
    found = found_of(Plan())
    figure = ceiling_figure(found)
    after = {lever.name: lever.after.ceiling for lever in found.offered}
    assert len(figure.data) == len(after)
    for bar in figure.data:
        name = names(figure)[bar.y[0]]
        assert ends(bar) == (54, after[name])
        assert words(figure)[bar.y[0]] == f"{after[name]:,}"
        assert bar.marker.color == LIGHT.pool
    assert names(figure)[:3] == ["admission on demand", "int4 cache", "pp 2"]
    assert any(note.text == "<b>now 54</b>" for note in figure.layout.annotations)
    assert figure.layout.xaxis.type == "log"
    assert figure.data[0].hovertext[0] == (
        "<b>admission on demand</b><br>54 → 364 sequences 6.74×<br>memory binds<br>changes admission; exact"
    )


def test_bars_go_from_the_plans_cost_to_the_levers():
    found = found_of(Plan())
    figure = cost_figure(found)
    after = {lever.name: lever.after.usd_per_million_tokens for lever in found.priced}
    for bar in figure.data:
        name = names(figure)[bar.y[0]]
        assert ends(bar) == pytest.approx((found.before.usd_per_million_tokens, after[name]))
        assert words(figure)[bar.y[0]] == usd(after[name])
    assert names(figure)[0] == "int4 cache"
    assert "$0.0781 → $0.0438 a million tokens 0.56×" in figure.data[0].hovertext[0]


@each_plan
def test_what_moves_most_stands_at_the_top_and_twice_looks_like_half(plan):
    found = found_of(plan)
    if found.before.ceiling:
        for figure, _ in figures(plan):
            solid = {bar.y[0]: bar for bar in reversed(figure.data)}
            moved = [abs(math.log(ends(solid[row])[1] / ends(solid[row])[0])) for row in sorted(solid)]
            assert moved == pytest.approx(sorted(moved, reverse=True))


def test_a_loss_goes_to_the_left_and_its_number_with_it():
    figure = ceiling_figure(found_of(Plan(admission="on_demand")))
    row = names(figure).index("reserved admission")
    (bar,) = (bar for bar in figure.data if bar.y[0] == row)
    assert bar.x[0] < 0
    (note,) = (note for note in figure.layout.annotations if note.yref != "paper" and note.y == row)
    assert (note.xanchor, note.text) == ("right", "54")


def test_what_memory_would_hold_is_drawn_in_outline():
    found = found_of(Plan(context=1024, max_num_seqs=64))
    figure = ceiling_figure(found)
    row = names(figure).index("fp8 cache")
    solid, outline = (bar for bar in figure.data if bar.y[0] == row)
    (lever,) = (lever for lever in found.offered if lever.id == "cache_fp8")
    assert ends(solid) == (64, 64)
    assert ends(outline) == (64, lever.after.memory_ceiling)
    assert outline.marker.color != solid.marker.color
    assert words(figure)[row] == f"64 ({lever.after.memory_ceiling:,})"
    assert f"max_num_seqs binds, memory would hold {lever.after.memory_ceiling:,}" in solid.hovertext[0]


def test_another_device_is_hollow_as_its_price_is_not_known():
    found = found_of(Plan())
    figure = cost_figure(found)
    hollow = {names(figure)[bar.y[0]] for bar in figure.data if bar.marker.color != LIGHT.held}
    assert hollow == {lever.name for lever in found.priced if not keeps_price(lever)} == {"larger GPU"}
    (text,) = (bar.hovertext[0] for bar in figure.data if names(figure)[bar.y[0]] == "larger GPU")
    assert "its own is not known" in text


def test_a_plan_that_does_not_fit_has_bars_from_nothing():
    found = found_of(DOES_NOT_FIT)
    figure, costs = ceiling_figure(found), cost_figure(found)
    assert {bar.base[0] for bar in figure.data} == {NONE_FITS}
    assert any(note.text == "none now" for note in figure.layout.annotations)
    assert not any("<b>now" in note.text for note in (*figure.layout.annotations, *costs.layout.annotations))
    assert names(figure) == ["int4 weights", "pp 2", "tp 2"]
    assert names(costs) == ["int4 weights", "pp 2", "tp 2"]
    assert len({bar.base[0] for bar in costs.data}) == 1
    assert figure.layout.shapes[0].x1 == 1


def test_figures_need_no_dashboard():
    program = (
        "import sys; from kvplan import Plan, evaluate; from kvplan.levers import levers; "
        "from kvplan import levers_figures as f; found = levers(evaluate(Plan()));"
        "f.ceiling_figure(found); f.cost_figure(found); print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"streamlit", "pandas"} & set(found.stdout.split())
