"""A config.json -> ModelSpec: every architecture and spelling, and a clear refusal for what is not understood."""

import copy
import json
import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import CONFIGS

from kvplan import Plan, evaluate, model_from_hf_config
from kvplan.specs import STATE_KINDS, LayerGroup, LayerState, ModelSpec
from kvplan.texts import spec_from_text, spec_text
from kvplan.units import MIB

PLAIN = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
FOUR_LAYERS = LayerGroup(kind="full", layers=4, kv_heads=2, head_dim=128, value_head_dim=128)
UNKNOWN = PLAIN | {"model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]}


@cache
def spec_of(model):
    return model_from_hf_config(CONFIGS[model], id=model)


def changed(model, **fields):
    """A config of the table with fields of its text model replaced; None takes a field away."""
    config = copy.deepcopy(CONFIGS[model])
    text = config.get("text_config", config)
    for name, value in fields.items():
        text.pop(name, None)
        if value is not None:
            text[name] = value
    return config


def refused(config):
    """The sentence with which a config is refused: one line that names the key."""
    with pytest.raises(ValueError, match=": ") as caught:
        model_from_hf_config(config)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    assert len(message) < 300
    return message


def read(config):
    """The model of a config, or the sentence with which it is refused."""
    try:
        return model_from_hf_config(config)
    except ValueError as error:
        return str(error)


def gpt_oss_120b():
    """The 120B has the layers of the 20B, 36 in place of 24."""
    kinds = ["sliding_attention", "full_attention"] * 18
    return changed("gpt-oss-20b", num_hidden_layers=36, layer_types=kinds, num_local_experts=128)


# What one request holds


SETTINGS = [
    # model, config, kv_dtype, MiB
    ("Llama-3.1-8B", CONFIGS["Meta-Llama-3.1-8B"], "auto", 4096),
    ("Llama-3.1-70B", CONFIGS["Meta-Llama-3.1-70B"], "auto", 10_240),
    ("Qwen3-32B", CONFIGS["Qwen3-32B"], "fp8", 4096),
    ("Qwen3-235B", CONFIGS["Qwen3-235B-A22B"], "auto", 6016),
    ("DeepSeek-V3", CONFIGS["DeepSeek-V3"], "auto", 2196),
    ("DeepSeek-V3.2", CONFIGS["DeepSeek-V3.2"], "auto", 2447.6),
    ("Gemma-3-27B", CONFIGS["gemma-3-27b-it"], "auto", 2976),
    ("gpt-oss-120b", gpt_oss_120b(), "auto", 1156.5),
    ("Qwen3-Next-80B", CONFIGS["Qwen3-Next-80B-A3B"], "auto", 805.7),
    ("Nemotron-H-56B", CONFIGS["Nemotron-H-56B-Base-8K"], "auto", 2150.3),
    ("Llama-4-Scout", CONFIGS["Llama-4-Scout-17B-16E-Instruct"], "auto", 2688),
    ("MiMo-V2-Flash", CONFIGS["MiMo-V2-Flash"], "auto", 744.4),
    ("Gemma-4-26B", CONFIGS["gemma-4-26B-A4B"], "auto", 840),
    ("Qwen3.5-35B-A3B", CONFIGS["Qwen3.5-35B-A3B"], "auto", 701.4),
]


@pytest.mark.parametrize(("name", "config", "kv_dtype", "mib"), SETTINGS, ids=[row[0] for row in SETTINGS])
def test_a_request_of_32768_tokens_holds_what_its_architecture_stores(name, config, kv_dtype, mib):
    """Closed forms over published configs: settings in which planners that treat every layer alike are far off."""
    held = evaluate(Plan(context=32_768, kv_dtype=kv_dtype), model=model_from_hf_config(config)).cache
    assert round(held.request_bytes_held_total / MIB, 1) == mib
    assert held.request_bytes_held == held.request_bytes_held_total


def test_the_shipped_gpt_oss_120b_holds_as_much():
    cache = evaluate(Plan(model="gpt-oss-120b", context=32_768)).cache
    assert cache.request_bytes_held_total / MIB == 1156.5


@pytest.mark.parametrize("model", ["DeepSeek-V3", "DeepSeek-V3.2", "DeepSeek-V2-Lite", "Kimi-K2-Instruct", "GLM-5.2"])
def test_latent_vectors_are_the_same_on_every_rank(model):
    """DeepSeek-V2, arXiv 2405.04434: one latent vector for all heads cannot be split over them."""
    one, eight = (evaluate(Plan(context=32_768, tp=tp), model=spec_of(model)).cache for tp in (1, 8))
    assert eight.request_bytes_held == one.request_bytes_held
    assert eight.request_bytes_held_total == 8 * one.request_bytes_held_total
    assert eight.bytes_per_token == one.bytes_per_token


# Every stored element

TOKENS = (1024, 4096, 32_768, 131_072)
STORED = {
    # config: bytes at 1,024, 4,096, 32,768 and 131,072 tokens, two bytes an element and four in recurrent states
    "DeepSeek-V4-Flash": (12_681_216, 33_816_576, 231_079_936, 907_411_456),
    "DeepSeek-V3.2": (87_949_312, 351_797_248, 2_814_377_984, 11_257_511_936),
    "DeepSeek-V3": (71_958_528, 287_834_112, 2_302_672_896, 9_210_691_584),
    "Kimi-K2-Instruct": (71_958_528, 287_834_112, 2_302_672_896, 9_210_691_584),
    "GLM-5.2": (97_517_568, 390_070_272, 3_120_562_176, 12_482_248_704),
    "Kimi-K3": (477_683_712, 562_618_368, 1_355_341_824, 4_073_250_816),
    "Qwen3.5-397B-A17B": (223_518_720, 317_890_560, 1_198_694_400, 4_218_593_280),
    "Qwen3.5-35B-A3B": (85_360_640, 148_275_200, 735_477_760, 2_748_743_680),
    "Qwen3.5-27B": (221_052_928, 422_379_520, 2_301_427_712, 8_743_878_656),
    "Qwen3-235B-A22B": (197_132_288, 788_529_152, 6_308_233_216, 25_232_932_864),
    "Qwen3-32B": (268_435_456, 1_073_741_824, 8_589_934_592, 34_359_738_368),
    "Qwen3-30B-A3B": (100_663_296, 402_653_184, 3_221_225_472, 12_884_901_888),
    "Qwen3-8B": (150_994_944, 603_979_776, 4_831_838_208, 19_327_352_832),
    "Qwen3-0.6B": (117_440_512, 469_762_048, 3_758_096_384, 15_032_385_536),
    "Qwen2.5-32B": (268_435_456, 1_073_741_824, 8_589_934_592, 34_359_738_368),
    "Meta-Llama-3.1-8B": (134_217_728, 536_870_912, 4_294_967_296, 17_179_869_184),
    "Meta-Llama-3.1-70B": (335_544_320, 1_342_177_280, 10_737_418_240, 42_949_672_960),
    "gemma-4-26B-A4B": (230_686_720, 293_601_280, 880_803_840, 2_894_069_760),
    "MiniMax-M2.5": (260_046_848, 1_040_187_392, 8_321_499_136, 33_285_996_544),
    "MiniMax-M3": (140_771_328, 563_085_312, 4_504_682_496, 18_018_729_984),
}
"""Source: kvcache-ai/kvcache-blog, kvcache_sim (Apache-2.0), with kernel - 1 columns of a convolution."""


def elements(spec, tokens):
    """Elements that a sequence of `tokens` stores in two bytes, and elements of recurrent states."""
    stored, recurrent = 0, 0
    for group in spec.groups:
        width = group.kv_heads * (group.head_dim + group.value_head_dim) if group.kind != "mla" else group.head_dim
        if group.kind in ("full", "mla"):
            stored += group.layers * tokens * (width + group.index_dim)
        elif group.kind in ("sliding", "chunked"):
            stored += group.layers * min(tokens, group.window) * width
        elif group.kind == "compressed":
            entries = tokens // group.compress_ratio if group.compress_ratio else 0
            stored += group.layers * (min(tokens, group.window) + entries) * group.head_dim
            stored += group.layers * entries * group.index_dim
        elif group.kind in STATE_KINDS:
            channels = group.state.conv_channels + group.state.replicated_channels
            stored += group.layers * (group.state.conv_kernel - 1) * channels
            recurrent += group.layers * group.state.recurrent_elements
    return stored, recurrent


def stored_bytes(spec, tokens):
    stored, recurrent = elements(spec, tokens)
    return 2 * stored + 4 * recurrent


@pytest.mark.parametrize("model", STORED)
def test_every_stored_element_is_counted(model):
    assert tuple(stored_bytes(spec_of(model), tokens) for tokens in TOKENS) == STORED[model]


def fixed_width(spec):
    """Whether the engine stores some of a model in a width of its own: indexer keys beside MLA, compressed layers."""
    return any(group.kind == "compressed" or (group.kind == "mla" and group.index_dim) for group in spec.groups)


@pytest.mark.parametrize("model", [model for model in STORED if not fixed_width(spec_of(model))])
def test_what_is_held_in_two_bytes_an_element_is_every_stored_element(model):
    for tokens, total in zip(TOKENS, STORED[model], strict=True):
        plan = Plan(context=tokens, kv_dtype="bf16", mamba_ssm_cache_dtype="fp32")
        assert evaluate(plan, model=spec_of(model)).cache.request_bytes_held == total


def groups_of(row):
    """The layers of a row of published facts, by kind."""
    found = []
    for group in row["layer_groups"]:
        kind, layers = group["kind"], group["count"]
        if kind in ("full", "sliding", "block_sparse_gqa"):
            plain = LayerGroup(
                kind="sliding" if kind == "sliding" else "full",
                layers=layers,
                kv_heads=group["kv_heads"],
                head_dim=group["head_dim_k"],
                value_head_dim=group["head_dim_v"],
                window=group.get("window"),
                index_dim=group.get("index_head_dim", 0),
            )
            found.append(plain)
        elif kind in ("mla", "mla_dsa"):
            indexed = group.get("indexer_layers", 0)
            latent = LayerGroup(kind="mla", kv_heads=1, head_dim=group["kv_lora_rank"] + group["qk_rope_head_dim"])
            with_key = latent.model_copy(update={"index_dim": group.get("index_head_dim", 0), "layers": indexed})
            found += [with_key] if indexed else []
            found += [latent.model_copy(update={"layers": layers - indexed})] if layers > indexed else []
        elif kind in ("csa", "hca", "window_only"):
            compressed = LayerGroup(
                kind="compressed",
                layers=layers,
                kv_heads=1,
                head_dim=group["entry_dim"],
                window=group["window"],
                compress_ratio=group["compress_ratio"],
                index_dim=group.get("index_head_dim", 0),
            )
            found.append(compressed)
        elif kind in ("kda", "gated_deltanet"):
            state = LayerState(
                conv_kernel=group["conv_kernel"],
                conv_channels=group["conv_dim"],
                recurrent_elements=group["ssm_state_elems"],
                recurrent_dtype="fp32",
            )
            found.append(LayerGroup(kind=kind, layers=layers, state=state))
        else:
            assert kind == "no_cache", kind
            found.append(LayerGroup(kind="none", layers=layers))
    return tuple(found)


def spec_of_facts(row):
    sources = dict.fromkeys(("parameters", "weight_bytes", "max_position_embeddings", "groups"), "published facts")
    return ModelSpec(
        id="facts",
        name=row["name"],
        parameters=row["params_computed"],
        weight_bytes=None,
        max_position_embeddings=row["max_position_embeddings"],
        groups=groups_of(row),
        sources=sources,
    )


def test_every_stored_element_of_every_published_model_is_counted(shared):
    """kvcache-ai/kvcache-blog, kvcache_sim: all 168 rows, from the config where there is one, else from the facts."""
    facts = shared / "facts"
    models = {row["name"]: row for row in json.loads((facts / "models.json").read_text())["models"]}
    rows = json.loads((facts / "kv_fixtures.json").read_text())["rows"]
    configs = {CONFIGS_OF_FACTS[model]: model for model in CONFIGS_OF_FACTS}
    assert len(rows) == 168
    read = 0
    for row in rows:
        specs = [spec_of_facts(models[row["model"]])]
        if row["model"] in configs:
            specs.append(spec_of(configs[row["model"]]))
            read += 1
        for spec in specs:
            tokens, total = row["tokens"], row["our_total_bytes"]
            assert stored_bytes(spec, tokens) == total, row
            held = evaluate(Plan(context=tokens, mamba_ssm_cache_dtype="fp32"), model=spec).cache.request_bytes_held
            assert fixed_width(spec) or held == total, row
    assert read == 4 * len(STORED)


CONFIGS_OF_FACTS = {
    "DeepSeek-V4-Flash": "DeepSeek-V4 Flash 284B-A13B",
    "DeepSeek-V3.2": "DeepSeek-V3.2 671B-A37B (DSA)",
    "DeepSeek-V3": "DeepSeek-V3 671B-A37B",
    "Kimi-K2-Instruct": "Kimi K2.5 1T-A32B (int4)",
    "GLM-5.2": "GLM-5.2 743B-A40B (DSA, shared indexer)",
    "Kimi-K3": "Kimi K3 2.8T",
    "Qwen3.5-397B-A17B": "Qwen3.5 397B-A17B",
    "Qwen3.5-35B-A3B": "Qwen3.5 35B-A3B",
    "Qwen3.5-27B": "Qwen3.5 27B",
    "Qwen3-235B-A22B": "Qwen3 235B-A22B",
    "Qwen3-32B": "Qwen3 32B",
    "Qwen3-30B-A3B": "Qwen3 30B-A3B",
    "Qwen3-8B": "Qwen3 8B",
    "Qwen3-0.6B": "Qwen3 0.6B",
    "Qwen2.5-32B": "Qwen2.5 32B",
    "Meta-Llama-3.1-8B": "Llama 3.1 8B",
    "Meta-Llama-3.1-70B": "Llama 3.1 70B",
    "gemma-4-26B-A4B": "Gemma 4 26B-A4B",
    "MiniMax-M2.5": "MiniMax M2.5 229B-A10B",
    "MiniMax-M3": "MiniMax M3",
}
"""Configs of the table, and the model's name in the published facts."""


# Widths the engine fixes


@pytest.mark.parametrize(
    ("model", "gpu", "kv_dtype", "block", "indexed"),
    [
        pytest.param("DeepSeek-V3.2", "h100-sxm", "auto", 61 * 64 * (576 * 2 + 132), 61, id="V3.2: bf16 latents"),
        pytest.param("DeepSeek-V3.2", "h100-sxm", "fp8", 61 * 64 * (656 + 132), 61, id="V3.2: packed fp8 latents"),
        pytest.param("DeepSeek-V3.2", "b200", "auto", 61 * 64 * (576 * 2 + 132), 61, id="V3.2: bf16 on Blackwell"),
        pytest.param("DeepSeek-V3.2", "b200", "fp8", 61 * 64 * (576 + 132), 61, id="V3.2: plain fp8 on Blackwell"),
        pytest.param("GLM-5.2", "h100-sxm", "auto", 64 * (78 * 576 * 2 + 21 * 132), 21, id="GLM-5.2: bf16 latents"),
        pytest.param("GLM-5.2", "h100-sxm", "fp8", 64 * (78 * 656 + 21 * 132), 21, id="GLM-5.2: packed fp8 latents"),
        pytest.param("GLM-5.2", "b200", "auto", 64 * (78 * 576 + 21 * 132), 21, id="GLM-5.2: auto is fp8 on Blackwell"),
    ],
)
@pytest.mark.parametrize("tp", [1, 8])
def test_an_indexers_key_takes_132_bytes_beside_the_latents_on_every_rank(model, gpu, kv_dtype, block, indexed, tp):
    """vLLM 0.32 planner: 128 fp8 values and an fp32 scale; blocks of 64 tokens."""
    spec = spec_of(model)
    assert sum(group.layers for group in spec.groups if group.index_dim) == indexed
    plan = Plan(gpu=gpu, kv_dtype=kv_dtype, tp=tp, context=6400, kv_cache_memory_bytes=2**36)
    report = evaluate(plan, model=spec)
    assert report.engine.refused is None
    assert report.engine.bytes_per_block == block
    assert report.cache.bytes_per_token == block // 64
    assert report.cache.request_bytes_held == report.cache.request_bytes_booked == 6400 // 64 * block


@pytest.mark.parametrize("tokens", [100, 1024, 4096, 32_768, 131_072])
def test_the_compressed_layers_of_deepseek_v4_hold_their_windows_entries_and_what_is_pending(tokens):
    """vLLM 0.32 planner: entries of 584 bytes and index keys of 132 for 4 tokens, entries for 128, fp32 beside them."""
    spec = spec_of("DeepSeek-V4-Flash")
    layers = {}
    for group in spec.groups:
        layers[group.compress_ratio] = layers.get(group.compress_ratio, 0) + group.layers
    window = sum(layers.values()) * min(tokens, 128) * 584
    fours = layers[4] * (tokens // 4 * (132 + 584) + min(tokens, 8) * 4 * 4 * (128 + 512))
    others = layers[128] * (tokens // 128 * 584 + min(tokens, 128) * 2 * 512 * 4)
    held = evaluate(Plan(context=tokens), model=spec).cache
    assert layers == {0: 2, 4: 21, 128: 20}
    assert held.request_bytes_held == window + fours + others
    assert held.bytes_per_token == pytest.approx(21 * (132 + 584) / 4 + 20 * 584 / 128)


def test_pages_of_deepseek_v4_are_multiples_of_576_bytes():
    """vLLM 0.32 planner: 64 entries of 584 bytes round up to 37,440."""
    engine = evaluate(Plan(kv_cache_memory_bytes=2**36), model=spec_of("DeepSeek-V4-Flash")).engine
    assert engine.refused is None
    assert {group.page_bytes % 576 for group in engine.groups} == {0}
    assert 37_440 in {group.page_bytes for group in engine.groups}
    assert engine.block_size == 256


# Spellings


@pytest.mark.parametrize(
    ("fields", "layer"),
    [
        pytest.param({"num_key_value_heads": None}, (8, 128), id="null: as many as query heads"),
        pytest.param({"num_key_value_heads": ...}, (8, 128), id="absent: as many as query heads"),
        pytest.param({"num_key_value_heads": ..., "num_kv_heads": 4}, (4, 128), id="num_kv_heads"),
        pytest.param({"num_key_value_heads": ..., "multi_query_group_num": 2}, (2, 128), id="multi_query_group_num"),
        pytest.param({"num_key_value_heads": ..., "n_head_kv": 1}, (1, 128), id="n_head_kv"),
        pytest.param({"num_key_value_heads": ..., "attn_config": {"kv_n_heads": 4}}, (4, 128), id="kv_n_heads"),
        pytest.param({"head_dim": 96}, (2, 96), id="head_dim"),
        pytest.param({"kv_channels": 64}, (2, 64), id="kv_channels"),
        pytest.param({"head_dim": None}, (2, 128), id="a null head_dim: hidden size over heads"),
        pytest.param({"hidden_size": ..., "n_embd": 2048}, (2, 256), id="n_embd"),
        pytest.param({"hidden_size": ..., "d_model": 512}, (2, 64), id="d_model"),
        pytest.param({"num_attention_heads": ..., "n_head": 16}, (2, 64), id="n_head"),
        pytest.param({"num_hidden_layers": ..., "n_layer": 4}, (2, 128), id="n_layer"),
        pytest.param({"num_hidden_layers": ..., "n_layers": 4}, (2, 128), id="n_layers"),
        pytest.param({"num_hidden_layers": ..., "num_layers": 4}, (2, 128), id="num_layers"),
    ],
)
def test_a_field_has_other_names_in_other_families(fields, layer):
    """Hugging Face configs: spellings of GPT-2, MPT, Falcon, ChatGLM, DBRX and Llama."""
    config = {name: value for name, value in (PLAIN | fields).items() if value is not ...}
    heads, width = layer
    expected = FOUR_LAYERS.model_copy(update={"kv_heads": heads, "head_dim": width, "value_head_dim": width})
    assert model_from_hf_config(config).groups == (expected,)


@pytest.mark.parametrize(
    "name", ["n_positions", "seq_length", "max_sequence_length", "max_seq_len", "model_max_length"]
)
def test_the_longest_length_has_other_names_too(name):
    config = {key: value for key, value in PLAIN.items() if key != "max_position_embeddings"} | {name: 2048}
    assert model_from_hf_config(config).max_position_embeddings == 2048


@pytest.mark.parametrize(
    ("family", "fields", "kv_heads"),
    [
        pytest.param("gpt_bigcode", {"multi_query": True}, 1, id="StarCoder: multi_query"),
        pytest.param("gpt_bigcode", {"multi_query": False}, 8, id="StarCoder without"),
        pytest.param("falcon", {"multi_query": True}, 1, id="Falcon-7B: multi_query"),
        pytest.param("falcon", {"multi_query": False}, 8, id="Falcon-RW: every head"),
        pytest.param("falcon", {"new_decoder_architecture": True, "num_kv_heads": 4}, 4, id="Falcon-40B: num_kv_heads"),
    ],
)
def test_a_flag_of_multi_query_attention_means_one_head(family, fields, kv_heads):
    """Hugging Face configs."""
    config = {key: value for key, value in PLAIN.items() if key != "num_key_value_heads"}
    (group,) = model_from_hf_config(config | {"model_type": family} | fields).groups
    assert group.kv_heads == kv_heads


def test_keys_and_values_may_differ_in_width():
    """MiMo-V2-Flash, Hugging Face config: keys of 192, values of 128, other heads in windows."""
    shapes = {
        (group.kind, group.kv_heads, group.head_dim, group.value_head_dim) for group in spec_of("MiMo-V2-Flash").groups
    }
    assert shapes == {("full", 4, 192, 128), ("sliding", 8, 192, 128)}


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("Meta-Llama-3.1-8B", {"full": 32}),
        ("gemma-2-2b", {"sliding": 13, "full": 13}),
        ("gemma-2-9b", {"sliding": 21, "full": 21}),
        ("gemma-3-1b-it", {"sliding": 22, "full": 4}),
        ("gemma-3-27b-it", {"sliding": 52, "full": 10}),
        ("gemma-3n-E4B-text", {"sliding": 16, "full": 4, "none": 15}),
        ("gemma-4-26B-A4B", {"sliding": 25, "full": 5}),
        ("gpt-oss-20b", {"sliding": 12, "full": 12}),
        ("Mistral-7B-v0.1", {"sliding": 32}),
        ("Mistral-7B-v0.3", {"full": 32}),
        ("Phi-3.5-mini", {"sliding": 32}),
        ("Qwen2-7B", {"full": 28}),
        ("Olmo-3.1-32B", {"sliding": 48, "full": 16}),
        ("Llama-4-Scout-17B-16E-Instruct", {"chunked": 36, "full": 12}),
        ("MiMo-V2-Flash", {"sliding": 39, "full": 9}),
        ("DeepSeek-V3", {"mla": 61}),
        ("Jamba-1.5-Mini", {"mamba1": 28, "full": 4}),
        ("falcon-mamba-7b", {"mamba1": 64}),
        ("Nemotron-H-56B-Base-8K", {"mamba2": 54, "full": 10, "none": 54}),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"mamba2": 23, "full": 6, "none": 23}),
        ("granite-4.0-h-small", {"mamba2": 36, "full": 4}),
        ("Qwen3-Next-80B-A3B", {"gated_deltanet": 36, "full": 12}),
        ("Qwen3.5-27B", {"gated_deltanet": 48, "full": 16}),
        ("Kimi-K3", {"kda": 69, "mla": 24}),
        ("LFM2-1.2B", {"short_conv": 10, "full": 6}),
        ("MiniMax-M3", {"full": 60}),
        ("Llama-3_3-Nemotron-Super-49B-v1", {"full": 49, "none": 31}),
    ],
)
def test_every_layer_is_of_the_kind_the_family_has_there(model, kinds):
    """Hugging Face configs and vLLM 0.32: which layers slide, keep a state, or reuse another's cache."""
    found = {}
    for group in spec_of(model).groups:
        found[group.kind] = found.get(group.kind, 0) + group.layers
    assert found == kinds


