"""Requests through the block pool of a plan: what runs, what waits, what is preempted, and how long it takes.

`simulate` is a function of its arguments alone: the same requests, plan and seed give the same run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Real

import numpy as np

from kvplan.catalog import Setting, resolve
from kvplan.ceiling import ceilings
from kvplan.engine import Layout, capacity, in_flight_tokens, layout
from kvplan.growth import NO_GROWTH, blocks_by_tokens, growth
from kvplan.memory import budget
from kvplan.plan import Plan
from kvplan.prefix_cache import of_hashes, of_prefix
from kvplan.roofline import remembered
from kvplan.roofline import step_time as estimated_step_time
from kvplan.roofline_facts import TYPICAL_STEP_S
from kvplan.scheduler import Load, Progress, Record, Server, StepTime, serve
from kvplan.specs import ModelSpec, cache_problem, require_one_of, shown
from kvplan.throughput import mean_attended, pool_hits, prompt_hits
from kvplan.traffic import Traffic, traffic
from kvplan.units import binary

POLICIES = ("reserve", "on_demand")
PREEMPTIONS = ("recompute", "swap")


@dataclass(frozen=True, eq=False)
class Timeline:
    """The run at a few thousand of its steps, arrays of one entry each: the step, the seconds since the first arrival
    at its end, requests running and waiting in it, blocks booked and tokens held. `waiting` are those that had come
    when the step began, and those that were preempted; `blocked`
    whether one of them waits for blocks or for a slot, and not only for its turn to be prefilled."""

    steps: np.ndarray
    seconds: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    blocks: np.ndarray
    tokens: np.ndarray
    blocked: np.ndarray


@dataclass(frozen=True, eq=False)
class Simulation:
    """One run of requests through a pool.

    `slots` requests may run at once, `num_blocks` are in the pool, `max_tokens` may be generated.

    Counts: `steps` run, `completed`, `rejected` (a prompt as long as the context; in no other figure), `truncated`
    (output cut at the context or at max_tokens), `unfinished` (0 unless stopped), `preemptions`, of so many
    `preempted_requests`. `busy` is the share of slot-steps in which a request ran. `mean_running` ran in a step on
    average, `running_before_drain` in the steps before the last request was admitted (or in the first), as the tail in
    which nothing waits any more would hide it, `peak_running` at most. `mean_blocks` and `peak_blocks` were booked of
    `num_blocks`; `mean_tokens` are what a running request held on average.

    Tokens: `prefill_tokens` computed of prompts, `prefix_hit_tokens` of prompts that were found in the pool,
    `wasted_tokens` computed again after a preemption, `swapped_tokens` moved out and in instead, `output_tokens`.
    prefill + hits = prompts + wasted.

    Time, from the first arrival to the last completion: `makespan_s`; `mean_in_system` L is the integral of requests in
    the system over it, `rate` λ the completions a second, `mean_time_in_system` W their mean time, each measured for
    itself. `ttft_s`, `tpot_s` (NaN for a single token) and `e2e_s` have one entry a completed request, in the order of
    the requests given; so have `places` (their places among these), `admitted_steps`, `first_steps` and
    `completed_steps`.

    `preempted_at` are the steps of the preemptions and `preempted_places` whose they were.
    """

    policy: str
    preemption: str
    slots: int
    num_blocks: int
    max_tokens: int
    steps: int
    completed: int
    rejected: int
    truncated: int
    unfinished: int
    preemptions: int
    preempted_requests: int
    busy: float
    mean_running: float
    running_before_drain: float
    peak_running: int
    mean_blocks: float
    peak_blocks: int
    mean_tokens: float
    prompt_tokens: int
    prefill_tokens: int
    prefix_hit_tokens: int
    wasted_tokens: int
    swapped_tokens: int
    output_tokens: int
    makespan_s: float
    mean_in_system: float
    rate: float
    mean_time_in_system: float
    output_tokens_per_s: float
    ttft_s: np.ndarray
    tpot_s: np.ndarray
    e2e_s: np.ndarray
    places: np.ndarray
    admitted_steps: np.ndarray
    first_steps: np.ndarray
    completed_steps: np.ndarray
    preempted_at: np.ndarray
    preempted_places: np.ndarray
    timeline: Timeline
    notes: tuple[str, ...]


def simulate(
    requests: Sequence[Sequence] | np.ndarray,
    plan: Plan,
    *,
    model: ModelSpec | None = None,
    policy: str | None = None,
    preemption: str = "recompute",
    arrivals: tuple | None = None,
    step_time: StepTime | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Simulation:
    """Serve requests (arrival_s, prompt, output[, hashes]) with the pool, the slots and the limits of a plan.

    `policy`: "reserve" books the declared maximum min(context, prompt + max_tokens) of a request with its admission and
    never preempts; "on_demand" books what is written and grows block by block; None is the plan's `admission`. A
    preempted request keeps what it generated and computes its cache again ("recompute"), or has it moved to the host
    and back ("swap", whose copies take no time here). `arrivals`: None as given, ("poisson", rate) or
    ("gamma", rate, cv). `max_tokens` None in the plan is the longest output among the requests, rejected ones included.

    `step_time`: seconds of every step, with a prompt computed whole in the step that admits it; or a function
    (prefill_tokens, decoding, resident_tokens) -> s, with prompts computed in parts under max_num_batched_tokens, where
    `resident_tokens` are those that all running requests hold at the end of the step; None is the plan's own: its
    `step_s`, else the estimate of `roofline`, such a function.
    `hashes` name the prefix of a prompt in pieces of 512 tokens, as Mooncake's traces do; they are used where the plan
    caches prefixes, in place of its shared prefix.

    `progress(done, total)` is called every 20,000 requests or 50,000 steps, and stops the run by returning False.
    Raises ValueError, one line, for requests, arrivals, a policy or a step time that are none, and for a plan that
    cannot serve.

    >>> run = simulate([(0, 100, 20)] * 7 + [(0, 100, 500)], Plan(max_num_seqs=8), step_time=1)
    >>> run.steps, run.busy, run.output_tokens
    (500, 0.16, 640)
    """
    policy = policy or plan.admission
    require_one_of("policy", policy, POLICIES)
    require_one_of("preemption", preemption, PREEMPTIONS)
    setting = resolve(plan, model)
    shape, num_blocks, slots = _pool(setting)
    found = traffic(requests, context=plan.context, max_tokens=plan.max_tokens, arrivals=arrivals, seed=seed)
    step_time = _step_time(setting, found) if step_time is None else _checked(step_time)

    in_chunks = callable(step_time)
    server = Server(
        num_blocks=num_blocks,
        slots=min(slots, setting.max_num_batched_tokens) if in_chunks else slots,
        step_time=step_time,
        swaps=preemption == "swap",
        **({"max_num_batched_tokens": setting.max_num_batched_tokens} if in_chunks else {}),
    )
    run = serve(found, _load(setting, shape, found, policy, num_blocks), server, progress)
    return _result(run, found, server, policy, preemption, tuple(_notes(plan, found)))


def percentiles(values: np.ndarray, shares: Sequence[float] = (0.5, 0.95, 0.99)) -> list[float | None]:
    """Quantiles of what is defined; None where nothing is.

    >>> percentiles(np.array([1.0, 2.0, np.nan, 3.0]), [0.5])
    [2.0]
    """
    defined = values[~np.isnan(values)]
    return [float(value) for value in np.quantile(defined, shares)] if defined.size else [None] * len(shares)


def _pool(setting: Setting) -> tuple[Layout, int, int]:
    """The structure of the cache, the blocks of the pool, and how many requests may run at once whatever they hold:
    max_num_seqs, within the quota of the tenant whose requests they are. The null block is not subtracted, as in what
    the engine prints. Raises ValueError where the engine would not start, or not one request would run."""
    if problem := cache_problem(setting.model.groups):
        raise ValueError(f"model: {problem}")
    shape = layout(setting)
    if shape.refused:
        raise ValueError(shape.refused)
    context, pool = setting.plan.context, budget(setting).pool_bytes
    numbers = capacity(shape, context, pool, in_flight_tokens(setting, context))
    found = ceilings(setting, shape, numbers, context)
    if not numbers.fits or not found.memory_ceiling:
        needed = binary(blocks_by_tokens(setting, shape)(context) * shape.bytes_per_block)
        raise ValueError(f"plan: one request of {context:,} tokens needs {needed}, the pool has {binary(pool)}")
    if found.tenant_quota == 0:
        raise ValueError("tenant_quota_fraction: is less than one sequence, so nothing can run")
    return shape, numbers.num_blocks, min(setting.max_num_seqs, found.tenant_quota or setting.max_num_seqs)


def _load(setting: Setting, shape: Layout, found: Traffic, policy: str, num_blocks: int) -> Load:
    """What the requests ask of the pool, and what they share."""
    plan, blocks = setting.plan, blocks_by_tokens(setting, shape)
    cache, units, shared = None, [], 0
    if _is_hashed(plan, found):
        cache, units = of_hashes(found.hashes, found.prompts, shape, num_blocks)
    elif setting.shared_prefix_tokens:
        cache, units = of_prefix(setting.shared_prefix_tokens, found.prompts, shape, num_blocks)
    if cache is not None:
        shared = cache.unit_blocks * np.fromiter(map(len, units), dtype=np.int64, count=len(units))

    if policy == "reserve":
        booked = blocks(found.declared) - shared
        return Load(booked, booked, blocks, NO_GROWTH, cache, units)
    first, last = blocks(found.prompts + 1) - shared, blocks(found.prompts + found.outputs) - shared
    grows = growth(shape, in_flight_tokens(setting, plan.context), plan.spec_tokens)
    return Load(first, last, lru_cache(maxsize=2**16)(blocks), grows, cache, units)


def _is_hashed(plan: Plan, found: Traffic) -> bool:
    """Whether the requests share what their hashes name."""
    return found.hashes is not None and plan.enable_prefix_caching


def _notes(plan: Plan, found: Traffic) -> Iterator[str]:
    if _is_hashed(plan, found) and plan.shared_prefix_tokens:
        yield "shared_prefix_tokens: ignored, the requests name their own prefixes"
    if found.hashes is not None and not plan.enable_prefix_caching:
        yield "hashes: ignored, as the plan does not cache prefixes"


def _result(
    run: Record, found: Traffic, server: Server, policy: str, preemption: str, notes: tuple[str, ...]
) -> Simulation:
    done = np.flatnonzero(run.last_steps)
    # In the order of the requests as given, which need not be that of their arrival.
    done = done[np.argsort(found.places[done])]
    arrivals, prompts, outputs = found.arrivals_s[done], found.prompts[done], found.outputs[done]
    firsts, ends = run.first_s[done], run.last_s[done]
    begin = float(found.arrivals_s[0]) if found.arrivals_s.size else 0.0
    makespan = float(ends.max(initial=begin)) - begin
    with np.errstate(invalid="ignore"):
        tpot = np.where(outputs > 1, (ends - firsts) / (outputs - 1), np.nan)
    preempted = np.array(run.preemptions, dtype=np.int64).reshape(-1, 2)
    return Simulation(
        policy=policy,
        preemption=preemption,
        slots=server.slots,
        num_blocks=server.num_blocks,
        max_tokens=found.max_tokens,
        steps=run.steps,
        completed=done.size,
        rejected=found.rejected,
        truncated=found.truncated,
        unfinished=found.prompts.size - done.size,
        preemptions=len(run.preemptions),
        preempted_requests=np.unique(preempted[:, 1]).size,
        busy=_share(run.running_sum, server.slots * run.steps),
        mean_running=_share(run.running_sum, run.steps),
        running_before_drain=_share(run.before_drain[1], run.before_drain[0]),
        peak_running=run.peak_running,
        mean_blocks=_share(run.blocks_sum, run.steps),
        peak_blocks=run.peak_blocks,
        mean_tokens=_share(run.tokens_sum, run.running_sum),
        prompt_tokens=int(prompts.sum()),
        prefill_tokens=run.prefill_tokens,
        prefix_hit_tokens=run.hit_tokens,
        wasted_tokens=run.wasted_tokens,
        swapped_tokens=run.swapped_tokens,
        output_tokens=int(outputs.sum()),
        makespan_s=makespan,
        mean_in_system=_mean_in_system(arrivals, ends, makespan),
        rate=_share(done.size, makespan),
        mean_time_in_system=float((ends - arrivals).mean()) if done.size else 0.0,
        output_tokens_per_s=_share(int(outputs.sum()), makespan),
        ttft_s=firsts - arrivals,
        tpot_s=tpot,
        e2e_s=ends - arrivals,
        places=found.places[done],
        admitted_steps=run.admitted_steps[done],
        first_steps=run.first_steps[done],
        completed_steps=run.last_steps[done],
        preempted_at=preempted[:, 0],
        preempted_places=found.places[preempted[:, 1]],
        timeline=_timeline(run, found, begin),
        notes=notes,
    )


def _mean_in_system(arrivals: np.ndarray, ends: np.ndarray, makespan: float) -> float:
    """The integral of the number of requests in the system over time, from their comings and goings, per second."""
    times = np.concatenate([arrivals, ends])
    changes = np.repeat([1, -1], arrivals.size)
    order = np.argsort(times, kind="stable")
    present = np.cumsum(changes[order])
    return _share(float(present[:-1] @ np.diff(times[order])), makespan) if times.size else 0.0


def _timeline(run: Record, found: Traffic, begin: float) -> Timeline:
    steps, begins, ends, running, preempted, ever, blocks, tokens, blocked = run.samples.T
    waiting = np.searchsorted(found.arrivals_s, begins, side="right") - ever + preempted
    whole = (values.astype(np.int64) for values in (running, waiting, blocks, tokens))
    return Timeline(steps.astype(np.int64), ends - begin, *whole, blocked.astype(bool))


def _step_time(setting: Setting, found: Traffic) -> StepTime:
    """The plan's own: what it gives, else the estimate for the prompts that come, else a round number, of which the
    setting's notes speak. Hits that the pool does not count for itself, as the plan only gives their rate, shorten the
    prefill."""
    plan, prompts = setting.plan, found.prompts.astype(float)
    if plan.step_s is not None:
        return plan.step_s
    # How much the requests' own prefixes save shows only in the run.
    hashed = _is_hashed(plan, found)
    hits = np.zeros_like(prompts) if hashed else prompt_hits(setting, prompts)
    counted = np.zeros_like(prompts) if hashed else pool_hits(setting, prompts)
    estimate = estimated_step_time(setting, mean_attended(prompts, hits, np.ones_like(prompts)))
    if estimate is None:
        return TYPICAL_STEP_S
    computed, passed = float((prompts - hits).sum()), float((prompts - counted).sum())
    return remembered(replace(estimate, computed_share=computed / passed if passed else 1.0))


def _checked(step_time: StepTime) -> StepTime:
    if callable(step_time):
        return step_time
    if not isinstance(step_time, Real) or not 0 < step_time < math.inf:
        raise ValueError(f"step_time: must be seconds above 0 or a function, got {shown(step_time)}")
    return float(step_time)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
