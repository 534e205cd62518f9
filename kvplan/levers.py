"""What moves a plan: one change at a time, each a plan of its own, and what it does to the ceiling and to the cost.

Every effect is read off the report of the changed plan; nothing here adds to it. Quality is not modelled: each lever
carries one word, and the source that speaks of it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from kvplan.fleet import replica_gpus, usd_per_million_tokens
from kvplan.lever_ideas import Idea, Quality, ideas
from kvplan.plan import Plan
from kvplan.report import Report, evaluate
from kvplan.units import LEAST_USD, gib, gib_or_less
from kvplan.version import VERSION

SCHEMA = "kvplan.levers/1"


@dataclass(frozen=True)
class Effect:
    """What a plan reaches. `ceiling` is the sequences that run under its admission, `memory_ceiling` those by memory
    alone, `binding` the limit that holds. The rest is at `batch`, the ceiling or the most that runs without a batch of
    its own: `usd_per_million_tokens` of output over the `gpus` of a replica, None where no token comes out."""

    ceiling: int = 0
    memory_ceiling: int = 0
    binding: str = "does_not_fit"
    gpus: int = 0
    batch: int = 0
    decode_step_s: float | None = None
    tpot_s: float | None = None
    tokens_per_s: float = 0.0
    usd_per_million_tokens: float | None = None


@dataclass(frozen=True)
class Lever:
    """One change: `about` says what it is, `quality` is one word and `source` who speaks of it. Where it is offered:
    the fields `changed`, the `plan` they make and what that reaches `after`; else `why_not`."""

    id: str
    name: str
    about: str
    quality: Quality
    source: str
    changed: tuple[str, ...] = ()
    plan: Plan | None = None
    after: Effect | None = None
    why_not: str | None = None


@dataclass(frozen=True)
class Levers:
    """The plan that is changed, its batch left to the ceiling, what it reaches, and every lever on it."""

    plan: Plan
    before: Effect
    levers: tuple[Lever, ...] = ()

    @property
    def offered(self) -> tuple[Lever, ...]:
        return tuple(lever for lever in self.levers if lever.why_not is None)

    @property
    def priced(self) -> tuple[Lever, ...]:
        """Those offered whose tokens have a cost."""
        return tuple(lever for lever in self.offered if (lever.after.usd_per_million_tokens or 0) >= LEAST_USD)

    @property
    def not_offered(self) -> tuple[Lever, ...]:
        return tuple(lever for lever in self.levers if lever.why_not is not None)


def levers(report: Report) -> Levers:
    """Every lever on the plan of a report, tried one at a time; none where the plan names an unknown preset.

    A model of one's own has to travel in the plan's `spec`, as each lever is evaluated from its plan alone.
    """
    plan = report.plan.model_copy(update={"batch": None})
    now = report if plan == report.plan else evaluate(plan)
    if now.setting is None:
        return Levers(plan, Effect())
    before = _effect(now)
    return Levers(plan, before, tuple(_tried(plan, before, idea) for idea in ideas(now.setting, now.capacity.min_tp)))


def best_ceiling(found: Levers) -> Lever | None:
    """The lever under which most sequences run; None where none runs more than the plan."""
    best = max(found.offered, key=lambda lever: (lever.after.ceiling, lever.after.memory_ceiling), default=None)
    return best if best and best.after.ceiling > found.before.ceiling else None


def best_cost(found: Levers) -> Lever | None:
    """The lever under which tokens cost least, on the plan's own GPU, whose price is known; None where none saves."""
    known = [lever for lever in found.priced if keeps_price(lever)]
    best = min(known, key=lambda lever: lever.after.usd_per_million_tokens, default=None)
    now = found.before.usd_per_million_tokens
    return best if best and (now is None or best.after.usd_per_million_tokens < now) else None


def keeps_price(lever: Lever) -> bool:
    """Whether the plan's price of a device is that of the lever's."""
    return "gpu" not in lever.changed


def to_dict(plan: Plan, found: Levers) -> dict:
    """What `levers --json` prints: the plan, what it reaches, and of each lever the fields it sets and what they make
    of it; null for what is undefined."""
    listed = [
        {name: value for name, value in asdict(lever).items() if name not in ("changed", "plan")}
        | {"changes": {name: getattr(lever.plan, name) for name in lever.changed}}
        for lever in found.levers
    ]
    head = {"schema": SCHEMA, "version": VERSION, "plan": plan.model_dump(mode="json")}
    return head | {"before": asdict(found.before), "levers": listed}


def _tried(plan: Plan, before: Effect, idea: Idea) -> Lever:
    """The lever of an idea: what its plan reaches, or why it is not offered."""
    *known, changes = idea
    if isinstance(changes, str):
        return Lever(*known, why_not=changes)
    changed = plan.model_copy(update=changes)
    report = evaluate(changed)
    after = _effect(report)
    if why_not := _why_not(report, before, after):
        return Lever(*known, why_not=why_not)
    return Lever(*known, tuple(changes), changed, after)


def _why_not(report: Report, before: Effect, after: Effect) -> str | None:
    """Why a change that was tried is not offered."""
    if report.engine.refused:
        return report.engine.refused
    if not after.ceiling:
        none = "not one sequence runs" if report.engine.fits else "does not fit"
        return f"{none}{'' if before.ceiling else ' either'}{_missing(report)}"
    return "changes neither the ceiling nor the cost of this plan" if _same(before, after) else None


def _missing(report: Report) -> str:
    """By how much one request does not fit."""
    engine, memory = report.engine, report.memory
    if memory.shortfall_bytes:
        return f", short by {gib(memory.shortfall_bytes)} a device"
    if engine.fits:
        return ""
    return f", one request needs {gib_or_less(engine.needed_bytes)} of {gib_or_less(engine.usable_bytes)}"


def _same(one: Effect, other: Effect) -> bool:
    """Whether two effects are one, but for rounding."""
    whole = (one.ceiling, one.memory_ceiling, one.gpus) == (other.ceiling, other.memory_ceiling, other.gpus)
    return whole and math.isclose(one.tokens_per_s, other.tokens_per_s)


def _effect(report: Report) -> Effect:
    capacity, run, admission = report.capacity, report.throughput, report.plan.admission
    gpus = replica_gpus(report.setting)
    return Effect(
        ceiling=capacity.running(admission),
        memory_ceiling=capacity.on_demand_ceiling if admission == "on_demand" else capacity.memory_ceiling,
        binding=_binding(report),
        gpus=gpus,
        batch=run.batch,
        decode_step_s=run.decode_step_s,
        tpot_s=run.tpot_s,
        tokens_per_s=run.tokens_per_s,
        usd_per_million_tokens=usd_per_million_tokens(gpus * report.setting.gpu_hour_usd, run.tokens_per_s),
    )


def _binding(report: Report) -> str:
    """The limit that holds the ceiling, as the report names it; on demand by what runs on average."""
    capacity = report.capacity
    running = capacity.running(report.plan.admission)
    if report.plan.admission == "reserve" or not running:
        return capacity.binding
    if running == capacity.on_demand_ceiling:
        return "memory"
    return "tenant_quota" if running == capacity.tenant_quota else "max_num_seqs"
