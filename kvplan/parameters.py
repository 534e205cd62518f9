"""Parameters of a text model, counted from its Hugging Face config.json, and the bytes its weights take.

A decoder is an embedding, layers and a head. A layer is norms around a mixer (attention, MLA, a state-space block ...)
and a feed-forward network. Every block has one formula below; a `Family` says which blocks a model type is made of.
What no formula covers counts as None, never as a guess.

Source: the modelling code of transformers 5.24.0, whose own counts the formulas meet to the last parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kvplan.units import ceil_div
from kvplan.weights import weight_bytes

Config = Mapping[str, Any]
Switch = bool | str
"""A trait that holds for every model of a family, or the name of the config field that turns it on."""

MAX_FIELD, MAX_LAYERS = 2**24, 4096
"""What a config may say before it is taken for damaged."""

Counts = Counter[Literal["input_embedding", "head", "linear", "experts", "expert_biases", "other"]]
"""Parameters by how a quantised checkpoint treats them. `linear` and `experts` are the matrices it may shrink; norms,
biases, routers, convolutions and learnt positions are `other`."""


class _Unknown(Exception):
    """The config asks for a formula that is not here, or lacks a field that has no default."""


@dataclass(frozen=True)
class Parameters:
    """`total` parameters of the text model (no vision tower, no multi-token prediction; router bias buffers included,
    as transformers does), of which `embedding` in the input embedding and an untied head, `input_embedding` in tables
    that are looked up and not read, `experts` in routed experts, and `unquantized` in what quantised checkpoints leave
    in 16 bits. `weight_bytes` as released, and whether that is exact or the quantisation makes it an estimate."""

    total: int
    embedding: int
    input_embedding: int
    experts: int
    unquantized: int
    weight_bytes: int
    exact_bytes: bool


@dataclass(frozen=True)
class Moe:
    """Routed experts: the fields that name their width and the shared expert's, and what the router adds."""

    width: str = "moe_intermediate_size"
    shared_width: str = ""
    shared_count: str = ""
    shared_gate: bool = False
    router_bias: Switch = False
    expert_bias: bool = False


@dataclass(frozen=True)
class Family:
    """What tells a family's decoder from Llama's.

    `mixer` and `state_mixer` are keys of MIXERS, the second for the layers of a hybrid that do not attend; `layers` is
    a key of LAYERS. `qk_norm` is one norm as wide as a head or as all heads together. `norm_vectors` is 2 where a norm
    has a bias. `extra_positions` is None without learnt positions, else the rows beyond the longest context.
    `defaults` are the fields that a config.json of the family may leave out.
    """

    mixer: str = "attention"
    state_mixer: str = ""
    qkv_bias: Switch = "attention_bias"
    out_bias: Switch = "attention_bias"
    qk_norm: Literal["", "head", "whole"] = ""
    qk_norm_if: Switch = True
    qk_norm_vectors: int = 1
    query_gate: bool = False
    sinks: bool = False
    norms: int = 2
    norm_vectors: int = 1
    mlp_matrices: int = 3
    mlp_bias: Switch = False
    mlp_width: str = "intermediate_size"
    moe: Moe | None = None
    extra_positions: int | None = None
    embedding_norm: bool = False
    head_bias: Switch = False
    tied: bool = False
    layers: str = "paired"
    defaults: Config = field(default_factory=dict)