def test_windows_stand_where_the_family_puts_them():
    """Hugging Face: Gemma 2 begins with a window, Gemma 3 has full attention in every sixth layer, Llama 4 in every
    fourth; each runs on from the first layer."""
    first = {name: [(g.kind, g.layers) for g in spec_of(name).groups[:2]] for name in ("gemma-2-9b", "gemma-3-27b-it")}
    assert first == {
        "gemma-2-9b": [("sliding", 1), ("full", 1)],
        "gemma-3-27b-it": [("sliding", 5), ("full", 1)],
    }
    scout = spec_of("Llama-4-Scout-17B-16E-Instruct").groups
    assert [(group.kind, group.layers) for group in scout[:2]] == [("chunked", 3), ("full", 1)]


def test_a_window_that_is_switched_off_is_no_window():
    """Qwen2, Hugging Face: sliding_window counts only with use_sliding_window."""
    config = PLAIN | {"model_type": "qwen2", "sliding_window": 1024, "max_window_layers": 2}
    assert model_from_hf_config(config | {"use_sliding_window": False}).groups == (FOUR_LAYERS,)
    on = model_from_hf_config(config | {"use_sliding_window": True}).groups
    assert [(group.kind, group.layers) for group in on] == [("full", 2), ("sliding", 2)]


