"""Every architecture, setting and refusal against the answers of vLLM 0.32.0's own KV cache planner.

`engine_architectures.jsonl` holds a sample of them, one a line: a model of `configs.json`, the fields of a plan, and
what the planner said. All of its answers are compared where they lie beside the checkout.
"""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from strategies import CONFIGS

from kvplan import Plan, evaluate, model_from_hf_config
from kvplan.specs import STATE_KINDS
from kvplan.units import GIB

FOLDER = Path(__file__).parent
GPUS = {"h100": "h100-sxm", "a100": "a100-80-sxm", "b200": "b200", "l40s": "l40s"}
NO_SUCH_FIELD = {"gemma-2-9b", "gemma-3-27b-it", "gpt-oss-20b", "Kimi-K3"}
"""Models the engine refuses to run with `dtype: float16`. A plan has no such field: what a model computes in changes no
number of its cache, so that these four refusals are the one stated exception."""


def read_sample():
    first, *lines = (FOLDER / "engine_architectures.jsonl").read_text().splitlines()
    assert json.loads(first)["source"].startswith("Answers of vLLM 0.32.0's own KV cache planner")
    return [json.loads(line) for line in lines]


SAMPLE = read_sample()
ACCEPTED = [row for row in SAMPLE if "num_blocks" in row["expect"]]
TOO_SMALL = [row for row in SAMPLE if "suggested_context" in row["expect"]]
REFUSED = [row for row in SAMPLE if "refused" in row["expect"]]


@cache
def spec_of(model):
    return model_from_hf_config(CONFIGS[model], id=model)


def fields_of(row):
    return {name: value for name, value in row.items() if name not in ("model", "expect")}


def answer(row):
    return evaluate(Plan(**fields_of(row)), model=spec_of(row["model"])).engine


def row_id(row):
    fields = ", ".join(f"{name} {value}" for name, value in fields_of(row).items())
    return f"vLLM 0.32 planner: {row['model']}, {fields}"


@pytest.mark.parametrize("row", ACCEPTED, ids=row_id)
def test_the_engine_prints_the_same_blocks_tokens_and_concurrency(row):
    engine = answer(row)
    assert (engine.refused, engine.fits, engine.suggested_context) == (None, True, None)
    assert {name: getattr(engine, name) for name in row["expect"]} == row["expect"]


@pytest.mark.parametrize("row", TOO_SMALL, ids=row_id)
def test_a_pool_too_small_has_the_same_suggested_length(row):
    engine = answer(row)
    assert (engine.refused, engine.fits) == (None, False)
    assert engine.suggested_context == row["expect"]["suggested_context"]


@pytest.mark.parametrize("row", REFUSED, ids=row_id)
def test_what_the_engine_would_not_start_is_refused_in_one_sentence_that_names_the_field(row):
    engine = answer(row)
    assert engine.fits is False
    assert engine.refused.split(": ")[0] in Plan.model_fields
    assert len(engine.refused.splitlines()) == 1
    assert (engine.num_blocks, engine.kv_cache_tokens, engine.max_concurrency) == (0, 0, 0)
    assert engine.suggested_context is None


