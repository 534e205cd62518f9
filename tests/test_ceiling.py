"""How many sequences fit, and which limit says so."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, evaluate
from kvplan.catalog import resolve
from kvplan.ceiling import LIMITS, ceiling_curve
from kvplan.units import GIB

EIGHT_B_BLOCK = 2_097_152
"""Bytes of a block of 16 tokens of Llama-3.1 8B in bf16."""
POOL_33_GIB = 35_755_602_739


def blocks_of(blocks, **fields):
    """Llama-3.1 8B on a pool of so many blocks."""
    return Plan(kv_cache_memory_bytes=blocks * EIGHT_B_BLOCK, **fields)


plans = st.builds(
    blocks_of,
    st.integers(0, 3000),
    context=st.integers(1, 20_000),
    tp=st.sampled_from([1, 2, 8, 16]),
    pp=st.sampled_from([1, 3]),
    kv_dtype=st.sampled_from(["auto", "fp8", "int4"]),
    block_size=st.sampled_from([None, 1, 32, 100]),
    max_num_seqs=st.sampled_from([None, 1, 10, 500]),
    spec_tokens=st.sampled_from([0, 1, 5, 64]),
    shared_prefix_tokens=st.sampled_from([0, 15, 1000, 30_000]),
    tenant_quota_fraction=st.sampled_from([None, 0, 0.25, 0.5, 1]),
    workload=st.sampled_from(["azure-conversation", "seeded-200", "auto"]),
)


# What binds


@pytest.mark.parametrize(
    ("fields", "batch", "binding"),
    [
        pytest.param({}, 10, "memory", id="memory alone"),
        pytest.param({"max_num_seqs": 10}, 10, "memory", id="memory and max_num_seqs alike"),
        pytest.param({"tenant_quota_fraction": 1.0}, 10, "memory", id="memory and a whole quota alike"),
        pytest.param({"tenant_quota_fraction": 1.0, "max_num_seqs": 10}, 10, "memory", id="all three alike"),
        pytest.param({"tenant_quota_fraction": 0.5}, 5, "tenant_quota", id="half a quota"),
        pytest.param({"tenant_quota_fraction": 0.5, "max_num_seqs": 5}, 5, "tenant_quota", id="quota and sequences"),
        pytest.param({"tenant_quota_fraction": 0.5, "max_num_seqs": 4}, 4, "max_num_seqs", id="sequences below quota"),
        pytest.param({"tenant_quota_fraction": 0.5, "max_num_seqs": 6}, 5, "tenant_quota", id="quota below sequences"),
        pytest.param({"max_num_seqs": 9}, 9, "max_num_seqs", id="sequences below memory"),
        pytest.param({"tenant_quota_fraction": 0}, 0, "tenant_quota", id="a quota of nothing"),
        pytest.param({"tenant_quota_fraction": 0.099}, 0, "tenant_quota", id="a quota of less than one"),
    ],
)
def test_the_smallest_limit_binds_and_ties_are_named_in_order(fields, batch, binding):
    """Worked example: 64 blocks a request, a pool of 640 and a little."""
    report = evaluate(blocks_of(650, context=1024, **fields))
    assert report.engine.fits
    assert report.capacity.memory_ceiling == 10
    assert report.capacity.batch_ceiling == batch
    assert report.capacity.binding == binding


def test_limits_are_named_in_their_order():
    """Order in which ties are named."""
    assert LIMITS == ("does_not_fit", "memory", "tenant_quota", "max_num_seqs")


@pytest.mark.parametrize("fields", [{}, {"tenant_quota_fraction": 0}, {"max_num_seqs": 1}])
def test_a_plan_that_does_not_start_runs_nothing_and_keeps_its_quotient(fields):
    """vLLM 0.32 planner: one request fills the pool, the null block has no place."""
    capacity = evaluate(blocks_of(64, context=1024, **fields)).capacity
    assert capacity.memory_ceiling == 1
    assert capacity.memory_quotient == 1
    assert capacity.batch_ceiling == 0
    assert capacity.binding == "does_not_fit"
    started = evaluate(blocks_of(65, context=1024)).capacity
    assert (started.batch_ceiling, started.binding) == (1, "memory")


@pytest.mark.parametrize(
    ("fraction", "quota"),
    [
        pytest.param(None, None, id="no quota"),
        pytest.param(0, 0, id="nothing"),
        pytest.param(0.05, 0, id="less than one"),
        pytest.param(0.5, 5, id="half"),
        pytest.param(0.75, 7, id="three quarters, rounded down"),
        pytest.param(1, 10, id="everything"),
    ],
)
def test_a_quota_is_a_fraction_of_what_memory_holds_rounded_down(fraction, quota):
    """Worked example: of 10 sequences; an integer, or None where there is none."""
    found = evaluate(blocks_of(640 + 1, context=1024, tenant_quota_fraction=fraction)).capacity.tenant_quota
    assert found == quota
    assert type(found) is type(quota)


def test_the_sequences_the_engine_runs_are_its_default_for_the_device():
    """vLLM 0.32 defaults: 1,024 on a large device, 256 on a small one and on an A100."""
    for gpu, sequences in {"h100-sxm": 1024, "b200": 1024, "a100-80-sxm": 256, "l40s": 256, "l4": 256}.items():
        capacity = evaluate(Plan(gpu=gpu, context=16, kv_cache_memory_bytes=40 * GIB)).capacity
        assert capacity.max_num_seqs == capacity.batch_ceiling == sequences
        assert capacity.binding == "max_num_seqs"


# Formulas


@given(plans)
def test_the_ceilings_follow_their_formulas(plan):
    """(num_blocks - s) // (blocks_per_request - s), s whole blocks of the prefix; on demand by the resident mean."""
    report = evaluate(plan)
    engine, capacity = report.engine, report.capacity
    block_size = plan.block_size or 16
    shared = min(plan.shared_prefix_tokens, plan.context - 1) // block_size
    own = math.ceil((plan.context + plan.spec_tokens) / block_size) - shared
    free = max(0, engine.num_blocks - shared)
    assert capacity.memory_ceiling == free // own
    assert capacity.memory_quotient == pytest.approx(free / own, rel=1e-15)
    quota = plan.tenant_quota_fraction
    assert capacity.tenant_quota == (None if quota is None else math.floor(quota * (free // own)))
    resident_blocks = (capacity.resident_mean_tokens + block_size / 2) / block_size
    assert capacity.on_demand_ceiling == max(free // own, math.floor(free / resident_blocks))
    limits = [free // own, capacity.max_num_seqs, *([] if quota is None else [capacity.tenant_quota])]
    assert capacity.batch_ceiling == (min(limits) if engine.fits else 0)
    assert (capacity.binding == "does_not_fit") == (not engine.fits)


@given(plans)
def test_on_demand_never_admits_fewer_than_reservation(plan):
    """Both meet for full-length requests: the mean is at most the declared maximum."""
    capacity = evaluate(plan).capacity
    assert capacity.on_demand_ceiling >= capacity.memory_ceiling
    assert capacity.on_demand_quotient >= capacity.memory_quotient
    assert capacity.on_demand_ceiling == math.floor(capacity.on_demand_quotient)
    assert 1 <= capacity.resident_mean_tokens <= plan.context
    assert 0 <= capacity.clipped_share <= 1


def test_requests_that_use_their_whole_context_gain_nothing_on_demand_but_what_they_have_yet_to_write():
    """Worked example: prompts of 1,000 and 24 tokens to write in a context of 1,024 hold 1,012.5 on average."""
    plan = blocks_of(
        6400, context=1024, workload="auto", prompt_mean=1000, output_mean=24, output_dist="fixed", block_size=16
    )
    capacity = evaluate(plan).capacity
    assert capacity.resident_mean_tokens == 1012.5
    assert capacity.memory_ceiling == 100
    assert capacity.on_demand_ceiling == math.floor(6400 * 16 / (1012.5 + 8)) == 100
    assert capacity.clipped_share == 0


def test_speculative_slots_come_on_top_of_the_context():
    """Worked example: 4 extra positions open a 65th block; one slot that still has a place opens none."""
    ceilings = {
        (context, spec): evaluate(blocks_of(64 * 65, context=context, spec_tokens=spec)).capacity.memory_ceiling
        for context in (1024, 1020)
        for spec in (0, 4, 5)
    }
    assert ceilings == {(1024, 0): 65, (1024, 4): 64, (1024, 5): 64, (1020, 0): 65, (1020, 4): 65, (1020, 5): 64}


def test_speculative_slots_do_not_enter_the_start_check():
    """Worked example: 65 blocks start one request of 64, but hold none of 66: memory binds at 0."""
    report = evaluate(blocks_of(65, context=1024, spec_tokens=32))
    assert report.engine.fits
    assert (report.capacity.memory_ceiling, report.capacity.batch_ceiling) == (0, 0)
    assert report.capacity.binding == "memory"


def test_a_shared_prefix_leaves_room_for_more():
    """Worked example: of 64 blocks a request 62 are common, so 640 hold (640 - 62) // 2 requests."""
    plan = blocks_of(640, context=1024, shared_prefix_tokens=1000)
    assert evaluate(plan).capacity.memory_ceiling == 289
    assert evaluate(plan.model_copy(update={"shared_prefix_tokens": 0})).capacity.memory_ceiling == 10
    assert evaluate(plan.model_copy(update={"shared_prefix_tokens": 15})).capacity.memory_ceiling == 10


@given(st.integers(1, 4000), st.integers(1, 20_000), st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_longer_common_prefix_never_admits_fewer(blocks, context, first, second):
    """Monotone wherever one request fits: every shared block is paid once instead of by each."""
    shorter, longer = (
        evaluate(blocks_of(blocks, context=context, shared_prefix_tokens=prefix)).capacity.memory_ceiling
        for prefix in sorted((first, second))
    )
    assert longer >= shorter


@given(st.integers(0, 4000), st.integers(1, 20_000), st.integers(0, 1000), st.integers(0, 1000))
def test_the_ceiling_rises_with_the_pool_and_falls_with_the_context(blocks, context, more_blocks, more_context):
    """Monotone in both."""
    here = evaluate(blocks_of(blocks, context=context)).capacity
    larger = evaluate(blocks_of(blocks + more_blocks, context=context)).capacity
    longer = evaluate(blocks_of(blocks, context=context + more_context)).capacity
    assert larger.memory_ceiling >= here.memory_ceiling >= longer.memory_ceiling
    assert larger.batch_ceiling >= here.batch_ceiling >= longer.batch_ceiling
    assert larger.on_demand_ceiling >= here.on_demand_ceiling


# Over many contexts


@given(plans, st.lists(st.integers(1, 200_000), min_size=1, max_size=8))
def test_a_curve_is_the_report_at_each_context(plan, contexts):
    """The same formulas over an array; where one request does not start, the curve is at 0."""
    curve = ceiling_curve(resolve(plan), np.array(contexts))
    for index, context in enumerate(contexts):
        report = evaluate(plan.model_copy(update={"context": context}))
        capacity, starts = report.capacity, report.engine.fits
        assert curve.contexts[index] == context
        assert curve.bytes_per_block == report.engine.bytes_per_block
        assert curve.blocks_booked[index] * curve.bytes_per_block == report.cache.request_bytes_booked
        assert curve.batch_ceiling[index] == capacity.batch_ceiling
        assert str(curve.binding[index]) == capacity.binding
        assert curve.memory_ceiling[index] == (capacity.memory_ceiling if starts else 0)
        assert curve.memory_quotient[index] == (capacity.memory_quotient if starts else 0)
        assert curve.on_demand_ceiling[index] == (capacity.on_demand_ceiling if starts else 0)
        assert curve.on_demand_quotient[index] == pytest.approx(capacity.on_demand_quotient if starts else 0, rel=1e-12)


def test_the_curve_of_a_refused_plan_is_flat_at_zero():
    """Worked example: 32 query heads over 3 ranks."""
    curve = ceiling_curve(resolve(Plan(tp=3)), np.array([1, 1024, 131_072]))
    for ceiling in (curve.memory_ceiling, curve.batch_ceiling, curve.on_demand_ceiling):
        assert ceiling.tolist() == [0, 0, 0]
    assert set(curve.binding.tolist()) == {"does_not_fit"}


# The smallest tp


@pytest.mark.parametrize("context", [16, 8192, 131_072, 2**24])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"model": "llama-3.1-8b"}, id="8B on an H100"),
        pytest.param({"model": "llama-3.1-8b", "gpu": "l4"}, id="8B on an L4"),
        pytest.param({"model": "llama-3.1-70b"}, id="70B on an H100"),
        pytest.param({"model": "llama-3.1-70b", "tp": 8, "pp": 2}, id="70B over two stages"),
        pytest.param({"model": "llama-3.1-70b", "gpu": "rtx4090"}, id="70B on an RTX 4090"),
        pytest.param({"model": "llama-3.1-405b"}, id="405B on an H100"),
        pytest.param({"model": "llama-3.1-405b", "gpu": "l4"}, id="405B on an L4"),
        pytest.param({"model": "qwen2.5-7b", "gpu": "l4"}, id="28 query heads on an L4"),
        pytest.param({"model": "qwen2.5-7b", "gpu_memory_gib": 5}, id="28 query heads that only 8 ranks would hold"),
        pytest.param({"model": "gpt-3"}, id="multi-head attention on an H100"),
        pytest.param({"kv_cache_memory_bytes": GIB}, id="a pool of 1 GiB as given"),
        pytest.param({"kv_cache_memory_bytes": 0}, id="no pool as given"),
    ],
)
def test_the_smallest_tp_is_the_first_power_of_two_that_serves(fields, context):
    """Brute force over 1, 2, 4, ... 64: every report on its own."""
    plan = Plan(context=context, **fields)
    reports = {tp: evaluate(plan.model_copy(update={"tp": tp})) for tp in (1, 2, 4, 8, 16, 32, 64)}
    accepted = {tp: report for tp, report in reports.items() if report.engine.refused is None}
    starts = next((tp for tp, report in accepted.items() if report.engine.fits), None)
    leaves_pool = next((tp for tp, report in accepted.items() if report.memory.pool_bytes > 0), None)
    capacity = evaluate(plan).capacity
    assert capacity.min_tp == starts
    assert capacity.min_tp_weights == leaves_pool


def test_weights_may_leave_a_pool_long_before_a_request_starts():
    """Worked example: 70B in bf16 at 131,072 tokens leaves a pool on two H100 but starts on four."""
    capacity = evaluate(Plan(model="llama-3.1-70b", context=131_072)).capacity
    assert (capacity.min_tp_weights, capacity.min_tp) == (2, 4)


def test_a_refused_tp_still_learns_which_would_do():
    """Worked example: 32 query heads over 3 ranks."""
    report = evaluate(Plan(tp=3))
    assert report.engine.refused
    assert (report.capacity.min_tp, report.capacity.min_tp_weights) == (1, 1)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"model": "qwen2.5-7b", "engine_version": "0.7"}, id="start-up measures a step of the context"),
        pytest.param({"model": "falcon-mamba-7b"}, id="nothing depends on the context"),
        pytest.param({"model": "llama-3.1-8b", "mem_fraction_static": 0.5}, id="SGLang"),
    ],
)
def test_a_curve_is_the_ceiling_of_a_plan_at_each_context(fields):
    contexts = [100, 1000, 8192, 32_768, 40_000]
    curve = ceiling_curve(resolve(Plan(**fields)), np.array(contexts))
    single = [evaluate(Plan(**fields, context=context)).capacity for context in contexts]
    assert list(curve.batch_ceiling) == [found.batch_ceiling for found in single]
    assert list(curve.memory_ceiling) == [found.memory_ceiling for found in single]
    assert list(curve.binding) == [found.binding for found in single]