# A null, another name, another pattern


def test_a_null_is_no_default():
    """Llama 4 Scout: without a chunk no layer is chunked; an absent key is the family's 8,192, a null is none."""
    config = changed("Llama-4-Scout-17B-16E-Instruct")
    text = config.get("text_config", config)
    text["attention_chunk_size"] = None
    assert {group.kind for group in model_from_hf_config(config).groups} == {"full"}


def test_layers_of_llama_4_are_chunked_where_they_have_rotary_positions():
    config = changed("Llama-4-Scout-17B-16E-Instruct", no_rope_layers=[1, 0] * 24)
    assert [(g.kind, g.layers) for g in model_from_hf_config(config).groups[:2]] == [("chunked", 1), ("full", 1)]
    every_second = changed("Llama-4-Scout-17B-16E-Instruct", no_rope_layers=[], no_rope_layer_interval=2)
    assert [(g.kind, g.layers) for g in model_from_hf_config(every_second).groups[:2]] == [("chunked", 1), ("full", 1)]


def test_a_pattern_of_letters_places_the_windows():
    """EXAONE 4 32B: LLLG, three layers with a window and one without."""
    config = PLAIN | {"model_type": "exaone4", "sliding_window": 1024, "sliding_window_pattern": "LLLG"}
    assert [(g.kind, g.layers) for g in model_from_hf_config(config).groups] == [("sliding", 3), ("full", 1)]
    assert "sliding_window_pattern: must be letters L and G" in refused(config | {"sliding_window_pattern": "LXG"})


