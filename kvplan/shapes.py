"""The tensors a cache is made of, as a contiguous cache and as a paged one would lay them out on one device."""

from __future__ import annotations

from kvplan.breakdown import KIND_NAMES
from kvplan.cache import Store, heads_per_rank, staged, stores
from kvplan.engine import Layout, layout
from kvplan.report import Report
from kvplan.specs import ATTENTION_KINDS, LayerGroup
from kvplan.units import ceil_div, count


def shapes(report: Report) -> list[dict]:
    """One row for each kind of layer: [layers, 2, batch, heads, context, head dim] contiguous at the plan's batch and
    context, and [blocks, 2, block, heads, head dim] for each layer when paged. On a device of the fullest stage."""
    setting = report.setting
    shape = layout(setting)
    fullest = shape.stage_block_bytes.index(shape.bytes_per_block)
    rows = []
    for group, layers in staged(setting):
        for store in stores(group, setting) if layers[fullest] else ():
            block = _block_tokens(shape, store)
            ahead, behind = _width(group, store, setting.plan.tp)
            context = min(setting.plan.context, store.window or setting.plan.context)
            entries = ceil_div(ceil_div(context, setting.plan.dcp if store.kind == "growing" else 1), store.ratio)
            tokens, slots = ([], []) if store.kind == "state" else ([entries], [block // store.ratio])
            pair = [2] if ahead and isinstance(behind, int) else []
            rows.append(
                {
                    "Layers": _name(group, store),
                    "Contiguous": _written(layers[fullest], *pair, report.batching.batch, *ahead, *tokens, behind),
                    "Paged, each layer": _written(report.engine.num_blocks, *pair, *slots, *ahead, behind),
                }
            )
    return rows


def _width(group: LayerGroup, store: Store, tp: int) -> tuple[list[int], int | str]:
    """What one token has: heads and their width where they are stored as such, else its bytes."""
    if group.kind in ATTENTION_KINDS and store.part != "index":
        both = f"{group.head_dim} + {group.value_head_dim}"
        return [heads_per_rank(group.kv_heads, tp)], group.head_dim if group.head_dim == group.value_head_dim else both
    if store.part == "mla" and store.bits % group.head_dim == 0:
        return [], group.head_dim
    return [], f"{count(ceil_div(store.bits, 8))} bytes"


def _block_tokens(shape: Layout, store: Store) -> int:
    """The block of the table a store went into: that of its kind, or the one it shares. Of two tables with one window,
    what waits to be compressed is in the one with the smaller block."""
    like = [group for group in shape.groups if group.spec.window == store.window]
    own = [group.block_tokens for group in like if group.spec.part == store.part]
    if store.part.startswith("pending"):
        return min(group.block_tokens for group in like)
    return next(iter(own + [group.block_tokens for group in like]), shape.block_size)


def _name(group: LayerGroup, store: Store) -> str:
    if store.part.startswith("pending"):
        return f"not yet compressed, of the last {count(store.window)}"
    name = KIND_NAMES.get(store.part, store.part)
    if group.kind == "compressed" and store.ratio > 1:
        return f"{name}, 1 of {store.ratio} tokens"
    return f"{name} of {count(store.window)}" if store.window else name


def _written(*dimensions: int | str) -> str:
    return f"[{', '.join(map(_dimension, dimensions))}]"


def _dimension(size: int | str) -> str:
    return size if isinstance(size, str) else count(size)
