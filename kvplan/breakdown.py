"""Held and booked, explained: what each kind of layer costs a request, and why the engine books more than is held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvplan.arrays import choose
from kvplan.cache import Store, held_bits, stored
from kvplan.catalog import Setting
from kvplan.engine import GroupLayout, Layout, group_blocks, in_flight_tokens
from kvplan.specs import ATTENTION_KINDS, LayerGroup
from kvplan.units import KIB, MIB, binary, ceil_div, count

KIND_NAMES = {
    "full": "full attention",
    "sliding": "sliding window",
    "chunked": "chunked attention",
    "mla": "MLA",
    "index": "indexer keys",
    "mamba1": "Mamba-1 state",
    "mamba2": "Mamba-2 state",
    "gated_deltanet": "gated DeltaNet state",
    "kda": "KDA state",
    "short_conv": "short convolution",
    "compressed": "compressed entries",
    "window": "windows of entries",
}


SHORT_NAMES = {
    "mla": "MLA",
    "mamba1": "Mamba-1",
    "mamba2": "Mamba-2",
    "gated_deltanet": "gated DeltaNet",
    "kda": "KDA",
    "short_conv": "short convolution",
}


@dataclass(frozen=True)
class GroupCost:
    """What the layers of one kind cost a request of the plan's context on a device of the fullest stage.

    `layers` of the whole model share `tables` block tables of `block_tokens`; `page_bytes` is one block of one layer.
    A request books `blocks` of them, and every block id costs the same whatever table it is in. `reason` says in words
    why `bytes_booked` is more than `bytes_held`.
    """

    kind: str
    layers: int
    tables: int
    block_tokens: int
    page_bytes: int
    blocks: int
    bytes_held: int
    bytes_booked: int
    grows: bool
    reason: str


@dataclass(frozen=True)
class RequestCost:
    """A request's booking as a fixed part and a slope: `fixed_bytes` whatever its length at this context (windows,
    states), `bytes_per_token` for every token of it, both on a device of the fullest stage."""

    fixed_bytes: int
    bytes_per_token: float


def group_costs(setting: Setting, shape: Layout) -> tuple[GroupCost, ...]:
    """One row for each kind of layer, in the order in which the engine forms its groups."""
    context = setting.plan.context + setting.plan.spec_tokens
    in_flight = in_flight_tokens(setting, setting.plan.context)
    held = _held_by_part(setting, shape)
    rows = []
    for part in dict.fromkeys(group.spec.part for group in shape.groups):
        groups = [group for group in shape.groups if group.spec.part == part]
        blocks = sum(group_blocks(group, context, in_flight) for group in groups)
        rows.append(
            GroupCost(
                kind=part,
                layers=sum(group.layers for group in groups),
                tables=len(groups),
                block_tokens=groups[0].block_tokens,
                page_bytes=groups[0].page_bytes,
                blocks=blocks,
                bytes_held=held.get(part, 0),
                bytes_booked=blocks * shape.bytes_per_block,
                grows=groups[0].spec.kind == "growing",
                reason=_reason(groups, setting, shape, in_flight),
            )
        )
    return tuple(rows)


def request_cost(setting: Setting, shape: Layout) -> RequestCost:
    """The booking of one request as fixed part and slope. A window that its reserve does not yet fill grows as
    well. Arrays where numbers of the plan are."""
    context = setting.plan.context
    in_flight = in_flight_tokens(setting, context)
    blocks, slope = 0, 0.0
    for group in shape.groups:
        spec = group.spec
        each, fixed = shape.bytes_per_block / (spec.block_tokens * spec.dcp), group_blocks(group, context, in_flight)
        if spec.kind == "growing":
            slope = slope + each
        elif spec.kind == "state":
            blocks = blocks + fixed
        else:
            filling = spec.window + in_flight > context
            slope = slope + choose(filling, each, 0.0)
            blocks = blocks + choose(filling, int(spec.kind == "sliding"), fixed)
    return RequestCost(fixed_bytes=blocks * shape.bytes_per_block, bytes_per_token=slope)


def _held_by_part(setting: Setting, shape: Layout) -> dict[str, int]:
    """Bytes held on the fullest stage by the layers of each group's kind."""
    fullest = shape.stage_block_bytes.index(shape.bytes_per_block)
    parts = {group.spec.part for group in shape.groups}
    context = setting.plan.context + setting.plan.spec_tokens
    bits: dict[str, int] = {}
    for store, layers in stored(setting.structure):
        tokens = ceil_div(context, setting.plan.dcp) if store.kind == "growing" else context
        part = _part_of(store, parts)
        bits[part] = bits.get(part, 0) + layers[fullest] * held_bits(store, tokens)
    return {part: ceil_div(total, 8) for part, total in bits.items()}


def _part_of(store: Store, parts: set[str]) -> str:
    """The kind of group a store went into: its own, or the one it shares."""
    if store.part in parts:
        return store.part
    if "compressed" in parts:
        return "compressed" if store.kind == "growing" else "window"
    return next(iter(parts))


