"""A plan's pool over time: both policies on the same requests, the requests of a moment, and who holds what."""

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan, evaluate, metrics, moments, pool, verdict
from kvplan.engine import blocks_per_request, in_flight_tokens, layout
from kvplan.simulate import simulate
from kvplan.units import KIB, MIB, gib

BLOCK = 2 * MIB
"""128 KiB a token x 16 tokens: a block of the default model."""
SEEDED = Plan(workload="seeded-200", max_num_seqs=16)
KINDS = {
    "llama": Plan(),
    "gemma-3-27b": Plan(model="gemma-3-27b"),
    "gpt-oss-20b": Plan(model="gpt-oss-20b"),
    "qwen3-next-80b-a3b": Plan(model="qwen3-next-80b-a3b", gpu="h200", tp=4),
    "deepseek-v3": Plan(model="deepseek-v3", gpu="h200", tp=8),
    "deepseek-v4-flash": Plan(model="deepseek-v4-flash", gpu="b200", tp=8),
    "falcon-mamba-7b": Plan(model="falcon-mamba-7b"),
    "jamba": Plan(model="ai21-jamba-mini-1.5", gpu="h200", tp=4),
    "llama-4-scout": Plan(model="llama-4-scout-17b-16e", gpu="h200", tp=8),
}
"""A served plan for every kind of layer."""
each_kind = pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)


def small(blocks=600, **fields):
    """The default model with a pool of so many blocks, and steps that take every prompt whole."""
    return Plan(kv_cache_memory_bytes=blocks * BLOCK, **{"context": 4096, "step_s": 0.02} | fields)


def tight(times, plan):
    """A plan whose pool has so many times the blocks of one request."""
    engine = evaluate(plan.model_copy(update={"kv_cache_memory_bytes": 2**45})).engine
    blocks = math.ceil(times * engine.blocks_per_request) + 2
    return plan.model_copy(update={"kv_cache_memory_bytes": blocks * engine.bytes_per_block})


def runs_of(plan, requests=None, **options):
    report = evaluate(plan)
    if requests is None or isinstance(requests, int):
        requests = pool.requests_of(report.setting, requests or pool.usual_number(report))
    return pool.runs(report, requests, **options)


def as_json(plan, runs):
    return json.dumps(pool.to_dict(plan, runs), allow_nan=False)


def row_of(rows, figure):
    return next(row for row in rows if row["Figure"] == figure)


requests_of_all_lengths = st.lists(
    st.tuples(st.just(0), st.integers(0, 4500), st.integers(1, 700)), min_size=1, max_size=40
)


# Which requests, how many, and how they come


def test_as_many_requests_as_were_observed_in_order():
    report = evaluate(SEEDED)
    assert pool.usual_number(report) == 200
    requests = pool.requests_of(report.setting, 200)
    assert requests.dtype == np.int64
    assert requests[:, 1:].tolist() == [list(sample) for sample in report.setting.workload.samples]
    assert not requests[:, 0].any()
    assert pool.requests_of(report.setting, 7).tolist() == requests[:7].tolist()


def test_more_than_were_observed_are_drawn_from_them():
    report = evaluate(SEEDED)
    requests = pool.requests_of(report.setting, 201)
    assert requests.shape == (201, 3)
    assert set(map(tuple, requests[:, 1:].tolist())) <= set(report.setting.workload.samples)


@pytest.mark.parametrize("fields", [{}, {"workload": "auto"}, {"workload": "mooncake-conversation"}])
def test_what_is_drawn_has_the_means_of_the_workload_and_is_the_same_each_time(fields):
    setting = evaluate(Plan(**fields)).setting
    one, other = pool.requests_of(setting, 20_000), pool.requests_of(setting, 20_000)
    assert np.array_equal(one, other)
    assert one[:, 2].min() >= 1
    assert one[:, 2].mean() == pytest.approx(setting.lengths.mean, rel=0.05)
    assert one[:, 1].mean() == pytest.approx(setting.lengths.shares @ setting.lengths.prompts, rel=0.05)


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"max_num_seqs": 16}, 500),  # 15 times 16 is too few
        ({"max_num_seqs": 100}, 1500),
        ({"model": "falcon-mamba-7b"}, 12_000),  # 15 times 1,024 is more than a page waits for
        ({"model": "llama-3.1-70b"}, 500),  # does not fit
    ],
)
def test_the_usual_number_fills_the_pool_some_ten_times_over(fields, number):
    assert pool.usual_number(evaluate(Plan(**fields))) == number


