"""Requests through a pool, event by event: against looking at every request in every step, laws, and worked numbers."""

import math
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_simulator import plain_simulate

from kvplan import Plan, evaluate, load_preset, scheduler
from kvplan.batching import drain
from kvplan.catalog import resolve
from kvplan.engine import blocks_per_request, in_flight_tokens, layout
from kvplan.lengths import from_samples, resident_mean
from kvplan.simulate import Simulation, percentiles, simulate
from kvplan.units import GIB, KIB

WINDOWS = "full:2x1x64,sliding16:2x1x64,sliding40:2x1x64,chunked24:2x1x64"
"""Windows that small requests fill: three tables that stop to grow and one that does not."""
UNLIKE = "full:2x1x64,full:2x2x64,sliding9:2x2x64"
"""Two tables that grow, one with blocks twice as long."""
MODELS = ("llama-3.1-8b", "llama-3.1-8b", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b", "lfm2-1.2b", WINDOWS)


def by_work(prefill_tokens, decoding, resident_tokens):
    """Seconds of a step that depend on all a step time may depend on."""
    return 1 + prefill_tokens / 100 + decoding / 10 + resident_tokens / 1000


STEP_TIMES = (1.0, 0.02, 0.3, by_work, lambda *work: 0.1)


def blocks_of(plan, tokens):
    """Blocks a request of so many tokens takes, from the layout of the plan."""
    setting = resolve(plan)
    return blocks_per_request(layout(setting), tokens + plan.spec_tokens, in_flight_tokens(setting, plan.context))


def with_blocks(plan, number):
    """The plan with a pool of so many blocks."""
    return plan.model_copy(update={"kv_cache_memory_bytes": number * layout(resolve(plan)).bytes_per_block})


def tight(plan, spare):
    """The plan with the smallest pool that takes a request of the whole context, and some blocks more."""
    return with_blocks(plan, blocks_of(plan, plan.context) + 1 + spare)


def small_case(seed):
    """A small pool and requests that crowd it: what `simulate` is given."""
    random = Random(seed)
    model, hashed = random.choice(MODELS), random.random() < 0.3
    fields = {
        "max_num_seqs": random.choice((1, 3, 8, 16, 16)),
        "max_num_batched_tokens": random.choice((8, 16, 17, 64, 300)),
        "enable_prefix_caching": random.random() < 0.85,
    }
    if model == "qwen3-next-80b-a3b":  # blocks of 544 tokens
        context = random.choice((9000, 18_000)) if hashed else random.randint(700, 2300)
    elif hashed:
        context = random.randint(700, 2300)
        fields["block_size"] = random.choice((16, 32, 48, 128, 512))
    elif model == "lfm2-1.2b":  # blocks of 16 tokens
        context = random.randint(60, 400)
    else:
        context = random.randint(20, 260)
        fields["block_size"] = random.choice((1, 2, 3, 4, 7, 16))
    if model == WINDOWS:
        fields["max_num_batched_tokens"] = random.choice((2, 3, 16))
    for name, most in (("shared_prefix_tokens", context), ("max_tokens", context), ("spec_tokens", 5)):
        if random.random() < 0.3:
            fields[name] = random.randint(1, most)
    plan = Plan(context=context, **fields, **({"groups": WINDOWS} if model == WINDOWS else {"model": model}))
    one = blocks_of(plan, context)
    plan = tight(plan, random.choice((0, 0, 0, 1, one // 4, one // 2)))

    rows, arrival, rate = [], 0.0, random.choice((0, 0, 0.05, 0.5))
    for _ in range(random.randint(2, 10 if hashed or model == "qwen3-next-80b-a3b" else 16)):
        arrival += random.expovariate(rate) if rate else 0
        kinds = ((context, context + 3), (0, context), *[(0, context // 6)] * 6)
        prompt = random.randint(*random.choice(kinds))
        if hashed and random.random() < 0.9:
            prompt = min(context + 1, 512 * random.randint(0, min(3, context // 512)) + random.randint(0, 40))
        longest = min(context, 900)
        output = random.choice((1, random.randint(1, 30), *(random.randint(longest // 3, longest) for _ in range(2))))
        first = 100 * random.randint(0, 2)
        rows.append((arrival, prompt, output, *([range(first, first + math.ceil(prompt / 512))] if hashed else [])))
    if random.random() < 0.1:
        random.shuffle(rows)
    options = {
        "policy": random.choice(("reserve", "on_demand", "on_demand", "on_demand")),
        "step_time": random.choice(STEP_TIMES),
        "preemption": random.choice(("recompute", "swap")),
    }
    return rows, plan, options


@st.composite
def crowded(draw):
    """Any traffic for a pool of a few blocks more than one request may take."""
    context = draw(st.integers(4, 60))
    fields = {
        "groups": draw(st.sampled_from(("full:1x1x64", "full:1x1x64,sliding9:1x1x64", UNLIKE, WINDOWS))),
        "block_size": draw(st.integers(1, 6)),
        "max_num_seqs": draw(st.integers(1, 6)),
        "max_num_batched_tokens": draw(st.integers(1, 20)),
        "spec_tokens": draw(st.integers(0, 3)),
        "shared_prefix_tokens": draw(st.integers(0, 1)) * draw(st.integers(1, context)),
        "max_tokens": draw(st.none() | st.integers(1, context)),
    }
    requests = st.tuples(st.integers(0, 40), st.integers(0, context + 1), st.integers(1, 2 * context))
    options = {
        "policy": draw(st.sampled_from(("reserve", "on_demand"))),
        "step_time": draw(st.sampled_from((1.0, 0.3, by_work))),
        "preemption": draw(st.sampled_from(("recompute", "swap"))),
    }
    plan = tight(Plan(context=context, **fields), draw(st.integers(0, 12)))
    return draw(st.lists(requests, max_size=10)), plan, options


def run_both(rows, plan, options):
    """The run of a case and the plain one, which must be the same."""
    found, plain = simulate(rows, plan, **options), plain_simulate(rows, plan, **options)
    check_same(found, plain)
    check_laws(found, rows, plan, options)
    return found, plain


def check_same(found, plain):
    """Every figure of a run, from one that looks at every request in every step."""
    happened = {
        what: [(step, place) for step, kind, place in plain.events if kind == what]
        for what in ("first token", "completed", "preempted")
    }
    assert steps_and_places(found.first_steps, found.places) == sorted(happened["first token"])
    assert steps_and_places(found.completed_steps, found.places) == sorted(happened["completed"])
    preempted = zip(found.preempted_at.tolist(), found.preempted_places.tolist(), strict=True)
    assert list(preempted) == happened["preempted"]  # those of one step in their order
    assert (found.steps, found.rejected) == (plain.steps, plain.rejected)
    assert (found.prefill_tokens, found.prefix_hit_tokens) == (plain.prefill_tokens, plain.hit_tokens)
    assert (found.wasted_tokens, found.swapped_tokens) == (plain.wasted_tokens, plain.swapped_tokens)
    assert found.peak_blocks == max(plain.used, default=0)
    assert found.peak_running == max(plain.running, default=0)
    if found.steps:
        assert found.mean_blocks == sum(plain.used) / plain.steps
        assert found.mean_running == sum(plain.running) / plain.steps
        assert found.mean_tokens == sum(plain.tokens) / sum(plain.running)

    requests = {request.place: request for request in plain.requests}
    ends = [requests[place].end_s - requests[place].arrival for place in found.places.tolist()]
    firsts = [requests[place].first_s - requests[place].arrival for place in found.places.tolist()]
    np.testing.assert_allclose(found.e2e_s, ends, rtol=1e-9)
    np.testing.assert_allclose(found.ttft_s, firsts, rtol=1e-9)

    timeline, begin = found.timeline, plain.requests[0].arrival if plain.requests else 0
    if found.steps < scheduler.MOST_SAMPLES:
        assert timeline.steps.tolist() == list(range(1, found.steps + 1))
    looked_at = [step - 1 for step in timeline.steps.tolist()]
    assert timeline.blocks.tolist() == [plain.used[step] for step in looked_at]
    assert timeline.running.tolist() == [plain.running[step] for step in looked_at]
    assert timeline.waiting.tolist() == [plain.waiting[step] for step in looked_at]
    assert timeline.tokens.tolist() == [plain.tokens[step] for step in looked_at]
    np.testing.assert_allclose(timeline.seconds, [plain.seconds[step] - begin for step in looked_at], rtol=1e-9)


def steps_and_places(steps, places):
    return sorted(zip(steps.tolist(), places.tolist(), strict=True))


def check_laws(found, rows, plan, options):
    """What holds for any run."""
    assert found.completed + found.rejected + found.unfinished == len(rows)
    assert found.unfinished == 0
    assert found.prefill_tokens + found.prefix_hit_tokens == found.prompt_tokens + found.wasted_tokens
    assert found.mean_in_system == pytest.approx(found.rate * found.mean_time_in_system, rel=1e-12)  # Little, L = λW
    assert found.peak_blocks <= found.num_blocks
    assert found.peak_running <= found.slots
    assert (found.timeline.blocks >= 0).all()
    assert (found.timeline.waiting >= 0).all()
    assert (found.first_steps <= found.completed_steps).all()
    assert (found.ttft_s > 0).all()
    assert found.places.tolist() == [place for place, row in enumerate(rows) if row[1] < plan.context]
    assert found.preempted_requests == len(set(found.preempted_places.tolist())) <= found.preemptions
    if options["policy"] == "reserve":
        assert found.preemptions == found.wasted_tokens == found.swapped_tokens == 0
    if options["preemption"] == "recompute":
        assert found.swapped_tokens == 0
    most = plan.max_tokens or max((row[2] for row in rows), default=1)
    prompts = [rows[place][1] for place in found.places.tolist()]
    outputs = [min(rows[place][2], most, plan.context - rows[place][1]) for place in found.places.tolist()]
    assert (found.prompt_tokens, found.output_tokens) == (sum(prompts), sum(outputs))
    decoding = (np.array(outputs) - 1) * found.tpot_s
    assert [0 if math.isnan(spent) else spent for spent in decoding] == pytest.approx(found.e2e_s - found.ttft_s)
    if not found.preemptions and found.completed and not callable(options["step_time"]):
        law = resident_mean(from_samples(outputs, prompts), plan.context)
        assert found.mean_tokens == pytest.approx(law, rel=1e-12)  # a request is met in each of its steps
        assert found.busy * found.slots * found.steps == pytest.approx(sum(outputs), rel=1e-12)


# The same as every request in every step


@pytest.mark.parametrize(
    "samples", [pytest.param(4096, id="every step looked at"), pytest.param(2, id="steps skipped")]
)
def test_events_are_those_of_looking_at_every_request_in_every_step(samples, monkeypatch):
    """Definition of the rules, one step at a time; with few samples a run goes from event to event."""
    monkeypatch.setattr(scheduler, "MOST_SAMPLES", samples)
    seen = Counter()
    for seed in range(1200):
        case = small_case(seed)
        try:
            found, plain = run_both(*case)
        except Exception as error:
            error.add_note(f"seed {seed}: {case}")
            raise
        seen.update(
            preemptions=found.preemptions,
            within_a_prompt=plain.interrupted,
            again_and_again=found.preemptions - found.preempted_requests,
            evicted=plain.evicted,
            rejected=found.rejected,
            truncated=found.truncated,
            runs_with_hits=found.prefix_hit_tokens > 0,
            runs_with_swaps=found.swapped_tokens > 0,
        )
    fewest = {
        "preemptions": 1000,
        "within_a_prompt": 20,
        "again_and_again": 200,
        "evicted": 300,
        "rejected": 300,
        "truncated": 1000,
        "runs_with_hits": 100,
        "runs_with_swaps": 100,
    }
    assert not {name: (seen[name], least) for name, least in fewest.items() if seen[name] < least}


@settings(max_examples=300)
@given(crowded())
def test_any_traffic_runs_as_step_by_step(case):
    """Definition of the rules, one step at a time."""
    run_both(*case)


@given(crowded(), st.integers(1, 5))
def test_the_samples_of_a_timeline_change_nothing_else(case, samples):
    """Definition: how often a run is looked at is not part of it."""
    rows, plan, options = case
    whole = simulate(rows, plan, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "MOST_SAMPLES", samples)
        thin = simulate(rows, plan, **options)
    for name in Simulation.__dataclass_fields__.keys() - {"timeline"}:
        np.testing.assert_equal(getattr(thin, name), getattr(whole, name), name)
    kept = np.isin(whole.timeline.steps, thin.timeline.steps)
    for name in ("steps", "running", "waiting", "blocks", "tokens"):
        assert getattr(thin.timeline, name).tolist() == getattr(whole.timeline, name)[kept].tolist()


# Laws


@pytest.mark.parametrize("step_time", [pytest.param(1.0, id="constant"), pytest.param(by_work, id="by work")])
@given(case=crowded())
def test_a_pool_for_all_slots_is_the_same_under_both_policies(step_time, case):
    """Definition: the policies differ in blocks, and these never run out."""
    rows, plan, _ = case
    roomy = with_blocks(plan, plan.max_num_seqs * blocks_of(plan, plan.context) + 1)
    reserve, on_demand = (
        simulate(rows, roomy, policy=policy, step_time=step_time) for policy in ("reserve", "on_demand")
    )
    for name in ("steps", "mean_running", "preemptions", "mean_tokens", "prefix_hit_tokens", "makespan_s"):
        assert getattr(reserve, name) == getattr(on_demand, name)
    assert reserve.first_steps.tolist() == on_demand.first_steps.tolist()
    assert reserve.completed_steps.tolist() == on_demand.completed_steps.tolist()
    assert on_demand.mean_blocks <= reserve.mean_blocks


@given(crowded())
def test_an_idle_pool_holds_nothing(case):
    """Conservation of blocks: a request that comes when all are gone finds the pool as if it were the first."""
    rows, plan, options = case
    plan = plan.model_copy(update={"max_tokens": plan.max_tokens or 2 * plan.context})
    late = (1e6, 3, 2)
    alone, found = simulate([late], plan, **options), simulate([*rows, late], plan, **options)
    for name in ("running", "waiting", "blocks", "tokens"):
        own = getattr(alone.timeline, name).tolist()
        assert getattr(found.timeline, name).tolist()[-len(own) :] == own


@given(crowded(), st.integers(0, 10))
def test_who_comes_later_moves_nobody_who_came_before(case, first):
    """First come first served, and the youngest goes first: the first requests run as if there were no others."""
    rows, plan, options = case
    rows = sorted(rows)
    if callable(options["step_time"]):  # a step that takes longer lets others come
        rows = [(0, prompt, output) for _, prompt, output in rows]
    plan = plan.model_copy(update={"max_tokens": plan.max_tokens or 2 * plan.context})
    whole, part = simulate(rows, plan, **options), simulate(rows[:first], plan, **options)
    assert whole.first_steps[: part.completed].tolist() == part.first_steps.tolist()
    assert whole.completed_steps[: part.completed].tolist() == part.completed_steps.tolist()
    moved = [place for place in whole.preempted_places.tolist() if place < first]
    assert moved == part.preempted_places.tolist()


@given(crowded(), st.integers(0, 3), st.integers(0, 12))
def test_under_reserve_more_slots_and_blocks_never_finish_a_request_later(case, slots, blocks):
    """List scheduling in a fixed order: what runs at a time is part of what ran then with less. (On demand it may:
    see the next test.)"""
    rows, plan, _ = case
    rows = [(0, prompt, output) for _, prompt, output in rows]
    more = plan.model_copy(update={"max_num_seqs": plan.max_num_seqs + slots})
    more = with_blocks(more, simulate([], plan).num_blocks + blocks)
    less, found = (simulate(rows, given, policy="reserve", step_time=1) for given in (plan, more))
    assert (found.completed_steps <= less.completed_steps).all()
    assert found.steps <= less.steps


def test_on_demand_more_slots_may_take_longer():
    """Worked example: with a fourth slot the pool runs out, and what was computed is thrown away."""
    rows = [(0, 2, 7), (0, 3, 7), (0, 2, 3), (0, 0, 6), (0, 4, 6)]
    plan = with_blocks(Plan(groups="full:1x1x64", block_size=1, context=12, max_num_batched_tokens=64), 16)
    steps = [
        simulate(rows, plan.model_copy(update={"max_num_seqs": slots}), policy="on_demand", step_time=1).steps
        for slots in (3, 4)
    ]
    assert steps == [14, 15]


def static_steps(rows, slots, num_blocks, blocks):
    """Batches in order: as many of the next requests as fit into slots and blocks, until the longest is done."""
    steps, waiting = 0, list(rows)
    while waiting:
        batch = 1
        while batch < min(slots, len(waiting)) and sum(map(blocks, waiting[: batch + 1])) <= num_blocks:
            batch += 1
        steps += max(output for _, _, output in waiting[:batch])
        waiting = waiting[batch:]
    return steps


@given(crowded())
def test_continuous_never_takes_more_steps_than_static_batches_of_the_same_order(case):
    """List scheduling: no request starts later than in its static batch, whose members fit beside each other."""
    rows, plan, _ = case
    most = plan.max_tokens or max((row[2] for row in rows), default=1)
    plan = plan.model_copy(update={"shared_prefix_tokens": 0})
    rows = [
        (0, prompt, min(output, most, plan.context - prompt)) for _, prompt, output in rows if prompt < plan.context
    ]
    found = simulate(rows, plan.model_copy(update={"max_tokens": most}), policy="reserve", step_time=1)
    reserved = static_steps(
        rows, found.slots, found.num_blocks, lambda row: blocks_of(plan, min(plan.context, row[1] + most))
    )
    assert found.steps <= reserved


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 20))
def test_slots_alone_are_the_drain_of_a_backlog(lengths, slots):
    """`kvplan.batching`: list scheduling of lengths, with no pool."""
    found = simulate([(0, 10, length) for length in lengths], Plan(max_num_seqs=slots), step_time=1)
    continuous, static = (drain(lengths, slots, policy) for policy in ("continuous", "static"))
    assert found.steps == continuous.steps <= static.steps
    assert found.busy == pytest.approx(continuous.busy, rel=1e-12)


@given(crowded(), st.integers(-1000, 1000))
def test_a_clock_that_starts_elsewhere_changes_nothing(case, offset):
    """Time has no origin: the first arrival is where it begins."""
    rows, plan, options = case
    options = options | {"step_time": 1.0}
    here, there = (
        simulate([(arrival + start, prompt, output) for arrival, prompt, output in rows], plan, **options)
        for start in (0, offset)
    )
    assert there.completed_steps.tolist() == here.completed_steps.tolist()
    assert there.e2e_s.tolist() == here.e2e_s.tolist()
    assert there.timeline.seconds.tolist() == here.timeline.seconds.tolist()
    assert there.makespan_s == here.makespan_s


def test_a_request_before_zero_is_served_when_it_comes():
    """Worked example: an idle pool, one step of a second."""
    assert simulate([(-5, 10, 1)], Plan(), step_time=1).ttft_s.tolist() == [1]


# Worked numbers


def seeded_200():
    random = Random(37)
    return [random.randint(400, 700) if random.random() < 0.1 else random.randint(8, 40) for _ in range(200)]


def test_the_seeded_backlog_to_the_digit():
    """The example of the literature: 200 requests on 16 slots, 13,280 tokens, 1,148 steps, 72.3 % busy."""
    lengths = seeded_200()
    found = simulate([(0, 1, length) for length in lengths], Plan(max_num_seqs=16), step_time=0.02)
    assert (found.steps, found.output_tokens, f"{found.busy:.1%}") == (1148, 13_280, "72.3%")
    assert found.steps == drain(lengths, 16, "continuous").steps
    assert found.busy == drain(lengths, 16, "continuous").busy
    assert found.makespan_s == pytest.approx(1148 * 0.02)
    assert f"{found.rate:.1f}" == "8.7"


def test_one_long_request_among_eight_leaves_the_others_slots_idle():
    """Worked example: 640 tokens in 8 × 500 slot-steps."""
    found = simulate([(0, 100, 20)] * 7 + [(0, 100, 500)], Plan(max_num_seqs=8), step_time=1)
    assert (found.steps, found.busy, found.output_tokens) == (500, 0.16, 640)
    assert found.mean_running == 640 / 500
    assert (found.first_steps == 1).all()
    assert found.completed_steps.tolist() == [20] * 7 + [500]


@pytest.mark.parametrize(
    ("fields", "prompt", "running"),
    [
        pytest.param({"context": 2048, "max_tokens": 2048}, 100, 160, id="2,048 by the context"),
        pytest.param({"context": 8192, "max_tokens": 8192}, 100, 40, id="8,192 by the context"),
        pytest.param({"context": 131_072, "max_tokens": 2000}, 48, 160, id="2,048 by max_tokens"),
        pytest.param({"context": 131_072, "max_tokens": 8000}, 192, 40, id="8,192 by max_tokens"),
    ],
)
def test_reserving_runs_as_many_as_their_declared_maximum_allows(fields, prompt, running):
    """Worked example: 40 GiB at 128 KiB a token are 2,560 blocks of 128 tokens; 16 a request of 2,048, 64 of 8,192."""
    plan = Plan(kv_cache_memory_bytes=40 * GIB, block_size=128, max_num_seqs=1024, **fields)
    found = simulate([(0, prompt, 50)] * 400, plan, policy="reserve", step_time=1)
    assert found.num_blocks == 2560
    assert (found.peak_running, found.peak_blocks, found.preemptions) == (running, 2560, 0)
    assert found.steps == 50 * math.ceil(400 / running)
    on_demand = simulate([(0, prompt, 50)] * 400, plan, policy="on_demand", step_time=1)
    assert (on_demand.peak_running, on_demand.steps) == (400, 50)


def test_the_youngest_is_preempted_and_computes_again_what_it_had():
    """By hand: 7 blocks of a token. After the second step A and B hold 3 + 3; in the third they need 4 + 4."""
    plan = with_blocks(Plan(groups="full:1x1x64", block_size=1, context=6, max_num_batched_tokens=64), 7)
    rows = [(0, 1, 4), (0, 1, 4)]
    found = simulate(rows, plan, policy="on_demand", step_time=1)
    assert (found.preempted_at.tolist(), found.preempted_places.tolist()) == ([3], [1])
    # A ends in step 4; B needs 4 blocks, and comes back in step 5 with the two tokens it had: 3 computed again.
    assert found.completed_steps.tolist() == [4, 6]
    assert found.first_steps.tolist() == [1, 1]
    assert found.timeline.blocks.tolist() == [4, 6, 4, 5, 4, 5]
    assert found.timeline.waiting.tolist() == [0, 0, 1, 1, 0, 0]
    assert (found.prefill_tokens, found.wasted_tokens, found.swapped_tokens) == (5, 3, 0)
    swapped = simulate(rows, plan, policy="on_demand", step_time=1, preemption="swap")
    assert (swapped.prefill_tokens, swapped.wasted_tokens, swapped.swapped_tokens) == (2, 0, 3)
    assert swapped.completed_steps.tolist() == found.completed_steps.tolist()


@pytest.mark.parametrize("prompt", [0, 1, 7, 8, 9, 15, 16, 17, 24, 100])
@pytest.mark.parametrize("output", [1, 2, 50])
@pytest.mark.parametrize("policy", ["reserve", "on_demand"])
def test_a_single_request_takes_its_prompt_in_parts_and_a_step_a_token(prompt, output, policy):
    """Closed form: parts of 8 tokens, the first token with the last part, then output - 1 steps."""
    plan = Plan(max_num_batched_tokens=8, context=256)
    parts = [8] * (prompt // 8) + ([prompt % 8] if prompt % 8 or not prompt else [])
    first = 0.0
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        first += by_work(part, 0, sum(parts[: number + 1]) + is_last)
    rest = sum(by_work(0, 1, prompt + token) for token in range(2, output + 1))
    found = simulate([(3, prompt, output)], plan, policy=policy, step_time=by_work)
    assert found.ttft_s.tolist() == [pytest.approx(first, rel=1e-12)]
    assert found.e2e_s.tolist() == [pytest.approx(first + rest, rel=1e-12)]
    assert found.steps == len(parts) + output - 1
    assert found.first_steps.tolist() == [len(parts)]
    np.testing.assert_allclose(found.tpot_s, [rest / (output - 1) if output > 1 else np.nan], rtol=1e-12)

    constant = simulate([(3, prompt, output)], plan, policy=policy, step_time=0.02)
    assert constant.ttft_s.tolist() == [pytest.approx(0.02, rel=1e-9)]
    assert constant.e2e_s.tolist() == [pytest.approx(0.02 * output, rel=1e-9)]
    assert constant.steps == output


def test_a_request_that_comes_within_a_step_waits_for_the_next():
    """Closed form: a step of a second begins at 0, 1, 2; the clock begins anew where nobody runs."""
    plan = Plan(context=256)
    found = simulate([(0, 10, 3), (0.5, 10, 1), (1.0, 10, 1), (7.25, 10, 2)], plan, step_time=1)
    assert found.first_steps.tolist() == [1, 2, 2, 4]
    assert found.ttft_s.tolist() == [1, 1.5, 1, 1]
    assert found.makespan_s == 9.25
    assert found.timeline.seconds.tolist() == [1, 2, 3, 8.25, 9.25]
    assert found.rate == 4 / 9.25
    assert found.mean_in_system == pytest.approx((3 + 1.5 + 1 + 2) / 9.25, rel=1e-12)


@pytest.mark.parametrize(
    ("seconds", "step_time"),
    [
        *(pytest.param(seconds, seconds, id=f"{seconds:.2g} s") for seconds in (0.02, 0.1, 0.3, 0.7, 1 / 3)),
        pytest.param(0.25, lambda *work: 0.25, id="by work"),
    ],
)
@pytest.mark.parametrize("samples", [pytest.param(4096, id="steps looked at"), pytest.param(2, id="steps skipped")])
def test_a_request_that_comes_as_a_step_ends_runs_in_the_next(samples, seconds, step_time, monkeypatch):
    """Definition, to the last bit: step k ends at k times the seconds of a step, and one moment later is too late."""
    monkeypatch.setattr(scheduler, "MOST_SAMPLES", samples)
    ends = range(3, 3000, 5)
    in_time = [(number * seconds, 1, 1) for number in ends]
    too_late = [(np.nextafter(arrival, math.inf), 1, 1) for arrival, _, _ in in_time]
    for rows, more in ((in_time, 1), (too_late, 2)):
        found = simulate([(0, 1, 4000), *rows], Plan(max_num_seqs=4), step_time=step_time)
        assert found.first_steps.tolist() == [1, *(number + more for number in ends)]


def test_a_70b_request_from_its_prompt_on():
    """Worked example: 320 KiB a token at tp 1, so 4,096 tokens of prompt are 1.25 GiB and each step adds 320 KiB."""
    plan = Plan(model="llama-3.1-70b", kv_cache_memory_bytes=40 * GIB, context=8192)
    assert evaluate(plan).cache.bytes_per_token == 320 * KIB
    found = simulate([(0, 4096, 1000)], plan, step_time=0.02)
    held = found.timeline.tokens * 320 * KIB
    assert held[0] - 320 * KIB == 1.25 * GIB  # the first token comes with the prompt
    assert set(np.diff(held).tolist()) == {320 * KIB}
    assert held[-1] == 5096 * 320 * KIB


def test_outputs_end_at_the_context_and_at_max_tokens():
    """Definition: prompts of the whole context are rejected, outputs are cut to context - prompt and to max_tokens."""
    rows = [(0, 100, 500), (0, 99, 1), (0, 90, 50), (0, 10, 20), (0, 10, 21), (0, 101, 1)]
    found = simulate(rows, Plan(context=100, max_tokens=20), step_time=1)
    assert (found.rejected, found.completed, found.truncated, found.max_tokens) == (2, 4, 2, 20)
    assert found.places.tolist() == [1, 2, 3, 4]
    assert found.completed_steps.tolist() == [1, 10, 20, 20]
    assert (found.prompt_tokens, found.output_tokens) == (209, 51)


def test_room_for_speculative_tokens_is_booked_beyond_what_is_written():
    """By hand: blocks of 4 tokens, 3 speculative: 2 + 1 and 3 more need 2 blocks, 5 + 1 and 3 more need 3."""
    plan = Plan(groups="full:1x1x64", block_size=4, context=32, spec_tokens=3, kv_cache_memory_bytes=2**20)
    found = simulate([(0, 2, 6)], plan, policy="on_demand", step_time=1)
    assert found.timeline.tokens.tolist() == [3, 4, 5, 6, 7, 8]
    assert found.timeline.blocks.tolist() == [2, 2, 2, 3, 3, 3]


def test_a_tenant_has_no_more_slots_than_its_share():
    """Definition of the quota: 160 sequences by memory, a tenth of them."""
    plan = Plan(kv_cache_memory_bytes=40 * GIB, block_size=128, context=2048, tenant_quota_fraction=0.1)
    found = simulate([(0, 100, 10)] * 100, plan, step_time=1)
    assert found.slots == found.peak_running == evaluate(plan).capacity.batch_ceiling == 16


def test_no_more_requests_run_than_a_step_may_take_tokens():
    """Definition: each that runs writes a token; where a prompt is computed whole, a step has no such limit."""
    plan = Plan(max_num_seqs=64, max_num_batched_tokens=8, context=256)
    found = simulate([(0, 4, 50)] * 100, plan, step_time=by_work)
    assert (found.slots, found.peak_running) == (8, 8)
    assert found.busy == pytest.approx(found.mean_running / 8)
    assert simulate([(0, 4, 50)] * 100, plan, step_time=1).slots == 64


# The plan and its own


def test_policy_and_step_are_the_plans_own_where_none_is_given():
    rows = [(0, 100, 50)] * 3
    found = simulate(rows, Plan(admission="on_demand", step_s=0.05))
    assert (found.policy, found.preemption, found.makespan_s) == ("on_demand", "recompute", pytest.approx(2.5))
    assert simulate(rows, Plan()).policy == "reserve"
    assert simulate(rows, Plan(), policy="on_demand").policy == "on_demand"


def test_a_model_may_stand_for_the_one_the_plan_names():
    plan = Plan(kv_cache_memory_bytes=40 * GIB)
    other = simulate([(0, 100, 50)], plan, model=load_preset("gemma-3-27b", "model"))
    assert other.num_blocks == simulate([], Plan(model="gemma-3-27b", kv_cache_memory_bytes=40 * GIB)).num_blocks


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="none"),
        pytest.param([(0, 8192, 5), (1, 10_000, 5)], id="all rejected"),
        pytest.param(np.zeros((0, 3)), id="an empty array"),
    ],
)
@pytest.mark.parametrize("policy", ["reserve", "on_demand"])
@pytest.mark.parametrize("step_time", [pytest.param(1.0, id="constant"), pytest.param(by_work, id="by work")])
def test_nothing_to_serve_is_a_run_of_zeros(rows, policy, step_time):
    found = simulate(rows, Plan(), policy=policy, step_time=step_time, arrivals=("poisson", 2.0))
    assert (found.rejected, found.num_blocks > 0, found.slots > 0) == (len(rows), True, True)
    for name in Simulation.__dataclass_fields__:
        value = getattr(found, name)
        if isinstance(value, np.ndarray):
            assert value.size == 0
        elif name not in ("policy", "preemption", "slots", "num_blocks", "max_tokens", "rejected", "timeline", "notes"):
            assert value == 0
    assert found.timeline.steps.size == found.timeline.seconds.size == found.timeline.waiting.size == 0


def test_percentiles_are_of_what_is_defined():
    """Definition: a single token has no time between tokens."""
    found = simulate([(0, 10, 1), (0, 10, 11), (0, 10, 21)], Plan(), step_time=0.5)
    assert math.isnan(found.tpot_s[0])
    assert percentiles(found.tpot_s, (0, 0.5, 1)) == pytest.approx([0.5, 0.5, 0.5])
    assert percentiles(found.e2e_s, (0, 0.5, 1)) == pytest.approx([0.5, 5.5, 10.5])
    assert percentiles(found.tpot_s[:1]) == [None, None, None]
    assert percentiles(np.array([])) == [None, None, None]


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"policy": "fair"}, "policy: must be one of reserve, on_demand, got 'fair'", id="policy"),
        pytest.param({"policy": 5}, "policy: must be one of reserve, on_demand, got 5", id="a number for a policy"),
        pytest.param({"preemption": "x"}, "preemption: must be one of recompute, swap, got 'x'", id="preemption"),
        pytest.param({"preemption": None}, "preemption: must be one of recompute, swap, got None", id="no preemption"),
    ],
)
def test_an_option_that_is_none_is_refused_in_a_line(options, message):
    with pytest.raises(ValueError, match=message) as error:
        simulate([(0, 10, 5)], Plan(), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("step_time", "got"),
    [
        pytest.param(0, "0", id="none"),
        pytest.param(-1.5, "-1.5", id="negative"),
        pytest.param(math.nan, "nan", id="nan"),
        pytest.param(math.inf, "inf", id="endless"),
        pytest.param("20 ms", "'20 ms'", id="text"),
        pytest.param(1j, "1j", id="imaginary"),
        pytest.param([1], r"\[1\]", id="a list"),
        pytest.param([1, 2], r"\[1, 2\]", id="a longer list"),
    ],
)
def test_a_step_time_that_is_none_is_refused_in_a_line(step_time, got):
    with pytest.raises(ValueError, match=f"^step_time: must be seconds above 0 or a function, got {got}$"):
        simulate([(0, 10, 5)], Plan(), step_time=step_time)


TOO_SMALL = Plan(context=256, block_size=16, kv_cache_memory_bytes=10 * 2**21)
"""Ten blocks of 2 MiB, where a request of the context takes 16."""


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        pytest.param(Plan(tp=3), "tp: the 32 attention heads of Llama 3.1 8B must be divisible by tp, got 3", id="tp"),
        pytest.param(Plan(model="llama-9-8b"), "model: no preset named 'llama-9-8b'; nearest:", id="model"),
        pytest.param(Plan(gpu="h1000"), "gpu: no preset named 'h1000'", id="gpu"),
        pytest.param(
            TOO_SMALL, "plan: one request of 256 tokens needs 32 MiB, the pool has 20 MiB", id="a pool too small"
        ),
        pytest.param(
            TOO_SMALL.model_copy(update={"kv_cache_memory_bytes": 17 * 2**21, "spec_tokens": 20}),
            "plan: one request of 256 tokens needs 36 MiB, the pool has 34 MiB",
            id="a pool too small for speculative tokens",
        ),
        pytest.param(Plan(kv_cache_memory_bytes=0), "the pool has 0 B", id="no pool"),
        pytest.param(
            Plan(tenant_quota_fraction=0.0), "tenant_quota_fraction: is less than one sequence", id="no share"
        ),
    ],
)
def test_a_plan_that_cannot_serve_is_refused_in_a_line(plan, message):
    for rows in ([(0, 10, 5)], []):
        with pytest.raises(ValueError, match=message) as error:
            simulate(rows, plan)
        assert "\n" not in str(error.value)


# Progress and timelines


def test_progress_is_told_every_20_000_requests_and_at_the_end():
    calls = []
    rows = np.tile([0, 1, 1], (45_000, 1))
    simulate(rows, Plan(max_num_seqs=1024, context=64), step_time=1, progress=lambda *call: calls.append(call))
    done = [done for done, _ in calls]
    assert {total for _, total in calls} == {45_000}
    assert done[0] == 0
    assert done[-1] == 45_000
    assert len(done) == 4
    assert all(20_000 <= more < 20_000 + 1024 for more in np.diff(done[:-1]))
    assert max(done) == 45_000


def test_a_run_without_requests_tells_of_its_end():
    calls = []
    simulate([], Plan(), progress=lambda *call: calls.append(call))
    assert calls == [(0, 0)]


@pytest.mark.parametrize("policy", ["reserve", "on_demand"])
@given(case=crowded(), stop=st.integers(0, 10))
def test_a_run_stops_where_progress_says_no(policy, case, stop):
    """Definition: what is done is done, the others are unfinished."""
    rows, plan, _ = case
    calls = []

    def progress(done, total):
        calls.append((done, total))
        return done < stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "REQUESTS_A_CALL", 1)
        found = simulate(rows, plan, policy=policy, step_time=1, progress=progress)
    whole = simulate(rows, plan, policy=policy, step_time=1)
    assert all(0 <= done <= total == whole.completed for done, total in calls)
    assert found.completed + found.rejected + found.unfinished == len(rows)
    assert found.completed == calls[-1][0]
    assert found.unfinished == 0 or stop <= found.completed < whole.completed
    done = np.isin(whole.places, found.places)
    assert found.completed_steps.tolist() == whole.completed_steps[done].tolist()
    assert found.mean_in_system == pytest.approx(found.rate * found.mean_time_in_system, rel=1e-12)


def test_a_run_that_may_not_begin_has_done_nothing():
    found = simulate([(0, 10, 5)] * 3, Plan(), progress=lambda done, total: False)
    assert (found.steps, found.completed, found.unfinished, found.output_tokens, found.rate) == (0, 0, 3, 0, 0)


@pytest.mark.parametrize("output", [4095, 4096, 4097, 8192, 8193, 100_000])
def test_a_long_timeline_keeps_every_step_of_a_power_of_two(output):
    """Definition: 4,096 samples are thinned to every other; closed form of one request, ceil(tokens / 16) blocks."""
    plan = Plan(context=131_072, kv_cache_memory_bytes=40 * GIB)
    found = simulate([(0, 7, output)], plan, policy="on_demand", step_time=0.02)
    timeline = found.timeline
    every = int(timeline.steps[0])
    assert found.steps == output
    assert every & (every - 1) == 0
    assert timeline.steps.tolist() == list(range(every, output + 1, every))
    assert 1 <= timeline.steps.size < 4096 <= 2 * max(4096, output) / every
    assert timeline.steps.size > 1000 or output < 4096
    assert timeline.tokens.tolist() == (timeline.steps + 7).tolist()
    assert timeline.blocks.tolist() == (-(-(timeline.steps + 7) // 16)).tolist()
    assert timeline.seconds == pytest.approx(timeline.steps * 0.02, rel=1e-12)
    assert set(timeline.running.tolist()) == {1}
    assert found.mean_tokens == 7 + (output + 1) / 2
    assert found.peak_blocks == math.ceil((output + 7) / 16)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b", "qwen3-next-80b-a3b"])
def test_long_requests_between_events_hold_what_their_tokens_need(model):
    """Closed form of requests that all run at once: the sum of their blocks in every step, windows and states too."""
    plan = Plan(model=model, context=40_000, max_num_batched_tokens=256, kv_cache_memory_bytes=2**39)
    rows = [(0, 1000 * number + number, 9000 + 777 * number) for number in range(12)]
    found = simulate(rows, plan, policy="on_demand", step_time=1)
    blocks = np.zeros(found.steps, dtype=np.int64)
    for _, prompt, output in rows:
        blocks[:output] += blocks_of(plan, prompt + np.arange(1, output + 1))
    assert found.mean_blocks == blocks.sum() / found.steps
    assert found.peak_blocks == blocks.max()
    assert found.timeline.blocks.tolist() == blocks[found.timeline.steps - 1].tolist()