def test_a_pure_mamba_2_model_keeps_states_alone():
    config = {
        "model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64,
        "n_groups": 8, "state_size": 128, "conv_kernel": 4, "expand": 2, "max_position_embeddings": 4096,
    }  # fmt: skip
    groups = model_from_hf_config(config).groups
    assert [(group.kind, group.layers) for group in groups] == [("mamba2", 64)]
    assert groups[0].state.recurrent_elements == 128 * 64 * 128


def test_kv_heads_under_a_name_nobody_knows_are_refused_rather_than_taken_for_query_heads():
    config = {name: value for name, value in UNKNOWN.items() if name != "num_key_value_heads"}
    assert refused(config | {"n_kv_groups": 2}).startswith("n_kv_groups: ")
    assert model_from_hf_config(config | {"num_attention_groups": 2}).groups == (FOUR_LAYERS,)


@pytest.mark.parametrize(
    ("fields", "alibi"),
    [
        ({}, False),
        ({"alibi": True}, True),
        ({"alibi": False}, False),
        ({"attn_config": {"alibi": True}}, True),
        ({"position_embedding_type": "alibi"}, True),
        ({"model_type": "bloom"}, True),
    ],
)
def test_a_bias_by_distance_has_no_cache_in_fp8(fields, alibi):
    model = model_from_hf_config({**PLAIN, "model_type": "mpt", **fields})
    assert model.alibi is alibi
    refusal = evaluate(Plan(kv_dtype="fp8"), model).engine.refused
    assert (refusal is not None) is alibi
    assert evaluate(Plan(kv_dtype="bf16"), model).engine.refused is None


