"""Numbers worked in the literature on serving, and what kvplan makes of them.

Shapes are those of the published config.json files; the closed forms of batching follow from order statistics.
"""

import json
import random
from typing import NamedTuple

import numpy as np
import pytest

from kvplan import Plan, evaluate, load_preset
from kvplan.batching import drain, exponential_utilisation, static_utilisation
from kvplan.cache import batch_tokens_held
from kvplan.lengths import exponential, fixed, from_samples, from_table, resident_mean, uniform
from kvplan.paging import waste
from kvplan.units import GIB, KIB, MIB

NOTHING_ELSE = {"weights_gib": 0, "activation_gib": 0, "workspace_gib": 0, "gpu_memory_utilization": 1}
"""A device that holds a cache and nothing else."""
MHA_7B = {"layers": 32, "kv_heads": 32, "head_dim": 128}


class Size(NamedTuple):
    """A model's shape, its bf16 bytes a token, and GiB at 4,096 and 131,072 tokens as printed."""

    model: str
    layers: int
    kv_heads: int
    head_dim: int
    per_token: int
    at_4k: str
    at_128k: str


CACHE_SIZES = {
    "Llama-3.1 8B, Hugging Face config": Size("llama-3.1-8b", 32, 8, 128, 131_072, "0.50", "16.00"),
    "Llama-3.1 70B, Hugging Face config": Size("llama-3.1-70b", 80, 8, 128, 327_680, "1.25", "40.00"),
    "Llama-3.1 405B, Hugging Face config": Size("llama-3.1-405b", 126, 8, 128, 516_096, "1.97", "63.00"),
    "GPT-3 175B, Brown et al. 2020": Size("gpt-3", 96, 96, 128, 4_718_592, "18.00", "576.00"),
    "Llama-2 7B, multi-head, Hugging Face config": Size("llama-2-7b", 32, 32, 128, 524_288, "2.00", "64.00"),
}
each_size = pytest.mark.parametrize("size", CACHE_SIZES.values(), ids=CACHE_SIZES)


def rows(origin, *values):
    """Parametrised rows whose ids name where the numbers come from."""
    return [pytest.param(*row, id=f"{origin}: {', '.join(map(str, row))}") for row in values]


def held(tokens, **fields):
    return evaluate(Plan(model="llama-3.1-70b", context=tokens, **fields)).cache.request_bytes_held


def azure_conversation(shared):
    """Prompts and outputs of the Azure conversation trace, request by request."""
    path = shared / "traces" / "AzureLLMInferenceTrace_conv.csv"
    prompts, outputs = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(1, 2), dtype=int).T
    return from_samples(outputs, prompts)


# Size of the cache


@each_size
def test_bytes_a_token_are_twice_layers_heads_width_and_bytes(size):
    cache = evaluate(Plan(model=size.model)).cache
    assert 2 * size.layers * size.kv_heads * size.head_dim * 2 == size.per_token
    assert cache.bytes_per_token == cache.bytes_per_token_total == size.per_token


@each_size
def test_the_shape_alone_gives_the_bytes_a_token(size):
    plan = Plan(model="llama-3.1-8b", layers=size.layers, kv_heads=size.kv_heads, head_dim=size.head_dim)
    assert evaluate(plan).cache.bytes_per_token == size.per_token


@each_size
def test_a_request_holds_its_tokens_times_the_bytes_of_one(size):
    for tokens, printed in ((4096, size.at_4k), (131_072, size.at_128k)):
        request = evaluate(Plan(model=size.model, context=tokens)).cache.request_bytes_held
        assert request == tokens * size.per_token
        assert f"{request / GIB:.2f}" == printed


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8", "fp8_e5m2"])
@each_size
def test_a_cache_of_one_byte_an_element_is_half_as_large(size, kv_dtype):
    assert evaluate(Plan(model=size.model, kv_dtype=kv_dtype)).cache.bytes_per_token * 2 == size.per_token


def test_grouped_query_attention_saves_the_70b_a_factor_of_eight():
    """Worked example: Llama-3.1 70B as if each of its 64 query heads had keys of its own."""
    grouped = evaluate(Plan(model="llama-3.1-70b")).cache.bytes_per_token
    full = evaluate(Plan(model="llama-3.1-70b", kv_heads=64)).cache.bytes_per_token
    assert full == 2560 * KIB == 8 * grouped


