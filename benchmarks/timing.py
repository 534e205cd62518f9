"""What the benchmarks share: the best of several runs, two calls in turns, and a table of ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

RUNS = 5


class Row(NamedTuple):
    """One figure beside a reference that was measured in the same process: both in `unit`."""

    what: str
    ours: float
    reference: str
    theirs: float
    unit: str


def best(call: Callable, runs: int = 3):
    """Seconds of the fastest run, as noise only adds, and its result."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def in_turns(ours: Callable, theirs: Callable, runs: int = RUNS) -> tuple[float, float]:
    """Seconds of the fastest run of each, one after the other, so that both see the same machine."""
    pairs = [(best(ours, 1)[0], best(theirs, 1)[0]) for _ in range(runs)]
    return tuple(min(seconds) for seconds in zip(*pairs, strict=True))


def table(rows: Iterable[Row]) -> str:
    """The figures as Markdown; a ratio above 1 says that ours is the larger number."""
    lines = ["| what | kvplan | beside | of it | ratio |", "|---|---:|---|---:|---:|"]
    for row in rows:
        ours, theirs = (f"{figure(value)} {row.unit}" for value in (row.ours, row.theirs))
        lines.append(f"| {row.what} | {ours} | {row.reference} | {theirs} | {figure(row.ours / row.theirs)} |")
    return "\n".join(lines)


def figure(value: float) -> str:
    """Three figures, and separators in large ones."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