@pytest.mark.parametrize(
    ("fields", "arrivals"),
    [
        ({"workload": "auto"}, None),
        ({"workload": "auto", "arrival_rate": 0}, None),
        ({"workload": "auto", "arrival_rate": 5}, ("gamma", 5, 1)),
        ({"workload": "auto", "arrival_rate": 5, "arrival_cv": 0}, ("gamma", 5, 0)),
        ({"workload": "auto", "arrival_rate": 5, "arrival_cv": 2.5}, ("gamma", 5, 2.5)),
    ],
)
def test_requests_come_at_the_plans_rate(fields, arrivals):
    assert pool.arrivals_of(evaluate(Plan(**fields)).setting) == arrivals


def test_a_workload_brings_its_own_rate():
    setting = evaluate(Plan()).setting
    assert pool.arrivals_of(setting) == ("gamma", setting.arrival_rate, setting.arrival_cv)


@pytest.mark.parametrize(
    ("requests", "arrivals", "came"),
    [
        ([(0, 10, 10)] * 3, None, "all at once"),
        ([(5, 10, 10)] * 3, None, "all at once"),
        ([(0, 10, 10), (1, 10, 10)], None, "at their own times"),
        ([(0, 10, 10)] * 3, ("gamma", 5.53, 1.0), "at 5.53 requests/s"),
        ([(0, 10, 10)] * 3, ("gamma", 5530.0, 1.0), "at 5,530 requests/s"),
        ([(0, 10, 10)] * 1000 + [(9, 10, 10)], None, "at their own times"),
    ],
)
def test_how_requests_came_is_said(requests, arrivals, came):
    runs = runs_of(Plan(), requests, arrivals=arrivals)
    assert (runs.number, runs.came) == (len(requests), came)
    assert f"{len(requests):,} requests, {came}, on " in verdict.pool(evaluate(Plan()), runs).reason


# Both policies


def test_the_seeded_example_of_the_literature():
    """200 requests on 16 slots: 1,148 steps of which 72.3% of the slots are used, under both, as the pool is large."""
    runs = runs_of(SEEDED)
    assert (runs.number, runs.came) == (200, "all at once")
    rows = pool.results(runs)
    for figure, words in {"Steps": "1,148", "Slot-steps used": "72.3%", "Completed": "200", "Preemptions": "0"}.items():
        assert row_of(rows, figure) == {"Figure": figure, "Reserve": words, "On demand": words}
    assert verdict.plain(verdict.pool(evaluate(SEEDED), runs).sentence) == (
        "On demand runs 16 requests at once, reserve 16; the pool never runs out"
    )


def test_on_demand_runs_more_and_is_preempted_where_reserve_runs_fewer_and_never_is():
    """600 blocks; each books 100 blocks of its prompt with the first token, or 163 with its 1,000 tokens."""
    runs = runs_of(small(), [(0, 1599, 1000)] * 60)
    assert (runs.reserve.outcome.peak_running, runs.on_demand.outcome.peak_running) == (3, 6)
    assert runs.reserve.outcome.preemptions == 0
    assert runs.on_demand.outcome.preemptions > 0
    assert runs.reserve.outcome.completed == runs.on_demand.outcome.completed == 60
    answer = verdict.pool(evaluate(small()), runs)
    assert "reserve **3**; the pool runs out at step 2 and " in answer.sentence
    assert (answer.badge, answer.tone) == ("pool runs out", "memory")
    assert answer.reason == (
        "60 requests, all at once, on 600 blocks and 1,024 slots; reserve books the prompt and 1,000 tokens of each."
    )


@given(requests_of_all_lengths, st.sampled_from([0, 100, 1000]), st.none() | st.integers(1, 800))
def test_both_serve_the_same_requests_and_reserve_never_preempts(requests, prefix, max_tokens):
    plan = small(shared_prefix_tokens=prefix, max_tokens=max_tokens)
    runs = runs_of(plan, requests)
    reserve, on_demand = runs.reserve.outcome, runs.on_demand.outcome
    assert (reserve.policy, on_demand.policy) == ("reserve", "on_demand")
    assert (reserve.preemptions, reserve.wasted_tokens, reserve.preempted_requests) == (0, 0, 0)
    for count in ("completed", "rejected", "truncated", "prompt_tokens", "output_tokens", "num_blocks", "slots"):
        assert getattr(reserve, count) == getattr(on_demand, count)
    assert reserve.completed + reserve.rejected == runs.number == len(requests)
    assert reserve.unfinished == on_demand.unfinished == 0
    assert max(reserve.peak_blocks, on_demand.peak_blocks) <= reserve.num_blocks == 600
    for run in (runs.reserve, runs.on_demand):
        assert 0 <= run.outcome.running_before_drain <= run.outcome.peak_running


