"""Where one device's memory goes: the parts add up, and what is missing is said."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, evaluate, load_preset
from kvplan.memory import split
from kvplan.units import GIB, ceil_div

sizes = st.integers(0, 2**50)
fractions = st.floats(0, 1)


def part_sum(memory):
    """The six parts of a device."""
    return (
        memory.weight_bytes
        + memory.activation_bytes
        + memory.workspace_bytes
        + memory.overhead_bytes
        + memory.pool_bytes
        + memory.left_free_bytes
    )


def h100(**fields):
    """A device of 80 GiB with round parts: 16 GiB of weights, 5 of activations, 1 of workspace."""
    given_parts = {"gpu_memory_gib": 80, "weights_gib": 16, "activation_gib": 5, "workspace_gib": 1}
    return evaluate(Plan(**given_parts | fields)).memory


@given(
    st.integers(1, 2**50),
    fractions,
    st.integers(0, 2**47),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    fractions,
    st.none() | sizes,
)
def test_the_parts_add_up_while_nothing_is_missing(total, utilization, weights, activation, workspace, overhead, pool):
    """Law of the breakdown: six parts are the total, exactly; else the pool is empty and the gap is named."""
    memory = split(
        total_bytes=total,
        utilization=utilization,
        weight_bytes=weights,
        activation_bytes=activation,
        workspace_bytes=workspace,
        overhead_fraction=overhead,
        given_pool_bytes=pool,
    )
    fixed = weights + activation + workspace
    assert (memory.weight_bytes, memory.activation_bytes, memory.workspace_bytes) == (weights, activation, workspace)
    assert memory.total_bytes == total
    assert min(memory.pool_bytes, memory.overhead_bytes, memory.shortfall_bytes) >= 0
    if memory.shortfall_bytes:
        assert (memory.pool_bytes, memory.overhead_bytes, memory.left_free_bytes) == (0, 0, 0)
        assert memory.shortfall_bytes == fixed - math.ceil(total * utilization)
    else:
        assert part_sum(memory) == total
    if pool is None:
        assert memory.left_free_bytes >= 0
    else:
        assert (memory.pool_bytes, memory.shortfall_bytes) == (pool, 0)


@given(st.integers(1, 2**50), fractions, fractions)
def test_overhead_is_a_fraction_of_the_pool(total, utilization, overhead):
    """Definition of the allocator's share: of the pool itself, to within rounding of two bytes."""
    memory = split(
        total_bytes=total,
        utilization=utilization,
        weight_bytes=0,
        activation_bytes=0,
        workspace_bytes=0,
        overhead_fraction=overhead,
    )
    assert abs(memory.overhead_bytes - overhead * memory.pool_bytes) <= 2.5
    assert memory.overhead_bytes + memory.pool_bytes == math.ceil(total * utilization)


@given(st.integers(1, 2**50), fractions, fractions, st.integers(0, 2**49), st.integers(0, 2**40))
def test_more_weights_never_leave_a_larger_pool(total, first, second, weights, more):
    """Monotone: the pool falls with what stands beside it and rises with the share that may be used."""

    def pool(utilization, weight_bytes):
        memory = split(
            total_bytes=total,
            utilization=utilization,
            weight_bytes=weight_bytes,
            activation_bytes=0,
            workspace_bytes=0,
            overhead_fraction=0.1,
        )
        return memory.pool_bytes

    assert pool(first, weights + more) <= pool(first, weights)
    assert pool(min(first, second), weights) <= pool(max(first, second), weights)


def test_the_engine_may_use_its_share_rounded_up_to_a_byte():
    """vLLM 0.32, the budget of a worker: ceil(total × utilization), 0.92 unless set."""
    memory = evaluate(Plan(gpu="h100-sxm")).memory
    total = load_preset("h100-sxm", "gpu").total_bytes
    used = memory.weight_bytes + memory.activation_bytes + memory.workspace_bytes + memory.pool_bytes
    assert memory.total_bytes == total
    assert used == math.ceil(total * 0.92)
    assert memory.left_free_bytes == total - used
    assert memory.overhead_bytes == memory.shortfall_bytes == 0


