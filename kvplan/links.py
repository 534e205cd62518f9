"""Plan <-> query string, readable and versioned.

A link is `key=value&...` in the plan's own words, `auto` for None. Beside the fields it carries `v` (the link format),
`made` (the version that wrote it) and `r` (three results: batch ceiling, KV cache tokens, pool bytes), so that a later
version can say what changed. `preset` opens a ready plan, which explicit fields override.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

from kvplan.catalog import load_preset
from kvplan.plan import DEFAULTS, Plan, from_text, to_text
from kvplan.report import evaluate
from kvplan.specs import shorten, shown
from kvplan.version import VERSION

LINK_VERSION = 1
MAX_LENGTH = 16_384
"""Characters of a link; a longer one is not read at all."""
MOST_PARAMETERS = 1_000
"""Of a mapping; each may be as long as its field."""
MOST_NOTES, LONGEST_NOTE = 20, 300
"""What is said of a link: more mistakes than these are only counted."""
PRESET_FIELDS = ("model", "gpu", "workload")
"""Fields that name a preset; each has the name of the preset's kind."""


def encode_link(plan: Plan, base: str = "", full: bool = True) -> str:
    """`base?query` that opens this plan again.

    `full`: every field that is not None, with the link format, the version and three results, so that neither a
    changed default nor a changed rule goes unnoticed. Otherwise only what differs from the defaults.

    >>> encode_link(Plan(tp=4, context=32768), full=False)
    '?tp=4&context=32768'
    """
    query = urlencode(_full_query(plan) if full else short_query(plan), quote_via=quote, safe=":/@,()*")
    return f"{base}?{query}" if query else base


def short_query(plan: Plan) -> dict[str, str]:
    """The fields that differ from the defaults, as text."""
    defaults = to_text(DEFAULTS)
    return {name: value for name, value in to_text(plan).items() if value != defaults[name]}


def decode_link(link: str | Mapping) -> tuple[Plan, list[str]]:
    """The plan of a URL, a query with or without `?`, or a mapping, and a note for everything that was dropped.

    Never raises: what is unknown, out of range or malformed is left at the default and named. Notes are single lines.

    >>> plan, notes = decode_link("https://example.org/paging?tp=4&context=-1")
    >>> plan.tp, plan.context, notes
    (4, 8192, ["context: Input should be greater than or equal to 1, got '-1'"])
    """
    fields, notes = _fields(link)
    _check_envelope(fields, notes)
    base = _named_plan(fields.pop("preset", None), notes)
    for name in PRESET_FIELDS:
        if name in fields and (name, fields[name]) != ("workload", "auto"):
            _drop_unknown(fields, name, notes)
    plan, dropped = from_text(fields, base)
    notes += [f"{shorten(name)}: {reason}" for name, reason in dropped.items()]
    return plan, _first(notes)


def _first(notes: list[str]) -> list[str]:
    """So many notes as one reads, each in one line, and the number of the others."""
    more = [f"{len(notes) - MOST_NOTES:,} more parts were left out"] if len(notes) > MOST_NOTES else []
    return [shorten(note, LONGEST_NOTE) for note in notes[:MOST_NOTES]] + more


def _full_query(plan: Plan) -> dict[str, str]:
    report = evaluate(plan)
    results = (report.capacity.batch_ceiling, report.engine.kv_cache_tokens, report.memory.pool_bytes)
    fields = {name: text for name, text in to_text(plan).items() if getattr(plan, name) is not None}
    return {"v": str(LINK_VERSION), "made": VERSION, "r": ".".join(map(str, results))} | fields


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
    results = fields.pop("r", "0.0.0").split(".")
    if len(results) != 3 or not all(part.isascii() and part.isdigit() for part in results):
        notes.append("r: must be three whole numbers, batch ceiling, KV cache tokens and pool bytes")


def _named_plan(name: str | None, notes: list[str]) -> Plan:
    if name is None:
        return DEFAULTS
    try:
        return load_preset(name, "plan")
    except ValueError as error:
        notes.append(str(error).replace("plan:", "preset:", 1))
        return DEFAULTS


def _drop_unknown(fields: dict[str, str], name: str, notes: list[str]) -> None:
    try:
        load_preset(fields[name], name)
    except ValueError as error:
        notes.append(str(error))
        del fields[name]
