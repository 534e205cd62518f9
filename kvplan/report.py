"""evaluate(plan) -> Report: the only place that combines results."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from kvplan import batching, breakdown, cache, ceiling, engine, fleet, memory, paging, throughput
from kvplan.arrays import maximum, minimum, rounded
from kvplan.catalog import Setting, concrete, resolve
from kvplan.lengths import clipped_share, totals
from kvplan.plan import Plan
from kvplan.roofline_facts import TYPICAL_STEP_S
from kvplan.specs import ModelSpec, Source
from kvplan.traffic import LEAST_RATE
from kvplan.version import VERSION

SCHEMA = "kvplan.report/1"
LARGEST_AUTOMATIC_BATCH = 512


@dataclass(frozen=True)
class CacheReport:
    """Bytes of cache. Without `_total`: one device of the fullest pipeline stage; with it: over all ranks.

    `request_bytes_held` is what the tokens of one request of `context` occupy, `_booked` what the engine sets aside:
    `_shared` of it once for all requests (a prefix), `_fixed` whatever the length at this context, and
    `booked_bytes_per_token` for every token of it.
    """

    bytes_per_token: int | float | None = None
    bytes_per_token_total: int | float | None = None
    request_bytes_held: int | None = None
    request_bytes_held_total: int | None = None
    request_bytes_booked: int | None = None
    request_bytes_booked_total: int | None = None
    request_bytes_shared: int | None = None
    request_bytes_fixed: int | None = None
    booked_bytes_per_token: float | None = None


class EngineGroup(NamedTuple):
    """One group of layers as the engine books it; `page_bytes` is one block of one layer on one device."""

    kind: str
    layers: int
    block_tokens: int
    page_bytes: int
    blocks_per_request: int


@dataclass(frozen=True)
class EngineReport:
    """What the engine prints at start-up. `refused` is its sentence when it would not start whatever the memory;
    `older_token_line` what engines before spring 2026 printed for the same pool."""

    block_size: int = 0
    groups: list[EngineGroup] = field(default_factory=list)
    bytes_per_block: int = 0
    num_blocks: int = 0
    blocks_per_request: int = 0
    max_concurrency: float = 0.0
    kv_cache_tokens: int = 0
    older_token_line: int = 0
    fits: bool = False
    refused: str | None = None
    needed_bytes: int = 0
    usable_bytes: int = 0
    suggested_context: int | None = None


@dataclass(frozen=True)
class CapacityReport:
    """What a planner asks: how many sequences, by which limit, and what it would take.

    The quotients are the two ceilings by memory before rounding down; `held_share` is how much of a reservation for the
    whole context a running request holds on average; `clipped_share` the requests longer than the context.
    """

    memory_ceiling: int = 0
    tenant_quota: int | None = None
    max_num_seqs: int = 0
    batch_ceiling: int = 0
    binding: str = "does_not_fit"
    on_demand_ceiling: int = 0
    memory_quotient: float = 0.0
    on_demand_quotient: float = 0.0
    resident_mean_tokens: float | None = None
    held_share: float | None = None
    clipped_share: float | None = None
    min_tp: int | None = None
    min_tp_weights: int | None = None

    @property
    def on_demand_running(self) -> int:
        """Sequences that run on average without reserving: what memory holds on demand, within the other limits."""
        if self.batch_ceiling < 1:
            return 0
        quota = self.on_demand_ceiling if self.tenant_quota is None else self.tenant_quota
        return min(self.on_demand_ceiling, quota, self.max_num_seqs)

    def running(self, admission: str) -> int:
        """Sequences that run under a policy."""
        return self.on_demand_running if admission == "on_demand" else self.batch_ceiling


@dataclass(frozen=True)
class BatchingReport:
    """Slot use at `batch`: the plan's, or the ceiling within 1 and 512. `gain` is continuous over static."""

    batch: int = 1
    static_utilisation: float | None = None
    exponential_utilisation: float | None = None
    continuous_utilisation: float = 1.0
    gain: float | None = None


@dataclass(frozen=True)
class PagingReport:
    """Slots a request books and does not fill, on average: in blocks at its completion, and if it reserved the context;
    `prompt_waste_tokens` with its prompt alone, `life_waste_tokens` over its steps."""

    block_size: int = 0
    mean_tokens: float | None = None
    waste_tokens: float | None = None
    waste_share: float | None = None
    waste_bytes: float | None = None
    prompt_waste_tokens: float | None = None
    life_waste_tokens: float | None = None
    contiguous_waste_tokens: float | None = None
    contiguous_waste_share: float | None = None


