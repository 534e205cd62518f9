"""A map in words: where a limit is met, what binds, why a plan does not run, and a command that counts the same."""

import csv
import shlex

import pytest
from test_sweep_grid import LARGE, NAMED, map_of

from kvplan import Plan, evaluate
from kvplan.cli import main
from kvplan.sweep_axes import FIELDS, axis
from kvplan.sweep_grid import QUANTITIES, own_cell
from kvplan.sweep_words import (
    SAID,
    TITLES,
    axis_note,
    cell_words,
    command,
    hover,
    legend,
    metrics,
    notes,
    opening,
    said,
    state,
    table,
)
from kvplan.verdict import BINDING, plain


def sentence(found, limit=None):
    return plain(opening(found, limit).sentence)


def cell_at(found, context, tp):
    row, column = found.grid.y.values.index(tp), found.grid.x.values.index(context)
    return found.cells[row][column]


# The sentence


def test_without_a_limit_the_sentence_says_how_far_the_quantity_goes_and_what_is_best():
    found = map_of(third="kv_dtype")
    best = max(cell.value for row in found.cells for cell in row if cell.value is not None)
    assert sentence(found) == (
        f"Batch ceiling from 1 to {best:,.0f} sequences; best with 1,024 tokens, tp 8, bf16 cache"
    )
    assert sentence(map_of(quantity="TPOT", context="8192,32768", tp="4,8")).endswith("best with 32,768 tokens, tp 8")


def test_plans_that_tie_for_the_best_are_counted():
    found = map_of(Plan())
    ties = sum(cell.value == 1024 for row in found.cells for cell in row) - 1
    assert sentence(found).endswith(f"best with 1,024 tokens, tp 4 and {ties} others")
    assert sentence(map_of(Plan(), "Smallest tp")) == "Smallest tp of 1 devices on every plan here that has any"


@pytest.mark.parametrize(
    ("limit", "texts", "words"),
    [
        (10, {}, " from tp 4 on with 32,768 tokens;"),
        (5, {"tp": "4,8,16"}, " up to 65,536 tokens with tp 4;"),
        (20, {"tp": "8,4,2"}, " at tp 8 with 32,768 tokens;"),  # in no order, so by name
        (6, {"context": "1024,65536"}, " at any context here with tp 4;"),
        (64, {"context": "1024,2048", "tp": "2,8"}, ":"),  # this plan is on neither axis
    ],
)
def test_a_limit_is_met_from_a_value_on_up_to_one_or_at_some(limit, texts, words):
    found = map_of(**texts)
    met = sum((cell.value or 0) >= limit for row in found.cells for cell in row)
    total = sum(len(row) for row in found.cells)
    assert sentence(found, limit) == (
        f"Batch ceiling of {limit} sequences or more{words} {met} of {total} plans have it"
    )


def test_more_than_a_few_names_are_counted():
    found = map_of(Plan(), "TPOT", x="context", y="gpu", context="8192")
    met = sum((cell.value or 99) <= 50 for (cell,) in found.cells)
    assert met > 3
    assert f"at {met} of 7 values of gpu with 8,192 tokens" in sentence(found, 50)


def test_a_limit_that_no_plan_meets_names_the_best():
    found = map_of()
    best = cell_at(found, 1024, 8)
    assert sentence(found, 5000) == (
        f"Batch ceiling of 5,000 sequences or more: no plan here; the best has {best.value:,.0f} sequences, "
        "with 1,024 tokens, tp 8"
    )


def test_a_map_on_which_nothing_starts_says_so_and_why_where_that_is_one_reason():
    assert sentence(map_of(tp="1")) == "Not one of these 8 plans starts"
    refused = map_of(Plan(tp=3), tp="3", context="1024,2048")
    reason = evaluate(Plan(tp=3)).engine.refused
    assert sentence(refused) == f"Not one of these 2 plans starts: {reason}"
    assert opening(refused, None).badge == "refused"


