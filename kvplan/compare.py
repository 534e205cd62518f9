"""Plans side by side: which inputs differ, every result beside the first plan's, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

from kvplan.differences import differences
from kvplan.fleet import replica_gpus
from kvplan.report import Report
from kvplan.sweep_grid import QUANTITIES, Quantity
from kvplan.units import GIB

PERCENT = 0.01


class Figure(NamedTuple):
    """One result of a plan: `value` gives it in its `unit`, None where the plan has none; `about` says how it is
    counted."""

    name: str
    unit: str
    about: str
    value: Callable[[Report], float | None]
    decimals: int = 0


@dataclass(frozen=True)
class Result:
    """A figure of every plan. Differences and ratios are against the first; None where either has no value, and the
    ratio also where the first is 0."""

    figure: Figure
    values: tuple[float | None, ...]

    @property
    def differences(self) -> tuple[float | None, ...]:
        first = self.values[0]
        return tuple(None if None in (first, value) else value - first for value in self.values)

    @property
    def ratios(self) -> tuple[float | None, ...]:
        first = self.values[0]
        return tuple(None if None in (first, value) or not first else value / first for value in self.values)


def inputs(reports: Sequence[Report]) -> list[str]:
    """The fields in which any plan differs from the first, in the order of the plan."""
    first, *others = (report.plan for report in reports)
    differing = {change.field for other in others for change in differences(first, other)}
    return [name for name, _ in first if name in differing]


def results(reports: Sequence[Report]) -> list[Result]:
    """Every figure of every plan, without those that none has."""
    found = [Result(figure, tuple(figure.value(report) for report in reports)) for figure in FIGURES]
    return [result for result in found if any(value is not None for value in result.values)]


def batch_ceilings(reports: Sequence[Report]) -> tuple[int, ...]:
    """Sequences of each plan's context that it runs at once by reservation, 0 where it does not start."""
    return tuple(report.capacity.batch_ceiling for report in reports)


def most(reports: Sequence[Report]) -> int:
    """The place of the plan that runs the most sequences, the first of several."""
    ceilings = batch_ceilings(reports)
    return ceilings.index(max(ceilings))


def _ceiling_per_gpu(report: Report) -> float | None:
    if report.setting is None:
        return None
    return report.capacity.batch_ceiling / replica_gpus(report.setting)


def _column(quantity: Quantity, report: Report) -> float | None:
    """A quantity of the Sweep page, of one plan."""
    known = report.engine.fits if quantity.where_it_fits else report.is_served and not report.engine.refused
    value = reduce(getattr, quantity.path.split("."), report) if known else None
    return None if value is None or (quantity.zero_is_none and not value) else value / quantity.per_unit


def _ceiling(report: Report) -> float | None:
    return report.capacity.batch_ceiling


def _where_served(part: Callable[[Report], float | None], per_unit: float, report: Report) -> float | None:
    value = part(report) if report.is_served and report.engine.block_size else None
    return None if value is None else value / per_unit


def _devices(report: Report) -> float | None:
    return replica_gpus(report.setting) if report.setting else None


CEILING, *OTHERS = QUANTITIES
FIGURES = (
    Figure("GPUs of a replica", "devices", "tp × pp", _devices),
    Figure(CEILING.name, CEILING.unit, f"{CEILING.about}; 0 where the plan does not start", _ceiling),
    Figure("Batch ceiling per GPU", "sequences", "batch ceiling / (tp × pp)", _ceiling_per_gpu, 2),
    Figure(
        "Weights", "GiB/device", "what each device loads",
        partial(_where_served, lambda report: report.memory.weight_bytes, GIB), 1,
    ),
    *(Figure(each.name, each.unit, each.about, partial(_column, each), each.decimals) for each in OTHERS),
    Figure(
        "Static batching", "% of slot-steps", "used at the batch of the Batching page; continuous uses all",
        partial(_where_served, lambda report: report.batching.static_utilisation, PERCENT), 1,
    ),
    Figure(
        "Block waste", "% of booked", "slots of the last block without a token, at completion",
        partial(_where_served, lambda report: report.paging.waste_share, PERCENT), 2,
    ),
)  # fmt: skip
"""In the order of the table."""
