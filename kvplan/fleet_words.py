"""A fleet in words: its verdict and its numbers, how it was searched, what its headroom is for, whose its prices are.

Until the simulation is there the closed form's numbers stand, and say whose they are.
"""

from __future__ import annotations

from kvplan.fleet import Fleet, replica_gpus, usd_per_million_tokens
from kvplan.fleet_search import FRESH_SEEDS, SEEDS, Found, Trial
from kvplan.frontier import Point, own, recommended
from kvplan.metrics import Metric
from kvplan.plan import Plan
from kvplan.report import Report
from kvplan.units import count, duration, percent, target, usd
from kvplan.verdict import Verdict, devices

TIMES = {"ttft_s": "TTFT", "tpot_s": "TPOT"}
BURSTY = 1.5
"""Variation of gaps from which bursts are worth a sentence."""


def verdict(report: Report, points: tuple[Point, ...], found: Found | None, simulating: bool = True) -> Verdict:
    """How many replicas meet the targets and what they cost: as simulated, else by the closed form."""
    if found is not None:
        return _simulated(report, found)
    point, then = own(points, report.plan), "the simulation is under way" if simulating else "it was not simulated"
    peak = f"the peak of {rate(report.setting.arrival_rate * report.setting.peak_to_mean)}"
    if point is None:
        sentence = f"**Nothing to begin from**: the closed form has no number of replicas for {peak}"
        return Verdict(sentence, "closed form", "limit", f"{then.capitalize()}.")
    if not point.meets:
        sentence = f"**No number of replicas** of {devices(report)} meets {targets(report)} by the closed form"
        times = f"TTFT of {duration(point.ttft_s)} and TPOT of {duration(point.tpot_s)}"
        reason = f"At the peak each has a mean {times}; {then}."
        return Verdict(sentence, "closed form", "limit", reason)
    sentence = f"**{_replicas(point.plan.dp)}** of {devices(report)} would do by the closed form; {_cost(point.fleet)}"
    reason = f"Mean requests without a queue meet {targets(report)} at {peak}; {then}."
    return Verdict(sentence, "closed form", "workload", reason)


def _simulated(report: Report, found: Found) -> Verdict:
    if found.replicas is None:
        sentence = f"**No number of replicas** of {devices(report)} meets {targets(report)}, whatever the rate"
        reason = f"Simulated, requests that never meet another have p95 {_times(found.alone)}."
        return Verdict(sentence, _binds(found.alone), "limit", reason)
    meets = "meets" if found.replicas == 1 else "meet"
    sentence = (
        f"**{_replicas(found.replicas)}** of {devices(report)} {meets} {targets(report)} at the peak; "
        f"{_cost(found.fleet)}"
    )
    tried = [*found.trials, *found.verified]
    less = next((trial for trial in tried if trial.missed and trial.replicas == found.replicas - 1), None)
    reason = (
        f"Simulated at {rate(found.peak_rate)}: p95 {_times(found.verified[-1])} in the worst of {FRESH_SEEDS} runs "
        "with seeds that the search had not used."
    )
    if less is None:
        return Verdict(sentence, "one is enough", "workload", reason)
    return Verdict(sentence, _binds(less), "limit", reason)


