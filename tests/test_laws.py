"""What must hold of every plan: more memory never hurts, more tokens never help."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan, evaluate
from kvplan.cache import batch_tokens_held

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


@given(known_plans(kv_heads=st.sampled_from((1, 2, 4, 8))))
def test_beyond_the_kv_heads_tp_saves_nothing_more(plan):
    whole, twice = (evaluate(changed(plan, tp=tp)).cache for tp in (plan.kv_heads, 2 * plan.kv_heads))
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