@pytest.mark.parametrize(
    ("tokens", "printed"),
    rows("worked example, Llama-3.1 70B, mixed batch", (2048, "0.625"), (4096, "1.250"), (500, "0.153")),
)
def test_each_member_of_a_mixed_batch_holds_its_own_length(tokens, printed):
    assert f"{held(tokens) / GIB:.3f}" == printed


def test_a_mixed_batch_holds_the_sum_of_its_members():
    """Worked example: Llama-3.1 70B at 2,048, 4,096 and 500 tokens."""
    together = sum(held(tokens) for tokens in (2048, 4096, 500))
    assert together == (2048 + 4096 + 500) * 320 * KIB
    assert f"{together / GIB:.2f}" == "2.03"


@pytest.mark.parametrize(
    ("tokens", "unit", "printed"),
    [
        pytest.param(150, MIB, "47", id="worked example, Llama-3.1 70B, 150 tokens: 47 MiB"),
        pytest.param(8200, GIB, "2.50", id="worked example, Llama-3.1 70B, 8,200 tokens: 2.50 GiB"),
        pytest.param(2500, MIB, "781", id="worked example, Llama-3.1 70B, 2,500 tokens: 781 MiB"),
    ],
)
def test_a_single_request_holds_what_its_tokens_take(tokens, unit, printed):
    decimals = len(printed.partition(".")[2])
    assert f"{held(tokens) / unit:.{decimals}f}" == printed


def test_a_decode_step_adds_the_bytes_of_one_token():
    """Worked example: Llama-3.1 70B after a prompt of 4,096 tokens."""
    assert held(4097) - held(4096) == 320 * KIB
    assert held(4096 + 1000) - held(4096) == 312.5 * MIB


@pytest.mark.parametrize(
    ("tokens", "printed"),
    rows(
        "worked example, timeline of a Llama-3.1 70B request",
        (4096, "1.25"),
        (4096 + 1000, "1.56"),
        (8192, "2.50"),
        (131_072, "40.00"),
    ),
)
def test_a_request_grows_along_its_timeline(tokens, printed):
    assert f"{held(tokens) / GIB:.2f}" == printed


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "gpt-3"])
def test_the_cache_is_linear_in_the_context(model):
    """Closed form: twice the tokens are twice the bytes."""
    once, twice = (evaluate(Plan(model=model, context=context)).cache.request_bytes_held for context in (1234, 2468))
    assert twice == 2 * once


# The ceiling


@pytest.mark.parametrize(
    ("context", "ceiling"),
    rows(
        "worked example, 64 GiB at 512 KiB a token",
        (512, 256),
        (1024, 128),
        (2048, 64),
        (4096, 32),
        (8192, 16),
        (16_384, 8),
        (32_768, 4),
    ),
)
def test_twice_the_context_halves_the_ceiling(context, ceiling):
    report = evaluate(Plan(context=context, gpu_memory_gib=64, **MHA_7B, **NOTHING_ELSE))
    assert report.cache.bytes_per_token == 512 * KIB
    assert report.memory.pool_bytes == 64 * GIB
    assert report.capacity.memory_ceiling == report.capacity.batch_ceiling == ceiling
    assert report.capacity.binding == "memory"


@pytest.mark.parametrize(
    ("block_size", "booked_mib"),
    [
        pytest.param(1, 1250, id="worked example, exact tokens"),
        pytest.param(4, 1250, id="worked example, 2,500 is a multiple of 4"),
        pytest.param(16, 1256, id="worked example, rounded up to 2,512 tokens"),
    ],
)
def test_fifty_two_requests_of_2500_tokens_fit_in_64_gib(block_size, booked_mib):
    """Worked example: 2,000 tokens of prompt and 500 generated at 512 KiB a token; 52.4 before rounding down."""
    report = evaluate(Plan(context=2500, gpu_memory_gib=64, block_size=block_size, **MHA_7B, **NOTHING_ELSE))
    assert report.cache.request_bytes_held == 1250 * MIB
    assert report.cache.request_bytes_booked == booked_mib * MIB
    assert report.capacity.memory_ceiling == 52
    if block_size < 16:
        assert f"{report.capacity.memory_quotient:.1f}" == "52.4"


