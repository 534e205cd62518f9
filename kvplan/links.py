"""Plan <-> query string, readable and versioned.

A link is `key=value&...` in the plan's own words, `auto` for None. Beside the fields it carries `v` (the link format),
`made` (the version that wrote it) and `r` (three results, see `recorded`), so that a later version can say what
changed. `preset` opens a ready plan, which explicit fields override.

A link may carry up to three more plans to compare the first with, each as its differences under `b.`, `c.` and `d.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, quote, urlencode

from kvplan.catalog import load_preset
from kvplan.differences import differences
from kvplan.plan import DEFAULTS, Plan, from_text, to_text
from kvplan.recorded import Comparison, compare, recorded_in, results_from_text, results_of, results_text
from kvplan.specs import shorten, shown
from kvplan.version import VERSION

LINK_VERSION = 1
MAX_LENGTH = 16_384
"""Characters of a link; a longer one is not read at all."""
MOST_PARAMETERS = 1_000
"""Of a mapping; each may be as long as its field."""
MOST_NOTES, LONGEST_NOTE = 20, 300
"""What is said of a link: more mistakes than these are only counted."""
LETTERS = "bcd"
"""The plans beside the first, by what their fields begin with."""
MAX_PLANS = 1 + len(LETTERS)
MAX_COMPARISON = 4_000
"""Characters of a link of several plans that mail and chat still pass on whole."""
PRESET_FIELDS = ("model", "gpu", "workload")
"""Fields that name a preset; each has the name of the preset's kind."""


def encode_link(plan: Plan, base: str = "", full: bool = True) -> str:
    """`base?query` that opens this plan again.

    `full`: every field that is not None, with the link format, the version and three results, so that neither a
    changed default nor a changed rule goes unnoticed. Otherwise only what differs from the defaults.

    >>> encode_link(Plan(tp=4, context=32768), full=False)
    '?tp=4&context=32768'
    """
    return _link(_full_query(plan) if full else short_query(plan), base)


def encode_comparison(plans: Sequence[Plan], base: str = "", full: bool = True) -> str:
    """`base?query` that opens up to four plans side by side: the first as `encode_link` writes it, the others as their
    differences from it. Raises ValueError for none and for more than four.

    >>> encode_comparison([Plan(tp=4), Plan(tp=8, kv_dtype="fp8")], full=False)
    '?tp=4&b.tp=8&b.kv_dtype=fp8'
    """
    if not 1 <= len(plans) <= MAX_PLANS:
        raise ValueError(f"plans: must be 1 to {MAX_PLANS}, got {len(plans)}")
    first, *others = plans
    return _link((_full_query(first) if full else short_query(first)) | others_query(first, others), base)


def others_query(first: Plan, others: Sequence[Plan]) -> dict[str, str]:
    """The plans beside the first as parameters; one that equals it is there with its model."""
    return {
        f"{letter}.{name}": text
        for letter, plan in zip(LETTERS, others, strict=False)
        for name, text in (_changes(first, plan) or {"model": plan.model}).items()
    }


def short_query(plan: Plan) -> dict[str, str]:
    """The fields that differ from the defaults, as text."""
    return _changes(DEFAULTS, plan)


def decode_link(link: str | Mapping) -> tuple[Plan, list[str]]:
    """The plan of a URL, a query with or without `?`, or a mapping, and a note for everything that was dropped.

    Never raises: what is unknown, out of range or malformed is left at the default and named. Notes are single lines.

    >>> plan, notes = decode_link("https://example.org/paging?tp=4&context=-1")
    >>> plan.tp, plan.context, notes
    (4, 8192, ["context: Input should be greater than or equal to 1, got '-1'"])
    """
    fields, notes = _fields(link)
    first, others = _apart(fields)
    plan = _first_plan(first, notes)
    return plan, first_notes(notes) + ([others_note(len(others))] if others else [])


def first_notes(notes: list[str]) -> list[str]:
    """So many notes as one reads, each in one line, and the number of the others."""
    more = [f"{len(notes) - MOST_NOTES:,} more parts were left out"] if len(notes) > MOST_NOTES else []
    return [shorten(note, LONGEST_NOTE) for note in notes[:MOST_NOTES]] + more


def decode_comparison(link: str | Mapping) -> tuple[list[Plan], list[str]]:
    """The plans of a link of up to four, the first first, and a note for everything that was dropped. Never raises.

    >>> plans, notes = decode_comparison("?tp=4&b.tp=8&b.context=-1")
    >>> [plan.tp for plan in plans], notes
    ([4, 8], ["b.context: Input should be greater than or equal to 1, got '-1'"])
    """
    fields, notes = _fields(link)
    first, others = _apart(fields)
    plans = [_first_plan(first, notes)]
    for letter, own in others.items():
        plan, dropped = plan_of_fields(own, plans[0])
        plans.append(plan)
        notes += [f"{letter}.{note}" for note in dropped]
    return plans, first_notes(notes)


def others_note(number: int) -> str:
    """What is said where a link has so many plans beside the first and only that one is shown."""
    return f"compare: of {1 + number} plans this is the first; all of them are on the Compare page"


