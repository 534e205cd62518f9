"""A map as a picture: a bar for each plan, steps on the borders of cells, marks that say what binds."""

import pytest
from test_sweep_grid import LARGE, map_of

from kvplan import Plan
from kvplan.palette import DARK, LIGHT
from kvplan.shades import contrast, shade
from kvplan.sweep_figures import MOST_NUMBERS, MOST_TICKS, NAMES, map_figure
from kvplan.sweep_grid import QUANTITIES, borders, fitting, share, within
from kvplan.sweep_words import hover


def bars(figure):
    (found,) = [trace for trace in figure.data if trace.type == "bar"]
    return found


def lines(figure, dash):
    """The segments of that dash in the colour of limits, as x0, x1, y0, y1."""
    segments = []
    for trace in figure.data:
        if trace.type == "scatter" and trace.line.dash == dash:
            xs, ys = list(trace.x), list(trace.y)
            segments += [(*xs[at : at + 2], *ys[at : at + 2]) for at in range(0, len(xs), 3)]
    return segments


def outlines(figure):
    return {(shape.x0, shape.x1, shape.y0, shape.y1) for shape in figure.layout.shapes if shape.type == "rect"}


def circles(figure):
    return {(shape.xanchor, shape.yanchor) for shape in figure.layout.shapes if shape.type == "circle"}


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("quantity", [quantity.name for quantity in QUANTITIES])
def test_a_cell_has_the_shade_of_its_value_and_hovering_tells_all(quantity, palette):
    found = map_of(quantity=quantity, third="kv_dtype", context="2048,131072", tp="1,2,3,8", kv_dtype="bf16,fp8")
    trace = bars(map_figure(found, palette=palette))
    colour = {"capacity.on_demand_ceiling": palette.held}.get(found.grid.quantity.path)
    if colour is None:
        colour = palette.held if found.grid.quantity.path.startswith(("throughput", "fleet")) else palette.pool
    for index, (column, row) in enumerate(trace.customdata):
        cell = found.cells[row][column]
        assert (trace.x[index], trace.base[index], trace.y[index]) == (column, row - 0.5, 1)
        assert trace.hovertext[index] == hover(found, column, row)
        wanted = palette.page
        if cell.value is not None:
            wanted = shade(palette.page, colour, share(found.grid.scale, cell.value))
        assert trace.marker.color[index] == wanted
        assert contrast(trace.insidetextfont.color[index], wanted) >= 4.5


def test_what_does_not_fit_is_hatched_what_is_refused_crossed_and_neither_looks_like_zero():
    found = map_of(tp="1,2,3,8", context="1024,131072")
    trace = bars(map_figure(found))
    for index, (column, row) in enumerate(trace.customdata):
        cell = found.cells[row][column]
        pattern = "x" if cell.refused else "" if cell.fits else "/"
        assert trace.marker.pattern.shape[index] == pattern
        assert trace.text[index] == (f"{cell.value:,.0f}" if cell.fits else "")
    assert {"x", "/", ""} == set(trace.marker.pattern.shape)


def test_a_plan_that_starts_and_has_no_value_has_a_dash():
    trace = bars(map_figure(map_of(Plan(workload="auto"), "Fleet", context="2048,4096", tp="1,2")))
    assert set(trace.text) == {"–"}
    assert set(trace.marker.pattern.shape) == {""}


@pytest.mark.parametrize("limit", [2, 64, 500])
def test_steps_run_where_the_limit_is_crossed_and_where_plans_stop_fitting(limit):
    found = map_of()
    figure = map_figure(found, limit)
    assert lines(figure, "dash") == borders(within(found, limit))
    assert lines(figure, "dot") == borders(fitting(found))
    (name,) = [annotation.text for annotation in figure.layout.annotations]
    assert name == f"<b>≥ {limit}</b>"


def test_the_limit_is_named_at_the_right_where_it_does_not_reach_the_top():
    figure = map_figure(map_of(quantity="KV pool", y="gpu_memory_gib"), 30)
    (name,) = figure.layout.annotations
    assert (name.xanchor, name.x) == ("left", 7.5)
    assert figure.layout.margin.r > len("≥ 30") * 8


def test_a_limit_met_by_all_or_by_none_has_no_steps_and_no_name():
    for limit in (0, 10**9):
        figure = map_figure(map_of(Plan()), limit)
        assert lines(figure, "dash") == []
        assert len(figure.layout.annotations) == 0


def test_cells_in_which_another_limit_binds_have_a_lid():
    found = map_of(Plan(tenant_quota_fraction=0.3), context="1024,8192", tp="1,8")
    lids = {(x0 + x1) / 2 for x0, x1, y0, y1 in lines(map_figure(found), "solid")}
    capped = [cell.binding in ("max_num_seqs", "tenant_quota") for row in found.cells for cell in row]
    assert all(capped)
    assert lids == {0, 1}
    assert lines(map_figure(map_of(Plan(), context="8192,16384", tp="1,2")), "solid") == []


def test_the_plan_is_a_dot_in_its_cell_and_the_chosen_cell_has_an_outline():
    found = map_of()
    figure = map_figure(found, chosen=(1, 3))
    column, row = found.own
    assert circles(figure) == {(column - 0.5, row + 0.5)}
    assert outlines(figure) == {(0.5, 1.5, 2.5, 3.5)}
    assert circles(map_figure(map_of(context="1024,2048"))) == set()


def test_numbers_and_ticks_stand_only_where_they_have_room():
    small = map_figure(map_of())
    assert small.layout.uniformtext.mode == "hide"
    assert list(small.layout.xaxis.ticktext) == ["1k", "2k", "4k", "8k", "16k", "32k", "64k", "128k"]
    many = map_of(Plan(), y="max_num_seqs", context="1024:131072:log40", max_num_seqs="16:1024:lin40")
    large = map_figure(many)
    assert len(bars(large).x) > MOST_NUMBERS
    assert set(bars(large).text) == {""}
    assert len(large.layout.xaxis.tickvals) <= MOST_TICKS["x"]
    assert len(large.layout.yaxis.tickvals) <= MOST_TICKS["y"]


def test_axes_have_their_units_and_names_their_room():
    figure = map_figure(map_of())
    assert figure.layout.xaxis.title.text == "Context, tokens"
    assert figure.layout.yaxis.title.text == "Tensor parallel, devices"
    figure = map_figure(map_of(Plan(), x="model", y="gpu", model="llama-3.1-8b,gpt-3", gpu="l4,h200"))
    assert list(figure.layout.xaxis.ticktext) == ["Llama 3.1 8B", "GPT-3 175B"]
    assert list(figure.layout.yaxis.ticktext) == ["L4", "H200 SXM"]
    assert figure.layout.margin.l == NAMES


def test_another_value_of_the_third_axis_moves_the_cells_and_nothing_else():
    one, other = (map_figure(map_of(third="kv_dtype", chosen=chosen)).layout for chosen in (0, 1))
    assert (one.xaxis, one.yaxis, one.margin, one.height) == (other.xaxis, other.yaxis, other.margin, other.height)


def test_a_click_fades_no_other_cell():
    trace = bars(map_figure(map_of(LARGE)))
    assert trace.selected.marker.opacity == trace.unselected.marker.opacity == 1
