"""What the pages Ceiling, Batching, Paging and Throughput show, as data: one answer a command, for text and JSON.

Every number is what a page's own functions give; a plan that is not served has an answer without points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import TypeAdapter

from kvplan import allocation, backlog, blocks, curves, rates, throughput_words, verdict
from kvplan.allocators import BUDDY
from kvplan.batching import Drain
from kvplan.blocks import BlockCosts, GroupWaste
from kvplan.ceiling import CeilingCurve, ceiling_curve
from kvplan.fleet import replica_gpus
from kvplan.plan import Plan
from kvplan.report import BatchingReport, PagingReport, Report
from kvplan.throughput import Operation
from kvplan.version import VERSION


@dataclass(frozen=True)
class CeilingPoint:
    """Sequences at one context. A request books `blocks_booked` blocks, `bytes_booked` on the fullest device; the
    quotients are the ceilings by memory before rounding down."""

    context: int
    blocks_booked: int
    bytes_booked: int
    memory_ceiling: int
    memory_quotient: float
    on_demand_ceiling: int
    on_demand_quotient: float
    batch_ceiling: int
    binding: str


@dataclass(frozen=True)
class ComparedCeiling:
    """The ceilings with one thing changed: the fields it sets, and the same contexts."""

    name: str
    changes: dict[str, str | int | None]
    bytes_per_block: int
    points: list[CeilingPoint]


@dataclass(frozen=True)
class CeilingAnswer:
    """How many sequences fit, against context. Comparisons under which nothing fits or nothing changes are left out."""

    plan: Plan
    sentence: str
    reason: str
    bytes_per_block: int
    points: list[CeilingPoint]
    comparisons: list[ComparedCeiling]


@dataclass(frozen=True)
class BatchingPoint:
    """Share of slot-steps that static batches of one size use: of the workload, and if lengths were exponential, 1/H_B.
    If as many requests are drawn again, 95% of the workload's lie between `band_low` and `band_high`; null where its
    lengths are a family."""

    batch: int
    static_utilisation: float
    exponential_utilisation: float
    band_low: float | None
    band_high: float | None


@dataclass(frozen=True)
class BacklogRun:
    """A backlog under one policy: its steps, the share of slot-steps that worked, its seconds and requests a second."""

    steps: int
    busy: float
    wall_s: float
    requests_per_s: float


@dataclass(frozen=True)
class BacklogAnswer:
    """A fixed backlog on so many slots at `step_s` seconds a step; `gain` is how many times as long static takes."""

    requests: int
    slots: int
    step_s: float
    static: BacklogRun
    continuous: BacklogRun
    gain: float


@dataclass(frozen=True)
class BatchingAnswer:
    """What static batches leave idle, against batch, and one backlog as it is and with equal lengths."""

    plan: Plan
    sentence: str
    reason: str
    batching: BatchingReport
    points: list[BatchingPoint]
    backlog: BacklogAnswer | None
    equal_backlog: BacklogAnswer | None


@dataclass(frozen=True)
class BlockPoint:
    """What blocks of one size waste and cost, means over the workload: tokens a sequence wastes with its prompt, at
    completion and over its steps, the share of what is booked at completion, entries of its block table, entries looked
    up in a step and a layer, blocks hashed of a prompt, tokens found again of a prefix of 1,000, bytes of the engine's
    tables."""

    block_size: int
    prompt_waste_tokens: float
    completion_waste_tokens: float
    life_waste_tokens: float
    waste_share: float
    table_entries: float
    looked_up_per_step: float
    hashed_blocks: float
    reused_prefix_tokens: int
    table_bytes: int


@dataclass(frozen=True)
class AllocatorRun:
    """The pool under one allocator while requests wait: shares `held` by tokens, `reserved` for later, `internal` never
    used and `free`, which add up to 1; `running` requests on average; in `blocked_share` of the steps one did not fit
    although enough was free in all."""

    allocator: str
    running: float
    held: float
    reserved: float
    internal: float
    free: float
    blocked_share: float


@dataclass(frozen=True)
class AllocatorsAnswer:
    """The same requests through the same `slots`, each for a token on a device, in extents and in blocks; windows and
    states count as `fixed_slots` tokens of each request."""

    contiguous: str
    requests: int
    slots: int
    fixed_slots: int
    runs: list[AllocatorRun]
    refusals: list[str]


@dataclass(frozen=True)
class PagingAnswer:
    """What the block size wastes and costs, what each kind of layer wastes, and what paging saved."""

    plan: Plan
    sentence: str
    reason: str
    paging: PagingReport
    points: list[BlockPoint]
    groups: list[GroupWaste]
    allocators: AllocatorsAnswer | None


@dataclass(frozen=True)
class RooflinePoint:
    """One kind of step on the roofline; `parts` are its seconds by what takes them, `binding` what takes most."""

    name: str
    flop_per_byte: float
    flop_per_s: float
    total_s: float
    binding: str
    parts: dict[str, float]


@dataclass(frozen=True)
class RooflineAnswer:
    """A device's roof at peak, as far as measured efficiency reaches, and the plan's decode and prefill below it."""

    peak_flop_per_s: float
    peak_bytes_per_s: float
    flop_per_s: float
    bytes_per_s: float
    points: list[RooflinePoint]


@dataclass(frozen=True)
class SimulatedTime:
    """A time of requests in seconds: by the closed form, and of simulated ones the mean and percentiles."""

    name: str
    closed_form_s: float
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


@dataclass(frozen=True)
class SimulatedAnswer:
    """So many requests at random times at a rate, the plan's where `of_plan`, with as many in the system on average."""

    requests: int
    requests_per_s: float
    of_plan: bool
    closed_form_concurrency: float
    concurrency: float
    times: list[SimulatedTime]


