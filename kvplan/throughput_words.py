"""The Throughput page in words: its sentence, its four numbers, and what stands under its pictures."""

from __future__ import annotations

from kvplan import verdict
from kvplan.fleet import replica_gpus
from kvplan.metrics import Metric
from kvplan.rates import USUAL_LOAD, Comparison, Rates
from kvplan.report import LARGEST_AUTOMATIC_BATCH, Report
from kvplan.roofline import StepParts
from kvplan.throughput import little
from kvplan.units import capitalised, count, duration, mean, percent, target
from kvplan.verdict import Verdict

BINDING = {
    "memory": "memory binds",
    "tenant_quota": "quota binds",
    "max_num_seqs": "max_num_seqs binds",
    "tpot": "TPOT binds",
    "ttft": "TTFT binds",
    "compute": "compute binds",
    "memory_bandwidth": "bandwidth binds",
    "batch": "batch as set",
}
ALLOWS = {
    "memory": "memory would hold",
    "max_num_seqs": "max_num_seqs would allow",
    "tenant_quota": "the quota would allow",
}
ROUNDED = 1e-3
"""Share by which inputs of a few decimals may miss."""
PARTS = {
    "weights_s": "Matrices: reading weights",
    "matrices_s": "Matrices: computing",
    "cache_s": "Attention: reading the cache",
    "attention_s": "Attention: computing",
    "reducing_s": "All-reduces, stages",
    "overhead_s": "Host",
}


def opening(report: Report, found: Rates | None) -> Verdict:
    """Tokens a second at the plan's batch, and what the next limit would allow."""
    if found is None:
        return _without(report)
    own, missed = found.own, _missed(found)
    if missed:
        aim = getattr(report.setting, f"{missed}_s")
        value = getattr(own, f"{missed}_s")
        alone = f"one request alone has **{duration(value)}**"
        sentence = f"**No batch** meets the {missed.upper()} target of {target(aim)}; {alone}"
    else:
        sentence = f"**{mean(own.tokens_per_s)} tokens/s** at batch {count(own.concurrency)}{_further(report, found)}"
    tone = "memory" if found.binding in ("memory", "memory_bandwidth", "batch") else "limit"
    badge = BINDING[found.binding]
    if found.binding == "batch" and report.plan.batch is None:
        badge = f"{LARGEST_AUTOMATIC_BATCH} unless set"
    return Verdict(sentence, badge, tone, _reason(report, found))


def metrics(report: Report, found: Rates | None) -> list[Metric]:
    """Output tokens/s, requests/s by Little's law, TPOT and TTFT beside their targets."""
    own = found.own if found else None
    gpus = replica_gpus(report.setting)
    return [
        Metric(
            "Output tokens/s",
            mean(own.tokens_per_s) if own else "0",
            f"a replica, {mean(own.tokens_per_s / gpus)} per GPU" if own else "no sequence runs",
            "Output tokens a second of one replica in a steady state: requests a second × mean output tokens. Prompts "
            "of those that follow are computed in the same steps.",
        ),
        Metric(
            "Requests/s",
            f"{own.requests_per_s:,.2f}" if own else "0",
            f"L = λW: {count(own.concurrency)} = {_short(own.requests_per_s)} × {_short(own.e2e_s)} s"
            if own
            else "no sequence runs",
            "Requests a second by Little's law, L = λ × W: requests in the system = requests a second × seconds a "
            "request is in it. Memory caps L, so λ is at most the ceiling / W.",
        ),
        Metric(
            "TPOT",
            duration(own.tpot_s) if own else "–",
            f"target {target(report.setting.tpot_s)}" if report.setting else "",
            "Time per output token after the first: seconds of a step of the whole batch, prompts of others included / "
            "tokens of a request that come out of it.",
        ),
        Metric(
            "TTFT",
            duration(own.ttft_s) if own else "–",
            f"target {target(report.setting.ttft_s)}" if report.setting else "",
            "Seconds to the first token of a mean prompt without a queue: step / 2 until the next begins + its prefill "
            "beside those that decode.",
        ),
    ]


def parts(decode: StepParts, prefill: StepParts) -> list[dict]:
    """Where the time of a decode step and of a step that prefills goes, part by part."""
    columns = {"Decode step": decode, "Prefill step": prefill}
    rows = [
        {"Part": words} | {name: duration(getattr(found, part)) for name, found in columns.items()}
        for part, words in PARTS.items()
    ]
    return [*rows, {"Part": "In all"} | {name: duration(found.total_s) for name, found in columns.items()}]


