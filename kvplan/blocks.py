"""The block size of a plan from both sides: what a larger block wastes, and what a smaller one costs in tables.

Exact: waste, entries, hashes and what is found again. A model: that attention looks up each entry of a running
request's table once in each layer and step, which kernels that read several blocks at a time do less often.

Source: vLLM keeps a table of 4 bytes an entry for each of max_num_seqs sequences and each group of layers, of as many
entries as the longest context has blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvplan import breakdown, paging
from kvplan.engine import layout
from kvplan.lengths import clipped, resident_mean, totals
from kvplan.report import Report
from kvplan.units import MIB, binary, ceil_div, count, percent

ENTRY_BYTES = 4
SIZES = (8, 16, 32, 64, 128, 256, 544, 1024)
"""Block sizes of the table; 544 is that of a hybrid with a large state."""
PREFIX = 1_000


@dataclass(frozen=True, eq=False)
class BlockCosts:
    """What blocks of each of some sizes waste and cost, arrays of one entry a size, means over the workload.

    `_waste_tokens` of a sequence with its prompt, at completion, and over its steps; `waste_share` of what is booked at
    completion. `table_entries` of a finished sequence, `looked_up_per_step` of all that run on demand, in each layer,
    `hashed_blocks` of a prompt, `reused_prefix_tokens` of a prefix of PREFIX tokens, `table_bytes` of the engine's
    tables for max_num_seqs sequences.
    """

    block_sizes: np.ndarray
    prompt_waste_tokens: np.ndarray
    completion_waste_tokens: np.ndarray
    life_waste_tokens: np.ndarray
    waste_share: np.ndarray
    table_entries: np.ndarray
    looked_up_per_step: np.ndarray
    hashed_blocks: np.ndarray
    reused_prefix_tokens: np.ndarray
    table_bytes: np.ndarray


@dataclass(frozen=True)
class GroupWaste:
    """What one kind of layer wastes in the engine's own blocks: `block_tokens` of each of its sizes, `bytes_per_block`
    over all its layers on a device, of which `unused_share` stays empty; `waste_tokens` and `waste_bytes` in the last
    block of a finished sequence, None where the kind does not grow."""

    kind: str
    tables: int
    block_tokens: tuple[int, ...]
    bytes_per_block: int
    waste_tokens: float | None
    waste_bytes: float | None
    unused_share: float


def costs(report: Report, block_sizes: Sequence[int] | None = None) -> BlockCosts:
    """What some block sizes waste and cost, or those of the table and the plan's own."""
    setting, plan = report.setting, report.plan
    sizes = np.array(sorted({*SIZES, report.paging.block_size}) if block_sizes is None else block_sizes)
    completed = totals(setting.lengths, plan.context)
    at_end = paging.expected_waste(completed, sizes)
    prompts, _ = clipped(setting.lengths, plan.context)
    over_life = paging.life_waste(setting.lengths, sizes, plan.context)
    resident = float(resident_mean(setting.lengths, plan.context))
    running = max(1, report.capacity.on_demand_running)
    return BlockCosts(
        block_sizes=sizes,
        prompt_waste_tokens=paging.prompt_waste(setting.lengths, sizes, plan.context),
        completion_waste_tokens=at_end,
        life_waste_tokens=over_life,
        waste_share=paging.booked_share(at_end, completed.mean),
        table_entries=paging.table_entries(completed, sizes),
        looked_up_per_step=running * (resident + over_life) / sizes,
        hashed_blocks=paging.full_blocks(prompts, sizes) @ setting.lengths.shares,
        reused_prefix_tokens=paging.reused_prefix(PREFIX, sizes),
        table_bytes=setting.max_num_seqs
        * ceil_div(plan.context, sizes)
        * ENTRY_BYTES
        * max(1, len(report.engine.groups)),
    )


def table(report: Report) -> list[dict]:
    """A row for each of some block sizes and the plan's own: tokens a sequence wastes at three stages, the share of
    what is booked at completion, and what the block costs in tables, look-ups, hashes and prefixes."""
    found = costs(report)
    columns = {
        "Block": found.block_sizes,
        "Wasted with the prompt": found.prompt_waste_tokens,
        "At completion": found.completion_waste_tokens,
        "Over its life": found.life_waste_tokens,
        "Of booked, %": 100 * found.waste_share,
        "Table entries": found.table_entries,
        "Looked up a step": found.looked_up_per_step,
        "Hashed a prompt": found.hashed_blocks,
        f"Of {PREFIX:,} shared": found.reused_prefix_tokens,
        "Tables, MiB": found.table_bytes / MIB,
    }
    return [{name: values[row].item() for name, values in columns.items()} for row in range(found.block_sizes.size)]


def group_waste(report: Report) -> list[GroupWaste]:
    """What each kind of layer wastes in the engine's own blocks: the unfilled end of the last block of those that grow,
    and what every block of a group leaves unused, as all block ids cost as much as the largest group's."""
    shape = layout(report.setting)
    completed = totals(report.setting.lengths, report.plan.context)
    found = []
    for cost in report.breakdown:
        own = [group for group in shape.groups if group.kind == cost.kind]
        tokens = tuple(dict.fromkeys(group.block_tokens * group.spec.dcp for group in own))
        wasted = paging.expected_waste(completed, tokens[0]) if cost.grows else None
        found.append(
            GroupWaste(
                kind=cost.kind,
                tables=cost.tables,
                block_tokens=tokens,
                bytes_per_block=shape.bytes_per_block,
                waste_tokens=wasted,
                waste_bytes=None if wasted is None else wasted / tokens[0] * shape.bytes_per_block * len(own),
                unused_share=max(0.0, breakdown.unused_share(own, shape)),
            )
        )
    return found


def groups(report: Report) -> list[dict]:
    """The same as rows of words."""
    return [
        {
            "Layers": breakdown.KIND_NAMES[found.kind],
            "Tables": count(found.tables),
            "Block, tokens": ", ".join(map(count, found.block_tokens)),
            "Block, all layers": binary(found.bytes_per_block),
            "Last block unfilled": "–" if found.waste_tokens is None else f"{found.waste_tokens:,.1f} tokens",
            "For a sequence": "–" if found.waste_bytes is None else binary(found.waste_bytes),
            "Of a block unused": percent(found.unused_share),
        }
        for found in group_waste(report)
    ]