@given(known_plans(kv_cache_memory_bytes=st.sampled_from([2**33, 2**36, 2**40, 2**45])))
def test_any_plan_that_fits_runs(plan):
    report = evaluate(plan)
    requests = pool.requests_of(report.setting, 30)
    if not (report.engine.fits and report.capacity.batch_ceiling):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            pool.runs(report, requests)
        return
    runs = pool.runs(report, requests)
    assert runs.reserve.outcome.preemptions == 0
    assert runs.reserve.outcome.completed == runs.on_demand.outcome.completed
    assert as_json(plan, runs)
    assert verdict.pool(report, runs).sentence
    assert len(metrics.pool(report, runs)) == 4
    for moment in runs.moments.values():
        assert 0 <= moment.free_blocks <= runs.on_demand.outcome.num_blocks
        assert verdict.growth(report, moment)
        assert len(moments.holders(report, moment)) == 6


def test_requests_that_are_all_rejected_are_no_error():
    """Prompts as long as the context: nothing runs, and every figure is there."""
    report, runs = evaluate(small()), runs_of(small(), [(0, 4096, 10)] * 5)
    assert runs.moments == {}
    assert [(run.outcome.rejected, run.outcome.steps) for run in (runs.reserve, runs.on_demand)] == [(5, 0), (5, 0)]
    assert row_of(pool.results(runs), "End to end, s (50 / 95 / 99%)")["Reserve"] == "– / – / –"
    assert json.loads(as_json(small(), runs))["reserve"]["ttft_s"] == {"p50": None, "p95": None, "p99": None}
    answer = verdict.pool(report, runs)
    assert answer.sentence == "**Not one** of these requests runs; every prompt has 4,096 tokens or more"
    assert (answer.badge, answer.tone) == ("all rejected", "limit")
    assert metrics.pool(report, runs)[3].whose == "never runs out"


def test_what_cannot_run_to_its_end_is_said():
    """Two prompts as long as the context, three outputs that end at it, and one that ends where it would."""
    report = evaluate(small())
    requests = [(0, 4096, 10)] * 2 + [(0, 4000, 1000)] * 3 + [(0, 100, 10)]
    rejected = "2 requests with prompts of 4,096 tokens or more are rejected"
    truncated = "3 outputs are cut at the context or max_tokens"
    assert verdict.cut(report, runs_of(small(), requests)) == f"{rejected}; {truncated}"
    assert verdict.cut(report, runs_of(small(), requests[:2])) == rejected
    assert verdict.cut(report, runs_of(small(), requests[2:])) == truncated
    assert verdict.cut(report, runs_of(small(), requests[-1:])) == ""


def test_what_runs_while_others_wait_leaves_out_the_tail_of_a_backlog():
    """Two slots, three requests of 10, 10 and 1,000 tokens: two run in the ten steps in which one waits."""
    runs = runs_of(Plan(max_num_seqs=2), [(0, 10, 10), (0, 10, 10), (0, 10, 1000)])
    for run in (runs.reserve, runs.on_demand):
        assert run.outcome.running_before_drain == 2
        assert run.outcome.mean_running == pytest.approx(1020 / 1010)


def test_where_all_are_admitted_at_once_it_is_all_of_them():
    runs = runs_of(Plan(), [(0, 10, 10), (0, 10, 1000)])
    assert runs.on_demand.outcome.running_before_drain == 2
    assert runs.on_demand.outcome.mean_running == 1010 / 1000


def test_of_a_run_that_is_too_long_for_every_step_to_be_kept_the_first_ones_count_too():
    """Two requests of 10,000 tokens run from the first step to the last; of so many steps every fourth is kept."""
    runs = runs_of(Plan(context=2**16), [(0, 10, 10_000)] * 2)
    for run in (runs.reserve, runs.on_demand):
        assert run.outcome.timeline.steps[0] > 1
        assert run.outcome.running_before_drain == 2


