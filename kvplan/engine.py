"""What the engine books: how it turns KV memory into blocks, tokens and concurrency, and when it refuses to start.

`layout` is structure: exact integers that depend on the model, parallelism, dtypes, block size and engine settings, not
on context or pool. `capacity` is numbers: it takes a layout and broadcasts over arrays of contexts and pools.
Source: vLLM 0.32, KV cache planner (see `engine_facts`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from kvplan import compressed
from kvplan.arrays import choose, every, floor, maximum, minimum, or_none
from kvplan.cache import Store, state_bytes, stored, stores
from kvplan.catalog import Setting, Structural, Structure
from kvplan.engine_facts import BLOCK_SIZE, COMPRESSED_BLOCK, MLA_ALIGNMENT, attention_block_size, device_class
from kvplan.refusals import refusal
from kvplan.specs import STATE_KINDS
from kvplan.units import ceil_div

FULL_PARTS = frozenset({"full", "mla", "index"})
"""Parts that count as one kind where layers of unlike size may share a group."""


@dataclass(frozen=True)
class CacheSpec:
    """How one store of one layer is cut: `page_bytes` is its block on one device. Blocks a request books follow from
    `kind`; a state books `fixed_blocks` whatever the length."""

    kind: str
    part: str
    block_tokens: int
    page_bytes: int
    window: int = 0
    fixed_blocks: int = 0
    dcp: int = 1


@dataclass(frozen=True)
class GroupLayout:
    """Layers that share a block table: a block id costs `stage_bytes` on a device of each pipeline stage.
    `page_bytes` is one block of one layer on one device, the largest where they differ."""

    spec: CacheSpec
    layers: int
    stage_bytes: tuple[int, ...]
    page_bytes: int

    @property
    def kind(self) -> str:
        return self.spec.part

    @property
    def block_tokens(self) -> int:
        return self.spec.block_tokens


@dataclass(frozen=True)
class Layout:
    """How a cache is cut: `stage_block_bytes` is what one block id costs on a device of each pipeline stage.
    `refused` is the sentence with which the engine would not start at all, else None."""

    block_size: int
    groups: tuple[GroupLayout, ...]
    stage_block_bytes: tuple[int, ...]
    refused: str | None = None

    @cached_property
    def bytes_per_block(self) -> int:
        return max(self.stage_block_bytes)

    @cached_property
    def growing(self) -> tuple[GroupLayout, ...]:
        return tuple(group for group in self.groups if group.spec.kind == "growing")


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


def layout(setting: Setting) -> Layout:
    """The structure of the cache: every layer's page, the groups that share block tables, and what a block id costs."""
    return _layout(setting.structure)


@lru_cache(maxsize=256)
def _layout(structure: Structure) -> Layout:
    plan = structure.plan
    block_size = base_block_size(structure)
    if any(group.kind == "compressed" for group in structure.model.groups):
        groups = _packed_groups(structure, block_size)
    else:
        specs = _layer_specs(structure, block_size)
        if plan.disable_hybrid_kv_cache_manager:
            specs = _all_full(specs)
        groups = _groups(specs, plan.pp)
        block_size = min((spec.block_tokens for spec in specs if spec.kind != "state"), default=block_size)
    costs = [tuple(group.stage_bytes[stage] for group in groups) for stage in range(plan.pp)]
    return Layout(
        block_size=block_size,
        groups=groups,
        stage_block_bytes=tuple(max(cost, default=0) for cost in costs),
        refused=refusal(structure, block_size) or _empty_stage(costs),
    )


def base_block_size(setting: Structural) -> int:
    """Tokens in a block before a hybrid's attention is aligned with its states."""
    if setting.plan.block_size is not None:
        return setting.plan.block_size
    groups = setting.model.groups
    if any(group.kind == "compressed" for group in groups):
        return COMPRESSED_BLOCK
    return attention_block_size(
        model_type=setting.model.model_type or "",
        has_mla=any(group.kind == "mla" for group in groups),
        has_index=any(group.index_dim for group in groups),
        kv_dtype=setting.kv_dtype,
        device=device_class(setting.gpu.compute_capability),
    )


def in_flight_tokens(setting: Setting, context):
    """Tokens scheduled and not yet written, which windows must keep room for: the token budget of a step times the
    batches in flight. `context` may be an integer array."""
    batches = setting.plan.pp + (1 if setting.async_scheduling else 0)
    if setting.plan.max_num_batched_tokens is not None:
        return setting.plan.max_num_batched_tokens * batches
    return minimum(setting.default_batched_tokens, setting.scheduled_seqs * context) * batches


def group_blocks(group: GroupLayout, tokens, in_flight):
    """Blocks a request of `tokens` books in one group; `tokens` and `in_flight` integers or integer arrays."""
    spec = group.spec
    if spec.kind == "state":
        return spec.fixed_blocks
    if spec.kind == "growing":
        return ceil_div(ceil_div(tokens, spec.dcp), spec.block_tokens)
    if spec.kind == "sliding":
        return ceil_div(minimum(spec.window - 1 + in_flight, tokens), spec.block_tokens) + 1
    return ceil_div(minimum(spec.window + in_flight, tokens), spec.block_tokens)


