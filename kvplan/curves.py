"""What a chart draws: a report's numbers over a range, and which range.

A range depends on the model and on what could be compared, not on the plan's own value, so that a chart stands still
while a slider moves; a plan outside it widens it to the next standard step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log2

import numpy as np

from kvplan import batching, paging
from kvplan.catalog import Setting, resolve
from kvplan.ceiling import CeilingCurve, ceiling_curve
from kvplan.lengths import mean_prompt, resident_mean, totals
from kvplan.plan import MAX_PARALLEL
from kvplan.report import Report
from kvplan.specs import ModelSpec
from kvplan.units import GIB
from kvplan.verdict import LIMITS

POINTS_PER_OCTAVE = 8
SMALLEST_CONTEXT = 1024
SMALLER_CONTEXT = 256
CEILING_TOPS = (2_048, 8_192, 32_768, 131_072, 524_288, 2_097_152)
LARGEST_BATCH = 512
LARGEST_BLOCK = 1024
BLOCK_STEPS = (1, 2, 3, 4, 6)
COMPARED_DTYPES = ("bf16", "fp8", "int4")
WITH_PROMPT, AT_COMPLETION, OVER_LIFE = "with the prompt", "at completion", "over its life"
STAGES = {
    WITH_PROMPT: lambda lengths, context, sizes: (
        mean_prompt(lengths, context),
        paging.prompt_waste(lengths, sizes, context),
    ),
    AT_COMPLETION: lambda lengths, context, sizes: (
        (completed := totals(lengths, context)).mean,
        paging.expected_waste(completed, sizes),
    ),
    OVER_LIFE: lambda lengths, context, sizes: (
        float(resident_mean(lengths, context)),
        paging.life_waste(lengths, sizes, context),
    ),
}
"""When a sequence is looked at -> the tokens it holds then on average, and what it wastes by block size."""
TABLE_CONTEXTS = tuple(2**power for power in range(10, 25))


@dataclass(frozen=True)
class Comparison:
    """The plan with one thing changed: the change's name, the fields it sets, and the curve."""

    name: str
    changes: dict[str, str | int | None]
    curve: CeilingCurve


@dataclass(frozen=True)
class UtilisationCurve:
    """Share of slot-steps used by static batches, for the workload and if lengths were exponential; `low` to `high` is
    where 95% lie if as many requests are drawn again, None where the lengths are a family."""

    batches: np.ndarray
    static: np.ndarray
    exponential: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclass(frozen=True)
class WasteCurve:
    """Slots booked and not filled at a stage of a sequence (STAGES), in tokens and as a share of what is booked;
    `half_block` is the rule (k - 1)/2 for comparison, `entries` those of a finished sequence's block table; `own_`
    says what the plan's block size has."""

    stage: str
    block_sizes: np.ndarray
    entries: np.ndarray
    own_entries: float
    own_tokens: float
    own_share: float
    tokens: np.ndarray
    share: np.ndarray
    half_block_tokens: np.ndarray
    half_block_share: np.ndarray


def context_range(report: Report) -> tuple[int, int]:
    """First and last context of the ceiling chart: 1k to the model's maximum, wider for a plan outside."""
    context, longest = report.plan.context, report.setting.model.max_position_embeddings
    first = next((step for step in (SMALLEST_CONTEXT, SMALLER_CONTEXT) if context >= step), 2 ** floor(log2(context)))
    last = longest if context <= longest else 2 ** ceil(log2(context))
    return min(first, last), max(last, 2 * first)


def plan_ceilings(report: Report) -> CeilingCurve:
    """The plan's own ceilings over the chart's contexts."""
    return ceiling_curve(report.setting, _contexts(*context_range(report)))


def comparisons(report: Report, own: CeilingCurve, model: ModelSpec | None = None) -> list[Comparison]:
    """The plan with another cache dtype and with half and twice the tp, or the smallest tp that starts; those under
    which nothing fits, or exactly what `own`, the plan's curve, shows already, are left out."""
    changes = {f"{dtype} KV": {"kv_dtype": dtype, "v_dtype": None} for dtype in _other_dtypes(report.setting)}
    changes |= {f"tp {tp}": {"tp": tp} for tp in _other_tps(report)}
    found = [
        Comparison(
            name=name,
            changes=change,
            curve=ceiling_curve(resolve(report.plan.model_copy(update=change), model), own.contexts),
        )
        for name, change in changes.items()
    ]
    return [
        other
        for other in found
        if other.curve.memory_ceiling.any() and not np.array_equal(other.curve.memory_quotient, own.memory_quotient)
    ]


def preselected(others: list[Comparison]) -> list[str]:
    """The comparisons a planner sees first: the nearest other dtype and the larger tp."""
    return [others[0].name, others[-1].name] if len(others) > 1 else [other.name for other in others]


def ceiling_top(curve: CeilingCurve, others: list[Comparison]) -> int:
    """The top of the ceiling chart: a standard step above every line and everything that could be compared."""
    highest = max(
        [
            curve.on_demand_ceiling.max(),
            curve.memory_ceiling.max(),
            *(other.curve.memory_ceiling.max() for other in others),
        ]
    )
    return next((top for top in CEILING_TOPS if top > highest), 2 ** ceil(log2(highest + 1)))


