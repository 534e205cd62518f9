"""A Hugging Face config.json -> ModelSpec, without the Hub and without transformers.

What is not understood is refused with the key named: a guess about a cache would be silently wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from kvplan import hf_facts
from kvplan.parameters import count_parameters
from kvplan.specs import (
    SOURCED,
    LayerGroup,
    LayerState,
    ModelShape,
    ModelSpec,
    QuantizedDtype,
    Source,
    problem_lines,
    read_json,
    runs,
    shorten,
    shown,
)
from kvplan.weights import quantized_format

TEXT_MODELS = (("text_config",), ("llm_config",), ("thinker_config", "text_config"), ("language_config",))
"""Where multimodal wrappers keep the configuration of their text model."""
ENCODERS = ("vision_config", "audio_config", "thinker_config", "vision_tower_config")
"""Where multimodal wrappers keep the configuration of their encoders."""
MAX_MB = 1
MAX_BYTES = MAX_MB * 2**20
"""Of a config.json; the longest in the wild, with lists of modules that are not quantised, have some 200,000."""
MAX_LAYERS = MAX_HEADS = 4096
MAX_WIDTH, MAX_WINDOW = 65_536, 2**24
"""What a model can have; a config beyond is damaged."""
STATE_ONLY_LENGTH = 1_048_576
"""The length given to a model that keeps nothing but states and names no longest length."""
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32"}
SPELLINGS = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": (
        "num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_kv_heads", "n_head_kv",
        "num_attention_groups",
    ),
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "max_position_embeddings": (
        "max_position_embeddings", "n_positions", "seq_length", "max_sequence_length", "max_seq_len",
        "model_max_length", "n_ctx",
    ),
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "vocab_size": ("vocab_size", "padded_vocab_size", "n_vocab"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "dense_intermediate_size"),
    "num_experts_per_tok": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_top_k"),
}  # fmt: skip
"""The names one field has in different families, the commonest first."""


class Config:
    """The text model's fields by their common name, with the family's defaults behind them, and errors that name the
    key, the rule and the value."""

    def __init__(self, fields: Mapping, outer: Mapping):
        self.fields, self.outer = fields, outer
        names = (fields.get("model_type"), outer.get("model_type"))
        self.family = next((name for name in names if isinstance(name, str)), "")
        self.defaults = hf_facts.DEFAULTS.get(self.family, {})

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str, otherwise=None):
        """The value of a field under any of its names, else the family's default. A null is a word of its own: it says
        that there is none, and no default takes its place."""
        given = [self.fields[key] for key in SPELLINGS.get(name, (name,)) if key in self.fields]
        if given:
            return next((value for value in given if value is not None), otherwise)
        return self.defaults.get(name, otherwise)

    def count(self, name: str, otherwise: int | None = None, least: int = 1, most: int = 2**32) -> int:
        """A whole number from `least` to `most`."""
        value = self.get(name, otherwise)
        if value is None:
            raise ValueError(f"{name}: missing, and model_type {shorten(self.family) or 'none'} has no default for it")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{name}: must be a whole number from {least} to {most:,}, got {shown(value)}")
        return value

    def layers(self) -> int:
        """The number of layers, within what a model can have."""
        return self.count("num_hidden_layers", most=MAX_LAYERS)

    def listed(self, name: str, layers: int) -> list:
        """A list with an entry for every layer; entries behind the last layer belong to draft layers."""
        value = self.get(name)
        if not isinstance(value, list) or len(value) < layers:
            raise ValueError(f"{name}: must list all {layers} layers, got {shown(value)}")
        return value[:layers]


def model_from_hf_config(config: Mapping | str | bytes | os.PathLike, id: str | None = None) -> ModelSpec:
    """The model a config.json describes: a mapping, the JSON text, or the path of a file.

    Raises ValueError, one line with the key, the rule and the value, for what cannot be read or is not understood.
    """
    outer = _loaded(config)
    text = _text_model(outer)
    reader = Config(text, outer)
    _refuse_encoders(reader)
    try:
        layers = _layers(reader)
        return _spec(reader, layers, id)
    except ValidationError as error:
        raise ValueError(problem_lines(error)[0]) from None
    except RecursionError:
        raise ValueError("config: nested too deeply") from None


def _loaded(config) -> Mapping:
    if isinstance(config, os.PathLike):
        with Path(config).open("rb") as file:
            config = file.read(MAX_BYTES + 1)
    if isinstance(config, (str, bytes)) and len(config) > MAX_BYTES:
        raise ValueError(f"config: must be at most {MAX_BYTES:,} bytes")
    if isinstance(config, bytes):
        config = config.decode(json.detect_encoding(config), errors="replace")
    if isinstance(config, str):
        try:
            config = read_json(config.removeprefix("\ufeff"))
        except ValueError as error:
            raise ValueError(f"config: must be JSON, {error}") from None
    if not isinstance(config, Mapping):
        raise ValueError(f"config: must be a JSON object, got {shown(config)}")
    return config


def _text_model(outer: Mapping) -> Mapping:
    for path in TEXT_MODELS:
        found = outer
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            return found
    return outer


def _refuse_encoders(config: Config) -> None:
    if config.get("is_encoder_decoder") or config.outer.get("is_encoder_decoder"):
        raise ValueError("is_encoder_decoder: encoder-decoder models keep another kind of cache, got True")
    architectures = config.outer.get("architectures") or config.fields.get("architectures") or []
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    for name in names:
        if "Encoder" in name or name.endswith(("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")):
            raise ValueError(f"architectures: an encoder keeps no cache between tokens, got {shown(name)}")
    if config.family in ("bert", "roberta", "distilbert", "deberta", "electra", "xlm-roberta", "albert", "modernbert"):
        raise ValueError(f"model_type: an encoder keeps no cache between tokens, got {config.family!r}")


def _layers(config: Config) -> list[LayerGroup]:
    """Every layer in order: by the family's own reader, else as plain attention."""
    if config.family in READERS:
        return READERS[config.family](config)
    if not _is_known(config):
        _refuse_what_is_not_plain(config)
    return _attention_layers(config)