def test_on_demand_is_not_said_to_run_fewer_where_it_runs_all_of_them():
    """300 requests: on demand all run at once and none waits, by reservation some 250 do and the others wait."""
    runs = runs_of(Plan(step_s=0.02), 300)
    assert runs.on_demand.outcome.peak_running == 300 > runs.reserve.outcome.peak_running
    assert runs.on_demand.outcome.running_before_drain >= runs.reserve.outcome.running_before_drain


@pytest.mark.parametrize("plan", [Plan(model="llama-3.1-70b"), Plan(tp=3), Plan(tenant_quota_fraction=0)])
def test_a_plan_that_cannot_serve_says_why(plan):
    report = evaluate(plan)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        pool.runs(report, [(0, 10, 10)])


def test_what_preemption_costs_is_chosen():
    plan, requests = small(), [(0, 1599, 1000)] * 60
    again, moved = (runs_of(plan, requests, preemption=choice).on_demand.outcome for choice in ("recompute", "swap"))
    assert (again.preemption, moved.preemption) == ("recompute", "swap")
    assert again.wasted_tokens > 0 == again.swapped_tokens
    assert moved.swapped_tokens > 0 == moved.wasted_tokens


# Progress, and a process of its own


def test_progress_goes_from_0_to_1_over_both_runs():
    told = []
    runs_of(Plan(max_num_seqs=256), 50_000, progress=lambda *parts: told.append(parts))
    shares = [done / total for done, total in told]
    assert {total for _, total in told} == {100_000}
    assert (shares[0], shares[-1]) == (0, 1)
    assert shares == sorted(shares)
    assert sum(0 < share < 0.5 for share in shares) >= 2
    assert sum(0.5 < share < 1 for share in shares) >= 2


@pytest.mark.parametrize("until", [0, 1, 50_000, 70_000])
def test_a_run_is_stopped_by_its_progress(until):
    """At once, in the first run, at the beginning of the second, and within it."""
    with pytest.raises(ValueError, match="the run was stopped"):
        runs_of(Plan(max_num_seqs=256), 50_000, progress=lambda done, _: done < until)


@pytest.mark.parametrize("requests", [300, [(0, 100, 10), (3, 200, 20)]], ids=["drawn", "given"])
@pytest.mark.parametrize("arrivals", [None, ("gamma", 5.0, 1.5)])
def test_a_process_that_is_handed_a_plan_finds_the_same(requests, arrivals):
    own, other = runs_of(small(), requests, arrivals=arrivals), pool.runs_of_plan(small(), requests, arrivals)
    assert_same(own, other)


def test_runs_can_be_sent_from_one_process_to_another_and_are_small():
    runs = runs_of(small(), 5000)
    sent = pickle.dumps(runs)
    assert len(sent) < 1_000_000
    assert_same(pickle.loads(sent), runs)


def assert_same(one, other):
    assert (one.number, one.came) == (other.number, other.came)
    assert as_json(small(), one) == as_json(small(), other)
    assert list(one.moments) == list(other.moments)
    for name, moment in one.moments.items():
        for part, value in vars(moment).items():
            assert np.array_equal(value, getattr(other.moments[name], part))
    for policy in ("reserve", "on_demand"):
        lines = [getattr(runs, policy).outcome.timeline for runs in (one, other)]
        assert all(np.array_equal(value, getattr(lines[1], part)) for part, value in vars(lines[0]).items())


# Moments


def test_moments_of_a_pool_that_fills_and_runs_out():
    """Hand computed: five requests of 1,585 tokens have 100 blocks each of 600; a sixth needs 107 and waits. Together
    they have all 600 with 1,920 tokens each, 335 steps later; the step after that is the 337th."""
    plan = small()
    runs = runs_of(plan, [(0, 1584, 1000)] * 5 + [(0, 1700, 1000)])
    fills, out = runs.moments[moments.FILLS], runs.moments[moments.RUNS_OUT]
    assert list(runs.moments) == [moments.FILLS, moments.RUNS_OUT]
    assert (fills.step, fills.tokens.tolist(), fills.prompts.tolist()) == (1, [1585] * 5, [1584] * 5)
    assert fills.declared.tolist() == [2584] * 5
    assert (fills.used_blocks, fills.free_blocks, fills.steps_left) == (500, 100, 336)
    assert (out.step, out.tokens.tolist()) == (336, [1920] * 5)
    assert (out.used_blocks, out.free_blocks, out.steps_left) == (600, 0, 1)
    report = evaluate(plan)
    assert verdict.growth(report, fills) == (
        "Step 1: 5 requests hold 7,925 tokens and add 5 × 128 KiB = 640 KiB a step. Free are 100 blocks, 0.20 GiB a "
        "device; if none ended, step 336 from then would need more"
    )
    assert verdict.growth(report, out).endswith("Free are 0 blocks, 0 B a device; the next step would need more")
    assert metrics.pool(report, runs)[3].whose == "full in 336 steps"


