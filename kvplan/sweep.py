"""Many plans at once: some fields as axes, and every number of the report as an array over them.

A grid is cut into blocks of plans that differ in `catalog.NUMBERS` only, and a block is counted at once, by the
formulas that count a single plan with arrays in the place of its numbers. A cell equals `evaluate` of its plan bit for
bit. Blocks do not hang on each other, so any executor may run them, here or on other machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import groupby, pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvplan.axes import axis_values
from kvplan.catalog import NUMBERS, Setting, resolve
from kvplan.fleet import Fleet
from kvplan.memory import Memory
from kvplan.plan import Plan
from kvplan.report import (
    BatchingReport,
    CacheReport,
    CapacityReport,
    Counted,
    EngineReport,
    PagingReport,
    Report,
    ThroughputReport,
    counted,
    evaluate,
)
from kvplan.specs import ModelSpec, nearest, shorten
from kvplan.version import VERSION

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kvplan.scheduler import Progress

COUNTED = {"cache": CacheReport, "memory": Memory, "engine": EngineReport, "capacity": CapacityReport}
ONE_BY_ONE = {
    "batching": BatchingReport, "throughput": ThroughputReport, "fleet": Fleet, "paging": PagingReport,
}  # fmt: skip
SIMULATION = "simulation"
BLOCKS_A_TASK = 256
"""Blocks that travel together, so that each is worth the way."""
ZERO_IS_NONE = frozenset({"engine.suggested_context", "capacity.min_tp", "capacity.min_tp_weights"})
"""Columns in which arrays write 0 where a report has None."""
LARGEST_EXACT = 2**50
"""Integers up to this, and eight times them, are exact in a float; beyond, Python's own integers count."""
BLOCK_POINTS = 32_768
"""Plans counted at once: as many as a processor's cache holds the arrays of."""
REPORTS_A_BLOCK = 256
"""Plans evaluated one by one in a block."""
MOST_POINTS = 20_000_000

