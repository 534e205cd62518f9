"""The fewest replicas that meet the targets at the peak rate in the simulator, then checked with other seeds.

One replica stands for all: requests are split at random, so that each sees the peak over their number. The closed form
says where to begin; from there the search steps down while a number passes and up while it fails, in doubling strides,
and bisects what is left. What passes is tried again with seeds that decided nothing yet; where it fails, one more.

Source: splitting a renewal stream of variation c at random in R leaves c_R^2 = 1 + (c^2 - 1) / R (Whitt, The Queueing
Network Analyzer, 1983).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from kvplan import lengths
from kvplan.fleet import NO_FLEET, Fleet, peak_rate, priced
from kvplan.frontier import MOST_REPLICAS, Point, frontier, has_rate, point_of
from kvplan.plan import Plan
from kvplan.report import Report, evaluate
from kvplan.scheduler import Progress
from kvplan.simulate import Simulation, percentiles, simulate
from kvplan.specs import ModelSpec
from kvplan.throughput import demand
from kvplan.traffic import LEAST_RATE
from kvplan.version import VERSION

SCHEMA = "kvplan.fleet/1"
SEEDS, FRESH_SEEDS = 3, 5
"""Runs of a number of replicas, in the search and afterwards; it passes if each of them does, and the first that does
not is the last."""
PERCENTILE = 0.95
FEWEST, MOST = 2_000, 20_000
"""Requests of a run that are judged, after as many that only fill the replica."""
SERVICE_TIMES = 10
"""How often the requests in a replica are replaced while they are judged, at least."""
BURSTS = 50
"""A burst has about as many requests as the square of the gaps' variation; so many are judged, at least."""
WAVES, MOST_AT_ONCE = 10, 50_000
"""How often a replica is filled to see what it completes, and with how many requests at most."""
PATIENCE = 3
"""Numbers that fail before the search asks whether a request alone meets the targets."""
MOST_STEPS = 50_000_000
"""Steps of a run that are still simulated: some minutes."""
MOST_VERIFIED = 20
"""Numbers of replicas that are tried with other seeds before the targets are said to be too close to call."""
ALWAYS_LEFT = 6
"""Nobody knows how many runs follow, so these are said to be left until all are done."""
ROUNDING = 1e-6
"""Share by which a time may exceed its target: what sums of seconds round off."""


@dataclass(frozen=True)
class Trial:
    """So many replicas, one of them simulated with each of `seeds` until a run misses a target: at `rate` requests/s
    with gaps that vary by `cv`. `ttft_s` and `tpot_s` are the 95th percentile of each run over the `judged` requests of
    its second half; None where nothing of these was served, or no output has a second token. `missed` names what the
    last run does not meet: "ttft_s", "tpot_s", or "rate", which is above what a replica completes that always has work.
    """

    replicas: int
    rate: float
    cv: float
    judged: int
    seeds: tuple[int, ...]
    ttft_s: tuple[float | None, ...]
    tpot_s: tuple[float | None, ...]
    missed: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """The answer: `replicas` meet both targets at `peak_rate` requests/s, None where no number does; `fleet` adds the
    plan's spare ones and prices them all.

    `closed_form` is where the search began, None where it had nothing to begin from; `saturated_rate` is what a
    simulated replica completes that always has work, `running` the requests in it then. `trials` are those of the
    search and `verified` those with seeds that decided nothing before, each in the order in which they were made.
    `alone`, where it was asked for: requests that never meet another, whose times no number of replicas betters.
    `simulations` were run in all.
    """

    replicas: int | None
    fleet: Fleet
    peak_rate: float
    closed_form: Point | None
    saturated_rate: float
    running: float
    trials: tuple[Trial, ...]
    verified: tuple[Trial, ...]
    alone: Trial | None
    simulations: int


