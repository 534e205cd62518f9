"""What the engine books, against the answers of its own planner and against numbers worked by hand."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from kvplan import Plan, evaluate, load_preset
from kvplan.catalog import resolve
from kvplan.engine import blocks_per_request, capacity, in_flight_tokens, layout, start_check
from kvplan.specs import LayerGroup, ModelSpec
from kvplan.units import GIB

POOL_33_GIB = 35_755_602_739
"""33.3 GiB, which the worked examples of the engine use."""
EIGHT_B_BLOCK = 2_097_152

GPUS = {"h100": "h100-sxm", "a100": "a100-80-sxm", "b200": "b200", "l40s": "l40s"}
FULL_ATTENTION = ("full-GQA", "full-MHA", "full-MQA")
NOT_PLAIN = {
    "falcon-40b": "ignores the cache dtype",
    "Llama-3.1-70B-Instruct-FP8": "the checkpoint sets the cache dtype",
    "Qwen3-235B-A22B-NVFP4": "the checkpoint sets the cache dtype",
    "Llama-3_3-Nemotron-Super-49B-v1": "layers of several shapes",
}


def read_answers():
    with (Path(__file__).parent / "engine_answers.csv").open(newline="") as file:
        source = next(file)
        assert source.startswith("# Answers of vLLM 0.32.0")
        return list(csv.DictReader(file))


ANSWERS = read_answers()
REFUSED = [row for row in ANSWERS if not row["num_blocks"]]
ACCEPTED = [row for row in ANSWERS if row["num_blocks"]]


def answer_id(row):
    plan = ", ".join(row[name] for name in ("gpu", "kv_dtype", "context", "available_bytes"))
    return f"vLLM 0.32 planner: {row['model']} tp{row['tp']} pp{row['pp']}, {plan}"


def engine_of(row):
    """What kvplan answers for one row: the shape and the pool are given, nothing else enters."""
    plan = Plan(
        layers=int(row["layers"]),
        kv_heads=int(row["kv_heads"]),
        head_dim=int(row["head_dim"]),
        gpu=row["gpu"],
        tp=int(row["tp"]),
        pp=int(row["pp"]),
        kv_dtype=row["kv_dtype"],
        context=int(row["context"]),
        kv_cache_memory_bytes=int(row["available_bytes"]),
    )
    return evaluate(plan).engine


@pytest.mark.parametrize("row", ACCEPTED, ids=answer_id)
def test_the_engine_prints_the_same_blocks_tokens_and_concurrency(row):
    engine = engine_of(row)
    assert engine.refused is None
    assert engine.fits is True
    assert engine.num_blocks == int(row["num_blocks"])
    assert engine.kv_cache_tokens == int(row["kv_cache_tokens"])
    assert engine.max_concurrency == float(row["max_concurrency"])
    assert engine.bytes_per_block == int(row["bytes_per_block"])
    assert engine.suggested_context is None


@pytest.mark.parametrize("row", REFUSED, ids=answer_id)
def test_the_engine_refuses_a_pool_too_small_and_suggests_the_same_length(row):
    engine = engine_of(row)
    assert engine.refused is None
    assert engine.fits is False
    assert engine.suggested_context == (int(row["suggested_context"]) if row["suggested_context"] else None)


def test_the_sample_covers_every_model_split_dtype_and_gpu():
    """vLLM 0.32 planner: what the shipped sample of its answers must hold."""
    assert len(ANSWERS) == 300
    assert len(REFUSED) == 58
    assert len({row["model"] for row in ANSWERS}) == 32
    assert {row["gpu"] for row in ANSWERS} == set(GPUS.values())
    assert {row["kv_dtype"] for row in ANSWERS} == {"auto", "bfloat16", "fp8", "fp8_e5m2", "int8_per_token_head"}
    splits = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (4, 1), (4, 2), (4, 3), (8, 1), (8, 2), (16, 1), (16, 3)]
    assert sorted({(int(row["tp"]), int(row["pp"])) for row in ANSWERS}) == splits


def shape_of(config):
    """Layers, KV heads and head width of a config.json, in whichever spelling."""
    config = config.get("text_config", config)

    def value(*names):
        return next((config[name] for name in names if config.get(name) is not None), None)

    heads = value("num_attention_heads", "n_head")
    kv_heads = 1 if config.get("multi_query") else value("num_key_value_heads") or heads
    head_dim = value("head_dim") or value("hidden_size", "n_embd") // heads
    return value("num_hidden_layers", "n_layer"), kv_heads, head_dim


def plain_cases(folder):
    with (folder / "cases.jsonl").open() as file:
        for line in file:
            case = json.loads(line)
            plain = case.get("attention_kind") in FULL_ATTENTION and not case["settings"]
            if plain and case["model"] not in NOT_PLAIN:
                yield case


def test_every_answer_for_full_attention_is_matched(shared):
    """vLLM 0.32 planner: all 1,671 of its answers for plain full attention at default settings."""
    folder = next(shared.glob("*/cases.jsonl")).parent
    shapes, wrong, errors, seen = {}, [], 0, 0
    for case in plain_cases(folder):
        model = case["model"]
        if model not in shapes:
            shapes[model] = shape_of(json.loads((folder / "configs" / f"{model}.json").read_text()))
        layers, kv_heads, head_dim = shapes[model]
        engine = engine_of(
            {
                "layers": layers,
                "kv_heads": kv_heads,
                "head_dim": head_dim,
                "gpu": GPUS[case["gpu"]],
                "tp": case["tp"],
                "pp": case["pp"],
                "kv_dtype": {"bf16": "auto"}.get(case["kv_dtype"], case["kv_dtype"]),
                "context": case["max_model_len"],
                "available_bytes": case["available_bytes"],
            }
        )
        seen += 1
        errors += "error" in case
        if _mine(engine, case) != _theirs(case):
            wrong.append((model, case["tp"], case["pp"], case["max_model_len"], _mine(engine, case), _theirs(case)))
    assert (seen, errors) == (1671, 58)
    assert not wrong, wrong[:5]


def _theirs(case):
    if "error" in case:
        error = case["error"]
        return (False, None, error["suggested_max_len"], error["needed_gib"], error["usable_gib"])
    (group,) = case["groups"]
    return (
        True,
        None,
        None,
        case["num_blocks"],
        case["kv_tokens"],
        case["max_concurrency"],
        case["bytes_per_block"],
        case["block_size"],
        (group["layers"], group["block_size"], group["page_size_bytes"], group["blocks_per_request"]),
    )


def _mine(engine, case):
    if "error" in case:
        sizes = (engine.needed_bytes, engine.usable_bytes)
        printed = [str(round(size / GIB, 2)) for size in sizes] if case["error"]["needed_gib"] else [None, None]
        return (engine.fits, engine.refused, engine.suggested_context, *printed)
    (group,) = engine.groups
    return (
        engine.fits,
        engine.refused,
        engine.suggested_context,
        engine.num_blocks,
        engine.kv_cache_tokens,
        engine.max_concurrency,
        engine.bytes_per_block,
        engine.block_size,
        (group.layers, group.block_tokens, group.page_bytes, group.blocks_per_request),
    )


# Worked by hand


def eight_b(**fields):
    return evaluate(Plan(model="llama-3.1-8b", **fields)).engine


def seventy_b(**fields):
    return evaluate(Plan(model="llama-3.1-70b", **fields)).engine


def test_the_8b_turns_33_gib_into_272784_tokens():
    """vLLM 0.32 planner, worked example: page 16·8·(128+128)·2, 32 layers."""
    engine = eight_b(context=32_768, kv_cache_memory_bytes=POOL_33_GIB)
    assert engine.groups == [("full", 32, 16, 65_536, 2048)]
    assert engine.bytes_per_block == 32 * 65_536 == EIGHT_B_BLOCK
    assert engine.num_blocks == 17_049
    assert engine.blocks_per_request == 2048
    assert f"{engine.max_concurrency:.4f}" == "8.3247"
    assert engine.kv_cache_tokens == 272_784
    assert engine.fits


def test_the_70b_at_its_longest_is_refused_with_109088():
    """vLLM 0.32 planner, worked example: 6,819 blocks, 6,818 usable, 8,192 needed."""
    engine = seventy_b(context=131_072, kv_cache_memory_bytes=POOL_33_GIB)
    assert engine.bytes_per_block == 5_242_880
    assert (engine.num_blocks, engine.blocks_per_request) == (6819, 8192)
    assert engine.fits is False
    assert engine.refused is None
    assert engine.suggested_context == 6818 * 16 == 109_088
    assert engine.needed_bytes == 40 * GIB
    assert engine.usable_bytes == POOL_33_GIB - 5_242_880


@pytest.mark.parametrize("context", [1, 16, 17, 4096, 10_007])
def test_one_request_needs_its_blocks_and_the_null_block(context):
    """vLLM 0.32 planner: need + 1 block is accepted, one byte less is refused."""
    need = -(-context // 16) * EIGHT_B_BLOCK
    accepted = eight_b(context=context, kv_cache_memory_bytes=need + EIGHT_B_BLOCK)
    assert accepted.fits is True
    assert accepted.suggested_context is None
    assert (accepted.needed_bytes, accepted.usable_bytes) == (need, need)
    refused = eight_b(context=context, kv_cache_memory_bytes=need + EIGHT_B_BLOCK - 1)
    assert refused.fits is False
    assert refused.suggested_context == ((need // EIGHT_B_BLOCK - 1) * 16 or None)


def test_the_null_block_is_in_what_the_engine_prints():
    """vLLM 0.32 planner: two blocks for one request of two print as two blocks, although it does not start."""
    engine = eight_b(context=32, kv_cache_memory_bytes=2 * EIGHT_B_BLOCK)
    assert (engine.num_blocks, engine.kv_cache_tokens, engine.max_concurrency) == (2, 32, 1.0)
    assert engine.fits is False
    assert engine.suggested_context == 16


def test_a_length_off_the_block_changes_the_tokens():
    """vLLM 0.32 planner, worked example: 10,007 tokens book 626 blocks."""
    engine = eight_b(context=10_007, kv_cache_memory_bytes=POOL_33_GIB)
    assert engine.blocks_per_request == 626
    assert engine.max_concurrency == 17_049 / 626
    assert f"{engine.max_concurrency:.4f}" == "27.2348"
    assert engine.kv_cache_tokens == 272_538


@pytest.mark.parametrize("available", [0, 1, EIGHT_B_BLOCK - 1, EIGHT_B_BLOCK, 2 * EIGHT_B_BLOCK - 1])
def test_a_pool_without_a_block_beside_the_null_block_has_no_suggestion(available):
    """vLLM 0.32 planner: no available memory, also with exactly one block."""
    engine = eight_b(context=16, kv_cache_memory_bytes=available)
    assert engine.num_blocks == available // EIGHT_B_BLOCK
    assert engine.fits is False
    assert engine.refused is None
    assert engine.suggested_context is None


def test_a_suggestion_starts_and_one_token_more_does_not():
    """vLLM 0.32 planner: the suggested length is the longest that passes the check."""
    for pool in (3 * EIGHT_B_BLOCK, POOL_33_GIB, 7 * GIB + 12_345):
        longest = eight_b(context=1_000_000, kv_cache_memory_bytes=pool).suggested_context
        assert longest == (pool // EIGHT_B_BLOCK - 1) * 16
        assert eight_b(context=longest, kv_cache_memory_bytes=pool).fits
        assert not eight_b(context=longest + 1, kv_cache_memory_bytes=pool).fits


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [
        pytest.param(61, 2, (31, 30), id="vLLM 0.32 planner: 61 layers over 2"),
        pytest.param(62, 4, (15, 16, 16, 15), id="vLLM 0.32 planner: 62 layers over 4"),
        pytest.param(32, 4, (8, 8, 8, 8), id="vLLM 0.32 planner: 32 layers over 4"),
    ],
)
def test_a_pipeline_is_cut_as_the_engine_cuts_it(layers, pp, stages):
    plan = Plan(layers=layers, pp=pp, context=4096, kv_cache_memory_bytes=POOL_33_GIB)
    assert layout(resolve(plan)).stage_block_bytes == tuple(65_536 * stage for stage in stages)
    engine = evaluate(plan).engine
    assert engine.bytes_per_block == 65_536 * max(stages)
    assert engine.num_blocks == POOL_33_GIB // engine.bytes_per_block
    assert engine.groups[0].layers == layers


def test_the_first_stage_that_fails_writes_the_error():
    """vLLM 0.32 planner: 61 layers as 31, 30 and 62 as 15, 16, 16, 15; each stage is checked on its own."""
    plan = Plan(layers=62, pp=4, context=1600)
    small, large = 15 * 65_536, 16 * 65_536
    two_stages = evaluate(Plan(layers=61, pp=2, context=1600, kv_cache_memory_bytes=50 * 31 * 65_536)).engine
    assert (two_stages.needed_bytes, two_stages.usable_bytes) == (100 * 31 * 65_536, 49 * 31 * 65_536)
    both_fail = evaluate(plan.model_copy(update={"kv_cache_memory_bytes": 50 * small})).engine
    assert (both_fail.needed_bytes, both_fail.usable_bytes) == (100 * small, 49 * small)
    assert both_fail.suggested_context == 49 * 16
    second_fails = evaluate(plan.model_copy(update={"kv_cache_memory_bytes": 101 * small})).engine
    assert (second_fails.needed_bytes, second_fails.usable_bytes) == (100 * large, 101 * small - large)
    assert second_fails.suggested_context == (101 * small // large - 1) * 16
    assert second_fails.fits is False
    fullest = evaluate(plan.model_copy(update={"kv_cache_memory_bytes": 101 * large})).engine
    assert fullest.fits is True
    assert (fullest.needed_bytes, fullest.usable_bytes) == (100 * large, 100 * large)


@pytest.mark.parametrize(
    ("kv_dtype", "page"),
    [
        pytest.param("auto", 65_536, id="vLLM 0.32 planner: auto"),
        pytest.param("bf16", 65_536, id="vLLM 0.32 planner: bf16"),
        pytest.param("fp16", 65_536, id="vLLM 0.32 planner: fp16"),
        pytest.param("fp8", 32_768, id="vLLM 0.32 planner: fp8, scales are per tensor"),
        pytest.param("fp8_e5m2", 32_768, id="vLLM 0.32 planner: fp8_e5m2"),
        pytest.param("int8_per_token_head", 33_792, id="vLLM 0.32 planner: 16·8·(256+8)"),
        pytest.param("fp8_per_token_head", 33_792, id="vLLM 0.32 planner: 16·8·(256+8), fp8"),
        pytest.param("fp32", 131_072, id="plain width, 4 bytes"),
        pytest.param("int8", 32_768, id="plain width, 1 byte"),
        pytest.param("int4", 16_384, id="plain width, half a byte"),
    ],
)
def test_a_page_of_the_8b_is_sixteen_tokens_of_its_width(kv_dtype, page):
    engine = eight_b(kv_dtype=kv_dtype, kv_cache_memory_bytes=POOL_33_GIB)
    assert engine.groups[0].page_bytes == page
    assert engine.bytes_per_block == 32 * page
    assert engine.num_blocks == POOL_33_GIB // (32 * page)


@pytest.mark.parametrize("kv_dtype", ["fp32", "int8", "int4"])
def test_a_width_the_engine_has_no_format_for_is_noted(kv_dtype):
    """vLLM 0.32: its cache dtypes."""
    assert any(kv_dtype in note for note in evaluate(Plan(kv_dtype=kv_dtype)).notes)
    assert not evaluate(Plan(kv_dtype="fp8_per_token_head")).notes


def test_an_odd_number_of_int4_elements_rounds_the_page_up():
    """Hand computed: one head of width 3, values of 4 bits, keys of 8: one token is 36 bits, three are 108."""
    plan = Plan(kv_heads=1, head_dim=3, kv_dtype="int8", v_dtype="int4", block_size=3)
    engine = evaluate(plan).engine
    assert engine.groups[0].page_bytes == 14
    assert evaluate(plan).cache.bytes_per_token == 32 * 36 // 8


@pytest.mark.parametrize(
    ("kv_dtype", "v_dtype", "page"),
    [
        pytest.param("bf16", "fp8", 16 * 8 * (128 * 2 + 128), id="hand computed: bf16 keys, fp8 values"),
        pytest.param("fp8", "bf16", 16 * 8 * (128 + 128 * 2), id="hand computed: fp8 keys, bf16 values"),
        pytest.param("fp8", "int4", 16 * 8 * (128 + 64), id="hand computed: fp8 keys, int4 values"),
        pytest.param("bf16", "int8_per_token_head", 16 * 8 * (256 + 128 + 4), id="hand computed: scaled values only"),
    ],
)
def test_keys_and_values_of_different_widths_add_up(kv_dtype, v_dtype, page):
    engine = eight_b(kv_dtype=kv_dtype, v_dtype=v_dtype, kv_cache_memory_bytes=POOL_33_GIB)
    assert engine.groups[0].page_bytes == page
    assert evaluate(Plan(kv_dtype=kv_dtype, v_dtype=v_dtype)).cache.bytes_per_token == 32 * page // 16


@pytest.mark.parametrize(
    ("tp", "page"),
    [
        pytest.param(1, 65_536, id="vLLM 0.32 planner: 8 heads a rank"),
        pytest.param(4, 16_384, id="vLLM 0.32 planner: 2 heads a rank"),
        pytest.param(8, 8192, id="vLLM 0.32 planner: 1 head a rank"),
        pytest.param(16, 8192, id="vLLM 0.32 planner: 1 head a rank, replicated"),
    ],
)
def test_tensor_parallel_splits_the_page_down_to_one_head(tp, page):
    assert eight_b(tp=tp, kv_cache_memory_bytes=POOL_33_GIB).groups[0].page_bytes == page


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"tp": 3}, ("tp", "32", "3"), id="vLLM 0.32: 32 attention heads over 3"),
        pytest.param({"tp": 64}, ("tp", "32", "64"), id="vLLM 0.32: 32 attention heads over 64"),
        pytest.param({"model": "qwen2.5-7b", "tp": 8}, ("tp", "28", "8"), id="vLLM 0.32: 28 attention heads over 8"),
        pytest.param({"model": "qwen2.5-7b", "tp": 7}, ("tp", "4", "7"), id="vLLM 0.32: 4 KV heads over 7"),
        pytest.param({"model": "qwen2.5-7b", "tp": 14}, ("tp", "4", "14"), id="vLLM 0.32: 4 KV heads over 14"),
        pytest.param({"kv_heads": 5, "tp": 2}, ("tp", "5", "2"), id="vLLM 0.32: 5 KV heads over 2"),
        pytest.param({"pp": 33}, ("pp", "stage 33 of 33"), id="vLLM 0.32: 32 layers over 33 stages"),
        pytest.param({"layers": 1, "pp": 2}, ("pp", "stage 2 of 2"), id="vLLM 0.32: 1 layer over 2 stages"),
    ],
)
def test_a_split_the_engine_cannot_make_is_refused_in_a_sentence(fields, words):
    report = evaluate(Plan(**fields, kv_cache_memory_bytes=POOL_33_GIB))
    engine, capacity_part = report.engine, report.capacity
    assert engine.fits is False
    assert engine.refused.startswith(words[0])
    assert all(word in engine.refused for word in words)
    assert (engine.num_blocks, engine.kv_cache_tokens, engine.max_concurrency) == (0, 0, 0)
    assert engine.suggested_context is None
    assert (capacity_part.memory_ceiling, capacity_part.batch_ceiling, capacity_part.on_demand_ceiling) == (0, 0, 0)
    assert capacity_part.binding == "does_not_fit"
    assert report.cache.bytes_per_token > 0


@pytest.mark.parametrize("pp", [1, 16, 32])
def test_as_many_stages_as_layers_are_accepted(pp):
    """vLLM 0.32: the last stage still has a layer."""
    assert eight_b(pp=pp, kv_cache_memory_bytes=POOL_33_GIB).fits


def own_model(*groups, **fields):
    """A model that nobody released, of these layers."""
    sources = dict.fromkeys(("parameters", "weight_bytes", "max_position_embeddings", "groups"), "made up")
    known = {"id": "own", "name": "Own", "parameters": 1, "weight_bytes": 2, "max_position_embeddings": 1_048_576}
    return ModelSpec(**(known | fields), groups=groups, sources=sources)


FOUR_FULL = LayerGroup(kind="full", layers=4, kv_heads=8, head_dim=128, value_head_dim=128)
FOUR_SLIDING = FOUR_FULL.model_copy(update={"kind": "sliding", "window": 1024})


def test_windows_have_a_table_of_their_own_beside_full_layers():
    """Hand computed, 8 layers of pages of 65,536 in two tables: a window of 1,024 with 2 x 8,192 tokens in flight."""
    engine = evaluate(Plan(context=32_768, kv_cache_memory_bytes=GIB), model=own_model(FOUR_FULL, FOUR_SLIDING)).engine
    assert engine.refused is None
    windowed = -(-(1023 + 16_384) // 16) + 1
    assert engine.groups == [("full", 4, 16, 65_536, 2048), ("sliding", 4, 16, 65_536, windowed)]
    assert engine.bytes_per_block == 4 * 65_536
    assert engine.num_blocks == GIB // (4 * 65_536)
    assert engine.blocks_per_request == 2048 + windowed
    assert engine.max_concurrency == engine.num_blocks / engine.blocks_per_request
    assert engine.kv_cache_tokens == int(engine.max_concurrency * 32_768)


def test_full_layers_of_two_shapes_share_a_table_and_a_block_holds_a_page_of_each():
    """Hand computed: four layers of eight heads and four of four, one block size."""
    narrow = FOUR_FULL.model_copy(update={"kv_heads": 4})
    engine = evaluate(Plan(kv_cache_memory_bytes=GIB), model=own_model(FOUR_FULL, narrow)).engine
    assert engine.refused is None
    assert engine.groups == [("full", 8, 16, 65_536, 512)]
    assert engine.bytes_per_block == 4 * 65_536 + 4 * 32_768
    assert engine.num_blocks == GIB // engine.bytes_per_block


def test_four_plain_layers_are_one_table():
    assert evaluate(Plan(kv_cache_memory_bytes=GIB), model=own_model(FOUR_FULL)).engine.bytes_per_block == 4 * 65_536


def test_a_model_of_wider_keys_than_values_books_both():
    """Hand computed: keys of 192 and values of 128, 4 heads, 48 layers in bf16."""
    group = LayerGroup(kind="full", layers=48, kv_heads=4, head_dim=192, value_head_dim=128)
    report = evaluate(Plan(kv_cache_memory_bytes=GIB), model=own_model(group))
    assert report.cache.bytes_per_token == 48 * 4 * (192 + 128) * 2
    assert report.engine.groups[0].page_bytes == 16 * 4 * (192 + 128) * 2


def test_capacity_over_arrays_is_capacity_at_each_point():
    """Hand computed: the same function takes one context or many, one pool or many."""
    contexts = np.array([1, 15, 16, 17, 4096, 10_007, 131_072])
    pools = np.array([0, EIGHT_B_BLOCK, 2 * EIGHT_B_BLOCK, GIB, POOL_33_GIB, POOL_33_GIB + 1, 80 * GIB])
    for model in (own_model(FOUR_FULL), own_model(FOUR_FULL, FOUR_SLIDING), load_preset("llama-3.1-8b", "model")):
        setting = resolve(Plan(), model)
        shape = layout(setting)
        many = capacity(shape, contexts, pools, in_flight_tokens(setting, contexts))
        for index, (context, pool) in enumerate(zip(contexts.tolist(), pools.tolist(), strict=True)):
            in_flight = in_flight_tokens(setting, context)
            one = capacity(shape, context, pool, in_flight)
            assert many.num_blocks[index] == one.num_blocks
            assert many.blocks_per_request[index] == one.blocks_per_request
            assert one.blocks_per_request == blocks_per_request(shape, context, in_flight)
            assert many.max_concurrency[index] == one.max_concurrency
            assert many.kv_cache_tokens[index] == one.kv_cache_tokens
            assert many.fits[index] == one.fits == start_check(shape, setting, context, pool).fits