def _is_known(config: Config) -> bool:
    return config.family in hf_facts.PLAIN_FAMILIES or config.family in READERS


def _refuse_what_is_not_plain(config: Config) -> None:
    words = hf_facts.SUSPECT_WORDS if config.has("num_key_value_heads") else hf_facts.SUSPECT_WORDS_WITHOUT_KV_HEADS
    for key in _keys(config.fields):
        if any(word in key.lower() for word in words):
            family = shorten(config.family) or "none"
            raise ValueError(
                f"{shorten(key)}: model_type {family} is not known, and this key speaks of more than plain attention"
            )


def _keys(fields: Mapping) -> list[str]:
    """Every key, those of nested objects included, where the value says something."""
    found = []
    for key, value in fields.items():
        if value is not None and value is not False and not str(key).endswith("vision_config"):
            found.append(str(key))
            found += _keys(value) if isinstance(value, Mapping) else []
    return found


def _attention_layers(config: Config) -> list[LayerGroup]:
    """Plain attention, with the sliding or chunked layers the config or its family names."""
    layers = config.layers()
    full = _attention(config)
    kinds = _attention_kinds(config, layers)
    shared = config.count("num_kv_shared_layers", 0, least=0, most=layers - 1)
    found = []
    for index, kind in enumerate(kinds):
        if index >= layers - shared:
            found.append(LayerGroup(kind="none"))
        elif kind == "full":
            found.append(_global_attention(config, full))
        else:
            window = config.count("attention_chunk_size" if kind == "chunked" else "sliding_window", most=MAX_WINDOW)
            found.append(_changed(full, kind=kind, window=window))
    return found


