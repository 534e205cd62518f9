"""A map of plans: two of their fields as its axes, a third to choose from, and one quantity of every plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kvplan.plan import Plan
from kvplan.report import Report
from kvplan.sweep import Sweep, is_counted_at_once, sweep
from kvplan.sweep_axes import Axis
from kvplan.units import GIB, KIB

MOST_CELLS, MOST_ONE_BY_ONE = 1_600, 400
"""Plans of a map with every value of the third axis: counted at once, and one by one at a millisecond each."""
WIDE = 10
"""Times the least value that the largest is from where on a scale is one of the logarithm."""
MILLI = 1e-3


class Quantity(NamedTuple):
    """What a map shows of each plan: a column of a sweep, in a `unit` that is `per_unit` of the column's own.

    `where_it_fits`: whether it says anything only of a plan that the engine starts. `target`: the field of a setting
    that limits it. `zero_is_none`: whether the column is 0 where nothing is known. `about`: a clause on how it is
    counted.
    """

    name: str
    path: str
    unit: str
    about: str
    decimals: int = 0
    per_unit: float = 1
    more_is_better: bool = True
    where_it_fits: bool = True
    target: str | None = None
    zero_is_none: bool = False

    @property
    def most_cells(self) -> int:
        return MOST_CELLS if is_counted_at_once([self.path]) else MOST_ONE_BY_ONE


OWN_BATCH = "of a replica, at the plan's batch, else at each one's own ceiling up to 512"
IN_FLEET = "for the peak, both targets and spare replicas, by the closed form"
ON_A_DEVICE = {"where_it_fits": False}
LESS = {"more_is_better": False}
QUANTITIES = (
    Quantity("Batch ceiling", "capacity.batch_ceiling", "sequences", "the least of memory, quota and max_num_seqs"),
    Quantity(
        "On-demand ceiling", "capacity.on_demand_ceiling", "sequences on average", "by memory, and no guarantee"
    ),
    Quantity("Max concurrency", "engine.max_concurrency", "requests", "of the whole context, as the engine prints", 2),
    Quantity("KV cache size", "engine.kv_cache_tokens", "tokens", "as the engine prints"),
    Quantity("KV pool", "memory.pool_bytes", "GiB/device", "what is left for the cache", 1, GIB, **ON_A_DEVICE),
    Quantity(
        "Request booking", "cache.request_bytes_booked", "GiB/device", "one request of the whole context", 3, GIB,
        **LESS, **ON_A_DEVICE,
    ),
    Quantity(
        "Cache per token", "cache.bytes_per_token", "KiB/device", "in layers that grow", 1, KIB, **LESS, **ON_A_DEVICE
    ),
    Quantity("Smallest tp", "capacity.min_tp", "devices", "at which one request starts", **LESS, **ON_A_DEVICE),
    Quantity("Output rate", "throughput.tokens_per_s", "tokens/s", OWN_BATCH, zero_is_none=True),
    Quantity("TPOT", "throughput.tpot_s", "ms", OWN_BATCH, 1, MILLI, **LESS, target="tpot_s"),
    Quantity("TTFT", "throughput.ttft_s", "ms", OWN_BATCH, 0, MILLI, **LESS, target="ttft_s"),
    Quantity("Fleet", "fleet.gpus", "GPUs", IN_FLEET, **LESS),
    Quantity("Cost an hour", "fleet.usd_per_hour", "USD", IN_FLEET, 2, **LESS),
    Quantity(
        "Cost per million tokens", "fleet.usd_per_million_tokens", "USD", "of output at the mean rate", 3,
        **LESS,
    ),
)  # fmt: skip
BESIDE = {
    "fits": "engine.fits",
    "refused": "engine.refused",
    "binding": "capacity.binding",
    "shortfall_bytes": "memory.shortfall_bytes",
    "needed_bytes": "engine.needed_bytes",
    "usable_bytes": "engine.usable_bytes",
    "suggested_context": "engine.suggested_context",
    "min_tp": "capacity.min_tp",
}
"""What is told of every plan beside the quantity: a cell's own name -> a column of a sweep."""


class Cell(NamedTuple):
    """One plan of a map: the quantity in its unit, None where it has none, and what decides whether the plan runs."""

    value: float | None
    fits: bool
    refused: str | None
    binding: str
    shortfall_bytes: int
    needed_bytes: int
    usable_bytes: int
    suggested_context: int | None
    min_tp: int | None


class Scale(NamedTuple):
    """From the least to the largest value of a quantity, in the logarithm where they lie far apart."""

    low: float
    high: float
    is_log: bool


@dataclass(frozen=True, eq=False)
class Grid:
    """Every plan that the axes span. `cells` by the third axis (which has one value where there is none), y and x;
    `scale` is theirs, None where no plan has a value."""

    quantity: Quantity
    x: Axis
    y: Axis
    third: Axis | None
    found: Sweep
    cells: list[list[list[Cell]]]
    scale: Scale | None