Values = dict[str, np.ndarray]
"""Column -> values, of a shape that broadcasts to the block's."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """`axes`: field -> its values, in order. `columns`: path in `Report.to_dict` -> an array over the axes, read-only.

    Arrays are int64, float64, bool or text; where a value is undefined (None), or an integer beside floats, they hold
    Python's own objects. `plan` has the fields that are no axis.
    """

    axes: dict[str, list]
    columns: dict[str, np.ndarray]
    plan: Plan

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.axes.values())

    def records(self) -> Iterator[tuple]:
        """One tuple a plan, the last axis first to move: its values of the axes, then of the columns."""
        points = product(*self.axes.values())
        for start in range(0, math.prod(self.shape), BLOCK_POINTS):
            parts = [column.flat[start : start + BLOCK_POINTS].tolist() for column in self.columns.values()]
            for values in zip(*parts, strict=True):
                yield (*next(points), *values)

    def rows(self) -> Iterator[dict]:
        """The records as dicts: the axes by their fields, the columns by their paths."""
        names = [*self.axes, *self.columns]
        return (dict(zip(names, record, strict=True)) for record in self.records())

    def plan_at(self, index: Sequence[int]) -> Plan:
        """The plan of one cell."""
        chosen = {name: values[place] for (name, values), place in zip(self.axes.items(), index, strict=True)}
        return self.plan.model_copy(update=chosen)


class Block(NamedTuple):
    """The part `where` of a grid: `plan` with `numbers`, each an array along its own axis."""

    where: tuple[slice, ...]
    plan: Plan
    numbers: dict[str, np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(part.stop - part.start for part in self.where)


def sweep(
    plan: Plan,
    axes: Mapping[str, Iterable],
    executor: Executor | None = None,
    *,
    columns: Iterable[str] | None = None,
    model: ModelSpec | None = None,
    progress: Progress | None = None,
    done: Mapping[int, Values] | None = None,
    finished: Callable[[int, Values], None] | None = None,
) -> Sweep:
    """The report's numbers of every plan that the axes span, `plan` giving the other fields.

    `columns`: paths such as `throughput.tokens_per_s`, parts such as `fleet`, and `simulation` paths such as
    `simulation.on_demand.ttft_s.p95`; without it every number, boolean and `binding` of cache, memory, engine and
    capacity. Others are worked out plan by plan, so that they take as long as `evaluate` or `simulate` does.
    `executor` runs the blocks, wherever it will. `progress(done, total)` counts plans and stops by returning False.
    `done` holds the blocks of an earlier run by their number; `finished(number, values)` is told each new one.

    Raises ValueError for an axis or a column that does not exist, a value its field does not take, more than
    `MOST_POINTS` plans, and when stopped.

    >>> found = sweep(Plan(kv_cache_memory_bytes=2**36), {"tp": [1, 2], "context": [8192, 32768, 131072]})
    >>> found.columns["capacity.batch_ceiling"].tolist()
    [[64, 16, 4], [128, 32, 8]]
    """
    axes = {name: axis_values(name, values) for name, values in axes.items()}
    names, shape = column_names(columns), tuple(len(values) for values in axes.values())
    cut = blocks(plan, axes, names)
    results = dict(done or {})
    plans_done = sum(math.prod(cut[number].shape) for number in results)
    for number, values in _run([(n, block) for n, block in enumerate(cut) if n not in results], names, model, executor):
        results[number] = values
        plans_done += math.prod(cut[number].shape)
        if finished is not None:
            finished(number, values)
        if progress is not None and progress(plans_done, math.prod(shape)) is False:
            raise ValueError("the sweep was stopped")
    ordered, spread = [results[number] for number in range(len(cut))], _spread(axes, cut)
    return Sweep(axes, {name: _assembled(name, cut, ordered, shape, spread) for name in names}, plan)


def column_names(columns: Iterable[str] | None = None) -> list[str]:
    """Paths of columns, with parts spelt out; those of a sweep that asks for none in particular where None is given.

    Raises ValueError for one that is neither a path nor a part.
    """
    if columns is None:
        return [name for name in every_column() if name.partition(".")[0] in COUNTED and name != "engine.refused"]
    found: dict[str, None] = {}
    for asked in columns:
        names = [name for name in every_column() if name == asked or name.startswith(f"{asked}.")]
        if not names:
            near = nearest(str(asked), every_column(), 0.3)
            raise ValueError(f"columns: no {shorten(str(asked))!r} in a report{near}")
        found |= dict.fromkeys(names)
    return list(found)


def blocks(plan: Plan, axes: Mapping[str, list], names: Sequence[str]) -> list[Block]:
    """The grid as blocks, in order. Raises ValueError where it has more than `MOST_POINTS` plans."""
    points = math.prod(len(values) for values in axes.values())
    if points > MOST_POINTS:
        raise ValueError(f"axes: a sweep has at most {MOST_POINTS:,} plans, got {points:,}")
    room, pieces = _points_a_block(names), []
    for place, (name, values) in reversed(list(enumerate(axes.items()))):
        most = max(1, room) if name in NUMBERS else 1
        runs = _runs(values) if name in NUMBERS else [slice(0, len(values))]
        parts = [piece for run in runs for piece in _pieces(run, most)]
        room //= max(part.stop - part.start for part in parts)
        pieces.insert(0, [(part, _along(place, len(axes), values[part])) for part in parts])
    return [_block(plan, list(axes), parts) for parts in product(*pieces)]


def is_counted_at_once(names: Iterable[str]) -> bool:
    """Whether all of these columns are counted block by block, none plan by plan."""
    return {name.partition(".")[0] for name in names} <= COUNTED.keys()


def _points_a_block(names: Sequence[str]) -> int:
    if any(name.startswith(f"{SIMULATION}.") for name in names):
        return 1
    return BLOCK_POINTS if is_counted_at_once(names) else REPORTS_A_BLOCK


def _runs(values: list) -> list[slice]:
    """Neighbours of one kind: given, or left open."""
    if None not in values:
        return [slice(0, len(values))]
    ends = np.cumsum([len(list(members)) for _, members in groupby(values, key=lambda value: value is None)]).tolist()
    return [slice(start, end) for start, end in pairwise([0, *ends])]


def _pieces(run: slice, most: int) -> list[slice]:
    """A run in pieces of at most so many values."""
    return [slice(start, min(start + most, run.stop)) for start in range(run.start, run.stop, most)]


def _along(place: int, axes: int, values: list):
    """One value, or an array of several along its axis; None stands for all that are left open."""
    if len(values) == 1 or values[0] is None:
        return values[0]
    return np.array(values).reshape([-1 if axis == place else 1 for axis in range(axes)])


def _block(plan: Plan, names: list[str], parts: Sequence[tuple[slice, object]]) -> Block:
    values = {name: value for name, (_, value) in zip(names, parts, strict=True)}
    numbers = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    single = {name: value for name, value in values.items() if name not in numbers}
    return Block(tuple(part for part, _ in parts), plan.model_copy(update=single), numbers)


def _run(todo: list[tuple[int, Block]], names: list[str], model: ModelSpec | None, executor: Executor | None):
    """Each block's number and values, as they are done."""
    tasks = _tasks(todo, _points_a_block(names))
    if executor is None:
        for task in tasks:
            yield from block_values(task, names, model, VERSION)
        return
    from concurrent.futures import as_completed

    futures = [executor.submit(block_values, task, names, model, VERSION) for task in tasks]
    try:
        for future in as_completed(futures):
            yield from future.result()
    finally:
        for future in futures:
            future.cancel()