@dataclass(frozen=True)
class ThroughputAnswer:
    """Rates and latencies of a replica of `gpus` against batch, estimates. `limits` are the batches at which each limit
    ends them, `binding` the one that holds `own`; `next` is at the limit behind it, null where none is in reach; `gain`
    is what twice the batch would add to the tokens. All null or empty where no sequence runs or no step time is known.
    """

    plan: Plan
    sentence: str
    reason: str
    gpus: int
    targets: dict[str, float]
    binding: str | None
    limits: dict[str, int]
    gain: float | None
    own: Operation | None
    next_binding: str | None
    next: Operation | None
    points: list[Operation]
    roofline: RooflineAnswer | None
    simulated: SimulatedAnswer | None


SCHEMAS = {
    CeilingAnswer: "kvplan.ceiling/1",
    BatchingAnswer: "kvplan.batching/1",
    PagingAnswer: "kvplan.paging/1",
    ThroughputAnswer: "kvplan.throughput/1",
}
Answer = CeilingAnswer | BatchingAnswer | PagingAnswer | ThroughputAnswer


def to_dict(found: Answer) -> dict:
    """An answer as JSON has it; null for what is undefined."""
    kind = type(found)
    return {"schema": SCHEMAS[kind], "version": VERSION} | TypeAdapter(kind).dump_python(found, mode="json")


def ceiling(report: Report, contexts: Sequence[int] | None = None) -> CeilingAnswer:
    """The ceilings at some contexts, or at powers of two up to the model's maximum and at the plan's own."""
    said, own, others = verdict.ceiling(report), None, []
    if report.is_served:
        own = ceiling_curve(report.setting, curves.table_contexts(report) if contexts is None else np.array(contexts))
        others = curves.comparisons(report, own, report.setting.structure.handed)
    return CeilingAnswer(
        plan=report.plan,
        sentence=verdict.plain(said.sentence),
        reason=verdict.plain(said.reason),
        bytes_per_block=report.engine.bytes_per_block,
        points=_ceiling_points(own) if own else [],
        comparisons=[
            ComparedCeiling(other.name, other.changes, other.curve.bytes_per_block, _ceiling_points(other.curve))
            for other in others
        ],
    )


def batching(report: Report, batches: Sequence[int] | None = None) -> BatchingAnswer:
    """Utilisation at some batches, or at powers of two up to 512 and at the plan's own, and the plan's backlog."""
    said = verdict.batching(report)
    return BatchingAnswer(
        plan=report.plan,
        sentence=verdict.plain(said.sentence),
        reason=verdict.plain(said.reason),
        batching=report.batching,
        points=_batching_points(report, batches) if report.is_served else [],
        backlog=_backlog(report, equal=False) if report.is_served else None,
        equal_backlog=_backlog(report, equal=True) if report.is_served else None,
    )


def paging(report: Report, block_sizes: Sequence[int] | None = None, allocator: str = BUDDY) -> PagingAnswer:
    """Waste and costs at some block sizes, or at those of the page's table, and allocators compared; no points where no
    layer grows."""
    said = verdict.paging(report)
    return PagingAnswer(
        plan=report.plan,
        sentence=verdict.plain(said.sentence),
        reason=verdict.plain(said.reason),
        paging=report.paging,
        points=_block_points(blocks.costs(report, block_sizes)) if report.cache.bytes_per_token else [],
        groups=blocks.group_waste(report) if report.is_served else [],
        allocators=_allocators(report, allocator),
    )