@dataclass(frozen=True)
class ThroughputReport:
    """What one replica yields at `batch`, the plan's or the ceiling: with so many requests in the system, no queue, and
    the next one there whenever one ends.

    `decode_step_s` is a step in which all of them decode, out of which `tokens_per_step` come for each, `prefill_s` a
    mean prompt alone; `tpot_s` and `ttft_s` count the prompts of others that are computed in the same steps.
    `requests_per_s` x `e2e_s` = `batch`. `binding`: whether reading or computing takes more of the decode step.
    `critical_batch`: where computing takes as long as reading the weights; `kv_equals_weights_batch`: whose caches are
    as many bytes as the weights.
    `tpot_batch` and `ttft_batch`: the largest batch up to the ceiling that meets the target, 0 where not even one does.
    """

    batch: int = 0
    decode_step_s: float | None = None
    tokens_per_step: float = 1.0
    prefill_s: float | None = None
    tokens_per_s: float = 0.0
    requests_per_s: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    critical_batch: float | None = None
    kv_equals_weights_batch: float | None = None
    binding: str = "does_not_fit"
    tpot_batch: int = 0
    ttft_batch: int = 0

    @property
    def meeting_batch(self) -> int:
        """The largest batch that meets both targets on average, 0 where not even one does."""
        return min(self.batch, self.tpot_batch, self.ttft_batch)


NO_MEMORY = memory.Memory(0, 0, 0, 0, 0, 0, 0, 0)
PARTS = (
    "plan", "cache", "memory", "engine", "capacity", "batching", "throughput", "fleet", "paging", "breakdown",
    "remarks", "notes", "sources",
)  # fmt: skip
"""The parts of a report, in the order in which they are printed."""


@dataclass(frozen=True)
class Counted:
    """The parts of a report that count memory and sequences; arrays where numbers of the plan are."""

    cache: CacheReport = CacheReport()
    memory: memory.Memory = NO_MEMORY
    engine: EngineReport = EngineReport()
    capacity: CapacityReport = CapacityReport()


@dataclass(frozen=True)
class Report:
    """Everything kvplan says of a plan. `setting` is the plan with nothing left open, None when an id is unknown.

    `cache`, `memory`, `engine` and `capacity` are there from the start, the other parts are worked out when they are
    first asked for; none ever changes. `notes` say what was ignored or is unusual; `sources` where each number comes
    from.
    """

    plan: Plan
    cache: CacheReport
    memory: memory.Memory
    engine: EngineReport
    capacity: CapacityReport
    setting: Setting | None = None

    @property
    def is_served(self) -> bool:
        """Whether there is an engine to speak of: the ids are known and the layers make a cache."""
        return self.setting is not None and self.setting.structure.problem is None

    @cached_property
    def batching(self) -> BatchingReport:
        return _batching(self.setting, self.capacity) if self.is_served else BatchingReport()

    @cached_property
    def replica(self) -> throughput.Engine | None:
        """How one replica runs; None where its step time is not known."""
        return throughput.engine(self.setting) if self.is_served else None

    @cached_property
    def throughput(self) -> ThroughputReport:
        return _throughput(self) if self.replica else ThroughputReport()

    @cached_property
    def fleet(self) -> fleet.Fleet:
        return _fleet(self)

    @cached_property
    def paging(self) -> PagingReport:
        return _paging(self.setting, self.cache, self.engine.block_size) if self.is_served else PagingReport()

    @cached_property
    def breakdown(self) -> tuple[breakdown.GroupCost, ...]:
        return breakdown.group_costs(self.setting, engine.layout(self.setting)) if self.is_served else ()

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        return _remarks(self) if self.is_served else ()

    @property
    def notes(self) -> tuple[str, ...]:
        return self.setting.notes if self.setting else ()

    @property
    def sources(self) -> dict[str, Source]:
        return self.setting.sources if self.setting else {}

    @property
    def step_s(self) -> float:
        """Seconds in which every sequence that decodes has one more token: the plan's, else the estimate at its batch,
        else a round number."""
        found = self.throughput
        estimate = found.decode_step_s and found.decode_step_s / found.tokens_per_step
        return self.plan.step_s or estimate or TYPICAL_STEP_S

    def to_dict(self) -> dict:
        """What `report --json` prints: stable keys, exact integers as integers, null for what is undefined."""
        parts = {name: _plain(getattr(self, name)) for name in PARTS}
        resolved = None if self.setting is None else concrete(self.setting) | {"step_s": self.step_s}
        return {"schema": SCHEMA, "version": VERSION} | parts | {"resolved": resolved}


