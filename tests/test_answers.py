"""The commands ceiling, batching, paging and throughput: the numbers of the pages, at any range, as text and JSON."""

import json

import pytest
from hypothesis import given, settings
from strategies import plans
from test_cli import READY, assert_one_line, called, printed

from kvplan import Plan, allocation, answers, backlog, blocks, curves, evaluate, load_preset, rates, verdict
from kvplan.answer_words import text
from kvplan.ceiling import ceiling_curve
from kvplan.cli_options import as_json
from kvplan.text_tables import lines

MAKERS = {
    "ceiling": answers.ceiling,
    "batching": answers.batching,
    "paging": answers.paging,
    "throughput": answers.throughput,
}
CHAT = load_preset(READY)


@pytest.fixture(scope="module")
def report():
    return evaluate(CHAT)


def told(*arguments):
    return json.loads(printed(*arguments, "--json"))


@pytest.mark.parametrize("command", MAKERS)
def test_json_is_the_answer_of_python_and_text_begins_with_its_sentence(command, report):
    found = MAKERS[command](report)
    assert told(command, "--preset", READY) == json.loads(as_json(answers.to_dict(found)))
    assert printed(command, "--preset", READY).startswith(f"{found.sentence}\n{found.reason}\n\n")


def test_the_sentence_is_that_of_the_page(report):
    pages = {"ceiling": verdict.ceiling, "batching": verdict.batching, "paging": verdict.paging}
    for command, page in pages.items():
        assert MAKERS[command](report).sentence == verdict.plain(page(report).sentence)


# Ceiling


def test_a_ceiling_at_a_context_is_that_of_the_plan_with_this_context():
    for point in answers.ceiling(evaluate(CHAT), [1000, 32768, 131072]).points:
        alone = evaluate(CHAT.model_copy(update={"context": point.context}))
        assert (point.memory_ceiling, point.batch_ceiling, point.on_demand_ceiling, point.binding) == (
            alone.capacity.memory_ceiling,
            alone.capacity.batch_ceiling,
            alone.capacity.on_demand_ceiling,
            alone.capacity.binding,
        )
        assert point.bytes_booked == alone.cache.request_bytes_booked
        assert point.blocks_booked == alone.engine.blocks_per_request


def test_a_pool_of_64_gib_at_128_kib_a_token_holds_64_sequences_of_8k_and_4_of_128k():
    """Llama 3.1 8B in bf16: 32 layers x 8 heads x 128 x 2 x 2 bytes = 128 KiB a token, 1 GiB for 8,192 tokens."""
    found = told("ceiling", "--set", f"kv_cache_memory_bytes={2**36}", "--contexts", "131072,8192")
    assert [(point["context"], point["bytes_booked"], point["memory_ceiling"]) for point in found["points"]] == [
        (8192, 2**30, 64),
        (131072, 2**34, 4),
    ]
    assert found["bytes_per_block"] == 16 * 2**17


def test_the_comparisons_are_those_of_the_page_at_the_same_contexts(report):
    own = ceiling_curve(report.setting, curves.table_contexts(report))
    found = answers.ceiling(report).comparisons
    assert [other.name for other in found] == [other.name for other in curves.comparisons(report, own)]
    assert found[0].changes == {"kv_dtype": "fp8", "v_dtype": None}
    for other in found:
        changed = evaluate(CHAT.model_copy(update=other.changes))
        at_plan = next(point for point in other.points if point.context == CHAT.context)
        assert at_plan.memory_ceiling == (changed.capacity.memory_ceiling if changed.engine.fits else 0)


def test_text_has_a_row_for_each_context_and_a_column_for_each_comparison(report):
    found = answers.ceiling(report)
    header, *rows = printed("ceiling", "--preset", READY).splitlines()[3:]
    assert len(rows) == len(found.points)
    assert all(f"Reserve, {other.name}" in header for other in found.comparisons)


# Batching


def test_the_shares_of_a_batch_are_those_of_the_curve_and_of_the_report(report):
    curve = curves.utilisation(report, curves.table_batches(report))
    found = answers.batching(report)
    assert [point.static_utilisation for point in found.points] == curve.static.tolist()
    assert [point.band_low for point in found.points] == curve.low.tolist()
    own = next(point for point in found.points if point.batch == report.batching.batch)
    assert own.static_utilisation == pytest.approx(report.batching.static_utilisation, rel=1e-12)
    assert own.band_low < own.static_utilisation < own.band_high


def test_exponential_lengths_use_one_over_the_harmonic_number_and_have_no_band():
    """H_4 = 1 + 1/2 + 1/3 + 1/4 = 25/12."""
    found = told("batching", "--set", "workload=auto", "--batches", "1,4")
    assert [point["batch"] for point in found["points"]] == [1, 4]
    assert found["points"][1]["static_utilisation"] == pytest.approx(12 / 25)
    assert found["points"][1]["exponential_utilisation"] == pytest.approx(12 / 25)
    assert [point["band_low"] for point in found["points"]] == [None, None]
    assert "95% of resamples" not in printed("batching", "--set", "workload=auto")


def test_the_backlog_is_that_of_the_page_as_it_is_and_with_equal_lengths(report):
    found = answers.batching(report)
    for told, run in ((found.backlog, backlog.backlog(report)), (found.equal_backlog, backlog.backlog(report, True))):
        assert (told.static.steps, told.continuous.steps) == (run.static.steps, run.continuous.steps)
        assert told.static.wall_s == run.wall_s(run.static)
        assert told.continuous.requests_per_s == run.requests_per_s(run.continuous)
        assert told.gain == run.gain
    assert found.equal_backlog.gain == 1


# Paging


