"""What a config.json leaves unsaid, as data: defaults of Hugging Face's families, and which layers are special.

Source: configuration classes of transformers 5.24; vLLM 0.32 where it reads a family its own way.
"""

from __future__ import annotations

DEFAULTS: dict[str, dict] = {
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "num_key_value_heads": 4},
    "gemma3_text": {
        "head_dim": 256,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "hidden_size": 2304,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
    },
    "gemma3n_text": {
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "hidden_size": 2048,
        "sliding_window": 512,
        "sliding_window_pattern": 5,
        "num_kv_shared_layers": 15,
        "max_position_embeddings": 32768,
    },
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "olmo3": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128},
    "llama4_text": {"head_dim": 128, "attention_chunk_size": 8192},
    "glm4v_moe": {"vision_heads": 12},
    "falcon_mamba": {"state_size": 16, "conv_kernel": 4, "expand": 2},
    "mamba": {"state_size": 16, "conv_kernel": 4, "expand": 2},
    "mixtral": {"num_key_value_heads": 8},
    "nemotron_h": {"mamba_ssm_cache_dtype": "float32"},
    "qwen3_next": {"full_attention_interval": 4},
    "qwen3_5_text": {"full_attention_interval": 4},
    "qwen3_5_moe_text": {"full_attention_interval": 4},
}
"""Fields that a family's configuration class fills in where config.json has none."""

SLIDING_EVERYWHERE = frozenset({"mistral", "starcoder2", "phi3", "phi3small", "phimoe", "mixtral"})
"""Families in which a `sliding_window` holds for every layer."""
SLIDING_ON_EVEN = frozenset({"gemma2", "gpt_oss"})
"""Families in which every other layer slides, beginning with the first, where config.json lists no layers."""
WINDOW_IS_A_SWITCH = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mimo"})
"""Families in which a `sliding_window` counts only with `use_sliding_window`, from layer `max_window_layers` on."""

MTP_FAMILIES = {
    "deepseek_v3": 1, "deepseek_v32": 1, "deepseek_v4": 1, "ernie4_5_moe": 1, "glm4_moe": 1, "glm_moe_dsa": 1,
    "kimi_k2": 1, "kimi_linear": 1, "mimo": 1, "mimo_v2_flash": 1, "nemotron_h": 0, "qwen3_5_moe_text": 1,
    "qwen3_5_text": 1, "qwen3_next": 1,
}  # fmt: skip
"""Families whose layers for multi-token prediction the engine can draft with, and how many where config.json gives no
number."""

ALIBI_FAMILIES = frozenset({"bloom"})
"""Families whose attention has a bias by distance without a field that says so."""

PLAIN_FAMILIES = frozenset(
    {
        "apertus", "arcee", "arctic", "baichuan", "bloom", "chatglm", "codegen", "cohere", "cohere2", "dbrx",
        "deepseek", "ernie4_5", "ernie4_5_moe", "exaone", "exaone4", "falcon", "gemma", "gemma2", "gemma3",
        "gemma3_text", "gemma3n_text", "gemma4_text", "glm", "glm4", "glm4_moe", "glm4v_moe_text", "glm4v_text",
        "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj", "granite", "granitemoe", "grok-1",
        "internlm", "internlm2", "internlm3", "llama", "llama4_text", "mimo", "minicpm",
        "minimax_m2", "ministral", "ministral3", "mistral", "mixtral", "mpt", "nemotron", "olmo", "olmo2",
        "olmo3", "olmoe", "opt", "orion", "persimmon", "phi", "phi3", "phi3small", "phimoe", "qwen", "qwen2",
        "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl_text", "qwen3", "qwen3_moe",
        "qwen3_vl_moe_text", "qwen3_vl_text", "seed_oss", "smollm3", "solar", "stablelm", "starcoder2", "xglm",
        "yi",
    }
)  # fmt: skip
"""Families known to cache keys and values of plain, sliding or chunked attention and nothing else."""

SUSPECT_WORDS = (
    "mamba", "ssm", "linear", "conv", "rwkv", "compress", "latent", "lora_rank", "cross_attention", "layer_group",
    "encoder", "sparse", "recurrent", "state_size", "lstm", "retention", "hyena", "index_", "hybrid_", "layers_block",
    "attn_layer", "attention_interval", "block_config", "chunk", "per_layer", "share_q", "attention_window",
    "local_attention",
)  # fmt: skip
"""Parts of a key's name that speak of something other than plain attention; met in an unknown family, the config is
refused with the key named, as a guess would be silently wrong."""
SUSPECT_WORDS_WITHOUT_KV_HEADS = (*SUSPECT_WORDS, "kv_", "_kv", "key_value", "groups", "multi_query")
"""The same where no number of KV heads is given under a known name: it may stand under another."""
