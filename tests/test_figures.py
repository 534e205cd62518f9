"""Figures: what is drawn is what the report says, ranges stand still, and labels cover nothing."""

import json

import numpy as np
import plotly.io
import pytest

from kvplan import Plan, curves, evaluate, figures, paging_figures, verdict
from kvplan.labels import Canvas, Side, _box, _points_inside, spread
from kvplan.palette import DARK, LIGHT

CHAT = Plan(model="llama-3.1-70b", tp=4, context=32768)
PLANS = [
    CHAT,
    Plan(context=1024),
    Plan(context=131072, kv_dtype="fp8"),
    Plan(context=1),
    Plan(context=2**24),
    Plan(model="llama-3.1-70b"),
    Plan(tp=3),
    Plan(workload="seeded-200", batch=16),
    Plan(block_size=65536),
    Plan(batch=2**20),
    Plan(model="llama-3.1-405b", gpu="h200", tp=8, context=131072),
    Plan(model="falcon-mamba-7b"),
    Plan(model="deepseek-v4-flash", gpu="b300", tp=8, context=1048576),
    Plan(model="starcoder2-3b", gpu="t4", engine_version="0.7"),
    Plan(mem_fraction_static=0.99),
    Plan(mem_fraction_static=0.1),
    Plan(workspace_gib=0.5, activation_gib=5),
]
IDS = [str(plan.model_dump(exclude_defaults=True)) for plan in PLANS]


def ceiling(plan: Plan, palette=LIGHT):
    report = evaluate(plan)
    curve = curves.plan_ceilings(report)
    others = curves.comparisons(report, curve)
    return figures.ceiling_figure(report, curve, others, curves.ceiling_top(curve, others), palette)


def every_figure(plan: Plan, palette=LIGHT) -> list:
    report = evaluate(plan)
    waste = curves.block_waste(report)
    return [
        ceiling(plan, palette),
        figures.memory_figure(report, palette),
        figures.utilisation_figure(report, curves.utilisation(report), palette),
        paging_figures.waste_figure(report, waste, "share", palette),
        paging_figures.waste_figure(report, waste, "tokens", palette),
    ]


def texts(figure) -> list[str]:
    return [annotation.text for annotation in figure.layout.annotations]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("plan", PLANS, ids=IDS)
def test_every_plan_draws_valid_figures_with_finite_numbers(plan, palette):
    for figure in every_figure(plan, palette):
        assert plotly.io.from_json(figure.to_json()).to_dict() == figure.to_dict()
        for trace in figure.data:
            assert np.isfinite(np.asarray(trace.y, dtype=float)).all()


def test_the_plans_dot_and_label_are_the_reports_answer():
    report = evaluate(CHAT)
    figure = ceiling(CHAT)
    assert "<b>13 at 32k</b>" in texts(figure)
    assert f"<b>{report.capacity.on_demand_ceiling} on average</b>" in texts(figure)
    dot = next(trace for trace in figure.data if trace.mode == "markers" and trace.marker.size == 13)
    assert (dot.x[0], int(dot.y[0])) == (32768, report.capacity.batch_ceiling)


def test_hovering_a_line_gives_the_ceiling_of_that_context():
    reserve = next(trace for trace in ceiling(CHAT).data if trace.name == "reserve")
    for context, hover in zip(reserve.x[::7], reserve.hovertext[::7], strict=True):
        capacity = evaluate(CHAT.model_copy(update={"context": int(context)})).capacity
        assert hover == f"<b>Reserve</b><br>{capacity.memory_ceiling:,} sequences at {context:,} tokens"


def test_a_line_that_never_holds_one_sequence_is_not_drawn():
    names = {trace.name for trace in ceiling(Plan(model="llama-3.1-70b", context=32768)).data}
    assert "reserve" not in names
    assert "tp 4" in names


def test_the_axes_depend_on_the_model_and_not_on_the_context():
    ranges = [
        (f.layout.xaxis.range, f.layout.yaxis.range) for f in (ceiling(Plan(context=2**k)) for k in range(10, 18))
    ]
    assert all(each == ranges[0] for each in ranges)


