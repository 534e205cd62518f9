"""The answers of Ceiling, Batching, Paging and Throughput as text: the page's sentence, and its numbers in columns."""

from __future__ import annotations

from kvplan.allocation import NAMES
from kvplan.answers import (
    Answer,
    BacklogAnswer,
    BacklogRun,
    BatchingAnswer,
    CeilingAnswer,
    PagingAnswer,
    RooflineAnswer,
    SimulatedAnswer,
    ThroughputAnswer,
)
from kvplan.blocks import PREFIX
from kvplan.breakdown import KIND_NAMES
from kvplan.text_tables import lines
from kvplan.throughput import Operation
from kvplan.throughput_words import BINDING as RATE_BINDING
from kvplan.units import GIB, MIB, binary, count, duration, mean, percent, percent_exact, target
from kvplan.verdict import BINDING


def text(found: Answer) -> str:
    """What a command prints without --json."""
    parts = [part for part in _PARTS[type(found)](found) if part]
    return "\n".join([found.sentence, found.reason, *(line for part in parts for line in ["", *part])])


def _ceiling(found: CeilingAnswer) -> list[list[str]]:
    """A row for each context, and a column for each plan that is compared."""
    rows = [
        {
            "Context": count(point.context),
            "Blocks": count(point.blocks_booked),
            "Booked, GiB/device": f"{point.bytes_booked / GIB:,.3f}",
            "Reserve": count(point.memory_ceiling),
            "On demand, mean": count(point.on_demand_ceiling),
            "Runs": count(point.batch_ceiling),
            **{f"Reserve, {other.name}": count(other.points[row].memory_ceiling) for other in found.comparisons},
            "Limit": BINDING[point.binding],
        }
        for row, point in enumerate(found.points)
    ]
    return [lines(rows)]


def _batching(found: BatchingAnswer) -> list[list[str]]:
    rows = [
        {"Batch": count(point.batch), "Static": percent_exact(point.static_utilisation)}
        | ({} if point.band_low is None else {"95% of resamples": _band(point.band_low, point.band_high)})
        | {"Exponential, 1/H_B": percent_exact(point.exponential_utilisation)}
        for point in found.points
    ]
    return [lines(rows), _backlog(found)]


def _band(low: float, high: float) -> str:
    return f"{percent_exact(low)} to {percent_exact(high)}"


def _backlog(found: BatchingAnswer) -> list[str]:
    """Both backlogs under both policies."""
    if found.backlog is None:
        return []
    known = {"as they are": found.backlog, "all equal": found.equal_backlog}
    rows = [
        _backlog_row(f"{policy}, lengths {name}", each, run)
        for name, each in known.items()
        for policy, run in (("static", each.static), ("continuous", each.continuous))
    ]
    of = found.backlog
    return [f"{count(of.requests)} requests on {count(of.slots)} slots at {duration(of.step_s)} a step:", *lines(rows)]


def _backlog_row(name: str, found: BacklogAnswer, run: BacklogRun) -> dict[str, str]:
    return {
        "Backlog": name,
        "Steps": count(run.steps),
        "Used": percent_exact(run.busy),
        "Seconds": f"{run.wall_s:,.1f}",
        "Requests/s": f"{run.requests_per_s:,.2f}",
        "Times as fast as static": f"{found.static.steps / run.steps:,.2f}",
    }


def _paging(found: PagingAnswer) -> list[list[str]]:
    points = [
        {
            "Block": count(point.block_size),
            "Wasted with the prompt": f"{point.prompt_waste_tokens:,.1f}",
            "At completion": f"{point.completion_waste_tokens:,.1f}",
            "Over its life": f"{point.life_waste_tokens:,.1f}",
            "Of booked": percent_exact(point.waste_share),
            "Table entries": f"{point.table_entries:,.1f}",
            "Looked up a step": mean(point.looked_up_per_step),
            "Hashed a prompt": f"{point.hashed_blocks:,.1f}",
            f"Of {PREFIX:,} shared": count(point.reused_prefix_tokens),
            "Tables, MiB": f"{point.table_bytes / MIB:,.2f}",
        }
        for point in found.points
    ]
    groups = [
        {
            "Layers": KIND_NAMES[each.kind],
            "Tables": count(each.tables),
            "Block, tokens": ", ".join(map(count, each.block_tokens)),
            "Block, all layers": binary(each.bytes_per_block),
            "Last block unfilled, tokens": "–" if each.waste_tokens is None else f"{each.waste_tokens:,.1f}",
            "For a sequence": "–" if each.waste_bytes is None else binary(each.waste_bytes),
            "Of a block unused": percent(each.unused_share),
        }
        for each in found.groups
    ]
    return [lines(points), lines(groups), _allocators(found)]


