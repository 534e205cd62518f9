"""The block size of a plan from both sides: what a larger block wastes, and what a smaller one costs in tables.

Exact: waste, entries, hashes and what is found again. A model: that attention looks up each entry of a running
request's table once in each layer and step, which kernels that read several blocks at a time do less often.

Source: vLLM keeps a table of 4 bytes an entry for each of max_num_seqs sequences and each group of layers, of as many
entries as the longest context has blocks.
"""

from __future__ import annotations

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


def table(report: Report) -> list[dict]:
    """A row for each of some block sizes and the plan's own: tokens a sequence wastes at three stages, the share of
    what is booked at completion, and what the block costs in tables, look-ups, hashes and prefixes."""
    setting, plan = report.setting, report.plan
    sizes = np.array(sorted({*SIZES, report.paging.block_size}))
    completed = totals(setting.lengths, plan.context)
    at_end = paging.expected_waste(completed, sizes)
    prompts, _ = clipped(setting.lengths, plan.context)
    hashed = paging.full_blocks(prompts, sizes) @ setting.lengths.shares
    over_life = paging.life_waste(setting.lengths, sizes, plan.context)
    resident = float(resident_mean(setting.lengths, plan.context))
    running = max(1, report.capacity.on_demand_running)
    tables = setting.max_num_seqs * ceil_div(plan.context, sizes) * ENTRY_BYTES * max(1, len(report.engine.groups))
    columns = {
        "Block": sizes,
        "Wasted with the prompt": paging.prompt_waste(setting.lengths, sizes, plan.context),
        "At completion": at_end,
        "Over its life": over_life,
        "Of booked, %": 100 * paging.booked_share(at_end, completed.mean),
        "Table entries": paging.table_entries(completed, sizes),
        "Looked up a step": running * (resident + over_life) / sizes,
        "Hashed a prompt": hashed,
        f"Of {PREFIX:,} shared": paging.reused_prefix(PREFIX, sizes),
        "Tables, MiB": tables / MIB,
    }
    return [{name: values[row].item() for name, values in columns.items()} for row in range(sizes.size)]


def groups(report: Report) -> list[dict]:
    """What each kind of layer wastes in the engine's own blocks: the unfilled end of the last block of those that grow,
    and what every block of a group leaves unused, as all block ids cost as much as the largest group's."""
    shape = layout(report.setting)
    completed = totals(report.setting.lengths, report.plan.context)
    rows = []
    for cost in report.breakdown:
        own = [group for group in shape.groups if group.kind == cost.kind]
        tokens = own[0].block_tokens * own[0].spec.dcp
        wasted = paging.expected_waste(completed, tokens) if cost.grows else None
        rows.append(
            {
                "Layers": breakdown.KIND_NAMES[cost.kind],
                "Tables": count(cost.tables),
                "Block, tokens": ", ".join(dict.fromkeys(count(group.block_tokens * group.spec.dcp) for group in own)),
                "Block, all layers": binary(shape.bytes_per_block),
                "Last block unfilled": "–" if wasted is None else f"{wasted:,.1f} tokens",
                "For a sequence": "–" if wasted is None else binary(wasted / tokens * shape.bytes_per_block * len(own)),
                "Of a block unused": percent(max(0.0, breakdown.unused_share(own, shape))),
            }
        )
    return rows
