"""What paging saved: the example of the literature, requests taken in turn, and runs against the closed form."""

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan, allocation, evaluate, load_preset, verdict
from kvplan.allocation import NAMES, PAGED, compared, in_turn, last_step, refusals, step_of, table
from kvplan.allocators import ALLOCATORS, BUDDY, FIRST_FIT, KINDS, MAXIMUM, ORACLE, POWER_OF_TWO
from kvplan.catalog import resolve
from kvplan.ceiling import shared_prefix_blocks
from kvplan.engine import in_flight_tokens, layout
from kvplan.growth import blocks_at, linear_cost
from kvplan.lengths import clipped
from kvplan.texts import table_text
from kvplan.units import GIB, MIB

BLOCK = 2 * MIB
"""128 KiB a token x 16 tokens: a block of the default model."""
WINDOWS = "full:2x1x64,sliding16:2x1x64,sliding40:2x1x64,chunked24:2x1x64"
THREE = "three-requests-4096"
COMPARED = {
    "llama-3.1-8b": Plan(),
    "llama-3.1-8b, block 1": Plan(block_size=1),
    "gemma-3-27b": Plan(model="gemma-3-27b", tp=2),
    "gpt-oss-20b": Plan(model="gpt-oss-20b", context=32768),
    "qwen3-next-80b-a3b": Plan(model="qwen3-next-80b-a3b", tp=4, context=32768),
    "deepseek-v3": Plan(model="deepseek-v3", gpu="h200", tp=8),
    "deepseek-v4-flash": Plan(model="deepseek-v4-flash", gpu="b200", tp=8),
    "three requests": load_preset(THREE),
}
each_compared = pytest.mark.parametrize("plan", COMPARED.values(), ids=COMPARED)
each_allocator = pytest.mark.parametrize("allocator", ALLOCATORS)
short_lists = st.lists(st.tuples(st.integers(0, 700), st.integers(1, 700)), min_size=1, max_size=12)


def listed(requests, **fields):
    """A plan whose workload is a list of requests (prompt, output), each as often as the others."""
    return Plan(table=table_text([(1, output, prompt) for prompt, output in requests]), **fields)


def structure(plan):
    """The layout of a plan and its tokens in flight."""
    setting = resolve(plan)
    return layout(setting), in_flight_tokens(setting, plan.context)


def one_after_another(requests, booked, pool):
    """Requests in a cycle, until the next one has no room."""
    turns, number = cycle(requests), 0
    while (pool := pool - booked(*next(turns))) >= 0:
        number += 1
    return number


# The worked example of the literature


def test_three_requests_waste_nearly_two_thirds_of_what_they_reserve():
    """Requests of 500, 3,800 and 200 tokens that reserve 4,096 each: 12,288 slots, 4,500 used, 7,788 or 63.4 % not."""
    found = evaluate(load_preset(THREE)).paging
    assert 3 * 4096 - (500 + 3800 + 200) == 7788
    assert 3 * found.mean_tokens == 4500
    assert 3 * found.contiguous_waste_tokens == 7788
    assert found.contiguous_waste_share == 7788 / 12_288
    assert f"{found.contiguous_waste_share:.1%}" == "63.4%"


def test_a_pool_of_45_gib_holds_36_reservations_and_97_requests_in_blocks():
    """80 GiB less 35 GiB of weights, 320 KiB a token: 9,216 blocks of 5 MiB. A reservation takes 256 of them, the three
    requests 32, 238 and 13: 283 in all, 32 times, and the first of the next three."""
    report = evaluate(load_preset(THREE))
    assert report.memory.pool_bytes == 45 * GIB
    assert (report.engine.num_blocks, report.engine.bytes_per_block) == (9216, 5 * MIB)
    assert report.capacity.memory_ceiling == 9216 // 256 == 36
    assert 32 * (32 + 238 + 13) + 32 <= 9216 < 32 * (32 + 238 + 13) + 32 + 238
    assert in_turn(report) == allocation.InTurn(paged=97, reserved=36)


def test_the_verdict_names_the_three_numbers_of_the_example():
    found = verdict.paging(evaluate(load_preset(THREE)))
    assert found.sentence.endswith("reserving 4,096 tokens would waste **63%**")
    assert "97 fit in blocks and 36 if each reserves the context" in found.reason


# Requests in turn


