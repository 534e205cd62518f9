"""A plan held to its limits: one verdict for each, with the margin that is left.

A plan that cannot be served meets no limit, whatever its figures: what it does have is shown, and the reason is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kvplan import verdict
from kvplan.expectations import EXPECTATIONS, Facts, Limit, Name, fits, limits_from
from kvplan.links import encode_link
from kvplan.plan import Plan
from kvplan.report import Report, evaluate
from kvplan.specs import ModelSpec, shorten
from kvplan.units import count
from kvplan.version import VERSION

SCHEMA = "kvplan.check/1"
RULES = {"min_": "at least", "max_": "at most"}
"""What the beginning of a name says of its limit; a name without either asks for the value itself."""


@dataclass(frozen=True)
class Verdict:
    """Whether a plan meets one limit. `value` is the plan's figure in `unit`, None where it has none; `margin` how far
    it is on the right side of the `limit`, negative where it is not; None where there is nothing to subtract, and of a
    plan that cannot be served. `reason` says why there is no value or no margin."""

    name: Name
    value: Limit | None
    limit: Limit
    margin: int | float | None
    unit: str
    passed: bool
    reason: str | None


@dataclass(frozen=True)
class PlanResult:
    """One plan and its verdicts. `file` is None for a plan out of options, `name` for a plan without one; `refused` is
    the engine's sentence if it would not start at all, `sentence` the answer to how many sequences fit, `link` opens
    the plan in the dashboard. `error` is why a file could not be judged; there is no plan then, and no verdict."""

    file: str | None
    name: str | None
    plan: Plan | None
    passed: bool
    fits: bool | None
    refused: str | None
    sentence: str | None
    link: str | None
    expectations: tuple[Verdict, ...]
    error: str | None


@dataclass(frozen=True)
class CheckResult:
    """What `check --json` prints: whether every limit of every plan is met, and the plans."""

    schema: Literal["kvplan.check/1"]
    version: str
    passed: bool
    files: tuple[PlanResult, ...]


def check(plan: Plan, expect: Mapping[str, Limit], model: ModelSpec | None = None) -> tuple[Verdict, ...]:
    """A verdict for each limit, in the order given. Raises ValueError, one line, for what is no limit, and for none.

    >>> [verdict] = check(Plan(model="llama-3.1-70b", tp=4, context=32768), {"min_batch_ceiling": 12})
    >>> verdict.value, verdict.margin, verdict.passed
    (13, 1, True)
    """
    return judge(evaluate(plan, model), limits_of(expect), model)


def limits_of(expect: Mapping, where: str = "expect.") -> dict[str, Limit]:
    """The limits of a mapping. Raises ValueError, one line, with `where` before each name that cannot be used."""
    limits, wrong = limits_from(expect)
    if wrong:
        raise ValueError("; ".join(f"{where}{shorten(name)}: {why}" for name, why in wrong.items()))
    if not limits:
        raise ValueError("expect: nothing to check, needs at least one limit")
    return limits


def judge(report: Report, limits: Mapping[str, Limit], model: ModelSpec | None = None) -> tuple[Verdict, ...]:
    """A verdict for each limit on a plan that was evaluated."""
    facts = Facts(report, limits, model)
    unserved = None if serves(report) else verdict.plain(verdict.ceiling(report).sentence)
    return tuple(_verdict(name, limit, facts, unserved) for name, limit in limits.items())


def judged(plan: Plan, limits: Mapping[str, Limit], file: str | None = None, name: str | None = None) -> PlanResult:
    """A plan that carries its own model, and its verdicts."""
    report = evaluate(plan)
    verdicts = judge(report, limits)
    return PlanResult(
        file=file,
        name=name,
        plan=plan,
        passed=all(each.passed for each in verdicts),
        fits=fits(report),
        refused=report.engine.refused,
        sentence=verdict.plain(verdict.ceiling(report).sentence),
        link=encode_link(plan),
        expectations=verdicts,
        error=None,
    )


def unusable(file: str, error: str) -> PlanResult:
    """A file that could not be judged."""
    return PlanResult(file, None, None, False, None, None, None, None, (), error)


def together(results: tuple[PlanResult, ...]) -> CheckResult:
    return CheckResult(SCHEMA, VERSION, all(result.passed for result in results), results)


def serves(report: Report) -> bool:
    """Whether at least one sequence runs, on a device that has what the plan takes."""
    return fits(report) and report.capacity.batch_ceiling >= 1


def sentence(found: Verdict) -> str:
    """A verdict in words: what is found, what is asked, and why there is no more to say.

    >>> sentence(Verdict("min_batch_ceiling", 13, 64, -51, "sequences", False, None))
    'min_batch_ceiling: 13 sequences, must be at least 64'
    """
    value = "undefined" if found.value is None else f"{figure(found.value)} {found.unit}".rstrip()
    rule = f"must be {RULES.get(found.name[:4], '')} {figure(found.limit)}".replace("  ", " ")
    return f"{found.name}: {value}, {rule}{f' ({found.reason})' if found.reason else ''}"


def figure(value: Limit | None) -> str:
    """A figure as a reader takes it: whole numbers with separators, others with four figures, a dash for none.

    >>> figure(1_048_576), figure(0.0123456), figure(12345.6), figure(True), figure(None)
    ('1,048,576', '0.01235', '12,346', 'true', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return count(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _verdict(name: str, limit: Limit, facts: Facts, unserved: str | None) -> Verdict:
    expectation = EXPECTATIONS[name]
    value, reason = _value(name, facts)
    if name[:4] not in RULES:
        return Verdict(name, value, limit, None, expectation.unit, value == limit, reason)
    if value is None or unserved:
        return Verdict(name, value, limit, None, expectation.unit, False, unserved or reason)
    margin = value - limit if name.startswith("min_") else limit - value
    return Verdict(name, value, limit, margin, expectation.unit, margin >= 0, None)


def _value(name: str, facts: Facts) -> tuple[Limit | None, str | None]:
    """The figure, or why there is none."""
    if facts.report.setting is None:
        return None, facts.report.engine.refused
    try:
        return EXPECTATIONS[name].value(facts), None
    except ValueError as error:
        return None, str(error)