def test_a_quantity_that_is_known_of_no_plan_says_what_it_needs():
    found = map_of(Plan(workload="auto"), "Fleet", context="2048,4096")
    assert sentence(found) == (
        "Fleet is known for none of these 8 plans; it needs a rate of requests and a batch that meets both targets"
    )
    assert "none, as it needs a rate of requests" in hover(found, 0, 0).replace("<br>", " ")


@pytest.mark.parametrize("quantity", NAMED)
@pytest.mark.parametrize("limit", [None, 0, 1, 50, 1e9])
def test_every_sentence_is_one_and_every_number_has_its_unit(quantity, limit):
    found = map_of(Plan(), quantity, context="2048,16384", tp="1,3,8")
    answer = opening(found, limit)
    assert not answer.sentence.endswith(".")
    assert answer.sentence.count(";") <= 1
    assert answer.sentence.count("**") % 2 == 0
    assert NAMED[quantity].unit in answer.sentence
    assert answer.badge in {*BINDING.values(), "refused"}


def test_what_binds_is_counted_over_the_map():
    found = map_of()
    kinds = [cell.binding for row in found.cells for cell in row]
    answer = opening(found, None)
    assert answer.badge == "memory binds"
    assert answer.reason.startswith(f"in {kinds.count('memory')} of 32 plans")
    assert f"does not fit in {kinds.count('does_not_fit')}" in answer.reason


# Numbers, cells and marks


def test_the_four_numbers_are_the_plan_the_ends_and_how_many_start():
    found = map_of()
    own = own_cell(LARGE, NAMED["Batch ceiling"])
    values = [cell.value for row in found.cells for cell in row if cell.value is not None]
    four = metrics(found, own)
    assert [metric.value for metric in four] == [
        f"{evaluate(LARGE).capacity.batch_ceiling}", f"{max(values):,.0f}", f"{min(values):,.0f}",
        f"{len(values)} of 32",
    ]  # fmt: skip
    assert four[1].whose == "1,024 tokens, tp 8"
    assert four[3].whose == f"{32 - len(values)} do not fit, 0 refused"
    assert metrics(map_of(Plan()), own)[3].whose == "all of this map"


def test_hovering_says_both_values_the_quantity_with_its_unit_and_what_binds():
    found = map_of(third="kv_dtype", chosen=1)
    assert hover(found, 0, 2).split("<br>") == [
        "<b>1,024 tokens, tp 4, fp8 cache</b>", f"Batch ceiling: {found.cells[2][0].value:,.0f} sequences",
        BINDING[found.cells[2][0].binding],
    ]  # fmt: skip


def test_hovering_says_why_a_plan_does_not_run():
    found = map_of(tp="1,2,3")
    no_pool, no_request, refused = (hover(found, 7, row).replace("<br>", " ") for row in (0, 1, 2))
    assert "does not fit: weights and start-up take" in no_pool
    assert "tp 4 is the smallest that does" in no_pool
    suggested = evaluate(LARGE.model_copy(update={"tp": 2, "context": 131072})).engine.suggested_context
    assert (
        f"does not fit: a request needs 20.00 GiB, the pool has 1.93 GiB; the longest that does is {suggested:,}"
        in (no_request)
    )
    assert "refused: tp: " in refused
    assert all(len(line) <= 80 for line in hover(found, 7, 2).split("<br>"))


def test_a_cell_is_told_to_those_who_do_not_hover():
    found = map_of()
    value = cell_at(found, 1024, 4).value
    assert cell_words(found, 0, 2) == f"Batch ceiling: **{value:,.0f} sequences**; memory binds"
    assert state(cell_at(found, 1024, 1)) in cell_words(found, 0, 0)


