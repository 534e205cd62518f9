"""A plan as a file: a JSON object with its fields by name, beside `schema` and `version`.

It is a file of `kvplan check` as well: `expect`, added to it, holds it to limits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from kvplan.links import decode_link, first_notes, plan_of_fields
from kvplan.plan import DEFAULTS, Plan
from kvplan.specs import read_json, shorten, shown, why_unreadable
from kvplan.version import VERSION

SCHEMA = "kvplan.plan/1"
MAX_MB = 1
MAX_BYTES = MAX_MB * 2**20
WORDS = ("name", "description")
"""Free text of a file; no part of its plan."""
ELSEWHERE = {
    "expect": "the limits are for kvplan check; no part of the plan",
    "hf_config": "the file it names cannot be read from here",
}
"""Keys that mean something to `kvplan check` alone."""


def to_json(plan: Plan) -> str:
    """Every field that is set, defaults included, so that a changed default changes no file.

    >>> text = to_json(Plan(tp=4))
    >>> plan_from_json(text) == (Plan(tp=4), []), '"dp": 1' in text, '"layers"' in text
    (True, True, False)
    """
    return json.dumps({"schema": SCHEMA, "version": VERSION} | fields_of(plan), indent=2) + "\n"


def fields_of(plan: Plan) -> dict:
    """Every field that is set, as JSON has it."""
    return plan.model_dump(mode="json", exclude_none=True)


def plan_from_json(content: str | bytes) -> tuple[Plan, list[str]]:
    """The plan of a file's content, and a note for everything that was dropped; of a repeated key the first counts.

    Raises ValueError, one line, for what is no JSON object of at most 1 MiB.

    >>> plan, notes = plan_from_json('{"tp": 4, "context": -1}')
    >>> plan.tp, plan.context, notes
    (4, 8192, ['context: Input should be greater than or equal to 1, got -1'])
    """
    fields, notes = read_object(content)
    plan, dropped = plan_from_fields(fields)
    return plan, first_notes(notes + dropped)


def read_object(content: str | bytes) -> tuple[dict, list[str]]:
    """The keys of a JSON object, of a repeated one the first, and a note for each of the others. Raises as above."""
    notes = []

    def first_of_each(pairs: list[tuple[str, object]]) -> dict:
        found = {}
        for name, value in pairs:
            if name in found:
                notes.append(f"{shorten(name)}: given more than once, the first counts, dropped {shown(value)}")
            found.setdefault(name, value)
        return found

    return read_table(content, partial(read_json, object_pairs_hook=first_of_each), "JSON"), notes


def plan_from_fields(fields: Mapping) -> tuple[Plan, list[str]]:
    """The plan of an object that was read, and a note for every key that was dropped. Never raises.

    `preset` or `link` names the base whose fields the others replace, as in a file of `kvplan check`; `name` and
    `description` are no part of a plan and need no note.
    """
    fields = {str(name): value for name, value in fields.items()}
    notes = [f"{name}: {wrong}" for name, wrong in wrong_head(fields).items()]
    notes += [f"{name}: {why}" for name, why in ELSEWHERE.items() if name in fields]
    base, dropped = _linked(fields)
    notes += dropped
    plan, dropped = plan_of_fields(without(fields, ("schema", "version", "link", *WORDS, *ELSEWHERE)), base)
    return plan, notes + dropped


def _linked(fields: Mapping) -> tuple[Plan, list[str]]:
    """The plan of the link that is the base."""
    if "link" not in fields:
        return DEFAULTS, []
    if "preset" in fields:
        return DEFAULTS, ["link: not read, as preset is the base"]
    return decode_link(fields["link"])


def wrong_head(fields: Mapping) -> dict[str, str]:
    """What is wrong with `schema` and `version`, where a file has them: key -> rule and value."""
    wrong = {}
    if fields.get("schema", SCHEMA) != SCHEMA:
        wrong["schema"] = f"must be {SCHEMA}, got {shown(fields['schema'])}"
    if not isinstance(fields.get("version", ""), str):
        wrong["version"] = f"must be a text, got {shown(fields['version'])}"
    return wrong


def without(fields: Mapping, names: Iterable[str]) -> dict:
    return {name: value for name, value in fields.items() if name not in names}


def read_table(content: str | bytes, parse: Callable[[str], object], form: str) -> dict:
    """The fields of a content in this form. Raises ValueError, one line, for what is none, too large or too deep."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"must be at most {MAX_BYTES:,} bytes")
    try:
        table = parse(content.decode("utf-8-sig") if isinstance(content, bytes) else content.removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise ValueError(f"must be UTF-8, got byte {content[error.start]:#04x} at {error.start:,}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"cannot be read as {form}, {why_unreadable(error)}") from None
    if not isinstance(table, dict):
        raise ValueError(f"must be a table of fields, got {shown(table)}")
    return table
