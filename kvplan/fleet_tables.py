"""A fleet as tables: the replicas that were tried, the splits of a replica, and the text of the command."""

from __future__ import annotations

from kvplan import verdict as verdicts
from kvplan.fleet_search import Found, Trial
from kvplan.fleet_words import (
    TIMES,
    closed_form_only,
    headroom,
    metrics,
    owned,
    prices,
    searched,
    split,
    split_at_random,
    verdict,
    why,
    worst,
)
from kvplan.frontier import Latency, Point, own, pareto, recommended
from kvplan.links import encode_link
from kvplan.report import Report
from kvplan.text_tables import lines
from kvplan.units import count

PAGE = "/fleet"


def search_rows(found: Found) -> list[dict]:
    """Every number of replicas that was tried, the worst of its runs."""
    checked = [(trial, "other seeds: ") for trial in found.verified]
    rows = sorted([*((trial, "") for trial in found.trials), *checked], key=lambda row: (row[0].replicas, row[1]))
    alone = [] if found.alone is None else [(found.alone, "alone: ")]
    return [
        {
            "Replicas": count(trial.replicas) if trial.replicas else "any",
            "Each, requests/s": _three(trial.rate if trial.replicas else None),
            "TTFT p95, s": _three(worst(trial.ttft_s)),
            "TPOT p95, ms": _three(worst(_in_ms(trial.tpot_s))),
            "Result": whose + result(trial),
        }
        for trial, whose in [*rows, *alone]
    ]


def result(trial: Trial) -> str:
    """What a trial says, in few words."""
    if "rate" in trial.missed:
        return "queue grows"
    late = " and ".join(TIMES[name] for name in trial.missed)
    return f"{late} too long" if late else "meets both"


def frontier_rows(report: Report, points: tuple[Point, ...], latency: Latency) -> list[dict]:
    """The splits, the cheapest first: what each takes and yields, what is said of it, and its link."""
    best = pareto(points, latency)
    return [
        {
            "Split": split(point),
            "Remark": "; ".join(remarks(report, points, point, point in best, latency)) or "–",
            "Replicas": point.plan.dp,
            "GPUs": point.fleet.gpus,
            "USD an hour": point.fleet.usd_per_hour,
            "USD a million": point.fleet.usd_per_million_tokens,
            "Batch": point.batch,
            "TTFT, s": point.ttft_s,
            "TPOT, ms": 1000 * point.tpot_s,
            "Link": encode_link(point.plan, PAGE, full=False),
        }
        for point in points
    ]


def remarks(report: Report, points: tuple[Point, ...], point: Point, best: bool, latency: Latency) -> list[str]:
    """What is said of a split."""
    found = []
    if point is own(points, report.plan):
        found.append("this plan")
    if point is recommended(points):
        found.append("cheapest by the closed form")
    elif best:
        found.append(f"best for its {TIMES[latency]}")
    if not point.meets:
        late = [word for name, word in TIMES.items() if getattr(point, name) > getattr(report.setting, name)]
        found.append(f"{' and '.join(late) or 'a target'} missed")
    return found


def text(report: Report, points: tuple[Point, ...], found: Found) -> str:
    """What `fleet` prints."""
    answer = verdict(report, points, found)
    numbers = [
        f"  {each.label:<18}{each.value:>14}  {each.whose}" for each in metrics(report, found.fleet, "simulated")
    ]
    tried = lines(search_rows(found))
    splits = [{name: _cell(value) for name, value in row.items()} for row in frontier_rows(report, points, "tpot_s")]
    remarks = [why(report, found), searched(found), split_at_random()]
    if found.replicas is not None:
        remarks += [headroom(report, found.fleet), owned(report.plan, found.fleet)]
    return "\n".join(
        [
            verdicts.plain(answer.sentence),
            verdicts.plain(answer.reason),
            "",
            *numbers,
            "",
            *tried,
            "",
            f"{closed_form_only()}:",
            *lines(splits),
            "",
            *(f"note: {line}." for line in [*remarks, prices(report)]),
        ]
    )


def _cell(value) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value >= 1 else f"{value:.3f}"
    return "–" if value is None else str(value)


def _in_ms(seconds: tuple[float | None, ...]) -> tuple[float | None, ...]:
    return tuple(value if value is None else 1000 * value for value in seconds)


def _three(value: float | None) -> str:
    """Three figures with their zeros, as numbers stand below each other."""
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"
