"""Every chart of the pages by its name, in the view the page opens with.

Plotly is imported when a chart is drawn, so that the names are known without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan.report import Report

if TYPE_CHECKING:
    from kvplan.palette import Palette


@dataclass(frozen=True)
class Chart:
    """The page a chart stands on, what it shows, and what draws it: (report, palette) -> plotly figure."""

    page: str
    what: str
    draw: Callable


def draw(name: str, report: Report, palette: Palette):
    """The plotly figure of a chart on the page's colour, whatever plotly's default template is.

    Raises KeyError for a name that is none of CHARTS, ValueError where the plan has nothing to draw.
    """
    return CHARTS[name].draw(report, palette).update_layout(paper_bgcolor=palette.page)


def _ceiling(report: Report, palette: Palette):
    from kvplan import curves
    from kvplan.figures import ceiling_figure

    curve = curves.plan_ceilings(_served(report))
    others = curves.comparisons(report, curve, report.setting.structure.handed)
    names = curves.preselected(others)
    shown = [other for other in others if other.name in names]
    return ceiling_figure(report, curve, shown, curves.ceiling_top(curve, others), palette)


def _memory(report: Report, palette: Palette):
    from kvplan.figures import memory_figure

    return memory_figure(_served(report), palette)


def _batching(report: Report, palette: Palette):
    from kvplan import curves
    from kvplan.figures import utilisation_figure

    return utilisation_figure(report, curves.utilisation(_served(report)), palette)


def _slots(policy: str) -> Callable:
    def draw(report: Report, palette: Palette):
        from kvplan.backlog import backlog, steps_shown
        from kvplan.figures import slots_figure

        runs = backlog(_served(report))
        return slots_figure(runs, policy, steps_shown(runs), palette)

    return draw


def _pool_runs(report: Report):
    from kvplan import pool

    return pool.runs(_running(report), pool.requests_of(report.setting, pool.usual_number(report)))


def _occupancy(policy: str) -> Callable:
    def draw(report: Report, palette: Palette):
        from kvplan.pool_figures import last_step, occupancy_figure

        runs = _pool_runs(report)
        return occupancy_figure(report, getattr(runs, policy), last_step(runs), palette)

    return draw


def _running_requests(report: Report, palette: Palette):
    from kvplan.pool_figures import last_step, running_figure

    runs = _pool_runs(report)
    return running_figure(runs, last_step(runs), palette)


def _life(report: Report, palette: Palette):
    from kvplan.lifecycle import lifecycle
    from kvplan.pool_figures import life_figure

    return life_figure(lifecycle(report, max_tokens=_pool_runs(report).reserve.outcome.max_tokens), palette)


def _waste(unit: str) -> Callable:
    def draw(report: Report, palette: Palette):
        from kvplan import curves
        from kvplan.paging_figures import waste_figure

        return waste_figure(report, curves.block_waste(_growing(report)), unit, palette)

    return draw


def _block_table(report: Report, palette: Palette):
    from kvplan import curves
    from kvplan.paging_figures import table_figure

    return table_figure(report, curves.block_waste(_growing(report)), palette)


def _compared(report: Report):
    from kvplan import allocation

    found = allocation.compared(_growing(report))
    if found is None:
        raise ValueError("not one request of this workload runs")
    return found


def _allocators(report: Report, palette: Palette):
    from kvplan.paging_figures import shares_figure

    return shares_figure(_compared(report), palette)


def _pool_map(report: Report, palette: Palette):
    from kvplan.allocation import step_of
    from kvplan.paging_figures import map_figure

    found = _compared(report)
    return map_figure(found, step_of(found, quarter=1), palette)


def _largest_extent(report: Report, palette: Palette):
    from kvplan.allocation import last_step
    from kvplan.paging_figures import extent_figure
    from kvplan.units import round_end

    found = _compared(report)
    return extent_figure(found, round_end(last_step(found)), palette=palette)


def _rates(report: Report):
    from kvplan.rates import rates

    found = rates(_running(report))
    if found is None:
        raise ValueError("the step time of this plan is not known")
    return found


def _throughput(per: str) -> Callable:
    def draw(report: Report, palette: Palette):
        from kvplan.drawing import MARGIN
        from kvplan.throughput_figures import rates_figure

        # On the page the latencies stand below, on the same axis, and name it.
        title = "Batch, sequences in the system"
        figure = rates_figure(report, _rates(report), per, palette)
        return figure.update_layout(xaxis_title_text=title, margin_b=MARGIN["b"])

    return draw


def _latency(report: Report, palette: Palette):
    from kvplan.throughput_figures import latency_figure

    return latency_figure(report, _rates(report), palette)


def _roofline(report: Report, palette: Palette):
    from kvplan.rates import roofline
    from kvplan.throughput_figures import roofline_figure

    return roofline_figure(roofline(report, _rates(report)), palette)


def _levers_ceiling(report: Report, palette: Palette):
    from kvplan.levers import levers
    from kvplan.levers_figures import ceiling_figure

    found = levers(report)
    if not found.offered:
        raise ValueError("no single change makes this plan run")
    return ceiling_figure(found, palette, linked=False)


def _levers_cost(report: Report, palette: Palette):
    from kvplan.levers import levers
    from kvplan.levers_figures import cost_figure

    found = levers(report)
    if not found.priced:
        raise ValueError("under no single change a token has a cost")
    return cost_figure(found, palette, linked=False)


def _fleet(latency: str) -> Callable:
    def draw(report: Report, palette: Palette):
        from kvplan.fleet_figures import frontier_figure
        from kvplan.fleet_search import search
        from kvplan.frontier import frontier

        found, points = search(report.plan), frontier(report.plan)
        if not points:
            raise ValueError("the closed form has no fleet for any split of a replica")
        return frontier_figure(report, points, found, latency, palette)

    return draw


def _served(report: Report) -> Report:
    if not report.is_served:
        raise ValueError(report.engine.refused)
    return report


def _growing(report: Report) -> Report:
    if not _served(report).cache.bytes_per_token:
        raise ValueError("no layer of this model grows with its tokens")
    return report


def _running(report: Report) -> Report:
    if not (_served(report).engine.fits and report.capacity.batch_ceiling):
        raise ValueError("not one request of this plan runs")
    return report


CHARTS = {
    "ceiling": Chart("Ceiling", "batch ceiling against context", _ceiling),
    "memory": Chart("Ceiling", "where one device's memory goes", _memory),
    "pool-reserve": Chart("Pool", "occupancy of the pool against steps, reserving", _occupancy("reserve")),
    "pool-on-demand": Chart("Pool", "occupancy of the pool against steps, on demand", _occupancy("on_demand")),
    "running": Chart("Pool", "requests that run against steps, under both policies", _running_requests),
    "life": Chart("Pool", "one request's memory from admission to release", _life),
    "batching": Chart("Batching", "slot-steps used against batch", _batching),
    "slots-static": Chart("Batching", "one backlog slot by slot, in static batches", _slots("static")),
    "slots-continuous": Chart("Batching", "one backlog slot by slot, continuously", _slots("continuous")),
    "waste": Chart("Paging", "share of booked slots wasted against block size", _waste("share")),
    "waste-tokens": Chart("Paging", "tokens wasted a sequence against block size", _waste("tokens")),
    "block-table": Chart("Paging", "a sequence's block table against block size", _block_table),
    "allocators": Chart("Paging", "where the pool's slots are, by allocator", _allocators),
    "pool-map": Chart("Paging", "a map of the pool half-way, contiguous extents", _pool_map),
    "largest-extent": Chart("Paging", "largest free extent of the pool against steps", _largest_extent),
    "throughput": Chart("Throughput", "output tokens a second of a replica against batch", _throughput("replica")),
    "throughput-gpu": Chart("Throughput", "output tokens a second of each GPU against batch", _throughput("GPU")),
    "throughput-user": Chart("Throughput", "output tokens a second of each user against batch", _throughput("user")),
    "latency": Chart("Throughput", "time to first token and per output token against batch", _latency),
    "roofline": Chart("Throughput", "decode and prefill on the roofline of one device", _roofline),
    "levers-ceiling": Chart("Levers", "what moves the ceiling", _levers_ceiling),
    "levers-cost": Chart("Levers", "what moves the cost of a token", _levers_cost),
    "fleet": Chart("Fleet", "cost against TPOT, by split of a replica", _fleet("tpot_s")),
    "fleet-ttft": Chart("Fleet", "cost against TTFT, by split of a replica", _fleet("ttft_s")),
}
"""In the order of the pages."""