def evaluate(plan: Plan, model: ModelSpec | None = None) -> Report:
    """The report of a plan, for the presets it names or for a model of one's own.

    Never raises for a valid plan: what cannot be served is `engine.fits` False with the sentence in `engine.refused`.

    >>> evaluate(Plan(model="llama-3.1-8b", context=32768, kv_cache_memory_bytes=35_755_602_739)).engine.kv_cache_tokens
    272784
    """
    try:
        setting = resolve(plan, model)
    except ValueError as error:
        found, setting = Counted(engine=EngineReport(refused=str(error))), None
    else:
        found = counted(setting)
    return Report(plan, found.cache, found.memory, found.engine, found.capacity, setting)


def counted(setting: Setting) -> Counted:
    """What the cache, the memory and the engine make of a setting; its numbers may be arrays, which broadcast."""
    if problem := setting.structure.problem:
        return Counted(engine=EngineReport(refused=f"model: {problem}"))
    plan, shape, budget = setting.plan, engine.layout(setting), memory.budget(setting)
    numbers = engine.capacity(shape, plan.context, budget.pool_bytes, engine.in_flight_tokens(setting, plan.context))
    return Counted(
        cache=_cache(setting, shape),
        memory=budget,
        engine=_engine(setting, shape, numbers, budget.pool_bytes),
        capacity=_capacity(setting, shape, numbers),
    )


def _cache(setting: Setting, shape: engine.Layout) -> CacheReport:
    held, cost, plan = cache.held(setting), breakdown.request_cost(setting, shape), setting.plan
    in_flight = engine.in_flight_tokens(setting, plan.context)
    blocks = engine.blocks_per_request(shape, plan.context + plan.spec_tokens, in_flight)
    return CacheReport(
        bytes_per_token=held.bytes_per_token,
        bytes_per_token_total=held.bytes_per_token_total,
        request_bytes_held=held.request_bytes,
        request_bytes_held_total=held.request_bytes_total,
        request_bytes_booked=blocks * shape.bytes_per_block,
        request_bytes_booked_total=blocks * sum(shape.stage_block_bytes) * plan.tp,
        request_bytes_shared=ceiling.shared_prefix_blocks(setting, shape, plan.context) * shape.bytes_per_block,
        request_bytes_fixed=cost.fixed_bytes,
        booked_bytes_per_token=cost.bytes_per_token,
    )


def _engine(setting: Setting, shape: engine.Layout, numbers: engine.Capacity, pool_bytes) -> EngineReport:
    context = setting.plan.context
    in_flight = engine.in_flight_tokens(setting, context)
    groups = [
        EngineGroup(
            group.kind,
            group.layers,
            group.block_tokens,
            group.page_bytes,
            engine.group_blocks(group, context, in_flight),
        )
        for group in shape.groups
    ]
    if shape.refused:
        return EngineReport(
            block_size=shape.block_size, groups=groups, bytes_per_block=shape.bytes_per_block, refused=shape.refused
        )
    start = engine.start_check(shape, setting, context, pool_bytes)
    return EngineReport(
        block_size=shape.block_size,
        groups=groups,
        bytes_per_block=shape.bytes_per_block,
        num_blocks=numbers.num_blocks,
        blocks_per_request=numbers.blocks_per_request,
        max_concurrency=numbers.max_concurrency,
        kv_cache_tokens=numbers.kv_cache_tokens,
        older_token_line=engine.older_token_line(shape, numbers.num_blocks),
        fits=start.fits,
        needed_bytes=start.needed_bytes,
        usable_bytes=start.usable_bytes,
        suggested_context=start.suggested_context,
    )


def _capacity(setting: Setting, shape: engine.Layout, numbers: engine.Capacity) -> CapacityReport:
    context = setting.plan.context
    min_tp, min_tp_weights = ceiling.smallest_tp(setting)
    known = {
        "max_num_seqs": setting.max_num_seqs,
        "clipped_share": clipped_share(setting.lengths, context),
        "min_tp": min_tp,
        "min_tp_weights": min_tp_weights,
    }
    if shape.refused:
        return CapacityReport(**known)
    found = ceiling.ceilings(setting, shape, numbers, context)
    return CapacityReport(
        **known,
        memory_ceiling=found.memory_ceiling,
        tenant_quota=found.tenant_quota,
        batch_ceiling=found.batch_ceiling,
        binding=found.binding,
        on_demand_ceiling=found.on_demand_ceiling,
        memory_quotient=found.memory_quotient,
        on_demand_quotient=found.on_demand_quotient,
        resident_mean_tokens=found.resident_mean_tokens,
        held_share=_held_share(setting, shape, found.resident_mean_tokens),
    )


