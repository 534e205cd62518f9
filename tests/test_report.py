"""evaluate(plan): one answer for every valid plan, with stable keys and plain numbers."""

import json
import math
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import example, given, settings
from strategies import known_plans, plans

from kvplan import Plan, evaluate, load_preset, metrics, startup, verdict
from kvplan.specs import LayerGroup, LayerState

KEYS = {
    "cache": [
        "bytes_per_token",
        "bytes_per_token_total",
        "request_bytes_held",
        "request_bytes_held_total",
        "request_bytes_booked",
        "request_bytes_booked_total",
        "request_bytes_shared",
        "request_bytes_fixed",
        "booked_bytes_per_token",
    ],
    "memory": [
        "total_bytes",
        "weight_bytes",
        "activation_bytes",
        "workspace_bytes",
        "overhead_bytes",
        "pool_bytes",
        "left_free_bytes",
        "shortfall_bytes",
        "non_torch_bytes",
        "cuda_graph_bytes",
        "pool_band_bytes",
    ],
    "engine": [
        "block_size",
        "groups",
        "bytes_per_block",
        "num_blocks",
        "blocks_per_request",
        "max_concurrency",
        "kv_cache_tokens",
        "older_token_line",
        "fits",
        "refused",
        "needed_bytes",
        "usable_bytes",
        "suggested_context",
    ],
    "capacity": [
        "memory_ceiling",
        "tenant_quota",
        "max_num_seqs",
        "batch_ceiling",
        "binding",
        "on_demand_ceiling",
        "memory_quotient",
        "on_demand_quotient",
        "resident_mean_tokens",
        "held_share",
        "clipped_share",
        "min_tp",
        "min_tp_weights",
    ],
    "batching": ["batch", "static_utilisation", "exponential_utilisation", "continuous_utilisation", "gain"],
    "throughput": [
        "batch",
        "decode_step_s",
        "tokens_per_step",
        "prefill_s",
        "tokens_per_s",
        "requests_per_s",
        "ttft_s",
        "tpot_s",
        "e2e_s",
        "critical_batch",
        "kv_equals_weights_batch",
        "binding",
        "tpot_batch",
        "ttft_batch",
    ],
    "fleet": ["replicas", "spare_replicas", "gpus", "usd_per_hour", "usd_per_million_tokens"],
    "paging": [
        "block_size",
        "mean_tokens",
        "waste_tokens",
        "waste_share",
        "waste_bytes",
        "prompt_waste_tokens",
        "life_waste_tokens",
        "contiguous_waste_tokens",
        "contiguous_waste_share",
    ],
}
ORDER = [
    "schema",
    "version",
    "plan",
    "cache",
    "memory",
    "engine",
    "capacity",
    "batching",
    "throughput",
    "fleet",
    "paging",
    "breakdown",
    "remarks",
    "notes",
    "sources",
    "resolved",
]
COST_KEYS = [
    "kind",
    "layers",
    "tables",
    "block_tokens",
    "page_bytes",
    "blocks",
    "bytes_held",
    "bytes_booked",
    "grows",
    "reason",
]
GROUP_KEYS = ["kind", "layers", "block_tokens", "page_bytes", "blocks_per_request"]
SOURCE_KEYS = [
    "layers and heads",
    "weight_bytes",
    "total_bytes",
    "activation_bytes",
    "workspace_bytes",
    "bandwidth_efficiency",
    "compute_efficiency",
    "step_overhead_s",
    "lengths",
]
JSON_TYPES = (dict, list, str, int, float, bool, type(None))


def inside(value):
    """A value and everything in it."""
    yield value
    if isinstance(value, dict):
        parts = value.values()
    elif is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    else:
        parts = value if isinstance(value, (list, tuple)) else ()
    for part in parts:
        yield from inside(part)


def with_groups(*groups):
    """Llama 3.1 8B with other layers."""
    return load_preset("llama-3.1-8b", "model").model_copy(update={"groups": groups})