@dataclass
class _Bench:
    """Where one replica of a plan is simulated, how often it was, and what it did when it was full."""

    plan: Plan
    model: ModelSpec | None
    report: Report
    progress: Progress | None
    simulations: int = 0
    saturated_rate: float = 0.0
    running: float = 1.0
    makespan_s: float = 0.0

    @property
    def peak_rate(self) -> float:
        return peak_rate(self.report.setting)


def search(plan: Plan, model: ModelSpec | None = None, progress: Progress | None = None) -> Found:
    """The smallest fleet of this plan's replicas that meets its targets; the same plan gives the same answer.

    `progress(done, total)` is called before each run, and during long ones, and stops the search by returning False.
    Raises ValueError, one line, where the plan cannot be served or has no arrival rate, where a run would take too
    long or more than 2^20 replicas are needed, and where the search was stopped.

    >>> plan = Plan(workload="auto", output_mean=20, output_dist="fixed", step_s=0.05, max_num_seqs=4, arrival_rate=6)
    >>> found = search(plan)
    >>> found.replicas, found.fleet.gpus, [(trial.replicas, trial.missed) for trial in found.trials]
    (2, 3, [(2, ()), (1, ('ttft_s', 'rate'))])
    """
    bench = _full(_Bench(plan, model, _served(plan, model), progress))
    guess = point_of(bench.report)
    tried: dict[int, Trial] = {}
    alone: list[Trial] = []

    def passes(replicas: int) -> bool:
        if replicas not in tried:
            tried[replicas] = _trial(bench, replicas, range(SEEDS))
        return not tried[replicas].missed

    def may_pass(replicas: int) -> bool:
        """Whether it is worth while to try more than so many."""
        if replicas >= MOST_REPLICAS:
            raise ValueError(f"arrival_rate: the peak needs more than {MOST_REPLICAS:,} replicas")
        if len(tried) >= PATIENCE and not alone:
            alone.append(_alone(bench))
        return not (alone and alone[0].missed)

    replicas = smallest(passes, guess.plan.dp if guess else 1, may_pass)
    verified: list[Trial] = []
    while replicas is not None:
        first = SEEDS + len(verified) * FRESH_SEEDS
        verified.append(_trial(bench, replicas, range(first, first + FRESH_SEEDS)))
        if not verified[-1].missed:
            break
        if len(verified) == MOST_VERIFIED:
            raise ValueError(f"ttft_s, tpot_s: met by chance, up to {replicas:,} replicas failed with other seeds")
        replicas = smallest(passes, replicas + 1, may_pass, replicas)

    if progress is not None:
        progress(1, 1)
    setting = bench.report.setting
    output = demand(setting).output
    return Found(
        replicas=replicas,
        fleet=NO_FLEET if replicas is None else priced(setting, replicas, output),
        peak_rate=bench.peak_rate,
        closed_form=guess,
        saturated_rate=bench.saturated_rate,
        running=bench.running,
        trials=tuple(tried.values()),
        verified=tuple(verified),
        alone=alone[0] if alone else None,
        simulations=bench.simulations,
    )


def at_peak(plan: Plan, replicas: int, model: ModelSpec | None = None) -> Trial:
    """So many replicas at the plan's peak, with the seeds of the search. Raises ValueError as `search` does.

    >>> plan = Plan(workload="auto", output_mean=20, output_dist="fixed", step_s=0.05, max_num_seqs=4, arrival_rate=6)
    >>> at_peak(plan, replicas=2).missed, at_peak(plan, replicas=1).missed
    ((), ('ttft_s', 'rate'))
    """
    return _trial(_full(_Bench(plan, model, _served(plan, model), None)), replicas, range(SEEDS))