def metrics(report: Report, fleet: Fleet, of: str) -> list[Metric]:
    """Replicas, GPUs, cost of an hour and of a million tokens, "none" where there are none; `of` says by what."""
    setting, each = report.setting, replica_gpus(report.setting)
    known = fleet.replicas is not None
    per_million = fleet.usd_per_million_tokens
    return [
        Metric(
            "Replicas",
            count(fleet.replicas) if known else "none",
            f"{of}, and {count(fleet.spare_replicas)} spare" if known else of,
            f"Copies of the model that meet {targets(report)} at the peak of "
            f"{rate(setting.arrival_rate * setting.peak_to_mean)}, without the spare ones.",
        ),
        Metric(
            "GPUs",
            count(fleet.gpus) if known else "none",
            f"{count(each)} a replica, spare included",
            "Devices of the fleet: (replicas + spare) × tp × pp.",
        ),
        Metric(
            "Cost per hour",
            usd(fleet.usd_per_hour) if known else "none",
            price_words(report),
            f"US dollars: GPUs × {usd(setting.gpu_hour_usd)} an hour, your own price or a unit; every GPU all the "
            "time.",
        ),
        Metric(
            "Cost per million",
            "none" if per_million is None else usd(per_million),
            "output tokens, mean rate",
            f"Cost of an hour over the output tokens of an hour at the mean rate of {rate(setting.arrival_rate)}: most "
            "of the fleet idles then, as it is sized for the peak and a failed replica.",
        ),
    ]


def no_rate(report: Report) -> Verdict:
    """What is missing."""
    sentence = "**No arrival rate** is known, so that no number of replicas follows"
    full = report.throughput.requests_per_s
    most = f" One replica completes {rate(full)} at batch {count(report.throughput.batch)}." if full else ""
    reason = f"Lengths alone do not say how many requests come.{most}"
    return Verdict(sentence, "no rate", "limit", reason)


def replica_metrics(report: Report) -> list[Metric]:
    """The same four numbers where no fleet follows: what one replica takes and yields."""
    found, each = report.throughput, replica_gpus(report.setting)
    usd_per_hour = each * report.setting.gpu_hour_usd
    per_million = usd_per_million_tokens(usd_per_hour, found.tokens_per_s)
    return [
        Metric(
            "Replicas",
            "none",
            "without an arrival rate",
            "Copies of the model; they follow from requests a second and the targets.",
        ),
        Metric("GPUs", count(each), "in one replica", "Devices of a replica: tp × pp."),
        Metric("Cost per hour", usd(usd_per_hour), "for one replica", f"GPUs of a replica × {price_words(report)}."),
        Metric(
            "Cost per million",
            "none" if per_million is None else usd(per_million),
            "output tokens, always full",
            "US dollars: cost of an hour / (tokens a second × 3,600) × 1,000,000, for one replica that always has "
            f"{count(found.batch)} requests in it, which no real fleet does.",
        ),
    ]


def rate_wanted() -> str:
    """Which control gives a rate."""
    return (
        "With an arrival rate, replicas, GPUs and money stand here, and cost against latency for other splits. Set "
        '"Requests a second" in the sidebar under Workload, "Lengths"; or choose a workload that was observed over '
        "time, or read a trace with times."
    )


def why(report: Report, found: Found) -> str:
    """Why the simulated number is not the closed form's."""
    guess, replicas = found.closed_form, found.replicas
    if replicas is None:
        return "The search ended as a request alone misses a target, which more replicas do not change"
    load = percent(min(1.0, found.peak_rate / replicas / found.saturated_rate))
    full = (
        f"a simulated replica that always has work completes {rate(found.saturated_rate)} with {count(found.running)} "
        f"in it, of which the peak asks {load}"
    )
    if guess is None:
        return f"The closed form had no number to begin with; {full}"
    if guess.plan.dp == replicas:
        return f"The closed form, which has no queue and only mean requests, gives the same; {full}"
    closed = (
        f"The closed form gives {count(guess.plan.dp)}, as without a queue and with mean requests one completes "
        f"{rate(guess.rate)} at batch {count(guess.batch)}"
    )
    return f"{closed}; {full}. {_reason(report, found)}"