@settings(max_examples=100)
@given(short_lists, st.integers(1, 600), st.integers(1, 1500), st.sampled_from([1, 16, 24]))
def test_in_turn_is_one_request_after_another(requests, blocks, context, block_size):
    """Brute force: requests in a cycle, in whole blocks, until the next one has no room."""
    blocks += -(-context // block_size) + 1
    size = 8192 * 16 * block_size
    plan = listed(requests, context=context, block_size=block_size, kv_cache_memory_bytes=blocks * size)
    report = evaluate(plan)
    assert (report.engine.num_blocks, report.engine.fits) == (blocks, True)

    def booked(prompt, output):
        prompt = min(prompt, context - 1)
        return -(-(prompt + min(output, context - prompt)) // block_size)

    found = in_turn(report)
    assert found.paged == one_after_another(requests, booked, blocks)
    assert found.reserved == blocks // -(-context // block_size)


@given(short_lists, st.integers(0, 400), st.integers(1, 100))
def test_in_turn_counts_every_table_of_a_request(requests, spare, batched):
    """Brute force with windows that fill: `blocks_at`, request by request."""
    plan = listed(requests, groups=WINDOWS, max_num_batched_tokens=batched, context=2048)
    shape, in_flight = structure(plan)
    blocks = blocks_at(shape, in_flight, 2048) + 1 + spare
    report = evaluate(plan.model_copy(update={"kv_cache_memory_bytes": blocks * shape.bytes_per_block}))
    assert report.engine.fits
    wanted = one_after_another(requests, lambda prompt, output: blocks_at(shape, in_flight, prompt + output), blocks)
    assert in_turn(report).paged == wanted


def test_a_list_in_another_order_takes_its_own_turns():
    """A pool of 70 blocks: 60 + 1 + 1 + 1 ... in turn, or 1 first and then 60."""
    fields = {"context": 1000, "kv_cache_memory_bytes": 70 * BLOCK}
    assert in_turn(evaluate(listed([(0, 960), (0, 16)], **fields))).paged == 2
    assert in_turn(evaluate(listed([(0, 16), (0, 960)], **fields))).paged == 3


@pytest.mark.parametrize(("output", "paged"), [(999, 54), (1000, 54), (1001, 54), (1008, 54), (1009, 53), (4096, 13)])
def test_equal_requests_in_turn_are_a_division(output, paged):
    """Closed form: floor(blocks / ceil(tokens / 16)), 63 blocks for 1,000 tokens."""
    plan = Plan(workload="auto", output_dist="fixed", prompt_mean=1, output_mean=output - 1, context=4096)
    report = evaluate(plan.model_copy(update={"kv_cache_memory_bytes": 3402 * BLOCK}))
    assert in_turn(report).paged == 3402 // -(-output // 16) == paged


@given(known_plans())
def test_no_more_fit_in_turn_than_of_the_smallest_request(plan):
    report = evaluate(plan)
    if not report.engine.fits:
        return
    shape, in_flight = structure(plan)
    prompts, outputs = clipped(report.setting.lengths, plan.context)
    smallest = np.maximum(1, np.floor(prompts) + np.floor(outputs)).astype(np.int64)
    shared = shared_prefix_blocks(resolve(plan), shape, np.ceil(prompts + outputs).astype(np.int64))
    least = max(1, int((blocks_at(shape, in_flight, smallest) - shared).min()))
    found = in_turn(report)
    assert 0 < found.paged <= report.engine.num_blocks // least
    assert found == in_turn(report)


@given(known_plans(shared_prefix_tokens=0))
def test_as_many_fit_in_blocks_as_reserve_the_context(plan):
    report = evaluate(plan)
    if report.engine.fits:
        found = in_turn(report)
        assert found.paged >= found.reserved == report.capacity.memory_ceiling


@pytest.mark.parametrize("shared", [1000, 8000, 8192])
def test_blocks_share_a_prefix_as_reservations_do(shared):
    """A request in blocks never books more than one that reserves the context, whatever both share."""
    found = in_turn(evaluate(Plan(shared_prefix_tokens=shared)))
    assert found.paged >= found.reserved


def test_many_drawn_requests_wrap_around():
    """28 million blocks hold more than are drawn; the mean of the drawn ones divides them."""
    report = evaluate(Plan(kv_cache_memory_bytes=2_000_000 * 1000 * BLOCK // 1000))
    shape, in_flight = structure(report.plan)
    lengths = report.setting.lengths
    prompts, outputs = clipped(lengths, report.plan.context)
    mean = blocks_at(shape, in_flight, np.ceil(prompts + outputs).astype(np.int64)) @ lengths.shares
    assert in_turn(report).paged > allocation.IN_TURN
    assert in_turn(report).paged == pytest.approx(2_000_000 / mean, rel=0.02)


# A fixed part and a slope


@pytest.mark.parametrize(
    ("fields", "block"),
    [
        ({}, 16),
        ({"block_size": 1}, 1),
        ({"block_size": 24}, 24),
        ({"model": "llama-3.1-70b", "tp": 4}, 16),
        ({"model": "deepseek-v3", "gpu": "h200", "tp": 8}, 16),
        ({"model": "deepseek-v3", "tp": 16, "dcp": 4}, 64),
    ],
)
def test_plain_models_cost_a_block_for_so_many_tokens_and_nothing_besides(fields, block):
    assert linear_cost(*structure(Plan(**fields)), 8192) == (0.0, 1 / block)


@pytest.mark.parametrize(
    ("fields", "longest", "fixed", "slope"),
    [
        pytest.param({"model": "gemma-3-27b"}, 8192, 6, 7 / 16, id="six windows that do not fill, one block each"),
        pytest.param({"model": "gpt-oss-20b"}, 8192, 1, 2 / 16, id="a window that does not fill"),
        pytest.param({"model": "gpt-oss-20b"}, 16511, 1, 2 / 16, id="a window that just fills, 127 and 16,384"),
        pytest.param({"model": "gpt-oss-20b"}, 16512, 1 + 16511 / 16, 1 / 16, id="a window that fills"),
        pytest.param({"model": "qwen3-next-80b-a3b", "tp": 4}, 8192, 6, 1 / 272, id="three states of two blocks"),
        pytest.param({"model": "lfm2-1.2b"}, 8192, 4, 1 / 16, id="two states of two blocks"),
        pytest.param({"model": "falcon-mamba-7b"}, 8192, 1, 0, id="a state alone"),
        pytest.param(
            {"model": "gpt-oss-20b", "max_num_batched_tokens": 64}, 8192, 1 + 255 / 16, 1 / 16, id="a short window"
        ),
    ],
)
def test_worked_fixed_parts_and_slopes(fields, longest, fixed, slope):
    found = linear_cost(*structure(Plan(**fields, context=32768)), longest)
    assert found == pytest.approx((fixed, slope), rel=1e-12)


@pytest.mark.parametrize("longest", [1, 17, 300, 2_000, 20_000])
@pytest.mark.parametrize("batched", [None, 64, 1000])
@pytest.mark.parametrize(
    "fields",
    [
        {"model": "gemma-3-27b"},
        {"model": "gpt-oss-20b"},
        {"model": "qwen3-next-80b-a3b", "tp": 4},
        {"model": "ai21-jamba-mini-1.5", "gpu": "h200", "tp": 4},
        {"model": "deepseek-v3", "gpu": "h200", "tp": 8},
        {"model": "deepseek-v4-flash", "gpu": "b200", "tp": 8},
        {"model": "llama-4-scout-17b-16e", "gpu": "h200", "tp": 8},
        {"model": "lfm2-1.2b"},
        {"groups": WINDOWS},
    ],
    ids=lambda fields: next(iter(fields.values())),
)
def test_fixed_and_slope_are_within_one_block_a_table(fields, batched, longest):
    """`blocks_at` length by length, from where the windows that are counted as full are; never too few below."""
    shape, in_flight = structure(Plan(**fields, max_num_batched_tokens=batched, context=32768))
    fixed, slope = linear_cost(shape, in_flight, longest)
    tables = [group for group in shape.groups if group.spec.kind != "state"]
    windows = [group.spec.window - (group.spec.kind == "sliding") + in_flight for group in tables if group.spec.window]
    full = max((window for window in windows if window < longest), default=0)
    tokens = np.unique(np.concatenate([np.arange(0, min(longest, 2500) + 1), np.linspace(0, longest, 400).astype(int)]))
    short = blocks_at(shape, in_flight, tokens) - (fixed + slope * tokens)
    assert (short <= len(tables) + 1e-9).all()
    assert (short[tokens >= full] >= -1e-9).all()


# Runs of all allocators


@each_allocator
@each_compared
def test_the_shares_of_every_run_add_up(plan, allocator):
    found = compared(evaluate(plan), allocator)
    assert list(found.runs) == [MAXIMUM, POWER_OF_TWO, ORACLE, PAGED]
    assert list(found.contiguous) == list(KINDS)
    for run in found.runs.values():
        shares = (run.held, run.reserved, run.internal, run.free)
        assert sum(shares) == pytest.approx(1)
        assert all(-1e-12 <= share <= 1 for share in shares)
        assert run.slots == found.slots
        assert run.rejected == 0
        assert 0 <= run.running <= run.peak_running
    assert found.runs[ORACLE].internal == pytest.approx(0) or allocator == BUDDY


@each_compared
def test_blocks_run_more_than_any_contiguous_allocator(plan):
    for allocator in ALLOCATORS:
        found = compared(evaluate(plan), allocator)
        most = max(run.running for run in found.contiguous.values())
        assert found.runs[PAGED].running >= most
        assert found.runs[MAXIMUM].running <= found.runs[ORACLE].running


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(block_size=1),
        Plan(max_num_seqs=100),
        Plan(model="gemma-3-27b", tp=2),
        Plan(model="qwen3-next-80b-a3b", tp=4, context=32768),
        Plan(model="deepseek-v3", gpu="h200", tp=8),
        Plan(model="gpt-oss-20b", context=32768),
        Plan(model="deepseek-v4-flash", gpu="b200", tp=8),
        Plan(workload="auto"),
        Plan(workload="azure-code"),
        Plan(spec_method="eagle3", spec_tokens=5),
    ],
    ids=lambda plan: str(plan.model_dump(exclude_defaults=True)),
)
def test_as_many_run_in_blocks_as_the_closed_form_says(plan):
    """capacity.on_demand_running, the pool over what a running request holds on average."""
    report = evaluate(plan)
    assert compared(report).runs[PAGED].running == pytest.approx(report.capacity.on_demand_running, rel=0.1)


def test_a_long_request_in_a_thousand_changes_little():
    """Windows of 16,511 tokens that a single long request fills are empty for the 999 others, whose 600 tokens take
    38 + 39 blocks each of 150,826: all 1,024 run, with the long request and without."""
    found = [
        compared(evaluate(Plan(model="gpt-oss-20b", context=32768, table=table_text(rows)))).runs[PAGED].running
        for rows in ([(1, 500, 100)], [(999, 500, 100), (1, 17_000, 100)])
    ]
    assert found == pytest.approx([1024, 1024], rel=0.1)


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize(
    ("plan", "number"),
    [
        pytest.param(Plan(), 449_808 // 8192, id="llama-3.1-8b"),
        pytest.param(Plan(context=4096), 109, id="llama-3.1-8b at 4,096"),
        pytest.param(load_preset(THREE), 36, id="three requests"),
        pytest.param(Plan(model="deepseek-v3", gpu="h200", tp=8), 662_464 // 8192, id="deepseek-v3"),
    ],
)
def test_declared_maxima_run_as_many_as_contexts_fit(plan, number, allocator):
    run = compared(evaluate(plan), allocator).runs[MAXIMUM]
    assert (run.running, run.peak_running) == (number, number)


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize(
    "plan",
    [
        Plan(model="gemma-3-27b", tp=2),
        Plan(model="lfm2-1.2b"),
        Plan(model="qwen3-next-80b-a3b", tp=4, context=32768),
    ],
    ids=lambda plan: plan.model,
)
def test_declared_maxima_with_a_fixed_part_run_as_many_as_reserve_the_context(plan, allocator):
    """capacity.memory_ceiling: windows and states beside a context of a power of two do not double what it takes."""
    report = evaluate(plan)
    run = compared(report, allocator).runs[MAXIMUM]
    assert run.running == pytest.approx(report.capacity.memory_ceiling, rel=0.1)


def test_pools_of_windows_and_states_are_counted_in_slots_of_a_token():
    """gemma-3-27b: 66,209 blocks at 7/16 of a block a token, and 6 more blocks a request."""
    plain, gemma = compared(evaluate(Plan())), compared(evaluate(Plan(model="gemma-3-27b", tp=2)))
    assert (plain.slots, plain.fixed_slots) == (28_113 * 16, 0)
    assert (gemma.slots, gemma.fixed_slots) == (int(66_209 * 16 / 7), round(6 * 16 / 7))
    assert gemma.found.prompts.min() >= 14
    assert "windows and states count as 14 tokens of each" in verdict.saved(gemma)
    assert "windows" not in verdict.saved(plain)


def test_what_runs_is_what_may_run():
    for plan in (Plan(max_num_seqs=10), Plan(max_num_seqs=1)):
        found = compared(evaluate(plan))
        assert {run.peak_running for run in found.runs.values()} == {plan.max_num_seqs}


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(model="falcon-mamba-7b"), id="states alone"),
        pytest.param(Plan(model="llama-3.1-70b"), id="no pool"),
        pytest.param(Plan(model="llama-3.1-70b", tp=2, context=131072), id="not one request"),
        pytest.param(Plan(tp=3), id="refused"),
        pytest.param(Plan(model="no-such-thing"), id="unknown"),
    ],
)
def test_nothing_is_compared_where_nothing_grows_or_nothing_is_served(plan):
    assert compared(evaluate(plan)) is None


def test_max_tokens_is_what_a_request_declares():
    """The context of 8,192, or the prompt and 100 tokens."""
    whole, cut = compared(evaluate(Plan())), compared(evaluate(Plan(max_tokens=100)))
    assert (whole.found.declared == 8192).all()
    assert (cut.found.declared == np.minimum(8192, cut.found.prompts + 100)).all()
    assert cut.found.outputs.max() == 100
    assert cut.runs[MAXIMUM].running > 2 * whole.runs[MAXIMUM].running


def test_the_same_plan_has_the_same_comparison():
    one, other = (compared(evaluate(Plan()), FIRST_FIT) for _ in range(2))
    assert table(one) == table(other)


def test_the_number_of_requests_is_within_its_bounds():
    assert compared(evaluate(Plan(max_num_seqs=1))).found.prompts.size == allocation.FEWEST
    assert compared(evaluate(Plan())).found.prompts.size == allocation.MOST
    report = evaluate(load_preset(THREE))
    running = report.capacity.on_demand_running
    assert compared(report).found.prompts.size == allocation.REQUESTS_PER_RUNNING * running


def test_with_requests_that_are_all_rejected_there_is_nothing_to_compare():
    """Every prompt is as long as the context."""
    assert compared(evaluate(Plan(workload="auto", prompt_mean=10_000, context=1024))) is None


def test_the_table_has_the_shares_of_each_run_in_percent():
    found = compared(evaluate(Plan()))
    rows = table(found)
    assert [row["Allocator"] for row in rows] == list(NAMES.values())
    for row, run in zip(rows, found.runs.values(), strict=True):
        assert row["Runs, mean"] == run.running
        assert row["Holding tokens, %"] == 100 * run.held
        shares = ("Holding tokens, %", "For later, %", "Never used, %", "Free, %")
        assert sum(row[name] for name in shares) == pytest.approx(100)
        assert row["Refused with enough free, % of steps"] == 100 * run.blocked_share
    assert rows[-1]["For later, %"] == rows[-1]["Refused with enough free, % of steps"] == 0


@each_allocator
@each_compared
def test_a_refusal_is_one_with_enough_free(plan, allocator):
    """At the step that is named, all free slots hold what is asked for, and the largest free extent does not."""
    found = compared(evaluate(plan), allocator)
    blocked = {kind: run for kind, run in found.contiguous.items() if run.first_blocked is not None}
    lines = refusals(found)
    assert len(lines) == len(blocked)
    for line, (kind, run) in zip(lines, blocked.items(), strict=True):
        at = np.flatnonzero(run.steps <= run.first_blocked)[-1]
        free, largest = int(run.free_slots[at]), int(run.largest[at])
        assert largest < free
        assert line == (
            f"{NAMES[kind]}: at step {run.first_blocked:,} the next request did not fit although {free:,} slots were "
            f"free, as the largest extent had {largest:,}"
        )
        assert run.blocked_share > 0


def test_the_default_plan_refuses_with_enough_free():
    found = refusals(compared(evaluate(Plan())))
    assert found[0] == (
        "Contiguous, power of two: at step 25 the next request did not fit although 4,368 slots were free, "
        "as the largest extent had 4,096"
    )


@each_compared
def test_requests_wait_up_to_the_last_step(plan):
    found = compared(evaluate(plan))
    last = last_step(found)
    assert last == min(run.placed.first_steps.max() for run in found.contiguous.values())
    quarters = [step_of(found, quarter) for quarter in range(3)]
    assert quarters == [max(1, last * part // 4) for part in (1, 2, 3)]
    assert 1 <= quarters[0] <= quarters[1] <= quarters[2] <= last


def test_what_was_saved_names_blocks_the_worst_and_the_best():
    found = compared(evaluate(load_preset(THREE)))
    assert verdict.saved(found) == (
        "708 requests in a pool of 147,456 slots: in blocks 60 run on average, reserved 36, and 42 even if every "
        "length were known before"
    )