def test_the_sample_covers_every_model_kind_setting_split_dtype_and_gpu():
    """vLLM 0.32 planner: what the shipped sample of its answers must hold."""
    assert len(SAMPLE) >= 320
    assert min(len(ACCEPTED), len(TOO_SMALL), len(REFUSED)) >= 40
    assert Counter(row["model"] for row in SAMPLE).keys() == CONFIGS.keys()
    assert {row["gpu"] for row in ACCEPTED} == set(GPUS.values())
    kinds = {group.kind for row in ACCEPTED for group in spec_of(row["model"]).groups}
    assert kinds == {"full", "sliding", "chunked", "mla", "compressed", "none"} | STATE_KINDS
    assert {row.get("kv_dtype", "auto") for row in ACCEPTED} == {
        "auto", "bfloat16", "fp8", "fp8_e5m2", "int8_per_token_head"
    }  # fmt: skip
    assert {row.get("tp", 1) for row in ACCEPTED} == {1, 2, 4, 8, 16}
    assert {row.get("pp", 1) for row in ACCEPTED} == {1, 2, 3, 4}
    assert {row.get("dcp", 1) for row in ACCEPTED} == {1, 2, 4, 8}
    settings = {
        ("usage", "llm_class"),
        ("async_scheduling", False),
        ("enable_prefix_caching", False),
        ("disable_hybrid_kv_cache_manager", True),
        ("enable_expert_parallel", True),
        ("mamba_ssm_cache_dtype", "float32"),
        ("max_num_seqs", 16),
        ("spec_method", "ngram"),
        ("spec_method", "mtp"),
        *(("spec_tokens", tokens) for tokens in (1, 3, 5)),
        *(("block_size", tokens) for tokens in (16, 32, 64, 128, 256)),
        *(("max_num_batched_tokens", tokens) for tokens in (512, 1000, 2048, 4096, 5000, 32_768)),
    }
    found = {(name, value) for row in SAMPLE for name, value in fields_of(row).items()}
    assert settings <= found
    null = [row for row in TOO_SMALL if row["expect"]["suggested_context"] is None]
    assert 0 < len(null) < len(TOO_SMALL)


def plan_of(case):
    """The plan of one full answer; the numbers of a refusal do not matter."""
    settings = {name: value for name, value in case["settings"].items() if name != "dtype"}
    return Plan(
        gpu=GPUS[case["gpu"]],
        tp=case["tp"],
        pp=case["pp"],
        kv_dtype={"bf16": "auto"}.get(case["kv_dtype"], case["kv_dtype"]),
        context=case.get("max_model_len", 4096),
        kv_cache_memory_bytes=case.get("available_bytes", 2**36),
        **settings,
    )


def would_not_start(case):
    """Whether no memory would help; so it is with a state and no hybrid manager, which to the engine is an error."""
    return "refused" in case or ("error" in case and "Failed to promote" in case["error"]["message"])


def theirs(case):
    if would_not_start(case):
        return "refused"
    if "error" in case:
        error = case["error"]
        return (error["suggested_max_len"], error["needed_gib"], error["usable_gib"])
    return (
        case["num_blocks"],
        case["kv_tokens"],
        case["max_concurrency"],
        case["bytes_per_block"],
        case["block_size"],
        [group["blocks_per_request"] for group in case["groups"]],
    )


def mine(case, engine):
    if engine.refused:
        return "refused"
    if "error" in case:
        sizes = (engine.needed_bytes, engine.usable_bytes)
        printed = [str(round(size / GIB, 2)) for size in sizes] if case["error"]["needed_gib"] else [None, None]
        return (engine.suggested_context, *printed)
    return (
        engine.num_blocks,
        engine.kv_cache_tokens,
        engine.max_concurrency,
        engine.bytes_per_block,
        engine.block_size,
        [group.blocks_per_request for group in engine.groups],
    )


def test_every_answer_of_the_planner_is_matched(shared):
    """vLLM 0.32 planner: all 7,003 of its answers, errors and refusals."""
    folder = next(shared.glob("*/cases.jsonl")).parent
    specs, wrong, kinds, exceptions = {}, [], Counter(), []
    with (folder / "cases.jsonl").open() as lines:
        for line in lines:
            case = json.loads(line)
            model = case["model"]
            if model not in specs:
                specs[model] = model_from_hf_config(folder / "configs" / f"{model}.json")
            kinds["refused" if "refused" in case else "error" if "error" in case else "answer"] += 1
            if case["settings"].get("dtype") == "float16" and "refused" in case:
                exceptions.append(model)
                continue
            engine = evaluate(plan_of(case), model=specs[model]).engine
            fits = "error" not in case and "refused" not in case
            if mine(case, engine) != theirs(case) or engine.fits != fits:
                wrong.append((model, case["settings"], mine(case, engine), theirs(case)))
    assert kinds == {"answer": 6615, "error": 232, "refused": 156}
    assert sorted(exceptions) == sorted(NO_SUCH_FIELD)
    assert not wrong, (len(wrong), wrong[:5])


