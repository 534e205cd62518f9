"""The same requests on other splits of a replica: tp, pp and replicas, cost against latency, by the closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Literal

from kvplan.fleet import Fleet, peak_rate, priced
from kvplan.plan import Plan
from kvplan.report import Report, evaluate
from kvplan.specs import ModelSpec
from kvplan.throughput import at_rate, engine, operate
from kvplan.traffic import LEAST_RATE

TPS, PPS = (1, 2, 4, 8, 16), (1, 2, 4)
MOST_DEVICES = 16
"""Devices of one replica that are looked at."""
MOST_REPLICAS = 2**20
"""As many as a plan's dp may be."""
Latency = Literal["tpot_s", "ttft_s"]


@dataclass(frozen=True)
class Point:
    """One split, as a plan whose dp is the replicas that serve the peak, with what the fleet costs.

    `rate` is what a replica completes with `batch` requests in it; `ttft_s` and `tpot_s` are those of the peak, spread
    evenly. `meets` both targets: where not even one request at a time does, a replica takes all that fit.
    """

    plan: Plan
    fleet: Fleet
    batch: int
    rate: float
    ttft_s: float
    tpot_s: float
    meets: bool


def frontier(plan: Plan, model: ModelSpec | None = None) -> tuple[Point, ...]:
    """Every split that the engine accepts and one request starts on, and the plan's own, the cheapest first; none
    without an arrival rate."""
    splits = {(tp, pp) for tp, pp in product(TPS, PPS) if tp * pp <= MOST_DEVICES} | {(plan.tp, plan.pp)}
    reports = (evaluate(plan.model_copy(update={"tp": tp, "pp": pp}), model) for tp, pp in sorted(splits))
    points = [point for point in map(point_of, reports) if point is not None]
    return tuple(sorted(points, key=_cost))


def point_of(report: Report) -> Point | None:
    """The fleet of one plan; None where no request runs or comes, a step cannot be estimated, or no plan holds so many
    replicas."""
    setting, found = report.setting, report.throughput
    if not found.batch or not has_rate(report):
        return None
    runs = engine(setting)
    batch = found.meeting_batch
    rate = operate(runs, batch or found.batch).requests_per_s
    replicas = max(1, math.ceil(peak_rate(setting) / rate))
    if replicas > MOST_REPLICAS:
        return None
    # Rounding must not ask for more than what a replica completes.
    each = at_rate(runs, min(rate, peak_rate(setting) / replicas), batch or found.batch)
    return Point(
        plan=report.plan.model_copy(update={"dp": replicas}),
        fleet=priced(setting, replicas, runs.demand.output),
        batch=batch or found.batch,
        rate=rate,
        ttft_s=each.ttft_s,
        tpot_s=each.tpot_s,
        meets=bool(batch),
    )


def has_rate(report: Report) -> bool:
    """Whether requests come at all."""
    return report.setting is not None and (report.setting.arrival_rate or 0.0) >= LEAST_RATE


def recommended(points: tuple[Point, ...]) -> Point | None:
    """The cheapest that meets both targets, of equals the one with less time between tokens."""
    return min((point for point in points if point.meets), key=_cost, default=None)


def pareto(points: tuple[Point, ...], latency: Latency) -> tuple[Point, ...]:
    """Those that no other beats in cost or latency without losing in the other, the cheapest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.fleet.gpus, getattr(point, latency))):
        if not kept or getattr(point, latency) < getattr(kept[-1], latency):
            kept.append(point)
    return tuple(kept)


def own(points: tuple[Point, ...], plan: Plan) -> Point | None:
    """The point of the plan's own split."""
    return next((point for point in points if (point.plan.tp, point.plan.pp) == (plan.tp, plan.pp)), None)


def _cost(point: Point) -> tuple[int, float]:
    """Devices, which cost the same each, so that a price of 0 orders them too."""
    return point.fleet.gpus, point.tpot_s
