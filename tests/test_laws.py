"""What must hold of every plan: more memory never hurts, more tokens never help."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from strategies import CONFIGS, SPEC_METHODS, STATE_DTYPES, known_plans, seldom

from kvplan import Plan, evaluate, load_preset, model_from_hf_config
from kvplan.cache import batch_tokens_held
from kvplan.catalog import resolve
from kvplan.specs import expanded
from kvplan.texts import groups_text

CONTEXTS = st.one_of(st.integers(1, 300), st.integers(1, 2**18), st.integers(1, 2**24))
POOLS = st.one_of(st.integers(0, 2**30), st.integers(0, 2**38), st.integers(0, 2**50))
PARALLEL = st.sampled_from((1, 2, 4, 8, 16))


def served_plans(**fixed):
    """Plans that an engine mostly accepts: a pool given in bytes, usual tp and pp, the model's own layers and heads."""
    usual = {"kv_cache_memory_bytes": POOLS, "tp": PARALLEL, "pp": st.sampled_from((1, 1, 2, 3)), "context": CONTEXTS}
    untouched = {"layers": None, "kv_heads": None, "head_dim": None}
    return known_plans(**(usual | untouched | fixed))


def changed(plan, **values):
    """The plan with some fields replaced, validated again."""
    return Plan.model_validate(plan.model_dump() | values)


def ordered(values):
    return st.tuples(values, values).map(sorted)


def ceilings(plan):
    """The ceilings of a plan the engine does not refuse."""
    report = evaluate(plan)
    assume(not report.engine.refused)
    return report.capacity


# More tokens never help


@settings(max_examples=200)
@given(served_plans(shared_prefix_tokens=0), ordered(CONTEXTS))
def test_no_ceiling_rises_with_context(plan, contexts):
    short, long = (ceilings(changed(plan, context=context)) for context in contexts)
    assert long.memory_ceiling <= short.memory_ceiling
    assert long.batch_ceiling <= short.batch_ceiling
    assert long.on_demand_ceiling <= short.on_demand_ceiling


@settings(max_examples=200)
@given(served_plans(shared_prefix_tokens=st.integers(0, 2**18)), st.data())
def test_no_ceiling_rises_with_context_beyond_a_shared_prefix(plan, data):
    beyond = st.integers(plan.shared_prefix_tokens + 1, 2**24)
    short, long = (ceilings(changed(plan, context=context)) for context in data.draw(ordered(beyond)))
    assert long.memory_ceiling <= short.memory_ceiling
    assert long.batch_ceiling <= short.batch_ceiling
    assert long.on_demand_ceiling <= short.on_demand_ceiling


@given(served_plans(), ordered(st.integers(0, 64)))
def test_speculative_slots_never_raise_a_ceiling(plan, spec_tokens):
    few, many = (ceilings(changed(plan, spec_tokens=number)) for number in spec_tokens)
    assert many.memory_ceiling <= few.memory_ceiling
    assert many.batch_ceiling <= few.batch_ceiling


@given(known_plans(), ordered(CONTEXTS))
def test_what_is_booked_never_falls_when_the_context_grows(plan, contexts):
    short, long = (evaluate(changed(plan, context=context)).cache for context in contexts)
    assert long.request_bytes_booked >= short.request_bytes_booked
    assert long.request_bytes_booked_total >= short.request_bytes_booked_total
    assert long.request_bytes_held >= short.request_bytes_held
    assert long.request_bytes_held_total >= short.request_bytes_held_total


@settings(max_examples=200)
@given(known_plans())
def test_what_is_held_never_exceeds_what_is_booked(plan):
    cache = evaluate(plan).cache
    assert 0 < cache.request_bytes_held <= cache.request_bytes_booked
    assert cache.request_bytes_held_total <= cache.request_bytes_booked_total
    assert cache.request_bytes_held <= cache.request_bytes_held_total
    assert cache.request_bytes_booked <= cache.request_bytes_booked_total
    assert cache.bytes_per_token <= cache.bytes_per_token_total


# A wider cache never helps


@st.composite
def head_counts(draw):
    """A tp and two numbers of KV heads it divides or is a multiple of, the smaller first."""
    tp = draw(PARALLEL)
    divisors = [number for number in (1, 2, 4, 8, 16) if number <= tp]
    heads = st.one_of(st.sampled_from(divisors), st.integers(1, 64).map(lambda times: times * tp))
    return tp, draw(ordered(heads))