def test_layers_of_multi_token_prediction_are_counted_only_where_the_config_or_the_family_has_them():
    assert model_from_hf_config(PLAIN | {"model_type": "mimo"}).mtp_layers == 1
    assert model_from_hf_config(PLAIN | {"model_type": "mimo", "num_nextn_predict_layers": 3}).mtp_layers == 3
    plan = Plan(spec_method="mtp", spec_tokens=1)
    assert "spec_method" in evaluate(plan, model_from_hf_config(PLAIN)).engine.refused


@pytest.mark.parametrize("name", [7, ["llama"], {"a": 1}, True])
def test_a_family_that_is_no_word_is_no_family(name):
    assert model_from_hf_config(PLAIN | {"model_type": name, "architectures": ["X"]}).model_type != str(name)


# Ways to hand a config over


def test_text_bytes_a_path_and_a_mapping_are_read_alike(tmp_path):
    text = json.dumps(CONFIGS["gpt-oss-20b"])
    path = tmp_path / "config.json"
    path.write_text(text)
    marked = tmp_path / "marked.json"
    marked.write_bytes(b"\xef\xbb\xbf" + text.encode())
    forms = [text, text.encode(), f"\ufeff{text}", b"\xef\xbb\xbf" + text.encode(), f"  {text}\n", path, marked]
    assert [model_from_hf_config(form) for form in forms] == [spec_of_unnamed("gpt-oss-20b")] * len(forms)


def spec_of_unnamed(model):
    return model_from_hf_config(CONFIGS[model])


def test_a_config_is_not_changed_by_being_read():
    for config in CONFIGS.values():
        before = copy.deepcopy(config)
        model_from_hf_config(config)
        assert config == before


def test_a_model_is_named_after_its_architecture_unless_an_id_is_given():
    assert model_from_hf_config(CONFIGS["gpt-oss-20b"]).id == "GptOssForCausalLM"
    assert model_from_hf_config(CONFIGS["gpt-oss-20b"], id="mine").id == "mine"


