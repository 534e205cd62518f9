"""A map of plans: every cell is its plan evaluated alone, within its bounds, and limits are lines between cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kvplan import Plan, evaluate
from kvplan.sweep import every_column
from kvplan.sweep_axes import axis
from kvplan.sweep_grid import (
    MOST_CELLS,
    MOST_ONE_BY_ONE,
    QUANTITIES,
    Map,
    borders,
    fitting,
    grid,
    limit_of,
    own_cell,
    plan_at,
    share,
    within,
)

LARGE = Plan(model="llama-3.1-70b", tp=4, context=32768)
NAMED = {quantity.name: quantity for quantity in QUANTITIES}


def leaf(report, path):
    for name in path.split("."):
        report = getattr(report, name)
    return report


def map_of(plan=LARGE, quantity="Batch ceiling", x="context", y="tp", third=None, chosen=0, **texts):
    """A map; `texts` are the values of its axes where they are not those to begin with."""
    report = evaluate(plan)
    axes = [axis(report, field, texts.get(field, "")) for field in (x, y, third) if field]
    return Map(grid(plan, NAMED[quantity], *axes), chosen)


@pytest.mark.parametrize("quantity", NAMED)
@pytest.mark.parametrize("fields", [("context", "tp", "kv_dtype"), ("gpu", "model", None)], ids=["numbers", "names"])
def test_a_cell_is_its_plan_evaluated_alone(quantity, fields):
    x, y, third = fields
    short = {
        "context": "2048,32768",
        "tp": "1,2,3,4",
        "kv_dtype": "bf16,fp8",
        "gpu": "l4,h200",
        "model": "gpt-3,gpt2-xl",
    }
    found = map_of(quantity=quantity, x=x, y=y, third=third, chosen=1 if third else 0, **short)
    shown = NAMED[quantity]
    for row, cells in enumerate(found.cells):
        for column, cell in enumerate(cells):
            plan = plan_at(found, column, row)
            report = evaluate(plan)
            told = report.engine.fits if shown.where_it_fits else not report.engine.refused
            value = leaf(report, shown.path) if told else None
            assert cell.value == (None if value is None else value / shown.per_unit)
            assert (cell.fits, cell.refused) == (report.engine.fits, report.engine.refused)
            assert (cell.binding, cell.min_tp) == (report.capacity.binding, report.capacity.min_tp)


def test_the_plan_of_a_cell_differs_in_its_axes_alone():
    found = map_of(third="kv_dtype", chosen=1)
    x, y, third = found.grid.x, found.grid.y, found.grid.third
    assert plan_at(found, 2, 1) == LARGE.model_copy(
        update={"context": x.values[2], "tp": y.values[1], "kv_dtype": third.values[1]}
    )


def test_the_own_cell_is_marked_on_its_own_map_only():
    for chosen, own in ((0, (5, 2)), (1, None)):
        found = map_of(third="kv_dtype", chosen=chosen)
        assert found.own == own
    found = map_of(third="kv_dtype")
    column, row = found.own
    assert plan_at(found, column, row).context == LARGE.context
    assert found.cells[row][column] == own_cell(LARGE, NAMED["Batch ceiling"])
    assert map_of(context="1024,2048").own is None


def test_every_quantity_is_a_column_and_has_a_name_of_its_own():
    assert {quantity.path for quantity in QUANTITIES} <= set(every_column())
    assert len(NAMED) == len(QUANTITIES)


def test_a_map_has_bounds_that_are_said():
    plan = Plan()
    wide, high = "1024:131072:lin40", "16:1024:lin40"
    found = map_of(plan, x="context", y="max_num_seqs", context=wide, max_num_seqs=high)
    assert len(found.cells) * len(found.cells[0]) == MOST_CELLS
    with pytest.raises(ValueError, match=r"^axes: .*at most 1,600 plans.*got 4,800$"):
        map_of(plan, x="context", y="max_num_seqs", third="kv_dtype", context=wide, max_num_seqs=high)
    with pytest.raises(ValueError, match=rf"^axes: .*at most {MOST_ONE_BY_ONE} plans.*got 1,600$"):
        map_of(plan, "TPOT", x="context", y="max_num_seqs", context=wide, max_num_seqs=high)


def test_a_limit_is_the_one_given_else_the_plans_target_else_none():
    report = evaluate(Plan(tpot_s=0.03))
    assert limit_of(report, NAMED["TPOT"], None) == 30
    assert limit_of(report, NAMED["TPOT"], 12.5) == 12.5
    assert limit_of(report, NAMED["TTFT"], None) == 2000
    assert limit_of(report, NAMED["Batch ceiling"], None) is None
    assert limit_of(report, NAMED["Batch ceiling"], 0) == 0


def test_more_meets_a_limit_where_more_is_better_and_less_where_less_is():
    found = map_of()
    assert within(found, 64).tolist() == [[(cell.value or 0) >= 64 for cell in row] for row in found.cells]
    assert not within(found, 64)[0].any()  # these do not fit, and have no value
    found = map_of(quantity="Request booking")
    assert within(found, 1).tolist() == [[cell.value <= 1 for cell in row] for row in found.cells]


def test_the_engine_starts_where_cells_fit():
    assert fitting(map_of(tp="1,2,4")).tolist() == [[False] * 8, [True] * 4 + [False] * 4, [True] * 8]


@given(some.lists(some.lists(some.booleans(), min_size=4, max_size=4), min_size=1, max_size=5))
def test_borders_run_between_unlike_neighbours_and_nowhere_else(rows):
    inside = np.array(rows)
    edges = set()
    for x0, x1, y0, y1 in borders(inside):
        assert (x0 == x1) != (y0 == y1)
        if x0 == x1:
            edges |= {((int(y), int(x0 - 0.5)), (int(y), int(x0 + 0.5))) for y in np.arange(y0 + 0.5, y1)}
        else:
            edges |= {((int(y0 - 0.5), int(x)), (int(y0 + 0.5), int(x))) for x in np.arange(x0 + 0.5, x1)}
    unlike = set()
    for row, column in np.ndindex(inside.shape):
        for other in ((row + 1, column), (row, column + 1)):
            if other[0] < inside.shape[0] and other[1] < inside.shape[1] and inside[row, column] != inside[other]:
                unlike.add(((row, column), other))
    assert edges == unlike


def test_the_scale_spans_every_value_of_the_third_axis():
    found = [map_of(third="kv_dtype", chosen=chosen) for chosen in (0, 1, 2)]
    values = [cell.value for each in found for row in each.cells for cell in row if cell.value is not None]
    scale = found[0].grid.scale
    assert (scale.low, scale.high, scale.is_log) == (min(values), max(values), True)
    assert share(scale, scale.low) == 0
    assert share(scale, scale.high) == 1


def test_a_narrow_scale_is_linear_and_a_single_value_is_on_it():
    scale = map_of(Plan(), "Cache per token", x="context", y="kv_dtype").grid.scale
    assert not scale.is_log
    assert [share(scale, value) for value in (32, 80, 128)] == [0, 0.5, 1]
    scale = map_of(Plan(), "Smallest tp").grid.scale
    assert (scale.low, scale.high) == (1, 1)
    assert share(scale, 1) == 1


def test_zero_is_on_a_log_scale_and_a_map_without_values_has_none():
    scale = map_of(quantity="KV pool").grid.scale
    assert scale.is_log
    assert share(scale, 0) == 0
    assert map_of(Plan(workload="auto"), "Fleet").grid.scale is None
    assert map_of(Plan(weights_gib=0), "Output rate", context="2048,4096").grid.scale is None  # 0 tokens/s is no rate