@settings(max_examples=150)
@given(served_plans(), head_counts())
def test_no_ceiling_rises_with_kv_heads(plan, counts):
    tp, kv_heads = counts
    few, many = (ceilings(changed(plan, tp=tp, kv_heads=number)) for number in kv_heads)
    assert many.memory_ceiling <= few.memory_ceiling
    assert many.batch_ceiling <= few.batch_ceiling
    assert many.on_demand_ceiling <= few.on_demand_ceiling


@settings(max_examples=150)
@given(served_plans(), ordered(st.integers(1, 512) | st.integers(1, 65536)))
def test_no_ceiling_rises_with_head_dim(plan, head_dims):
    narrow, wide = (ceilings(changed(plan, head_dim=number)) for number in head_dims)
    assert wide.memory_ceiling <= narrow.memory_ceiling
    assert wide.batch_ceiling <= narrow.batch_ceiling
    assert wide.on_demand_ceiling <= narrow.on_demand_ceiling


@settings(max_examples=150)
@given(
    served_plans(v_dtype=None),
    st.sampled_from(
        [("int4", "fp8"), ("int4", "int8"), ("fp8", "fp8_per_token_head"), ("int8", "bf16"), ("fp16", "fp32")]
    ),
    st.sampled_from(["kv_dtype", "v_dtype"]),
)
def test_no_ceiling_rises_with_a_wider_dtype(plan, dtypes, field):
    narrow, wide = (ceilings(changed(plan, **{field: dtype})) for dtype in dtypes)
    assert wide.memory_ceiling <= narrow.memory_ceiling
    assert wide.batch_ceiling <= narrow.batch_ceiling
    assert wide.on_demand_ceiling <= narrow.on_demand_ceiling


# More memory never hurts


@settings(max_examples=200)
@given(served_plans(), ordered(POOLS))
def test_no_capacity_falls_when_the_pool_grows(plan, pools):
    small, large = (evaluate(changed(plan, kv_cache_memory_bytes=pool)) for pool in pools)
    for name in ("num_blocks", "max_concurrency", "kv_cache_tokens", "fits"):
        assert getattr(large.engine, name) >= getattr(small.engine, name), name
    for name in ("memory_ceiling", "batch_ceiling", "on_demand_ceiling", "memory_quotient", "on_demand_quotient"):
        assert getattr(large.capacity, name) >= getattr(small.capacity, name), name


@given(known_plans(), ordered(st.integers(1, 64)))
def test_the_bytes_of_a_token_on_one_device_never_rise_with_tp(plan, tps):
    few, many = (evaluate(changed(plan, tp=tp)).cache for tp in tps)
    assert many.bytes_per_token <= few.bytes_per_token
    assert many.request_bytes_booked <= few.request_bytes_booked


@given(known_plans(), ordered(st.integers(1, 64)))
def test_the_bytes_of_a_token_on_one_device_never_rise_with_pp(plan, pps):
    few, many = (evaluate(changed(plan, pp=pp)).cache for pp in pps)
    assert many.bytes_per_token <= few.bytes_per_token


@given(known_plans(kv_heads=st.sampled_from((1, 2, 4, 8)), groups=None, spec=None))
@example(Plan(model="minimax-m3", kv_heads=1))  # full layers of two shapes keep their 4 heads
def test_beyond_the_kv_heads_tp_saves_nothing_more(plan):
    heads = max((group.kv_heads for group in resolve(plan).model.groups if group.kind == "full"), default=plan.kv_heads)
    whole, twice = (evaluate(changed(plan, tp=tp)).cache for tp in (heads, 2 * heads))
    assert twice.bytes_per_token == whole.bytes_per_token
    assert twice.bytes_per_token_total == 2 * whole.bytes_per_token_total


# Sharing and admission


@settings(max_examples=200)
@given(served_plans(), ordered(st.integers(0, 300) | st.integers(0, 2**24)))
def test_a_longer_shared_prefix_never_lowers_the_memory_ceiling(plan, prefixes):
    short, long = (ceilings(changed(plan, shared_prefix_tokens=tokens)) for tokens in prefixes)
    assert long.memory_ceiling >= short.memory_ceiling
    assert long.batch_ceiling >= short.batch_ceiling


@settings(max_examples=200)
@given(served_plans())
def test_on_demand_is_never_below_the_reservation(plan):
    capacity = ceilings(plan)
    assert capacity.on_demand_ceiling >= capacity.memory_ceiling >= capacity.batch_ceiling
    assert capacity.on_demand_quotient >= capacity.memory_quotient


