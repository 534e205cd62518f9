"""A file of a plan and the limits it is held to: JSON or TOML, one key a field. A saved plan (`plan_json`) with limits
beside it is one.

name = "chat"
preset = "llama-70b-chat-4xh100"     # or link, or neither: the base whose fields the others replace
hf_config = "config.json"            # a model of one's own, beside the file
context = 16384

[expect]
min_batch_ceiling = 24
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvplan.catalog import load_preset, resolve
from kvplan.check import limits_of
from kvplan.expectations import Limit
from kvplan.hf_config import model_from_hf_config
from kvplan.links import compared, decode_link
from kvplan.plan import DEFAULTS, Plan, from_text
from kvplan.plan_json import MAX_BYTES, WORDS, read_table, without, wrong_head
from kvplan.recorded import Comparison
from kvplan.specs import read_json, shorten, shown
from kvplan.texts import spec_text


@dataclass(frozen=True)
class PlanFile:
    """What a file holds. The plan carries its model; `expect` has at least one limit; `recorded` is what its link had
    as results beside those of today."""

    plan: Plan
    expect: dict[str, Limit]
    name: str | None = None
    description: str | None = None
    recorded: Comparison | None = None


def read_plan_file(path: Path, expect: Mapping[str, Limit] | None = None) -> PlanFile:
    """The plan and the limits of a file; those of `expect` go on top of its own.

    Raises ValueError, one line with the field, the rule and the value, for whatever cannot be used.
    """
    fields = _table(path)
    if wrong := wrong_head(fields):
        raise ValueError("; ".join(f"{name}: {why}" for name, why in wrong.items()))
    fields = without(fields, ("schema", "version"))
    own = fields.pop("expect", {})
    if not isinstance(own, dict):
        raise ValueError(f"expect: must be a table of limits, got {shown(own)}")
    words = {name: _word(name, fields.pop(name)) for name in WORDS if name in fields}
    link = fields.get("link")
    plan = _plan(fields, path.parent)
    recorded = None if link is None else compared(link)
    return PlanFile(plan, limits_of(own | dict(expect or {})), **words, recorded=recorded)


def _table(path: Path) -> dict:
    """The top-level table of a file."""
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ValueError(f"must end in {' or '.join(PARSERS)}, got {shown(path.suffix)}")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read, {error.strerror}") from None
    return read_table(raw, parse, path.suffix[1:].upper())


def _json(text: str):
    """JSON with each key once and finite numbers."""
    return read_json(text, object_pairs_hook=_distinct, parse_constant=_not_finite)


def _distinct(pairs: list[tuple[str, object]]) -> dict:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in table if names.count(name) > 1)
        raise ValueError(f"{shorten(twice)}: given more than once")
    return table


def _not_finite(word: str):
    raise ValueError(f"numbers must be finite, got {word}")


PARSERS: dict[str, Callable[[str], object]] = {".json": _json, ".toml": tomllib.loads}
"""How each kind of file is read."""


def _word(name: str, value) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: must be a text, got {shown(value)}")
    return value


def _plan(fields: dict, folder: Path) -> Plan:
    """The plan of a file's fields: its base, the model beside the file, and every field that replaces the base's."""
    base = _base(fields.pop("preset", None), fields.pop("link", None))
    if "hf_config" in fields:
        if "spec" in fields:
            raise ValueError("hf_config and spec: only one of them can be given")
        fields["spec"] = _packed_model(folder, _word("hf_config", fields.pop("hf_config")))
    plan, dropped = from_text(fields, base)
    if dropped:
        raise ValueError("; ".join(f"{shorten(name)}: {why}" for name, why in dropped.items()))
    # An id that no preset has is a mistake in the file, not an answer.
    resolve(plan)
    return plan


def _base(preset, link) -> Plan:
    """The plan that a preset or a link names, whole or not at all."""
    if preset is not None and link is not None:
        raise ValueError("preset and link: only one of them can be given")
    if preset is not None:
        return load_preset(_word("preset", preset), "plan")
    if link is None:
        return DEFAULTS
    plan, notes = decode_link(_word("link", link))
    if notes:
        raise ValueError(f"link: {'; '.join(notes)}")
    return plan


def _packed_model(folder: Path, name: str) -> str:
    """The model of a config.json as one word."""
    try:
        return spec_text(model_from_hf_config(folder / name))
    except OSError as error:
        raise ValueError(f"hf_config: {shorten(name)} cannot be read, {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"hf_config: {error}") from None