FULL = LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128, value_head_dim=128)
STATE = LayerState(conv_kernel=4, conv_channels=1024, recurrent_elements=65_536)
"""A state of 3·1,024 and 65,536 elements: 137,216 bytes in two bytes an element."""
STATEFUL = [LayerGroup(kind=kind, layers=8, state=STATE) for kind in ("mamba1", "mamba2", "gated_deltanet", "kda")]
STATEFUL.append(LayerGroup(kind="short_conv", layers=8, state=LayerState(conv_kernel=3, conv_channels=2048)))
ODD_GROUPS = [
    (LayerGroup(kind="sliding", layers=8, kv_heads=8, head_dim=128, value_head_dim=128, window=1024), 1024 * 32_768),
    (LayerGroup(kind="chunked", layers=8, kv_heads=8, head_dim=128, value_head_dim=128, window=2048), 2048 * 32_768),
    (LayerGroup(kind="mla", layers=8, kv_heads=1, head_dim=576), 8192 * 8 * 576 * 2),
    (LayerGroup(kind="mla", layers=8, kv_heads=1, head_dim=576, index_dim=128), 8192 * 8 * (576 * 2 + 132)),
    *((group, 8 * 137_216) for group in STATEFUL[:-1]),
    (STATEFUL[-1], 8 * 2 * 2048 * 2),
    (LayerGroup(kind="compressed", layers=8, kv_heads=1, head_dim=512, window=128), 8 * 128 * 584),
]
"""Layers that are not plain full attention, with what eight of them hold of a request of 8,192 tokens, by hand."""


# One answer for every valid plan


@settings(max_examples=400)
@given(plans())
def test_any_valid_plan_has_a_report_that_json_can_hold(plan):
    report = evaluate(plan).to_dict()
    assert json.loads(json.dumps(report, allow_nan=False)) == report


@settings(max_examples=200)
@given(plans())
def test_numbers_in_a_report_are_pythons_own(plan):
    report = evaluate(plan)
    assert {type(value) for value in inside(report.to_dict())} <= set(JSON_TYPES)
    parts = [getattr(report, name) for name in KEYS]
    assert not {type(value).__module__ for value in inside(parts)} & {"numpy"}


@given(plans())
def test_counts_and_bytes_are_whole_numbers(plan):
    report = evaluate(plan).to_dict()
    whole = dict(report["memory"])
    if plan.workspace_gib is not None or report["resolved"] is None:
        assert (whole.pop("non_torch_bytes"), whole.pop("cuda_graph_bytes")) == (None, None)
    whole |= {
        name: report["engine"][name] for name in ("num_blocks", "kv_cache_tokens", "needed_bytes", "usable_bytes")
    }
    whole |= {name: report["capacity"][name] for name in ("memory_ceiling", "batch_ceiling", "on_demand_ceiling")}
    assert {name: type(value) for name, value in whole.items()} == dict.fromkeys(whole, int)


@given(plans())
def test_equal_plans_have_equal_reports(plan):
    again = Plan.model_validate_json(plan.model_dump_json())
    assert evaluate(plan).to_dict() == evaluate(again).to_dict() == evaluate(plan).to_dict()


@given(plans())
def test_the_keys_of_a_report_never_change(plan):
    report = evaluate(plan).to_dict()
    assert list(report) == ORDER
    assert {name: list(report[name]) for name in KEYS} == KEYS
    assert list(report["plan"]) == list(Plan.model_fields)
    assert all(list(group) == GROUP_KEYS for group in report["engine"]["groups"])
    assert all(list(cost) == COST_KEYS for cost in report["breakdown"])
    assert all(isinstance(remark, str) for remark in report["remarks"])
    assert report["resolved"] is None or list(report["resolved"]) == list(Plan.model_fields)


def test_the_report_says_which_schema_it_has_and_repeats_the_plan():
    plan = Plan(tp=4, kv_dtype="fp8")
    report = evaluate(plan).to_dict()
    assert report["schema"] == "kvplan.report/1"
    assert Plan.model_validate(report["plan"]) == plan


def test_every_number_of_a_report_has_a_source():
    report = evaluate(Plan()).to_dict()
    assert list(report["sources"]) == SOURCE_KEYS
    assert all(list(source) == ["text", "confidence", "recalled"] for source in report["sources"].values())
    assert "pool_bytes" in evaluate(Plan(kv_cache_memory_bytes=2**36)).to_dict()["sources"]


@settings(max_examples=200)
@given(known_plans())
@example(Plan(context=10))
def test_every_share_lies_between_0_and_1_and_no_waste_is_negative(plan):
    report = evaluate(plan)
    batching, paging = report.batching, report.paging
    assert 0 < batching.static_utilisation <= 1 + 1e-9
    assert 0 < batching.exponential_utilisation <= 1
    assert batching.gain == pytest.approx(1 / batching.static_utilisation)
    assert 0 <= report.capacity.clipped_share <= 1 + 1e-9
    assert 0 <= paging.waste_tokens <= paging.block_size - 1 + 1e-9
    assert 0 <= paging.waste_share < 1
    assert 0 <= paging.contiguous_waste_share < 1
    assert 0 <= paging.contiguous_waste_tokens < plan.context