def blocks_per_request(layout: Layout, tokens, in_flight):
    """Blocks a request of `tokens` books over all groups; integers or integer arrays."""
    return sum(group_blocks(group, tokens, in_flight) for group in layout.groups)


def capacity(layout: Layout, context, available_bytes, in_flight) -> Capacity:
    """Blocks, tokens and concurrency for a context, the KV memory of one device and the tokens in flight; each may be
    an integer array.

    num_blocks = available // bytes_per_block (the fullest stage decides);
    max_concurrency = num_blocks / blocks_per_request; kv_cache_tokens = floor(max_concurrency x context).
    """
    num_blocks = available_bytes // max(1, layout.bytes_per_block)
    per_request = blocks_per_request(layout, context, in_flight)
    max_concurrency = num_blocks / per_request
    return Capacity(
        num_blocks=num_blocks,
        blocks_per_request=per_request,
        max_concurrency=max_concurrency,
        kv_cache_tokens=floor(max_concurrency * context),
        fits=num_blocks > per_request,
    )


def older_token_line(layout: Layout, num_blocks: int) -> int:
    """The token line as engines before spring 2026 printed it: an equal share of the blocks for each group, times the
    smallest block. For one group it is num_blocks x block size; for hybrids it says little, but logs carry it."""
    smallest = min(group.block_tokens * group.spec.dcp for group in layout.groups)
    return num_blocks // len(layout.groups) * smallest


