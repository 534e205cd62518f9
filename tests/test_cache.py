"""What a sequence holds: widths, heads, stages and shared prefixes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import CONFIGS, PACKED_MODELS, known_plans

from kvplan import Plan, evaluate
from kvplan.cache import (
    batch_tokens_held,
    heads_per_rank,
    held_bytes,
    request_bits_by_stage,
    shared_blocks,
    stage_layers,
    token_bits,
)
from kvplan.units import DTYPES

# Stages


@given(st.integers(1, 4096), st.integers(1, 64))
def test_the_stages_of_a_pipeline_hold_every_layer_once(layers, pp):
    """vLLM 0.32 planner: an even share, the remainder one each, from the second to last backwards."""
    stages = stage_layers(layers, pp)
    share, remainder = divmod(layers, pp)
    assert len(stages) == pp
    assert sum(stages) == layers
    assert max(stages) == math.ceil(layers / pp)
    assert set(stages) <= {share, share + 1}
    assert stages == [share] * (pp - remainder - 1) + [share + 1] * remainder + [share]


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [
        pytest.param(61, 2, [31, 30], id="vLLM 0.32 planner: 61 over 2"),
        pytest.param(62, 4, [15, 16, 16, 15], id="vLLM 0.32 planner: 62 over 4"),
        pytest.param(63, 4, [16, 16, 16, 15], id="vLLM 0.32 planner: 63 over 4"),
        pytest.param(80, 3, [27, 27, 26], id="vLLM 0.32 planner: 80 over 3"),
        pytest.param(94, 4, [23, 24, 24, 23], id="vLLM 0.32 planner: 94 over 4"),
        pytest.param(32, 1, [32], id="vLLM 0.32 planner: one stage"),
    ],
)
def test_the_last_stage_takes_none_of_the_remainder(layers, pp, stages):
    assert stage_layers(layers, pp) == stages


# Heads and widths


@pytest.mark.parametrize(
    ("kv_heads", "tp", "heads"),
    [
        pytest.param(8, 1, 8, id="vLLM 0.32 planner: 8 heads on 1"),
        pytest.param(8, 8, 1, id="vLLM 0.32 planner: 8 heads on 8"),
        pytest.param(8, 16, 1, id="vLLM 0.32 planner: 8 heads on 16, copied"),
        pytest.param(1, 64, 1, id="vLLM 0.32 planner: 1 head on 64, copied"),
        pytest.param(96, 4, 24, id="vLLM 0.32 planner: 96 heads on 4"),
    ],
)
def test_a_rank_has_its_share_of_the_heads_and_at_least_one(kv_heads, tp, heads):
    assert heads_per_rank(kv_heads, tp) == heads


@pytest.mark.parametrize(
    ("k", "v", "bits"),
    [
        pytest.param("bf16", "bf16", 8 * 256 * 16, id="hand computed: 16 bits"),
        pytest.param("fp16", "fp16", 8 * 256 * 16, id="hand computed: 16 bits, fp16"),
        pytest.param("fp32", "fp32", 8 * 256 * 32, id="hand computed: 32 bits"),
        pytest.param("fp8", "fp8", 8 * 256 * 8, id="hand computed: 8 bits"),
        pytest.param("fp8_e5m2", "int8", 8 * 256 * 8, id="hand computed: 8 bits, another format"),
        pytest.param("int4", "int4", 8 * 256 * 4, id="hand computed: 4 bits"),
        pytest.param("bf16", "int4", 8 * 128 * 20, id="hand computed: 16 and 4 bits"),
        pytest.param("int8_per_token_head", "int8_per_token_head", 8 * (256 + 8) * 8, id="vLLM 0.32: two fp32 scales"),
        pytest.param("fp8_per_token_head", "fp8", 8 * (256 + 4) * 8, id="hand computed: a scale for keys only"),
    ],
)
def test_a_token_takes_the_bits_of_its_keys_and_values(k, v, bits):
    """Eight heads of width 128."""
    assert token_bits(heads=8, head_dim=128, value_head_dim=128, k=DTYPES[k], v=DTYPES[v]) == bits


def test_keys_and_values_may_differ_in_width():
    """Hand computed: 4 heads of 192 and 128 in bf16."""
    assert token_bits(heads=4, head_dim=192, value_head_dim=128, k=DTYPES["bf16"], v=DTYPES["bf16"]) == 4 * 320 * 16


@given(
    st.integers(1, 200),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.integers(1, 512),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.integers(1, 8),
    st.sampled_from(["bf16", "fp8", "int4", "fp32"]),
    st.integers(1, 20_000),
)
def test_bytes_follow_the_closed_form_for_every_shape(layers, kv_heads, head_dim, tp, pp, kv_dtype, context):
    """Closed form 2·L·n_kv·d·b over stages and ranks: the fullest rank, and all of them with copied heads."""
    plan = Plan(layers=layers, kv_heads=kv_heads, head_dim=head_dim, tp=tp, pp=pp, kv_dtype=kv_dtype, context=context)
    cache = evaluate(plan).cache
    bits = 2 * max(1, kv_heads // tp) * head_dim * DTYPES[kv_dtype].bits
    assert cache.bytes_per_token == math.ceil(layers / pp) * bits // 8
    assert cache.bytes_per_token_total == layers * tp * bits // 8
    assert cache.request_bytes_held == context * cache.bytes_per_token
    assert cache.request_bytes_held_total == context * cache.bytes_per_token_total
    blocks = math.ceil(context / 16)
    assert cache.request_bytes_booked == blocks * 16 * cache.bytes_per_token
    assert cache.request_bytes_booked_total == blocks * 16 * cache.bytes_per_token_total
    assert all(isinstance(size, int) for size in (cache.bytes_per_token, cache.request_bytes_held))


def test_half_bytes_are_kept_a_token_and_rounded_up_a_request():
    """Hand computed: one layer, one head of width 1, a byte for the key and half a byte for the value."""
    cache = evaluate(Plan(layers=1, kv_heads=1, head_dim=1, kv_dtype="int8", v_dtype="int4", context=3)).cache
    assert cache.bytes_per_token == 1.5
    assert cache.request_bytes_held == 5
    even = evaluate(Plan(layers=2, kv_heads=1, head_dim=1, kv_dtype="int8", v_dtype="int4", context=3)).cache
    assert even.bytes_per_token == 3
    assert isinstance(even.bytes_per_token, int)
    assert even.request_bytes_held == 9


def test_a_refused_split_still_says_what_a_token_takes():
    """Worked example: 32 query heads cannot be cut in three, their cache can be counted."""
    report = evaluate(Plan(tp=3))
    assert report.engine.refused
    assert report.cache.bytes_per_token == 2 * 32 * 2 * 128 * 2


# Many lengths at once

LENGTHS = np.array([1, 2, 3, 4, 7, 8, 127, 128, 129, 1000, 4095, 4096, 8193, 131_072, 1_000_003])


def one_by_one(setting, lengths):
    """Bytes on a device of the fullest stage, in whole numbers of any size."""
    return [-(-max(request_bits_by_stage(setting, int(tokens))) // 8) for tokens in lengths]


@pytest.mark.parametrize("parallel", [{}, {"pp": 3}, {"dcp": 4}, {"tp": 4, "pp": 2}], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_bytes_of_many_requests_are_those_of_each(name, parallel):
    """Every architecture of the configs: growing, windowed, chunked, compressed, latent and states."""
    setting = evaluate(Plan(spec=PACKED_MODELS[name], **parallel)).setting
    assert held_bytes(setting, LENGTHS).tolist() == one_by_one(setting, LENGTHS)


@given(known_plans(), st.lists(st.integers(1, 2**17), min_size=1, max_size=5))
def test_bytes_of_many_requests_of_any_plan_are_those_of_each(plan, lengths):
    setting = evaluate(plan).setting
    found = held_bytes(setting, np.array(lengths))
    assert found.tolist() == one_by_one(setting, lengths)
    assert found.shape == (len(lengths),)


def test_a_request_of_the_context_holds_what_the_report_says():
    for model in ("llama-3.1-8b", "gemma-3-27b", "falcon-mamba-7b", "deepseek-v4-flash"):
        report = evaluate(Plan(model=model))
        assert held_bytes(report.setting, np.array([8192])).tolist() == [report.cache.request_bytes_held]


# A common prefix


def stored_positions(sequences, tokens, prefix, block_size):
    """Every stored position of a batch: those of whole shared blocks belong to nobody, the others to their sequence."""
    stored = set()
    for sequence in range(sequences):
        for position in range(tokens):
            last_of_block = (position // block_size + 1) * block_size - 1
            # A block is shared when all of it is prefix and the sequence still has a token of its own behind it.
            whole = last_of_block < prefix and last_of_block < tokens - 1
            stored.add(("all" if whole else sequence, position))
    return len(stored)


@given(st.integers(1, 12), st.integers(1, 200), st.integers(0, 250), st.integers(1, 40))
def test_a_batch_holds_every_distinct_position_once(sequences, tokens, prefix, block_size):
    """Copy on write, PagedAttention, SOSP 2023: enumerated position by position."""
    found = batch_tokens_held(sequences=sequences, tokens=tokens, shared_prefix_tokens=prefix, block_size=block_size)
    assert found == stored_positions(sequences, tokens, prefix, block_size)


@given(st.integers(1, 2**20), st.integers(1, 2**24), st.integers(0, 2**24), st.integers(1, 65_536))
def test_sharing_never_costs_and_a_single_sequence_gains_nothing(sequences, tokens, prefix, block_size):
    """Closed form P + B (S - P), with whole blocks of P."""
    shared = min(prefix, tokens - 1) // block_size * block_size
    found = batch_tokens_held(sequences=sequences, tokens=tokens, shared_prefix_tokens=prefix, block_size=block_size)
    assert found == shared + sequences * (tokens - shared) <= sequences * tokens
    assert batch_tokens_held(sequences=1, tokens=tokens, shared_prefix_tokens=prefix) == tokens


@pytest.mark.parametrize(
    ("prefix", "context", "block_size", "blocks"),
    [
        pytest.param(0, 4096, 16, 0, id="no prefix"),
        pytest.param(15, 4096, 16, 0, id="less than a block"),
        pytest.param(1000, 4096, 16, 62, id="62 and a half blocks"),
        pytest.param(4096, 4096, 16, 255, id="all but the block of the last token"),
        pytest.param(9999, 4096, 16, 255, id="longer than the request"),
        pytest.param(9999, 1, 16, 0, id="a request of one token"),
        pytest.param(9999, 100, 1, 99, id="blocks of one token"),
    ],
)
def test_whole_blocks_of_a_prefix_are_found_already_stored(prefix, context, block_size, blocks):
    """Worked example: the last token of a request is its own."""
    assert shared_blocks(prefix, context, block_size) == blocks
    assert shared_blocks(prefix, np.array([context, context]), block_size).tolist() == [blocks, blocks]