def _reason(report: Report, found: Found) -> str:
    plan, cv = report.plan, report.setting.arrival_cv
    if plan.step_s is not None:
        return f"Every step takes the plan's step_s of {duration(plan.step_s)}, with a prompt whole in one of them"
    if plan.batch is not None and found.running > found.closed_form.batch:
        return f"The closed form keeps to the plan's batch of {count(plan.batch)}, which no engine is told"
    if found.replicas > found.closed_form.plan.dp:
        bursts = cv is not None and cv >= BURSTY
        come = f", and come in bursts, as their gaps vary by {cv:.3g} times the mean" if bursts else ""
        return f"Nineteen of twenty must be in time, not the mean: requests queue, differ in length{come}"
    if plan.admission == "reserve" and found.running > found.closed_form.batch:
        return "More run at once than the closed form counts: it books the whole context, a request its own maximum"
    return "Requests that queue and differ in length still leave more room than a batch that is full all the time"


def searched(found: Found) -> str:
    """How many simulations there were, and on which seeds."""
    judged = [trial.judged for trial in found.trials]
    least, most = 2 * min(judged), 2 * max(judged)
    requests = count(least) if least == most else f"{count(least)} to {count(most)}"
    seeds = f"seeds 0 to {SEEDS - 1} in the search"
    checked = [trial.seeds for trial in found.verified]
    fresh = f", {checked[0][0]} to {checked[-1][-1]} to check what passed" if checked else ""
    return (
        f"{count(found.simulations)} simulations of one replica, {requests} requests each, of which the later half is "
        f"judged; {seeds}{fresh}. Shown is the worst run"
    )


def split_at_random() -> str:
    """What the simulation assumes of those that are not in it."""
    return (
        "Requests are split at random among replicas, and the peak is held for the whole run: a balancer that knows "
        "the queues, or a peak of minutes, does better"
    )


def headroom(report: Report, fleet: Fleet) -> str:
    """What the fleet has beyond the mean rate, the peak and a failed replica each for itself."""
    ratio, spare, replicas = report.setting.peak_to_mean, fleet.spare_replicas, fleet.replicas
    if ratio > 1:
        of_mean = (
            f"the peak is {ratio:.3g} times the mean rate, which gives each replica {percent(1 / ratio)} of its load"
        )
    else:
        of_mean = "the peak is the mean rate, as nothing says otherwise"
    if spare:
        failed = f"{_spares(spare)} the targets at the peak when {'one fails' if spare == 1 else 'as many fail'}"
    elif replicas > 1:
        failed = f"no spare replica: when one fails at the peak, each other has {percent(1 / (replicas - 1))} more"
    else:
        failed = "no spare replica: when the only one fails, nothing is served"
    return f"Headroom for the peak: {of_mean}. Headroom for failures: {failed}"


def _spares(spare: int) -> str:
    return "1 spare replica keeps" if spare == 1 else f"{count(spare)} spare replicas keep"


def owned(plan: Plan, fleet: Fleet) -> str:
    """Whether the replicas one has are enough."""
    replicas, spare = fleet.replicas, fleet.spare_replicas
    has, short = f"The plan has {_replicas(plan.dp)} (dp)", replicas + spare - plan.dp
    with_spare = f", {count(short)} with the spare" if spare else ""
    if short <= 0:
        return f"{has}: enough for the peak {f'and {count(spare)} spare' if spare else 'with no spare'}"
    if plan.dp >= replicas:
        return f"{has}: enough for the peak, {count(short)} short of the spare"
    return f"{has}: {count(replicas - plan.dp)} short for the peak{with_spare}"


def prices(report: Report) -> str:
    """Whose the prices are."""
    plan, price = report.plan, usd(report.setting.gpu_hour_usd)
    if plan.gpu_hour_usd is None:
        return f'{price} a GPU hour is a unit and no offer; set your own price and its date under "Targets, price"'
    when = f"as of {plan.price_date}" if plan.price_date else "without a date"
    return f"{price} a GPU hour is your own price, {when}; every GPU counts all the time, and nothing but GPUs"


def price_words(report: Report) -> str:
    """The price of a device and its date, in few words."""
    plan = report.plan
    whose = "as a unit" if plan.gpu_hour_usd is None else plan.price_date or "your price"
    return f"{usd(report.setting.gpu_hour_usd)} a GPU hour, {whose}"