def bounds(report: Report, found: Rates) -> str:
    """The two batches at which a decode step changes its nature."""
    known = report.throughput
    weights = (
        "no cache is read"
        if known.kv_equals_weights_batch is None
        else (f"the caches of a batch are as many bytes as the weights at {mean(known.kv_equals_weights_batch)}")
    )
    stage = "" if report.plan.pp == 1 else f" of one of the {report.plan.pp} stages, which share the batch"
    critical = f"{mean(known.critical_batch)} tokens a step{stage}"
    return (
        f"Reading weights and computing with them take equally long at {critical}, at peak; {weights}, and "
        f"beyond it more batch saves little. Twice the plan's batch would bring "
        f"{percent(max(0.0, found.gain))} more tokens"
    )


def helped(found: Rates) -> str:
    """What prefix hits and speculation do to a step; empty where there are neither."""
    step, asked = found.engine.step, found.engine.demand
    said = []
    if hits := asked.prompt - asked.computed:
        said.append(f"{percent(hits / asked.prompt)} of a mean prompt is found in the pool and not computed")
    if step.drafted:
        tokens = f"{count(step.drafted)} more token{'' if step.drafted == 1 else 's'}"
        said.append(f"a step tries {tokens} for each sequence and yields {step.accepted:.2f}")
    return capitalised("; ".join(said))


def comparison(found: Comparison) -> list[dict]:
    """Closed form and simulation beside each other, in seconds."""
    names = ("Closed form", "Simulated mean", "p50", "p95", "p99")
    return [
        {"Time": name}
        | {column: "–" if value is None else duration(value) for column, value in zip(names, values, strict=True)}
        for name, values in found.rows.items()
    ]


def difference(found: Comparison) -> str:
    """At which rate both are, and why they differ."""
    whose = "the plan's rate" if found.of_plan else f"{percent(USUAL_LOAD)} of what can run, as {found.why_not_plan}"
    return (
        f"{count(found.number)} requests at {found.requests_per_s:,.2f}/s, {whose}, at random times: "
        f"{found.closed.concurrency:,.1f} in the system by the closed form, {found.concurrency:,.1f} simulated. The "
        "closed form takes every request as the mean one and lets none wait; in the simulation long prompts delay the "
        "tokens of all others, requests queue, and those with few tokens weigh as much as those with many"
    )


def capped(report: Report, values: dict[str, float]) -> str:
    """What memory makes of two of L, lambda and W: the rate it caps while W stays, or whether it holds as many."""
    most = report.capacity.running(report.plan.admission)
    if report.plan.admission == "reserve":
        cap = f"Booking whole contexts, the plan is sure of {count(most)} at a time; requests that book less run more"
    else:
        cap = f"The plan runs {count(most)} at a time on average"
    if "time_s" in values:
        cap += f". While W stays {values['time_s']:,.2f} s, {count(most)} are {most / values['time_s']:,.2f} requests/s"
    known = values.get("concurrency") or little(**values)
    return cap + (
        "" if known <= most * (1 + ROUNDED) else f"; {known:,.1f} in the system are more, and the rest would wait"
    )


def _short(value: float) -> str:
    """Three figures, or all whole ones."""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _without(report: Report) -> Verdict:
    if not report.engine.fits or not report.capacity.running(report.plan.admission):
        return verdict.ceiling(report)
    name = report.setting.model.name
    return Verdict(
        "The step time is **not known**", "no estimate", "limit",
        f"The weights of {name} cannot be counted or {report.setting.gpu.name} states no FLOP/s; set weights_gib.",
    )  # fmt: skip


def _missed(found: Rates) -> str | None:
    return next((name for name in ("tpot", "ttft") if found.limits[name] < 1), None)


def _further(report: Report, found: Rates) -> str:
    name, limit = found.could_binding, found.limits.get(found.could_binding)
    if not name:
        return ""
    if name in ("tpot", "ttft"):
        aim = target(getattr(report.setting, f"{name}_s"))
        return f"; the {aim} {name.upper()} target would allow batch {count(limit)}"
    return f"; {ALLOWS[name]} {count(limit)}"


def _reason(report: Report, found: Rates) -> str:
    gain = percent(max(0.0, found.gain))
    if _missed(found):
        return "Only a faster device, narrower weights, more tp or a looser target help."
    if found.binding in ("compute", "memory_bandwidth"):
        what = "computing" if found.binding == "compute" else "reading"
        return (
            f"Twice the batch would bring only {gain} more tokens: {what}, for the prompts that come along as well, "
            "takes most of a mean step."
        )
    if found.binding in ("tpot", "ttft"):
        return f"A larger batch would miss the target; it would bring {gain} more tokens for twice as many sequences."
    if found.binding == "batch":
        most = "" if report.plan.batch else f" An estimate stops at {LARGEST_AUTOMATIC_BATCH}; set a batch to see more."
        return f"Twice the batch would bring {gain} more tokens.{most}"
    could = "" if found.could is None else f" At the next limit it would be {mean(found.could.tokens_per_s)} tokens/s."
    return f"Twice as many sequences would bring {gain} more tokens.{could}"