@pytest.mark.parametrize(
    "wrapped",
    [
        pytest.param({"text_config": PLAIN}, id="text_config"),
        pytest.param({"llm_config": PLAIN}, id="llm_config"),
        pytest.param({"thinker_config": {"text_config": PLAIN, "audio_config": {"encoder_layers": 32}}}, id="thinker"),
        pytest.param({"text_config": PLAIN, "vision_config": {"num_hidden_layers": 27}}, id="beside a vision tower"),
        pytest.param({"text_config": PLAIN, "hidden_size": 7, "num_hidden_layers": 99}, id="its fields come first"),
    ],
)
def test_a_multimodal_wrapper_is_read_by_its_text_model(wrapped):
    """Hugging Face: Llava, InternVL and Qwen-Omni keep the language model in an object of its own."""
    spec = model_from_hf_config({"model_type": "wrapper", "architectures": ["Wrapper"]} | wrapped)
    assert spec.groups == (FOUR_LAYERS,)
    assert spec.max_position_embeddings == 4096


@pytest.mark.parametrize("model", sorted(CONFIGS))
def test_every_config_is_read_with_a_source_for_every_number(model):
    spec = spec_of(model)
    assert spec.id == model
    assert {"groups", "max_position_embeddings", "parameters", "weight_bytes"} <= spec.sources.keys()
    report = evaluate(Plan(kv_cache_memory_bytes=2**40), model=spec)
    assert report.engine.refused is None
    assert report.engine.fits
    assert not any(note.startswith("model_type") for note in spec.notes)
    assert json.dumps(report.to_dict(), allow_nan=False)


# Checkpoints that bring a cache of their own


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param(
            {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}, "fp8", id="8 bits"
        ),
        pytest.param({"quantization_config": {"kv_cache_scheme": {"num_bits": 16}}}, None, id="16 bits"),
        pytest.param({"quantization_config": {"kv_cache_scheme": None}}, None, id="a null scheme"),
        pytest.param({"quantization_config": {"quant_method": "fp8"}}, None, id="weights alone"),
        pytest.param({"quantization_config": {"kv_cache_quant_algo": "FP8"}}, "fp8", id="ModelOpt, in the config"),
        pytest.param(
            {"producer": {"name": "modelopt"}, "quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8", id="ModelOpt"
        ),
        pytest.param({"quantization_config": {"kv_cache_quant_algo": None}}, None, id="ModelOpt, without"),
    ],
)
def test_a_quantised_checkpoint_may_switch_the_cache(fields, expected):
    """compressed-tensors and NVIDIA ModelOpt: where a checkpoint says how its cache was calibrated."""
    spec = model_from_hf_config(PLAIN | fields)
    assert spec.kv_cache_dtype == expected
    report = evaluate(Plan(), model=spec)
    assert report.setting.kv_dtype == (expected or "bf16")
    assert evaluate(Plan(kv_dtype="bf16"), model=spec).setting.kv_dtype == "bf16"


def test_the_70b_in_fp8_has_pages_of_half_the_size():
    """vLLM 0.32 planner: Llama-3.1-70B-Instruct-FP8 at auto has pages of 32,768 bytes."""
    spec = spec_of("Llama-3.1-70B-Instruct-FP8")
    assert evaluate(Plan(), model=spec).engine.groups[0].page_bytes == 32_768


def test_a_checkpoint_in_float32_keeps_its_cache_in_two_bytes():
    """vLLM 0.32: float32 checkpoints are cast down."""
    spec = model_from_hf_config(PLAIN | {"torch_dtype": "float32"})
    assert spec.dtype == "fp32"
    assert evaluate(Plan(), model=spec).setting.kv_dtype == "bf16"
    assert model_from_hf_config(PLAIN | {"dtype": "float16"}).dtype == "fp16"


# What is not understood


def test_an_unknown_family_with_plain_fields_is_read_with_a_visible_note():
    spec = model_from_hf_config(UNKNOWN)
    assert spec.groups == (FOUR_LAYERS,)
    (note,) = [note for note in spec.notes if note.startswith("model_type")]
    assert "brand_new" in note
    assert note in evaluate(Plan(), model=spec).notes
    nameless = {key: value for key, value in UNKNOWN.items() if key != "model_type"}
    assert any(note.startswith("model_type") for note in model_from_hf_config(nameless).notes)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_theta", "tie_word_embeddings", "num_experts", "vision_config"])
def test_keys_that_say_nothing_of_the_cache_do_not_matter(key):
    values = {"rope_scaling": {"type": "linear", "factor": 2.0}, "vision_config": {"encoder_layers": 4, "conv": 2}}
    assert model_from_hf_config(UNKNOWN | {key: values.get(key, 8)}).groups == (FOUR_LAYERS,)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mamba_d_state", 16),
        ("ssm_state_size", 128),
        ("linear_num_value_heads", 32),
        ("use_linear_attention", True),
        ("conv_L_cache", 3),
        ("conv_kernel", 4),
        ("rwkv_version", 7),
        ("compress_ratios", [4, 128, 4, 128]),
        ("kv_compression", 8),
        ("latent_dim", 64),
        ("kv_lora_rank", 512),
        ("q_lora_rank", 1536),
        ("cross_attention_layers", [1, 3]),
        ("add_cross_attention", True),
        ("layer_groups", [[0, 1], [2, 3]]),
        ("encoder_layers", 6),
        ("num_encoder_layers", 6),
        ("sparse_attention_config", {"block": 64}),
        ("index_topk", 2048),
        ("state_size", 16),
        ("recurrent_block", True),
    ],
)
@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
def test_an_unknown_family_with_a_key_of_something_else_is_refused_with_the_key(key, value, nested):
    fields = {"attention": {key: value}} if nested else {key: value}
    assert refused(UNKNOWN | fields).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hybrid_override_pattern", "M-M*"),
        ("layers_block_type", ["mamba", "attention", "mamba", "attention"]),
        ("attn_layer_period", 2),
        ("full_attention_interval", 4),
        ("hybrid_layer_pattern", [0, 1, 1, 0]),
        ("block_configs", [{"attention": {"no_op": True}}] * 4),
        ("attention_chunk_size", 512),
    ],
)
def test_an_unknown_family_with_layers_of_several_kinds_is_refused_with_the_key(key, value):
    """Keys by which known families say that their layers differ: read as plain attention they would be wrong."""
    assert refused(UNKNOWN | {key: value}).startswith(f"{key}: ")