def test_a_pool_that_runs_out_as_soon_as_it_is_full_has_one_moment():
    runs = runs_of(small(), [(0, 1599, 1000)] * 60)
    assert list(runs.moments) == [moments.RUNS_OUT]
    assert runs.moments[moments.RUNS_OUT].step == 1
    assert metrics.pool(evaluate(small()), runs)[3].whose == "full in 1 step"


def test_a_pool_that_never_runs_out_is_shown_at_its_peak():
    """Two requests of 100 and 50 tokens end; most is booked when both have nearly all."""
    runs = runs_of(small(), [(0, 0, 100), (0, 0, 50)])
    assert list(runs.moments) == [moments.PEAK]
    moment = runs.moments[moments.PEAK]
    assert moment.used_blocks == runs.on_demand.outcome.peak_blocks == 2 * 4
    assert moment.step in range(49, 51)


def blocks_by_hand(setting, tokens):
    """Blocks of one request after another, as the engine books them."""
    shape, in_flight = layout(setting), in_flight_tokens(setting, setting.plan.context)
    return [int(blocks_per_request(shape, int(count) + setting.plan.spec_tokens, in_flight)) for count in tokens]


def shared_by_hand(setting, prompts):
    """Blocks of the shared prefix counted again for each request that has it but one, in blocks of 16 tokens."""
    having = sum(int(prompt) > setting.plan.shared_prefix_tokens for prompt in prompts)
    return setting.plan.shared_prefix_tokens // 16 * max(0, having - 1)


def assert_moment(setting, run, prompts, moment):
    """The requests of a moment out of the arrays of a run on demand of the same requests."""
    found = zip(run.places.tolist(), run.first_steps.tolist(), run.completed_steps.tolist(), strict=True)
    running = [(place, first) for place, first, last in found if first <= moment.step <= last]
    own = [int(prompts[place]) for place, _ in running]
    tokens = [prompt + moment.step - first + 1 for prompt, (_, first) in zip(own, running, strict=True)]
    assert moment.prompts.tolist() == own
    assert moment.tokens.tolist() == tokens
    assert moment.declared.tolist() == [min(setting.plan.context, prompt + run.max_tokens) for prompt in own]
    used = sum(blocks_by_hand(setting, tokens)) - shared_by_hand(setting, own)
    assert (moment.used_blocks, moment.free_blocks) == (used, run.num_blocks - used)
    (place,) = np.flatnonzero(run.timeline.steps == moment.step)
    line = run.timeline
    assert (line.blocks[place], line.tokens[place], line.running[place]) == (used, sum(tokens), len(tokens))


def steps_left_by_hand(setting, moment, most):
    """One step after another, nobody ending."""
    have = sum(blocks_by_hand(setting, moment.tokens)) + moment.free_blocks
    for step in range(1, most + 1):
        if sum(blocks_by_hand(setting, moment.tokens + step)) > have:
            return step
    return None


TIGHT = {
    name: tight(2.5, plan.model_copy(update={"context": 2048, "max_num_batched_tokens": 512, "step_s": 0.02}))
    for name, plan in KINDS.items()
}
TIGHT |= {f"prefix of {prefix}": small(shared_prefix_tokens=prefix) for prefix in (15, 100, 1000)}
TIGHT |= {"speculative": small(spec_method="ngram", spec_tokens=7), "slots": small(max_num_seqs=4)}


