"""What the Throughput page shows: rates against batch, what limits the batch, and the plan's place among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvplan import pool, throughput
from kvplan.report import LARGEST_AUTOMATIC_BATCH, Report
from kvplan.roofline import StepParts
from kvplan.simulate import percentiles, simulate
from kvplan.throughput import Engine, Operation, operate

POINTS_PER_OCTAVE = 6
FURTHEST = 2**16
"""No limit is looked for beyond this batch."""
LITTLE_GAIN = 0.10
"""Twice the batch for so little more is no gain: then bandwidth or compute is the limit, and not the batch."""
USUAL_LOAD, HIGHEST_LOAD = 0.8, 0.95
"""Of what a replica can do: where the plan's own rate is none or too much for one, and what is too much."""
STEPS, FEWEST, MOST = 20_000, 400, 3_000
"""Of a simulation that a page waits for: steps, and requests."""
MOST_STEPS = 100_000
"""Of one that takes a page some half a second; longer ones are left to the command line."""


@dataclass(frozen=True, eq=False)
class Rates:
    """Operations over batches, and the plan's: `own` at `batch`, bound by `binding`; `could` is the next limit behind
    it, None where nothing but the binding one is in reach. `limits` are batches by name: memory, max_num_seqs,
    tenant_quota, tpot, ttft; `gain` is what twice the batch would add to the tokens."""

    engine: Engine
    curve: tuple[Operation, ...]
    own: Operation
    binding: str
    limits: dict[str, int]
    could: Operation | None
    could_binding: str
    gain: float


@dataclass(frozen=True)
class Point:
    """One kind of step on the roofline of a device: FLOP for each byte it reads, and FLOP/s it attains."""

    name: str
    flop_per_byte: float
    flop_per_s: float
    parts: StepParts


@dataclass(frozen=True)
class Roofline:
    """A device's roof, at peak and as far as measured efficiency reaches, with the plan's decode and prefill below."""

    peak_flop_per_s: float
    peak_bytes_per_s: float
    flop_per_s: float
    bytes_per_s: float
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Comparison:
    """Times of requests in seconds at the same rate, the plan's or why not: by the closed form, and simulated (mean,
    and 50, 95, 99%)."""

    requests_per_s: float
    of_plan: bool
    why_not_plan: str
    number: int
    closed: Operation
    concurrency: float
    rows: dict[str, tuple[float | None, ...]]


def rates(report: Report, batches: Sequence[int] | None = None) -> Rates | None:
    """The rates of a plan, at some batches or from 1 to 512 and further where the plan's is larger; None where it runs
    no sequence or its step time is not known."""
    found = report.throughput
    if not found.batch:
        return None
    engine = throughput.engine(report.setting)
    limits = _limits(report, engine)
    binding = min(limits, key=limits.get)
    batch = max(1, min(found.batch, limits[binding]))
    if batch < limits[binding]:
        binding = "batch"
    own = operate(engine, batch)
    gain = operate(engine, 2 * batch).tokens_per_s / own.tokens_per_s - 1
    further = {name: limit for name, limit in limits.items() if limit > batch}
    could = min(further, key=further.get, default="")
    if binding in ("memory", "batch") and gain < LITTLE_GAIN:
        binding = _bound(engine, batch)
    last = 2 ** math.ceil(math.log2(max(LARGEST_AUTOMATIC_BATCH, batch)))
    return Rates(
        engine=engine,
        curve=tuple(operate(engine, int(each)) for each in batches or _batches(last, batch)),
        own=own,
        binding=binding,
        limits=limits,
        could=operate(engine, further[could]) if could and further[could] <= last else None,
        could_binding=could,
        gain=gain,
    )


