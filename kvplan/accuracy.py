"""How near kvplan comes to engines: every public start-up that states enough, predicted beside posted.

Two questions are kept apart. From scratch: what pool would kvplan have predicted, knowing only model, GPU and settings?
And from the posted pool: do blocks, tokens and concurrency follow to the last digit?
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from pydantic import model_validator

from kvplan.catalog import presets_dir
from kvplan.plan import Plan, with_pool
from kvplan.report import EngineReport, evaluate
from kvplan.specs import Frozen
from kvplan.units import GIB, figure

ROUNDING_GIB = 0.005
"""Logs print a pool to two decimals of a GiB."""
CLOSE, NEAR = 0.02, 0.05
"""Shares of a device's memory by which errors are counted."""


class Posted(Frozen):
    """The figures of a log, per device. `pool_parts`: the pool is the sum of as many rounded figures."""

    pool_gib: float | None = None
    pool_parts: int = 1
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    kv_cache_tokens: int | None = None
    num_blocks: int | None = None
    max_concurrency: float | None = None
    needed_gib: float | None = None
    suggested_context: int | None = None


class Start(Frozen):
    """One public start-up: what was started, as a plan, and what its log said.

    `predicts_pool`: it states enough to predict the pool from. `calibrates` names the constants that were read from it,
    so that its pool proves nothing about them. `older_token_line`: an engine from before spring 2026, which printed
    other tokens for hybrids. `note` explains a pool, `layout_note` figures that do not follow from the posted pool.
    """

    id: str
    model: str
    gpu: str
    plan: Plan
    posted: Posted
    source: str
    predicts_pool: bool = False
    older_token_line: bool = False
    calibrates: tuple[str, ...] = ()
    note: str = ""
    layout_note: str = ""

    @model_validator(mode="after")
    def _states_its_pool(self) -> Start:
        if self.predicts_pool and self.posted.pool_gib is None:
            raise ValueError("posted.pool_gib: needed where a pool is predicted")
        return self

    @property
    def in_sample(self) -> bool:
        """Whether a constant was read from this start-up."""
        return bool(self.calibrates)


@dataclass(frozen=True)
class PoolError:
    """A pool predicted from scratch beside the posted one, in GiB of one device, and how far off as a share of the
    device's memory. A pool that the weights leave none of is negative, as engines print it."""

    start: Start
    predicted_gib: float
    error: float


@dataclass(frozen=True)
class Figure:
    """A posted figure beside what follows from the posted pool, at both ends of the pool's rounding."""

    start: Start
    name: str
    posted: float
    least: float
    most: float

    @property
    def agrees(self) -> bool:
        return self.least <= self.posted <= self.most


@dataclass(frozen=True)
class Summary:
    """How many pools were predicted, the median error and the shares within 2 and 5 % of the device's memory."""

    number: int
    median: float
    within_close: float
    within_near: float


@lru_cache(maxsize=1)
def starts() -> tuple[Start, ...]:
    """Every public start-up of the project, in the order of the file."""
    rows = json.loads((presets_dir() / "starts" / "starts.json").read_bytes())
    return tuple(Start.model_validate(row) for row in rows)


@lru_cache(maxsize=1)
def pool_errors() -> tuple[PoolError, ...]:
    """The pools that were predicted from scratch, beside the posted ones."""
    return tuple(_pool_error(start) for start in starts() if start.predicts_pool)


@lru_cache(maxsize=1)
def figures() -> tuple[Figure, ...]:
    """Every posted figure that should follow from its posted pool."""
    return tuple(found for start in starts() for found in figures_of(start))


