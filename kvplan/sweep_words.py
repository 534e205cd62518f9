"""A map of plans in words: its sentence, its four numbers, what each cell says, its table and its command."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence

from kvplan import verdict
from kvplan.catalog import load_preset
from kvplan.links import short_query
from kvplan.metrics import Metric
from kvplan.plan import Plan
from kvplan.report import Report
from kvplan.sweep_axes import PRESETS, Axis, held_fixed, resolved
from kvplan.sweep_grid import Cell, Grid, Map, Quantity, columns, fitting, within
from kvplan.units import count, gib, gib_or_less, short_tokens, usd
from kvplan.verdict import Verdict

TITLES = {
    "context": "Context, tokens",
    "tp": "Tensor parallel, devices",
    "pp": "Pipeline parallel, stages",
    "gpu": "GPU",
    "gpu_memory_gib": "GPU memory, GiB/device",
    "gpu_memory_utilization": "GPU memory utilization, share",
    "model": "Model",
    "weight_dtype": "Weight dtype",
    "kv_dtype": "KV cache dtype",
    "kv_heads": "KV heads of a layer",
    "layers": "Layers with a growing cache",
    "block_size": "Block size, tokens",
    "max_num_seqs": "max_num_seqs, sequences",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "shared_prefix_tokens": "Shared prefix, tokens",
    "batch": "Batch, sequences",
}
"""Every field that may be an axis, with its unit."""
SAID = {
    "context": "{} tokens",
    "tp": "tp {}",
    "pp": "pp {}",
    "gpu": "{}",
    "gpu_memory_gib": "{} GiB",
    "gpu_memory_utilization": "utilization {}",
    "model": "{}",
    "weight_dtype": "weights {}",
    "kv_dtype": "{} cache",
    "kv_heads": "{} KV heads",
    "layers": "{} layers",
    "block_size": "blocks of {}",
    "max_num_seqs": "max_num_seqs {}",
    "max_num_batched_tokens": "{} batched tokens",
    "shared_prefix_tokens": "a prefix of {}",
    "batch": "batch {}",
}
"""A value of each in a sentence."""
NEEDS = {
    "throughput": "weights and FLOP/s that are known",
    "fleet": "a rate of requests and a batch that meets both targets",
}
"""What a quantity of these parts of a report needs beside a plan that starts."""
OUTPUT = "sweep.csv"
FEW = 3
"""Values that a sentence names one by one."""
HOVER_WIDTH = 64
"""Characters of a line on hovering, as a box breaks none by itself."""


def value_words(field: str, value) -> str:
    """A value of an axis as a reader takes it.

    >>> value_words("context", 32768), value_words("tp", None), value_words("gpu", "h200")
    ('32,768', 'auto', 'H200 SXM')
    """
    if value is None:
        return "auto"
    if field in PRESETS:
        return load_preset(value, field).name
    return value if isinstance(value, str) else f"{value:,.10g}"


def tick(field: str, value) -> str:
    """The same beside an axis."""
    return short_tokens(value) if field == "context" else value_words(field, value)


def said(axis: Axis, place: int) -> str:
    """One value of an axis in a sentence.

    >>> said(Axis("tp", (1, 2), ("1", "2"), 0, "1,2"), 1)
    'tp 2'
    """
    value = axis.values[place]
    return f"{axis.field} auto" if value is None else SAID[axis.field].format(value_words(axis.field, value))


def number(quantity: Quantity, value: float | None) -> str:
    """A value without its unit."""
    return "none" if value is None else f"{value:,.{quantity.decimals}f}"


def amount(quantity: Quantity, value: float | None) -> str:
    """A value with its unit."""
    return "none" if value is None else f"{number(quantity, value)} {quantity.unit}"


def cell_amount(quantity: Quantity, cell: Cell) -> str:
    """A cell's value with its unit, or what a plan that starts lacks for one."""
    part = quantity.path.partition(".")[0]
    if cell.value is None and cell.fits and part in NEEDS:
        return f"none, as it needs {NEEDS[part]}"
    return amount(quantity, cell.value)