def _attention_kinds(config: Config, layers: int) -> list[str]:
    family = config.family
    if family in hf_facts.WINDOW_IS_A_SWITCH and not config.get("use_sliding_window"):
        return ["full"] * layers
    if config.has("layer_types"):
        return [_named_kind(name) for name in config.listed("layer_types", layers)]
    if family == "llama4_text":
        return _llama4_kinds(config, layers)
    if not config.has("sliding_window") or config.get("use_sliding_window") is False:
        return ["full"] * layers
    if isinstance(config.get("sliding_window_pattern"), str):
        letters = {"L": "sliding", "G": "full"}
        pattern = config.get("sliding_window_pattern")
        if not pattern or set(pattern) - set(letters):
            raise ValueError(f"sliding_window_pattern: must be letters L and G or a number, got {shown(pattern)}")
        return [letters[pattern[index % len(pattern)]] for index in range(layers)]
    if config.has("sliding_window_pattern"):
        pattern = config.count("sliding_window_pattern")
        return ["full" if (index + 1) % pattern == 0 else "sliding" for index in range(layers)]
    if family in hf_facts.SLIDING_ON_EVEN:
        return ["full" if index % 2 else "sliding" for index in range(layers)]
    if family in hf_facts.SLIDING_EVERYWHERE:
        return ["sliding"] * layers
    if family in hf_facts.WINDOW_IS_A_SWITCH:
        first = config.count("max_window_layers", layers, least=0)
        return ["sliding" if index >= first else "full" for index in range(layers)]
    raise ValueError(
        f"sliding_window: which layers of model_type {shorten(family) or 'none'} it holds for is not known, "
        f"got {shown(config.get('sliding_window'))}"
    )


def _llama4_kinds(config: Config, layers: int) -> list[str]:
    """Chunked where a layer has rotary positions, full where it has none; chunked nowhere without a chunk."""
    if not config.has("attention_chunk_size"):
        return ["full"] * layers
    if config.get("no_rope_layers"):
        flags = config.listed("no_rope_layers", layers)
    else:
        interval = config.count("no_rope_layer_interval", otherwise=4)
        flags = [(index + 1) % interval for index in range(layers)]
    return ["chunked" if flag else "full" for flag in flags]


def _named_kind(name) -> str:
    kinds = {
        "full_attention": "full",
        "attention": "full",
        "sliding_attention": "sliding",
        "chunked_attention": "chunked",
    }
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"layer_types: must be one of {', '.join(kinds)} here, got {shown(name)}")
    return kinds[name]


def _attention(config: Config, prefix: str = "") -> LayerGroup:
    """One layer of full attention; `prefix` for the fields of the windowed layers where a family has others."""
    heads = config.count(f"{prefix}num_attention_heads")
    head_dim = _head_dim(config, heads, prefix)
    return LayerGroup(
        kind="full",
        kv_heads=_kv_heads(config, heads, prefix),
        head_dim=head_dim,
        value_head_dim=config.count(f"{prefix}v_head_dim", otherwise=head_dim, most=MAX_WIDTH),
    )


def _head_dim(config: Config, heads: int, prefix: str = "") -> int:
    """The width of a head: given, or an even share of the hidden size."""
    if config.has(f"{prefix}head_dim"):
        return config.count(f"{prefix}head_dim", most=MAX_WIDTH)
    return config.count("hidden_size", least=heads) // heads


def _kv_heads(config: Config, heads: int, prefix: str = "") -> int:
    """KV heads in every spelling: multi-query flags, an attention block of its own, else as many as query heads."""
    if config.family == "falcon" and not config.get("new_decoder_architecture"):
        return 1 if config.get("multi_query", True) else heads
    if config.family == "gpt_bigcode":
        return 1 if config.get("multi_query", True) else heads
    block = config.get("attn_config")
    if isinstance(block, Mapping) and block.get("kv_n_heads") is not None:
        return Config(block, config.outer).count("kv_n_heads", most=MAX_HEADS)
    return config.count(f"{prefix}num_key_value_heads", otherwise=heads, most=MAX_HEADS)


def _global_attention(config: Config, full: LayerGroup) -> LayerGroup:
    """The full layers of a family in which they are wider than the windowed ones (Gemma-4)."""
    if not config.has("global_head_dim"):
        return full
    width = config.count("global_head_dim", most=MAX_WIDTH)
    heads = config.count("num_global_key_value_heads", otherwise=full.kv_heads, most=MAX_HEADS)
    return _changed(full, kv_heads=heads, head_dim=width, value_head_dim=width)


