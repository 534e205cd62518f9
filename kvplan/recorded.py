"""What a link says of the version that wrote it, and whether its three results are those of today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kvplan.plan import Plan
from kvplan.report import evaluate
from kvplan.specs import shorten
from kvplan.units import count, gib_or_less
from kvplan.version import VERSION

MOST_DIGITS = 24
"""Of a result; no plan has one with more."""
LONGEST_VERSION = 40
LEAST_SHARE = 0.0005
"""A change below this share would show as 0.0%."""
PARTIAL = "Not all of the link was read, so this may be another plan than the one it was written for."


class Results(NamedTuple):
    """The results a full link carries, in its order; the pool is that of one device."""

    batch_ceiling: int
    kv_cache_tokens: int
    pool_bytes: int


@dataclass(frozen=True)
class Recorded:
    """What a link says of its making: None where it does not say, or not in a way that can be read."""

    made: str | None = None
    results: Results | None = None


@dataclass(frozen=True)
class Comparison:
    """What a link recorded beside what its plan has today: a sentence, and a line for every result that changed."""

    sentence: str
    changes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.sentence, *self.changes)


def results_of(plan: Plan) -> Results:
    report = evaluate(plan)
    return Results(report.capacity.batch_ceiling, report.engine.kv_cache_tokens, report.memory.pool_bytes)


def results_text(results: Results) -> str:
    """The results as a link writes them.

    >>> results_text(Results(13, 455888, 37346684797))
    '13.455888.37346684797'
    """
    return ".".join(map(str, results))


def results_from_text(text: str) -> Results | None:
    """The results a text holds, None where it does not hold three whole numbers."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) <= MOST_DIGITS for part in parts):
        return None
    return Results(*map(int, parts))


def recorded_in(parameters: Mapping[str, str]) -> Recorded:
    """What the parameters of a link say of its making; never raises."""
    made = shorten(parameters.get("made", ""), LONGEST_VERSION).strip()
    return Recorded(made or None, results_from_text(parameters.get("r", "")))


def compare(recorded: Recorded, plan: Plan, whole: bool = True) -> Comparison | None:
    """What was recorded beside what the plan has today, None where nothing was. `whole`: the plan is all of the link.

    >>> compare(Recorded("0.0.1", Results(110, 998736, 65453162496)), Plan(tp=2)).changes[0]
    'Batch ceiling: 110 → 121 sequences, +11 (+10.0%)'
    >>> compare(Recorded("0.0.1"), Plan()).sentence
    'The link was written by kvplan 0.0.1 and carries no results to compare with.'
    """
    if recorded.results is None:
        said = f"The link was written by kvplan {recorded.made} and carries no results to compare with."
        return Comparison(said) if recorded.made else None
    changes = tuple(_changes(recorded.results, results_of(plan)))
    partial = "" if whole else f" {PARTIAL}"
    return Comparison(f"{_sentence(recorded.made, bool(changes))}{partial}", changes)


def _sentence(made: str | None, changed: bool) -> str:
    maker = f"kvplan {made}" if made else "a version not named"
    versions = f"{maker}, as now" if made == VERSION else f"{maker}, now {VERSION}"
    if not changed:
        return f"Batch ceiling, KV cache tokens and pool are still those the link recorded ({versions})."
    # The same version gives the same results, so then it was not kvplan that changed.
    edited = " Its fields were edited since, or a preset was." if made == VERSION else ""
    return f"This link recorded other results than its plan has now ({versions}).{edited}"


def _changes(before: Results, now: Results):
    """A line for every result that changed: both values, the difference, and its share where there is one."""
    shows = (
        ("Batch ceiling", count, " sequences"),
        ("KV cache tokens", count, " tokens"),
        ("Pool of one device", gib_or_less, ""),
    )
    for (name, show, unit), old, new in zip(shows, before, now, strict=True):
        if old != new:
            yield f"{name}: {show(old)} → {show(new)}{unit}, {_difference(old, new, show)}"


def _difference(old: int, new: int, show: Callable[[int], str]) -> str:
    sign = "+" if new > old else "-"
    words = f"{sign}{show(abs(new - old))}"
    if not old:
        return words
    share = (new - old) / old
    return f"{words} ({f'{share:+,.1%}' if abs(share) >= LEAST_SHARE else 'under 0.1%'})"
