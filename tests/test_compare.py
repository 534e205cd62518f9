"""Plans side by side: what differs, results beside the first plan's, words, curves and pictures."""

import json

import numpy as np
import pytest
from hypothesis import given
from strategies import plans

from kvplan import Plan, compare, compare_curves, compare_figures, compare_words, evaluate
from kvplan.palette import DARK, LIGHT
from kvplan.sweep import sweep

CHAT = Plan(model="llama-3.1-70b", tp=4, context=32768)
FOUR = [CHAT, *(CHAT.model_copy(update=change) for change in ({"tp": 8}, {"kv_dtype": "fp8"}, {"tp": 1}))]
DRAWN = {
    compare_curves.ceilings: compare_figures.ceilings_figure,
    compare_curves.utilisations: compare_figures.utilisations_figure,
    compare_curves.outputs: compare_figures.outputs_figure,
    compare_curves.wastes: compare_figures.wastes_figure,
}


def reports(*some):
    return [evaluate(plan) for plan in some]


def by_name(found):
    return {result.figure.name: result for result in found}


def test_inputs_are_the_fields_in_which_any_plan_differs_in_the_order_of_the_plan():
    assert compare.inputs(reports(*FOUR)) == ["tp", "kv_dtype"]
    assert compare.inputs(reports(CHAT, CHAT)) == []


def test_a_result_has_each_plans_own_figure_and_its_difference_and_ratio_to_the_first():
    found = by_name(compare.results(reports(*FOUR)))["Batch ceiling"]
    assert found.values == (13, 40, 27, 0)
    assert found.differences == (0, 27, 14, -13)
    assert found.ratios == (1, 40 / 13, 27 / 13, 0)


def test_per_gpu_is_the_ceiling_over_the_devices_of_a_replica():
    found = by_name(compare.results(reports(*FOUR)))
    assert found["GPUs of a replica"].values == (4, 8, 4, 1)
    assert found["Batch ceiling per GPU"].values == (13 / 4, 40 / 8, 27 / 4, 0)


def test_what_a_plan_that_does_not_start_has_none_of_is_none_and_its_ceiling_is_0():
    found = by_name(compare.results(reports(CHAT, FOUR[3])))
    assert found["Batch ceiling"].values == (13, 0)
    for name in ("Output rate", "KV cache size", "Fleet"):
        assert found[name].values[1] is None
        assert found[name].differences[1] is None
        assert found[name].ratios[1] is None


def test_there_is_no_ratio_to_nothing():
    found = by_name(compare.results(reports(FOUR[3], CHAT)))["Batch ceiling"]
    assert found.differences == (0, 13)
    assert found.ratios == (None, None)


def test_a_refused_plan_and_an_unknown_one_can_stand_beside_another():
    some = reports(CHAT, CHAT.model_copy(update={"tp": 3}), Plan(model="no-such-model"))
    assert compare.batch_ceilings(some) == (13, 0, 0)
    assert len(compare_words.result_table(some)) > 5
    assert [len(curves_of(some)) for curves_of in DRAWN] == [3, 3, 3, 3]


@given(plans(), plans())
def test_any_two_plans_give_tables_and_pictures(one, other):
    some = reports(one, other)
    for result in compare.results(some):
        first, second = result.values
        if None not in (first, second):
            assert result.differences[1] == second - first
            assert first == 0 or result.ratios[1] * first == pytest.approx(second)
    compare_words.opening(some)
    assert all(set(row) == {"Result", "Unit", "A", "B"} for row in compare_words.result_table(some))
    for curves_of, figure_of in DRAWN.items():
        figure_of(curves_of(some))


@given(plans())
def test_a_plan_beside_itself_is_the_same_in_everything(plan):
    some = reports(plan, plan)
    assert compare.inputs(some) == []
    for result in compare.results(some):
        assert result.differences in ((0, 0), (None, None))
    cells = [row["B"] for row in compare_words.result_table(some)[1:]]
    assert all(cell.endswith("(same)") or cell == "–" for cell in cells)


def test_figures_of_the_sweep_page_are_those_of_a_sweep():
    found = by_name(compare.results(reports(CHAT, FOUR[1])))
    swept = sweep(CHAT, {"tp": [4, 8]}, columns=[quantity.path for quantity in compare.QUANTITIES])
    for quantity in compare.QUANTITIES:
        cells = [float(value) / quantity.per_unit for value in swept.columns[quantity.path]]
        assert list(found[quantity.name].values) == pytest.approx(cells)


@pytest.mark.parametrize(
    ("some", "sentence"),
    [
        (FOUR, "**B** runs the most, **40 sequences**, **3.08×** A's"),
        ([FOUR[1], CHAT], "**A** runs the most, **40 sequences**"),
        ([FOUR[3], CHAT], "**B** runs the most, **13 sequences**; A runs none"),
        ([CHAT, CHAT], "All 2 plans run **13 sequences**"),
        ([FOUR[3], FOUR[3]], "**None of these plans** runs a single sequence"),
    ],
)
def test_the_sentence_names_the_plan_that_runs_the_most(some, sentence):
    assert compare_words.opening(reports(*some)).sentence == sentence


