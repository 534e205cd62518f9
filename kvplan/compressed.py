"""DeepSeek-V4's blocks: unequal pages packed side by side instead of padded.

Every layer keeps a window of entries; layers of compression ratio 4 keep entries, indexer keys and what is not yet
compressed, those of ratio 128 entries and what is not yet compressed. Stores that are cut alike form a bucket, whose
layers are split so that the buckets have tables of like height.
Source: vLLM 0.32, block-outermost layout.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.cache import COMPRESSOR_WINDOW, INDEX_WINDOW, Store, stored
from kvplan.catalog import Structure
from kvplan.units import ceil_div

PAGE_ALIGNMENT = 576
WINDOW_BLOCK, INDEX_BLOCK, COMPRESSOR_BLOCK = 64, 4, 8


@dataclass(frozen=True)
class PackedGroup:
    """Layers that share a block table: `pages` are the sizes found in one block, `stage_bytes` their sum on a device
    of each pipeline stage."""

    kind: str
    part: str
    block_tokens: int
    window: int
    layers: int
    pages: tuple[int, ...]
    stage_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Bucket:
    """Stores of one block and window. `pages`: page size -> the pipeline stages of the layers that have such a page."""

    kind: str
    block_tokens: int
    window: int
    pages: dict[int, list[int]]

    @property
    def top(self) -> int:
        return max(len(stages) for stages in self.pages.values())

    @property
    def balanced(self) -> bool:
        return len({len(stages) for stages in self.pages.values()}) == 1


def groups(setting: Structure, block_size: int) -> list[PackedGroup]:
    """The groups of a model of compressed layers."""
    buckets = _buckets(setting, block_size)
    height = _height([bucket for bucket in buckets if bucket.balanced])
    found = []
    for bucket in buckets:
        parts = ceil_div(bucket.top, height) if bucket.balanced else 1
        found += [_packed(bucket, part, parts, setting.plan.pp) for part in range(parts)]
    return found


def _height(balanced: list[Bucket]) -> int:
    """The height of a table that wastes least: from the tallest bucket of several pages to the tallest of all, with
    the least padding, the taller of equals."""
    if not balanced:
        return 1
    least = max((bucket.top for bucket in balanced if len(bucket.pages) > 1), default=1)
    most = max(bucket.top for bucket in balanced)
    return min(range(least, most + 1), key=lambda height: (sum(-bucket.top % height for bucket in balanced), -height))


def _buckets(setting: Structure, block_size: int) -> list[Bucket]:
    found: dict[tuple[str, int, int], Bucket] = {}
    for store, layers in stored(setting):
        stages = [stage for stage, count in enumerate(layers) for _ in range(count)]
        tokens = _block_tokens(store, block_size)
        key = (store.kind, tokens, store.window)
        bucket = found.setdefault(key, Bucket(*key, pages={}))
        page = ceil_div(ceil_div(tokens, store.ratio) * store.bits // 8, PAGE_ALIGNMENT) * PAGE_ALIGNMENT
        bucket.pages.setdefault(page, []).extend(stages)
    return list(found.values())


def _block_tokens(store: Store, block_size: int) -> int:
    if store.kind == "growing":
        return block_size
    if store.part == "window":
        return WINDOW_BLOCK
    return {INDEX_WINDOW: INDEX_BLOCK, COMPRESSOR_WINDOW: COMPRESSOR_BLOCK}[store.window]


def _packed(bucket: Bucket, part: int, parts: int, pp: int) -> PackedGroup:
    """Every `parts`-th layer of a bucket, with all its pages."""
    members = {page: stages[part::parts] for page, stages in bucket.pages.items()}
    return PackedGroup(
        kind=bucket.kind,
        part="compressed" if bucket.kind == "growing" else "window",
        block_tokens=bucket.block_tokens,
        window=bucket.window,
        layers=max(len(stages) for stages in members.values()),
        pages=tuple(members),
        stage_bytes=tuple(sum(page * stages.count(stage) for page, stages in members.items()) for stage in range(pp)),
    )