def _mla(config: Config) -> LayerGroup:
    """One latent vector a token for all heads, with the key of the indexer where there is one."""
    width = config.count("kv_lora_rank") + config.count("qk_rope_head_dim", otherwise=0, least=0)
    return LayerGroup(
        kind="mla",
        kv_heads=1,
        head_dim=width,
        index_dim=config.count("index_head_dim", 0, least=0, most=MAX_WIDTH),
        index_topk=config.count("index_topk", 0, least=0, most=MAX_WINDOW),
    )


def _mla_layers(config: Config) -> list[LayerGroup]:
    layers, layer = config.layers(), _mla(config)
    if not config.has("indexer_types"):
        return [layer] * layers
    without = _changed(layer, index_dim=0)
    kinds = {"full": layer, "shared": without}
    return [_pick(kinds, name, "indexer_types") for name in config.listed("indexer_types", layers)]


def _compressed_layers(config: Config) -> list[LayerGroup]:
    layers = config.layers()
    ratios = config.listed("compress_ratios", layers)
    for ratio in ratios:
        if ratio not in (0, 4, 128):
            raise ValueError(f"compress_ratios: must be 0, 4 or 128, got {shown(ratio)}")
    return [
        LayerGroup(
            kind="compressed",
            kv_heads=1,
            head_dim=config.count("head_dim", most=MAX_WIDTH),
            window=config.count("sliding_window", most=MAX_WINDOW),
            compress_ratio=ratio,
            index_dim=config.count("index_head_dim") if ratio == 4 else 0,
            index_topk=config.count("index_topk", 0, least=0, most=MAX_WINDOW) if ratio == 4 else 0,
        )
        for ratio in ratios
    ]


def _kda_layers(config: Config) -> list[LayerGroup]:
    """Kimi Linear: layers of delta attention, counted from 1, among MLA."""
    block = config.get("linear_attn_config")
    if not isinstance(block, Mapping):
        raise ValueError(f"linear_attn_config: must be an object, got {shown(block)}")
    linear = Config(block, config.outer)
    heads, width = linear.count("num_heads"), linear.count("head_dim")
    state = LayerState(
        conv_kernel=linear.count("short_conv_kernel_size"),
        conv_channels=3 * heads * width,
        recurrent_elements=heads * width * width,
        recurrent_dtype="fp32",
    )
    numbers = block.get("kda_layers")
    if not isinstance(numbers, list):
        raise ValueError(f"linear_attn_config.kda_layers: must list layers, got {shown(numbers)}")
    kda, mla = LayerGroup(kind="kda", state=state), _mla(config)
    return [kda if index + 1 in numbers else mla for index in range(config.layers())]


def _gated_deltanet_layers(config: Config) -> list[LayerGroup]:
    """Qwen3-Next and Qwen3.5: gated DeltaNet with full attention in every n-th layer."""
    layers = config.layers()
    keys = config.count("linear_num_key_heads") * config.count("linear_key_head_dim")
    values = config.count("linear_num_value_heads") * config.count("linear_value_head_dim")
    state = LayerState(
        conv_kernel=config.count("linear_conv_kernel_dim"),
        conv_channels=2 * keys + values,
        recurrent_elements=values * config.count("linear_key_head_dim"),
        recurrent_dtype=_dtype(config.get("mamba_ssm_dtype"), "mamba_ssm_dtype"),
    )
    delta, full = LayerGroup(kind="gated_deltanet", state=state), _attention(config)
    if config.has("layer_types"):
        kinds = {"linear_attention": delta, "full_attention": full}
        return [_pick(kinds, name, "layer_types") for name in config.listed("layer_types", layers)]
    interval = config.count("full_attention_interval")
    return [full if (index + 1) % interval == 0 else delta for index in range(layers)]