def test_the_table_of_configs_says_what_the_planners_own_say(shared):
    """Hugging Face configs, reduced: those shipped with the tests are read as those the planner was run with."""
    folder = next(shared.glob("*/cases.jsonl")).parent / "configs"
    paths = sorted(folder.glob("*.json"))
    assert {path.stem for path in paths} == CONFIGS.keys()
    for path in paths:
        assert model_from_hf_config(path) == model_from_hf_config(CONFIGS[path.stem]), path.stem


# Worked by hand

POOL_33_GIB = 35_755_602_739
"""33.3 GiB, which the worked examples of the engine use."""


def worked(model, **fields):
    return evaluate(Plan(**({"context": 32_768, "kv_cache_memory_bytes": POOL_33_GIB} | fields)), model=spec_of(model))


@pytest.mark.parametrize(
    ("model", "fields", "block_size", "page"),
    [
        pytest.param("Jamba-1.5-Mini", {}, 80, 80 * 4096, id="Jamba: 311,296 bytes of state in 80 tokens of 4,096"),
        pytest.param("Qwen3-Next-80B-A3B", {}, 544, 1_114_112, id="Qwen3-Next: 1,097,728 bytes in 544 tokens"),
        pytest.param("Qwen3-Next-80B-A3B", {"kv_dtype": "fp8"}, 1072, 1_097_728, id="Qwen3-Next, fp8: exactly"),
        pytest.param("Kimi-K3", {"tp": 8}, 768, 768 * 1152, id="Kimi-K3: a multiple of 128 tokens"),
        pytest.param("Qwen3.5-27B", {}, 784, 784 * 4096, id="Qwen3.5-27B"),
        pytest.param(
            "Qwen3.5-27B", {"spec_method": "mtp", "spec_tokens": 1}, 800, 800 * 4096, id="a row more with MTP"
        ),
    ],
)
def test_attention_takes_as_many_tokens_a_block_as_a_state_needs_room(model, fields, block_size, page):
    """vLLM 0.32 planner, worked examples of the alignment of hybrids."""
    engine = worked(model, **fields).engine
    assert engine.block_size == block_size
    assert {group.page_bytes for group in engine.groups} == {page}


def test_an_8_bit_cache_halves_only_the_attention_of_a_hybrid():
    """vLLM 0.32 planner: Qwen3-Next from 1,307,785 tokens to 2,403,577, less than twice as many."""
    tokens = [worked("Qwen3-Next-80B-A3B", kv_dtype=dtype).engine.kv_cache_tokens for dtype in ("auto", "fp8")]
    assert tokens == [1_307_785, 2_403_577]


