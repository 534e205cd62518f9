"""What the charts of plans side by side draw: one curve of each plan, and where it stands on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kvplan import curves, rates
from kvplan.report import Report
from kvplan.units import count, mean, percent, short_tokens


class Curve(NamedTuple):
    """A plan's curve over a range: values on hover as words, and its own place with its label; `at` is None where it
    has none."""

    x: np.ndarray
    y: np.ndarray
    words: list[str]
    at: tuple[float, float] | None
    label: str


def ceilings(reports: Sequence[Report]) -> list[Curve | None]:
    """Sequences by reservation against context, by memory, as far as one fits."""
    return [_of(report, _ceiling, report.is_served and not report.engine.refused) for report in reports]


def utilisations(reports: Sequence[Report]) -> list[Curve | None]:
    """Slot-steps used by static batches against batch."""
    return [_of(report, _utilisation, report.is_served) for report in reports]


def wastes(reports: Sequence[Report]) -> list[Curve | None]:
    """Share of booked slots wasted at completion against block size, from blocks of 2."""
    return [_of(report, _waste, bool(report.is_served and report.cache.bytes_per_token)) for report in reports]


def outputs(reports: Sequence[Report]) -> list[Curve | None]:
    """Output tokens a second of a replica against batch."""
    return [_of(report, _output, bool(report.throughput.batch)) for report in reports]


def _of(report: Report, curve: Callable[[Report], Curve], is_there: bool) -> Curve | None:
    found = curve(report) if is_there else None
    return found if found is not None and found.x.size else None


def _ceiling(report: Report) -> Curve:
    found, capacity = curves.plan_ceilings(report), report.capacity
    fits = found.memory_quotient >= 1
    contexts, quotients = found.contexts[fits], found.memory_quotient[fits]
    words = [
        f"{count(value)} sequences at {count(context)} tokens"
        for value, context in zip(quotients, contexts, strict=True)
    ]
    height = capacity.memory_quotient if capacity.binding == "memory" else capacity.batch_ceiling
    at = (report.plan.context, height) if capacity.batch_ceiling else None
    return Curve(
        contexts, quotients, words, at, f"{count(capacity.batch_ceiling)} at {short_tokens(report.plan.context)}"
    )


def _utilisation(report: Report) -> Curve:
    found, own = curves.utilisation(report), report.batching
    words = [
        f"{percent(value)} used at batch {count(batch)}"
        for value, batch in zip(found.static, found.batches, strict=True)
    ]
    label = f"{percent(own.static_utilisation)} at {count(own.batch)}"
    return Curve(found.batches, found.static, words, (own.batch, own.static_utilisation), label)


def _waste(report: Report) -> Curve:
    found, block_size = curves.block_waste(report), report.paging.block_size
    some = found.share > 0
    words = [
        f"{percent(value)} wasted at block {count(size)}"
        for value, size in zip(found.share[some], found.block_sizes[some], strict=True)
    ]
    at = (block_size, found.own_share) if found.own_share > 0 else None
    return Curve(
        found.block_sizes[some], found.share[some], words, at, f"{percent(found.own_share)} at {count(block_size)}"
    )


def _output(report: Report) -> Curve:
    found = rates.rates(report)
    batches = np.array([each.concurrency for each in found.curve])
    tokens = np.array([each.tokens_per_s for each in found.curve])
    words = [f"{mean(value)} tokens/s at batch {count(batch)}" for value, batch in zip(tokens, batches, strict=True)]
    own = found.own
    label = f"{mean(own.tokens_per_s)} at {count(own.concurrency)}"
    return Curve(batches, tokens, words, (own.concurrency, own.tokens_per_s), label)