def _nemotron_layers(config: Config) -> list[LayerGroup]:
    """Nemotron-H: a pattern of Mamba-2 (M), attention (*) and layers without a cache (-, E)."""
    pattern = config.get("hybrid_override_pattern") or config.get("layers_block_type")
    state = LayerState(
        conv_kernel=config.count("conv_kernel"),
        recurrent_dtype=_dtype(config.get("mamba_ssm_cache_dtype"), "mamba_ssm_cache_dtype"),
        **_mamba2_sizes(
            heads=config.count("mamba_num_heads"),
            head_dim=config.count("mamba_head_dim"),
            groups=config.count("n_groups"),
            state=config.count("ssm_state_size"),
        ),
    )
    none, mamba, full = LayerGroup(kind="none"), LayerGroup(kind="mamba2", state=state), _attention(config)
    kinds = {"M": mamba, "*": full, "-": none, "E": none, "mamba": mamba, "attention": full, "moe": none, "mlp": none}
    if not isinstance(pattern, (str, list)) or not pattern:
        raise ValueError(f"hybrid_override_pattern: must name every layer, got {shown(pattern)}")
    if config.has("num_hidden_layers") and config.layers() != len(pattern):
        raise ValueError(f"hybrid_override_pattern: must name all {config.layers()} layers, got {shown(pattern)}")
    return [_pick(kinds, name, "hybrid_override_pattern") for name in pattern]


