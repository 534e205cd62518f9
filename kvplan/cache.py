"""What a sequence holds: bytes per token, per request, per rank.

*Held* is what the tokens of a sequence occupy. What the engine sets aside for them (*booked*) is in `engine`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Literal

import numpy as np

from kvplan.arrays import maximum, minimum
from kvplan.catalog import Setting, Structural, Structure
from kvplan.engine_facts import PACKED_MLA_BYTES, SCALES_NOT_COUNTED, device_class
from kvplan.specs import ATTENTION_KINDS, GROWING_KINDS, STATE_KINDS, LayerGroup
from kvplan.units import DTYPES, Dtype, ceil_div

SCALED_WIDTH = 128
"""Elements of an fp8 indexer key that share one fp32 scale."""
ENTRY_BYTES = 584
"""One stored entry of DeepSeek-V4: 448 fp8 values, 64 bf16 values of RoPE, 7 scales and padding."""
INDEX_WINDOW, COMPRESSOR_WINDOW = 8, 128
"""Tokens DeepSeek-V4 keeps uncompressed while it compresses 4, and while it compresses 128."""


@dataclass(frozen=True)
class Store:
    """One thing a layer keeps for a sequence on one rank.

    `bits` for each `ratio` tokens (1 but for compressed entries), of all tokens (growing) or of the last `window`
    (sliding) or the current chunk of `window` (chunked); a state has its whole size in `bits`. `part` names it.
    """

    kind: Literal["growing", "sliding", "chunked", "state"]
    part: str
    bits: int
    window: int = 0
    ratio: int = 1


@dataclass(frozen=True)
class Held:
    """Bytes of cache that tokens occupy. Without `_total`: one device of the fullest pipeline stage; with it: the
    sum over every rank, copies of replicated heads included. Bytes per token are an integer when exact."""

    bytes_per_token: int | float
    bytes_per_token_total: int | float
    request_bytes: int
    request_bytes_total: int


def heads_per_rank(kv_heads: int, tp: int) -> int:
    """KV heads on one tensor-parallel rank; beyond tp = kv_heads they are replicated and nothing more is saved."""
    return max(1, kv_heads // tp)


def stage_layers(layers: int, pp: int) -> list[int]:
    """Layers of each pipeline stage: an even share each, the remainder going one each to stages counted from the
    second to last backwards.

    >>> stage_layers(61, 2), stage_layers(62, 4)
    ([31, 30], [15, 16, 16, 15])
    """
    share, remainder = divmod(layers, pp)
    last_extra = pp - 1
    return [share + (last_extra - remainder <= stage < last_extra) for stage in range(pp)]


def token_bits(*, heads: int, head_dim: int, value_head_dim: int, k: Dtype, v: Dtype) -> int:
    """Bits that keys and values of one token take in one layer, with a scale for each head where the dtype has one."""
    elements = head_dim * k.bits + value_head_dim * v.bits
    return heads * (elements + 8 * (k.scale_bytes + v.scale_bytes))


def stores(group: LayerGroup, setting: Structural) -> tuple[Store, ...]:
    """What one layer of the group keeps on one rank."""
    if group.kind in ATTENTION_KINDS:
        return _attention_stores(group, setting)
    if group.kind == "mla":
        return _mla_stores(group, setting)
    if group.kind == "compressed":
        return _compressed_stores(group)
    if group.kind in STATE_KINDS:
        return (Store("state", group.kind, 8 * state_bytes(group, setting)),)
    return ()


def state_bytes(group: LayerGroup, setting: Structural) -> int:
    """Bytes of one layer's state on one rank: rows of the convolution, and the recurrent state.

    The convolution keeps a row more for each speculative token, but for Mamba-1.
    """
    state, tp = group.state, setting.plan.tp
    rows = state.conv_kernel - 1 + (0 if group.kind == "mamba1" else setting.speculative_tokens)
    channels = state.conv_channels // tp + state.replicated_channels
    recurrent = setting.plan.mamba_ssm_cache_dtype or state.recurrent_dtype or setting.model_cache_dtype
    width = DTYPES[setting.model_cache_dtype].bits // 8
    return rows * channels * width + state.recurrent_elements // tp * DTYPES[recurrent].bits // 8


def draft_group(setting: Structural) -> LayerGroup | None:
    """The layers a speculative method adds to the cache, on the last pipeline stage; None where it adds none, or where
    it is not known what.

    EAGLE-3 brings one layer of full attention of the target's shape; multi-token prediction the checkpoint's own
    layers, of the target's growing kind (of its windowed one in MiMo-V2).
    """
    method, groups = setting.plan.spec_method, setting.model.groups
    growing = [group for group in groups if group.kind in GROWING_KINDS]
    sliding = [group for group in groups if group.kind == "sliding"]
    if method == "eagle3" and growing:
        return growing[0].model_copy(update={"layers": 1})
    if method == "eagle3" and sliding:
        return sliding[0].model_copy(update={"layers": 1, "kind": "full", "window": None})
    if method != "mtp" or not setting.model.mtp_layers:
        return None
    indexed = [group for group in growing if group.index_dim]
    kind = sliding if setting.model.model_type == "mimo_v2_flash" else indexed or growing
    return kind[0].model_copy(update={"layers": setting.model.mtp_layers}) if kind else None


def staged(setting: Structural) -> list[tuple[LayerGroup, tuple[int, ...]]]:
    """Every kind of layer with its number on each pipeline stage, in order of appearance, draft layers last."""
    found = list(_distinct(setting.model.groups, setting.plan.pp))
    draft = draft_group(setting)
    if draft is not None:
        found.append((draft, (0,) * (setting.plan.pp - 1) + (draft.layers,)))
    return found


@lru_cache(maxsize=256)
def stored(structure: Structure) -> tuple[tuple[Store, tuple[int, ...]], ...]:
    """Everything that layers keep, each with the number of its layers on each pipeline stage, draft layers last."""
    return tuple((store, layers) for group, layers in staged(structure) for store in stores(group, structure))


def held(setting: Setting) -> Held:
    """What one request of the plan's context holds, its shared prefix and speculative slots included."""
    per_token, per_token_total = _token_bytes(setting.structure)
    request = request_bits_by_stage(setting, setting.plan.context + setting.plan.spec_tokens)
    return Held(
        bytes_per_token=per_token,
        bytes_per_token_total=per_token_total,
        request_bytes=ceil_div(reduce(maximum, request), 8),
        request_bytes_total=ceil_div(sum(request) * setting.plan.tp, 8),
    )


