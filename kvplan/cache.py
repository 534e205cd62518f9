"""What a sequence holds: bytes per token, per request, per rank.

*Held* is what the tokens of a sequence occupy. What the engine sets aside for them (*booked*) is in `engine`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.catalog import Setting
from kvplan.specs import LayerGroup
from kvplan.units import DTYPES, Dtype, ceil_div


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


def group_token_bits(group: LayerGroup, setting: Setting) -> int:
    """Bits that one token takes in one layer of the group on one rank."""
    return token_bits(
        heads=heads_per_rank(group.kv_heads, setting.plan.tp),
        head_dim=group.head_dim,
        value_head_dim=group.value_head_dim,
        k=DTYPES[setting.kv_dtype],
        v=DTYPES[setting.v_dtype],
    )


def held(setting: Setting) -> Held:
    """What one request of the plan's context holds, its shared prefix and speculative slots included."""
    plan = setting.plan
    tokens = plan.context + plan.spec_tokens
    rank_bits = total_bits = 0
    for group in setting.model.groups:
        bits = group_token_bits(group, setting)
        rank_bits += bits * max(stage_layers(group.layers, plan.pp))
        total_bits += bits * group.layers * plan.tp
    return Held(
        bytes_per_token=_bytes(rank_bits),
        bytes_per_token_total=_bytes(total_bits),
        request_bytes=ceil_div(tokens * rank_bits, 8),
        request_bytes_total=ceil_div(tokens * total_bits, 8),
    )


def batch_tokens_held(*, sequences: int, tokens: int, shared_prefix_tokens: int = 0, block_size: int = 1) -> int:
    """Tokens that `sequences` of `tokens` each hold when they share a prefix.

    Whole blocks of the prefix are stored once; the block it fills only in part is copied on write, for each sequence.
    The last token of a request is always its own.

    >>> batch_tokens_held(sequences=1000, tokens=2048, shared_prefix_tokens=1000, block_size=16)
    1056992
    """
    shared = int(shared_blocks(shared_prefix_tokens, tokens, block_size)) * block_size
    return shared + sequences * (tokens - shared)


def shared_blocks(shared_prefix_tokens: int, context, block_size: int):
    """Whole blocks of a common prefix that a request of `context` tokens finds already stored.

    `context` may be an integer array. A request needs at least one token of its own.
    """
    return np.minimum(shared_prefix_tokens, context - 1) // block_size


def _bytes(bits: int) -> int | float:
    return bits // 8 if bits % 8 == 0 else bits / 8
