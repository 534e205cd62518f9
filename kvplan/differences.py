"""What differs between two plans, field by field, and in a few words."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.plan import Plan, to_text
from kvplan.specs import shorten

LONGEST_VALUE = 24
"""Characters of a value in words; a packed model or table has many more."""


class Difference(NamedTuple):
    """A field in which two plans differ, with both values as links write them."""

    field: str
    before: str
    after: str


def differences(before: Plan, after: Plan) -> tuple[Difference, ...]:
    """Every field in which the plans differ, in the order of the plan.

    >>> differences(Plan(tp=4), Plan(tp=8, layers=40))
    (Difference(field='layers', before='auto', after='40'), Difference(field='tp', before='4', after='8'))
    """
    one, other = to_text(before), to_text(after)
    return tuple(Difference(name, one[name], other[name]) for name in one if one[name] != other[name])


def change_words(before: Plan, after: Plan) -> str:
    """What changed, `same` where nothing did.

    >>> change_words(Plan(tp=4), Plan(tp=8, layers=40))
    'layers auto → 40, tp 4 → 8'
    """
    changes = (f"{name} {_short(old)} → {_short(new)}" for name, old, new in differences(before, after))
    return ", ".join(changes) or "same"


def value_words(before: Plan, after: Plan) -> str:
    """What another plan has instead, `same` where nothing.

    >>> value_words(Plan(tp=4), Plan(tp=8, layers=40))
    'layers 40, tp 8'
    """
    return ", ".join(f"{name} {_short(new)}" for name, _, new in differences(before, after)) or "same"


def _short(value: str) -> str:
    return shorten(value, LONGEST_VALUE)