def test_a_suspicious_key_that_is_switched_off_is_no_reason_to_refuse():
    off = {"add_cross_attention": False, "mamba_d_state": None, "use_linear_attention": False}
    assert model_from_hf_config(UNKNOWN | off).groups == (FOUR_LAYERS,)


def test_an_unknown_kind_of_layer_is_refused_by_its_name():
    message = refused(PLAIN | {"layer_types": ["full_attention"] * 3 + ["hyper_attention"]})
    assert message.startswith("layer_types: ")
    assert "hyper_attention" in message


def test_a_window_of_a_family_that_says_not_where_is_refused():
    assert refused(UNKNOWN | {"sliding_window": 512}).startswith("sliding_window: ")


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("DeepSeek-V3", "kv_lora_rank"),
        ("DeepSeek-V4-Flash", "compress_ratios"),
        ("Qwen3-Next-80B-A3B", "linear_num_value_heads"),
        ("Nemotron-H-56B-Base-8K", "hybrid_override_pattern"),
        ("Jamba-1.5-Mini", "attn_layer_period"),
        ("LFM2-1.2B", "conv_L_cache"),
        ("Kimi-K3", "linear_attn_config"),
        ("MiMo-V2-Flash", "hybrid_layer_pattern"),
        ("MiniMax-M3", "sparse_attention_config"),
        ("Llama-3_3-Nemotron-Super-49B-v1", "block_configs"),
    ],
)
def test_a_family_without_the_key_that_makes_it_one_is_never_read_as_plain_attention(model, key):
    """Either the family's default stands in, or the key is named; plain attention would be silently wrong."""
    found = read(changed(model, **{key: None}))
    if isinstance(found, str):
        assert key in found
    else:
        assert found.groups == spec_of(model).groups


def test_latents_that_are_expanded_before_they_are_cached_are_as_wide_as_keys_or_refused():
    """MiniCPM3: its keys of 64 + 32 are cached for each head, not hidden size over heads."""
    latents = {"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    heads = {"hidden_size": 2560, "num_attention_heads": 40, "num_key_value_heads": 40}
    found = read(PLAIN | {"model_type": "minicpm3"} | heads | latents)
    if isinstance(found, str):
        assert found.split(": ")[0] in ("model_type", *latents)
    else:
        assert {(group.kv_heads, group.head_dim) for group in found.groups} == {(40, 96)}


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        pytest.param({"is_encoder_decoder": True}, "is_encoder_decoder", id="encoder-decoder"),
        pytest.param({"model_type": "bert"}, "model_type", id="BERT"),
        pytest.param({"model_type": "roberta"}, "model_type", id="RoBERTa"),
        pytest.param({"architectures": ["LlamaForSequenceClassification"]}, "architectures", id="a classifier"),
        pytest.param({"architectures": ["NewForMaskedLM"]}, "architectures", id="a masked language model"),
        pytest.param({"architectures": ["VisionEncoderModel"]}, "architectures", id="a vision encoder"),
        pytest.param({"text_config": PLAIN, "is_encoder_decoder": True}, "is_encoder_decoder", id="in a wrapper"),
    ],
)
def test_encoders_and_encoder_decoders_are_refused(fields, key):
    assert refused(PLAIN | fields).startswith(f"{key}: ")


# What is broken


@pytest.mark.parametrize(
    "broken",
    [
        "", "{", "[]", "null", "1", '"llama"', "NaN", '{"a": }', "[" * 100_000, '{"a":' * 100_000, "config.json",
        b"", b"\xff\xfe{", b"\x00\x01", [], None, 5, 1.5, True, {}, {1: 2},
    ],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
def test_what_is_no_json_object_or_says_nothing_is_refused_in_one_line(broken):
    assert refused(broken).split(": ")[0] in ("config", "num_hidden_layers")


@pytest.mark.parametrize("value", ["12", -1, True, math.nan, math.inf, 2**40, 1.5, [], {}, "", [32]], ids=repr)
@pytest.mark.parametrize(
    "key", ["num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "hidden_size"]
)
def test_a_number_that_is_none_is_refused_with_key_rule_and_value(key, value):
    message = refused(PLAIN | {key: value})
    assert message.startswith(f"{key}: ")
    assert repr(value) in message


@pytest.mark.parametrize("value", ["4", 0, -1, True, math.nan, 1.5, [], {}], ids=repr)
def test_a_number_of_layers_that_is_none_is_refused_with_key_rule_and_value(value):
    message = refused(PLAIN | {"num_hidden_layers": value})
    assert message.startswith("num_hidden_layers: ")
    assert repr(value) in message


@pytest.mark.parametrize("layers", [4097, 10**6, 2**31, 2**32, 2**70])
def test_more_layers_than_any_model_has_are_refused_at_once(layers):
    """In a process of its own, with 2 GiB and ten seconds: such a list must never be built."""
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
from kvplan import model_from_hf_config
try:
    model_from_hf_config({PLAIN | {"num_hidden_layers": layers}!r})
except ValueError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=10
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("num_hidden_layers: ")
    assert len(run.stdout.splitlines()) == 1


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_key_value_heads", "hidden_size", "sliding_window"])
def test_a_number_too_long_to_write_out_is_refused_with_its_key(key):
    assert refused(PLAIN | {"model_type": "mistral", key: 10**5000}).startswith(f"{key}: ")


@pytest.mark.parametrize("value", ["float8", "int4", 16, True, [], ["bfloat16"], {"a": 1}, 0, 1.5], ids=repr)
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_a_dtype_nobody_computes_in_is_refused_with_its_value(key, value):
    message = refused(PLAIN | {key: value})
    assert "dtype: " in message
    assert repr(value) in message


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        ("gpt-oss-20b", "layer_types", ["sliding_attention"] * 3),
        ("gpt-oss-20b", "layer_types", "sliding_attention"),
        ("gpt-oss-20b", "layer_types", [["sliding_attention"]] * 24),
        ("gpt-oss-20b", "layer_types", [7] * 24),
        ("gpt-oss-20b", "sliding_window", "128"),
        ("gpt-oss-20b", "sliding_window", -1),
        ("gpt-oss-20b", "sliding_window", 2**30),
        ("gemma-4-26B-A4B", "global_head_dim", 2**30),
        ("gemma-4-26B-A4B", "num_global_key_value_heads", 2**30),
        ("DeepSeek-V3", "kv_lora_rank", "512"),
        ("DeepSeek-V3", "kv_lora_rank", 0),
        ("DeepSeek-V3", "qk_rope_head_dim", -1),
        ("DeepSeek-V3.2", "index_head_dim", -1),
        ("GLM-5.2", "indexer_types", ["full"]),
        ("GLM-5.2", "indexer_types", "full"),
        ("GLM-5.2", "indexer_types", ["other"] * 78),
        ("DeepSeek-V4-Flash", "compress_ratios", [4]),
        ("DeepSeek-V4-Flash", "compress_ratios", [5] * 43),
        ("DeepSeek-V4-Flash", "compress_ratios", [[]] * 43),
        ("Kimi-K3", "linear_attn_config", []),
        ("Nemotron-H-56B-Base-8K", "hybrid_override_pattern", "MX*"),
        ("Nemotron-H-56B-Base-8K", "hybrid_override_pattern", "M*"),
        ("Nemotron-H-56B-Base-8K", "hybrid_override_pattern", 7),
        ("Nemotron-H-56B-Base-8K", "mamba_num_heads", 1.5),
        ("granite-4.0-h-small", "layer_types", ["mamba"]),
        ("granite-4.0-h-small", "layer_types", [1] * 40),
        ("Jamba-1.5-Mini", "attn_layer_period", 0),
        ("Jamba-1.5-Mini", "attn_layer_offset", 9),
        ("LFM2-1.2B", "conv_L_cache", "3"),
        ("MiniMax-M3", "sparse_attention_config", [1]),
        ("MiMo-V2-Flash", "hybrid_layer_pattern", [1]),
        ("MiMo-V2-Flash", "hybrid_layer_pattern", ["a"] * 48),
        ("Llama-3_3-Nemotron-Super-49B-v1", "block_configs", [{}] * 80),
        ("Llama-3_3-Nemotron-Super-49B-v1", "block_configs", [1]),
        ("Qwen3-Next-80B-A3B", "layer_types", ["linear_attention"]),
        ("Qwen3-Next-80B-A3B", "full_attention_interval", 0),
        ("Qwen3.5-27B", "mamba_ssm_dtype", "float8"),
    ],
)
def test_a_damaged_key_of_an_architecture_is_refused_by_name(model, key, value):
    assert key in refused(changed(model, **{key: value})).split(": ")[0]


