"""Plans side by side in words: the Compare page's sentence, a tile for each plan, and its tables."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan import verdict
from kvplan.catalog import concrete
from kvplan.compare import Result, batch_ceilings, inputs, most, results
from kvplan.compare_curves import Curve
from kvplan.differences import value_words
from kvplan.levers_words import GAP
from kvplan.links import LETTERS
from kvplan.metrics import Metric
from kvplan.plan import to_text
from kvplan.report import Report
from kvplan.specs import shorten
from kvplan.units import count
from kvplan.verdict import Verdict

NAMES = ("A", *LETTERS.upper())
"""The plans as the page calls them, the sidebar's first."""
PACKED = {"spec": "a whole model", "table": "lengths of a trace"}
"""Fields whose own word says nothing to a reader."""
LONGEST_LINE, LONGEST_INPUT = 28, 40
"""Characters of a tile's grey line, and of an input in the table."""


def opening(reports: Sequence[Report]) -> Verdict:
    """Which plan runs the most sequences, and how many times those of the first."""
    best = most(reports)
    binding = verdict.BINDING[reports[best].capacity.binding]
    badge = f"{NAMES[best]}: {binding}" if reports[best].capacity.batch_ceiling else binding
    reason = f"{_of_what(reports)}, by reservation. A is the sidebar's plan and moves with it, the others stay"
    return Verdict(_sentence(reports), badge, _tone(reports[best]), reason)


def alone(report: Report) -> Verdict:
    """What the page is for, while there is one plan only."""
    return Verdict(
        "**Nothing beside this plan** yet",
        verdict.BINDING[report.capacity.binding],
        _tone(report),
        "Keep it and change the sidebar, or add a ready plan, a link or a file; up to four stand side by side",
    )


def metrics(reports: Sequence[Report]) -> list[Metric]:
    """A tile for each plan: its batch ceiling, and what sets it apart from the first."""
    first = reports[0].plan
    return [
        Metric(
            f"Batch ceiling {name}",
            count(report.capacity.batch_ceiling),
            shorten(value_words(first, report.plan), LONGEST_LINE) if report is not reports[0] else "this plan",
            f"Sequences of {count(report.plan.context)} tokens that plan {name} runs at once if each reserves the "
            f"whole context; 0 where it does not start. {verdict.plain(verdict.ceiling(report).sentence)}.",
        )
        for name, report in zip(NAMES, reports, strict=False)
    ]


def input_table(reports: Sequence[Report]) -> list[dict]:
    """The inputs that differ, one row each; what a plan leaves open is `auto` with what that comes to."""
    return [
        {"Input": name} | {letter: _input_words(report, name) for letter, report in zip(NAMES, reports, strict=False)}
        for name in inputs(reports)
    ]


def result_table(reports: Sequence[Report]) -> list[dict]:
    """What binds, then every figure of every plan as text, with difference and ratio to the first, one row each."""
    limits = [verdict.LIMITS[report.capacity.binding] for report in reports]
    return [
        {"Result": "What binds", "Unit": ""} | dict(zip(NAMES, limits, strict=False)),
        *(
            {"Result": result.figure.name, "Unit": result.figure.unit} | dict(zip(NAMES, _cells(result), strict=False))
            for result in results(reports)
        ),
    ]


def result_rows(reports: Sequence[Report]) -> list[dict]:
    """The figures as numbers, for a file."""
    rows = []
    for result in results(reports):
        row = {"result": result.figure.name, "unit": result.figure.unit} | dict(zip(NAMES, result.values, strict=False))
        for name, difference, ratio in zip(NAMES[1:], result.differences[1:], result.ratios[1:], strict=False):
            row |= {f"{name} - A": difference, f"{name} / A": ratio}
        rows.append(row)
    return rows


def how_counted(reports: Sequence[Report]) -> list[dict]:
    """How each figure of the table is counted, one row each."""
    return [
        {"Result": result.figure.name, "Unit": result.figure.unit, "What it counts": result.figure.about}
        for result in results(reports)
    ]


def short_name(first: Report, name: str, other: Report) -> str:
    """A plan's letter and what sets it apart, as a button says it."""
    return f"{name}: {shorten(value_words(first.plan, other.plan), LONGEST_LINE)}"


def conclusion(title: str, curves: Sequence[Curve | None]) -> str:
    """What a chart says, for who cannot see it.

    >>> conclusion("Batch ceiling against context", [None])
    'Batch ceiling against context: A has no curve'
    """
    words = (
        f"{name} {curve.label if curve.at else 'has no value of its own'}" if curve else f"{name} has no curve"
        for name, curve in zip(NAMES, curves, strict=False)
    )
    return f"{title}: {', '.join(words)}"


def _tone(report: Report) -> verdict.Tone:
    return "memory" if report.capacity.binding == "memory" else "limit"


def _of_what(reports: Sequence[Report]) -> str:
    """What is counted: sequences of one context, or of each plan's own."""
    contexts = [count(report.plan.context) for report in reports]
    if len(set(contexts)) == 1:
        return f"Sequences of {contexts[0]} tokens"
    each = ", ".join(f"{name} {context}" for name, context in zip(NAMES, contexts, strict=False))
    return f"Sequences of unlike contexts, in tokens: {each}"


def _sentence(reports: Sequence[Report]) -> str:
    ceilings, best = batch_ceilings(reports), most(reports)
    if not ceilings[best]:
        return "**None of these plans** runs a single sequence"
    if len(set(ceilings)) == 1:
        return f"All {len(reports)} plans run **{verdict.sequences(ceilings[0])}**"
    runs = f"**{NAMES[best]}** runs the most, **{verdict.sequences(ceilings[best])}**"
    if not best:
        return runs
    return f"{runs}, **{_times(ceilings[best] / ceilings[0])}** A's" if ceilings[0] else f"{runs}; A runs none"


def _input_words(report: Report, name: str) -> str:
    value = getattr(report.plan, name)
    if value is not None and name in PACKED:
        return PACKED[name]
    text = shorten(to_text(report.plan)[name], LONGEST_INPUT)
    meant = _meant(report, name) if text == "auto" and report.setting else None
    return text if meant is None or meant == text else f"auto: {meant}"


def _meant(report: Report, name: str) -> str | None:
    """What an open field comes to, None where it stays open."""
    whole = concrete(report.setting)
    whole |= {"block_size": report.engine.block_size, "batch": report.batching.batch, "step_s": report.step_s}
    value = whole[name]
    if isinstance(value, float):
        return f"{value:,.4g}"
    return count(value) if isinstance(value, int) else value


def _cells(result: Result) -> list[str]:
    """A figure of each plan; the others with what they have more or less than the first, and how many times it."""
    words = [GAP if value is None else f"{value:,.{result.figure.decimals}f}" for value in result.values]
    return [
        word if not place or difference is None else f"{word} ({_against(difference, ratio, result.figure.decimals)})"
        for place, (word, difference, ratio) in enumerate(zip(words, result.differences, result.ratios, strict=True))
    ]


def _against(difference: float, ratio: float | None, decimals: int) -> str:
    if not difference:
        return "same"
    more = f"{difference:+,.{decimals}f}".replace("-", "−")
    return more if ratio is None else f"{more}, {_times(ratio)}"


def _times(ratio: float) -> str:
    return f"{ratio:,.2f}×" if ratio < 10 else f"{ratio:,.0f}×"
