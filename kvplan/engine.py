"""What the engine books: how it turns KV memory into blocks, tokens and concurrency, and when it refuses to start.

`layout` is structure: exact integers that depend on the model, tp, pp, dtypes and block size, not on context or pool.
`capacity` is numbers: it takes a layout and broadcasts over arrays of contexts and pools.
Source: vLLM 0.32, KV cache planner (see `engine_facts`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.cache import group_token_bits, stage_layers
from kvplan.catalog import Setting
from kvplan.specs import ModelSpec
from kvplan.units import ceil_div


@dataclass(frozen=True)
class GroupLayout:
    """Layers that share a block table: `page_bytes` is one block of one layer on one device."""

    kind: str
    layers: int
    block_tokens: int
    page_bytes: int


@dataclass(frozen=True)
class Layout:
    """How a cache is cut: `stage_block_bytes` is what one block id costs on a device of each pipeline stage.
    `refused` is the sentence with which the engine would not start at all, else None."""

    block_size: int
    groups: tuple[GroupLayout, ...]
    stage_block_bytes: tuple[int, ...]
    refused: str | None = None

    @property
    def bytes_per_block(self) -> int:
        return max(self.stage_block_bytes)


@dataclass(frozen=True)
class Capacity:
    """The numbers the engine prints. Null block included, as printed; `fits` is its start-up check."""

    num_blocks: int
    blocks_per_request: int
    max_concurrency: float
    kv_cache_tokens: int
    fits: bool


@dataclass(frozen=True)
class StartCheck:
    """The start-up check of the first stage that fails, else of the fullest. `suggested_context` is the longest
    length that would start, None where it fits or the engine offers none."""

    fits: bool
    needed_bytes: int
    usable_bytes: int
    suggested_context: int | None


def not_computed(model: ModelSpec) -> str | None:
    """The sentence for a model whose layers are of a kind this version has no rule for, else None."""
    kinds = sorted({group.kind for group in model.groups} - {"full"})
    if kinds:
        return f"model: {model.name} has {' and '.join(kinds)} layers, which are not computed yet"
    if len(model.groups) > 1:
        return f"model: {model.name} has full-attention layers of several shapes, which are not computed yet"
    return None


def layout(setting: Setting) -> Layout:
    """The structure of the cache. For a model of one full-attention group: one page a layer, one table a request."""
    (group,) = setting.model.groups
    page_bytes = ceil_div(setting.block_size * group_token_bits(group, setting), 8)
    stages = stage_layers(group.layers, setting.plan.pp)
    return Layout(
        block_size=setting.block_size,
        groups=(GroupLayout(group.kind, group.layers, setting.block_size, page_bytes),),
        stage_block_bytes=tuple(layers * page_bytes for layers in stages),
        refused=_refusal(setting),
    )


def group_blocks(group: GroupLayout, tokens):
    """Blocks a request of `tokens` books in one group; `tokens` an integer or an integer array."""
    return ceil_div(tokens, group.block_tokens)


def blocks_per_request(layout: Layout, tokens):
    """Blocks a request of `tokens` books over all groups; `tokens` an integer or an integer array."""
    return sum(group_blocks(group, tokens) for group in layout.groups)


def capacity(layout: Layout, context, available_bytes) -> Capacity:
    """Blocks, tokens and concurrency for a context and the KV memory of one device; both may be integer arrays.

    num_blocks = available // bytes_per_block (the fullest stage decides);
    max_concurrency = num_blocks / blocks_per_request; kv_cache_tokens = floor(max_concurrency x context).
    """
    num_blocks = available_bytes // layout.bytes_per_block
    per_request = blocks_per_request(layout, context)
    max_concurrency = num_blocks / per_request
    return Capacity(
        num_blocks=num_blocks,
        blocks_per_request=per_request,
        max_concurrency=max_concurrency,
        kv_cache_tokens=_floor(max_concurrency * context),
        fits=num_blocks > per_request,
    )


def start_check(layout: Layout, context: int, available_bytes: int) -> StartCheck:
    """Whether one request of `context` starts: each stage needs its blocks beside the null block."""
    per_request = blocks_per_request(layout, context)
    failing = [cost for cost in layout.stage_block_bytes if cost * per_request > available_bytes - cost]
    cost = failing[0] if failing else layout.bytes_per_block
    return StartCheck(
        fits=not failing,
        needed_bytes=cost * per_request,
        usable_bytes=available_bytes - cost,
        suggested_context=_longest(layout, available_bytes // cost - 1, context) if failing else None,
    )


def _longest(layout: Layout, usable_blocks: int, context: int) -> int | None:
    """The longest length up to `context` whose blocks are at most `usable_blocks`, None where there is none."""
    low, high = 0, context
    while low < high:
        middle = (low + high + 1) // 2
        if blocks_per_request(layout, middle) <= usable_blocks:
            low = middle
        else:
            high = middle - 1
    return low or None


def _refusal(setting: Setting) -> str | None:
    """Why the engine would not start whatever the memory, as one sentence."""
    plan, model = setting.plan, setting.model
    (group,) = model.groups
    heads, kv_heads = model.num_attention_heads, group.kv_heads
    if heads is not None and heads % plan.tp:
        return f"tp: the {heads} attention heads of {model.name} must be divisible by tp, got {plan.tp}"
    if max(kv_heads, plan.tp) % min(kv_heads, plan.tp):
        return f"tp: must divide the {kv_heads} KV heads or be a multiple of them, got {plan.tp}"
    if plan.pp > group.layers:
        return f"pp: {group.layers} layers cannot fill the stages of pp {plan.pp}"
    return None


def _floor(value):
    return value.astype(np.int64) if isinstance(value, np.ndarray) else int(value)
