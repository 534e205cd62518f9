"""Parameter counts by formula against counts of the real modelling code.

Every count in MODELS was counted with transformers 5.24.0 on the meta device: text model alone, router bias buffers
included, multi-token prediction left out.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.parameters import FAMILIES, LAYERS, MIXERS, SAME_DECODER, Parameters, count_parameters


def decoder(model_type, hidden, layers, heads, kv_heads, width, vocab, **rest):
    """The fields of a config.json that nearly every model has, under their usual names."""
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
        "vocab_size": vocab,
        **rest,
    }


def latent(model_type, heads, experts, dense_layers, vocab, **rest):
    """A DeepSeek-V3: MLA, 61 layers of 7,168, routed experts and a shared one of 2,048."""
    ranks = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    experts = {"n_routed_experts": experts, "n_shared_experts": 1, "first_k_dense_replace": dense_layers}
    sizes = decoder(model_type, 7168, 61, heads, heads, 18432, vocab, v_head_dim=128, moe_intermediate_size=2048)
    return {**sizes, **ranks, **experts, **rest}


DELTA_NET = {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16}
MAMBA2 = {"mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "expand": 2, "use_bias": False}
GRANITE_MAMBA2 = {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1}
GRANITE_LAYERS = ["attention" if layer % 10 == 5 else "mamba" for layer in range(40)]
LFM2_LAYERS = ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)]
MIMO_SLIDING = [int(layer > 0 and (layer + 1) % 6 > 0) for layer in range(48)]
MIMO_HEADS = {"head_dim": 192, "v_head_dim": 128, "swa_head_dim": 192, "swa_v_head_dim": 128}
NANO_PATTERN = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
GEMMA4_LAYERS = ["full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(30)]
GEMMA4_HEADS = {"head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 2, "attention_k_eq_v": True}
GPT2 = {"model_type": "gpt2", "n_layer": 48, "n_head": 25, "n_embd": 1600, "n_positions": 1024, "vocab_size": 50257}
SANTACODER = {"model_type": "gpt_bigcode", "n_layer": 24, "n_head": 16, "n_embd": 2048, "n_inner": 8192}
OPT = {"model_type": "opt", "num_hidden_layers": 40, "num_attention_heads": 40, "hidden_size": 5120, "ffn_dim": 20480}
BLOOM = {"model_type": "bloom", "n_layer": 30, "n_head": 32, "hidden_size": 4096, "vocab_size": 250880}
FALCON = {"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128}
FALCON_MAMBA = {"model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 65024}

MODELS = {
    "Llama 3.1 8B": (decoder("llama", 4096, 32, 32, 8, 14336, 128256, tie_word_embeddings=False), 8_030_261_248),
    "Llama 3.2 1B": (decoder("llama", 2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True), 1_235_814_400),
    "Mistral 7B": (decoder("mistral", 4096, 32, 32, 8, 14336, 32000), 7_241_732_096),
    "Ministral 3 3B": (
        decoder("ministral3", 3072, 26, 32, 8, 9216, 131072, head_dim=128, tie_word_embeddings=True),
        3_429_006_336,
    ),
    "Mixtral 8x7B": (decoder("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8), 46_702_792_704),
    "Qwen2.5 3B": (decoder("qwen2", 2048, 36, 16, 2, 11008, 151936, tie_word_embeddings=True), 3_085_938_688),
    "Qwen1.5-MoE A2.7B": (
        decoder(
            "qwen2_moe",
            *(2048, 24, 16, 16, 5632, 151936),
            num_experts=60,
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
        ),
        14_315_784_192,
    ),
    "Qwen3 8B": (decoder("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128), 8_190_735_360),
    "Qwen3 30B-A3B": (
        decoder("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, head_dim=128, num_experts=128, moe_intermediate_size=768),
        30_532_122_624,
    ),
    "Qwen3-Next 80B-A3B": (
        decoder(
            "qwen3_next",
            *(2048, 48, 16, 2, 5120, 151936),
            num_experts=512,
            moe_intermediate_size=512,
            shared_expert_intermediate_size=512,
            linear_num_value_heads=32,
            **DELTA_NET,
        ),
        79_674_391_296,
    ),
    "Qwen3.5 27B": (
        decoder("qwen3_5_text", 5120, 64, 24, 4, 17408, 248320, linear_num_value_heads=48, **DELTA_NET),
        26_895_998_464,
    ),
    "Gemma 2B": (decoder("gemma", 2048, 18, 8, 1, 16384, 256000, head_dim=256), 2_506_172_416),
    "Gemma 2 9B": (decoder("gemma2", 3584, 42, 16, 8, 14336, 256000, head_dim=256), 9_241_705_984),
    "Gemma 3 27B": (decoder("gemma3_text", 5376, 62, 32, 16, 21504, 262208, head_dim=128), 27_009_346_304),
    "Gemma 4 26B-A4B": (
        decoder(
            "gemma4_text",
            *(2816, 30, 16, 8, 2112, 262144),
            hidden_size_per_layer_input=0,
            enable_moe_block=True,
            num_experts=128,
            moe_intermediate_size=704,
            layer_types=GEMMA4_LAYERS,
            **GEMMA4_HEADS,
        ),
        25_233_141_760,
    ),
    "Phi-3 mini": (decoder("phi3", 3072, 32, 32, 32, 8192, 32064), 3_821_079_552),
    "OLMo 2 32B": (decoder("olmo2", 5120, 64, 40, 8, 27648, 100352), 32_234_279_936),
    "StarCoder2 7B": (decoder("starcoder2", 4608, 32, 36, 4, 18432, 49152), 7_173_923_840),
    "Aya 23 8B": (decoder("cohere", 4096, 32, 32, 8, 14336, 256000), 8_028_033_024),
    "GPT-2 XL": (GPT2, 1_557_611_200),
    "RedPajama 3B": (decoder("gpt_neox", 2560, 32, 32, 32, 10240, 50432), 2_775_864_320),
    "SantaCoder": (SANTACODER | {"multi_query": True, "n_positions": 2048, "vocab_size": 49280}, 1_124_886_528),
    "OPT 13B": (OPT | {"max_position_embeddings": 2048, "vocab_size": 50272}, 12_853_473_280),
    "BLOOM 7B1": (BLOOM, 7_069_016_064),
    "Falcon 40B": (
        FALCON | {"num_kv_heads": 8, "new_decoder_architecture": True, "vocab_size": 65024},
        41_303_293_952,
    ),
    "gpt-oss 20B": (
        decoder("gpt_oss", 2880, 24, 64, 8, 2880, 201088, head_dim=64, num_local_experts=32),
        20_914_757_184,
    ),
    "DeepSeek-V3": (latent("deepseek_v3", 128, 256, 3, 129280), 671_026_419_200),
    "DeepSeek-V3.2": (
        latent("deepseek_v32", 128, 256, 3, 129280, index_n_heads=64, index_head_dim=128),
        671_877_944_064,
    ),
    "Kimi K2": (latent("kimi_k2", 64, 384, 1, 163840), 1_026_408_232_448),
    "Llama 4 Scout": (
        decoder("llama4_text", 5120, 48, 40, 8, 8192, 202048, head_dim=128, num_local_experts=16),
        107_769_861_120,
    ),
    "Nemotron-3 Nano 30B-A3B": (
        decoder(
            "nemotron_h",
            *(2688, 52, 32, 2, 1856, 131072),
            hybrid_override_pattern=NANO_PATTERN,
            mamba_num_heads=64,
            ssm_state_size=128,
            n_routed_experts=128,
            moe_intermediate_size=1856,
            moe_shared_expert_intermediate_size=3712,
            **MAMBA2,
        ),
        31_577_940_288,
    ),
    "Granite 4.0 H Small": (
        decoder(
            "granitemoehybrid",
            *(4096, 40, 32, 8, 768, 100352),
            tie_word_embeddings=True,
            layer_types=GRANITE_LAYERS,
            num_local_experts=72,
            shared_intermediate_size=1536,
            **GRANITE_MAMBA2,
        ),
        32_207_337_984,
    ),
    "Jamba 1.5 Mini": (
        decoder("jamba", 4096, 32, 32, 8, 14336, 65536, num_experts=16, mamba_dt_rank=256),
        51_570_323_328,
    ),
    "Falcon-Mamba 7B, head tied": (FALCON_MAMBA | {"time_step_rank": 256}, 7_006_326_784),
    "LFM2 1.2B": (
        decoder("lfm2", 2048, 16, 32, 8, 12288, 65536, conv_L_cache=3, layer_types=LFM2_LAYERS),
        1_170_340_608,
    ),
    "MiMo-V2-Flash 309B-A15B": (
        decoder(
            "mimo_v2_flash",
            *(4096, 48, 64, 4, 16384, 152576),
            hybrid_layer_pattern=MIMO_SLIDING,
            swa_num_attention_heads=64,
            swa_num_key_value_heads=8,
            moe_layer_freq=[0] + 47 * [1],
            moe_intermediate_size=2048,
            n_routed_experts=256,
            **MIMO_HEADS,
        ),
        308_778_780_864,
    ),
    "MiniMax-M2.5 229B-A10B": (
        decoder("minimax_m2", 3072, 62, 48, 8, 1536, 200064, head_dim=128, num_local_experts=256),
        228_689_764_864,
    ),
}
BLOCK_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
INT4_EXPERTS = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "lm_head"],
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
}
each_model = pytest.mark.parametrize(("config", "count"), MODELS.values(), ids=MODELS)
junk = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3)
broken = junk | st.lists(junk, max_size=2) | st.dictionaries(st.text(max_size=3), junk, max_size=2)


def released(name, quantization):
    """Weight bytes of a model of the table as a scheme would store it."""
    return count_parameters(MODELS[name][0] | {"quantization_config": quantization})


@each_model
def test_the_formula_counts_what_the_modelling_code_holds(config, count):
    assert count_parameters(config).total == count


@each_model
def test_without_quantisation_a_parameter_takes_two_bytes(config, count):
    parameters = count_parameters(config)
    assert (parameters.weight_bytes, parameters.exact_bytes) == (2 * count, True)


@each_model
def test_an_untied_head_is_one_more_embedding(config, count):
    tied = count_parameters(config | {"tie_word_embeddings": True})
    untied = count_parameters(config | {"tie_word_embeddings": False})
    assert untied.total - tied.total == tied.embedding == untied.embedding - tied.embedding
    assert tied.experts == untied.experts < tied.total - tied.embedding


@pytest.mark.parametrize(
    ("name", "experts"),
    [
        ("Llama 3.1 8B", 0),
        ("Mixtral 8x7B", 32 * 8 * 3 * 4096 * 14336),
        # Two biases: of the gate and up projection together, and of the down projection.
        ("gpt-oss 20B", 24 * 32 * (3 * 2880 * 2880 + 3 * 2880)),
        ("Nemotron-3 Nano 30B-A3B", 23 * 128 * 2 * 2688 * 1856),
        ("Jamba 1.5 Mini", 16 * 16 * 3 * 4096 * 14336),
    ],
)
def test_routed_experts_are_told_apart_from_the_shared_and_the_dense(name, experts):
    assert count_parameters(MODELS[name][0]).experts == experts


def test_a_field_that_is_null_counts_as_left_out():
    config, count = MODELS["GPT-2 XL"]
    assert count_parameters(config | {"n_inner": None}).total == count


def test_the_whole_file_speaks_for_a_text_model_that_does_not():
    config, count = MODELS["Llama 3.1 8B"]
    silent = {name: value for name, value in config.items() if name != "tie_word_embeddings"}
    tied = count_parameters(silent, {"tie_word_embeddings": True})
    assert tied.total == count - 128256 * 4096
    assert count_parameters(config, {"tie_word_embeddings": True}).total == count
    assert count_parameters(silent | {"tie_word_embeddings": None}, {"tie_word_embeddings": True}) == tied
    assert not count_parameters(config, {"quantization_config": BLOCK_FP8}).exact_bytes


@pytest.mark.parametrize("model_type", [None, 7, ["llama"], "", "deepseek_v4", "gemma3n_text", "dbrx", "not_yet_there"])
def test_an_unknown_architecture_counts_as_none(model_type):
    assert count_parameters(MODELS["Llama 3.1 8B"][0] | {"model_type": model_type}) is None


def test_what_no_formula_covers_within_a_known_family_counts_as_none():
    gemma4 = MODELS["Gemma 4 26B-A4B"][0]
    assert count_parameters(gemma4 | {"hidden_size_per_layer_input": 256}) is None
    assert count_parameters(gemma4 | {"num_kv_shared_layers": 10}) is None
    granite = MODELS["Granite 4.0 H Small"][0]
    assert count_parameters(granite | {"layer_types": ["a new kind"] * 40}) is None
    nano = MODELS["Nemotron-3 Nano 30B-A3B"][0]
    assert count_parameters(nano | {"hybrid_override_pattern": "MX"}) is None


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"])
def test_a_missing_size_without_a_default_counts_as_none(name):
    config = {key: value for key, value in MODELS["Llama 3.1 8B"][0].items() if key != name}
    assert count_parameters(config) is None


@given(st.sampled_from(list(MODELS)), st.data())
def test_a_damaged_config_counts_as_a_number_or_as_none(name, data):
    config = MODELS[name][0]
    fields = st.sampled_from([*config, "quantization_config", "sparse_attention_config", "head_dim", "mlp_only_layers"])
    damaged = config | {data.draw(fields): data.draw(broken)}
    parameters = count_parameters(damaged)
    assert parameters is None or (isinstance(parameters, Parameters) and parameters.total > 0)


@given(st.dictionaries(st.sampled_from(["quant_method", "format", "ignore", "bits", "weight_block_size"]), broken))
def test_a_damaged_quantisation_is_never_exact(scheme):
    parameters = released("Qwen3 30B-A3B", {**scheme, "quant_method": "unheard of"})
    assert not parameters.exact_bytes
    assert 0 < parameters.weight_bytes <= 2 * parameters.total


def test_mxfp4_shrinks_expert_matrices_to_a_quarter_byte_over_four_bits():
    """The release of gpt-oss 20B: matrices at 4.25 bit, biases and everything else at 16."""
    parameters = released("gpt-oss 20B", {"quant_method": "mxfp4"})
    assert (parameters.weight_bytes, parameters.exact_bytes) == (13_761_264_768, True)


def test_block_fp8_takes_a_byte_for_a_linear_weight_and_two_for_the_rest():
    """DeepSeek-V3's 61 layers: 669,065,609,216 weights in fp8 with a 4-byte scale for 128 × 128 of them."""
    parameters = released("DeepSeek-V3", BLOCK_FP8)
    linear = 669_065_609_216
    assert parameters.weight_bytes == -(-linear * (4 * 128 * 128 + 16) // (4 * 128 * 128)) + 2 * (
        parameters.total - linear
    )
    assert not parameters.exact_bytes