def bound(quantity: Quantity, limit: float) -> str:
    """What a limit asks for: "64 sequences or more"."""
    return f"{limit:,.12g} {quantity.unit} or {'more' if quantity.more_is_better else 'less'}"


def axis_note(report: Report, axis: Axis) -> str:
    """How many values an axis has, and whether the plan's own is one."""
    values = f"{len(axis.values)} value{'' if len(axis.values) == 1 else 's'}"
    own, now = getattr(report.plan, axis.field), value_words(axis.field, resolved(report, axis.field))
    means = f"auto is {now}, " if own is None and None in axis.values else ""
    return f"{values}, {means}{'with' if axis.own is not None else 'without'} the plan's own"


def opening(found: Map, limit: float | None) -> Verdict:
    """Which plans meet the limit, or how far the quantity goes; what binds in how many."""
    binding, badge, reason = _bindings(found)
    return Verdict(_sentence(found, limit), badge, "memory" if binding == "memory" else "limit", reason)


def metrics(found: Map, own: Cell) -> list[Metric]:
    """The plan itself, the most and the least of the map, and how many of its plans run."""
    quantity = found.grid.quantity
    here = {place: cell.value for place, cell in _places(found) if cell.value is not None}
    most, least = (pick(here, key=here.get) if here else None for pick in (max, min))
    fits = sum(cell.fits for _, cell in _places(found))
    refused = sum(cell.refused is not None for _, cell in _places(found))
    total = len(list(_places(found)))
    about = f"{quantity.name} in {quantity.unit}: {quantity.about}."
    return [
        Metric("This plan", number(quantity, own.value), quantity.unit, f"{about} The plan of the sidebar."),
        Metric("Highest", number(quantity, here.get(most)), _at(found, most), f"{about} The largest on this map."),
        Metric("Lowest", number(quantity, here.get(least)), _at(found, least), f"{about} The smallest on this map."),
        Metric(
            "Plans that start",
            f"{count(fits)} of {count(total)}",
            "all of this map"
            if fits == total
            else f"{count(total - fits - refused)} do not fit, {count(refused)} refused",
            "Plans of this map at which the engine starts: one request of the context fits in the pool, and nothing "
            "about the plan is refused.",
        ),
    ]


def hover(found: Map, column: int, row: int) -> str:
    """All that is known of a cell, a line each."""
    quantity, cell = found.grid.quantity, found.cells[row][column]
    lines = [f"<b>{where(found, column, row)}</b>", f"{quantity.name}: {cell_amount(quantity, cell)}", state(cell)]
    return "<br>".join("<br>".join(textwrap.wrap(line, HOVER_WIDTH)) for line in lines)


def where(found: Map, column: int, row: int) -> str:
    """The axes of a cell: "32,768 tokens, tp 4, fp8 cache"."""
    return ", ".join([said(found.grid.x, column), said(found.grid.y, row), *_third(found)])


def state(cell: Cell) -> str:
    """What binds, or why the engine does not start."""
    if cell.fits:
        return verdict.BINDING[cell.binding]
    return f"{'does not fit' if cell.refused is None else 'refused'}: {why_not(cell)}"


def why_not(cell: Cell) -> str:
    """Why the engine does not start, and what would help; empty where it does."""
    if cell.fits or cell.refused is not None:
        return cell.refused or ""
    cure = f"; tp {cell.min_tp} is the smallest that does" if cell.min_tp else ""
    if cell.shortfall_bytes > 0:
        return f"weights and start-up take {gib(cell.shortfall_bytes)} too much on a device{cure}"
    longest = f"; the longest that does is {count(cell.suggested_context)}" if cell.suggested_context else cure
    needed, has = gib_or_less(cell.needed_bytes), gib_or_less(max(0, cell.usable_bytes))
    return f"a request needs {needed}, the pool has {has}{longest}"


def cell_words(found: Map, column: int, row: int) -> str:
    """A cell in a sentence, for those who do not hover."""
    quantity, cell = found.grid.quantity, found.cells[row][column]
    return f"{quantity.name}: **{cell_amount(quantity, cell)}**; {state(cell)}"