def _held_share(setting: Setting, shape: engine.Layout, resident_tokens):
    context = setting.plan.context
    blocks = engine.blocks_per_request(shape, context, engine.in_flight_tokens(setting, context))
    bits = reduce(maximum, cache.request_bits_by_stage(setting, rounded(resident_tokens)))
    return minimum(1.0, bits / 8 / (blocks * shape.bytes_per_block))


def _remarks(report: Report) -> tuple[str, ...]:
    setting, numbers = report.setting, report.engine
    shape = engine.layout(setting)
    sentence = breakdown.cost_sentence(breakdown.request_cost(setting, shape))
    if not numbers.num_blocks:
        return (sentence,)
    twice = 2 * setting.plan.context
    in_flight = engine.in_flight_tokens(setting, twice)
    longer = engine.capacity(shape, twice, report.memory.pool_bytes, in_flight).kv_cache_tokens
    too_many = breakdown.state_remark(setting, shape, numbers.num_blocks)
    return (
        sentence,
        *([too_many] if too_many else []),
        *breakdown.remarks(setting, shape, numbers.kv_cache_tokens, longer, numbers.older_token_line),
    )


def _batching(setting: Setting, capacity: CapacityReport) -> BatchingReport:
    plan = setting.plan
    running = capacity.running(plan.admission)
    batch = plan.batch or min(max(running, 1), LARGEST_AUTOMATIC_BATCH)
    static = batching.static_utilisation(setting.lengths, batch)
    return BatchingReport(
        batch=batch,
        static_utilisation=static,
        exponential_utilisation=batching.exponential_utilisation(batch),
        gain=1 / static,
    )


def _throughput(report: Report) -> ThroughputReport:
    setting, runs = report.setting, report.replica
    batch = min(report.batching.batch, report.capacity.running(setting.plan.admission))
    if not batch:
        return ThroughputReport()
    found, held = throughput.operate(runs, batch), runs.demand.held
    decode = runs.step.parts(0, batch, batch * held)
    return ThroughputReport(
        batch=batch,
        decode_step_s=runs.step.step_s(0, batch, batch * held),
        tokens_per_step=runs.step.accepted,
        prefill_s=throughput.first_token_s(runs),
        tokens_per_s=found.tokens_per_s,
        requests_per_s=found.requests_per_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
        critical_batch=throughput.critical_batch(setting, runs),
        kv_equals_weights_batch=throughput.kv_equals_weights_batch(runs),
        binding=decode.binding,
        tpot_batch=throughput.tpot_batch(runs, setting.tpot_s, batch),
        ttft_batch=throughput.ttft_batch(runs, setting.ttft_s, batch),
    )


def _fleet(report: Report) -> fleet.Fleet:
    """The fleet of the closed form, for replicas that meet both targets."""
    batch = report.throughput.meeting_batch
    if not batch or (report.setting.arrival_rate or 0.0) < LEAST_RATE:
        return fleet.NO_FLEET
    return fleet.fleet(report.setting, report.replica, batch)


def _paging(setting: Setting, held: CacheReport, block_size: int) -> PagingReport:
    completed = totals(setting.lengths, setting.plan.context)
    if not held.bytes_per_token:
        # States alone have one size: no block is left unfilled, and nothing is reserved for tokens.
        nothing = {part.name: 0.0 for part in fields(PagingReport) if "waste" in part.name}
        return PagingReport(block_size, completed.mean, **nothing)
    wasted = paging.expected_waste(completed, block_size)
    unused = max(0.0, setting.plan.context - completed.mean)
    return PagingReport(
        block_size=block_size,
        mean_tokens=completed.mean,
        waste_tokens=wasted,
        waste_share=paging.booked_share(wasted, completed.mean),
        waste_bytes=wasted * held.bytes_per_token,
        prompt_waste_tokens=paging.prompt_waste(setting.lengths, block_size, setting.plan.context),
        life_waste_tokens=paging.life_waste(setting.lengths, block_size, setting.plan.context),
        contiguous_waste_tokens=unused,
        contiguous_waste_share=unused / setting.plan.context,
    )


def _plain(value):
    """Plain JSON values: dataclasses and named tuples as objects, tuples as lists, numpy scalars as numbers."""
    if isinstance(value, (Plan, Source)):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
