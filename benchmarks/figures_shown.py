"""The metrics that a page has to show for a plan, straight from `evaluate`."""

from __future__ import annotations

from functools import lru_cache

from kvplan import Plan, evaluate, levers, levers_words, metrics, pool, rates, throughput_words
from kvplan.metrics import Metric
from kvplan.report import Report


def _pool(report: Report) -> list[Metric]:
    if not (report.engine.fits and report.capacity.batch_ceiling):
        return metrics.ceiling(report)
    requests = pool.requests_of(report.setting, pool.usual_number(report))
    return metrics.pool(report, pool.runs(report, requests, None))


OF_PAGE = {
    "": metrics.ceiling,
    "batching": metrics.batching,
    "paging": metrics.paging,
    "throughput": lambda report: throughput_words.metrics(report, rates.rates(report)),
    "pool": _pool,
    "levers": lambda report: levers_words.metrics(report, levers.levers(report)),
}
"""By the page's address; the first page has none."""


@lru_cache(maxsize=100_000)
def shown(page: str, plan: Plan) -> list[tuple[str, str]]:
    """Label and text of each metric."""
    return [(metric.label, metric.value) for metric in OF_PAGE[page](evaluate(plan))]