SHARED_EXPERTS = Moe(shared_width="moe_intermediate_size", shared_count="n_shared_experts", router_bias=True)
GATED_SHARED_EXPERT = Moe(shared_width="shared_expert_intermediate_size", shared_gate=True)
WIDE_EXPERTS = Moe(width="intermediate_size")
FIRST_DENSE = {"first_k_dense_replace": 1, "n_shared_experts": 1}
FIRST_THREE_DENSE = {"first_k_dense_replace": 3, "n_shared_experts": 1}
JAMBA_PERIODS = {"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1}
GPT = {"qkv_bias": True, "out_bias": True, "norm_vectors": 2, "mlp_matrices": 2, "mlp_bias": True}
DELTA_NET = {"state_mixer": "delta_net", "query_gate": True, "qk_norm": "head"}
DELTA_NET_SIZES = {
    "full_attention_interval": 4,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
FALCON_SWITCHES = {
    "bias": False,
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_ln_in_parallel_attn": 2,
    "parallel_attn": True,
}
GEMMA3_SIZES = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}
LLAMA4_SIZES = {
    "vocab_size": 202048,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_local_experts": 16,
}
LFM2_SWITCHES = {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256}

FAMILIES = {
    "llama": Family(mlp_bias="mlp_bias"),
    "granite": Family(mlp_bias="mlp_bias"),
    "seed_oss": Family(
        mlp_bias="mlp_bias", out_bias="attention_out_bias", defaults={"attention_bias": True, "head_dim": 128}
    ),
    "nemotron-nas": Family(layers="searched"),
    "mistral": Family(defaults={"num_key_value_heads": 8}),
    "ministral3": Family(defaults={"num_key_value_heads": 8, "head_dim": 128}),
    "mixtral": Family(moe=WIDE_EXPERTS, defaults={"num_key_value_heads": 8}),
    "phi3": Family(),
    "phimoe": Family(norm_vectors=2, moe=WIDE_EXPERTS, head_bias="lm_head_bias", defaults={"num_key_value_heads": 8}),
    "qwen2": Family(qkv_bias=True, out_bias=False),
    "qwen2_moe": Family(qkv_bias="qkv_bias", out_bias=False, moe=GATED_SHARED_EXPERT, defaults={"qkv_bias": True}),
    "qwen3": Family(qk_norm="head", defaults={"head_dim": 128}),
    "qwen3_moe": Family(qk_norm="head", moe=Moe()),
    "qwen3_next": Family(**DELTA_NET, moe=GATED_SHARED_EXPERT, defaults=DELTA_NET_SIZES),
    "qwen3_5": Family(**DELTA_NET, defaults=DELTA_NET_SIZES),
    "qwen3_5_moe": Family(**DELTA_NET, moe=GATED_SHARED_EXPERT, defaults=DELTA_NET_SIZES),
    "glm": Family(out_bias=False, defaults={"attention_bias": True, "num_key_value_heads": 2, "head_dim": 128}),
    "glm4": Family(
        norms=4, out_bias=False, defaults={"attention_bias": True, "num_key_value_heads": 2, "head_dim": 128}
    ),
    "glm4v": Family(norms=4, qkv_bias=True, out_bias=False, defaults={"num_key_value_heads": 2}),
    "glm4_moe": Family(
        out_bias=False, qk_norm="head", qk_norm_if="use_qk_norm", moe=SHARED_EXPERTS, defaults=FIRST_DENSE
    ),
    "glm4v_moe": Family(out_bias=False, moe=SHARED_EXPERTS, defaults={"attention_bias": True, **FIRST_DENSE}),
    "gemma": Family(tied=True, defaults={"head_dim": 256}),
    "gemma2": Family(norms=4, tied=True, defaults={"head_dim": 256, "num_key_value_heads": 4}),
    "gemma3": Family(norms=4, tied=True, qk_norm="head", defaults=GEMMA3_SIZES),
    "gemma4": Family(
        layers="gemma4",
        tied=True,
        qk_norm="head",
        moe=Moe(),
        defaults={"head_dim": 256, "num_key_value_heads": 4, "hidden_size_per_layer_input": 256},
    ),
    "olmo2": Family(qk_norm="whole"),
    "olmo3": Family(qk_norm="whole"),
    "cohere": Family(norms=1, tied=True, qk_norm="whole", qk_norm_if="use_qk_norm"),
    "cohere2": Family(norms=1, tied=True),
    "starcoder2": Family(
        qkv_bias="use_bias",
        out_bias="use_bias",
        mlp_bias="use_bias",
        mlp_matrices=2,
        norm_vectors=2,
        tied=True,
        defaults={"use_bias": True},
    ),
    "gpt2": Family(**GPT, mlp_width="n_inner", extra_positions=0, tied=True),
    "gpt_bigcode": Family(**GPT, mlp_width="n_inner", extra_positions=0, tied=True, defaults={"multi_query": True}),
    "gptj": Family(**GPT | {"qkv_bias": False, "out_bias": False}, mlp_width="n_inner", norms=1, head_bias=True),
    "gpt_neox": Family(
        **GPT | {"qkv_bias": "attention_bias", "out_bias": "attention_bias"}, defaults={"attention_bias": True}
    ),
    "phi": Family(**GPT, norms=1, qk_norm="head", qk_norm_if="qk_layernorm", qk_norm_vectors=2, head_bias=True),
    # OPT keeps two positions more than it uses, a leftover of padding.
    "opt": Family(**GPT, mlp_width="ffn_dim", extra_positions=2, tied=True),
    "bloom": Family(**GPT, embedding_norm=True, tied=True),
    "falcon": Family(
        **GPT | {"qkv_bias": "bias", "out_bias": "bias", "mlp_bias": "bias"},
        mlp_width="ffn_hidden_size",
        tied=True,
        defaults=FALCON_SWITCHES,
    ),
    "gpt_oss": Family(
        sinks=True,
        moe=Moe(width="intermediate_size", router_bias=True, expert_bias=True),
        defaults={"attention_bias": True, "head_dim": 64, "num_key_value_heads": 8},
    ),
    "deepseek_v2": Family(
        mixer="mla",
        moe=Moe(shared_width="moe_intermediate_size", shared_count="n_shared_experts"),
        defaults={"n_shared_experts": 2},
    ),
    "deepseek_v3": Family(mixer="mla", moe=SHARED_EXPERTS, defaults=FIRST_THREE_DENSE),
    "deepseek_v32": Family(mixer="mla", moe=SHARED_EXPERTS, defaults=FIRST_THREE_DENSE),
    "glm_moe_dsa": Family(mixer="mla", moe=SHARED_EXPERTS, defaults=FIRST_THREE_DENSE),
    "llama4": Family(
        mlp_width="intermediate_size_mlp",
        moe=Moe(width="intermediate_size", shared_width="intermediate_size"),
        defaults=LLAMA4_SIZES,
    ),
    "minimax_m2": Family(qk_norm="whole", moe=Moe(width="intermediate_size", router_bias=True)),
    "minimax_m3": Family(
        mixer="block_sparse",
        qk_norm="head",
        mlp_width="dense_intermediate_size",
        moe=Moe(width="intermediate_size", shared_width="shared_intermediate_size", router_bias=True),
    ),
    "mimo_v2_flash": Family(
        mixer="sliding_or_full", out_bias=False, moe=Moe(router_bias=True), defaults={"first_k_dense_replace": 1}
    ),
    "nemotron_h": Family(
        layers="pattern",
        qkv_bias=False,
        out_bias=False,
        mlp_matrices=2,
        mlp_bias="mlp_bias",
        moe=Moe(shared_width="moe_shared_expert_intermediate_size", router_bias=True),
        defaults={"head_dim": 128, "expand": 2, "conv_kernel": 4, "use_conv_bias": True},
    ),
    "granitemoehybrid": Family(
        state_mixer="mamba2",
        mlp_width="shared_intermediate_size",
        moe=Moe(width="intermediate_size", shared_width="shared_intermediate_size"),
        defaults={"mamba_expand": 2, "mamba_d_conv": 4, "mamba_d_head": "auto", "mamba_conv_bias": True},
    ),
    "jamba": Family(
        state_mixer="mamba1",
        moe=WIDE_EXPERTS,
        defaults=JAMBA_PERIODS | {"mamba_expand": 2, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_conv_bias": True},
    ),
    "falcon_mamba": Family(
        state_mixer="mamba1",
        layers="state",
        tied=True,
        defaults={"expand": 2, "conv_kernel": 4, "state_size": 16, "use_conv_bias": True},
    ),
    "lfm2": Family(
        state_mixer="short_conv", qkv_bias=False, out_bias=False, qk_norm="head", tied=True, defaults=LFM2_SWITCHES
    ),
    "lfm2_moe": Family(
        state_mixer="short_conv",
        qkv_bias=False,
        out_bias=False,
        qk_norm="head",
        tied=True,
        moe=Moe(router_bias="use_expert_bias"),
        defaults={"use_expert_bias": True, "num_dense_layers": 2},
    ),
}

SAME_DECODER = {
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_omni": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_omni_moe": "qwen3_moe",
}
"""Model types whose text model is another's, tensor for tensor."""


def count_parameters(config: dict, outer: dict | None = None) -> Parameters | None:
    """Count a text model's parameters; None where the architecture's formula is not known.

    `config` is the text model's part of a config.json; `outer` the whole file of a multimodal model, which may hold
    `tie_word_embeddings` and `quantization_config` for it.

    >>> gpt2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_ctx": 1024}
    >>> count_parameters(gpt2 | {"n_positions": 1024}).total
    124439808
    >>> count_parameters({"model_type": "not yet invented"}) is None
    True
    """
    family = _family(config.get("model_type"))
    if family is None:
        return None
    stated = {**_inherited(outer or {}), **_stated(config)}
    try:
        counts = _count(family, {"tie_word_embeddings": family.tied, **family.defaults, **stated})
    except _Unknown:
        return None
    size, exact = weight_bytes(counts, stated.get("quantization_config"))
    experts = counts["experts"] + counts["expert_biases"]
    kept = counts.total() - counts["linear"] - counts["experts"]
    inputs = counts["input_embedding"]
    return Parameters(counts.total(), inputs + counts["head"], inputs, experts, kept, size, exact)


# Blocks: hidden size, heads and widths in elements; every term is one tensor of the modelling code.


def attention_block(
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int,
    qkv_bias: bool = False,
    out_bias: bool = False,
    norm: int = 0,
    query_gate: bool = False,
    sinks: bool = False,
) -> Counts:
    """Softmax attention. `norm` is the elements of the query and key norms; a query gate is as wide as the queries, and
    a sink is one logit a head."""
    query = heads * head_dim * (1 + query_gate)
    qkv = query + kv_heads * (head_dim + value_dim)
    output = heads * value_dim
    return Counter(
        linear=hidden * qkv + output * hidden,
        other=qkv * qkv_bias + hidden * out_bias + norm + heads * sinks,
    )


def mla_block(
    *, hidden: int, heads: int, q_rank: int, kv_rank: int, nope: int, rope: int, value_dim: int, bias: bool
) -> Counts:
    """Multi-head latent attention; `q_rank` is 0 where queries are not compressed.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """
    query_dim = heads * (nope + rope)
    query = hidden * q_rank + q_rank * query_dim if q_rank else hidden * query_dim
    # The rotary part of the key skips the latent, so the down-projection is kv_rank + rope wide.
    key_value = hidden * (kv_rank + rope) + kv_rank * heads * (nope + value_dim)
    norms = q_rank + kv_rank
    biases = bias * (q_rank + kv_rank + rope + hidden)
    return Counter(linear=query + key_value + heads * value_dim * hidden, other=norms + biases)


def indexer_block(*, hidden: int, q_rank: int, heads: int, head_dim: int) -> Counts:
    """Lightning indexer of sparse attention: its queries, one key with a LayerNorm, and a weight a head.

    Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1.
    """
    linear = q_rank * heads * head_dim + hidden * head_dim + hidden * heads
    return Counter(linear=linear, other=2 * head_dim)


def delta_net_block(
    *, hidden: int, key_dim: int, value_dim: int, value_heads: int, head_dim: int, kernel: int
) -> Counts:
    """Gated DeltaNet: queries and keys of `key_dim`, values and their gate of `value_dim`, two gates a value head.

    Source: arXiv:2412.06464, section 3.4; transformers, Qwen3NextGatedDeltaNet.
    """
    projections = hidden * (2 * key_dim + 2 * value_dim + 2 * value_heads) + value_dim * hidden
    convolution = (2 * key_dim + value_dim) * kernel
    # A decay and a time-step bias a head, and one norm shared by the heads.
    return Counter(linear=projections, other=convolution + 2 * value_heads + head_dim)


def mamba2_block(
    *, hidden: int, heads: int, head_dim: int, groups: int, state: int, kernel: int, conv_bias: bool, bias: bool
) -> Counts:
    """Mamba-2: the convolution covers the inner state and the B and C of every group.

    Source: arXiv:2405.21060, section 8.
    """
    inner = heads * head_dim
    convolved = inner + 2 * groups * state
    projected = inner + convolved + heads
    # A, D and the time-step bias of every head, and the gated norm.
    small = convolved * (kernel + conv_bias) + 3 * heads + inner
    return Counter(linear=hidden * projected + inner * hidden, other=small + bias * (projected + hidden))


def mamba1_block(
    *, hidden: int, inner: int, state: int, rank: int, kernel: int, conv_bias: bool, bias: bool, norms: bool
) -> Counts:
    """Mamba; `norms` are Jamba's, over the time step, B and C.

    Source: arXiv:2312.00752, section 3.4; Jamba, arXiv:2403.19887, section 6.4.
    """
    linear = hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    # The time step's bias, A of every channel and state, and D.
    small = inner * (kernel + conv_bias) + inner + inner * state + inner
    return Counter(linear=linear, other=small + norms * (rank + 2 * state) + bias * (2 * inner + hidden))


def short_conv_block(*, hidden: int, kernel: int, bias: bool) -> Counts:
    """Gated short convolution (LFM2): three inputs of `hidden`, one depthwise convolution, one output."""
    return Counter(linear=4 * hidden * hidden, other=hidden * kernel + bias * 5 * hidden)


def mlp_block(*, hidden: int, width: int, matrices: int, bias: bool = False) -> Counts:
    """Feed-forward network of two matrices, or three where it is gated."""
    return Counter(linear=matrices * hidden * width, other=bias * ((matrices - 1) * width + hidden))


def moe_block(
    *, hidden: int, experts: int, width: int, matrices: int, inner: int, router_bias: bool, expert_bias: bool
) -> Counts:
    """Routed experts and their router. Experts read `inner` elements, fewer than `hidden` where tokens are projected to
    a latent first."""
    latent = 2 * hidden * inner if inner != hidden else 0
    return Counter(
        linear=latent,
        experts=experts * matrices * inner * width,
        expert_biases=expert_bias * experts * ((matrices - 1) * width + inner),
        other=experts * (hidden + router_bias),
    )


# From config fields to blocks.


def _count(family: Family, config: Config) -> Counts:
    """Embedding, layers and head of a model."""
    vocab, hidden = _whole(config, "vocab_size"), _hidden(config)
    tied = _on(config, "tie_embedding" if "tie_embedding" in config else "tie_word_embeddings")
    counts = Counter(head=vocab * hidden, input_embedding=0 if tied else vocab * hidden)
    counts["other"] += hidden * family.norm_vectors * (1 + family.embedding_norm)
    counts["other"] += vocab * _on(config, family.head_bias)
    if family.extra_positions is not None:
        positions = _whole(config, "n_positions", "max_position_embeddings")
        counts["other"] += hidden * (positions + family.extra_positions)
    for layer in LAYERS[family.layers](family, config):
        counts += layer
    return counts


def _paired_layers(family: Family, config: Config):
    """A mixer and a feed-forward network in every layer."""
    norms = Counter(other=_norms(config, family) * family.norm_vectors * _hidden(config))
    for layer in range(_whole(config, "num_hidden_layers", "n_layer", limit=MAX_LAYERS)):
        mixer = MIXERS[family.mixer if _is_attention(family, config, layer) else family.state_mixer]
        yield mixer(family, config, layer) + _feed_forward(family, config, layer) + norms


def _state_layers(family: Family, config: Config):
    """A state-space mixer alone in every layer."""
    for layer in range(_whole(config, "num_hidden_layers", "n_layer", limit=MAX_LAYERS)):
        yield MIXERS[family.state_mixer](family, config, layer) + Counter(other=_hidden(config))


def _pattern_layers(family: Family, config: Config):
    """Nemotron-H: one block in every layer, as a list of names or a pattern of letters says."""
    name = "layers_block_type" if "layers_block_type" in config else "hybrid_override_pattern"
    for layer in range(len(_items(config, name))):
        block = BLOCKS.get(_item(config, name, layer))
        if block is None:
            raise _Unknown(name)
        yield block(family, config, layer) + Counter(other=_hidden(config))


def _searched_layers(family: Family, config: Config):
    """Layers found by architecture search: attention and feed-forward network each of its own size, or left out with
    its norm."""
    hidden, heads = _hidden(config), _heads(config)
    norm = Counter(other=hidden)
    for block in _items(config, "block_configs"):
        mixer, mlp = _part(block, "attention"), _part(block, "ffn")
        if mixer.get("replace_with_linear") or mlp.get("replace_with_linear"):
            raise _Unknown("replace_with_linear")
        counts = Counter()
        if not mixer.get("no_op"):
            shape = {**config, "num_key_value_heads": heads // _whole(mixer, "n_heads_in_group")}
            counts += _attention(family, shape, 0) + norm
        if not mlp.get("no_op"):
            # Two thirds of the multiple, as a gated network has three matrices, rounded up to 256.
            width = _rounded_up(int(2 * _real(mlp, "ffn_mult") * hidden / 3), 256)
            counts += mlp_block(hidden=hidden, width=width, matrices=3) + norm
        yield counts


def _gemma4_layers(family: Family, config: Config):
    """Gemma 4: full-attention layers have a head width of their own and may take their keys for values; experts, where
    there are any, run beside the dense network. Per-layer inputs and shared keys (E2B, E4B) are not counted here."""
    hidden = _hidden(config)
    if config["hidden_size_per_layer_input"] or config.get("num_kv_shared_layers"):
        raise _Unknown("hidden_size_per_layer_input")
    for layer in range(_whole(config, "num_hidden_layers", limit=MAX_LAYERS)):
        full = _item(config, "layer_types", layer) == "full_attention"
        shape = {**config, **_global_heads(config)} if full else config
        counts = _attention(family, shape, layer) + _dense(family, config, layer) + Counter(other=4 * hidden)
        if full and _on(config, "attention_k_eq_v"):
            counts["linear"] -= hidden * _kv_heads(shape) * _head_dim(shape)
        if _on(config, "enable_moe_block"):
            # Three more norms, a scale over the router's input and one for every expert.
            counts += _sparse(family, config, layer) + Counter(other=4 * hidden + _whole(config, *EXPERTS))
        yield counts


def _global_heads(config: Config) -> dict[str, int]:
    """Head width and key-value heads of Gemma 4's full-attention layers."""
    heads = {"head_dim": _whole(config, "global_head_dim", default=512)}
    if _on(config, "attention_k_eq_v") and "num_global_key_value_heads" in config:
        heads["num_key_value_heads"] = _whole(config, "num_global_key_value_heads")
    return heads


LAYERS: dict[str, Callable] = {
    "paired": _paired_layers,
    "state": _state_layers,
    "pattern": _pattern_layers,
    "searched": _searched_layers,
    "gemma4": _gemma4_layers,
}


def _norms(config: Config, family: Family) -> int:
    """Norms in a layer: Falcon's follow from how it lays attention and feed-forward network side by side."""
    if "new_decoder_architecture" not in config:
        return family.norms
    if config["new_decoder_architecture"]:
        return _whole(config, "num_ln_in_parallel_attn")
    return 1 if config["parallel_attn"] else 2


def _is_attention(family: Family, config: Config, layer: int) -> bool:
    """Whether a layer of a hybrid attends; every layer does where there is no other mixer."""
    if not family.state_mixer:
        return True
    if "layer_types" in config:
        kind = _item(config, "layer_types", layer)
        if kind not in ("full_attention", "attention", "linear_attention", "mamba", "conv"):
            raise _Unknown("layer_types")
        return kind in ("full_attention", "attention")
    if "full_attn_idxs" in config:
        return _listed(config, "full_attn_idxs", layer)
    if "full_attention_interval" in config:
        return (layer + 1) % _whole(config, "full_attention_interval") == 0
    return layer % _whole(config, "attn_layer_period") == _whole(config, "attn_layer_offset", least=0)


def _attention(family: Family, config: Config, layer: int) -> Counts:
    heads, kv_heads, head_dim = _heads(config), _kv_heads(config), _head_dim(config)
    norm = {"": 0, "head": 2 * head_dim, "whole": (heads + kv_heads) * head_dim}[family.qk_norm]
    return attention_block(
        hidden=_hidden(config),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=_whole(config, "v_head_dim", default=head_dim),
        qkv_bias=_on(config, family.qkv_bias),
        out_bias=_on(config, family.out_bias),
        norm=norm * family.qk_norm_vectors * _on(config, family.qk_norm_if),
        query_gate=family.query_gate,
        sinks=family.sinks,
    )


def _sliding_or_full(family: Family, config: Config, layer: int) -> Counts:
    """MiMo-V2: sliding layers have heads of their own, named swa_*, and a sink a head."""
    if not _item(config, "hybrid_layer_pattern", layer):
        return _attention(family, config, layer)
    names = ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim")
    sliding = {name: _whole(config, f"swa_{name}") for name in names}
    return _attention(family, {**config, **sliding}, layer) + Counter(other=sliding["num_attention_heads"])


def _block_sparse(family: Family, config: Config, layer: int) -> Counts:
    """MiniMax-M3: sparse layers choose key blocks with a small attention of their own, its queries and key normed."""
    counts, sparse = _attention(family, config, layer), _part(config, "sparse_attention_config")
    if _item(sparse, "sparse_attention_freq", layer):
        index_heads, index_dim = _whole(sparse, "sparse_num_index_heads"), _whole(sparse, "sparse_index_dim")
        counts += Counter(linear=_hidden(config) * (index_heads + 1) * index_dim, other=2 * index_dim)
    return counts


def _mla(family: Family, config: Config, layer: int) -> Counts:
    hidden = _hidden(config)
    # A query rank of null means none; a config.json says so or gives the rank, whatever the class would assume.
    q_rank = _whole(config, "q_lora_rank", default=0, least=0)
    counts = mla_block(
        hidden=hidden,
        heads=_heads(config),
        q_rank=q_rank,
        kv_rank=_whole(config, "kv_lora_rank"),
        nope=_whole(config, "qk_nope_head_dim"),
        rope=_whole(config, "qk_rope_head_dim"),
        value_dim=_whole(config, "v_head_dim"),
        bias=_on(config, "attention_bias"),
    )
    if _has_indexer(config, layer):
        index_heads, index_dim = _whole(config, "index_n_heads"), _whole(config, "index_head_dim")
        counts += indexer_block(hidden=hidden, q_rank=q_rank, heads=index_heads, head_dim=index_dim)
    return counts


def _has_indexer(config: Config, layer: int) -> bool:
    """Whether a layer selects tokens itself; GLM-5.2 lets most layers reuse the choice of an earlier one."""
    if "index_n_heads" not in config:
        return False
    if "indexer_types" in config:
        return _item(config, "indexer_types", layer) == "full"
    if "index_topk_pattern" in config:
        return _item(config, "index_topk_pattern", layer) in ("F", "full")
    every = _whole(config, "index_topk_freq", default=1)
    return max(layer - _whole(config, "index_skip_topk_offset", default=2, least=0) + 1, 0) % every == 0


def _delta_net(family: Family, config: Config, layer: int) -> Counts:
    head_dim, value_heads = _whole(config, "linear_value_head_dim"), _whole(config, "linear_num_value_heads")
    return delta_net_block(
        hidden=_hidden(config),
        key_dim=_whole(config, "linear_key_head_dim") * _whole(config, "linear_num_key_heads"),
        value_dim=head_dim * value_heads,
        value_heads=value_heads,
        head_dim=head_dim,
        kernel=_whole(config, "linear_conv_kernel_dim"),
    )


def _mamba2(family: Family, config: Config, layer: int) -> Counts:
    """Mamba-2 as Nemotron-H and Granite name its fields."""
    hidden, heads = _hidden(config), _whole(config, "mamba_num_heads", "mamba_n_heads")
    granite = "mamba_n_heads" in config
    even_share = max(_whole(config, "expand", "mamba_expand") * hidden // heads, 1)
    stated = {name: value for name, value in config.items() if value != "auto"}
    return mamba2_block(
        hidden=hidden,
        heads=heads,
        head_dim=_whole(stated, "mamba_head_dim", "mamba_d_head", default=even_share),
        groups=_whole(config, "n_groups", "mamba_n_groups"),
        state=_whole(config, "ssm_state_size", "mamba_d_state"),
        kernel=_whole(config, "conv_kernel", "mamba_d_conv"),
        conv_bias=_on(config, "mamba_conv_bias" if granite else "use_conv_bias"),
        bias=_on(config, "mamba_proj_bias" if granite else "use_bias"),
    )


def _mamba1(family: Family, config: Config, layer: int) -> Counts:
    """Mamba as Falcon-Mamba and Jamba name its fields."""
    hidden, jamba = _hidden(config), "mamba_d_state" in config
    rank = config.get("mamba_dt_rank", config.get("time_step_rank", "auto"))
    return mamba1_block(
        hidden=hidden,
        inner=_whole(config, "expand", "mamba_expand") * hidden,
        state=_whole(config, "state_size", "mamba_d_state"),
        rank=ceil_div(hidden, 16) if rank == "auto" else _whole(config, "mamba_dt_rank", "time_step_rank"),
        kernel=_whole(config, "conv_kernel", "mamba_d_conv"),
        conv_bias=_on(config, "mamba_conv_bias" if jamba else "use_conv_bias"),
        bias=_on(config, "mamba_proj_bias" if jamba else "use_bias"),
        norms=jamba,
    )


def _short_conv(family: Family, config: Config, layer: int) -> Counts:
    return short_conv_block(
        hidden=_hidden(config), kernel=_whole(config, "conv_L_cache"), bias=_on(config, "conv_bias")
    )


MIXERS: dict[str, Callable] = {
    "attention": _attention,
    "sliding_or_full": _sliding_or_full,
    "block_sparse": _block_sparse,
    "mla": _mla,
    "delta_net": _delta_net,
    "mamba2": _mamba2,
    "mamba1": _mamba1,
    "short_conv": _short_conv,
}


def _feed_forward(family: Family, config: Config, layer: int) -> Counts:
    sparse = family.moe is not None and _is_sparse(config, layer)
    return (_sparse if sparse else _dense)(family, config, layer)


def _is_sparse(config: Config, layer: int) -> bool:
    """Whether a layer routes to experts, by whichever field its family says it with; every layer does by default."""
    if _whole(config, *EXPERTS, least=0) < 2 or _listed(config, "mlp_only_layers", layer):
        return False
    if "mlp_layer_types" in config:
        return _item(config, "mlp_layer_types", layer) == "sparse"
    if isinstance(config.get("moe_layer_freq"), list):
        return bool(_item(config, "moe_layer_freq", layer))
    if "moe_layers" in config:
        return _listed(config, "moe_layers", layer)
    if "expert_layer_period" in config:
        return layer % _whole(config, "expert_layer_period") == _whole(config, "expert_layer_offset", least=0)
    step = _whole(config, "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", default=1)
    dense_first = _whole(config, "first_k_dense_replace", "num_dense_layers", default=0, least=0)
    return layer >= dense_first and (layer + 1) % step == 0


EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")


def _dense(family: Family, config: Config, layer: int) -> Counts:
    return mlp_block(
        hidden=_hidden(config),
        width=_mlp_width(family, config),
        matrices=family.mlp_matrices,
        bias=_on(config, family.mlp_bias),
    )


def _mlp_width(family: Family, config: Config) -> int:
    """Width of a dense network: four times the hidden size where the GPT-2 line leaves it out; LFM2 states it before
    the two thirds of a gated network are taken."""
    hidden, gated = _hidden(config), family.mlp_matrices == 3
    width = _whole(config, family.mlp_width) if gated else _whole(config, family.mlp_width, default=4 * hidden)
    if not config.get("block_auto_adjust_ff_dim"):
        return width
    narrowed = int(_real(config, "block_ffn_dim_multiplier") * int(2 * width / 3))
    return _rounded_up(narrowed, _whole(config, "block_multiple_of"))


def _sparse(family: Family, config: Config, layer: int) -> Counts:
    """Routed experts, with the expert every token passes through where there is one."""
    hidden, moe = _hidden(config), family.moe
    counts = moe_block(
        hidden=hidden,
        experts=_whole(config, *EXPERTS),
        width=_whole(config, moe.width),
        matrices=family.mlp_matrices,
        inner=_whole(config, "moe_latent_size", default=hidden),
        router_bias=_on(config, moe.router_bias),
        expert_bias=moe.expert_bias,
    )
    if moe.shared_width:
        count = _whole(config, moe.shared_count, least=0) if moe.shared_count else 1
        width = _whole(config, moe.shared_width) * count
        counts += mlp_block(hidden=hidden, width=width, matrices=family.mlp_matrices)
        counts["other"] += hidden * moe.shared_gate
    return counts


BLOCKS: dict[str, Callable] = {
    **dict.fromkeys(("M", "mamba", "linear_attention"), _mamba2),
    **dict.fromkeys(("*", "attention", "full_attention"), _attention),
    **dict.fromkeys(("-", "mlp"), _dense),
    **dict.fromkeys(("E", "moe"), _sparse),
}
"""What a layer of one block may be, by the letter or the name Nemotron-H has for it."""


def _hidden(config: Config) -> int:
    return _whole(config, "hidden_size", "n_embd")


def _heads(config: Config) -> int:
    return _whole(config, "num_attention_heads", "n_head")


def _kv_heads(config: Config) -> int:
    """Heads that keys and values have: as many as queries where nothing is said, one in multi-query attention."""
    heads = _heads(config)
    if "multi_query" in config and not config.get("new_decoder_architecture"):
        return 1 if config["multi_query"] else heads
    return _whole(config, "num_key_value_heads", "num_kv_heads", default=heads)


def _head_dim(config: Config) -> int:
    return _whole(config, "head_dim", default=_hidden(config) // _heads(config))


def _on(config: Config, switch: Switch) -> bool:
    return switch if isinstance(switch, bool) else bool(config.get(switch, False))


def _whole(config: Config, *names: str, default: int | None = None, least: int = 1, limit: int = MAX_FIELD) -> int:
    """The first of the named fields that is there, a whole number from `least` to `limit`; or else the default."""
    value = next((config[name] for name in names if name in config), default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= limit:
        raise _Unknown(names)
    return value


def _real(config: Config, name: str) -> float:
    value = config.get(name)
    if not isinstance(value, int | float) or not 0 < value <= MAX_FIELD:
        raise _Unknown(name)
    return value


def _rounded_up(value: int, multiple: int) -> int:
    return ceil_div(value, multiple) * multiple


def _items(config: Config, name: str) -> list | str:
    """A list, or a text of letters, with an entry for every layer."""
    entries = config.get(name)
    if not isinstance(entries, list | str) or len(entries) > MAX_LAYERS:
        raise _Unknown(name)
    return entries


def _item(config: Config, name: str, layer: int):
    """What such a list says of one layer."""
    entries = _items(config, name)
    if layer >= len(entries) or not isinstance(entries[layer], int | str):
        raise _Unknown(name)
    return entries[layer]


def _listed(config: Config, name: str, layer: int) -> bool:
    """Whether a list of layers, empty where it is missing, names one."""
    entries = config.get(name, [])
    if not isinstance(entries, list):
        raise _Unknown(name)
    return layer in entries


def _part(config: Any, name: str) -> Config:
    """A dictionary within another."""
    part = config.get(name) if isinstance(config, Mapping) else None
    if not isinstance(part, Mapping):
        raise _Unknown(name)
    return part


def _family(model_type: Any) -> Family | None:
    """The family of a model type; a multimodal model's text part has the type of its language model and _text."""
    if not isinstance(model_type, str):
        return None
    name = model_type.removesuffix("_text")
    return FAMILIES.get(SAME_DECODER.get(name, name))


def _stated(config: Config) -> dict:
    """The fields that say something: null is as good as left out."""
    return {name: value for name, value in config.items() if value is not None}


def _inherited(outer: Config) -> dict:
    """What a multimodal model says for its text part as well."""
    return _stated({name: outer.get(name) for name in ("tie_word_embeddings", "quantization_config")})