def smallest(
    passes: Callable[[int], bool], guess: int, may_pass: Callable[[int], bool], failing: int = 0
) -> int | None:
    """The smallest number that passes, where every larger one does too, above one that is known to fail.

    Strides from the guess double, down while numbers pass and up while they fail; None once `may_pass` denies that any
    number above passes.

    >>> smallest(lambda number: number >= 11, 3, lambda number: True)
    11
    """
    low, high, stride = failing, guess, 1
    if passes(guess):
        low = max(failing, guess - 1)
        while low > failing and passes(low):
            stride *= 2
            low, high = max(failing, low - stride), low
    else:
        low, high = guess, guess + 1
        while not passes(high):
            if not may_pass(high):
                return None
            stride *= 2
            low, high = high, high + stride
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def to_dict(plan: Plan, found: Found) -> dict:
    """What `fleet --json` prints: the fleet, how it was found, and the frontier; null for what is undefined."""
    report = evaluate(plan)
    setting = report.setting
    points = frontier(plan)
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "plan": plan.model_dump(mode="json"),
        "targets": {"ttft_s": setting.ttft_s, "tpot_s": setting.tpot_s, "percentile": PERCENTILE},
        "rate": {"mean": setting.arrival_rate, "peak_to_mean": setting.peak_to_mean, "peak": found.peak_rate},
        "price": {"gpu_hour_usd": setting.gpu_hour_usd, "price_date": plan.price_date},
        "fleet": asdict(found.fleet),
        "closed_form": found.closed_form and _point(found.closed_form),
        "search": {
            "saturated_rate": found.saturated_rate,
            "running": found.running,
            "trials": [asdict(trial) for trial in found.trials],
            "verified": [asdict(trial) for trial in found.verified],
            "alone": found.alone and asdict(found.alone),
            "simulations": found.simulations,
        },
        "frontier": [_point(point) for point in points],
    }


def _point(point: Point) -> dict:
    split = {name: getattr(point.plan, name) for name in ("tp", "pp", "dp")}
    figures = {name: getattr(point, name) for name in ("batch", "rate", "ttft_s", "tpot_s", "meets")}
    return split | figures | {"fleet": asdict(point.fleet)}


def _served(plan: Plan, model: ModelSpec | None) -> Report:
    report = evaluate(plan, model)
    if report.setting is None:
        raise ValueError(report.engine.refused)
    if not has_rate(report):
        raise ValueError("arrival_rate: a fleet needs requests a second above 0, and neither plan nor workload has any")
    return report


def _full(bench: _Bench) -> _Bench:
    """What the replica completes while it always has work, over the middle half of many requests that come at once."""
    running = bench.report.capacity.running(bench.plan.admission)
    number = min(max(2 * FEWEST, WAVES * running), MOST_AT_ONCE)
    found = _simulated(bench, _requests(bench, number, seed=0), None, 0, running)
    if not found.completed:
        raise ValueError(f"context: not one request runs, as each prompt has {bench.plan.context:,} tokens or more")
    begin, end = np.quantile(found.e2e_s, (0.25, 0.75))
    inside = int(((found.e2e_s > begin) & (found.e2e_s <= end)).sum())
    bench.saturated_rate = inside / float(end - begin) if inside else found.rate
    bench.running, bench.makespan_s = found.running_before_drain, found.makespan_s
    return bench


def _trial(bench: _Bench, replicas: int, seeds: Sequence[int]) -> Trial:
    # Slower than this, no two requests would ever meet.
    rate = max(bench.peak_rate / replicas, _lonely_rate(bench))
    cv = split_cv(bench.report.setting.arrival_cv, replicas)
    in_system = bench.running * min(1.0, rate / bench.saturated_rate)
    judged = _judged(bench, rate, cv, in_system)

    def times(seed: int) -> tuple[np.ndarray, np.ndarray]:
        run = _simulated(bench, _requests(bench, 2 * judged, seed), ("gamma", rate, cv), seed, in_system)
        late = run.places >= judged
        return run.ttft_s[late], run.tpot_s[late]

    return _judgement(bench, times, seeds, replicas=replicas, rate=rate, cv=cv, judged=judged)