def closed_form_only() -> str:
    """What the frontier is, and is not."""
    return (
        "By the closed form: mean times at the peak, without a queue, each split with as many replicas as the targets "
        "need and the plan's spare ones. Open one to have it simulated"
    )


def beside_closed_form(report: Report, points: tuple[Point, ...], found: Found) -> str:
    """What the simulated fleet says of the split that looked cheapest; empty where that is the plan's own, or dearer
    than nothing."""
    best, mine = recommended(points), own(points, report.plan)
    if found.replicas is None or best is None or best is mine:
        return ""
    least = f"{split(best)}, the cheapest by the closed form, at {usd(best.fleet.usd_per_hour)} an hour"
    if found.fleet.gpus <= best.fleet.gpus:
        return f"Simulated, this plan costs {usd(found.fleet.usd_per_hour)} an hour, no more than {least}"
    return f"Cheaper may be {least}: open it to have it simulated too"


def busy(report: Report, fleet: Fleet) -> str:
    """Why a token costs more than one of a replica that is always full; empty where that has no cost."""
    run, setting = report.throughput, report.setting
    full = usd_per_million_tokens(replica_gpus(setting) * setting.gpu_hour_usd, run.tokens_per_s)
    if not full or not fleet.usd_per_million_tokens:
        return ""
    return (
        f"A million output tokens cost {usd(fleet.usd_per_million_tokens)}, as the fleet has its spare and idles below "
        f"the peak; a replica that always has {count(run.batch)} requests makes them for {usd(full)}"
    )


def frontier_conclusion(report: Report, points: tuple[Point, ...]) -> str:
    """What the picture of the frontier says."""
    best, mine = recommended(points), own(points, report.plan)
    if best is None:
        return "No split of up to 16 GPUs meets both targets by the closed form"
    words = f"{split(best)} is the cheapest that meets both targets, {usd(best.fleet.usd_per_hour)} an hour"
    return words if mine is None or mine is best else f"{words}; this plan {usd(mine.fleet.usd_per_hour)}"


def targets(report: Report) -> str:
    """Both targets in words, TTFT and TPOT."""
    return f"TTFT {target(report.setting.ttft_s)} and TPOT {target(report.setting.tpot_s)}"


def split(point: Point) -> str:
    """How a replica is split: "tp 2", "tp 2, pp 4"."""
    return f"tp {point.plan.tp}" + (f", pp {point.plan.pp}" if point.plan.pp > 1 else "")


def rate(requests_per_s: float) -> str:
    """Requests a second with three figures, whole ones from a hundred on."""
    return f"{three(requests_per_s)} requests/s"


def three(value: float) -> str:
    """Three figures, and no exponent above 1."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _replicas(number: int) -> str:
    return "1 replica" if number == 1 else f"{count(number)} replicas"


def _cost(fleet: Fleet) -> str:
    spare = {0: "without a spare", 1: "with one spare"}.get(fleet.spare_replicas)
    gpus = "1 GPU" if fleet.gpus == 1 else f"{count(fleet.gpus)} GPUs"
    return f"{gpus} {spare or f'with {count(fleet.spare_replicas)} spare'}, {usd(fleet.usd_per_hour)} an hour"


def _times(trial: Trial) -> str:
    """The 95th percentiles of the worst run."""
    found = {name: worst(getattr(trial, field)) for field, name in TIMES.items()}
    return " and ".join(f"{name} {duration(value)}" for name, value in found.items() if value is not None)


def worst(values: tuple[float | None, ...]) -> float | None:
    """The longest of the runs; None where none has any."""
    return max((value for value in values if value is not None), default=None)


def _binds(trial: Trial) -> str:
    if "rate" in trial.missed:
        return "throughput binds"
    late = [TIMES[name] for name in trial.missed if name in TIMES]
    return f"{late[0]} binds" if len(late) == 1 else f"{' and '.join(late)} bind"
