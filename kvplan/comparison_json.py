"""Plans side by side as a file: a JSON object whose `plans` holds the fields of each, the first first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from kvplan.links import LETTERS, MAX_PLANS, first_notes
from kvplan.plan import Plan
from kvplan.plan_json import WORDS, fields_of, plan_from_fields, read_object
from kvplan.specs import shorten, shown
from kvplan.version import VERSION

SCHEMA = "kvplan.comparison/1"
KEYS = ("schema", "version", "plans", *WORDS)


def to_json(plans: Sequence[Plan]) -> str:
    """Every field that is set of each plan, defaults included.

    >>> plans_from_json(to_json([Plan(tp=4), Plan(tp=8)])) == ([Plan(tp=4), Plan(tp=8)], [])
    True
    """
    found = {"schema": SCHEMA, "version": VERSION, "plans": [fields_of(plan) for plan in plans]}
    return json.dumps(found, indent=2) + "\n"


def plans_from_json(content: str | bytes) -> tuple[list[Plan], list[str]]:
    """The plans of a file's content, which may be a single plan's, and a note for everything that was dropped, under
    `b.`, `c.` and `d.` for those beside the first.

    Raises ValueError, one line, for what is no JSON object of at most 1 MiB or holds no plan.
    """
    fields, notes = read_object(content)
    if "plans" not in fields:
        plan, dropped = plan_from_fields(fields)
        return [plan], first_notes(notes + dropped)
    if fields.get("schema", SCHEMA) != SCHEMA:
        notes.append(f"schema: must be {SCHEMA}, got {shown(fields['schema'])}")
    notes += [f"{shorten(name)}: no key of a comparison" for name in fields if name not in KEYS]
    found, dropped = _plans(fields["plans"])
    return found, first_notes(notes + dropped)


def _plans(entries) -> tuple[list[Plan], list[str]]:
    objects = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    if not objects:
        raise ValueError(f"plans: must be a list of 1 to {MAX_PLANS} tables of fields, got {shown(entries)}")
    plans, notes = [], []
    if len(objects) < len(entries):
        notes.append(f"plans: must all be tables of fields, {len(entries) - len(objects)} left out")
    if len(objects) > MAX_PLANS:
        notes.append(f"plans: at most {MAX_PLANS}, {len(objects) - MAX_PLANS} left out")
    for letter, entry in zip(("", *(f"{letter}." for letter in LETTERS)), objects, strict=False):
        plan, dropped = plan_from_fields(entry)
        plans.append(plan)
        notes += [f"{letter}{note}" for note in dropped]
    return plans, notes