def _tasks(todo: list[tuple[int, Block]], most: int) -> Iterator[list[tuple[int, Block]]]:
    """Blocks in handfuls that are worth sending somewhere."""
    task, points = [], 0
    for number, block in todo:
        task.append((number, block))
        points += math.prod(block.shape)
        if points >= most or len(task) == BLOCKS_A_TASK:
            yield task
            task, points = [], 0
    if task:
        yield task


def block_values(
    task: list[tuple[int, Block]], names: list[str], model: ModelSpec | None, version: str
) -> list[tuple[int, Values]]:
    """The columns of some blocks, by their numbers. Raises ValueError where another version of kvplan asks."""
    if version != VERSION:
        raise ValueError(f"version: {version} asks, and a worker has {VERSION}; both must be the same")
    return [(number, _values(block, names, model)) for number, block in task]


def _values(block: Block, names: list[str], model: ModelSpec | None) -> Values:
    at_once = [name for name in names if name.partition(".")[0] in COUNTED]
    if not at_once or _is_inexact(block, model):
        return _one_by_one(block, names, model)
    others = [name for name in names if name not in at_once]
    return _at_once(block, at_once, model) | (_one_by_one(block, others, model) if others else {})


def _is_inexact(block: Block, model: ModelSpec | None) -> bool:
    """Whether any integer of the block might be more than arrays hold exactly: none grows when a context, a limit of
    the scheduler or the pool shrinks."""
    if not block.numbers:
        return False
    try:
        corner = _resolved(block, {name: values.max().item() for name, values in block.numbers.items()}, model)
    except ValueError:
        return False
    pool_bytes = max(corner.total_bytes, corner.plan.kv_cache_memory_bytes or 0)
    largest = _resolved(block, corner.plan.model_dump(include=NUMBERS) | {"kv_cache_memory_bytes": pool_bytes}, model)
    found = counted(largest)
    return any(
        isinstance(value, (int, float)) and value > LARGEST_EXACT
        for part in COUNTED
        for value in vars(getattr(found, part)).values()
    )


def _resolved(block: Block, numbers: Mapping, model: ModelSpec | None) -> Setting:
    return resolve(block.plan.model_copy(update=numbers), model)


def _at_once(block: Block, names: list[str], model: ModelSpec | None) -> Values:
    try:
        setting = _resolved(block, block.numbers, model)
    except ValueError as error:
        found = Counted(engine=EngineReport(refused=str(error)))
    else:
        found = counted(setting)
    return {name: _defined(name, _leaf(found, name), len(block.where)) for name in names}


