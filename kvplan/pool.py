"""A plan's pool over time: the same requests under both policies."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from kvplan import lengths, moments
from kvplan.catalog import Setting
from kvplan.moments import Moment
from kvplan.plan import Plan
from kvplan.report import Report, evaluate
from kvplan.scheduler import Progress
from kvplan.simulate import POLICIES, Simulation, percentiles, simulate
from kvplan.traffic import LEAST_RATE
from kvplan.units import count, mean, percent_exact
from kvplan.version import VERSION

SCHEMA = "kvplan.simulation/1"
SEED = 37
REQUESTS_PER_RUNNING = 15
FEWEST, MOST_AT_ONCE = 500, 12_000
"""Requests of a run that a page waits for: enough for a steady state, and done in some 0.1 s."""
MOST_REPORTS = 8
"""Reports of progress, one each 50,000 steps, after which a page stops a run: some seconds."""
TIMES = ("ttft_s", "tpot_s", "e2e_s")
PERCENTILES = ("p50", "p95", "p99")
KEPT = tuple(part.name for part in fields(Simulation) if part.type in ("str", "int", "float"))
"""What of a run is one word or one number."""
PATHS = (*KEPT, *(f"{time}.{percentile}" for time in TIMES for percentile in PERCENTILES))
PER_REQUEST = (*TIMES, "places", "admitted_steps", "first_steps", "completed_steps", "preempted_places")


class Stopped(ValueError):
    """A run that its `progress` stopped."""


@dataclass(frozen=True, eq=False)
class Run:
    """One policy's run without what has an entry for each request, and percentiles (50, 95, 99) instead of it."""

    outcome: Simulation
    ttft_s: tuple[float | None, ...]
    tpot_s: tuple[float | None, ...]
    e2e_s: tuple[float | None, ...]


@dataclass(frozen=True, eq=False)
class Runs:
    """The same `number` of requests under both policies, how they came, and moments of the run on demand by their
    names."""

    number: int
    came: str
    reserve: Run
    on_demand: Run
    moments: dict[str, Moment]


def usual_number(report: Report) -> int:
    """Requests that fill the pool some ten times over, or as many as were observed in order."""
    if report.setting.workload is not None and report.setting.workload.samples:
        return len(report.setting.workload.samples)
    wanted = REQUESTS_PER_RUNNING * report.capacity.on_demand_running
    return min(max(FEWEST, wanted), MOST_AT_ONCE)


def requests_of(setting: Setting, number: int) -> np.ndarray:
    """So many requests (0, prompt, output) of the workload, int64 of shape (n, 3): as observed, or drawn from it."""
    samples = setting.workload and setting.workload.samples
    if samples and number <= len(samples):
        prompts, outputs = np.array(samples[:number], dtype=np.int64).T
    else:
        prompts, outputs = lengths.draw(setting.lengths, number, SEED)
    return np.column_stack([np.zeros(number, dtype=np.int64), prompts, outputs])


def arrivals_of(setting: Setting) -> tuple | None:
    """How requests come at the plan's rate: gaps that vary as the plan says, exponential where it says nothing. None
    where the plan has no rate, or next to none."""
    if (setting.arrival_rate or 0) < LEAST_RATE:
        return None
    return "gamma", setting.arrival_rate, 1.0 if setting.arrival_cv is None else setting.arrival_cv


def runs(
    report: Report,
    requests,
    arrivals: tuple | None = None,
    preemption: str = "recompute",
    progress: Progress | None = None,
) -> Runs:
    """Both policies on the same requests (arrival_s, prompt, output[, hashes]). Raises ValueError where the plan cannot
    serve, or `progress` stopped a run, which is called with the requests done of both."""
    simulations = []
    for number, policy in enumerate(POLICIES):
        found = simulate(
            requests,
            report.plan,
            model=report.setting.structure.handed,
            policy=policy,
            preemption=preemption,
            arrivals=arrivals,
            seed=SEED,
            progress=progress and partial(_tell, progress, number),
        )
        if found.unfinished:
            raise Stopped("the run was stopped")
        simulations.append(found)
    reserve, on_demand = simulations
    times, prompts = _times_and_prompts(requests)
    names_prefixes = len(requests) > 0 and len(requests[0]) > 3
    return Runs(
        number=len(requests),
        came=_came(times, arrivals),
        reserve=_without_arrays(reserve),
        on_demand=_without_arrays(on_demand),
        # What requests that name their own prefixes share in a moment is not known.
        moments={} if names_prefixes else moments.moments(report.setting, on_demand, prompts),
    )


def runs_at_once(report: Report, requests, arrivals: tuple | None = None) -> Runs | None:
    """`runs` for a page, None where they take more steps than it waits for."""
    left = iter(range(MOST_REPORTS))
    try:
        return runs(report, requests, arrivals, progress=lambda done, total: next(left, None) is not None)
    except Stopped:
        return None


