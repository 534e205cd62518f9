"""The levers in words: the Levers page's sentence, its four numbers and its tables, and the text of the command."""

from __future__ import annotations

from kvplan import verdict
from kvplan.catalog import GPU_HOUR_USD
from kvplan.lever_ideas import QUALITIES
from kvplan.levers import Effect, Lever, Levers, best_ceiling, best_cost, keeps_price
from kvplan.metrics import Metric
from kvplan.report import LARGEST_AUTOMATIC_BATCH, Report
from kvplan.specs import shorten
from kvplan.units import count, duration, percent, usd
from kvplan.verdict import Verdict

GAP = "–"


def times(before: float | None, after: float) -> str:
    """How many times as much; empty where there was nothing.

    >>> times(54, 364), times(0, 12)
    ('6.74×', '')
    """
    return f"{after / before:,.2f}×" if before else ""


def opening(report: Report, found: Levers) -> Verdict:
    """The lever that moves the ceiling most, and the one under which tokens cost least."""
    best, badge = best_ceiling(found), _badge(report, found)
    if not found.before.ceiling:
        if best is None:
            return verdict.ceiling(report)
        sentence = f"**{_none(report)}** as it is; {_cure(best)}"
    else:
        sentence = f"{_ceiling_sentence(found, best)}{_cost_sentence(found, best)}"
    aside = f" The batch of {count(report.plan.batch)} is set aside." if report.plan.batch else ""
    reason = (
        "One change at a time, each a plan that runs as many as its ceiling allows. kvplan does not model quality: "
        f"one word on it, and its source.{aside}"
    )
    return Verdict(sentence, badge, "memory" if badge == verdict.BINDING["memory"] else "limit", reason)


def metrics(report: Report, found: Levers) -> list[Metric]:
    """Ceiling and cost as they are, and the best lever for each."""
    before, best, cheapest = found.before, best_ceiling(found), best_cost(found)
    cost = before.usd_per_million_tokens
    return [
        Metric(
            "Ceiling now",
            count(before.ceiling),
            _badge(report, found),
            f"Sequences of {count(report.plan.context)} tokens that run at once under the plan's admission: the "
            "smallest of what memory holds, max_num_seqs and a tenant's quota.",
            "sequences",
        ),
        Metric("Cost now", _cost(cost), _price(report), _cost_help(before)),
        Metric(
            "Best for ceiling",
            count(best.after.ceiling) if best else "none",
            _moved(best, times(before.ceiling, best.after.ceiling)) if best else "no single change runs more",
            f"The single change under which most sequences run{_quality(best)}.",
            "sequences" if best else "",
        ),
        Metric(
            "Best for cost",
            _cost(cheapest.after.usd_per_million_tokens) if cheapest else "none",
            _moved(cheapest, _saving(found, cheapest)) if cheapest else "no single change saves",
            "The single change under which a million output tokens cost least, among those that keep the GPU: what "
            f"another one costs is not known{_quality(cheapest)}.",
        ),
    ]


def about_cost(found: Levers) -> str:
    """What the costs are at, and what they leave out; why there are none where that is so."""
    if not found.priced:
        if any(effect.usd_per_million_tokens is not None for effect in _effects(found)):
            return "At this price tokens cost nothing"
        return "No cost is known: nothing runs, or the model's weights or the device's FLOP/s are not known"
    most = f", at most {LARGEST_AUTOMATIC_BATCH}," if any(each.ceiling > each.batch for each in _effects(found)) else ""
    return (
        f"Costs are those of the steady state at the ceiling{most} whatever the latency: the Throughput page sets it "
        "against the targets"
    )


def about_price(report: Report, found: Levers) -> str:
    """Up to which price another GPU pays; empty where none is offered or no cost is known."""
    other = next((lever for lever in found.offered if not keeps_price(lever)), None)
    now = found.before.usd_per_million_tokens
    if other is None or not now or other not in found.priced:
        return ""
    most = report.setting.gpu_hour_usd * now / other.after.usd_per_million_tokens
    price = usd(report.setting.gpu_hour_usd)
    return (
        f"The larger GPU is drawn hollow, at the price of the plan's, {price} an hour, as its own is not known: it "
        f"pays below {usd(most)} an hour"
    )


def cost_decimals(found: Levers) -> int:
    """Decimals at which the least of the costs shows three figures."""
    costs = [lever.after.usd_per_million_tokens for lever in found.priced]
    return next((places for places in range(2, 9) if min(costs, default=1) >= 10.0 ** (2 - places)), 9)


def table(found: Levers) -> list[dict]:
    """The plan as it is where it runs, then every lever that is offered, those under which most run first; without
    what is known of none."""
    own = [_row("This plan", found.before, "")] if found.before.ceiling else []
    ranked = sorted(found.offered, key=lambda lever: -lever.after.ceiling)
    rows = own + [_row(lever.name, lever.after, lever.quality) for lever in ranked]
    known = {name for row in rows for name, value in row.items() if value is not None}
    return [{name: value for name, value in row.items() if name in known} for row in rows]


def sources(found: Levers) -> list[dict]:
    """What every lever changes, who speaks of it, and why it is not offered; these last."""
    return [
        {
            "Lever": lever.name,
            "What it changes": lever.about,
            "Quality, and who says so": f"{lever.quality}: {lever.source}",
            "Not offered, as": lever.why_not or "",
        }
        for lever in (*found.offered, *found.not_offered)
    ]