def _reason(groups: list[GroupLayout], setting: Setting, shape: Layout, in_flight: int) -> str:
    spec = groups[0].spec
    words = {
        "growing": lambda: f"Rounded up to whole blocks of {count(spec.block_tokens)} tokens",
        "sliding": lambda: (
            f"The window of {count(spec.window)} tokens, with room for {count(in_flight)} tokens in flight "
            "(at most the context), and one block more"
        ),
        "chunked": lambda: (
            f"The chunk of {count(spec.window)} tokens, with room for {count(in_flight)} tokens in flight "
            "(at most the context)"
        ),
        "state": lambda: _state_reason(groups[0], setting),
    }[spec.kind]()
    return words + _padding(groups, shape)


def _state_reason(group: GroupLayout, setting: Setting) -> str:
    parts = ["one block for the state"]
    if setting.speculative_tokens:
        parts.append(f"{setting.speculative_tokens} for speculative tokens")
    spare = group.spec.fixed_blocks - 1 - setting.speculative_tokens
    if spare >= 1:
        parts.append("one to align with prefix caching")
    if spare >= 2:
        parts.append("one check-point")
    return f"A state of fixed size, whatever the length: {', '.join(parts)}"


def unused_share(groups: list[GroupLayout], shape: Layout) -> float:
    """Of a block, what these groups leave unused: every block id costs as much as the largest group's."""
    own = sum(max(group.stage_bytes) for group in groups) / len(groups)
    return 1 - own / shape.bytes_per_block


def _padding(groups: list[GroupLayout], shape: Layout) -> str:
    """What a block of this group leaves unused, as every block id costs as much as the largest group's."""
    unused = unused_share(groups, shape)
    return f"; a block costs as much as the largest group's, {unused:.0%} of it unused" if unused > 0.005 else ""


def layer_summary(groups: Iterable[LayerGroup]) -> str:
    """The layers of a model in a few words.

    >>> layer_summary([LayerGroup(kind="full", layers=32, kv_heads=8, head_dim=128, value_head_dim=128)])
    '32 layers, 8 KV heads of 128'
    """
    kinds: dict[tuple[str, int], int] = {}
    shapes = []
    for group in groups:
        if group.kind != "none":
            kinds[group.kind, group.window or 0] = kinds.get((group.kind, group.window or 0), 0) + group.layers
        if group.kv_heads > 1 or group.kind in ATTENTION_KINDS:
            shapes.append(f"{group.kv_heads} KV head{'s' if group.kv_heads > 1 else ''} of {group.head_dim}")
    if list(kinds) == [("full", 0)]:
        layers = f"{kinds['full', 0]} layers"
    else:
        layers = " + ".join(
            f"{number} {SHORT_NAMES.get(kind, kind)}{f' of {count(window)}' if window else ''}"
            for (kind, window), number in kinds.items()
        )
    return ", ".join([layers, *dict.fromkeys(shapes)])


def table(costs: Iterable[GroupCost]) -> list[dict]:
    """The same as rows for a page: sizes on a device of the fullest stage."""
    return [
        {
            "Layers": KIND_NAMES[cost.kind],
            "Number": cost.layers,
            "Tables": cost.tables,
            "Block, tokens": cost.block_tokens,
            "Page, KiB": cost.page_bytes / KIB,
            "Blocks/request": cost.blocks,
            "Held, MiB": cost.bytes_held / MIB,
            "Booked, MiB": cost.bytes_booked / MIB,
        }
        for cost in costs
    ]


def cost_sentence(cost: RequestCost) -> str:
    """The booking of one request as fixed part and slope, in words."""
    slope = f"{binary(cost.bytes_per_token)} for every token"
    if not cost.fixed_bytes:
        return f"At this context a request books {slope}."
    fixed = f"{binary(cost.fixed_bytes)} whatever its length"
    return f"At this context a request books {fixed}{f' and {slope}' if cost.bytes_per_token else ''}."


def remarks(setting: Setting, shape: Layout, tokens: int, longer_tokens: int, older_tokens: int) -> tuple[str, ...]:
    """Why the printed token line of a model with several kinds of layer is no property of the pool alone: `tokens` it
    prints at the plan's context, `longer_tokens` at twice it, and `older_tokens` engines before spring 2026."""
    if all(group.spec.kind == "growing" for group in shape.groups):
        return ()
    context = setting.plan.context
    found = [
        "The token line is concurrency × context. Part of a request's cost does not grow with its length, so the same "
        f"pool prints {count(tokens)} tokens at a context of {count(context)}, and {count(longer_tokens)} at twice it. "
        f"Engines before spring 2026 printed {count(older_tokens)}, an equal share of the blocks for each table."
    ]
    heights = {group.layers for group in shape.groups}
    if len(heights) > 1:
        found.append(
            "Layers are dealt into tables of like height, and a block costs as much as the tallest: a model with more "
            "layers that fill its tables better can fit more requests."
        )
    return tuple(found)


def state_remark(setting: Setting, shape: Layout, num_blocks: int) -> str | None:
    """What stops an engine whose pool has fewer blocks than sequences may run, where each needs one for its state.

    Source: the start-up check of vLLM, vllm-project/vllm#38270.
    """
    if setting.max_num_seqs <= num_blocks or all(group.spec.kind != "state" for group in shape.groups):
        return None
    return (
        f"max_num_seqs is {count(setting.max_num_seqs)} and the pool has {count(num_blocks)} blocks. Every running "
        "sequence needs a block for its state, so recent versions of vLLM refuse to start with more sequences than "
        "blocks: set max_num_seqs lower."
    )