def test_the_fp8_weights_of_deepseek_v3_are_those_of_its_release():
    """The release holds 680,571,043,840 fp8 weights: 61 layers and a 62nd, for multi-token prediction."""
    config = MODELS["DeepSeek-V3"][0] | {"num_hidden_layers": 62}
    halved = count_parameters(config | {"quantization_config": {"quant_method": "fp8", "weight_block_size": []}})
    assert 2 * halved.total - halved.weight_bytes == pytest.approx(680_571_043_840, rel=1e-6)


def test_int4_that_spares_attention_shrinks_experts_alone():
    """Kimi K2.5's text model: experts at 4.5 bit, the rest at 16."""
    parameters = released("Kimi K2", INT4_EXPERTS)
    assert parameters.weight_bytes == 594_205_305_856
    assert not parameters.exact_bytes


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [
        ({"quant_algo": "NVFP4"}, 4.5),
        ({"quant_algo": "FP8"}, 8),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, 8),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, 4.5),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8 + 24 / 128),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
        ({"quant_method": "unheard of"}, 16),
    ],
)
def test_a_scheme_sets_the_bits_of_the_linear_weights(scheme, bits):
    """Llama 3.1 8B: all but the embedding, the head and 65 norms is linear."""
    total, spared = MODELS["Llama 3.1 8B"][1], 2 * 128256 * 4096 + 65 * 4096
    parameters = released("Llama 3.1 8B", scheme)
    assert parameters.weight_bytes == pytest.approx((total - spared) * bits / 8 + 2 * spared, rel=1e-6)
    assert not parameters.exact_bytes