def test_the_legend_names_the_marks_that_are_on_the_map_and_no_other():
    marks = ("Dashed", "Dotted", "Hatched", "Crossed", "A lid", "The dot")

    def told(*arguments, limit=None, **options):
        words = legend(map_of(*arguments, **options), limit)
        return {mark for mark in marks if mark in words}

    assert told(Plan(), context="8192,16384", tp="1,2") == {"The dot"}
    assert told(tp="1,2,3,8", context="1024,131072", limit=64) == {*marks} - {"The dot"}
    assert told(tp="1", context="1024,2048") == {"Hatched"}


def test_notes_say_what_is_not_on_the_map_and_what_the_plan_holds_fixed():
    report = evaluate(LARGE)
    assert notes(report, map_of().grid) == []
    (away,) = notes(report, map_of(context="1024,2048", tp="1,2").grid)
    assert away == "This plan is not on the map, as its own context and tp is on no axis"
    plan = Plan(layers=40, weights_gib=20)
    (held,) = notes(evaluate(plan), map_of(plan, x="model", y="tp", tp="1,2").grid)
    assert held == "Set in the plan, so the same for every model: layers, weights_gib"


def test_costs_of_other_gpus_say_whose_price_they_are_at():
    plan = Plan(gpu_hour_usd=2.5)
    (price,) = notes(evaluate(plan), map_of(plan, "Cost an hour", x="gpu", gpu="h100-sxm,h200", tp="1").grid)
    assert price == "Every GPU is priced as the plan's, $2.50 an hour, as what others cost is not known"
    assert notes(evaluate(plan), map_of(plan, "Fleet", x="gpu", gpu="h100-sxm,h200", tp="1").grid) == []


# Axes, table and command


def test_every_field_has_a_title_and_its_value_words():
    assert set(TITLES) == set(SAID) == set(FIELDS)
    report = evaluate(Plan())
    for field in FIELDS:
        found = axis(report, field, "")
        words = [said(found, place) for place in range(len(found.values))]
        assert len(set(words)) == len(words)


def test_the_note_of_an_axis_counts_its_values_and_says_what_auto_is():
    report = evaluate(Plan())
    assert axis_note(report, axis(report, "tp", "2")) == "1 value, without the plan's own"
    assert axis_note(report, axis(report, "gpu_memory_gib", "80,auto")) == "2 values, auto is 79.1, with the plan's own"


def test_the_table_has_a_row_for_each_plan():
    found = map_of(tp="2,3", context="1024,131072")
    rows = table(found)
    assert [(row["Context, tokens"], row["Tensor parallel, devices"]) for row in rows] == [
        (1024, 2), (131072, 2), (1024, 3), (131072, 3),
    ]  # fmt: skip
    assert [row["Binds"] for row in rows] == ["memory", "does not fit", "refused", "refused"]
    assert [row["Batch ceiling, sequences"] for row in rows] == [found.cells[0][0].value, None, None, None]
    assert [bool(row["Why not"]) for row in rows] == [False, True, True, True]


@pytest.mark.parametrize("quantity", ["Batch ceiling", "KV pool", "TPOT"])
def test_the_command_counts_the_same_grid(quantity, tmp_path):
    plan = Plan(model="llama-3.1-70b", gpu_memory_gib=80, context=4096)
    found = map_of(plan, quantity, x="context", y="gpu_memory_gib", third="tp", context="1024:16384:x4", tp="2,4")
    *words, _ = shlex.split(command(plan, found.grid))
    path = tmp_path / "found.csv"
    assert words[:4] == ["python", "-m", "kvplan", "sweep"]
    assert main([*words[3:], str(path)]) == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    cells = [cell for part in found.grid.cells for row in part for cell in row]
    shown = NAMED[quantity]
    assert len(rows) == len(cells)
    for row, cell in zip(rows, cells, strict=True):
        assert row["engine.fits"].lower() == str(cell.fits).lower()
        if cell.value is not None:
            assert float(row[shown.path]) / shown.per_unit == cell.value


def test_quantities_say_how_they_are_counted():
    assert all(quantity.about and quantity.unit for quantity in QUANTITIES)