def test_the_points_of_a_block_size_are_the_row_of_the_page(report):
    rows = blocks.table(report)
    found = answers.paging(report)
    assert [point.block_size for point in found.points] == [row["Block"] for row in rows]
    for point, row in zip(found.points, rows, strict=True):
        assert point.completion_waste_tokens == row["At completion"]
        assert point.table_entries == row["Table entries"]
        assert point.table_bytes == row["Tables, MiB"] * 2**20


def test_sequences_of_1000_tokens_waste_8_slots_of_blocks_of_16_and_none_of_blocks_of_1():
    fields = ("workload=auto", "output_dist=fixed", "prompt_mean=900", "output_mean=100")
    found = told("paging", *(f"--set={field}" for field in fields), "--blocks", "1,16")
    assert [point["completion_waste_tokens"] for point in found["points"]] == [0, 8]
    assert [point["table_entries"] for point in found["points"]] == [1000, 63]


def test_allocators_are_compared_as_on_the_page(report):
    run = allocation.compared(report, "first fit")
    found = answers.paging(report, allocator="first fit").allocators
    assert (found.slots, found.requests) == (run.slots, run.found.prompts.size)
    assert [each.held for each in found.runs] == [each.held for each in run.runs.values()]
    assert found.refusals == allocation.refusals(run)
    for each in found.runs:
        assert each.held + each.reserved + each.internal + each.free == pytest.approx(1)


def test_states_alone_have_no_block_sizes_to_choose():
    found = told("paging", "--set", "model=falcon-mamba-7b")
    assert (found["points"], found["allocators"]) == ([], None)
    assert [group["waste_tokens"] for group in found["groups"]] == [None]


# Throughput


def test_rates_are_those_of_the_page_and_of_the_report(report):
    page, found = rates.rates(report), answers.throughput(report)
    assert (found.own, found.limits, found.binding, found.next) == (page.own, page.limits, page.binding, page.could)
    assert found.own.tokens_per_s == report.throughput.tokens_per_s
    assert next(point for point in found.points if point.concurrency == page.own.concurrency) == page.own
    at = {operation.concurrency: operation for operation in page.curve}
    assert all(at[point.concurrency] == point for point in found.points if point.concurrency in at)


def test_the_roofline_and_the_simulated_requests_are_those_of_the_page(report):
    page, found = rates.rates(report), answers.throughput(report)
    roof, run = rates.roofline(report, page), rates.compared(report, page)
    assert found.roofline.peak_flop_per_s == roof.peak_flop_per_s
    assert [point.flop_per_byte for point in found.roofline.points] == [point.flop_per_byte for point in roof.points]
    decode = found.roofline.points[0]
    assert decode.parts["weights_s"] == roof.points[0].parts.weights_s
    assert found.simulated.concurrency == run.concurrency
    assert [time.p95_s for time in found.simulated.times] == [values[3] for values in run.rows.values()]


def test_batches_of_ones_own_are_the_only_points_and_do_not_move_the_plan():
    found = told("throughput", "--preset", READY, "--batches", "3:12:3")
    assert [point["concurrency"] for point in found["points"]] == [3, 6, 9, 12]
    assert found["own"]["concurrency"] == 13


# What cannot be served, and what cannot be read


@pytest.mark.parametrize("command", MAKERS)
@pytest.mark.parametrize("change", ["tp=3", "model=llama-3.1-405b"])
def test_a_plan_that_is_not_served_is_an_answer_that_says_why(command, change):
    found = told(command, "--set", change)
    assert "Not served" in found["sentence"] or "Does not fit" in found["sentence"]
    assert printed(command, "--set", change).startswith(found["sentence"])


@settings(max_examples=25)
@given(plans())
def test_any_plan_of_known_presets_has_every_answer_in_both_forms(plan):
    report = evaluate(plan)
    if report.setting is None:
        return
    for make in (answers.ceiling, answers.batching, answers.throughput):
        found = make(report)
        assert json.loads(as_json(answers.to_dict(found)))["sentence"] == found.sentence
        assert text(found).startswith(found.sentence)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["ceiling", "--contexts", "0"], "--contexts: context: Input should be greater than or equal to 1, got '0'"),
        (["ceiling", "--contexts", "9:5:1"], "--contexts: context: a range goes up, got 9:5:1"),
        (["ceiling", "--contexts", "1:20000:1"], "--contexts: context: an axis has 1 to 10,000 values, got 20,000"),
        (["batching", "--batches", "1,auto"], "--batches: must be numbers, got 'auto'"),
        (["batching", "--batches", "many"], "--batches: batch: "),
        (["paging", "--blocks", "65537"], "--blocks: block_size: "),
        (["paging", "--allocator", "slab"], "--allocator: must be one of buddy, first fit, got 'slab'"),
        (["throughput", "--batches", ""], "--batches: batch: "),
        (["throughput", "--set", "model=llama-9"], "model: no preset named"),
        (["paging", "--contexts", "1"], "unrecognized arguments"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_the_option(arguments, named):
    run = called(*arguments)
    assert_one_line(run)
    assert named in run.stderr


def test_numbers_with_units_stand_to_the_right_and_words_to_the_left():
    rows = [{"a": "1", "b": "9 ms", "c": "x"}, {"a": "–", "b": "10 ms", "c": "long"}]
    assert lines(rows) == ["  a      b  c", "  1   9 ms  x", "  –  10 ms  long"]
    assert lines([]) == []


def test_the_default_ranges_hold_the_plan_whatever_it_is():
    odd = evaluate(Plan(context=12345, batch=700, block_size=48))
    assert 12345 in [point.context for point in answers.ceiling(odd).points]
    assert 700 in [point.batch for point in answers.batching(odd).points]
    assert 48 in [point.block_size for point in answers.paging(odd).points]