def table_contexts(report: Report) -> np.ndarray:
    """Powers of two up to the model's maximum, and the plan's context."""
    _, last = context_range(report)
    return np.array(sorted({step for step in TABLE_CONTEXTS if step <= last} | {report.plan.context}))


def table_batches(report: Report) -> np.ndarray:
    """Powers of two up to 512, or further where the plan's batch is larger, and the plan's batch."""
    last = _last_batch(report)
    return np.array(sorted({2**power for power in range(round(log2(last)) + 1)} | {report.batching.batch}))


def ceiling_table(report: Report, model: ModelSpec | None = None) -> list[dict]:
    """Ceilings at some contexts, one row each, as planned and with another cache dtype (fp8, or bf16 for a plan that
    has fp8)."""
    contexts = table_contexts(report)
    own = ceiling_curve(report.setting, contexts)
    dtype = "bf16" if report.setting.kv_dtype == "fp8" else "fp8"
    changed = report.plan.model_copy(update={"kv_dtype": dtype, "v_dtype": None})
    other = ceiling_curve(resolve(changed, model), contexts)
    return [
        {
            "Context, tokens": int(context),
            "Booked, GiB/device": int(blocks) * own.bytes_per_block / GIB,
            "Reserve": int(reserve),
            f"Reserve, {dtype} KV": int(reserve_other),
            "On demand, mean": int(on_demand),
            "Runs": int(runs),
            "Limit": LIMITS[str(limit)],
        }
        for context, blocks, reserve, reserve_other, on_demand, runs, limit in zip(
            contexts,
            own.blocks_booked,
            own.memory_ceiling,
            other.memory_ceiling,
            own.on_demand_ceiling,
            own.batch_ceiling,
            own.binding,
            strict=True,
        )
    ]


def utilisation(report: Report, batches: np.ndarray | None = None) -> UtilisationCurve:
    """Static utilisation at some batches, or from 1 to 512, further where the plan's batch is larger."""
    if batches is None:
        last = _last_batch(report)
        batches = np.unique(np.rint(np.geomspace(1, last, 1 + POINTS_PER_OCTAVE * round(log2(last)))).astype(np.int64))
    setting = report.setting
    band = (None, None)
    if setting.requests is not None:
        band = batching.bootstrap_band(setting.lengths, setting.requests, batches)
    return UtilisationCurve(
        batches=batches,
        static=batching.static_utilisation(setting.lengths, batches),
        exponential=batching.exponential_utilisation(batches),
        low=band[0],
        high=band[1],
    )


def block_waste(report: Report, stage: str = AT_COMPLETION) -> WasteCurve:
    """Waste for blocks of 1 to 1,024, or further where the plan's block is larger."""
    last = max(LARGEST_BLOCK, 2 ** ceil(log2(report.paging.block_size)))
    powers = 2 ** np.arange(round(log2(last)) + 1)
    sizes = np.unique([step * power for power in powers for step in BLOCK_STEPS if step * power <= last])
    lengths, context, block_size = report.setting.lengths, report.plan.context, report.paging.block_size
    held, tokens = STAGES[stage](lengths, context, sizes)
    _, own = STAGES[stage](lengths, context, block_size)
    completed, half = totals(lengths, context), (sizes - 1) / 2
    return WasteCurve(
        stage=stage,
        block_sizes=sizes,
        entries=paging.table_entries(completed, sizes),
        own_entries=paging.table_entries(completed, block_size),
        own_tokens=own,
        own_share=paging.booked_share(own, held),
        tokens=tokens,
        share=paging.booked_share(tokens, held),
        half_block_tokens=half,
        half_block_share=paging.booked_share(half, held),
    )


def _last_batch(report: Report) -> int:
    return max(LARGEST_BATCH, 2 ** ceil(log2(report.batching.batch)))


def _contexts(first: int, last: int) -> np.ndarray:
    """Eight points an octave, rounded to multiples of 64 so that hovered contexts are believable, ends included."""
    points = np.geomspace(first, last, 1 + max(1, round(POINTS_PER_OCTAVE * log2(last / first))))
    step = 64 if first >= SMALLER_CONTEXT else 1
    inner = np.rint(points / step).astype(np.int64) * step
    return np.unique(np.concatenate([[first, last], inner[(inner > first) & (inner < last)]]))


def _other_dtypes(setting: Setting) -> list[str]:
    return [
        dtype
        for dtype in COMPARED_DTYPES
        if dtype != setting.kv_dtype and (dtype, setting.kv_dtype) != ("bf16", "fp16")
    ][:2]


def _other_tps(report: Report) -> list[int]:
    tp, smallest = report.plan.tp, report.capacity.min_tp
    near = {tp // 2, tp * 2} if tp > 1 else {2, 4}
    if smallest and not report.engine.fits:
        near.add(smallest)
    return sorted(other for other in near if other != tp and other <= MAX_PARALLEL)
