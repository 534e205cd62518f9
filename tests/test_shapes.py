"""The tensors of a cache: dimensions of the literature, and that they multiply to the bytes held and to the pool."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import group_texts

from kvplan import Plan, evaluate, presets
from kvplan.cache import held_bytes
from kvplan.engine import layout
from kvplan.shapes import shapes
from kvplan.units import DTYPES

ROOMY = {"kv_cache_memory_bytes": 2**44}
"""A pool in which every preset serves at least one request."""


def rows_of(**fields):
    return shapes(evaluate(Plan(**fields)))


def paged(rows):
    return {row["Layers"]: row["Paged, each layer"] for row in rows}


def contiguous(rows):
    return {row["Layers"]: row["Contiguous"] for row in rows}


def dimensions(text):
    """The numbers of a shape; a width of "a + b" is their sum."""
    return [sum(int(part.replace(",", "")) for part in word.split(" + ")) for word in text.strip("[]").split(", ")]


def bits(text, dtype_bits):
    """The bits a shape stands for: its elements, or its bytes where a width is given in bytes."""
    each = 8 if "bytes" in text else dtype_bits
    return math.prod(dimensions(text.replace(" bytes", ""))) * each


# Plain attention


def test_the_shapes_of_llama_8b():
    """[layers, 2, batch, heads, context, head dim] contiguous and [blocks, 2, block, heads, head dim] paged."""
    report = evaluate(Plan())
    assert shapes(report) == [
        {
            "Layers": "full attention",
            "Contiguous": f"[32, 2, {report.capacity.batch_ceiling}, 8, 8,192, 128]",
            "Paged, each layer": f"[{report.engine.num_blocks:,}, 2, 16, 8, 128]",
        }
    ]


def test_a_batch_and_a_context_of_ones_own():
    assert contiguous(rows_of(batch=7, context=32_768)) == {"full attention": "[32, 2, 7, 8, 32,768, 128]"}


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({"tp": 2}, "[32, 2, 7, 4, 8,192, 128]"),
        ({"tp": 8}, "[32, 2, 7, 1, 8,192, 128]"),
        ({"tp": 16}, "[32, 2, 7, 1, 8,192, 128]"),  # heads are copied beyond tp 8
        ({"pp": 2}, "[16, 2, 7, 8, 8,192, 128]"),
        ({"pp": 3}, "[11, 2, 7, 8, 8,192, 128]"),  # 11, 11, 10
        ({"layers": 5, "kv_heads": 2, "head_dim": 80}, "[5, 2, 7, 2, 8,192, 80]"),
    ],
)
def test_a_device_has_its_share(fields, shape):
    assert contiguous(rows_of(batch=7, **fields)) == {"full attention": shape}


@given(
    st.integers(1, 200),
    st.sampled_from([1, 2, 4, 8, 32]),
    st.integers(1, 256),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.integers(1, 4),
    st.sampled_from(["bf16", "fp16", "fp8", "fp8_e5m2", "int8", "int4", "fp32"]),
    st.none() | st.sampled_from([1, 8, 16, 64, 100]),
    st.integers(1, 20_000),
)
def test_paged_dimensions_multiply_to_the_blocks_of_the_pool(
    layers, kv_heads, head_dim, tp, pp, kv_dtype, block_size, context
):
    """Closed form: blocks x 2 x block x heads x head dim x width of a number, over the layers of the fullest stage."""
    shape = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim, "block_size": block_size}
    report = evaluate(Plan(tp=tp, pp=min(pp, layers), kv_dtype=kv_dtype, context=context, **shape))
    (row,) = shapes(report)
    on_stage, pair, batch, heads, tokens, width = dimensions(row["Contiguous"])
    assert (pair, batch, tokens, width) == (2, report.batching.batch, context, head_dim)
    assert heads == max(1, kv_heads // tp)
    whole = report.engine.num_blocks * report.engine.bytes_per_block
    # Half a byte of a token is rounded up a block and layer.
    of_block = -(-2 * report.engine.block_size * heads * width * DTYPES[kv_dtype].bits // 8)
    assert whole == report.engine.num_blocks * of_block * on_stage
    assert dimensions(row["Paged, each layer"]) == [report.engine.num_blocks, 2, report.engine.block_size, heads, width]
    if report.engine.fits:
        assert whole <= report.memory.pool_bytes < whole + report.engine.bytes_per_block


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8", "int4"])
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_the_pool_of_llama_70b_in_bytes(tp, kv_dtype):
    """The product, with 2 bytes a number in bf16, 1 in fp8, half a one in int4."""
    report = evaluate(Plan(model="llama-3.1-70b", gpu="b300", tp=tp, kv_dtype=kv_dtype))
    (row,) = shapes(report)
    product = math.prod(dimensions(row["Paged, each layer"])) * 80
    assert product * DTYPES[kv_dtype].bits // 8 == report.engine.num_blocks * report.engine.bytes_per_block > 0


# Other kinds of layer


def test_mla_stores_one_vector_a_token_without_heads_or_a_second_tensor():
    """DeepSeek-V3: 512 + 64 numbers, the same on every device."""
    for tp in (8, 16):
        report = evaluate(Plan(model="deepseek-v3", gpu="h200", tp=tp, batch=3))
        assert shapes(report) == [
            {
                "Layers": "MLA",
                "Contiguous": "[61, 3, 8,192, 576]",
                "Paged, each layer": f"[{report.engine.num_blocks:,}, {report.engine.block_size}, 576]",
            }
        ]


def test_an_indexer_keeps_its_keys_beside():
    """DeepSeek-V3.2: 128 fp8 numbers and one fp32 scale."""
    rows = rows_of(model="deepseek-v3.2", gpu="h200", tp=8, batch=3)
    assert contiguous(rows) == {"MLA": "[61, 3, 8,192, 576]", "indexer keys": "[61, 3, 8,192, 132 bytes]"}


def test_windows_keep_no_more_than_their_width():
    rows = rows_of(model="gemma-3-27b", batch=3)
    assert contiguous(rows) == {
        "sliding window of 1,024": "[52, 2, 3, 16, 1,024, 128]",
        "full attention": "[10, 2, 3, 16, 8,192, 128]",
    }
    assert contiguous(rows_of(model="gemma-3-27b", batch=3, context=512)) == {
        "sliding window of 1,024": "[52, 2, 3, 16, 512, 128]",
        "full attention": "[10, 2, 3, 16, 512, 128]",
    }


def test_layers_of_unlike_width_have_blocks_of_unlike_length():
    """Gemma 4 E4B: heads of 256 in windows and of 512 elsewhere, in pages of one size: 32 and 16 tokens a block."""
    report = evaluate(Plan(model="gemma-4-e4b"))
    blocks = report.engine.num_blocks
    assert paged(shapes(report)) == {
        "sliding window of 512": f"[{blocks:,}, 2, 32, 2, 256]",
        "full attention": f"[{blocks:,}, 2, 16, 2, 512]",
    }


def test_a_state_has_a_size_and_no_tokens():
    """Qwen3-Next on four devices: 36 states, and 12 layers of attention in blocks as large as a state."""
    report = evaluate(Plan(model="qwen3-next-80b-a3b", gpu="h200", tp=4, batch=3))
    rows = shapes(report)
    assert contiguous(rows) == {
        "gated DeltaNet state": "[36, 3, 274,432 bytes]",
        "full attention": "[12, 2, 3, 1, 8,192, 256]",
    }
    blocks = f"{report.engine.num_blocks:,}"
    assert paged(rows) == {
        "gated DeltaNet state": f"[{blocks}, 274,432 bytes]",
        "full attention": f"[{blocks}, 2, 272, 1, 256]",
    }


def test_a_model_of_states_alone_has_one_row():
    (row,) = rows_of(model="falcon-mamba-7b", batch=3)
    assert row["Layers"] == "Mamba-1 state"
    assert row["Contiguous"] == "[64, 3, 311,296 bytes]"


def test_keys_and_values_of_unlike_width_are_one_tensor_of_both():
    """MiMo-V2-Flash: keys of 192 and values of 128."""
    rows = rows_of(model="mimo-v2-flash", gpu="h200", tp=8, batch=3)
    assert contiguous(rows) == {
        "full attention": "[9, 3, 1, 8,192, 192 + 128]",
        "sliding window of 128": "[39, 3, 1, 128, 192 + 128]",
    }


def test_deepseek_v4_keeps_windows_entries_and_what_is_not_yet_compressed():
    """Entries of 584 bytes: of the last 128 tokens in every layer, and one of 4 or of 128 tokens for all of them."""
    rows = rows_of(model="deepseek-v4-flash", gpu="b200", tp=8, batch=3)
    found = [(row["Layers"], row["Contiguous"]) for row in rows]
    assert found == [
        ("windows of entries of 128", "[2, 3, 128, 584 bytes]"),
        ("windows of entries of 128", "[21, 3, 128, 584 bytes]"),
        ("indexer keys, 1 of 4 tokens", "[21, 3, 2,048, 132 bytes]"),
        ("entries, 1 of 4 tokens", "[21, 3, 2,048, 584 bytes]"),
        ("not yet compressed, of the last 8", "[21, 3, 8, 2,048 bytes]"),
        ("not yet compressed, of the last 8", "[21, 3, 8, 8,192 bytes]"),
        ("windows of entries of 128", "[20, 3, 128, 584 bytes]"),
        ("entries, 1 of 128 tokens", "[20, 3, 64, 584 bytes]"),
        ("not yet compressed, of the last 128", "[20, 3, 128, 4,096 bytes]"),
    ]
    # 256 tokens a block: 64 entries of 4 tokens, 2 of 128.
    slots = {row["Layers"]: dimensions(row["Paged, each layer"].replace(" bytes", ""))[1] for row in rows}
    assert (slots["entries, 1 of 4 tokens"], slots["entries, 1 of 128 tokens"]) == (64, 2)


def test_layers_of_another_stage_have_no_row():
    """The first two layers of DeepSeek-V4 are on the first stage, which is not the fullest."""
    rows = rows_of(model="deepseek-v4-flash", gpu="b200", tp=4, pp=2)
    layers = [dimensions(row["Contiguous"].replace(" bytes", ""))[0] for row in rows]
    assert min(layers) >= 10


def test_draft_layers_have_a_row_of_their_own():
    rows = rows_of(spec_method="eagle3", spec_tokens=3, batch=3)
    assert [row["Contiguous"] for row in rows] == ["[32, 2, 3, 8, 8,192, 128]", "[1, 2, 3, 8, 8,192, 128]"]


# What holds for all


@pytest.mark.parametrize("model", presets("model"))
def test_every_preset_has_tensors_that_hold_what_a_request_holds(model):
    """The contiguous ones of one request at the context, and the paged ones within the pool."""
    report = evaluate(Plan(model=model, context=1024, batch=1, **ROOMY))
    assert report.engine.fits
    assert_multiplies(report)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "llama-3.1-405b", "gpu": "h200", "tp": 8, "pp": 4},
        {"model": "gpt-oss-20b", "pp": 2},
        {"model": "gemma-3-27b", "tp": 4, "pp": 3, "kv_dtype": "fp8"},
        {"model": "deepseek-v3", "gpu": "h200", "tp": 8, "dcp": 4},
        {"model": "llama-3.1-70b", "tp": 16, "dcp": 2},
        {"model": "qwen3-next-80b-a3b", "tp": 2, "spec_method": "mtp"},
        {"model": "llama-4-scout-17b-16e", "tp": 8, "context": 131_072},
    ],
    ids=lambda fields: "&".join(f"{name}={value}" for name, value in fields.items()),
)
def test_tensors_of_a_device_hold_what_a_request_holds_there(fields):
    assert_multiplies(evaluate(Plan(**{"context": 8192} | ROOMY | fields, batch=1)))


def assert_multiplies(report):
    rows = shapes(report)
    width = DTYPES[report.setting.kv_dtype].bits
    held = sum(bits(row["Contiguous"], width) for row in rows)
    assert -(-held // 8) == held_bytes(report.setting, np.array([report.plan.context]))[0]
    for row in rows:
        assert list(row) == ["Layers", "Contiguous", "Paged, each layer"]
        assert dimensions(row["Paged, each layer"].replace(" bytes", ""))[0] == report.engine.num_blocks
        # One block of one layer is a part of what the block costs.
        assert bits(row["Paged, each layer"], width) <= 8 * report.memory.pool_bytes


@given(group_texts())
def test_a_block_of_any_layer_is_the_one_the_engine_cuts(groups):
    """The tokens of a block: those of the table of this kind and window."""
    report = evaluate(Plan(groups=groups, context=4096, **ROOMY))
    tables = layout(report.setting).groups
    rows = shapes(report)
    assert rows
    for row in rows:
        name, words = row["Layers"], row["Paged, each layer"]
        tokens = dimensions(words)[1 if " + " in words else 2]
        kinds = {"full": "full attention", "sliding": "sliding window of {:,}", "chunked": "chunked attention of {:,}"}
        fitting = {table.block_tokens for table in tables if kinds[table.kind].format(table.spec.window or 0) == name}
        assert tokens in fitting


def test_two_windows_of_unlike_width_have_their_own_blocks():
    """Pages of 64 KiB: 16 tokens of 8 heads in windows of 1,024, 32 tokens of 4 heads in windows of 512."""
    rows = rows_of(groups="sliding1024:2x8x128,sliding512:2x4x128,full:2x8x128", **ROOMY)
    slots = {row["Layers"]: dimensions(row["Paged, each layer"])[2] for row in rows}
    assert slots == {"sliding window of 1,024": 16, "sliding window of 512": 32, "full attention": 16}


def test_a_plan_that_does_not_fit_has_shapes_without_blocks():
    rows = rows_of(model="llama-3.1-70b")
    assert paged(rows) == {"full attention": "[0, 2, 16, 8, 128]"}