@pytest.mark.parametrize("plan", TIGHT.values(), ids=TIGHT)
@settings(max_examples=25)
@given(data=st.data())
def test_a_moment_is_that_of_a_run_of_the_same_requests(plan, data):
    requests = data.draw(requests_of_all_lengths)
    arrivals = data.draw(st.none() | st.sampled_from([("gamma", 1.0, 1.0), ("gamma", 20.0, 3.0), ("poisson", 0.5)]))
    report = evaluate(plan)
    run = simulate(requests, plan, policy="on_demand", arrivals=arrivals, seed=pool.SEED)
    found = pool.runs(report, requests, arrivals).moments
    assert bool(found) == bool(run.steps)
    for name, moment in found.items():
        assert_moment(report.setting, run, [row[1] for row in requests], moment)
        if moment.steps_left is None or moment.steps_left > 500:
            assert steps_left_by_hand(report.setting, moment, 500) is None
        else:
            assert steps_left_by_hand(report.setting, moment, 500) == moment.steps_left
        if name == moments.RUNS_OUT:
            assert (moment.step, moment.steps_left) == (run.preempted_at[0] - 1, 1)
        if name == moments.PEAK:
            assert run.preemptions == 0
            assert moment.used_blocks == run.peak_blocks
        if name == moments.FILLS:
            assert moment.step == run.timeline.steps[run.timeline.blocked][0]


def test_a_moment_counts_the_blocks_of_a_prompt_that_is_still_computed_in_parts():
    """Prompts of 4,000 in steps of 1,000 tokens: the first writes from step 4 on, when the second begins; 4,001 tokens
    take 251 blocks of 16."""
    runs = runs_of(small(600, max_num_batched_tokens=1000, step_s=None), [(0, 4000, 3)] * 2)
    moment, timeline = runs.moments[moments.PEAK], runs.on_demand.outcome.timeline
    (place,) = np.flatnonzero(timeline.steps == moment.step)
    assert (moment.tokens.size, timeline.running[place]) == (1, 2)
    assert moment.used_blocks == timeline.blocks[place] == 2 * 251