def _defined(name: str, value, axes: int) -> np.ndarray:
    """A value or an array with as many axes as the grid, None where arrays write 0 for it."""
    if not isinstance(value, np.ndarray):
        return np.array(value, dtype=object if value is None else None).reshape([1] * axes)
    if name not in ZERO_IS_NONE or value.all():
        return value
    return np.where(value == 0, None, value.astype(object))


def _leaf(root, path: str):
    for name in path.split("."):
        root = root.get(name) if isinstance(root, dict) else getattr(root, name)
        if root is None:
            break
    return root


def _one_by_one(block: Block, names: list[str], model: ModelSpec | None) -> Values:
    """The columns plan by plan."""
    found = [_point(plan, names, model) for plan in _plans(block)]
    shape = np.broadcast_shapes((1,) * len(block.where), *(array.shape for array in block.numbers.values()))
    return {name: column([point[name] for point in found]).reshape(shape) for name in names}


def _plans(block: Block) -> Iterator[Plan]:
    """Every plan of a block, the last axis first to move."""
    for values in product(*(array.ravel().tolist() for array in block.numbers.values())):
        yield block.plan.model_copy(update=dict(zip(block.numbers, values, strict=True)))


def _point(plan: Plan, names: list[str], model: ModelSpec | None) -> dict:
    report = evaluate(plan, model)
    simulated = [name for name in names if name.startswith(f"{SIMULATION}.")]
    run = {SIMULATION: _simulated(report)} if simulated else {}
    return {name: _leaf(run if name in simulated else report, name) for name in names}


def _simulated(report: Report) -> dict | None:
    """What `simulate` says of the plan, at its rate where it has one; None where it cannot be run."""
    from kvplan import pool

    if not report.capacity.batch_ceiling:
        return None
    requests = pool.requests_of(report.setting, pool.usual_number(report))
    try:
        return pool.to_dict(report.plan, pool.runs(report, requests, pool.arrivals_of(report.setting)))
    except ValueError:
        return None


def column(values: list) -> np.ndarray:
    """Values as an array of their one type, or as objects where they have several."""
    if len(set(map(type, values))) == 1 and values[0] is not None:
        return np.array(values)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _spread(axes: Mapping[str, list], cut: Sequence[Block]) -> list[bool]:
    """For each axis whether a part of size 1 may stand for more than one value: an array of numbers that stays one
    value over several of them did not enter a column."""
    return [
        len(values) > 1 and (field not in NUMBERS or None in values or all(block.shape[axis] == 1 for block in cut))
        for axis, (field, values) in enumerate(axes.items())
    ]


def _assembled(
    name: str, cut: Sequence[Block], results: Sequence[Values], shape: tuple[int, ...], spread: list[bool]
) -> np.ndarray:
    """One column over the whole grid, stored along those axes only along which it changes."""
    parts = [result[name] for result in results]
    dtype = np.result_type(*parts) if len({part.dtype.kind for part in parts}) == 1 else np.dtype(object)
    changes = [wide or any(part.shape[axis] > 1 for part in parts) for axis, wide in enumerate(spread)]
    found = np.empty([size if varies else 1 for size, varies in zip(shape, changes, strict=True)], dtype=dtype)
    for block, part in zip(cut, parts, strict=True):
        found[tuple(where if varies else slice(None) for where, varies in zip(block.where, changes, strict=True))] = (
            part
        )
    return np.broadcast_to(found, shape)


@lru_cache
def every_column() -> tuple[str, ...]:
    """Every column a sweep may have."""
    from kvplan import pool

    kinds = COUNTED | ONE_BY_ONE
    reported = [f"{part}.{one.name}" for part, kind in kinds.items() for one in fields(kind) if one.name != "groups"]
    return (*reported, *(f"{SIMULATION}.{policy}.{figure}" for policy in pool.POLICIES for figure in pool.PATHS))