@dataclass(frozen=True, eq=False)
class Map:
    """The plans of a grid at one value of its third axis, which is `chosen`."""

    grid: Grid
    chosen: int = 0

    @property
    def cells(self) -> list[list[Cell]]:
        """By y and x."""
        return self.grid.cells[self.chosen]

    @property
    def own(self) -> tuple[int, int] | None:
        """The plan's own column and row; None where it is not on the map."""
        grid = self.grid
        elsewhere = grid.third is not None and grid.third.own != self.chosen
        return None if elsewhere or None in (grid.x.own, grid.y.own) else (grid.x.own, grid.y.own)


def grid(plan: Plan, quantity: Quantity, x: Axis, y: Axis, third: Axis | None = None) -> Grid:
    """The quantity of every plan. Raises ValueError where these are more than a page waits for."""
    axes = [each for each in (third, y, x) if each is not None]
    number = math.prod(len(each.values) for each in axes)
    if number > quantity.most_cells:
        raise ValueError(
            f"axes: a map of this quantity has at most {quantity.most_cells:,} plans, with every value of the third "
            f"axis, got {number:,}"
        )
    found = sweep(plan, {each.field: each.values for each in axes}, columns=columns(quantity))
    told = _told(found, quantity)
    rows = _parts(told, len(x.values))
    return Grid(quantity, x, y, third, found, _parts(rows, len(y.values)), _scale(told))


def columns(quantity: Quantity) -> list[str]:
    """What a sweep is asked for: the quantity, and what is told beside it."""
    return list(dict.fromkeys([quantity.path, *BESIDE.values()]))


def plan_at(found: Map, column: int, row: int) -> Plan:
    """The plan of one cell."""
    third = [] if found.grid.third is None else [found.chosen]
    return found.grid.found.plan_at([*third, row, column])


def own_cell(plan: Plan, quantity: Quantity) -> Cell:
    """The plan itself, whether it is on a map or not."""
    (cell,) = _told(sweep(plan, {"context": [plan.context]}, columns=columns(quantity)), quantity)
    return cell


def limit_of(report: Report, quantity: Quantity, given: float | None) -> float | None:
    """The limit that is drawn, in the quantity's unit: the one given, else the plan's own target, if it has one."""
    if given is not None or quantity.target is None:
        return given
    return getattr(report.setting, quantity.target) / quantity.per_unit


def within(found: Map, limit: float) -> np.ndarray:
    """Which cells meet a limit, by y and x; those without a value do not."""
    values = np.array([[math.nan if cell.value is None else cell.value for cell in row] for row in found.cells])
    return values >= limit if found.grid.quantity.more_is_better else values <= limit


def fitting(found: Map) -> np.ndarray:
    """Which cells the engine starts, by y and x."""
    return np.array([[cell.fits for cell in row] for row in found.cells])


def borders(inside: np.ndarray) -> list[tuple[float, float, float, float]]:
    """The lines between cells inside and outside, as x0, x1, y0, y1 where cells are 1 wide and the first is at 0.

    >>> borders(np.array([[True, False], [True, False]]))
    [(0.5, 0.5, -0.5, 1.5)]
    """
    upright = (inside[:, 1:] != inside[:, :-1]).T
    level = inside[1:] != inside[:-1]
    lines = [(at + 0.5, at + 0.5, *ends) for at, flags in enumerate(upright) for ends in _runs(flags)]
    return lines + [(*ends, at + 0.5, at + 0.5) for at, flags in enumerate(level) for ends in _runs(flags)]


def share(scale: Scale, value: float) -> float:
    """Where a value stands on a scale, from 0 to 1.

    >>> share(Scale(1, 100, True), 10), share(Scale(0, 100, False), 10)
    (0.5, 0.1)
    """
    if scale.high == scale.low:
        return 1.0
    if scale.is_log:
        return math.log(max(value, scale.low) / scale.low) / math.log(scale.high / scale.low)
    return (value - scale.low) / (scale.high - scale.low)


def _told(found: Sweep, quantity: Quantity) -> list[Cell]:
    """The plans of a sweep in order, the last axis first to move."""
    values = np.array(found.columns[quantity.path].ravel().tolist(), dtype=float) / quantity.per_unit
    beside = [found.columns[path].ravel().tolist() for path in BESIDE.values()]
    cells = [Cell(*parts) for parts in zip(values.tolist(), *beside, strict=True)]
    return [cell if _has_value(cell, quantity) else cell._replace(value=None) for cell in cells]


def _has_value(cell: Cell, quantity: Quantity) -> bool:
    if math.isnan(cell.value) or (quantity.zero_is_none and not cell.value):
        return False
    return cell.fits if quantity.where_it_fits else cell.refused is None


def _scale(cells: list[Cell]) -> Scale | None:
    known = [cell.value for cell in cells if cell.value is not None]
    if not known:
        return None
    low, high, least = min(known), max(known), min([value for value in known if value > 0], default=math.inf)
    is_log = high >= WIDE * least
    return Scale(least if is_log else low, high, is_log)


def _parts(items: list, size: int) -> list[list]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _runs(flags: np.ndarray) -> list[tuple[float, float]]:
    """Where neighbours are set, from edge to edge."""
    ends = np.flatnonzero(np.diff(np.concatenate([[0], flags, [0]]).astype(int))).reshape(-1, 2)
    return [(start - 0.5, stop - 0.5) for start, stop in ends.tolist()]