@pytest.mark.parametrize(
    ("context", "blocks", "ceiling"),
    [
        pytest.param(2048, 16, 160, id="worked example, 40 GiB in blocks of 16 MiB, reserved at 2,048"),
        pytest.param(8192, 64, 40, id="worked example, 40 GiB in blocks of 16 MiB, reserved at 8,192"),
    ],
)
def test_a_scheduler_that_reserves_longer_admits_fewer(context, blocks, ceiling):
    report = evaluate(Plan(context=context, gpu_memory_gib=40, block_size=128, **NOTHING_ELSE))
    assert report.cache.bytes_per_token == 128 * KIB
    assert report.engine.bytes_per_block == 16 * MIB
    assert report.engine.blocks_per_request == blocks
    assert report.capacity.memory_ceiling == ceiling


@pytest.mark.parametrize(
    ("context", "ceiling"),
    rows("worked example, 70B in int4 on an 80 GiB card", (4096, 36), (131_072, 1)),
)
def test_int4_weights_leave_the_70b_a_pool_of_45_gib(context, ceiling):
    plan = Plan(model="llama-3.1-70b", context=context, gpu_memory_gib=80, **(NOTHING_ELSE | {"weights_gib": 35}))
    report = evaluate(plan)
    assert report.memory.pool_bytes == 45 * GIB
    assert report.capacity.memory_ceiling == ceiling
    assert report.engine.fits


def test_an_80_gb_card_with_14_gb_of_weights_runs_122_requests():
    """Worked example: decimal gigabytes, 128 KiB a token, 4,096 tokens; by exact bytes."""
    card = NOTHING_ELSE | {"weights_gib": 14e9 / GIB, "gpu_memory_gib": 80e9 / GIB}
    report = evaluate(Plan(model="llama-3.1-8b", context=4096, **card))
    assert report.memory.pool_bytes == 66_000_000_000
    assert report.capacity.memory_ceiling == 66_000_000_000 // (4096 * 131_072) == 122


def test_the_70b_in_bf16_needs_two_devices_before_any_cache():
    """Worked example: about 140 GB of weights against devices of 80 GB."""
    report = evaluate(Plan(model="llama-3.1-70b", gpu="h100-sxm", context=4096))
    assert 139e9 < report.setting.weight_bytes < 143e9
    assert report.capacity.min_tp_weights == 2
    assert report.capacity.binding == "does_not_fit"
    assert report.memory.pool_bytes == report.capacity.batch_ceiling == 0
    assert report.memory.shortfall_bytes > 0


@pytest.mark.parametrize(
    ("tp", "per_token", "copies"),
    rows(
        "vLLM 0.32 planner, 8 KV heads",
        (1, 131_072, 1),
        (2, 65_536, 1),
        (4, 32_768, 1),
        (8, 16_384, 1),
        (16, 16_384, 2),
        (32, 16_384, 4),
    ),
)
def test_tensor_parallel_beyond_the_kv_heads_replicates_them(tp, per_token, copies):
    cache = evaluate(Plan(model="llama-3.1-8b", tp=tp)).cache
    assert cache.bytes_per_token == per_token
    assert cache.bytes_per_token_total == copies * 131_072


@pytest.mark.parametrize(
    ("pp", "fullest"),
    rows("vLLM 0.32 planner, 80 layers", (1, 80), (2, 40), (3, 27), (4, 20), (6, 14), (7, 12)),
)
def test_pipeline_parallel_takes_the_fullest_stage(pp, fullest):
    report = evaluate(Plan(model="llama-3.1-70b", pp=pp, kv_cache_memory_bytes=40 * GIB))
    assert report.cache.bytes_per_token == fullest * 4096
    assert report.cache.bytes_per_token_total == 327_680
    assert report.engine.num_blocks == 40 * GIB // (fullest * 4096 * 16)


ON_DEMAND = pytest.mark.parametrize(
    ("context", "reserve", "on_demand"),
    rows(
        "Azure conversation trace, Llama-3.1-8B, 17,049 blocks",
        (256, 1065, 1345),
        (1024, 266, 609),
        (2048, 133, 246),
        (8192, 33, 220),
    ),
)


@ON_DEMAND
def test_on_demand_admits_what_running_requests_hold_on_average(shared, context, reserve, on_demand):
    pool_tokens = 17_049 * 16
    resident = resident_mean(azure_conversation(shared), context)
    assert int(pool_tokens / (resident + 16 / 2)) == on_demand
    assert 17_049 // (context // 16) == reserve


@ON_DEMAND
def test_the_shipped_table_of_lengths_gives_on_demand_within_four_percent(context, reserve, on_demand):
    report = evaluate(Plan(context=context, kv_cache_memory_bytes=35_755_602_739, workload="azure-conversation"))
    assert report.engine.num_blocks == 17_049
    assert report.capacity.memory_ceiling == reserve
    assert report.capacity.on_demand_ceiling == pytest.approx(on_demand, rel=0.04)


