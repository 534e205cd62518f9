"""What a batch yields: published ridge points, Little's law, laws of every plan, and the simulator beside it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import SERVED, known_plans

from kvplan import Plan, evaluate, load_preset, pool
from kvplan.catalog import resolve
from kvplan.engine import layout
from kvplan.lengths import draw
from kvplan.roofline import Reach
from kvplan.simulate import simulate
from kvplan.throughput import (
    at_rate,
    critical_batch,
    engine,
    first_token_s,
    kv_equals_weights_batch,
    largest_batch,
    little,
    operate,
)

ONE_CUT = 1 + 1e-9
"""A law holds but for the last digits of a float."""
FLAT = 1.005
"""Where a device computes all the time nothing yields more: the closed form says so to half a percent."""
READ_8B = 2 * (8_030_261_248 - 128_256 * 4_096)
"""Bytes of the weights of Llama 3.1 8B that a step reads."""
ROOMY = {"workload": "auto", "output_dist": "fixed", "kv_cache_memory_bytes": 2**42, "context": 131_072}
"""A pool that never ends, and requests of one length."""


def engine_of(plan):
    """How the plan runs, where an engine does not refuse it and its step time is known."""
    setting = resolve(plan)
    shape = layout(setting)
    return None if shape.refused else engine(setting)


def ridge(setting):
    return critical_batch(setting, engine(setting))


def known_engine(plan, **changes):
    found = engine_of(Plan.model_validate(plan.model_dump() | changes))
    assume(found is not None)
    return found


# Ridge points


@pytest.mark.parametrize(
    ("gpu", "tokens"),
    [
        ("t4", 203), ("v100-16", 139), ("v100-32", 139), ("a10g", 117), ("l4", 403), ("l40s", 419),
        ("a100-40-sxm", 201), ("a100-80-sxm", 153), ("a100-80-pcie", 161), ("h100-sxm", 295), ("h100-pcie", 378),
        ("h100-nvl", 212), ("h200", 206), ("h20", 37), ("b200", 281), ("b300", 281), ("gb200", 312), ("gb10", 458),
        ("rtx4090", 164), ("rtx5090", 117), ("rtx-pro-6000", 281), ("mi300x", 247), ("mi325x", 218), ("mi355x", 312),
        ("gaudi3", 496), ("tpu-v5e", 241), ("tpu-v5p", 166), ("tpu-v6e", 560),
    ],
)  # fmt: skip
def test_computing_takes_as_long_as_reading_the_weights_at_the_published_batch(gpu, tokens):
    """facts/roofline.md, section 1: 16 bits, peak over bandwidth, to the whole number."""
    assert ridge(resolve(Plan(gpu=gpu))) == pytest.approx(tokens, abs=0.5)


@pytest.mark.parametrize(("gpu", "dtype", "width", "tokens"), [("b300", "nvfp4", 0.5, 438), ("gaudi3", "fp8", 1, 248)])
def test_narrower_weights_at_the_rate_of_their_units_have_the_published_batch(gpu, dtype, width, tokens):
    """facts/roofline.md, section 1, for a model all of whose weights are so wide."""
    setting = resolve(Plan(gpu=gpu, weight_dtype=dtype, weights_gib=1))
    narrow = {"unquantized_parameters": 0, "input_embedding_parameters": 0, "parameters": 8_000_000_000}
    whole = replace(setting, model=setting.model.model_copy(update=narrow), weight_bytes=int(8e9 * width))
    assert ridge(whole) == pytest.approx(tokens, abs=0.5)


@pytest.mark.parametrize("dtype", [None, "fp32"])
@pytest.mark.parametrize("fields", [{}, {"model": "llama-2-70b", "tp": 8}, {"model": "llama-3.2-1b", "pp": 2}])
def test_the_critical_batch_of_dense_weights_is_that_of_the_device_and_their_width(fields, dtype):
    expected = 989.4e12 / 3.35e12 * (2 if dtype else 1)
    assert ridge(resolve(Plan(weight_dtype=dtype, **fields))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "total", "active"),
    [
        # Mixtral: all but the input table over the same with 2 of 8 experts; Qwen3 30B: 8 of 128
        ("mixtral-8x7b-v0.1", 46_571_720_704, 12_748_853_248),
        ("qwen3-30b-a3b", 30_220_957_696, 3_041_867_776),
    ],
)
def test_experts_multiply_the_critical_batch_by_all_over_active(model, total, active):
    """facts/models.json: parameters without the input embedding, and active ones."""
    assert ridge(resolve(Plan(model=model))) == pytest.approx(989.4e12 / 3.35e12 * total / active, rel=1e-6)


def test_nothing_is_known_of_a_device_without_flop_per_s_or_of_a_model_without_weights():
    setting = resolve(Plan())
    bare = setting.gpu.model_copy(update={"bf16_flop_per_s": None, "fp16_flop_per_s": None})
    assert engine(replace(setting, gpu=bare)) is None
    assert engine_of(Plan(weights_gib=0)) is None


@pytest.mark.parametrize(("held", "batch"), [(4_096, 28), (1_024, 112), (131_072, 0.874)])
def test_caches_are_as_many_bytes_as_the_weights_at_the_published_batch(held, batch):
    """facts/roofline.md: Llama 3.1 8B at 4,096 tokens, 15.0e9 / (4,096 x 131,072) = 28."""
    found = engine_of(Plan())
    at = replace(found, demand=replace(found.demand, held=held))
    assert kv_equals_weights_batch(at) == pytest.approx(READ_8B / (held * 131_072))
    assert kv_equals_weights_batch(at) == pytest.approx(batch, rel=5e-3)


def test_a_model_that_reads_no_cache_has_no_such_batch():
    found = engine_of(Plan())
    bare = replace(found.step, work=replace(found.step.work, reads=(Reach(math.inf, 0.0),)))
    assert kv_equals_weights_batch(replace(found, step=bare)) is None


# The mean request


@pytest.mark.parametrize(
    ("fields", "prompt", "computed", "attended", "output", "held"),
    [
        # Steps that decode begin with the second token: 5 + 2 to 5 + 200.
        ({"prompt_mean": 5, "output_mean": 200}, 5, 5, 2.5, 200, 106),
        ({"prompt_mean": 1_000, "output_mean": 2}, 1_000, 1_000, 500, 2, 1_002),
        ({"prompt_mean": 1_000, "output_mean": 1}, 1_000, 1_000, 500, 1, 1_001),
        # Found ones come first, so that the others attend to them: (400 + 1,000) / 2.
        ({"prompt_mean": 1_000, "output_mean": 9, "prefix_hit_rate": 0.4}, 1_000, 600, 700, 9, 1_005.5),
        ({"prompt_mean": 1_000, "output_mean": 9, "shared_prefix_tokens": 500}, 1_000, 504, 748, 9, 1_005.5),
        # A prompt that does not go beyond the prefix has none of it.
        ({"prompt_mean": 100, "output_mean": 9, "shared_prefix_tokens": 500}, 100, 100, 50, 9, 105.5),
        # Cut to the context.
        ({"prompt_mean": 1_000, "output_mean": 100, "context": 1_050}, 1_000, 1_000, 500, 50, 1_026),
    ],
)
def test_a_mean_request_of_one_length_by_hand(fields, prompt, computed, attended, output, held):
    found = engine_of(Plan(**(ROOMY | fields))).demand
    assert (found.prompt, found.computed, found.attended, found.output) == pytest.approx(
        (prompt, computed, attended, output)
    )
    assert found.held == pytest.approx(held)


@pytest.mark.parametrize("fields", [{"prefix_hit_rate": 0.4}, {"shared_prefix_tokens": 500}])
def test_nothing_is_found_where_prefixes_are_not_cached(fields):
    plan = Plan(**ROOMY, prompt_mean=1_000, enable_prefix_caching=False, **fields)
    assert engine_of(plan).demand.computed == 1_000


@pytest.mark.parametrize("workload", ["azure-conversation", "azure-code", "lmsys-chat"])
def test_the_mean_request_of_a_workload_is_that_of_requests_drawn_from_it(workload):
    """Against 400,000 drawn requests, request by request."""
    plan = Plan(workload=workload, context=131_072)
    found = engine_of(plan).demand
    prompts, outputs = (values.astype(float) for values in draw(resolve(plan).lengths, 400_000, seed=5))
    assert found.prompt == pytest.approx(prompts.mean(), rel=0.01)
    assert found.output == pytest.approx(outputs.mean(), rel=0.01)
    assert found.attended == pytest.approx((prompts**2).sum() / 2 / prompts.sum(), rel=0.02)
    held = (prompts * (outputs - 1) + outputs * (outputs + 1) / 2 - 1).sum() / (outputs - 1).sum()
    assert found.held == pytest.approx(held, rel=0.02)


@pytest.mark.parametrize("output", [1, 1.2, 2, 5])
def test_short_outputs_are_of_at_least_one_token(output):
    """Against 400,000 exponential lengths, those below one token of one; drawn ones are rounded besides."""
    plan = Plan(**(ROOMY | {"output_dist": "exponential", "output_mean": output, "prompt_mean": 1_000}))
    found = engine_of(plan).demand
    drawn = np.maximum(1, np.random.default_rng(3).exponential(output, 400_000))
    assert found.output == pytest.approx(drawn.mean(), rel=0.01)
    held = (1_000 * (drawn - 1) + drawn * (drawn + 1) / 2 - 1).sum() / (drawn - 1).sum()
    assert found.held == pytest.approx(held, rel=0.01)


# A prompt, and a steady state


def test_a_prompt_is_computed_in_as_few_steps_as_it_takes():
    """5,000 tokens with 2,048 a step: two full ones and 904, each of whose tokens attends to 2,500 on average."""
    found = engine_of(Plan(**ROOMY, prompt_mean=5_000, max_num_batched_tokens=2_048))
    step = found.step.step_s
    assert found.step.attended == 2_500
    assert first_token_s(found) == pytest.approx(2 * step(2_048, 0, 2_048) + step(904, 0, 904))
    held = 8 * found.demand.held
    room = 2_048 - 8  # beside eight that decode
    beside = 2 * step(room, 8, held + room) + step(5_000 - 2 * room, 8, held + 5_000 - 2 * room)
    assert first_token_s(found, 8) == pytest.approx(beside)


def test_drafted_tokens_take_room_of_prompts():
    """Eight that decode and try three more each leave 2,048 - 32."""
    plan = Plan(**ROOMY, prompt_mean=2_016, max_num_batched_tokens=2_048, spec_method="ngram", spec_tokens=3)
    found = engine_of(plan)
    held = 8 * found.demand.held
    assert first_token_s(found, 8) == pytest.approx(found.step.step_s(2_016, 8, held + 2_016))


def test_one_request_alone_is_prefilled_and_decodes():
    found = engine_of(Plan(**ROOMY, prompt_mean=1_000, output_mean=200))
    alone, step = operate(found, 1), found.step.step_s(0, 1, found.demand.held)
    assert alone.ttft_s == pytest.approx(first_token_s(found))
    assert alone.tpot_s == alone.step_s == pytest.approx(step)
    assert alone.e2e_s == pytest.approx(first_token_s(found) + 199 * step)
    assert alone.tokens_per_s == pytest.approx(200 / alone.e2e_s)


def test_a_saturated_replica_computes_full_steps():
    """Prompts of 8,192 for 64 tokens: a step of 8,192 tokens holds d that decode and d / 63 prompts."""
    found = engine_of(Plan(**ROOMY, prompt_mean=8_192, output_mean=64, max_num_batched_tokens=8_192))
    busy = operate(found, 4_096)
    assert busy.decoding == pytest.approx(8_192 / (1 + 8_192 / 63), rel=1e-3)
    assert busy.requests_per_s == pytest.approx(busy.decoding / (63 * busy.step_s), rel=1e-3)


@pytest.mark.parametrize(
    "fields",
    [
        {"output_mean": 1},
        {"output_mean": 1, "output_dist": "fixed"},
        {"output_mean": 1, "output_dist": "fixed", "prompt_mean": 20_000, "context": 32_768},
        {"output_mean": 1.3, "output_dist": "fixed"},
        {"prompt_mean": 9_000},  # longer than the context, so that one token is left
        {"prompt_mean": 8_190, "output_dist": "fixed"},
        {"workload": "mooncake-conversation", "context": 300},
        {"context": 1},
    ],
)
@pytest.mark.parametrize("batch", [1, 2, 16, 400])
def test_requests_of_hardly_any_output_come_at_rates_that_their_prompts_allow(fields, batch):
    """No more prompt tokens a second than full steps carry."""
    found = engine_of(Plan(**({"workload": "auto", "kv_cache_memory_bytes": 2**42} | fields)))
    at, most = operate(found, batch), found.max_num_batched_tokens
    carried = most / found.step.step_s(most, 0, most)
    assert at.ttft_s > 0
    assert at.tpot_s > 0
    assert 0 < at.requests_per_s * max(found.demand.computed, 1) < 1.3 * carried
    assert at.requests_per_s * at.e2e_s == pytest.approx(batch)


@pytest.mark.parametrize(
    ("given_two", "third"),
    [
        ({"rate": 3.125, "time_s": 4.48}, 14.0),
        ({"concurrency": 14, "time_s": 4.48}, 3.125),
        ({"concurrency": 14, "rate": 3.125}, 4.48),
    ],
)
def test_little_gives_the_third_of_two(given_two, third):
    assert little(**given_two) == pytest.approx(third)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "exactly two of concurrency, rate and time_s are needed, got 0"),
        ({"rate": 1}, "exactly two of concurrency, rate and time_s are needed, got 1"),
        ({"rate": 1, "time_s": 1, "concurrency": 1}, "exactly two of concurrency, rate and time_s are needed, got 3"),
        ({"rate": 0, "time_s": 1}, "rate: must be above 0, got 0"),
        ({"concurrency": 3, "time_s": -1}, "time_s: must be above 0, got -1"),
        ({"concurrency": math.inf, "rate": 1}, "concurrency: must be above 0, got inf"),
        ({"concurrency": math.nan, "rate": 1}, "concurrency: must be above 0, got nan"),
    ],
)
def test_little_names_what_it_cannot_take(values, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        little(**values)


# Laws

BATCHES = st.integers(1, 2_000)
SERVED_REQUESTS = SERVED | {
    "workload": st.just("auto") | st.sampled_from(("azure-conversation", "azure-code", "mooncake-conversation")),
    "table": st.none(),
    "groups": st.none(),
    "spec": st.none(),
}
WITH_OUTPUTS = SERVED_REQUESTS | {
    "output_mean": st.floats(10, 3_000),
    "context": st.sampled_from((8_192, 32_768, 131_072)),
}


def ordered(values):
    return st.tuples(values, values).map(sorted)


@settings(max_examples=150)
@given(known_plans(**SERVED_REQUESTS), ordered(BATCHES))
def test_no_time_of_a_request_falls_with_the_batch_and_littles_law_holds(plan, batches):
    found = known_engine(plan)
    few, many = (operate(found, batch) for batch in batches)
    assert few.tpot_s <= many.tpot_s * ONE_CUT
    assert few.ttft_s <= many.ttft_s * ONE_CUT
    for batch, at in zip(batches, (few, many), strict=True):
        assert min(at.ttft_s, at.tpot_s, at.requests_per_s) > 0
        assert at.requests_per_s * at.e2e_s == pytest.approx(batch)
        assert at.ttft_s + (found.demand.output - 1) * at.tpot_s == pytest.approx(at.e2e_s)
        assert at.tokens_per_s == pytest.approx(at.requests_per_s * found.demand.output)
        assert at.decoding <= batch


@settings(max_examples=150)
@given(known_plans(**WITH_OUTPUTS), ordered(BATCHES))
def test_no_throughput_falls_with_the_batch(plan, batches):
    found = known_engine(plan)
    assume(found.demand.output > 10)
    few, many = (operate(found, batch) for batch in batches)
    assert few.tokens_per_s <= many.tokens_per_s * FLAT


POOLS = st.integers(2**30, 2**40)


@given(known_plans(**SERVED_REQUESTS | {"batch": st.none()}), ordered(POOLS))
def test_no_throughput_at_the_ceiling_falls_when_the_pool_grows(plan, pools):
    small, large = (
        evaluate(Plan.model_validate(plan.model_dump() | {"kv_cache_memory_bytes": pool})).throughput for pool in pools
    )
    assert small.batch <= large.batch
    assert 0 <= small.tokens_per_s <= large.tokens_per_s * FLAT


@given(known_plans(**WITH_OUTPUTS), BATCHES, st.floats(0.01, 1.5))
def test_a_rate_is_met_by_as_few_as_it_takes_or_not_at_all(plan, most, part):
    found = known_engine(plan)
    assume(found.demand.output > 10)
    rate = part * operate(found, most).requests_per_s
    at = at_rate(found, rate, most)
    if part > 1:
        assert at is None
    elif rate <= operate(found, 1).requests_per_s:
        assert at == operate(found, 1)
    else:
        assert 1 <= at.concurrency <= most
        assert at.requests_per_s == pytest.approx(rate)


@given(
    known_plans(**WITH_OUTPUTS),
    st.integers(1, 600),
    st.sampled_from((0.999, 1.001)),
    st.sampled_from(("tpot_s", "ttft_s", "e2e_s")),
)
def test_the_largest_batch_meets_its_rule_and_none_beyond_does(plan, batch, part, name):
    found = known_engine(plan)
    limit = part * getattr(operate(found, batch), name)
    largest = largest_batch(found, lambda at: getattr(at, name) <= limit, 1_000)
    met = [getattr(operate(found, each), name) <= limit for each in range(1, 1_001, 7)]
    assert largest == 0 or getattr(operate(found, largest), name) <= limit
    assert largest == 1_000 or getattr(operate(found, largest + 1), name) > limit
    assert met == [each <= largest for each in range(1, 1_001, 7)]


@given(known_plans(**SERVED_REQUESTS | {"enable_prefix_caching": st.just(True)}), ordered(st.floats(0, 1)), BATCHES)
def test_more_prefix_hits_never_cost(plan, rates, batch):
    few, many = (known_engine(plan, prefix_hit_rate=rate) for rate in rates)
    assert first_token_s(many) <= first_token_s(few) * ONE_CUT
    assert operate(few, batch).tokens_per_s <= operate(many, batch).tokens_per_s * FLAT


@given(
    known_plans(**WITH_OUTPUTS | {"spec_method": st.just("ngram"), "spec_tokens": st.integers(1, 16)}),
    ordered(st.floats(0, 1)),
    BATCHES,
)
def test_more_accepted_tokens_never_cost(plan, rates, batch):
    few, many = (known_engine(plan, acceptance_rate=rate) for rate in rates)
    assume(few.demand.output > 10)
    assert operate(few, batch).tokens_per_s <= operate(many, batch).tokens_per_s * FLAT


# The simulator beside it


def alone(**fields):
    """One request in the simulator, and in the closed form: TTFT and TPOT of each."""
    plan = Plan(**(ROOMY | {"prompt_mean": 1_000, "output_mean": 100} | fields))
    found = engine_of(plan)
    run = simulate([(0, int(plan.prompt_mean), int(plan.output_mean))], plan)
    return (run.ttft_s[0], run.tpot_s[0]), (first_token_s(found), operate(found, 1).tpot_s)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tp": 2},
        {"tp": 8, "model": "llama-3.1-70b"},
        {"pp": 2},
        {"pp": 3, "tp": 2},
        {"admission": "on_demand"},
        {"weight_dtype": "fp8", "kv_dtype": "fp8"},
        {"enforce_eager": True},
        {"model": "mixtral-8x7b-v0.1"},
        {"model": "gpt-oss-120b"},
        {"model": "deepseek-v3", "tp": 8},
        {"model": "deepseek-v3.2", "tp": 8},
        {"model": "gemma-3-27b", "prompt_mean": 1_100},  # beyond the window
        {"model": "gemma-3-27b", "prompt_mean": 800},  # within it
        {"model": "qwen3-next-80b-a3b"},
        {"model": "falcon-mamba-7b"},
        {"model": "deepseek-v4-flash"},
        {"spec_method": "ngram", "spec_tokens": 3, "acceptance_rate": 0.7},
        {"spec_method": "eagle3", "spec_tokens": 5, "acceptance_rate": 0.9, "pp": 2},
        {"spec_method": "ngram", "spec_tokens": 3},
        {"prompt_mean": 50_000, "max_num_batched_tokens": 2_048},
        {"prompt_mean": 4_096, "max_num_batched_tokens": 2_048},
        {"prompt_mean": 50_000, "pp": 2},
        {"prompt_mean": 1},
        {"output_mean": 2},
        {"prefix_hit_rate": 0.4, "enable_prefix_caching": False},
    ],
)
def test_one_request_without_a_queue_takes_in_the_simulator_what_the_closed_form_says(fields):
    found, closed = alone(**fields)
    assert found == pytest.approx(closed, rel=1e-9)


def test_one_request_of_one_token_is_its_prefill():
    (ttft_s, tpot_s), (closed_s, _) = alone(output_mean=1)
    assert ttft_s == pytest.approx(closed_s, rel=1e-9)
    assert math.isnan(tpot_s)


@pytest.mark.parametrize(
    "fields",
    [
        {"prefix_hit_rate": 0.5},
        {"prefix_hit_rate": 0.9, "prompt_mean": 8_000},
        {"prefix_hit_rate": 0.5, "model": "gemma-3-27b", "prompt_mean": 8_000},
        {"prefix_hit_rate": 1.0, "model": "mixtral-8x7b-v0.1"},
    ],
)
def test_prefix_hits_shorten_the_prefill_of_the_simulator_as_they_do_in_the_closed_form(fields):
    """With half of 1,000 tokens found, the others attend to 750 on average, not to 500."""
    found, closed = alone(**fields)
    assert found == pytest.approx(closed, rel=1e-6)


def test_the_second_request_with_a_shared_prefix_takes_what_the_closed_form_says():
    plan = Plan(**ROOMY, prompt_mean=4_000, output_mean=50, shared_prefix_tokens=3_000)
    run, found = simulate([(0, 4_000, 50), (100, 4_000, 50)], plan), engine_of(plan)
    assert run.ttft_s[1] == pytest.approx(first_token_s(found), rel=1e-9)
    assert run.tpot_s[1] == pytest.approx(operate(found, 1).tpot_s, rel=1e-9)


def test_a_sequence_that_fills_its_window_is_near_the_closed_form_of_its_mean():
    """Gemma 3 27B from 1,000 to 1,100 tokens: the window of 1,024 ends in between."""
    found, closed = alone(model="gemma-3-27b")
    assert found == pytest.approx(closed, rel=1e-4)
    assert found != pytest.approx(closed, rel=1e-9)


def test_a_prompt_beside_one_that_drafts_in_a_pipeline_takes_time():
    plan = Plan(**ROOMY, pp=2, spec_method="ngram", spec_tokens=8, acceptance_rate=1.0)
    run = simulate([(0, 100_000, 1_000), (6.5, 1, 5)], plan)
    assert run.completed == 2
    assert 0.001 < run.ttft_s[1] < 0.02


def test_a_prompt_takes_no_less_time_in_a_pipeline_in_which_others_decode():
    found = engine_of(Plan(**ROOMY, pp=4, prompt_mean=4_000))
    assert first_token_s(found, 8) > first_token_s(found)


def test_the_step_of_a_plan_takes_the_place_of_the_estimate_in_the_simulator():
    run = simulate([(0, 1_000, 10)], Plan(step_s=0.025))
    assert run.ttft_s.tolist() == [0.025]
    assert run.tpot_s[0] == pytest.approx(0.025)


def test_a_round_step_stands_in_where_it_cannot_be_estimated_and_a_note_says_so():
    plan = Plan(weights_gib=0)
    run = simulate([(0, 1_000, 10)], plan)
    assert run.ttft_s.tolist() == [0.020]
    assert run.tpot_s[0] == pytest.approx(0.020)
    assert any("step_s: cannot be estimated" in note for note in evaluate(plan).notes)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"workload": "azure-code", "max_num_seqs": 4},
        {"model": "llama-3.1-70b", "tp": 4, "admission": "on_demand"},
        {"model": "mixtral-8x7b-v0.1", "tp": 2, "pp": 2},
        {"model": "gemma-3-27b", "gpu": "h200", "spec_method": "ngram", "spec_tokens": 2, "acceptance_rate": 0.6},
        {"model": "qwen3-next-80b-a3b", "tp": 4, "prefix_hit_rate": 0.3},
    ],
)
@pytest.mark.parametrize("load", [0.3, 0.9])
def test_in_every_simulated_run_as_many_are_in_the_system_as_come_in_the_time_they_stay(fields, load):
    """L = lambda W, each measured for itself."""
    plan = Plan(**fields)
    report = evaluate(plan)
    rate = load * report.throughput.requests_per_s
    run = simulate(pool.requests_of(report.setting, 300), plan, arrivals=("poisson", rate), seed=4)
    assert run.completed == 300
    assert run.mean_in_system == pytest.approx(run.rate * run.mean_time_in_system, rel=1e-9)


def saturated(plan, batch, number):
    """Requests that end a second with all there at once and `batch` of them running, in the middle of the run."""
    report = evaluate(plan)
    run = simulate(pool.requests_of(report.setting, number), plan.model_copy(update={"max_num_seqs": batch}))
    ends = np.sort(run.e2e_s)
    first, last = number // 5, 17 * number // 20
    return (last - first) / (ends[last] - ends[first])


@pytest.mark.parametrize(
    ("fields", "batch", "number"),
    [
        ({"workload": "azure-conversation"}, 8, 1_500),
        ({"workload": "azure-conversation"}, 64, 3_000),
        ({"workload": "azure-code"}, 32, 3_000),
        ({"workload": "lmsys-chat", "model": "mixtral-8x7b-v0.1", "tp": 2}, 64, 3_000),
        ({"workload": "arxiv-summarization", "model": "llama-3.1-70b", "tp": 8}, 32, 1_500),
        ({"workload": "auto", "prompt_mean": 128, "output_mean": 512}, 128, 3_000),
        ({"workload": "auto", "prompt_mean": 8_000, "output_mean": 50}, 16, 2_000),
        ({"workload": "auto", "prompt_mean": 2_000, "output_mean": 10, "pp": 2}, 64, 3_000),
        ({"workload": "auto", "prompt_mean": 1_000, "output_mean": 100, "prefix_hit_rate": 0.6}, 64, 3_000),
        (
            {"workload": "auto", "output_mean": 200, "spec_method": "ngram", "spec_tokens": 3, "acceptance_rate": 0.7},
            32,
            2_000,
        ),
    ],
)
def test_the_simulator_is_as_fast_in_a_steady_state_as_the_closed_form(fields, batch, number):
    plan = Plan(**({"context": 131_072, "kv_cache_memory_bytes": 2**44} | fields))
    closed = operate(engine_of(plan), batch).requests_per_s
    assert closed == pytest.approx(saturated(plan, batch, number), rel=0.10)


@pytest.mark.parametrize("prompt", [100, 1_000])
def test_requests_of_one_token_end_as_fast_as_their_prompts_are_computed(prompt):
    plan = Plan(**ROOMY, prompt_mean=prompt, output_mean=1)
    assert operate(engine_of(plan), 128).requests_per_s == pytest.approx(saturated(plan, 128, 2_000), rel=0.05)


def test_a_device_has_its_own_step_in_the_report():
    """Half the bandwidth takes twice as long: A100 PCIe 80 GB has 1,935 GB/s, A100 40 GB 1,555."""
    fast, slow = (evaluate(Plan(gpu=gpu, batch=1)).throughput.decode_step_s for gpu in ("a100-80-pcie", "a100-40-pcie"))
    rates = [load_preset(gpu, "gpu").bandwidth_bytes_per_s for gpu in ("a100-80-pcie", "a100-40-pcie")]
    assert slow / fast == pytest.approx(rates[0] / rates[1])


def test_without_prefix_caching_nothing_of_a_prefix_is_shared():
    """The ceiling, the simulator and the closed form are those of a plan without a prefix, which a note says."""
    without = Plan(workload="auto", prompt_mean=3_000, output_mean=50, output_dist="fixed", enable_prefix_caching=False)
    plan = without.model_copy(update={"shared_prefix_tokens": 2_000})
    with_prefix, plain = evaluate(plan), evaluate(without)
    assert "shared_prefix_tokens: ignored, as the plan does not cache prefixes" in with_prefix.notes
    assert (with_prefix.capacity, with_prefix.throughput) == (plain.capacity, plain.throughput)
    requests = [(0, 3_000, 50)] * 20
    runs = [simulate(requests, each, policy="on_demand") for each in (plan, without)]
    assert runs[0].prefix_hit_tokens == 0
    assert (runs[0].makespan_s, runs[0].peak_blocks) == (runs[1].makespan_s, runs[1].peak_blocks)