def start_check(layout: Layout, setting: Setting, context, available_bytes) -> StartCheck:
    """Whether one request of `context` starts: each stage needs its blocks beside the null block. Integers, or integer
    arrays, in which a `suggested_context` of 0 stands for none."""
    in_flight = in_flight_tokens(setting, context)
    per_request = blocks_per_request(layout, context, in_flight)
    cost = layout.bytes_per_block
    for stage_cost in reversed(dict.fromkeys(layout.stage_block_bytes)):
        cost = choose(stage_cost * per_request > available_bytes - stage_cost, stage_cost, cost)
    needed_bytes, usable_bytes = cost * per_request, available_bytes - cost
    fits, suggested = needed_bytes <= usable_bytes, None
    if not every(fits):
        usable_blocks = choose(fits, 0, available_bytes // cost - 1)
        suggested = _longest(layout, maximum(usable_blocks, 0), context, in_flight)
    return StartCheck(fits, needed_bytes, usable_bytes, suggested)


def starts_at(layout: Layout, setting: Setting, context, available_bytes):
    """Whether one request of `context` starts, as `start_check` has it; the fullest stage decides."""
    per_request = blocks_per_request(layout, context, in_flight_tokens(setting, context))
    return layout.bytes_per_block * (per_request + 1) <= available_bytes


def _longest(layout: Layout, usable_blocks, context, in_flight):
    """The longest length up to `context` whose blocks are at most `usable_blocks`, None (0 in arrays) where there is
    none. The tokens in flight stay those of `context`, as the engine has them fixed by then."""
    low, high = 0 * usable_blocks, choose(usable_blocks > 0, context, 0)
    while not every(low >= high):
        middle = (low + high + 1) // 2
        enough = blocks_per_request(layout, middle, in_flight) <= usable_blocks
        low, high = choose(enough, middle, low), choose(enough, high, middle - 1)
    return or_none(low)


def _layer_specs(setting: Structure, block_size: int) -> dict[CacheSpec, list[int]]:
    """How every store of every layer is cut -> the pipeline stage of each such layer, in order."""
    states = [group for group in setting.model.groups if group.kind in STATE_KINDS]
    page = 0
    if states and len(states) < len([group for group in setting.model.groups if group.kind != "none"]):
        block_size, page = _aligned(setting, block_size, max(state_bytes(group, setting) for group in states))
    specs: dict[CacheSpec, list[int]] = {}
    for store, layers in stored(setting):
        spec = _cut(store, setting, block_size, page)
        stages = [stage for stage, count in enumerate(layers) for _ in range(count)]
        specs.setdefault(spec, []).extend(stages)
    # Stages take consecutive layers, so in order of layers is in order of stages.
    return {spec: sorted(stages) for spec, stages in specs.items()}


def _aligned(setting: Structure, block_size: int, state_page: int) -> tuple[int, int]:
    """A hybrid's block size and page: so many tokens that a page of attention holds a state."""
    attention = [store for group in setting.model.groups for store in stores(group, setting) if store.kind != "state"]
    alignment = max(MLA_ALIGNMENT if attention[0].part == "mla" else BLOCK_SIZE, block_size)
    token_bytes = attention[0].bits / 8
    aligned = max(block_size, int(alignment * ceil_div(state_page, int(alignment * token_bytes))))
    return aligned, ceil_div(aligned * attention[0].bits, 8)


def _cut(store: Store, setting: Structure, block_size: int, hybrid_page: int) -> CacheSpec:
    """One store in blocks; a state takes a page of its own, or the attention's in a hybrid."""
    if store.kind == "state":
        # A tp that does not divide the state is refused, but has an answer here too.
        page = max(hybrid_page, ceil_div(store.bits, 8), 1)
        return CacheSpec("state", store.part, block_size, page, fixed_blocks=_state_blocks(setting, store.part))
    page = ceil_div(block_size * store.bits, 8)
    dcp = setting.plan.dcp if store.kind == "growing" else 1
    return CacheSpec(store.kind, store.part, block_size, page, window=store.window, dcp=dcp)


def _state_blocks(setting: Structure, part: str) -> int:
    """Blocks of a state: one, one more for each speculative token, and with prefix caching one to align and, for some
    kinds, one to check-point. A model of states alone has no prefix caching."""
    speculative = setting.speculative_tokens
    pure = all(group.kind in STATE_KINDS or group.kind == "none" for group in setting.model.groups)
    if pure or not setting.plan.enable_prefix_caching:
        return 1 + speculative
    checkpoint = part == "mamba2" or (part == "kda" and device_class(setting.gpu.compute_capability) >= 90)
    return 2 + speculative + checkpoint


def _all_full(specs: dict[CacheSpec, list[int]]) -> dict[CacheSpec, list[int]]:
    """Without the hybrid manager: windows stored as full attention, where the model has some."""
    if not any(spec.kind == "growing" for spec in specs):
        return specs
    found: dict[CacheSpec, list[int]] = {}
    for spec, stages in specs.items():
        windowed = spec.kind in ("sliding", "chunked")
        whole = replace(spec, kind="growing", part="full", window=0, dcp=1) if windowed else spec
        found.setdefault(whole, []).extend(stages)
    return found


def _groups(specs: dict[CacheSpec, list[int]], pp: int) -> tuple[GroupLayout, ...]:
    """Layers that share a table: all of them where they are of one kind and block, else parts of equal number dealt
    round-robin over pages made equal."""
    if _is_one_kind(list(specs)):
        return (_group(list(specs.items()), pp),)
    specs = _equal_pages(specs)
    numbers = [len(stages) for stages in specs.values()]
    fewest, most = min(numbers), max(numbers)
    height = most if most < 1.5 * fewest else fewest
    found = []
    for spec, stages in specs.items():
        parts = ceil_div(len(stages), height)
        found += [_group([(spec, stages[part::parts])], pp) for part in range(parts)]
    return tuple(found)


def _is_one_kind(specs: list[CacheSpec]) -> bool:
    first = specs[0]
    if len({spec.block_tokens for spec in specs}) > 1:
        return False
    if all(spec.part in FULL_PARTS and spec.kind == "growing" for spec in specs):
        return True
    return all(
        (spec.kind, spec.window, spec.fixed_blocks) == (first.kind, first.window, first.fixed_blocks) for spec in specs
    )


def _equal_pages(specs: dict[CacheSpec, list[int]]) -> dict[CacheSpec, list[int]]:
    """The largest page wins: a smaller one of attention takes more tokens where it divides it, else it is padded."""
    page = max(spec.page_bytes for spec in specs)
    found: dict[CacheSpec, list[int]] = {}
    for spec, stages in specs.items():
        times = page // spec.page_bytes if spec.kind != "state" and page % spec.page_bytes == 0 else 1
        equal = replace(spec, block_tokens=spec.block_tokens * times, page_bytes=page)
        found.setdefault(equal, []).extend(stages)
    return found


def _group(members: list[tuple[CacheSpec, list[int]]], pp: int) -> GroupLayout:
    counts = [(spec, Counter(stages)) for spec, stages in members]
    return GroupLayout(
        spec=members[0][0],
        layers=sum(len(stages) for _, stages in members),
        stage_bytes=tuple(sum(spec.page_bytes * count[stage] for spec, count in counts) for stage in range(pp)),
        page_bytes=max(spec.page_bytes for spec, _ in members),
    )


def _packed_groups(setting: Structure, block_size: int) -> tuple[GroupLayout, ...]:
    """DeepSeek-V4: unequal pages side by side in a block."""
    return tuple(
        GroupLayout(
            spec=CacheSpec(packed.kind, packed.part, packed.block_tokens, max(packed.pages), window=packed.window),
            layers=packed.layers,
            stage_bytes=packed.stage_bytes,
            page_bytes=max(packed.pages),
        )
        for packed in compressed.groups(setting, block_size)
    )


def _empty_stage(costs: list[tuple[int, ...]]) -> str | None:
    empty = [stage for stage, cost in enumerate(costs) if not any(cost)]
    return f"pp: stage {empty[0] + 1} of {len(costs)} would have no layer with a cache" if empty else None