def request_bits_by_stage(setting: Setting, tokens) -> list:
    """Bits that `tokens` of one sequence occupy on a device of each pipeline stage; an integer or an integer array."""
    dcp = setting.plan.dcp
    bits = [0] * setting.plan.pp
    for store, layers in stored(setting.structure):
        each = held_bits(store, ceil_div(tokens, dcp) if store.kind == "growing" else tokens)
        bits = [total + count * each for total, count in zip(bits, layers, strict=True)]
    return bits


def held_bytes(setting: Setting, tokens: np.ndarray) -> np.ndarray:
    """Bytes that one sequence of so many tokens occupies on a device of the fullest stage; integer arrays."""
    bits = np.broadcast_arrays(tokens, *request_bits_by_stage(setting, tokens))[1:]
    return ceil_div(np.max(bits, axis=0), 8)


@lru_cache(maxsize=256)
def _token_bytes(structure: Structure) -> tuple[int | float, int | float]:
    """Bytes that each token adds for ever: on a device of the fullest stage, and over all ranks."""
    bits = [Fraction(0)] * structure.plan.pp
    for store, layers in stored(structure):
        if grows(store, structure):
            each = Fraction(store.bits, store.ratio)
            bits = [total + count * each for total, count in zip(bits, layers, strict=True)]
    return _number(max(bits) / 8), _number(sum(bits) * structure.plan.tp / 8)


def held_bits(store: Store, tokens):
    """Bits that `tokens` of one sequence occupy in one layer; an integer or an integer array."""
    if store.kind == "state":
        return store.bits
    if store.kind == "growing":
        return tokens // store.ratio * store.bits
    return minimum(tokens, store.window) * store.bits


def batch_tokens_held(*, sequences: int, tokens: int, shared_prefix_tokens: int = 0, block_size: int = 1) -> int:
    """Tokens that `sequences` of `tokens` each hold when they share a prefix.

    Whole blocks of the prefix are stored once; the block it fills only in part is copied on write, for each sequence.
    The last token of a request is always its own.

    >>> batch_tokens_held(sequences=1000, tokens=2048, shared_prefix_tokens=1000, block_size=16)
    1056992
    """
    shared = shared_blocks(shared_prefix_tokens, tokens, block_size) * block_size
    return shared + sequences * (tokens - shared)