def summary(errors: Iterable[PoolError]) -> Summary:
    """The errors in four numbers.

    >>> summary(pool_errors()).median < 0.02
    True
    """
    sizes = sorted(abs(found.error) for found in errors)
    return Summary(
        number=len(sizes),
        median=sizes[len(sizes) // 2],
        within_close=sum(size <= CLOSE for size in sizes) / len(sizes),
        within_near=sum(size <= NEAR for size in sizes) / len(sizes),
    )


def pool_table() -> list[dict]:
    """The predicted pools as rows, the largest errors first."""
    rows = sorted(pool_errors(), key=lambda found: -abs(found.error))
    return [
        {
            "Start-up": found.start.model,
            "Device": f"{found.start.plan.tp * found.start.plan.pp} × {found.start.gpu}",
            "Engine": _engine(found.start),
            "Posted, GiB": found.start.posted.pool_gib,
            "Predicted, GiB": round(found.predicted_gib, 2),
            "Error, % of device": round(100 * found.error, 2),
            "Sample": "in" if found.start.in_sample else "out",
            "Read from it, or why it misses": found.start.note or ", ".join(found.start.calibrates),
            "Source": found.start.source,
        }
        for found in rows
    ]


def figure_table() -> list[dict]:
    """The figures that should follow from a posted pool, those that do not first."""
    rows = sorted(figures(), key=lambda found: found.agrees)
    return [
        {
            "Start-up": found.start.model,
            "Figure": found.name,
            "Posted": figure(found.posted),
            "From the posted pool": _span(found),
            "Agrees": "yes" if found.agrees else "no",
            "Why not": "" if found.agrees else found.start.layout_note,
            "Source": found.start.source,
        }
        for found in rows
    ]


def weight_table() -> list[dict]:
    """Weights as posted by an engine beside those that kvplan counts, per device, where they differ by 1 % or more."""
    return [
        {
            "Start-up": start.model,
            "Posted, GiB": start.posted.weights_gib,
            "Counted, GiB": round(counted, 2),
            "Difference, %": round(100 * (start.posted.weights_gib / counted - 1), 1),
        }
        for start, counted in _counted_weights()
        if abs(counted - start.posted.weights_gib) >= 0.01 * counted
    ]


@lru_cache(maxsize=1)
def _counted_weights() -> tuple[tuple[Start, float], ...]:
    """The start-ups that posted weights which their plan does not give, and what is counted, in GiB of one device."""
    posted = [start for start in starts() if start.posted.weights_gib is not None and start.plan.weights_gib is None]
    return tuple((start, evaluate(start.plan).memory.weight_bytes / GIB) for start in posted)


def _pool_error(start: Start) -> PoolError:
    memory = evaluate(start.plan).memory
    predicted = memory.signed_pool_bytes / GIB
    return PoolError(start, predicted, (predicted - start.posted.pool_gib) * GIB / memory.total_bytes)


def figures_of(start: Start) -> list[Figure]:
    """The posted figures of one start-up beside what follows from its posted pool."""
    if start.posted.pool_gib is None or start.posted.pool_gib <= 0:
        return []
    margin = ROUNDING_GIB * start.posted.pool_parts
    least, most = (_engine_with(start, start.posted.pool_gib + side) for side in (-margin, margin))
    tokens = "older_token_line" if start.older_token_line else "kv_cache_tokens"
    ends = {
        "kv_cache_tokens": (getattr(least, tokens), getattr(most, tokens)),
        "num_blocks": (least.num_blocks, most.num_blocks),
        "max_concurrency": (round(least.max_concurrency, 2), round(most.max_concurrency, 2)),
        "needed_gib": (round(least.needed_bytes / GIB, 2), round(most.needed_bytes / GIB, 2)),
        "suggested_context": (least.suggested_context or 0, most.suggested_context or start.plan.context),
    }
    return [
        Figure(start, name, posted, *ends[name]) for name in ends if (posted := getattr(start.posted, name)) is not None
    ]


def _engine_with(start: Start, pool_gib: float) -> EngineReport:
    return evaluate(with_pool(start.plan, pool_gib)).engine


def _engine(start: Start) -> str:
    if start.plan.mem_fraction_static is not None:
        return "SGLang"
    return f"vLLM {start.plan.engine_version}"


def _span(found: Figure) -> str:
    ends = [figure(found.least), figure(found.most)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