@pytest.mark.parametrize("value", [0, -1, True, "4", 1.5])
def test_a_damaged_block_of_attention_is_refused_by_name(value):
    assert "kv_n_heads" in refused(PLAIN | {"model_type": "mpt", "attn_config": {"kv_n_heads": value}})


def test_a_model_that_keeps_nothing_is_refused_when_it_is_read_or_when_it_is_planned():
    """Every layer reuses another's cache: there is none to reuse."""
    found = read(PLAIN | {"num_kv_shared_layers": 4})
    if isinstance(found, str):
        assert found.split(": ")[0] in ("num_kv_shared_layers", "groups")
    else:
        assert evaluate(Plan(), model=found).engine.refused


# Anything whatsoever


KEYS = sorted({key for config in CONFIGS.values() for key in (*config, *config.get("text_config", {}))})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["full_attention", "llama", "deepseek_v3", "jamba", "M*-", "bfloat16", "auto"]),
)
NAMES = st.sampled_from(KEYS) | st.text(max_size=8)
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES, inner, max_size=6), max_leaves=25
)


def small(value):
    """Any JSON value with at most a hundred thousand for a number of layers, which has a test of its own."""
    if isinstance(value, dict):
        many = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        return {
            key: 4 if key in many and type(inner) is int and inner > 5000 else small(inner)
            for key, inner in value.items()
        }
    return [small(inner) for inner in value] if isinstance(value, list) else value


def read_or_refused(config):
    """A model that every page can show, or one clear line."""
    spec = read(config)
    if isinstance(spec, str):
        assert len(spec.splitlines()) == 1
        assert spec.isprintable()
        assert len(spec) < 400
        return
    assert spec_from_text(spec_text(spec)).groups == spec.groups
    for plan in (Plan(), Plan(tp=8, pp=2, kv_dtype="fp8", spec_method="mtp", spec_tokens=1)):
        report = evaluate(plan, model=spec)
        assert report.engine.fits or report.engine.refused or report.engine.needed_bytes > report.engine.usable_bytes
        json.dumps(report.to_dict(), allow_nan=False)


@settings(max_examples=400)
@given(ANY_JSON)
@example({"text_config": {"text_config": {}}})
@example({"model_type": "deepseek_v3", "kv_lora_rank": 10**400})
def test_any_json_value_gives_a_model_or_one_clear_line(value):
    read_or_refused(small(value))


@settings(max_examples=200)
@given(st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=8), max_size=12))
def test_any_object_of_known_keys_gives_a_model_or_one_clear_line(fields):
    read_or_refused(small(PLAIN | fields))


@settings(max_examples=100)
@given(st.text(max_size=40) | st.binary(max_size=40))
def test_any_text_gives_a_model_or_one_clear_line(text):
    read_or_refused(text)


def holders(config):
    """Every object inside a config, itself included."""
    return [config, *(inner for value in config.values() if isinstance(value, dict) for inner in holders(value))]


@st.composite
def damaged(draw):
    """A published config with up to three keys dropped or replaced by junk."""
    config = copy.deepcopy(CONFIGS[draw(st.sampled_from(sorted(CONFIGS)))])
    for _ in range(draw(st.integers(1, 3))):
        holder = draw(st.sampled_from(holders(config)))
        key = draw(st.sampled_from(sorted(holder)) | st.sampled_from(KEYS)) if holder else draw(st.sampled_from(KEYS))
        if draw(st.booleans()):
            holder.pop(key, None)
        else:
            junk = st.lists(SCALARS, max_size=3).flatmap(lambda items: st.sampled_from([items, items * 100]))
            holder[key] = draw(SCALARS | junk | st.dictionaries(NAMES, SCALARS, max_size=3))
    return config


@settings(max_examples=500)
@given(damaged())
def test_any_damaged_config_gives_a_model_or_one_clear_line(config):
    read_or_refused(small(config))