def legend(found: Map, limit: float | None) -> str:
    """What the marks of a map mean, those that are on it."""
    cells = [cell for _, cell in _places(found)]
    quantity, scale = found.grid.quantity, found.grid.scale
    marks = []
    if scale is not None:
        logarithm = " on a log scale" if scale.is_log else ""
        ends = f"{number(quantity, scale.low)} to {number(quantity, scale.high)}"
        marks.append(f"The fuller the colour the more, from {ends}{logarithm}.")
    if limit is not None:
        marks.append(f"Dashed: where {bound(quantity, limit)} begins.")
    if len(set(fitting(found).ravel().tolist())) > 1:
        marks.append("Dotted: where plans stop fitting.")
    if any(not cell.fits and cell.refused is None for cell in cells):
        marks.append("Hatched: does not fit.")
    if any(cell.refused is not None for cell in cells):
        marks.append("Crossed: refused by the engine.")
    lids = [
        verdict.LIMITS[name] for name in ("max_num_seqs", "tenant_quota") if any(cell.binding == name for cell in cells)
    ]
    if lids:
        marks.append(f"A lid on a cell: {' or '.join(lids)} binds before memory.")
    if found.own is not None:
        marks.append("The dot: this plan.")
    return " ".join([*marks, "Click on a cell, or choose one below."])


def notes(report: Report, found: Grid) -> list[str]:
    """What the map leaves out or holds fixed, a sentence each."""
    fields = [each.field for each in (found.x, found.y, found.third) if each is not None]
    away = [each.field for each in (found.x, found.y, found.third) if each is not None and each.own is None]
    lines = [f"This plan is not on the map, as its own {' and '.join(away)} is on no axis"] if away else []
    if "gpu" in fields and found.quantity.unit == "USD":
        price = usd(report.setting.gpu_hour_usd)
        lines.append(f"Every GPU is priced as the plan's, {price} an hour, as what others cost is not known")
    held = held_fixed(report.plan, *fields)
    return lines + [
        f"Set in the plan, so the same for every {name}: {', '.join(parts)}" for name, parts in held.items()
    ]


def table(found: Map) -> list[dict]:
    """A row for each plan: its axes, the quantity, whether it starts, what binds and why it does not."""
    quantity = found.grid.quantity
    return [
        {
            TITLES[found.grid.x.field]: _plain(found.grid.x, column),
            TITLES[found.grid.y.field]: _plain(found.grid.y, row),
            f"{quantity.name}, {quantity.unit}": cell.value,
            "Binds": "refused" if cell.refused is not None else verdict.LIMITS[cell.binding],
            "Why not": why_not(cell),
        }
        for (column, row), cell in _places(found)
    ]


def command(plan: Plan, found: Grid) -> str:
    """The same grid in a shell: every value of every axis."""
    axes = [each for each in (found.third, found.y, found.x) if each is not None]
    fields = {name: text for name, text in short_query(plan).items() if name not in {each.field for each in axes}}
    parts = [f"--set {shlex.quote(f'{name}={text}')}" for name, text in fields.items()]
    parts += [f"--axis {shlex.quote(f'{each.field}={each.text}')}" for each in axes]
    return " ".join(
        ["python -m kvplan sweep", *parts, f"--columns {','.join(columns(found.quantity))}", f"-o {OUTPUT}"]
    )


def _places(found: Map):
    """Each cell with its column and row."""
    for row, cells in enumerate(found.cells):
        for column, cell in enumerate(cells):
            yield (column, row), cell


def _third(found: Map) -> list[str]:
    return [] if found.grid.third is None else [said(found.grid.third, found.chosen)]


def _at(found: Map, place: tuple[int, int] | None) -> str:
    if place is None:
        return "no plan has any"
    column, row = place
    return f"{said(found.grid.x, column)}, {said(found.grid.y, row)}"


def _plain(axis: Axis, place: int):
    """A value in a table: a number where all of the axis are."""
    numbers = all(isinstance(value, (int, float)) for value in axis.values)
    return axis.values[place] if numbers else value_words(axis.field, axis.values[place])


