"""The axes of a map of plans: the fields on offer, values to begin with, and those that a text asks for."""

from __future__ import annotations

import math
from typing import NamedTuple

from kvplan.axes import axis_from_text
from kvplan.catalog import concrete, load_preset
from kvplan.plan import FROM_GPU, FROM_MODEL, Plan, to_text
from kvplan.report import Report

MOST_VALUES = 40
"""Of one axis."""
LEAST_CONTEXT = 1024
PRESETS = {"model": FROM_MODEL, "gpu": FROM_GPU}
"""Fields that name a preset, and the fields that come with it unless the plan sets them."""

FIELDS: dict[str, tuple] = {
    "context": (),
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 4),
    "gpu": ("l4", "l40s", "a100-80-sxm", "h100-sxm", "h200", "b200", "mi300x"),
    "gpu_memory_gib": (16, 24, 32, 48, 64, 96, 141, 192),
    "gpu_memory_utilization": (0.8, 0.85, 0.9, 0.95),
    "model": ("llama-3.1-8b", "gpt-oss-20b", "qwen3-32b", "llama-3.3-70b", "gpt-oss-120b", "deepseek-v3"),
    "weight_dtype": (None, "fp8", "int4"),
    "kv_dtype": ("fp8", "int4"),
    "kv_heads": (1, 2, 4, 8, 16, 32),
    "layers": (16, 32, 48, 64, 80),
    "block_size": (8, 16, 32, 64, 128),
    "max_num_seqs": (64, 128, 256, 512, 1024),
    "max_num_batched_tokens": (2048, 4096, 8192, 16384, 32768),
    "shared_prefix_tokens": (0, 512, 1024, 2048, 4096),
    "batch": (1, 2, 4, 8, 16, 32, 64, 128, 256),
}
"""Fields that may be an axis, each with round values to begin with; those of the context follow from the model."""
LEFT_OPEN = ("gpu_memory_gib", "weight_dtype")
"""Those whose automatic value has no short name, so that an axis leaves it open."""


class Axis(NamedTuple):
    """A field and its values, in order: as a plan holds them and as a shell writes them. `own` is the place of the
    plan's own value, None where it is not among them; `text` is what was asked for."""

    field: str
    values: tuple
    texts: tuple[str, ...]
    own: int | None
    text: str


def offered(report: Report) -> list[str]:
    """The fields that may be an axis of this plan, without those that would move nothing."""
    growing = concrete(report.setting)["layers"] is not None
    idle = set() if growing else {"layers", "kv_heads"}
    return [field for field in FIELDS if field not in idle | ({"model"} if report.plan.spec else set())]


def ready(report: Report, field: str) -> str:
    """The values of an axis to begin with, as text, with the plan's own among them."""
    if field == "context":
        return _contexts(report)
    own, now, others = getattr(report.plan, field), resolved(report, field), FIELDS[field]
    shown = own if field in LEFT_OPEN else now
    if isinstance(others[-1], str):
        values = others if shown in others else (shown, *others)
    else:
        values = [shown if value == now else value for value in sorted({*others, now})]
    return ",".join(_text(field, value) for value in values)


def axis(report: Report, field: str, text: str) -> Axis:
    """The axis that a text asks for; an empty one asks for the values to begin with.

    Raises ValueError, with the field, the rule and the value, for what `axis_from_text` does not take, for a preset
    that does not exist and for more than `MOST_VALUES`.
    """
    asked = text.strip() or ready(report, field)
    values = axis_from_text(field, asked, MOST_VALUES)
    if field in PRESETS:
        values = list(dict.fromkeys(load_preset(value, field).id for value in values))
    own, now = getattr(report.plan, field), resolved(report, field)
    place = next((values.index(value) for value in (own, now) if value in values), None)
    return Axis(field, tuple(values), tuple(_text(field, value) for value in values), place, asked)


def resolved(report: Report, field: str):
    """The value of a field with nothing left open."""
    later = {"block_size": report.engine.block_size, "batch": report.batching.batch}
    return later[field] if field in later else concrete(report.setting)[field]


def held_fixed(plan: Plan, *fields: str) -> dict[str, list[str]]:
    """What the plan sets itself and so holds for every model, or every GPU, where these are axes."""
    named = {
        name: [part for part in PRESETS[name] if getattr(plan, part) is not None] for name in fields if name in PRESETS
    }
    return {name: parts for name, parts in named.items() if parts}


def _contexts(report: Report) -> str:
    """Powers of two up to the model's longest, as a range, or one by one where the plan's own is none of them."""
    own = report.plan.context
    first = min(LEAST_CONTEXT, 2 ** int(math.log2(own)))
    last = 2 ** int(math.log2(max(report.setting.model.max_position_embeddings, own, first)))
    powers = [2**power for power in range(int(math.log2(first)), int(math.log2(last)) + 1)]
    return f"{first}:{last}:x2" if own in powers else ",".join(map(str, sorted([*powers, own])))


def _text(field: str, value) -> str:
    return to_text(Plan().model_copy(update={field: value}))[field]
