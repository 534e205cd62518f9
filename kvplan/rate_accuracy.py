"""How near the step time comes to measurements: every published point, predicted beside measured.

A point is in sample where a factor of `roofline_facts` was read from it; the others were not looked at for any.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from kvplan import throughput
from kvplan.catalog import Setting, presets_dir
from kvplan.plan import Plan
from kvplan.report import evaluate
from kvplan.specs import Frozen

TOLERANCE = {"tpot_s": (0.75, 1.25), "prefill_s": (0.75, 1.25), "tokens_per_s": (0.5, 2.0)}
"""Ratios of predicted to published between which a point is met."""
DEVICE_RATES = ("bandwidth_bytes_per_s", "fp16_flop_per_s", "bf16_flop_per_s", "fp8_flop_per_s", "fp4_flop_per_s")
NAMES = {"tpot_s": "Decode, one sequence", "prefill_s": "Prefill, one prompt", "tokens_per_s": "Saturated throughput"}


class RatePoint(Frozen):
    """One published measurement: what was run, as a plan, and what it took in seconds, or gave in output tokens/s.

    `row` is its place in the literature list. `calibrates` names the factor that was read from it. `of_device` is the
    part of the device that was used. `note` says what was assumed, or explains a miss.
    """

    row: int
    name: str
    quantity: Literal["tpot_s", "prefill_s", "tokens_per_s"]
    published: float
    plan: Plan
    of_device: float = 1.0
    calibrates: str = ""
    note: str = ""
    source: str


@dataclass(frozen=True)
class RateError:
    """A point beside its prediction, in the point's unit; `ratio` is predicted over published."""

    point: RatePoint
    predicted: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.point.published

    @property
    def misses(self) -> bool:
        least, most = TOLERANCE[self.point.quantity]
        return not least <= self.ratio <= most


@lru_cache(maxsize=1)
def points() -> tuple[RatePoint, ...]:
    """Every published point of the project, in the order of the file."""
    rows = json.loads((presets_dir() / "rates" / "rates.json").read_bytes())
    return tuple(RatePoint.model_validate(row) for row in rows)


@lru_cache(maxsize=1)
def errors() -> tuple[RateError, ...]:
    """Every point beside what the default factors predict."""
    return tuple(RateError(point, predicted(point)) for point in points())


def predicted(point: RatePoint) -> float:
    """What the plan of a point would take or give, with as many sequences as it asks for and its memory holds."""
    report = evaluate(point.plan)
    engine = throughput.engine(_used(report.setting, point.of_device))
    if point.quantity == "prefill_s":
        return throughput.first_token_s(engine)
    return getattr(throughput.operate(engine, report.throughput.batch), point.quantity)


def table() -> list[dict]:
    """Every point: predicted, published, their ratio, and whether a factor was read from it."""
    return [
        {
            "Row": error.point.row,
            "What": NAMES[error.point.quantity],
            "Run": error.point.name,
            "Predicted": _figure(error.point, error.predicted),
            "Published": _figure(error.point, error.point.published),
            "Ratio": f"{error.ratio:.2f}",
            "Sample": f"in: {error.point.calibrates}" if error.point.calibrates else "out",
            "Note": " ".join([*(["Miss."] if error.misses else []), error.point.note]).strip(),
            "Source": error.point.source,
        }
        for error in errors()
    ]


def _used(setting: Setting, part: float) -> Setting:
    """The setting on a part of its device."""
    rates = {name: round(rate * part) for name, rate in setting.gpu if rate and name in DEVICE_RATES}
    return replace(setting, gpu=setting.gpu.model_copy(update=rates))


def _figure(point: RatePoint, value: float) -> str:
    return f"{value:,.0f} tokens/s" if point.quantity == "tokens_per_s" else f"{1000 * value:,.2f} ms"