def throughput(report: Report, batches: Sequence[int] | None = None) -> ThroughputAnswer:
    """Rates at some batches, or at powers of two up to 512 and at the plan's own; the roofline; requests simulated."""
    if batches is None and report.is_served:
        batches = curves.table_batches(report).tolist()
    found = rates.rates(report, batches)
    said = throughput_words.opening(report, found)
    return ThroughputAnswer(
        plan=report.plan,
        sentence=verdict.plain(said.sentence),
        reason=verdict.plain(said.reason),
        gpus=replica_gpus(report.setting),
        targets={"ttft_s": report.setting.ttft_s, "tpot_s": report.setting.tpot_s},
        binding=found and found.binding,
        limits=found.limits if found else {},
        gain=found and found.gain,
        own=found and found.own,
        next_binding=found.could_binding if found and found.could else None,
        next=found and found.could,
        points=list(found.curve) if found else [],
        roofline=_roofline(report, found) if found else None,
        simulated=_simulated(report, found) if found else None,
    )


def _ceiling_points(found: CeilingCurve) -> list[CeilingPoint]:
    columns = (
        found.contexts, found.blocks_booked, found.blocks_booked * found.bytes_per_block, found.memory_ceiling,
        found.memory_quotient, found.on_demand_ceiling, found.on_demand_quotient, found.batch_ceiling, found.binding,
    )  # fmt: skip
    return [CeilingPoint(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _batching_points(report: Report, batches: Sequence[int] | None) -> list[BatchingPoint]:
    found = curves.utilisation(report, curves.table_batches(report) if batches is None else np.array(batches))
    unknown = [None] * found.batches.size
    low = unknown if found.low is None else found.low.tolist()
    high = unknown if found.high is None else found.high.tolist()
    columns = (found.batches.tolist(), found.static.tolist(), found.exponential.tolist(), low, high)
    return [BatchingPoint(*row) for row in zip(*columns, strict=True)]


def _backlog(report: Report, equal: bool) -> BacklogAnswer:
    found = backlog.backlog(report, equal)

    def run(of: Drain) -> BacklogRun:
        return BacklogRun(of.steps, of.busy, found.wall_s(of), found.requests_per_s(of))

    runs = run(found.static), run(found.continuous)
    return BacklogAnswer(found.lengths.size, found.slots, found.step_s, *runs, found.gain)


def _block_points(found: BlockCosts) -> list[BlockPoint]:
    columns = (
        found.block_sizes, found.prompt_waste_tokens, found.completion_waste_tokens, found.life_waste_tokens,
        found.waste_share, found.table_entries, found.looked_up_per_step, found.hashed_blocks,
        found.reused_prefix_tokens, found.table_bytes,
    )  # fmt: skip
    return [BlockPoint(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _allocators(report: Report, allocator: str) -> AllocatorsAnswer | None:
    found = allocation.compared(report, allocator)
    if found is None:
        return None
    return AllocatorsAnswer(
        contiguous=allocator,
        requests=found.found.prompts.size,
        slots=found.slots,
        fixed_slots=found.fixed_slots,
        runs=[
            AllocatorRun(kind, run.running, run.held, run.reserved, run.internal, run.free, run.blocked_share)
            for kind, run in found.runs.items()
        ],
        refusals=allocation.refusals(found),
    )


def _roofline(report: Report, found: rates.Rates) -> RooflineAnswer:
    roof = rates.roofline(report, found)
    points = [
        RooflinePoint(
            each.name, each.flop_per_byte, each.flop_per_s, each.parts.total_s, each.parts.binding, each.parts._asdict()
        )
        for each in roof.points
    ]
    return RooflineAnswer(roof.peak_flop_per_s, roof.peak_bytes_per_s, roof.flop_per_s, roof.bytes_per_s, points)


def _simulated(report: Report, found: rates.Rates) -> SimulatedAnswer | None:
    run = rates.compared(report, found)
    if run is None:
        return None
    times = [SimulatedTime(name, *values) for name, values in run.rows.items()]
    return SimulatedAnswer(run.number, run.requests_per_s, run.of_plan, run.closed.concurrency, run.concurrency, times)