def _sentence(found: Map, limit: float | None) -> str:
    quantity, total = found.grid.quantity, len(list(_places(found)))
    here = {place: cell.value for place, cell in _places(found) if cell.value is not None}
    if not here:
        return _none(found, total)
    best = (max if quantity.more_is_better else min)(here, key=here.get)
    if limit is None:
        return _range(found, here, best)
    met, wanted = within(found, limit), f"{quantity.name} of {bound(quantity, limit)}"
    if not met.any():
        return f"{wanted}: **no plan here**; the best has {amount(quantity, here[best])}, with {where(found, *best)}"
    extent, share = _extent(found, met), f"**{count(int(met.sum()))} of {count(total)}** plans have it"
    return f"**{wanted}** {extent}; {share}" if extent else f"**{wanted}**: {share}"


def _range(found: Map, here: dict[tuple[int, int], float], best: tuple[int, int]) -> str:
    """How far the quantity goes, and which plan has the best of it."""
    quantity = found.grid.quantity
    low, high = (number(quantity, pick(here.values())) for pick in (min, max))
    if low == high:
        return f"{quantity.name} of **{low}** {quantity.unit} on every plan here that has any"
    ties = sum(value == here[best] for value in here.values()) - 1
    others = f" and {count(ties)} other{'' if ties == 1 else 's'}" if ties else ""
    return f"{quantity.name} from **{low}** to **{high}** {quantity.unit}; best with **{where(found, *best)}**{others}"


def _none(found: Map, total: int) -> str:
    """Why no cell has a value."""
    quantity = found.grid.quantity
    if fitting(found).any():
        needs = NEEDS.get(quantity.path.partition(".")[0], "layers that grow with their tokens")
        return f"**{quantity.name}** is known for none of these {count(total)} plans; it needs {needs}"
    reasons = {why_not(cell) for _, cell in _places(found)}
    return f"**Not one** of these {count(total)} plans starts{f': {reasons.pop()}' if len(reasons) == 1 else ''}"


def _extent(found: Map, met) -> str:
    """Where the limit is met along one axis at the plan's own place on the other; empty where it has neither."""
    x, y = found.grid.x, found.grid.y
    lines = []
    if x.own is not None:
        lines.append((met[:, x.own].tolist(), y, [said(x, x.own), *_third(found)]))
    if y.own is not None:
        lines.append((met[y.own].tolist(), x, [said(y, y.own), *_third(found)]))
    lines.sort(key=lambda line: all(line[0]) or not any(line[0]))
    return next((f"{_reach(axis, flags)} with {', '.join(at)}" for flags, axis, at in lines), "")


def _reach(axis: Axis, flags: Sequence[bool]) -> str:
    """Which values of an axis are meant: "from **tp 4** on"."""
    first, last = (flags.index(True), len(flags) - 1 - flags[::-1].index(True)) if any(flags) else (0, 0)
    if all(flags) or not any(flags):
        return f"at **{'any' if any(flags) else 'no'} {axis.field}** here"
    is_one_run = all(flags[first : last + 1])
    numbers = [value for value in axis.values if isinstance(value, (int, float))]
    is_ordered = list(axis.values) == sorted(numbers)
    if is_ordered and is_one_run and last == len(flags) - 1:
        return f"from **{said(axis, first)}** on"
    if is_ordered and is_one_run and first == 0:
        return f"up to **{said(axis, last)}**"
    places = [place for place, flag in enumerate(flags) if flag]
    if len(places) > FEW:
        return f"at **{len(places)} of {len(flags)}** values of {axis.field}"
    return f"at **{' and '.join(said(axis, place) for place in places)}**"


def _bindings(found: Map) -> tuple[str, str, str]:
    """What binds in most plans of the map, as a badge, and in how many each limit does."""
    kinds = Counter("refused" if cell.refused is not None else cell.binding for _, cell in _places(found))
    (most, times), *others = kinds.most_common()
    names = {"refused": "refused"} | verdict.BINDING
    rest = "".join(f", {names[kind]} in {count(number)}" for kind, number in others)
    return most, names[most], f"in {count(times)} of {count(kinds.total())} plans{rest}. All else is as in the sidebar."