@settings(max_examples=200)
@given(served_plans(shared_prefix_tokens=0))
def test_a_ceiling_of_requests_fits_in_the_pool_and_one_more_does_not(plan):
    report = evaluate(plan)
    assume(not report.engine.refused)
    number, booked = report.capacity.memory_ceiling, report.cache.request_bytes_booked
    assert number * booked <= report.memory.pool_bytes < (number + 1) * booked + report.engine.bytes_per_block


@given(
    st.integers(1, 5000),
    st.integers(1, 2**18),
    st.integers(0, 2**18),
    st.sampled_from((1, 16, 24)),
    st.integers(1, 5000),
)
def test_sharing_a_prefix_never_costs_tokens_and_every_request_has_one_of_its_own(
    sequences, tokens, prefix, block_size, more
):
    held = batch_tokens_held(sequences=sequences, tokens=tokens, shared_prefix_tokens=prefix, block_size=block_size)
    longer = batch_tokens_held(
        sequences=sequences, tokens=tokens, shared_prefix_tokens=prefix + more, block_size=block_size
    )
    assert longer <= held <= sequences * tokens
    assert longer >= tokens - 1 + sequences


# Every architecture


every_architecture = pytest.mark.parametrize("model", sorted(CONFIGS))
ENGINE_SETTINGS = {
    "gpu": st.sampled_from(("h100-sxm", "a100-80-sxm", "b200", "l40s", "rtx4090")),
    "tp": PARALLEL,
    "pp": st.sampled_from((1, 1, 2, 3)),
    "dcp": seldom(st.sampled_from((2, 4))).map(lambda dcp: dcp or 1),
    "kv_dtype": st.sampled_from(("auto", "auto", "fp8", "bf16", "int8_per_token_head", "int4")),
    "block_size": st.none() | st.sampled_from((16, 64, 128, 256)),
    "mamba_ssm_cache_dtype": st.none() | st.sampled_from(STATE_DTYPES),
    "usage": st.sampled_from(("server", "llm_class")),
    "max_num_seqs": st.none() | st.sampled_from((1, 16, 1024)),
    "max_num_batched_tokens": st.none() | st.sampled_from((512, 1000, 8192)),
    "async_scheduling": st.booleans(),
    "enable_prefix_caching": st.booleans(),
    "disable_hybrid_kv_cache_manager": seldom(st.just(True)).map(bool),
    "spec_method": seldom(st.sampled_from(SPEC_METHODS)),
}


@cache
def spec_of(model):
    return model_from_hf_config(CONFIGS[model], id=model)


def settings_of_an_engine(**fixed):
    """Plans of a pool and a context with any settings the cache of an architecture depends on."""
    always = {"context": CONTEXTS, "kv_cache_memory_bytes": POOLS, "spec_tokens": st.sampled_from((0, 0, 1, 5))}
    optional = {name: values for name, values in ENGINE_SETTINGS.items() if name not in fixed}
    return st.fixed_dictionaries(always | fixed, optional=optional).map(lambda fields: Plan(**fields))


@every_architecture
@settings(max_examples=10)
@given(settings_of_an_engine())
def test_no_architecture_holds_more_than_it_books(model, plan):
    report = evaluate(plan, model=spec_of(model))
    cache = report.cache
    assert cache.request_bytes_held > 0
    assert report.engine.refused or cache.request_bytes_held <= cache.request_bytes_booked
    assert report.engine.refused or cache.request_bytes_held_total <= cache.request_bytes_booked_total
    assert cache.request_bytes_held <= cache.request_bytes_held_total


@every_architecture
@settings(max_examples=10)
@given(settings_of_an_engine(), ordered(CONTEXTS))
def test_a_longer_context_never_books_less_and_never_admits_more(model, plan, contexts):
    short, long = (evaluate(changed(plan, context=context), model=spec_of(model)) for context in contexts)
    assert long.cache.request_bytes_booked >= short.cache.request_bytes_booked
    assert long.cache.request_bytes_held >= short.cache.request_bytes_held
    assert long.cache.bytes_per_token == short.cache.bytes_per_token
    assert long.engine.blocks_per_request >= short.engine.blocks_per_request
    assert bool(long.engine.refused) == bool(short.engine.refused)
    for name in ("memory_ceiling", "batch_ceiling", "on_demand_ceiling"):
        assert getattr(long.capacity, name) <= getattr(short.capacity, name), name