def test_the_pool_is_what_the_rest_leaves():
    """Worked example: 80 GiB at 90 %, less 16, 5 and 1."""
    memory = h100(gpu_memory_utilization=0.9)
    assert memory.pool_bytes == 50 * GIB
    assert memory.left_free_bytes == 8 * GIB
    assert part_sum(memory) == 80 * GIB


def test_overhead_comes_out_of_what_the_pool_could_have_been():
    """Worked example: 55 GiB for a pool and 10 % of it are 50 and 5."""
    memory = h100(gpu_memory_utilization=77 / 80, allocator_overhead_fraction=0.1)
    assert memory.pool_bytes == pytest.approx(50 * GIB, abs=1)
    assert memory.overhead_bytes == pytest.approx(5 * GIB, abs=1)
    assert part_sum(memory) == 80 * GIB


def test_weights_too_large_leave_no_pool_and_name_the_gap():
    """Worked example: 90 + 5 + 1 GiB against 72 that may be used."""
    memory = h100(gpu_memory_utilization=0.9, weights_gib=90)
    assert (memory.pool_bytes, memory.left_free_bytes, memory.overhead_bytes) == (0, 0, 0)
    assert memory.shortfall_bytes == 24 * GIB


def test_weights_that_just_fit_leave_an_empty_pool_and_no_gap():
    """Worked example: 66 + 5 + 1 GiB are the 72 that may be used."""
    memory = h100(gpu_memory_utilization=0.9, weights_gib=66)
    assert (memory.pool_bytes, memory.shortfall_bytes, memory.left_free_bytes) == (0, 0, 8 * GIB)
    assert part_sum(memory) == 80 * GIB


@pytest.mark.parametrize(
    ("pool_gib", "left_gib"),
    [
        pytest.param(10, 48, id="worked example, a small pool leaves the rest free"),
        pytest.param(58, 0, id="worked example, a pool that takes everything"),
        pytest.param(100, -42, id="worked example, more than the device has"),
        pytest.param(0, 58, id="worked example, no pool"),
    ],
)
def test_a_pool_given_in_bytes_is_taken_as_given(pool_gib, left_gib):
    memory = h100(kv_cache_memory_bytes=pool_gib * GIB, gpu_memory_utilization=0.5)
    assert memory.pool_bytes == pool_gib * GIB
    assert memory.left_free_bytes == left_gib * GIB
    assert memory.shortfall_bytes == 0
    assert part_sum(memory) == 80 * GIB


def test_a_given_pool_is_judged_by_the_start_check_alone():
    """vLLM 0.32: KV memory in bytes overrides utilization, even above what the device has."""
    report = evaluate(Plan(weights_gib=500, kv_cache_memory_bytes=40 * GIB, context=4096))
    assert report.memory.left_free_bytes < 0
    assert report.engine.fits
    assert report.capacity.memory_ceiling == 80


def test_a_given_pool_carries_its_overhead_beside_it():
    """Worked example: 10 % of 40 GiB, rounded down to a byte."""
    memory = h100(kv_cache_memory_bytes=40 * GIB + 7, allocator_overhead_fraction=0.1)
    assert memory.pool_bytes == 40 * GIB + 7
    assert memory.overhead_bytes == (40 * GIB + 7) // 10
    assert part_sum(memory) == 80 * GIB


@pytest.mark.parametrize(
    ("tp", "pp", "weight_bytes", "non_torch_gib"),
    [
        pytest.param(1, 1, 16_060_522_496, 0.27, id="Llama-3.1 8B safetensors index, whole"),
        pytest.param(2, 1, 8_030_261_248, 1.70, id="Llama-3.1 8B safetensors index, halves"),
        pytest.param(4, 2, 2_007_565_312, 1.70, id="Llama-3.1 8B safetensors index, eighths"),
        pytest.param(1, 3, 5_353_507_499, 0.27, id="Llama-3.1 8B safetensors index, thirds rounded up"),
    ],
)
def test_weights_are_split_over_the_devices_and_the_rest_is_not(tp, pp, weight_bytes, non_torch_gib):
    """Sampling of 1,024 sequences takes 14.5 bytes for each of 128,256 tokens of the vocabulary, 1.3 hidden states of
    4,096 in two bytes outlive a step of 8,192 tokens; graphs take 0.3 GiB and 0.015 for each layer of a stage;
    collectives of tp keep buffers on every device."""
    memory = evaluate(Plan(model="llama-3.1-8b", tp=tp, pp=pp)).memory
    assert memory.weight_bytes == weight_bytes
    assert memory.activation_bytes == 1_904_345_088 + 87_241_523
    assert memory.non_torch_bytes == pytest.approx(non_torch_gib * GIB, abs=1)
    assert memory.cuda_graph_bytes == pytest.approx((0.3 + 0.015 * ceil_div(32, pp)) * GIB, abs=1)
    assert memory.workspace_bytes == memory.non_torch_bytes + memory.cuda_graph_bytes