def test_every_name_in_the_families_is_defined():
    assert {family.layers for family in FAMILIES.values()} == set(LAYERS)
    mixers = {name for family in FAMILIES.values() for name in (family.mixer, family.state_mixer) if name}
    assert mixers == set(MIXERS)
    assert set(SAME_DECODER.values()) <= set(FAMILIES)


KNOWN_COUNTS = {
    "DeepSeek-V2-Lite": "DeepSeek-V2-Lite 16B",
    "DeepSeek-V3": "DeepSeek-V3 671B-A37B",
    "DeepSeek-V3.2": "DeepSeek-V3.2 671B-A37B (DSA)",
    "GLM-4.5V": "GLM-4.5-Air 106B-A12B",
    "GLM-5.2": "GLM-5.2 743B-A40B (DSA, shared indexer)",
    "Jamba-1.5-Mini": "Jamba v0.1 / 1.5 Mini 52B-A12B",
    "Kimi-K2-Instruct": "Kimi K2 1T-A32B",
    "Llama-2-7b": "Llama 2 7B",
    "Llama-3.1-70B-Instruct-FP8": "Llama 3.1 70B",
    "Llama-3.2-1B": "Llama 3.2 1B",
    "Llama-3.2-3B": "Llama 3.2 3B",
    "Llama-3_3-Nemotron-Super-49B-v1": "Llama-3.3-Nemotron-Super 49B",
    "Llama-4-Scout-17B-16E-Instruct": "Llama 4 Scout 109B-A17B",
    "Meta-Llama-3.1-405B": "Llama 3.1 405B",
    "Meta-Llama-3.1-70B": "Llama 3.1 70B",
    "Meta-Llama-3.1-8B": "Llama 3.1 8B",
    "MiMo-V2-Flash": "MiMo-V2-Flash 309B-A15B",
    "MiniMax-M2.5": "MiniMax M2.5 229B-A10B",
    "MiniMax-M3": "MiniMax M3",
    "Mistral-7B-v0.1": "Mistral 7B v0.1",
    "Mistral-7B-v0.3": "Mistral 7B v0.3",
    "Mixtral-8x7B-v0.1": "Mixtral 8x7B v0.1",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "Nemotron-3 Nano 30B-A3B",
    "NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "Nemotron-3 Ultra 550B-A55B",
    "Nemotron-H-56B-Base-8K": "Nemotron-H 56B",
    "OLMo-2-32B": "OLMo 2 32B",
    "Olmo-3.1-32B": "OLMo 3 / 3.1 32B",
    "Phi-3-mini-4k": "Phi-3 mini 4k",
    "Phi-3.5-mini": "Phi-3 mini 128k",
    "Qwen2-7B": "Qwen2.5 7B",
    "Qwen2.5-32B": "Qwen2.5 32B",
    "Qwen2.5-3B": "Qwen2.5 3B",
    "Qwen3-0.6B": "Qwen3 0.6B",
    "Qwen3-235B-A22B": "Qwen3 235B-A22B",
    "Qwen3-235B-A22B-NVFP4": "Qwen3 235B-A22B",
    "Qwen3-30B-A3B": "Qwen3 30B-A3B",
    "Qwen3-32B": "Qwen3 32B",
    "Qwen3-8B": "Qwen3 8B",
    "Qwen3-Next-80B-A3B": "Qwen3-Next 80B-A3B",
    "Qwen3-VL-235B-A22B-Instruct": "Qwen3 235B-A22B",
    "Qwen3.5-27B": "Qwen3.5 27B",
    "Qwen3.5-35B-A3B": "Qwen3.5 35B-A3B",
    "Qwen3.5-397B-A17B": "Qwen3.5 397B-A17B",
    "falcon-40b": "Falcon 40B",
    "gemma-2-2b": "Gemma 2 2B",
    "gemma-2-9b": "Gemma 2 9B",
    "gemma-2b": "Gemma 2B",
    "gemma-3-1b-it": "Gemma 3 1B",
    "gemma-3-27b-it": "Gemma 3 27B",
    "gemma-3-4b-it": "Gemma 3 4B",
    "gemma-4-26B-A4B": "Gemma 4 26B-A4B",
    "gpt-oss-20b": "gpt-oss 20B",
    "granite-4.0-h-small": "Granite 4.0 H Small",
    "llama-65b": "Llama 65B",
    "opt-13b": "OPT 13B",
    "starcoder2": "StarCoder2 7B",
}
"""Configurations of which a text model of the same shape is on record, by the name it has there."""
CUT_AWAY = {"NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": {"moe_latent_size": 2048}}
"""Fields that the published config.json has and its reduced copy lacks."""
NOT_COUNTED = {"DeepSeek-V4-Flash", "Kimi-K3", "gemma-3n-E4B-text"}


def test_reduced_copies_of_published_configs_count_as_on_record(shared):
    """Counts: the text stack by transformers 5.24.0, or in closed form where it lacks the model."""
    files = {path.stem: json.loads(path.read_text()) for path in shared.glob("*/configs/*.json")}
    if not files:
        pytest.skip("the published configurations are not on this machine")
    record = json.loads((shared / "facts/models.json").read_text())["models"]
    counts = {model["name"]: model["params_computed"] for model in record}
    found = {
        name: count_parameters(file.get("text_config", file) | CUT_AWAY.get(name, {}), file)
        for name, file in files.items()
    }
    assert {name for name, parameters in found.items() if parameters is None} == NOT_COUNTED
    known = {name: counts[title] for name, title in KNOWN_COUNTS.items()}
    assert {name: found[name].total for name in known} == known