@every_architecture
@settings(max_examples=6)
@given(settings_of_an_engine(), ordered(POOLS))
def test_a_larger_pool_never_serves_less_of_any_architecture(model, plan, pools):
    small, large = (evaluate(changed(plan, kv_cache_memory_bytes=pool), model=spec_of(model)) for pool in pools)
    for name in ("num_blocks", "max_concurrency", "kv_cache_tokens", "fits"):
        assert getattr(large.engine, name) >= getattr(small.engine, name), name
    for name in ("memory_ceiling", "batch_ceiling", "on_demand_ceiling"):
        assert getattr(large.capacity, name) >= getattr(small.capacity, name), name


@every_architecture
@settings(max_examples=8)
@given(settings_of_an_engine(shared_prefix_tokens=st.integers(0, 10_000)))
def test_on_demand_is_never_below_the_reservation_of_any_architecture(model, plan):
    capacity = evaluate(plan, model=spec_of(model)).capacity
    assert capacity.on_demand_ceiling >= capacity.memory_ceiling >= capacity.batch_ceiling
    assert capacity.on_demand_quotient >= capacity.memory_quotient


@every_architecture
@settings(max_examples=10)
@given(settings_of_an_engine(spec_tokens=st.just(0)))
def test_a_booking_is_its_fixed_part_and_its_slope_up_to_a_block_of_each_table(model, plan):
    """A window counts as growing while the context has not filled its reserve."""
    report = evaluate(plan, model=spec_of(model))
    assume(not report.engine.refused)
    cache, tables = report.cache, len(report.engine.groups)
    rounding = cache.request_bytes_booked - cache.request_bytes_fixed - cache.booked_bytes_per_token * plan.context
    # A float of some 10^14 bytes is off by hundredths of a byte.
    assert -1 <= rounding < tables * report.engine.bytes_per_block
    if any(cost.grows for cost in report.breakdown):
        assert cache.booked_bytes_per_token * plan.dcp >= cache.bytes_per_token
    elif plan.context == 2**24:
        assert cache.booked_bytes_per_token == 0


@every_architecture
@settings(max_examples=10)
@given(settings_of_an_engine(pp=st.just(1)))
def test_the_parts_of_a_request_add_up_to_what_it_holds_and_books(model, plan):
    report = evaluate(plan, model=spec_of(model))
    assume(not report.engine.refused)
    costs, cache = report.breakdown, report.cache
    # Half bytes are rounded up for each part.
    assert 0 <= sum(cost.bytes_held for cost in costs) - cache.request_bytes_held < len(costs)
    assert sum(cost.bytes_booked for cost in costs) == cache.request_bytes_booked
    assert sum(cost.tables for cost in costs) == len(report.engine.groups)
    assert all(cost.bytes_held <= cost.bytes_booked for cost in costs)
    assert all(cost.reason.strip() for cost in costs)


def full_shapes(spec):
    return {group.model_copy(update={"layers": 1}) for group in spec.groups if group.kind == "full"}


@pytest.mark.parametrize("model", [model for model in sorted(CONFIGS) if len(full_shapes(spec_of(model))) == 1])
@settings(max_examples=10)
@given(st.integers(1, 200))
def test_moving_the_layers_of_an_architecture_moves_its_full_layers_alone(model, layers):
    spec = spec_of(model)
    before = Counter(layer.kind for layer in expanded(spec.groups))
    setting = resolve(Plan(layers=layers), spec)
    assert Counter(layer.kind for layer in expanded(setting.model.groups)) == before | {"full": layers}
    assert full_shapes(setting.model) == full_shapes(spec)
    others = [layer for layer in expanded(spec.groups) if layer.kind != "full"]
    assert [layer for layer in expanded(setting.model.groups) if layer.kind != "full"] == others
    assert not any(note.startswith("layers") for note in setting.notes)


@pytest.mark.parametrize("model", ["gemma-3-27b", "gpt-oss-20b", "gpt-oss-120b", "llama-3.1-8b"])
@settings(max_examples=20)
@given(settings_of_an_engine())
def test_a_models_layers_as_text_give_the_models_own_numbers(model, plan):
    text = groups_text(load_preset(model, "model").groups)
    own, carried = (evaluate(changed(plan, model=model, groups=groups)) for groups in (None, text))
    for part in ("engine", "cache", "capacity", "memory", "breakdown"):
        assert getattr(carried, part) == getattr(own, part), part