def test_waiting_for_ones_turn_to_be_prefilled_does_not_fill_a_pool():
    """40 prompts of 1,000 tokens, all at once, and a step takes 8,192: they wait, but the pool has room for all."""
    runs = runs_of(Plan(), [(0, 1000, 10)] * 40)
    assert runs.on_demand.outcome.timeline.waiting[0] > 0
    assert list(runs.moments) == [moments.PEAK]


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.integers(0, 500), st.sampled_from([0, 1000]))
def test_steps_left_are_those_a_run_takes_in_which_nobody_ends(prompts, spare, prefix):
    """Requests that go on to the context, in a pool with so many blocks to spare: the step before the first preemption
    is as many steps behind the first as the sums of 16-token blocks say."""
    context = 2**14
    shared = prefix // 16 * max(0, sum(prompt > prefix for prompt in prompts) - 1)
    first = sum(-(-(prompt + 1) // 16) for prompt in prompts) - shared
    blocks = max(first + spare, context // 16 + 2)
    plan = small(blocks, context=context, shared_prefix_tokens=prefix)
    found = runs_of(plan, [(0, prompt, context - prompt) for prompt in prompts]).moments
    left = 1
    while sum(-(-(prompt + 1 + left) // 16) for prompt in prompts) - shared <= blocks:
        left += 1
    if max(prompts) + left >= context:  # the longest ends before
        return
    assert found[moments.RUNS_OUT].step == left
    assert found[moments.RUNS_OUT].steps_left == 1


@pytest.mark.parametrize("prefix", [0, 100])
def test_a_trace_that_names_its_prefixes_books_them_once_and_has_no_moments(prefix):
    """Six requests of 1,536 tokens share two pieces of 512 tokens, 64 blocks, and have 33 of their own. A prefix of the
    plan is ignored beside theirs."""
    requests = [(0, 1536, 100, (1, 2, 3))] * 6
    plan = small(blocks=300, shared_prefix_tokens=prefix)
    run = simulate(requests, plan, policy="on_demand")
    assert run.timeline.blocks[0] == 64 + 6 * 33
    assert runs_of(plan, requests).moments == {}


# How fast the pool fills


def test_32_sequences_of_128_kib_a_token_add_4_mib_a_step_and_in_1000_steps_4_gb():
    """The figures of the literature: 32 x 128 KiB = 4 MiB a step, 3.9 GiB in 1,000 steps."""
    plan = Plan(max_num_seqs=32, step_s=0.02)
    requests = [(0, 1000, 1500)] * 40
    report, runs = evaluate(plan), runs_of(plan, requests)
    assert report.cache.bytes_per_token == 128 * KIB
    moment = runs.moments[moments.FILLS]
    assert "32 requests hold 32,032 tokens and add 32 × 128 KiB = 4 MiB a step." in verdict.growth(report, moment)
    growth = metrics.pool(report, runs)[3]
    assert (growth.label, growth.value) == ("Growth", "4 MiB/step")
    line = simulate(requests, plan, policy="on_demand").timeline
    assert line.steps[1000] == line.steps[0] + 1000
    added = int(line.tokens[1000] - line.tokens[0])
    assert gib(added * report.cache.bytes_per_token) == "3.9 GiB"


def test_a_model_of_states_alone_never_fills_its_pool():
    plan = Plan(model="falcon-mamba-7b", max_num_seqs=32)
    report, runs = evaluate(plan), runs_of(plan, 500)
    assert all(moment.steps_left is None for moment in runs.moments.values())
    assert verdict.growth(report, runs.moments[moments.FILLS]).endswith("; they never fill it")
    assert [metric.whose for metric in metrics.pool(report, runs)][3] == "never runs out"


@each_kind
def test_the_four_numbers_name_both_policies_and_are_short(plan):
    report = evaluate(plan)
    runs = runs_of(plan)
    found = metrics.pool(report, runs)
    assert [metric.label for metric in found] == ["On demand runs", "Reserve runs", "Preempted", "Growth"]
    assert found[0].value == f"{math.floor(runs.on_demand.outcome.running_before_drain):,}"
    assert found[1].value == f"{math.floor(runs.reserve.outcome.running_before_drain):,}"
    assert all(len(metric.label) <= 18 and len(metric.whose) <= 28 for metric in found)
    assert all(metric.help for metric in found)


# Who holds what

COLUMNS = ["Request", "Prompt", "Generated", "Held, MiB", "Booked on demand, MiB", "Booked by reserve, MiB"]


@each_kind
def test_holders_are_sorted_and_their_sum_is_below_them(plan):
    report = evaluate(plan)
    runs = runs_of(plan, 400)
    for moment in runs.moments.values():
        rows = moments.holders(report, moment)
        assert all(list(row) == COLUMNS for row in rows)
        assert [row["Request"] for row in rows] == [*moments.RANKS, f"all {moment.tokens.size:,} together"]
        tokens = [row["Prompt"] + row["Generated"] for row in rows[:-1]]
        assert tokens == sorted(tokens, reverse=True)
        assert (tokens[0], tokens[-1]) == (moment.tokens.max(), moment.tokens.min())
        together = rows[-1]
        assert together["Prompt"] == sum(moment.prompts.tolist())
        assert together["Prompt"] + together["Generated"] == sum(moment.tokens.tolist())
        size = report.engine.bytes_per_block / MIB
        each = blocks_by_hand(report.setting, moment.tokens)
        assert together["Booked on demand, MiB"] == pytest.approx(sum(each) * size)
        whole = blocks_by_hand(report.setting, moment.declared)
        assert together["Booked by reserve, MiB"] == pytest.approx(sum(whole) * size)
        for row in rows:
            assert 0 < row["Held, MiB"] <= row["Booked on demand, MiB"] <= row["Booked by reserve, MiB"]
            assert all(type(value) in (int, float) for name, value in row.items() if name != "Request")


def test_holders_to_the_byte():
    """128 KiB a token, 2 MiB a block, 500 tokens reserved: five requests in their second step."""
    prompts = np.array([31, 15, 79, 47, 63])
    moment = moments.Moment(
        2, prompts, prompts + 2, prompts + 500, shared_tokens=0, used_blocks=20, free_blocks=580, steps_left=15
    )
    assert moments.holders(evaluate(small()), moment) == [
        dict(zip(COLUMNS, row, strict=True))
        for row in [
            ("largest", 79, 2, 10.125, 12, 74),
            ("larger than 3 in 4", 63, 2, 8.125, 10, 72),
            ("median", 47, 2, 6.125, 8, 70),
            ("larger than 1 in 4", 31, 2, 4.125, 6, 68),
            ("smallest", 15, 2, 2.125, 4, 66),
            ("all 5 together", 235, 10, 30.625, 40, 350),
        ]
    ]


@pytest.mark.parametrize("prefix", [0, 1000])
def test_all_requests_together_hold_no_more_than_they_have_booked(prefix):
    """A shared prefix is stored once, whoever has it."""
    plan = small(shared_prefix_tokens=prefix)
    runs = runs_of(plan, [(0, 1500, 100)] * 10)
    for moment in runs.moments.values():
        together = moments.holders(evaluate(plan), moment)[-1]
        assert together["Held, MiB"] <= together["Booked on demand, MiB"]


# In words, and as JSON


def test_every_figure_is_a_row_of_both_runs():
    rows = pool.results(runs_of(small(), 300))
    assert [row["Figure"] for row in rows] == list(pool.FIGURES)
    assert all(list(row) == ["Figure", "Reserve", "On demand"] for row in rows)
    assert all(isinstance(words, str) and words for row in rows for words in row.values())


@given(st.floats(0, 1e12))
def test_times_are_written_without_an_exponent(seconds):
    runs = runs_of(small(), [(0, 10, 10)])
    slow = replace(runs, reserve=replace(runs.reserve, ttft_s=(seconds,) * 3, tpot_s=(seconds,) * 3))
    assert "e+" not in str(pool.results(slow))


@pytest.mark.parametrize("fields", [{}, {"step_s": 3600.0}, {"arrival_rate": 0.001}])
def test_no_figure_has_an_exponent(fields):
    plan = Plan(workload="auto", **fields)
    arrivals = pool.arrivals_of(evaluate(plan).setting)
    assert "e+0" not in str(pool.results(runs_of(plan, 700, arrivals=arrivals)))


RUN_KEYS = {
    "policy", "preemption", "slots", "num_blocks", "max_tokens", "steps", "completed", "rejected", "truncated",
    "unfinished", "preemptions", "preempted_requests", "busy", "mean_running", "peak_running", "mean_blocks",
    "peak_blocks", "mean_tokens", "prompt_tokens", "prefill_tokens", "prefix_hit_tokens", "wasted_tokens",
    "swapped_tokens", "output_tokens", "makespan_s", "mean_in_system", "rate", "mean_time_in_system",
    "output_tokens_per_s", "running_before_drain", "ttft_s", "tpot_s", "e2e_s", "notes",
}  # fmt: skip
"""What a script may rely on."""


def test_json_has_stable_keys_and_nothing_that_is_no_number():
    found = json.loads(as_json(SEEDED, runs_of(SEEDED)))
    assert set(found) == {"schema", "version", "plan", "requests", "reserve", "on_demand"}
    assert (found["schema"], found["requests"]) == ("kvplan.simulation/1", 200)
    assert Plan(**found["plan"]) == SEEDED
    for policy in ("reserve", "on_demand"):
        assert set(found[policy]) == RUN_KEYS
        assert (found[policy]["policy"], found[policy]["steps"]) == (policy, 1148)
        assert all(set(found[policy][times]) == {"p50", "p95", "p99"} for times in ("ttft_s", "tpot_s", "e2e_s"))
        assert found[policy]["notes"] == []


def test_a_single_token_has_no_time_per_output_token():
    found = json.loads(as_json(small(), runs_of(small(), [(0, 10, 1)])))
    assert found["on_demand"]["tpot_s"] == {"p50": None, "p95": None, "p99": None}
    assert found["on_demand"]["ttft_s"]["p50"] == found["on_demand"]["e2e_s"]["p50"] > 0


@given(requests_of_all_lengths, st.sampled_from([None, ("gamma", 3.0, 0.0), ("gamma", 30.0, 4.0)]))
def test_json_of_any_run_has_finite_numbers(requests, arrivals):
    runs = runs_of(small(), requests, arrivals=arrivals)
    found = json.loads(as_json(small(), runs))
    for policy, run in (("reserve", runs.reserve), ("on_demand", runs.on_demand)):
        assert found[policy]["mean_in_system"] == pytest.approx(
            found[policy]["rate"] * found[policy]["mean_time_in_system"], abs=1e-9
        )
        assert found[policy]["running_before_drain"] == run.outcome.running_before_drain


def test_what_is_ignored_of_requests_that_name_prefixes_is_noted():
    plan = small(shared_prefix_tokens=100)
    found = json.loads(as_json(plan, runs_of(plan, [(0, 600, 10, (1, 2))] * 2)))
    assert found["reserve"]["notes"] == ["shared_prefix_tokens: ignored, the requests name their own prefixes"]