def test_unlike_contexts_are_said():
    assert "Sequences of 32,768 tokens" in compare_words.opening(reports(*FOUR)).reason
    unlike = compare_words.opening(reports(CHAT, CHAT.model_copy(update={"context": 8192})))
    assert "unlike contexts, in tokens: A 32,768, B 8,192" in unlike.reason


def test_a_tile_says_what_sets_its_plan_apart():
    tiles = compare_words.metrics(reports(*FOUR))
    assert [(tile.label, tile.value, tile.whose) for tile in tiles] == [
        ("Batch ceiling A", "13", "this plan"),
        ("Batch ceiling B", "40", "tp 8"),
        ("Batch ceiling C", "27", "kv_dtype fp8"),
        ("Batch ceiling D", "0", "tp 1"),
    ]
    assert all(len(tile.label) <= 18 and len(tile.whose) <= 28 for tile in tiles)


def test_an_open_input_says_what_it_comes_to():
    assert compare_words.input_table(reports(CHAT, FOUR[2])) == [
        {"Input": "kv_dtype", "A": "auto: bf16", "B": "fp8"},
    ]
    changed = CHAT.model_copy(update={"layers": 40, "block_size": 32, "batch": 4, "gpu_memory_gib": 40.0})
    assert compare_words.input_table(reports(CHAT, changed)) == [
        {"Input": "layers", "A": "auto: 80", "B": "40"},
        {"Input": "gpu_memory_gib", "A": "auto: 79.1", "B": "40"},
        {"Input": "block_size", "A": "auto: 16", "B": "32"},
        {"Input": "batch", "A": "auto: 13", "B": "4"},
    ]


def test_cells_say_more_or_less_and_how_many_times():
    rows = {row["Result"]: row for row in compare_words.result_table(reports(*FOUR))}
    assert rows["What binds"] == {
        "Result": "What binds", "Unit": "", "A": "memory", "B": "memory", "C": "memory", "D": "does not fit",
    }  # fmt: skip
    assert rows["Batch ceiling"]["B"] == "40 (+27, 3.08×)"
    assert rows["Cache per token"]["B"] == "40.0 (−40.0, 0.50×)"
    assert rows["Weights"]["C"] == "32.9 (same)"
    assert rows["Output rate"]["D"] == "–"


def test_the_file_has_numbers_and_no_words():
    rows = compare_words.result_rows(reports(CHAT, FOUR[1]))
    ceiling = next(row for row in rows if row["result"] == "Batch ceiling")
    assert ceiling == {
        "result": "Batch ceiling", "unit": "sequences", "A": 13, "B": 40, "B - A": 27, "B / A": 40 / 13,
    }  # fmt: skip


def test_every_figure_says_how_it_is_counted():
    assert all(figure.unit and figure.about for figure in compare.FIGURES)
    assert len({figure.name for figure in compare.FIGURES}) == len(compare.FIGURES)


def test_a_plans_own_place_lies_on_its_curve():
    for curves_of in DRAWN:
        for curve in filter(None, curves_of(reports(*FOUR))):
            if curve.at is not None:
                x, y = curve.at
                assert np.interp(x, curve.x, curve.y) == pytest.approx(y, rel=0.02)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("curves_of", DRAWN)
def test_every_plan_has_its_own_colour_dash_and_marker_and_its_letter(curves_of, palette):
    figure = DRAWN[curves_of](curves_of(reports(*FOUR[:3])), palette)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    markers = [trace for trace in figure.data if trace.mode == "markers"]
    assert {line.name for line in lines} == {"A", "B", "C"}
    assert len({line.line.color for line in lines}) == len({line.line.dash for line in lines}) == 3
    assert len({mark.marker.symbol for mark in markers}) == 3
    words = {annotation.text for annotation in figure.layout.annotations}
    assert {"<b>A</b>", "<b>B</b>", "<b>C</b>"} <= words
    assert all(axis.title.text for axis in (figure.layout.xaxis, figure.layout.yaxis))
    json.dumps(figure.to_plotly_json(), default=str)


def test_plans_that_stand_at_one_place_share_its_words():
    figure = compare_figures.wastes_figure(compare_curves.wastes(reports(*FOUR[:3])))
    assert "<b>A, B, C 0.53% at 16</b>" in {annotation.text for annotation in figure.layout.annotations}


def test_the_axes_of_the_ceilings_stand_still_while_the_context_moves():
    ranges = []
    for context in (4096, 8192, 32768):
        figure = compare_figures.ceilings_figure(
            compare_curves.ceilings(reports(*(plan.model_copy(update={"context": context}) for plan in FOUR[:2])))
        )
        ranges.append((figure.layout.xaxis.range, figure.layout.yaxis.range))
    assert ranges[0] == ranges[1] == ranges[2]