def roofline(report: Report, found: Rates) -> Roofline:
    """The plan's decode step, at its batch, and its prefill on one device's roofline."""
    step, asked, setting = found.engine.step, found.engine.demand, report.setting
    batch = found.own.concurrency
    room = min(max(asked.computed, 1.0), found.engine.max_num_batched_tokens)
    parts = {"decode": step.parts(0, batch, batch * asked.held), "prefill": step.parts(room, 0, room)}
    gpu = setting.gpu
    return Roofline(
        peak_flop_per_s=step.flop_per_s / setting.efficiency.compute.value,
        peak_bytes_per_s=gpu.bandwidth_bytes_per_s,
        flop_per_s=step.flop_per_s,
        bytes_per_s=step.cache_bytes_per_s,
        points=tuple(_point(found.engine, name, each) for name, each in parts.items()),
    )


def compared(report: Report, found: Rates) -> Comparison | None:
    """Requests at random times through the simulator, at the plan's rate or at 80% of what can run, beside the closed
    form at that rate; None where a page would wait too long."""
    most = report.capacity.running(report.plan.admission)
    capacity = operate(found.engine, most).requests_per_s
    wanted = report.setting.arrival_rate or 0.0
    of_plan = 0 < wanted <= HIGHEST_LOAD * capacity
    rate = wanted if of_plan else USUAL_LOAD * capacity
    why_not = f"the plan's {wanted:,.2f}/s are too many for one replica" if wanted else "the plan has no rate"
    closed = throughput.at_rate(found.engine, rate, most)
    if FEWEST / (rate * closed.step_s) > MOST_STEPS:
        return None
    number = round(min(max(FEWEST, STEPS * rate * closed.step_s), MOST))
    requests = pool.requests_of(report.setting, number)
    # The closed form cuts prompts to the context; the engine would reject these requests.
    requests[:, 1] = np.minimum(requests[:, 1], report.plan.context - 1)
    run = simulate(requests, report.plan, arrivals=("poisson", rate), seed=pool.SEED)
    times = {"TTFT": run.ttft_s, "TPOT": run.tpot_s, "End to end": run.e2e_s}
    closed_times = (closed.ttft_s, closed.tpot_s, closed.e2e_s)
    rows = {
        name: (of_closed, _mean(values), *percentiles(values))
        for (name, values), of_closed in zip(times.items(), closed_times, strict=True)
    }
    return Comparison(rate, of_plan, "" if of_plan else why_not, number, closed, run.mean_in_system, rows)


def _limits(report: Report, engine: Engine) -> dict[str, int]:
    """The largest batches, by what would end them; targets are looked for beyond what the memory holds."""
    capacity, setting = report.capacity, report.setting
    on_demand = report.plan.admission == "on_demand"
    limits = {
        "memory": max(1, capacity.on_demand_ceiling if on_demand else capacity.memory_ceiling),
        "tenant_quota": capacity.tenant_quota,
        "max_num_seqs": capacity.max_num_seqs,
        "tpot": throughput.tpot_batch(engine, setting.tpot_s, FURTHEST),
        "ttft": throughput.ttft_batch(engine, setting.ttft_s, FURTHEST),
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _bound(engine: Engine, batch: float) -> str:
    """What takes most of the steps in which prompts are computed along."""
    held, asked = engine.demand.held, engine.demand
    fed = batch * asked.computed / max(asked.output, 1)
    return engine.step.parts(fed, batch, fed + batch * held).binding


def _batches(last: int, batch: int) -> np.ndarray:
    points = np.geomspace(1, last, 1 + POINTS_PER_OCTAVE * round(math.log2(last)))
    return np.unique(np.append(np.rint(points), batch))


def _point(engine: Engine, name: str, parts: StepParts) -> Point:
    step = engine.step
    flop = parts.matrices_s * step.flop_per_s + parts.attention_s * step.attention_flop_per_s
    read = parts.weights_s * step.weight_bytes_per_s + parts.cache_s * step.cache_bytes_per_s
    return Point(name, flop / read, flop / parts.total_s, parts)


def _mean(values: np.ndarray) -> float | None:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else None
