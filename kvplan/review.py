"""A capacity review: a report as a short document of sections, tables and lines, all of them words without markup.

`review_markdown` and `review_html` write it; every figure is what a page's own functions give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from kvplan import (
    backlog,
    breakdown,
    curves,
    fleet_words,
    frontier,
    ledger,
    metrics,
    rates,
    throughput_words,
    verdict,
)
from kvplan.catalog import concrete
from kvplan.engine_facts import ENGINE_VERSION
from kvplan.links import encode_link
from kvplan.metrics import Metric
from kvplan.plan import DEFAULTS
from kvplan.report import Report
from kvplan.specs import Source, shorten
from kvplan.units import count
from kvplan.version import VERSION

ALWAYS = ("model", "gpu", "tp", "pp", "dp", "context", "kv_dtype", "admission", "workload")
"""Fields that a reader looks for, whether they are set or not."""
LONGEST_VALUE = 60
"""Characters of a field; a packed model has a thousand."""
ASSUMPTIONS = (
    "Held is what the tokens of a sequence occupy; booked is what the engine sets aside for it, in whole blocks",
    "Reserve books the whole context for each request; on demand books what is written and grows, so its ceiling is a "
    "mean, not a guarantee",
    f"Blocks, tokens and limits follow the rules of {ENGINE_VERSION}; weights and cache are counted, and what start-up "
    "takes is an estimate unless it is set",
    "Rates, latencies, replicas and costs are estimates of the closed form: mean requests, no queue",
    "GiB is 2^30 bytes and is memory; GB is 10^9 bytes. Sizes are those of one device unless a line says in all",
)


@dataclass(frozen=True)
class Table:
    """Rows of words with the same keys, under a caption, which may be empty."""

    caption: str
    rows: Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Section:
    """A part of the review: a title, what its figures are, tables, lines, and the name of the chart beside them."""

    title: str
    clause: str = ""
    tables: tuple[Table, ...] = ()
    lines: tuple[str, ...] = ()
    chart: str | None = None


@dataclass(frozen=True)
class Review:
    """The whole document: the question, the answer with the limit that binds, and by what and when it was made."""

    title: str
    question: str
    answer: str
    reason: str
    sections: tuple[Section, ...]
    made: str
    link: str


def review(report: Report, made: date, base: str = "") -> Review:
    """The review of a plan whose preset names are known; `base` is the address of the dashboard its link opens."""
    said, model = verdict.ceiling(report), report.setting.model.name
    devices, sentence = verdict.plain(verdict.devices(report)), verdict.plain(said.sentence)
    sequences = f"sequences of {count(report.plan.context)} tokens"
    return Review(
        title=f"Capacity review: {model} on {devices}",
        question=f"How many {sequences} does {model} run at once on {devices}, and which limit binds?",
        answer=f"{sentence}; {said.badge}" if report.engine.fits else sentence,
        reason=verdict.plain(said.reason),
        sections=tuple(_sections(report)),
        made=f"kvplan {VERSION}, rules of {ENGINE_VERSION}, {made.isoformat()}",
        link=encode_link(report.plan, base),
    )


def _sections(report: Report) -> Iterable[Section]:
    if report.is_served:
        yield _ceilings(report)
        yield _memory(report)
        yield _held_and_booked(report)
        yield _batching(report)
        yield _waste(report)
    if report.throughput.batch:
        yield _throughput(report)
        yield _fleet(report)
    yield _plan(report)
    yield Section("Assumptions and notes", lines=(*ASSUMPTIONS, *report.notes))
    yield _sources(report)


def _plan(report: Report) -> Section:
    """What is set, and what follows for the fields that are left open."""
    known = concrete(report.setting)
    if report.is_served:
        known |= {"block_size": report.engine.block_size, "batch": report.batching.batch, "step_s": report.step_s}
    plan = report.plan
    own = {name for name in type(plan).model_fields if getattr(plan, name) != getattr(DEFAULTS, name)} | {*ALWAYS}
    set_rows = [_field(name, getattr(plan, name)) for name in type(plan).model_fields if name in own]
    derived = [
        _field(name, value)
        for name, value in known.items()
        if value is not None and value != getattr(plan, name) and getattr(plan, name) in (None, "auto")
    ]
    tables = (Table("Set, or the default of a field that matters", set_rows), Table("Derived for open fields", derived))
    return Section("Plan", "every other field is at its default", tables)


def _field(name: str, value) -> dict[str, str]:
    words = f"{value:,.6g}" if isinstance(value, float) else count(value) if type(value) is int else str(value)
    return {"Field": name, "Value": shorten(words, LONGEST_VALUE)}


def _memory(report: Report) -> Section:
    """The pool as a subtraction, exact in bytes."""
    found = ledger.pool_ledger(report)
    rows = [
        {
            "Part of one device": row["Part"],
            "GiB": f"{row['GiB/device']:,.2f}",
            "Bytes": count(line.size_bytes),
            "How it is known": line.known,
        }
        for row, line in zip(ledger.table(found), found, strict=True)
    ]
    return Section("Memory", "in the order in which the engine subtracts", (Table("", rows),), chart="memory")


def _held_and_booked(report: Report) -> Section:
    costs = breakdown.table(report.breakdown)
    rows = _words(costs, {"Page, KiB": 1, "Held, MiB": 1, "Booked, MiB": 1})
    reasons = (f"{breakdown.KIND_NAMES[cost.kind]}: {cost.reason}" for cost in report.breakdown)
    clause = "one request of this context, on a device of the fullest stage, by kind of layer"
    return Section("Held and booked", clause, (Table("", rows),), (*reasons, *report.remarks))


def _ceilings(report: Report) -> Section:
    capacity = report.capacity
    quota = "none" if capacity.tenant_quota is None else count(capacity.tenant_quota)
    limits = [
        {"Limit": "By reservation, memory alone", "Sequences": count(capacity.memory_ceiling)},
        {"Limit": "On demand, memory alone, a mean", "Sequences": count(capacity.on_demand_ceiling)},
        {"Limit": "max_num_seqs", "Sequences": count(capacity.max_num_seqs)},
        {"Limit": "Tenant quota", "Sequences": quota},
        {"Limit": f"Batch ceiling: {verdict.BINDING[capacity.binding]}", "Sequences": count(capacity.batch_ceiling)},
        {"Limit": "Smallest tp at which one request starts", "Sequences": str(capacity.min_tp or "none")},
    ]
    by_context = (
        _words(curves.ceiling_table(report, report.setting.structure.handed), {"Booked, GiB/device": 3})
        if report.engine.fits
        else []
    )
    tables = (Table("", limits), Table("Ceilings by context", by_context))
    return Section("Ceilings", "sequences at once", tables, chart="ceiling")


def _batching(report: Report) -> Section:
    curve = curves.utilisation(report)
    lines = (
        verdict.exponential_miss(report, curve.batches, curve.static, curve.exponential),
        verdict.backlog(backlog.backlog(report)),
    )
    clause = "share of slot-steps that yield a token"
    return Section("Utilisation", clause, (Table("", _figures(metrics.batching(report))),), lines, "batching")


def _waste(report: Report) -> Section:
    if not report.cache.bytes_per_token:
        return Section("Waste", lines=(verdict.plain(verdict.paging(report).sentence),))
    reason = (verdict.plain(verdict.paging(report).reason),) if report.engine.fits else ()
    lines = (verdict.half_block(report), *reason)
    clause = "slots booked and not filled when a sequence completes"
    return Section("Waste", clause, (Table("", _figures(metrics.paging(report))),), lines, "waste")


def _throughput(report: Report) -> Section:
    found = rates.rates(report)
    said = throughput_words.opening(report, found)
    lines = (verdict.plain(said.sentence), verdict.plain(said.reason), throughput_words.bounds(report, found))
    rows = _figures(throughput_words.metrics(report, found))
    return Section("Throughput and latency, estimates", "one replica, no queue", (Table("", rows),), lines)


def _fleet(report: Report) -> Section:
    if frontier.has_rate(report):
        rows = _figures(fleet_words.metrics(report, report.fleet, "closed form"))
        headroom = (fleet_words.headroom(report, report.fleet),) if report.fleet.replicas is not None else ()
    else:
        rows, headroom = _figures(fleet_words.replica_metrics(report)), ()
    lines = (*headroom, fleet_words.prices(report), "Simulate it with kvplan fleet before anything is bought")
    return Section("Fleet and cost, estimates", "by the closed form", (Table("", rows),), lines)


def _sources(report: Report) -> Section:
    setting = report.setting
    presets = (
        Table(f"All figures of {spec.name}", _source_rows(spec.sources)) for spec in (setting.model, setting.gpu)
    )
    return Section("Sources", "of every number", (Table("This plan", _source_rows(report.sources)), *presets))


def _source_rows(sources: Mapping[str, Source]) -> list[dict[str, str]]:
    return [{"Number": name, "Confidence": each.trust, "Source": each.text} for name, each in sources.items()]


def _figures(found: list[Metric]) -> list[dict[str, str]]:
    return [{"Figure": metric.label, "Value": metric.value, "Of what": metric.whose} for metric in found]


def _words(rows: list[dict], decimals: Mapping[str, int]) -> list[dict[str, str]]:
    """Rows of numbers as words, whole ones with separators, others with so many decimals."""
    return [
        {
            name: f"{value:,.{decimals[name]}f}"
            if name in decimals
            else count(value)
            if isinstance(value, int)
            else str(value)
            for name, value in row.items()
        }
        for row in rows
    ]