UNQUANTIZED = 2 * 128_256 * 4096 + 65 * 4096
"""Llama-3.1 8B: the embedding, the head of its own, and the norms of 32 layers and at the end."""
LINEAR = 8_030_261_248 - UNQUANTIZED


@pytest.mark.parametrize(
    ("fields", "weight_bytes"),
    [
        pytest.param({"layers": 16}, 8_030_261_248, id="half the layers"),
        pytest.param({"layers": 64}, 32_121_044_992, id="twice the layers"),
        pytest.param(
            {"weight_dtype": "int4"},
            LINEAR * 133 // 256 + 2 * UNQUANTIZED,
            id="4 bits and 20 for each 128 matrix elements",
        ),
        pytest.param({"weight_dtype": "fp8"}, LINEAR + 2 * UNQUANTIZED, id="a byte a matrix element"),
        pytest.param({"weight_dtype": "int8"}, LINEAR + 2 * UNQUANTIZED, id="a byte a matrix element, int8"),
        pytest.param({"weight_dtype": "fp32"}, 32_121_044_992, id="four bytes a parameter"),
        pytest.param(
            {"weight_dtype": "int4", "layers": 16}, LINEAR * 133 // 512 + UNQUANTIZED, id="half the layers in 4 bits"
        ),
        pytest.param({"weights_gib": 10, "layers": 16}, 10 * GIB, id="given weights do not scale"),
    ],
)
def test_weights_scale_with_layers_and_width_unless_given(fields, weight_bytes):
    """Llama-3.1 8B: 8,030,261,248 parameters; embeddings and norms stay in 16 bits."""
    assert evaluate(Plan(model="llama-3.1-8b", **fields)).memory.weight_bytes == weight_bytes


@pytest.mark.parametrize(
    ("fields", "posted_gib"),
    [
        pytest.param({"model": "llama-3.1-8b"}, 4.76, id="llm-d-benchmark empirical-vllm-memory-results, Llama 3.1 8B"),
        pytest.param(
            {"model": "llama-3.3-70b", "weight_dtype": "fp8", "tp": 2},
            4.84,
            id="llm-d-benchmark empirical-vllm-memory-results, Llama 3.3 70B fp8 at tp 2",
        ),
        pytest.param({"model": "qwen3-0.6b"}, 5.56, id="llm-d-benchmark empirical-vllm-memory-results, Qwen3 0.6B"),
        pytest.param({"model": "qwen3-32b"}, 5.64, id="llm-d-benchmark empirical-vllm-memory-results, Qwen3 32B"),
        pytest.param({"model": "gpt-oss-20b"}, 7.38, id="llm-d-benchmark empirical-vllm-memory-results, gpt-oss 20B"),
    ],
)
def test_activations_are_estimated_as_vllm_0_11_posted_them_on_an_h100(fields, posted_gib):
    report = evaluate(Plan(gpu="h100-sxm", engine_version="0.11.0", **fields))
    assert report.memory.activation_bytes == pytest.approx(posted_gib * GIB, abs=0.1 * GIB)
    assert report.sources["activation_bytes"].mark == "estimate"


def test_a_smaller_device_schedules_fewer_sequences_and_so_needs_less_to_sample():
    """Worked example: 70 GiB and more run 1,024 sequences of 8,192 tokens a step, others 256 of 2,048: a quarter."""
    large, small = (evaluate(Plan(gpu_memory_gib=gib)).memory for gib in (70, 69.9))
    assert large.activation_bytes == 1_904_345_088 + 87_241_523
    assert small.activation_bytes == pytest.approx(large.activation_bytes / 4, abs=1)