def as_text(report: Report, found: Levers) -> str:
    """What `levers` prints."""
    answer = opening(report, found)
    header = f"  {'':<20}{'ceiling':>10}{'by memory':>12}  {'binds':<14}{'USD/M tokens':>14}{'TPOT':>10}  quality"
    rows = [_line("this plan", found.before, "")]
    rows += [_line(lever.name, lever.after, f"{lever.quality:<17}{_changes(lever)}") for lever in found.offered]
    why = [f"  {lever.name:<20}not offered: {lever.why_not}" for lever in found.not_offered]
    words = [line for line in (about_cost(found), about_price(report, found)) if line]
    return "\n".join(
        [verdict.plain(answer.sentence), verdict.plain(answer.reason), "", header, *rows, *why, "", *words]
    )


def _badge(report: Report, found: Levers) -> str:
    """What binds under the plan's admission, or why nothing does."""
    badge = verdict.ceiling(report).badge
    return verdict.BINDING[found.before.binding] if badge in verdict.BINDING.values() else badge


def _none(report: Report) -> str:
    """Why nothing runs, in two or three words."""
    if report.engine.refused:
        return "Not served"
    return "Not one sequence runs" if report.engine.fits else "Does not fit"


def _cure(best: Lever) -> str:
    each = _cost(best.after.usd_per_million_tokens)
    cost = "" if best.after.usd_per_million_tokens is None or not keeps_price(best) else f", at {each} a million tokens"
    number = best.after.ceiling
    runs = f"**{count(number)}** sequence{'' if number == 1 else 's'} of {count(best.plan.context)} tokens"
    return f"**{_named(best)}** would run {runs}, the most by one change{cost}"


def _ceiling_sentence(found: Levers, best: Lever | None) -> str:
    if best is None:
        return f"No single change runs more than **{count(found.before.ceiling)}** sequences"
    average = " on average" if best.plan.admission == "on_demand" else ""
    return (
        f"The ceiling of {count(found.before.ceiling)} moves most with **{_named(best)}**, to "
        f"**{count(best.after.ceiling)}**{average}"
    )


def _cost_sentence(found: Levers, best: Lever | None) -> str:
    cheapest, now = best_cost(found), found.before.usd_per_million_tokens
    if now is None or not found.priced:
        return ""
    if cheapest is None:
        return f"; none makes tokens cheaper than {usd(now)} a million"
    cost = f"**{usd(cheapest.after.usd_per_million_tokens)}** instead of {usd(now)} a million"
    return (
        f", and tokens cost least, {cost}"
        if cheapest is best
        else f"; tokens cost least with **{_named(cheapest)}**, {cost}"
    )


def _named(lever: Lever) -> str:
    """A lever with its word on quality, where it is not exact."""
    return lever.name if lever.quality == "exact" else f"{lever.name} ({lever.quality})"


def _cost(cost: float | None) -> str:
    return GAP if cost is None else usd(cost)


def _price(report: Report) -> str:
    plan = report.plan
    if plan.gpu_hour_usd is None:
        return f"per million, {usd(GPU_HOUR_USD)}/GPU-h"
    return f"at {usd(plan.gpu_hour_usd)}/GPU-h, {plan.price_date or 'no date'}"


def _cost_help(before: Effect) -> str:
    return (
        "US dollars for a million output tokens: GPUs of a replica × price / (output tokens a second × 3,600) × "
        f"1,000,000, with {count(before.batch)} sequences in the system all the time. {usd(GPU_HOUR_USD)} a GPU hour "
        "is a unit and no offer, until you set yours."
    )


def _quality(lever: Lever | None) -> str:
    """What a lever may do to the answers, as the end of a sentence."""
    return f". {lever.quality}: {QUALITIES[lever.quality]}" if lever else ""


def _moved(lever: Lever, how_far: str) -> str:
    return f"{how_far}, {lever.name}" if how_far else lever.name


def _saving(found: Levers, lever: Lever) -> str:
    now = found.before.usd_per_million_tokens
    return f"−{percent(1 - lever.after.usd_per_million_tokens / now)}" if now else ""


def _effects(found: Levers) -> list[Effect]:
    return [found.before, *(lever.after for lever in found.offered)]


def _row(name: str, effect: Effect, quality: str) -> dict:
    """A row of the table: what is read first stands first, as a phone shows no more."""
    return {
        "Lever": name,
        "Ceiling": effect.ceiling,
        "USD/M tokens": effect.usd_per_million_tokens,
        "Quality": quality,
        "TPOT, ms": None if effect.tpot_s is None else 1000 * effect.tpot_s,
        "By memory": effect.memory_ceiling,
        "Binds": verdict.LIMITS[effect.binding],
    }


def _line(name: str, effect: Effect, words: str) -> str:
    tpot = GAP if effect.tpot_s is None else duration(effect.tpot_s)
    numbers = f"{count(effect.ceiling):>10}{count(effect.memory_ceiling):>12}  {verdict.LIMITS[effect.binding]:<14}"
    return f"  {name:<20}{numbers}{_cost(effect.usd_per_million_tokens):>14}{tpot:>10}  {words}".rstrip()


def _changes(lever: Lever) -> str:
    """The fields a lever sets, as --set takes them."""
    values = {name: getattr(lever.plan, name) for name in lever.changed}
    return " ".join(f"{name}={'auto' if value is None else shorten(str(value))}" for name, value in values.items())