def test_a_running_request_holds_less_than_a_finished_one(shared):
    """Azure conversation trace: 1,227 tokens held on average, 1,366 at completion."""
    trace = azure_conversation(shared)
    assert round(float(resident_mean(trace, 2**24))) == 1227
    assert round(float(trace.shares @ (trace.prompts + trace.outputs))) == 1366
    shipped = evaluate(Plan(context=131_072)).capacity
    assert shipped.resident_mean_tokens == pytest.approx(1227, rel=0.005)
    assert shipped.clipped_share == 0


@pytest.mark.parametrize(
    ("sequences", "tokens", "prefix"),
    rows("closed form P + B (S - P)", (1, 100, 40), (8, 4096, 2048), (1000, 1024, 512)),
)
def test_a_common_prefix_is_stored_once(sequences, tokens, prefix):
    shared_tokens = batch_tokens_held(sequences=sequences, tokens=tokens, shared_prefix_tokens=prefix)
    assert shared_tokens == prefix + sequences * (tokens - prefix)


def test_a_partly_filled_last_block_of_a_prefix_is_copied():
    """PagedAttention, SOSP 2023: copy on write at the granularity of a block; 1,000 of 16 share 992 tokens."""
    assert batch_tokens_held(sequences=5, tokens=2048, shared_prefix_tokens=1000, block_size=16) == 992 + 5 * 1056


def test_a_thousand_requests_gain_almost_a_whole_system_prompt_each():
    """Closed form: what B sequences save is (B - 1)/B of the prefix each."""
    alone = batch_tokens_held(sequences=1000, tokens=2048)
    together = batch_tokens_held(sequences=1000, tokens=2048, shared_prefix_tokens=1024, block_size=16)
    assert (alone - together) / 1000 == pytest.approx(1024, rel=0.0011)


def test_nothing_is_shared_after_requests_diverge():
    """Closed form: the gain does not grow with the length of what follows the prefix."""
    gains = [
        batch_tokens_held(sequences=32, tokens=tokens)
        - batch_tokens_held(sequences=32, tokens=tokens, shared_prefix_tokens=512)
        for tokens in (1024, 4096, 65_536)
    ]
    assert gains == [31 * 512] * 3


# Static against continuous batching


@pytest.mark.parametrize(
    ("batch", "printed"),
    rows("closed form 1/H_B", (8, "0.3679"), (32, "0.2464"), (128, "0.1841")),
)
def test_exponential_lengths_use_one_over_the_harmonic_number(batch, printed):
    exact = 1 / sum(1 / i for i in range(1, batch + 1))
    assert f"{exact:.4f}" == printed
    assert exponential_utilisation(batch) == pytest.approx(exact, rel=1e-12)
    assert static_utilisation(exponential(256), batch) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("batch", [1, 2, 16, 1024, 2**20])
def test_equal_lengths_use_every_slot_at_every_batch(batch):
    """Closed form: the loss of a static batch comes from variance alone."""
    assert static_utilisation(fixed(100), batch) == 1


@pytest.mark.parametrize(
    "law",
    [
        pytest.param(exponential(256), id="order statistics, exponential"),
        pytest.param(uniform(1, 511), id="order statistics, uniform"),
        pytest.param(from_table([(0.999, 10), (0.001, 11)]), id="order statistics, nearly constant"),
        pytest.param(from_samples(range(1, 2000)), id="order statistics, evenly spaced samples"),
        pytest.param(from_table(load_preset("azure-conversation", "workload").table), id="Azure conversation trace"),
    ],
)
def test_utilisation_falls_strictly_with_the_batch(law):
    found = static_utilisation(law, np.arange(1, 513))
    assert found[0] == pytest.approx(1, rel=1e-9)
    assert (np.diff(found) < 0).all()