def _granite_layers(config: Config) -> list[LayerGroup]:
    """Granite-4 hybrids: Mamba-2 and attention, by name."""
    state = LayerState(
        conv_kernel=config.count("mamba_d_conv"),
        **_mamba2_sizes(
            heads=config.count("mamba_n_heads"),
            head_dim=config.count("mamba_d_head", otherwise=_expanded(config) // config.count("mamba_n_heads")),
            groups=config.count("mamba_n_groups"),
            state=config.count("mamba_d_state"),
        ),
    )
    kinds = {"mamba": LayerGroup(kind="mamba2", state=state), "attention": _attention(config)}
    layers = config.layers()
    return [_pick(kinds, name, "layer_types") for name in config.listed("layer_types", layers)]


def _falcon_h1_layers(config: Config) -> list[LayerGroup]:
    """Falcon-H1: attention and Mamba-2 side by side in every layer, here one after the other."""
    inner = config.count("mamba_d_ssm", otherwise=_expanded(config))
    heads = config.count("mamba_n_heads")
    state = LayerState(
        conv_kernel=config.count("mamba_d_conv"),
        **_mamba2_sizes(
            heads=heads,
            head_dim=config.count("mamba_d_head", otherwise=inner // heads),
            groups=config.count("mamba_n_groups"),
            state=config.count("mamba_d_state"),
        ),
    )
    return [_attention(config), LayerGroup(kind="mamba2", state=state)] * config.layers()


def _mamba2_sizes(*, heads: int, head_dim: int, groups: int, state: int) -> dict:
    """Channels and elements of a Mamba-2 layer; with one group its B and C are copied to every rank."""
    inner, shared = heads * head_dim, 2 * groups * state
    single = groups == 1
    return {
        "conv_channels": inner if single else inner + shared,
        "replicated_channels": shared if single else 0,
        "recurrent_elements": inner * state,
        "groups": groups,
    }


def _jamba_layers(config: Config) -> list[LayerGroup]:
    """Jamba: attention in one layer of each period, Mamba-1 in the others."""
    state = LayerState(
        conv_kernel=config.count("mamba_d_conv"),
        conv_channels=_expanded(config),
        recurrent_elements=_expanded(config) * config.count("mamba_d_state"),
    )
    mamba, full = LayerGroup(kind="mamba1", state=state), _attention(config)
    period = config.count("attn_layer_period")
    offset = config.count("attn_layer_offset", least=0, most=period - 1)
    return [full if index % period == offset else mamba for index in range(config.layers())]


def _mamba2_layers(config: Config) -> list[LayerGroup]:
    """A pure Mamba-2 model."""
    inner = config.count("expand", otherwise=2) * config.count("hidden_size")
    heads = config.count("num_heads", otherwise=inner // config.count("head_dim", otherwise=64))
    state = LayerState(
        conv_kernel=config.count("conv_kernel", otherwise=4),
        **_mamba2_sizes(
            heads=heads,
            head_dim=config.count("head_dim", otherwise=64),
            groups=config.count("n_groups", otherwise=8),
            state=config.count("state_size", otherwise=128),
        ),
    )
    return [LayerGroup(kind="mamba2", state=state)] * config.layers()


def _mamba1_layers(config: Config) -> list[LayerGroup]:
    """A pure Mamba-1 model."""
    inner = config.count("intermediate_size", otherwise=config.count("expand") * config.count("hidden_size"))
    state = LayerState(
        conv_kernel=config.count("conv_kernel"),
        conv_channels=inner,
        recurrent_elements=inner * config.count("state_size"),
    )
    return [LayerGroup(kind="mamba1", state=state)] * config.layers()


def _short_conv_layers(config: Config) -> list[LayerGroup]:
    """LFM2: short convolutions among attention."""
    layers = config.layers()
    channels = config.count("conv_dim", otherwise=config.count("hidden_size"))
    state = LayerState(conv_kernel=config.count("conv_L_cache"), conv_channels=channels)
    kinds = {"conv": LayerGroup(kind="short_conv", state=state), "full_attention": _attention(config)}
    if config.has("layer_types"):
        return [_pick(kinds, name, "layer_types") for name in config.listed("layer_types", layers)]
    full = config.get("full_attn_idxs")
    if not isinstance(full, list):
        raise ValueError("layer_types: missing, and full_attn_idxs as well")
    return [kinds["full_attention" if index in full else "conv"] for index in range(layers)]


def _sparse_layers(config: Config) -> list[LayerGroup]:
    """MiniMax-M3: every layer stores all keys and values; sparse ones a key for their indexer beside them."""
    block = config.get("sparse_attention_config")
    if not isinstance(block, Mapping):
        raise ValueError(f"sparse_attention_config: must be an object, got {shown(block)}")
    sparse = Config(block, config.outer)
    layers, full = config.layers(), _attention(config)
    blocks, block = (sparse.count(name, 0, least=0, most=4096) for name in ("sparse_topk_blocks", "sparse_block_size"))
    indexed = _changed(full, index_dim=sparse.count("sparse_index_dim", most=MAX_WIDTH), index_topk=blocks * block)
    kinds = {0: full, 1: indexed}
    return [_pick(kinds, flag, "sparse_attention_freq") for flag in sparse.listed("sparse_attention_freq", layers)]


def _two_shapes_layers(config: Config) -> list[LayerGroup]:
    """MiMo-V2: windowed layers (1) and full ones (0), each with heads of their own."""
    layers, full = config.layers(), _attention(config)
    windowed = _attention(config, "swa_") if config.has("swa_num_attention_heads") else full
    windowed = _changed(windowed, kind="sliding", window=config.count("sliding_window", most=MAX_WINDOW))
    kinds = {0: full, 1: windowed}
    return [_pick(kinds, flag, "hybrid_layer_pattern") for flag in config.listed("hybrid_layer_pattern", layers)]


def _block_layers(config: Config) -> list[LayerGroup]:
    """Nemotron-NAS: each layer with its own number of heads in a group, or without attention."""
    heads = config.count("num_attention_heads")
    head_dim = _head_dim(config, heads)
    found = []
    for block in config.listed("block_configs", config.layers()):
        attention = block.get("attention") if isinstance(block, Mapping) else None
        if not isinstance(attention, Mapping):
            raise ValueError(f"block_configs: each needs an attention object, got {shown(block)}")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            found.append(LayerGroup(kind="none"))
            continue
        if attention.get("window_length") or attention.get("sparsify"):
            raise ValueError("block_configs: attention with window_length or sparsify is not understood")
        share = Config(attention, config.outer).count("n_heads_in_group")
        found.append(
            LayerGroup(kind="full", kv_heads=max(1, heads // share), head_dim=head_dim, value_head_dim=head_dim)
        )
    return found


READERS: dict[str, Callable[[Config], list[LayerGroup]]] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2"), _mla_layers),
    "deepseek_v4": _compressed_layers,
    "kimi_linear": _kda_layers,
    "nemotron_h": _nemotron_layers,
    "nemotron-nas": _block_layers,
    "jamba": _jamba_layers,
    **dict.fromkeys(("falcon_mamba", "mamba"), _mamba1_layers),
    "mamba2": _mamba2_layers,
    "falcon_h1": _falcon_h1_layers,
    "granitemoehybrid": _granite_layers,
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _gated_deltanet_layers),
    **dict.fromkeys(("lfm2", "lfm2_moe"), _short_conv_layers),
    "minimax_m3": _sparse_layers,
    "mimo_v2_flash": _two_shapes_layers,
}
"""Families with latent vectors, indexers, states or layers of several shapes, and how theirs are read."""


def _pick(kinds: Mapping[str | int, LayerGroup], name, key: str) -> LayerGroup:
    if isinstance(name, bool) or not isinstance(name, (str, int)) or name not in kinds:
        raise ValueError(f"{key}: must be one of {', '.join(map(str, kinds))}, got {shown(name)}")
    return kinds[name]


def _changed(group: LayerGroup, **values) -> LayerGroup:
    """The same layer but for some fields, checked like any other."""
    return LayerGroup.model_validate(group.model_dump() | values)


def _expanded(config: Config) -> int:
    return config.count("mamba_expand", otherwise=2) * config.count("hidden_size")


def _dtype(value, key: str) -> str | None:
    if value is None or value == "auto":
        return None
    if not isinstance(value, str) or value not in DTYPES:
        raise ValueError(f"{key}: must be one of {', '.join(DTYPES)}, got {shown(value)}")
    return DTYPES[value]


def _spec(config: Config, layers: list[LayerGroup], id: str | None) -> ModelSpec:
    architecture = _architecture(config)
    counted = count_parameters(dict(config.fields), dict(config.outer))
    source = Source(text=f"config.json of {architecture}", confidence="exact")
    counts = Source(text=f"counted from the config.json of {architecture}", confidence="exact")
    released = (
        counts if counted is None or counted.exact_bytes else counts.model_copy(update={"confidence": "estimate"})
    )
    stateful_only = all(layer.state is not None for layer in layers)
    return ModelSpec(
        id=id or architecture,
        name=id or architecture,
        model_type=_outer_family(config),
        parameters=counted.total if counted else None,
        weight_bytes=counted.weight_bytes if counted else None,
        dtype=_model_dtype(config) or "bf16",
        kv_cache_dtype=_cache_dtype(config),
        num_attention_heads=config.count("num_attention_heads") if config.has("num_attention_heads") else None,
        max_position_embeddings=config.count("max_position_embeddings", STATE_ONLY_LENGTH if stateful_only else None),
        groups=runs(layers),
        mtp_layers=_mtp_layers(config),
        num_experts=_experts(config),
        unquantized_parameters=counted.unquantized if counted else None,
        expert_parameters=counted.experts if counted else None,
        input_embedding_parameters=counted.input_embedding if counted else None,
        weight_dtype=_weight_dtype(config),
        shape=_shape(config),
        multimodal=_is_multimodal(config),
        alibi=_has_alibi(config),
        vision_heads=_vision_heads(config),
        notes=tuple(_notes(config)),
        sources=dict.fromkeys(SOURCED, source) | {"parameters": counts, "weight_bytes": released},
    )


def _outer_family(config: Config) -> str | None:
    """The family of the whole model: some facts of the engine hang on the wrapper and not on its text model."""
    name = config.outer.get("model_type")
    return (name if isinstance(name, str) and name else config.family) or None


def _architecture(config: Config) -> str:
    names = config.outer.get("architectures") or config.fields.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else config.family
    return "".join(sign for sign in shorten(name) if sign.isalnum() or sign in "_-.") or "unnamed model"


def _model_dtype(config: Config) -> str | None:
    """The dtype of the text model, else of the whole."""
    for holder in (config.fields, config.outer):
        for key in ("dtype", "torch_dtype"):
            if holder.get(key) is not None:
                return _dtype(holder[key], key)
    return None


def _cache_dtype(config: Config) -> str | None:
    """fp8 where the checkpoint brings a cache in 8 bits of its own (compressed-tensors or ModelOpt), else None."""
    for holder in (config.fields, config.outer):
        for key in ("quantization_config", "quantization"):
            found = holder.get(key)
            if not isinstance(found, Mapping):
                continue
            scheme = found.get("kv_cache_scheme")
            if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
                return "fp8"
            if str(found.get("kv_cache_quant_algo")).upper() == "FP8":
                return "fp8"
    return None


def _weight_dtype(config: Config) -> QuantizedDtype | None:
    """The width of quantised matrices, where the config names a scheme."""
    for holder in (config.fields, config.outer):
        scheme = holder.get("quantization_config")
        if isinstance(scheme, Mapping):
            return quantized_format(scheme)[0]
    return None


def _mtp_layers(config: Config) -> int:
    if config.family not in hf_facts.MTP_FAMILIES:
        return 0
    default = config.count("mtp_num_hidden_layers", hf_facts.MTP_FAMILIES[config.family], least=0)
    return config.count("num_nextn_predict_layers", default, least=0)


def _experts(config: Config) -> int:
    """Routed experts, also where a block of its own names them (DBRX)."""
    block = config.get("ffn_config")
    holder = Config(block, config.outer) if isinstance(block, Mapping) else config
    return holder.count("num_experts", 0, least=0)


def _shape(config: Config) -> ModelShape | None:
    """The widths that set the working memory of a step, None where the config does not give the first two."""
    if not (config.has("hidden_size") and config.has("vocab_size")):
        return None
    hidden, experts = config.count("hidden_size", most=2**20), _experts(config)
    dense = _width(config, "intermediate_size_mlp") or _width(config, "intermediate_size") or 4 * hidden
    return ModelShape(
        hidden_size=hidden,
        vocab_size=config.count("vocab_size", most=2**24),
        intermediate_size=dense,
        moe_intermediate_size=_expert_width(config, dense) if experts else 0,
        num_experts_per_tok=config.count("num_experts_per_tok", 2, most=2**20) if experts else 0,
        quantized_experts=bool(experts) and "mxfp4" in str(config.get("quantization_config")),
        mla_head_dims=_mla_head_dims(config),
    )


def _mla_head_dims(config: Config) -> int:
    """Width of a key and a value of one query head of MLA, 0 where the config has no such heads."""
    names = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return sum(config.count(name, 0, least=0, most=MAX_WIDTH) for name in names) if config.has("kv_lora_rank") else 0


def _expert_width(config: Config, dense: int) -> int:
    """The width of a routed expert: its own field, else the plain one, which families without dense layers use."""
    return _width(config, "moe_intermediate_size") or _width(config, "intermediate_size") or dense


def _width(config: Config, name: str) -> int:
    """A width, 0 where the config has none; the widest where each layer has its own."""
    value = config.get(name)
    widths = value if isinstance(value, list) else [value]
    return max((width for width in widths if isinstance(width, int) and 0 < width <= 2**24), default=0)


def _is_multimodal(config: Config) -> bool:
    return any(isinstance(config.outer.get(name), Mapping) for name in ENCODERS)


def _has_alibi(config: Config) -> bool:
    """Whether attention adds a bias by distance, for which there is no fp8 cache."""
    block = config.get("attn_config")
    flags = (config.get("alibi"), block.get("alibi") if isinstance(block, Mapping) else None)
    named = str(config.get("position_embedding_type") or config.get("position_embedding")).lower() == "alibi"
    return config.family in hf_facts.ALIBI_FAMILIES or named or any(flag is True for flag in flags)


def _vision_heads(config: Config) -> int | None:
    known = hf_facts.DEFAULTS.get(str(config.outer.get("model_type")), {}).get("vision_heads")
    vision = config.outer.get("vision_config")
    if known is None or not isinstance(vision, Mapping):
        return None
    return Config(vision, config.outer).count("num_attention_heads", otherwise=known)


def _notes(config: Config) -> list[str]:
    if _is_known(config):
        return []
    family = shorten(config.family) or "none"
    return [f"model_type: {family} is not known; it is read as plain attention, as no key speaks of more"]