def shared_blocks(shared_prefix_tokens: int, context, block_size: int):
    """Whole blocks of a common prefix that a request of `context` tokens finds already stored.

    Both may be integer arrays. A request needs at least one token of its own.
    """
    return minimum(shared_prefix_tokens, context - 1) // block_size


def _attention_stores(group: LayerGroup, setting: Structural) -> tuple[Store, ...]:
    k, v = DTYPES[setting.kv_dtype], DTYPES[setting.v_dtype]
    if setting.model.model_type in SCALES_NOT_COUNTED:
        k, v = replace(k, scale_bytes=0), replace(v, scale_bytes=0)
    bits = token_bits(
        heads=heads_per_rank(group.kv_heads, setting.plan.tp),
        head_dim=group.head_dim,
        value_head_dim=group.value_head_dim,
        k=k,
        v=v,
    )
    kind = "growing" if group.kind == "full" else group.kind
    keys_and_values = Store(kind, group.kind, bits, window=group.window or 0)
    if not group.index_dim:
        return (keys_and_values,)
    # A sparse layer's index key stays in the model's width whatever the cache's dtype.
    return keys_and_values, Store("growing", "index", group.index_dim * DTYPES[setting.model_cache_dtype].bits)


def _mla_stores(group: LayerGroup, setting: Structural) -> tuple[Store, ...]:
    """The latent vector, the same on every rank. In a model with an indexer fp8 latents are packed below sm100, and
    layers that have one keep its key in fp8 beside."""
    bits = group.head_dim * DTYPES[setting.kv_dtype].bits
    indexed = any(other.index_dim for other in setting.model.groups)
    if indexed and setting.kv_dtype == "fp8" and device_class(setting.gpu.compute_capability) < 100:
        bits = 8 * PACKED_MLA_BYTES
    if not group.index_dim:
        return (Store("growing", "mla", bits),)
    return Store("growing", "mla", bits), Store("growing", "index", 8 * scaled_index_bytes(group.index_dim))


def scaled_index_bytes(index_dim: int) -> int:
    """An indexer key in fp8 with its fp32 scales."""
    return index_dim + 4 * index_dim // SCALED_WIDTH


def _compressed_stores(group: LayerGroup) -> tuple[Store, ...]:
    """DeepSeek-V4: a window of entries in every layer, compressed entries of all tokens, and what is not yet
    compressed, in fp32."""
    window = Store("sliding", "window", 8 * ENTRY_BYTES, window=group.window)
    entries = Store("growing", "entries", 8 * ENTRY_BYTES, ratio=max(1, group.compress_ratio))
    if group.compress_ratio == 4:
        index = Store("growing", "index", 8 * scaled_index_bytes(group.index_dim), ratio=4)
        pending = [
            Store("sliding", f"pending {width}", 8 * 4 * width * 4, window=INDEX_WINDOW)
            for width in (group.index_dim, group.head_dim)
        ]
        return window, index, entries, *pending
    if group.compress_ratio:
        return window, entries, Store("sliding", "pending", 8 * 2 * group.head_dim * 4, window=COMPRESSOR_WINDOW)
    return (window,)


def grows(store: Store, structure: Structure) -> bool:
    """Whether a store grows without limit; a window beyond the trained length bounds nothing."""
    return store.kind == "growing" or (
        store.kind == "sliding" and store.window >= structure.model.max_position_embeddings
    )


@lru_cache(maxsize=1024)
def _distinct(groups: tuple[LayerGroup, ...], pp: int) -> tuple[tuple[LayerGroup, tuple[int, ...]], ...]:
    """Equal runs together, with their layers on each stage; stages take consecutive layers, those without a cache
    counted too."""
    edges = np.cumsum([0, *stage_layers(sum(group.layers for group in groups), pp)]).tolist()
    counts: dict[LayerGroup, list[int]] = {}
    end = 0
    for group in groups:
        start, end = end, end + group.layers
        own = [max(0, min(end, last) - max(start, first)) for first, last in pairwise(edges)]
        one = group.model_copy(update={"layers": 1})
        counts[one] = [total + layers for total, layers in zip(counts.get(one, [0] * pp), own, strict=True)]
    return tuple((group, tuple(layers)) for group, layers in counts.items())


def _number(value) -> int | float:
    """An exact rational as an integer where it is one."""
    exact = Fraction(value)
    return exact.numerator if exact.denominator == 1 else float(exact)