@pytest.mark.parametrize(
    ("trace", "batch", "printed"),
    [
        *[("AzureLLMInferenceTrace_code.csv", *row) for row in ((8, "0.265"), (64, "0.085"), (256, "0.046"))],
        *[("AzureLLMInferenceTrace_conv.csv", *row) for row in ((8, "0.463"), (64, "0.336"), (256, "0.269"))],
        *[("mooncake_conversation_trace.jsonl", *row) for row in ((8, "0.480"), (64, "0.272"), (256, "0.193"))],
    ],
)
def test_real_traces_differ_from_the_exponential_in_both_directions(shared, trace, batch, printed):
    """Azure code and conversation traces 2023, Mooncake conversation trace 2024: their own output lengths."""
    text = (shared / "traces" / trace).read_text().splitlines()
    if trace.endswith(".csv"):
        outputs = [int(line.rsplit(",", 1)[1]) for line in text[1:]]
    else:
        outputs = [json.loads(line)["output_length"] for line in text]
    assert f"{static_utilisation(from_samples(outputs), batch):.3f}" == printed


def test_one_long_request_keeps_eight_slots_waiting():
    """Worked example: seven requests of 20 tokens and one of 500."""
    lengths = [20] * 7 + [500]
    found = drain(lengths, 8, "static")
    assert found.steps == 500
    assert sum(lengths) == 640
    assert found.busy == 640 / 4000 == 0.16
    assert 8 * found.steps - sum(lengths) == 3360


def seeded_backlog():
    source = random.Random(37)
    return [source.randint(400, 700) if source.random() < 0.1 else source.randint(8, 40) for _ in range(200)]


def shipped_backlog():
    return [output for _, output in load_preset("seeded-200", "workload").samples]


def test_the_shipped_backlog_is_the_one_the_generator_draws():
    """Python random.Random(37), 200 requests: 182 short, 18 long, 13,280 tokens."""
    backlog = seeded_backlog()
    assert shipped_backlog() == backlog
    assert all(prompt == 0 for prompt, _ in load_preset("seeded-200", "workload").samples)
    assert (len(backlog), sum(backlog), max(backlog)) == (200, 13_280, 661)
    assert (sum(length <= 40 for length in backlog), sum(length >= 400 for length in backlog)) == (182, 18)


@pytest.mark.parametrize(
    ("policy", "steps", "busy", "seconds", "rate"),
    [
        pytest.param("static", 5797, "14.3", "115.9", "1.7", id="random.Random(37), static in arrival order"),
        pytest.param("continuous", 1148, "72.3", "23.0", "8.7", id="random.Random(37), continuous"),
    ],
)
@pytest.mark.parametrize("backlog", [seeded_backlog, shipped_backlog])
def test_two_hundred_seeded_requests_drain_through_sixteen_slots(backlog, policy, steps, busy, seconds, rate):
    found = drain(backlog(), 16, policy)
    assert found.steps == steps
    assert f"{100 * found.busy:.1f}" == busy
    assert f"{found.steps * 0.020:.1f}" == seconds
    assert f"{200 / (found.steps * 0.020):.1f}" == rate


@pytest.mark.parametrize("backlog", [seeded_backlog, shipped_backlog])
def test_continuous_batching_drains_the_seeded_backlog_five_times_faster(backlog):
    """Python random.Random(37), 200 requests on 16 slots."""
    static, continuous = (drain(backlog(), 16, policy).steps for policy in ("static", "continuous"))
    assert f"{static / continuous:.2f}" == "5.05"


def test_equal_requests_gain_nothing_from_continuous_batching():
    """Worked example: 200 requests of 100 tokens on 16 slots."""
    assert [drain([100] * 200, 16, policy).steps for policy in ("static", "continuous")] == [1300, 1300]


# Paging


@pytest.mark.parametrize("block_size", [1, 2, 16, 17, 256])
def test_a_sequence_wastes_less_than_its_last_block(block_size):
    """PagedAttention, SOSP 2023: w(S) = k ceil(S/k) - S, whatever the context limit."""
    lengths = np.arange(1, 4097)
    found = waste(lengths, block_size)
    assert found.tolist() == [block_size * -(-length // block_size) - length for length in lengths.tolist()]
    assert (found >= 0).all()
    assert (found < block_size).all()
    assert found.sum() < lengths.size * block_size


@pytest.mark.parametrize("block_size", [2, 16, 64, 1024])
def test_long_sequences_waste_half_a_block_on_average(block_size):
    """PagedAttention, SOSP 2023: (k - 1)/2, exactly so over any run of k consecutive lengths."""
    lengths = np.arange(100_000, 100_000 + block_size)
    assert waste(lengths, block_size).mean() == (block_size - 1) / 2


def test_blocks_of_one_token_waste_nothing():
    """PagedAttention, SOSP 2023: the limit k = 1."""
    assert not waste(np.arange(1, 10_000), 1).any()