@settings(max_examples=200)
@given(known_plans())
@example(Plan(gpu_memory_gib=2.0**-30, weights_gib=0, kv_cache_memory_bytes=2**30))
def test_every_page_has_a_sentence_and_numbers_for_any_plan(plan):
    report = evaluate(plan)
    for page in ("ceiling", "batching", "paging"):
        assert verdict.plain(getattr(verdict, page)(report).sentence)
        values = [metric.value for metric in getattr(metrics, page)(report)]
        assert len(values) == 4
        assert not [value for value in values if value.startswith("-") or "nan" in value]


# What cannot be served


@pytest.mark.parametrize(
    ("field", "value", "nearest"),
    [
        ("model", "llama-3.1-9b", "llama-3.1-8b"),
        ("gpu", "h100", "h100-sxm"),
        ("workload", "azure-conversations", "azure-conversation"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest_names_and_capacities_are_0(field, value, nearest):
    report = evaluate(Plan(**{field: value}))
    assert report.engine.refused.startswith(f"{field}: ")
    assert value in report.engine.refused
    assert nearest in report.engine.refused
    assert_serves_nothing(report)
    assert report.to_dict()["resolved"] is None


@pytest.mark.parametrize(
    ("fields", "field", "reason", "bytes_per_token"),
    [
        ({"tp": 7}, "tp", "32 attention heads", 16384),
        ({"kv_heads": 6, "tp": 4}, "tp", "6 KV heads", 16384),
        ({"pp": 33}, "pp", "stage 33 of 33", 4096),
        ({"layers": 2, "pp": 3}, "pp", "stage 3 of 3", 4096),
    ],
)
def test_an_engine_that_refuses_says_why_and_still_tells_the_bytes_of_a_token(fields, field, reason, bytes_per_token):
    report = evaluate(Plan(**fields))
    assert report.engine.refused.startswith(f"{field}: ")
    assert reason in report.engine.refused
    assert "\n" not in report.engine.refused
    assert_serves_nothing(report)
    assert report.cache.bytes_per_token == bytes_per_token
    assert report.memory.total_bytes > 0
    assert report.batching.batch == 1


def assert_serves_nothing(report):
    capacity, engine = report.capacity, report.engine
    assert engine.fits is False
    assert (engine.num_blocks, engine.kv_cache_tokens, engine.max_concurrency) == (0, 0, 0)
    assert (capacity.memory_ceiling, capacity.batch_ceiling, capacity.on_demand_ceiling) == (0, 0, 0)
    assert capacity.binding == "does_not_fit"


@pytest.mark.parametrize(("group", "held"), ODD_GROUPS, ids=[group.kind for group, _ in ODD_GROUPS])
def test_every_kind_of_layer_is_computed_alone_and_beside_full_attention(group, held):
    alone = evaluate(Plan(context=8192), model=with_groups(group))
    assert alone.cache.request_bytes_held == held
    reports = [alone]
    if group.kind != "compressed":
        reports.append(evaluate(Plan(context=8192), model=with_groups(FULL, group)))
        assert reports[1].cache.request_bytes_held == held + 8192 * 131_072
    for report in reports:
        assert report.engine.refused is None
        assert report.engine.fits
        assert report.cache.request_bytes_held <= report.cache.request_bytes_booked
        assert report.capacity.batch_ceiling > 0
        assert sum(cost.layers for cost in report.breakdown) >= group.layers


@pytest.mark.parametrize("group", STATEFUL, ids=lambda group: group.kind)
def test_a_state_takes_nothing_for_a_token(group):
    cache = evaluate(Plan(), model=with_groups(group)).cache
    assert (cache.bytes_per_token, cache.bytes_per_token_total) == (0, 0)
    assert evaluate(Plan(context=1), model=with_groups(group)).cache.request_bytes_held == cache.request_bytes_held


def test_full_attention_of_several_shapes_adds_up():
    """Hand computed: 32 layers of 8 heads of 128 and 32 of 8 keys of 256 and values of 128."""
    wide = FULL.model_copy(update={"head_dim": 256})
    report = evaluate(Plan(context=8192), model=with_groups(FULL, wide))
    assert report.engine.refused is None
    assert report.cache.bytes_per_token == 131_072 + 32 * 8 * (256 + 128) * 2
    assert report.cache.request_bytes_held == report.cache.request_bytes_booked == 8192 * report.cache.bytes_per_token


def test_a_model_whose_layers_keep_nothing_is_answered_in_a_sentence():
    report = evaluate(Plan(), model=with_groups(LayerGroup(kind="none", layers=4)))
    assert report.engine.refused
    assert_serves_nothing(report)
    json.dumps(report.to_dict(), allow_nan=False)


def test_a_pool_too_small_for_one_request_is_not_a_refusal():
    report = evaluate(Plan(kv_cache_memory_bytes=2**20))
    assert report.engine.refused is None
    assert report.engine.fits is False
    assert report.capacity.batch_ceiling == 0
    assert report.capacity.binding == "does_not_fit"


# A model of one's own


def test_a_model_of_ones_own_replaces_the_one_the_plan_names():
    model = with_groups(LayerGroup(kind="full", layers=10, kv_heads=4, head_dim=192, value_head_dim=128))
    report = evaluate(Plan(model="anything at all"), model=model)
    assert report.cache.bytes_per_token == 10 * 4 * (192 + 128) * 2
    assert report.engine.fits
    assert report == evaluate(Plan(model="anything at all"), model=model)


def test_a_model_of_ones_own_may_be_overridden_like_any_other():
    model = with_groups(LayerGroup(kind="full", layers=10, kv_heads=4, head_dim=192, value_head_dim=128))
    report = evaluate(Plan(layers=20, kv_heads=2, head_dim=64), model=model)
    assert report.cache.bytes_per_token == 20 * 2 * (64 + 64) * 2
    assert report.memory.weight_bytes == 2 * model.weight_bytes


# Memory


@settings(max_examples=200)
@given(known_plans())
def test_the_rows_of_memory_add_up_while_nothing_is_missing(plan):
    memory = evaluate(plan).memory
    rows = (
        memory.weight_bytes,
        memory.activation_bytes,
        memory.workspace_bytes,
        memory.overhead_bytes,
        memory.pool_bytes,
    )
    if memory.shortfall_bytes == 0:
        assert sum(rows) + memory.left_free_bytes == memory.total_bytes
    else:
        assert (memory.pool_bytes, memory.overhead_bytes, memory.left_free_bytes) == (0, 0, 0)
    if plan.workspace_gib is None:
        assert memory.non_torch_bytes + memory.cuda_graph_bytes == memory.workspace_bytes


@given(known_plans(kv_cache_memory_bytes=None, mem_fraction_static=None))
def test_what_is_missing_is_what_the_fixed_parts_exceed_the_utilised_memory_by(plan):
    report = evaluate(plan)
    memory = report.memory
    utilised = math.ceil(memory.total_bytes * report.setting.utilization)
    fixed = memory.weight_bytes + memory.activation_bytes + memory.workspace_bytes
    assert memory.shortfall_bytes == max(0, fixed - utilised)
    assert memory.pool_bytes + memory.overhead_bytes == max(0, utilised - fixed)
    assert abs(memory.overhead_bytes - plan.allocator_overhead_fraction * memory.pool_bytes) <= 3


def test_weights_are_split_over_tp_and_pp():
    whole = evaluate(Plan(model="llama-3.1-70b")).memory.weight_bytes
    assert evaluate(Plan(model="llama-3.1-70b", tp=4, pp=3)).memory.weight_bytes == -(-whole // 12)


def test_a_pool_given_in_bytes_is_taken_as_given_and_may_be_more_than_there_is():
    memory = evaluate(Plan(gpu="l4", kv_cache_memory_bytes=2**40)).memory
    assert memory.pool_bytes == 2**40
    assert memory.shortfall_bytes == 0
    assert memory.left_free_bytes < 0
    assert evaluate(Plan(gpu="l4", kv_cache_memory_bytes=0)).memory.pool_bytes == 0


def test_allocator_overhead_is_a_share_of_the_pool():
    without = evaluate(Plan()).memory
    memory = evaluate(Plan(allocator_overhead_fraction=0.25)).memory
    assert memory.pool_bytes == without.pool_bytes * 4 // 5
    assert memory.overhead_bytes == without.pool_bytes - memory.pool_bytes


# Capacity and batch


@settings(max_examples=200)
@given(known_plans())
def test_the_batch_ceiling_is_the_smallest_limit_and_names_the_first_that_binds(plan):
    report = evaluate(plan)
    capacity = report.capacity
    limits = {
        "does_not_fit": math.inf if report.engine.fits else 0,
        "memory": capacity.memory_ceiling,
        "tenant_quota": math.inf if capacity.tenant_quota is None else capacity.tenant_quota,
        "max_num_seqs": capacity.max_num_seqs,
    }
    assert capacity.batch_ceiling == min(limits.values())
    assert capacity.binding == min(limits, key=limits.get)
    if plan.tenant_quota_fraction is not None and not report.engine.refused:
        assert capacity.tenant_quota == math.floor(plan.tenant_quota_fraction * capacity.memory_ceiling)


@given(known_plans(batch=None))
def test_an_automatic_batch_is_the_ceiling_up_to_512_and_1_where_nothing_is_served(plan):
    report = evaluate(plan)
    capacity = report.capacity
    memory = capacity.on_demand_ceiling if plan.admission == "on_demand" else capacity.memory_ceiling
    quota = math.inf if capacity.tenant_quota is None else capacity.tenant_quota
    expected = min(512, memory, quota, capacity.max_num_seqs) if capacity.batch_ceiling else 1
    assert report.batching.batch == expected


@pytest.mark.parametrize(
    ("fields", "batch"),
    [
        ({"kv_cache_memory_bytes": 0}, 1),
        ({"max_num_seqs": 40, "context": 512}, 40),
        ({"context": 256}, 512),
        ({"batch": 7}, 7),
        ({"batch": 100_000}, 100_000),
    ],
)
def test_the_batch_is_the_plans_or_follows_from_the_ceiling(fields, batch):
    assert evaluate(Plan(**fields)).batching.batch == batch


def test_with_on_demand_admission_the_batch_starts_from_the_on_demand_ceiling():
    reserved, on_demand = evaluate(Plan()), evaluate(Plan(admission="on_demand"))
    assert reserved.batching.batch == reserved.capacity.batch_ceiling
    assert on_demand.batching.batch == on_demand.capacity.on_demand_ceiling > reserved.batching.batch
    assert on_demand.capacity == reserved.capacity


@settings(max_examples=100)
@given(known_plans(pp=1))
def test_the_suggested_context_starts_and_one_token_more_does_not(plan):
    """In the pool the engine has found: starting with another context may leave another one."""
    report = evaluate(plan)
    suggested = report.engine.suggested_context

    def starts(context, **pool):
        return evaluate(plan.model_copy(update={"context": context} | pool)).engine.fits

    found = {"kv_cache_memory_bytes": report.memory.pool_bytes}
    if report.engine.refused or report.engine.fits:
        assert suggested is None
    elif suggested is None:
        assert not starts(1, **found)
    else:
        assert suggested < plan.context
        assert starts(suggested, **found)
        assert not starts(suggested + 1, **found)
        # A shorter context leaves no smaller pool, but before V1, where chunks end at 32,768 tokens.
        assert starts(suggested) or startup.release(plan.engine_version).profiles_context


@settings(max_examples=100)
@given(known_plans())
def test_the_smallest_tp_is_the_first_power_of_two_at_which_one_request_starts(plan):
    answers = {tp: evaluate(plan.model_copy(update={"tp": tp})) for tp in (1, 2, 4, 8, 16, 32, 64)}
    starting = [tp for tp, report in answers.items() if report.engine.fits]
    pooled = [tp for tp, report in answers.items() if not report.engine.refused and report.memory.pool_bytes > 0]
    capacity = evaluate(plan).capacity
    assert capacity.min_tp == (starting[0] if starting else None)
    assert capacity.min_tp_weights == (pooled[0] if pooled else None)


def test_more_sequences_than_state_blocks_are_remarked_on():
    """vllm-project/vllm#38270: such an engine does not start."""
    crowded = Plan(model="qwen3.5-27b", weight_dtype="fp8", gpu_memory_utilization=0.95, max_num_seqs=1024)
    blocks = evaluate(crowded).engine.num_blocks
    assert blocks < 1024

    def remarked(plan):
        return any(f"{blocks} blocks" in remark for remark in evaluate(plan).remarks)

    assert remarked(crowded)
    assert not remarked(crowded.model_copy(update={"max_num_seqs": blocks}))
    assert not any("max_num_seqs" in remark for remark in evaluate(Plan(context=2**17, max_num_seqs=2**20)).remarks)