@pytest.mark.parametrize(
    ("model", "kind", "sizes"),
    [
        pytest.param("gemma-3-27b-it", "sliding", [9, 9, 9, 9, 8, 8], id="52 windows over 10 full layers"),
        pytest.param("gemma-3-27b-it", "full", [10], id="10 full layers"),
        pytest.param("LFM2-1.2B", "short_conv", [5, 5], id="10 convolutions over 6 full layers"),
        pytest.param("LFM2-1.2B", "full", [6], id="6 full layers"),
        pytest.param("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "mamba2", [6, 6, 6, 5], id="23 states over 6 full layers"),
        pytest.param("Jamba-1.5-Mini", "mamba1", [4] * 7, id="28 states over 4 full layers"),
    ],
)
def test_layers_are_dealt_into_tables_of_like_height(model, kind, sizes):
    """vLLM 0.32 planner: the smallest collection is the height where the largest is half as large again or more."""
    engine = worked(model).engine
    assert [group.layers for group in engine.groups if group.kind == kind] == sizes
    assert engine.bytes_per_block == max(group.layers for group in engine.groups) * engine.groups[0].page_bytes


def test_windows_are_charged_for_what_is_in_flight():
    """vLLM 0.32 planner, gpt-oss-20b: 1,033 blocks of windows with two batches in flight, 521 with one."""
    engine = worked("gpt-oss-20b").engine
    assert [group.blocks_per_request for group in engine.groups] == [1033, 2048]
    assert (engine.num_blocks, engine.kv_cache_tokens) == (90_931, 967_097)
    assert f"{engine.max_concurrency:.3f}" == "29.513"
    one = worked("gpt-oss-20b", async_scheduling=False).engine
    assert [group.blocks_per_request for group in one.groups] == [521, 2048]
    assert worked("gpt-oss-20b", spec_method="ngram", spec_tokens=5).engine.groups == one.groups


@pytest.mark.parametrize(
    ("model", "layers", "bytes_per_block", "num_blocks", "tokens"),
    [
        pytest.param("Meta-Llama-3.1-8B", [33], 33 * 65_536, 16_532, 264_512, id="Llama-3.1-8B: 33 layers"),
        pytest.param("gpt-oss-20b", [12, 13], 425_984, 83_936, 892_701, id="gpt-oss-20b: 12 and 13 layers"),
    ],
)
def test_an_eagle_head_adds_a_full_layer(model, layers, bytes_per_block, num_blocks, tokens):
    """vLLM 0.32, runs with EAGLE-3 at 33.3 GiB; async scheduling stays on."""
    engine = worked(model, spec_method="eagle3", spec_tokens=3).engine
    assert [group.layers for group in engine.groups] == layers
    assert (engine.bytes_per_block, engine.num_blocks, engine.kv_cache_tokens) == (bytes_per_block, num_blocks, tokens)


def test_layers_for_multi_token_prediction_are_of_the_models_own_kind_whatever_the_tokens():
    """vLLM 0.32 planner: DeepSeek-V3 61 -> 62, Qwen3-Next 12 -> 13 full, MiMo-V2-Flash 39 -> 40 windows."""

    def layers(model, tokens):
        found = Counter()
        for group in worked(model, spec_method="mtp", spec_tokens=tokens, kv_cache_memory_bytes=2**37).engine.groups:
            found[group.kind] += group.layers
        return dict(found)

    for tokens in (1, 3):
        assert layers("DeepSeek-V3", tokens) == {"mla": 62}
        assert layers("Qwen3-Next-80B-A3B", tokens) == {"gated_deltanet": 36, "full": 13}
        assert layers("MiMo-V2-Flash", tokens) == {"sliding": 40, "full": 9}


def test_engines_before_spring_2026_printed_an_equal_share_of_the_blocks_for_each_table():
    """vLLM before spring 2026: num_blocks // number of groups x smallest block; the concurrency was right already."""
    plain = worked("Meta-Llama-3.1-8B").engine
    assert plain.older_token_line == plain.num_blocks * 16
    gemma = worked("gemma-3-27b-it").engine
    assert gemma.older_token_line == gemma.num_blocks // 7 * 16
    assert worked("Jamba-1.5-Mini").engine.older_token_line == worked("Jamba-1.5-Mini").engine.num_blocks // 8 * 80


def test_without_the_hybrid_manager_windows_are_stored_whole():
    """vLLM 0.32: where a model has full layers besides; a model of windows alone is unchanged."""
    whole = worked("gpt-oss-20b", disable_hybrid_kv_cache_manager=True).engine
    assert [(group.kind, group.layers, group.blocks_per_request) for group in whole.groups] == [("full", 24, 2048)]
    alone = {flag: worked("Mistral-7B-v0.1", disable_hybrid_kv_cache_manager=flag).engine for flag in (True, False)}
    assert alone[True] == alone[False]


@pytest.mark.parametrize(
    ("model", "cache_on", "cache_off"),
    [
        pytest.param("Nemotron-H-56B-Base-8K", 3, 1, id="Mamba-2: one to align, one check-point"),
        pytest.param("Qwen3-Next-80B-A3B", 2, 1, id="gated DeltaNet: one to align"),
        pytest.param("Kimi-K3", 3, 1, id="KDA on Hopper: one check-point"),
        pytest.param("Jamba-1.5-Mini", 2, 1, id="Mamba-1: one to align"),
        pytest.param("falcon-mamba-7b", 1, 1, id="states alone have no prefix caching"),
    ],
)
def test_prefix_caching_books_blocks_beside_a_state(model, cache_on, cache_off):
    """vLLM 0.32 planner: 2 + check-point blocks for each group of states, 1 without."""
    for flag, blocks in ((True, cache_on), (False, cache_off)):
        groups = worked(model, enable_prefix_caching=flag, kv_cache_memory_bytes=2**37, tp=8).engine.groups
        assert {group.blocks_per_request for group in groups if group.kind in STATE_KINDS} == {blocks}