def test_a_plan_outside_the_range_widens_it_to_the_next_step():
    assert curves.context_range(evaluate(Plan(context=300)))[0] == 256
    assert curves.context_range(evaluate(Plan(context=3)))[0] == 2
    assert curves.context_range(evaluate(Plan(context=200_000)))[1] == 262_144
    assert curves.block_waste(evaluate(Plan(block_size=1100))).block_sizes[-1] == 2048
    assert curves.utilisation(evaluate(Plan(batch=600))).batches[-1] == 1024


def test_comparisons_skip_what_the_plan_has():
    def names(**fields):
        report = evaluate(Plan(**fields))
        return [other.name for other in curves.comparisons(report, curves.plan_ceilings(report))]

    assert names(tp=8, kv_dtype="fp8") == ["bf16 KV", "int4 KV", "tp 4", "tp 16"]
    assert names(tp=64)[-1] == "tp 32"


def test_the_ceiling_table_is_one_report_a_row():
    rows = curves.ceiling_table(evaluate(CHAT))
    for row in rows:
        report = evaluate(CHAT.model_copy(update={"context": row["Context, tokens"]}))
        assert row["Reserve"] == report.capacity.memory_ceiling
        assert row["Runs"] == report.capacity.batch_ceiling
        assert row["On demand, mean"] == report.capacity.on_demand_ceiling
        assert row["Booked, GiB/device"] == report.cache.request_bytes_booked / 2**30
        assert row["Limit"] == verdict.LIMITS[report.capacity.binding]


def test_the_memory_bar_adds_up_to_the_device():
    figure = figures.memory_figure(evaluate(CHAT))
    assert sum(trace.y[0] for trace in figure.data) == pytest.approx(79.1, abs=0.01)
    assert any("estimate" in text for text in texts(figure))


def test_what_does_not_fit_runs_over_the_device():
    figure = figures.memory_figure(evaluate(Plan(model="llama-3.1-70b")))
    assert any("Device" in text for text in texts(figure))
    assert sum(trace.y[0] for trace in figure.data) > 79.1


def test_the_pool_is_cut_into_its_sequences():
    boxes = [shape for shape in figures.memory_figure(evaluate(CHAT)).layout.shapes if shape.line.width == 1]
    assert len(boxes) == 13


def test_no_figure_has_a_legend_a_title_or_a_template():
    for figure in every_figure(CHAT):
        assert figure.layout.showlegend is False
        assert figure.layout.title.text is None
        assert not figure.layout.template.layout.to_plotly_json()


def test_figures_take_their_colours_from_the_palette():
    for palette in (LIGHT, DARK):
        reserve = next(trace for trace in ceiling(CHAT, palette).data if trace.name == "reserve")
        assert reserve.line.color == palette.pool


def test_a_figure_is_small_enough_to_send_at_every_move():
    assert all(len(json.dumps(figure.to_plotly_json(), default=list)) < 60_000 for figure in every_figure(CHAT))


def test_a_label_avoids_the_curve_and_the_labels_before_it():
    canvas = Canvas(560, 360, (0, 1), (0, 1))
    canvas.add_curve([0, 1], [1, 0])
    point = canvas.pixels(0.5, 0.5)[0]
    placed = [canvas.place([point], text, 14) for text in ("13 at 32k", "365 on average")]
    boxes = [
        _box(spot, side, text, 14) for (spot, side), text in zip(placed, ("13 at 32k", "365 on average"), strict=True)
    ]
    assert all(_points_inside(canvas.curves[0], box) == 0 for box in boxes)
    assert not boxes[0].overlaps(boxes[1])


def test_a_label_stays_inside_the_plot():
    canvas = Canvas(560, 360, (0, 1), (0, 1))
    _, side = canvas.place(list(canvas.pixels(1, 1)), "52 at 128k", 14)
    assert (side.right, side.up) == (-1, -1)
    assert isinstance(side, Side)


def test_spread_keeps_order_distance_and_limits():
    placed = spread([100, 102, 99, 300], 17, 34, 350)
    assert sorted(range(4), key=placed.__getitem__) == sorted(range(4), key=[100, 102, 99, 300].__getitem__)
    assert min(np.diff(sorted(placed))) >= 17 - 1e-9
    assert all(34 <= height <= 350 for height in spread([0, 1, 2, 400], 17, 34, 350))


def test_pixels_and_values_are_inverse():
    canvas = Canvas(560, 360, (0.3, 2.5), (-1, 4))
    assert canvas.values(canvas.pixels(1.7, 2.2)[0]) == pytest.approx((1.7, 2.2))