def _times_and_prompts(requests) -> tuple[np.ndarray, np.ndarray]:
    drawn = isinstance(requests, np.ndarray)
    rows = requests[:, :2] if drawn else np.array([row[:2] for row in requests], dtype=float)
    times, prompts = rows.reshape(-1, 2).T
    return times, prompts.astype(np.int64)


def _came(times: np.ndarray, arrivals: tuple | None) -> str:
    if arrivals is not None:
        rate = arrivals[1]
        return f"at {count(rate) if rate >= 1000 else format(rate, '.3g')} requests/s"
    return "all at once" if np.unique(times).size < 2 else "at their own times"


def runs_of_plan(plan: Plan, requests, arrivals: tuple | None = None, progress: Progress | None = None) -> Runs:
    """`runs` for a process of its own, which is handed a plan; `requests` is how many, or a sequence of them."""
    report = evaluate(plan)
    if isinstance(requests, int):
        requests = requests_of(report.setting, requests)
    return runs(report, requests, arrivals, progress=progress)


def _tell(progress: Progress, number: int, done: int, total: int) -> bool | None:
    """Progress of one of two runs as that of both."""
    return progress(number * total + done, 2 * total)


def results(runs: Runs) -> list[dict]:
    """Both runs beside each other, figure by figure, as words."""
    columns = {"Reserve": runs.reserve, "On demand": runs.on_demand}
    return [
        {"Figure": name} | {policy: words(run) for policy, run in columns.items()} for name, words in FIGURES.items()
    ]


def to_dict(plan: Plan, found: Runs) -> dict:
    """What `simulate --json` prints: of each run its counts, shares and times; null for what is undefined."""

    def run(one: Run) -> dict:
        counts = {name: getattr(one.outcome, name) for name in KEPT}
        times = {name: dict(zip(PERCENTILES, getattr(one, name), strict=True)) for name in TIMES}
        return counts | times | {"notes": list(one.outcome.notes)}

    parts = {"reserve": run(found.reserve), "on_demand": run(found.on_demand)}
    head = {"schema": SCHEMA, "version": VERSION, "plan": plan.model_dump(mode="json")}
    return head | {"requests": found.number} | parts


def _seconds(values: tuple[float | None, ...]) -> str:
    return " / ".join(map(_duration, values))


def _duration(value: float | None) -> str:
    """Seconds with three figures, whole ones from a hundred on, without an exponent."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.6f}"


FIGURES = {
    "Requests running, mean before the tail": lambda run: count(run.outcome.running_before_drain),
    "Requests running, most": lambda run: count(run.outcome.peak_running),
    "Steps": lambda run: count(run.outcome.steps),
    "Slot-steps used": lambda run: percent_exact(run.outcome.busy),
    "Blocks booked, mean of the pool": lambda run: percent_exact(run.outcome.mean_blocks / run.outcome.num_blocks),
    "Blocks booked, most of the pool": lambda run: percent_exact(run.outcome.peak_blocks / run.outcome.num_blocks),
    "Tokens a running request holds, mean": lambda run: mean(run.outcome.mean_tokens),
    "Preemptions": lambda run: count(run.outcome.preemptions),
    "Requests preempted": lambda run: count(run.outcome.preempted_requests),
    "Tokens computed again": lambda run: count(run.outcome.wasted_tokens),
    "Prompt tokens found in the pool": lambda run: count(run.outcome.prefix_hit_tokens),
    "Time to first token, s (50 / 95 / 99%)": lambda run: _seconds(run.ttft_s),
    "Time per output token, s (50 / 95 / 99%)": lambda run: _seconds(run.tpot_s),
    "End to end, s (50 / 95 / 99%)": lambda run: _seconds(run.e2e_s),
    "Output tokens/s": lambda run: mean(run.outcome.output_tokens_per_s),
    "L, requests in the system": lambda run: f"{run.outcome.mean_in_system:,.2f}",
    "λ, requests completed/s": lambda run: f"{run.outcome.rate:,.3f}",
    "W, seconds in the system": lambda run: f"{run.outcome.mean_time_in_system:,.3f}",
    "λ × W": lambda run: f"{run.outcome.rate * run.outcome.mean_time_in_system:,.2f}",
    "Completed": lambda run: count(run.outcome.completed),
    "Rejected, prompt as long as the context": lambda run: count(run.outcome.rejected),
    "Output cut at the context or max_tokens": lambda run: count(run.outcome.truncated),
}
"""What a run says, by its name."""


def _without_arrays(simulation: Simulation) -> Run:
    return Run(
        outcome=replace(simulation, **dict.fromkeys(PER_REQUEST, np.zeros(0))),
        ttft_s=percentiles(simulation.ttft_s),
        tpot_s=percentiles(simulation.tpot_s),
        e2e_s=percentiles(simulation.e2e_s),
    )