def _alone(bench: _Bench) -> Trial:
    """The requests that are judged in the shortest runs, so far apart that none meets another."""

    def times(seed: int) -> tuple[np.ndarray, np.ndarray]:
        requests = _requests(bench, 2 * FEWEST, seed)[FEWEST:]
        run = _simulated(bench, requests, ("gamma", _lonely_rate(bench), 0.0), seed, 1)
        return run.ttft_s, run.tpot_s

    return _judgement(bench, times, range(SEEDS), replicas=0, rate=0.0, cv=0.0, judged=FEWEST)


def _lonely_rate(bench: _Bench) -> float:
    """One request in the time that all of them take together."""
    return max(1 / bench.makespan_s, LEAST_RATE)


def split_cv(cv: float | None, replicas: int) -> float:
    """The variation of the gaps at one of so many replicas; gaps are exponential where nothing says otherwise.

    >>> split_cv(3.0, 1), split_cv(3.0, 8), split_cv(None, 8)
    (3.0, 1.4142135623730951, 1.0)
    """
    return 1.0 if cv is None else math.sqrt(1 + (cv**2 - 1) / replicas)


def _judged(bench: _Bench, rate: float, cv: float, in_system: float) -> int:
    """How many requests are judged: those in the replica are replaced many times, many bursts come, and a queue as long
    as the target allows could build up and drain, which as a random walk takes the square of its length."""
    queue = rate * bench.report.setting.ttft_s
    return math.ceil(min(max(FEWEST, SERVICE_TIMES * in_system, BURSTS * cv**2, queue**2), MOST))


def _judgement(
    bench: _Bench, times: Callable[[int], tuple[np.ndarray, np.ndarray]], seeds: Sequence[int], **known
) -> Trial:
    """What runs say whose TTFT and TPOT are those of `times`, one seed after the other until one misses a target."""
    setting, ttft_s, tpot_s, missed = bench.report.setting, [], [], []
    for seed in seeds:
        first, between = (percentiles(values, [PERCENTILE])[0] for values in times(seed))
        ttft_s.append(first)
        tpot_s.append(between)
        fails = {
            "ttft_s": _exceeds(first, setting.ttft_s),
            "tpot_s": _exceeds(between, setting.tpot_s),
            "rate": known["rate"] > bench.saturated_rate,
        }
        missed = [name for name, is_missed in fails.items() if is_missed]
        if missed:
            break
    return Trial(
        **known, seeds=tuple(seeds[: len(ttft_s)]), ttft_s=tuple(ttft_s), tpot_s=tuple(tpot_s), missed=tuple(missed)
    )


def _exceeds(value: float | None, target: float) -> bool:
    return value is not None and value > target * (1 + ROUNDING)


def _requests(bench: _Bench, number: int, seed: int) -> np.ndarray:
    """So many requests (0, prompt, output) drawn from the workload."""
    prompts, outputs = lengths.draw(bench.report.setting.lengths, number, seed)
    return np.column_stack([np.zeros(number, dtype=np.int64), prompts, outputs])


def _simulated(bench: _Bench, requests: np.ndarray, arrivals: tuple | None, seed: int, in_system: float) -> Simulation:
    """One run. Raises ValueError where it was stopped, or would be too long with about so many requests at a time."""
    steps = float(np.minimum(requests[:, 2], bench.plan.context).sum()) / max(1.0, in_system)
    if bench.plan.step_s is None and steps > MOST_STEPS:
        raise ValueError(
            f"output_mean: a run would take {steps:,.0f} steps, more than {MOST_STEPS:,} are not simulated"
        )

    def tell(done: int, total: int) -> bool | None:
        so_far = bench.simulations + done / max(1, total)
        return bench.progress(so_far, so_far + ALWAYS_LEFT)

    found = simulate(
        requests,
        bench.plan,
        model=bench.model,
        arrivals=arrivals,
        seed=seed,
        progress=tell if bench.progress else None,
    )
    if found.unfinished:
        raise ValueError("the search was stopped")
    bench.simulations += 1
    return found
