"""The values of one field that a sweep goes through: checked as a plan checks them, and how a shell writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np
from pydantic import ValidationError

from kvplan.plan import OPTIONAL, Plan
from kvplan.specs import nearest, problems, shorten, shown

MOST_VALUES = 10_000_000
"""Of one axis."""
NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?"
RANGE = re.compile(rf"({NUMBER}):({NUMBER}):(x|log|lin)?({NUMBER})")
"""first:last:step, first:last:xfactor, first:last:logcount or first:last:lincount."""


def axis_values(name: str, values: Iterable, most: int = MOST_VALUES) -> list:
    """The values of one field as a plan holds them, in their order.

    Raises ValueError for a field that no plan has, for no values or more than `most`, and for a value that the field
    does not take, with the field, the rule and the value.

    >>> axis_values("context", range(1024, 4097, 1024)), axis_values("kv_dtype", ["auto", "bfloat16"])
    ([1024, 2048, 3072, 4096], ['auto', 'bf16'])
    """
    if name not in Plan.model_fields:
        raise ValueError(f"{shorten(str(name))}: no field of a plan{nearest(str(name), Plan.model_fields, 0.5)}")
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{name}: an axis is a list of values, got {shown(values)}")
    if hasattr(values, "__len__"):
        _require_few(name, len(values), most)
    values = values.tolist() if isinstance(values, np.ndarray) and values.ndim == 1 else list(values)
    _require_few(name, len(values), most)
    kinds = set(map(type, values))
    # All rules of whole numbers are bounds, so that the least and the largest stand for those between.
    if kinds == {int}:
        _checked(name, min(values)), _checked(name, max(values))
        return values if type(_checked(name, values[0])) is int else [float(value) for value in values]
    _require_hashable(name, values)
    # 1 and True are equal and not the same, so the kind of a value goes with it.
    found = {key: _checked(name, key[1]) for key in {(type(value), value) for value in values}}
    return [found[type(value), value] for value in values]


def _require_few(name: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise ValueError(f"{name}: an axis has 1 to {most:,} values, got {number:,}")


def _require_hashable(name: str, values: list) -> None:
    for value in values:
        if getattr(value, "__hash__", None) is None:
            raise ValueError(f"{name}: a value is a number, a word or None, got {shown(value)}")


def _checked(name: str, value):
    """One value as a plan holds it."""
    try:
        return getattr(Plan.model_validate({name: value}), name)
    except ValidationError as error:
        raise ValueError("; ".join(f"{field}: {rule}" for field, rule in problems(error).items())) from None


def axis_from_text(name: str, text: str, most: int = MOST_VALUES) -> list:
    """The values a text stands for: a list with commas, or a range from a first to a last value by a step, by a factor
    (x2), or as so many values evenly spaced (lin25) or evenly in the logarithm (log25). `auto` is what the model, the
    GPU or the engine has. Whole numbers are rounded, and none stands twice.

    Raises ValueError as `axis_values` does, and for a range that cannot be read.

    >>> axis_from_text("context", "1024:8192:x2"), axis_from_text("tp", "1,2,4"), axis_from_text("context", "1:9:lin3")
    ([1024, 2048, 4096, 8192], [1, 2, 4], [1, 5, 9])
    """
    values = []
    for part in text.split(","):
        word = part.strip()
        values += (
            [None if word == "auto" and name in OPTIONAL else word] if ":" not in word else _range(name, word, most)
        )
    return list(dict.fromkeys(axis_values(name, values, most)))


def _range(name: str, text: str, most: int) -> list:
    match = RANGE.fullmatch(text)
    if not match:
        raise ValueError(
            f"{name}: a range is first:last:step, first:last:x2, first:last:lin25 or first:last:log25, "
            f"got {shorten(repr(text))}"
        )
    first, last, size = (float(number) for number in (match[1], match[2], match[4]))
    if last < first:
        raise ValueError(f"{name}: a range goes up, got {shorten(text)}")
    values = _SPACED[match[3]](name, first, last, size, most)
    return [float(f"{value:.12g}") if name in REAL else round(value) for value in values]


def _by_step(name: str, first: float, last: float, step: float, most: int) -> list[float]:
    if step <= 0:
        raise ValueError(f"{name}: the step of a range is above 0, got {step:g}")
    number = math.floor((last - first) / step * (1 + 1e-12)) + 1
    _require_few(name, number, most)
    return [first + index * step for index in range(number)]


def _by_factor(name: str, first: float, last: float, factor: float, most: int) -> list[float]:
    if factor <= 1 or first <= 0:
        raise ValueError(f"{name}: a range by a factor starts above 0 and its factor is above 1, got {factor:g}")
    number = math.floor(math.log(last / first) / math.log(factor) * (1 + 1e-12)) + 1
    _require_few(name, number, most)
    return [first * factor**index for index in range(number)]


def _evenly(name: str, first: float, last: float, number: float, most: int) -> list[float]:
    _require_few(name, _whole(name, number), most)
    return np.linspace(first, last, int(number)).tolist()


def _evenly_in_logarithm(name: str, first: float, last: float, number: float, most: int) -> list[float]:
    if first <= 0:
        raise ValueError(f"{name}: a range in the logarithm starts above 0, got {first:g}")
    _require_few(name, _whole(name, number), most)
    return np.geomspace(first, last, int(number)).tolist()


def _whole(name: str, number: float) -> int:
    if not number.is_integer():
        raise ValueError(f"{name}: a range has a whole number of values, got {number:g}")
    return int(number)


_SPACED = {None: _by_step, "x": _by_factor, "lin": _evenly, "log": _evenly_in_logarithm}
REAL = frozenset(name for name, field in Plan.model_fields.items() if "float" in str(field.annotation))
"""Fields that hold numbers which need not be whole."""