def is_of_another(name: str) -> bool:
    """Whether a parameter belongs to a plan beside the first."""
    return name[1:2] == "." and name[0] in LETTERS


def _apart(fields: dict[str, str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The first plan's parameters, and those of each other by its letter."""
    first = {name: text for name, text in fields.items() if not is_of_another(name)}
    others = {letter: {} for letter in LETTERS if any(name.startswith(f"{letter}.") for name in fields)}
    for name, text in fields.items():
        if is_of_another(name):
            others[name[0]][name[2:]] = text
    return first, others


def _first_plan(fields: dict[str, str], notes: list[str]) -> Plan:
    _check_envelope(fields, notes)
    plan, dropped = plan_of_fields(fields)
    notes += dropped
    return plan


def compared(link: str | Mapping) -> Comparison | None:
    """The results a link recorded beside those its plan has today, None where it says nothing. Never raises."""
    plans, notes = decode_comparison(link)
    return compare(recorded_in(_fields(link)[0]), plans[0], whole=not notes)


def plan_of_fields(fields: Mapping, base: Plan = DEFAULTS) -> tuple[Plan, list[str]]:
    """`base`, or the ready plan `preset` names, with these fields replaced, and a note for each that was dropped."""
    fields, notes = dict(fields), []
    base = _named_plan(fields.pop("preset", None), base, notes)
    for name in PRESET_FIELDS:
        if isinstance(fields.get(name), str) and (name, fields[name]) != ("workload", "auto"):
            _drop_unknown(fields, name, notes)
    plan, dropped = from_text(fields, base)
    return plan, notes + [f"{shorten(name)}: {reason}" for name, reason in dropped.items()]


def _link(query: Mapping[str, str], base: str) -> str:
    text = urlencode(query, quote_via=quote, safe=":/@,()*")
    return f"{base}?{text}" if text else base


def _changes(first: Plan, other: Plan) -> dict[str, str]:
    return {change.field: change.after for change in differences(first, other)}


def _full_query(plan: Plan) -> dict[str, str]:
    fields = {name: text for name, text in to_text(plan).items() if getattr(plan, name) is not None}
    return {"v": str(LINK_VERSION), "made": VERSION, "r": results_text(results_of(plan))} | fields


def _fields(link: str | Mapping) -> tuple[dict[str, str], list[str]]:
    """The parameters of a link as text; of a repeated one the first counts."""
    notes = []
    if isinstance(link, Mapping):
        pairs = [(str(name), text) for name, value in link.items() for text in _texts(value)]
        if len(pairs) > MOST_PARAMETERS:
            notes.append(f"link: more than {MOST_PARAMETERS:,} parameters, the others were not read")
            pairs = pairs[:MOST_PARAMETERS]
    elif not isinstance(link, str):
        return {}, [f"link: must be a text or a mapping, got a {type(link).__name__}"]
    elif len(link) > MAX_LENGTH:
        return {}, [f"link: longer than {MAX_LENGTH:,} characters, nothing was read"]
    else:
        pairs = parse_qsl(_query(link), keep_blank_values=True)
    fields = {}
    for name, value in pairs:
        if name in fields:
            notes.append(f"{shorten(name)}: given more than once, the first counts, dropped {shorten(repr(value))}")
        else:
            fields[name] = value
    return fields, notes


def _texts(value) -> list[str]:
    """The texts of one parameter of a mapping, which may hold a list of them (as parsed queries do)."""
    return [_text(item) for item in value] if isinstance(value, (list, tuple)) else [_text(value)]


def _text(value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return shown(value)
    return "auto" if value is None else f"a {type(value).__name__}"


def _query(link: str) -> str:
    text = link.strip().split("#", 1)[0]
    if "?" in text:
        return text.split("?", 1)[1]
    return "" if text.lower().startswith(("http://", "https://")) else text


def _check_envelope(fields: dict[str, str], notes: list[str]) -> None:
    """Take the link's own parameters out of the fields, with a note where they are not of this version."""
    version = fields.pop("v", str(LINK_VERSION))
    if not (version.isascii() and version.isdigit()):
        notes.append(f"v: must be a whole number, got {shorten(repr(version))}")
    elif int(version[:9]) > LINK_VERSION:
        notes.append(f"v: the link was written in format {shorten(version)}, this version reads up to {LINK_VERSION}")
    elif int(version[:9]) < LINK_VERSION:
        notes.append(f"v: there is no link format {shorten(version)}")
    fields.pop("made", None)
    results = fields.pop("r", None)
    if results is not None and results_from_text(results) is None:
        notes.append("r: must be three whole numbers, batch ceiling, KV cache tokens and pool bytes")


def _named_plan(name, base: Plan, notes: list[str]) -> Plan:
    """The ready plan of that name, else the base."""
    if name is None:
        return base
    if not isinstance(name, str):
        notes.append(f"preset: must be a text, got {shown(name)}")
        return base
    try:
        return load_preset(name, "plan")
    except ValueError as error:
        notes.append(str(error).replace("plan:", "preset:", 1))
        return base


def _drop_unknown(fields: dict[str, str], name: str, notes: list[str]) -> None:
    try:
        load_preset(fields[name], name)
    except ValueError as error:
        notes.append(str(error))
        del fields[name]