def _allocators(found: PagingAnswer) -> list[str]:
    known = found.allocators
    if known is None:
        return []
    rows = [
        {
            f"Allocator ({known.contiguous})": NAMES[run.allocator],
            "Runs, mean": f"{run.running:,.1f}",
            "Holding tokens": percent_exact(run.held),
            "For later": percent_exact(run.reserved),
            "Never used": percent_exact(run.internal),
            "Free": percent_exact(run.free),
            "Refused with enough free": percent_exact(run.blocked_share),
        }
        for run in known.runs
    ]
    head = f"{count(known.requests)} requests in a pool of {count(known.slots)} slots:"
    return [head, *lines(rows), *(f"  {line}" for line in known.refusals)]


def _throughput(found: ThroughputAnswer) -> list[list[str]]:
    own = [] if found.own is None else _limits(found)
    points = lines([_operation(point) for point in found.points])
    return [own, points, _roofline(found.roofline), _simulated(found.simulated)]


def _operation(found: Operation) -> dict[str, str]:
    return {
        "Batch": count(found.concurrency),
        "Output tokens/s": mean(found.tokens_per_s),
        "Requests/s": f"{found.requests_per_s:,.2f}",
        "TPOT": duration(found.tpot_s),
        "TTFT": duration(found.ttft_s),
        "End to end": duration(found.e2e_s),
        "Step": duration(found.step_s),
    }


def _limits(found: ThroughputAnswer) -> list[str]:
    """The targets, and the batch at which each limit stands."""
    aims = ", ".join(f"{name.removesuffix('_s').upper()} {target(aim)}" for name, aim in found.targets.items())
    limits = ", ".join(f"{name} {count(limit)}" for name, limit in found.limits.items())
    return [
        f"{RATE_BINDING[found.binding]}; targets: {aims}",
        f"largest batch by limit: {limits}",
        f"estimates, of a replica of {count(found.gpus)} GPU{'' if found.gpus == 1 else 's'}",
    ]


def _roofline(found: RooflineAnswer | None) -> list[str]:
    if found is None:
        return []
    rows = [
        {
            "Step": point.name,
            "FLOP/byte": f"{point.flop_per_byte:,.1f}",
            "TFLOP/s": f"{point.flop_per_s / 1e12:,.1f}",
            "Takes": duration(point.total_s),
            "Most of it": "reading" if point.binding == "memory_bandwidth" else "computing",
        }
        for point in found.points
    ]
    peak, reached = (
        f"{flop / 1e12:,.0f} TFLOP/s and {read / 1e12:,.2f} TB/s"
        for flop, read in ((found.peak_flop_per_s, found.peak_bytes_per_s), (found.flop_per_s, found.bytes_per_s))
    )
    return [f"roofline of one device: {peak} at peak, {reached} reached:", *lines(rows)]


def _simulated(found: SimulatedAnswer | None) -> list[str]:
    if found is None:
        return []
    rows = [
        {
            "Time": each.name,
            "Closed form": duration(each.closed_form_s),
            "Simulated mean": _seconds(each.mean_s),
            "p50": _seconds(each.p50_s),
            "p95": _seconds(each.p95_s),
            "p99": _seconds(each.p99_s),
        }
        for each in found.times
    ]
    return [f"{count(found.requests)} requests at {found.requests_per_s:,.2f}/s, simulated:", *lines(rows)]


def _seconds(value: float | None) -> str:
    return "–" if value is None else duration(value)


_PARTS = {
    CeilingAnswer: _ceiling,
    BatchingAnswer: _batching,
    PagingAnswer: _paging,
    ThroughputAnswer: _throughput,
}
