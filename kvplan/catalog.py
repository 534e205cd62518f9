"""Reads presets/, and fills in every None of a plan once: Plan -> Setting."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kvplan import lengths
from kvplan.engine_facts import (
    BLOCK_SIZE,
    BLOCK_SIZE_MULTIPLE,
    CACHE_DTYPES,
    ENGINE_VERSION,
    GPU_MEMORY_UTILIZATION,
    scheduler_defaults,
)
from kvplan.lengths import Lengths
from kvplan.plan import DEFAULTS, Plan, ReadyPlan
from kvplan.specs import GpuSpec, LayerGroup, ModelSpec, Source, WorkloadSpec, problem_lines, shorten
from kvplan.units import DTYPES, GIB, whole_bytes

Kind = Literal["model", "gpu", "workload", "plan"]
SPECS = {"model": ModelSpec, "gpu": GpuSpec, "workload": WorkloadSpec, "plan": ReadyPlan}
ENDINGS = ("-instruct", "-it", "-chat", "-base", "-hf")

LARGE_DEVICE_BYTES = 70 * GIB
ESTIMATE_SOURCE = Source(
    text="start-up memory of vLLM 0.11 on one H100: activations 4.8 to 5.6 GiB for dense models, "
    "non-torch memory 0.13 GiB, graphs up to 0.6 GiB (llm-d-benchmark, empirical vLLM memory results)",
    confidence="estimate",
)


@dataclass(frozen=True)
class Library:
    """The presets of one kind by id, in the order of their names, what was wrong with the files left out, and which
    files these were when they were read."""

    specs: dict[str, ModelSpec | GpuSpec | WorkloadSpec | ReadyPlan]
    broken: tuple[str, ...]
    files: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Setting:
    """A plan with nothing left open. `lengths` are the workload's; dtypes are names of `units.DTYPES`; `notes` say
    what was ignored or is unusual; `sources` says where each number came from."""

    plan: Plan
    model: ModelSpec
    gpu: GpuSpec
    workload: WorkloadSpec | None
    lengths: Lengths
    total_bytes: int
    weight_bytes: int
    activation_bytes: int
    workspace_bytes: int
    utilization: float
    kv_dtype: str
    v_dtype: str
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    notes: tuple[str, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)


def presets_dir() -> Path:
    """The folder of presets: package data in an installed wheel, beside the package in a checkout."""
    package = Path(__file__).parent
    installed = package / "presets"
    return installed if installed.is_dir() else package.parent / "presets"


@lru_cache(maxsize=8)
def library(kind: Kind) -> Library:
    """Every preset of a kind. A broken file is named in `broken` with its field and reason; the others still load."""
    if kind not in SPECS:
        raise ValueError(f"kind: must be one of {', '.join(SPECS)}, got {kind!r}")
    specs, broken, files = {}, [], _files(kind)
    for path in _preset_files(kind):
        try:
            spec = SPECS[kind].model_validate_json(path.read_bytes())
            if spec.id != path.stem:
                raise ValueError(f"id: must be the file's name {path.stem!r}, got {spec.id!r}")
        except ValidationError as error:
            broken.append(f"{kind}s/{path.name}: {'; '.join(problem_lines(error))}")
        except (ValueError, OSError) as error:
            broken.append(f"{kind}s/{path.name}: {error}")
        else:
            specs[spec.id] = spec
    return Library(dict(sorted(specs.items(), key=lambda item: _natural(item[1].name))), tuple(broken), files)


def refresh() -> None:
    """Read presets/ again where a file was added, removed or changed since it was last read."""
    if any(library(kind).files != _files(kind) for kind in SPECS):
        library.cache_clear()
        _by_any_name.cache_clear()


def presets(kind: Kind = "plan") -> list[str]:
    """The ids of all presets of a kind: "plan", "model", "gpu" or "workload"."""
    return list(library(kind).specs)


def load_preset(name: str, kind: Kind = "plan") -> Plan | ModelSpec | GpuSpec | WorkloadSpec:
    """The preset of that id; for models any Hugging Face id works too, case and an ending such as -instruct aside.

    Raises ValueError with the nearest names where there is none.

    >>> load_preset("meta-llama/Llama-3.1-8B-Instruct", kind="model").id
    'llama-3.1-8b'
    """
    spec = _by_any_name(kind).get(_plain_name(name))
    if spec is None:
        raise ValueError(f"{kind}: no preset named {shorten(name)!r}{_nearest(name, presets(kind))}")
    return spec.plan if isinstance(spec, ReadyPlan) else spec


def resolve(plan: Plan, model: ModelSpec | None = None) -> Setting:
    """Everything concrete: the plan's own values where given, else those of the model, the GPU and the engine.

    `model` replaces the preset the plan names. Raises ValueError where an id names no preset.
    """
    base = model or load_preset(plan.model, "model")
    gpu = load_preset(plan.gpu, "gpu")
    workload = None if plan.workload == "auto" else load_preset(plan.workload, "workload")

    spec, notes = _overridden(base, plan)
    kv_dtype = (base.kv_cache_dtype or _cache_width(base.dtype)) if plan.kv_dtype == "auto" else plan.kv_dtype
    v_dtype = plan.v_dtype or kv_dtype
    total_bytes = gpu.total_bytes if plan.gpu_memory_gib is None else whole_bytes(plan.gpu_memory_gib)
    estimate_gib = {"activation": 5.0 if total_bytes >= LARGE_DEVICE_BYTES else 2.0, "workspace": 0.5}
    max_num_seqs, max_num_batched_tokens = _scheduler(plan, gpu, total_bytes)
    block_size = plan.block_size or BLOCK_SIZE

    return Setting(
        plan=plan,
        model=spec,
        gpu=gpu,
        workload=workload,
        lengths=_family(plan) if workload is None else _observed(workload.table, workload.samples),
        total_bytes=total_bytes,
        weight_bytes=_weight_bytes(plan, base, spec),
        activation_bytes=whole_bytes(_given(plan.activation_gib, estimate_gib["activation"])),
        workspace_bytes=whole_bytes(_given(plan.workspace_gib, estimate_gib["workspace"])),
        utilization=_given(plan.gpu_memory_utilization, GPU_MEMORY_UTILIZATION),
        kv_dtype=kv_dtype,
        v_dtype=v_dtype,
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        notes=(*notes, *_notes(plan, base, kv_dtype, v_dtype, block_size)),
        sources=_sources(plan, base, gpu, workload),
    )


def concrete(setting: Setting) -> dict:
    """Every field of the plan with nothing left open, in the plan's own words and units.

    `batch`, `kv_cache_memory_bytes` and `tenant_quota_fraction` stay None where the plan leaves them so: the first
    follows from the ceiling, the others mean that there is none.
    """
    growing = next((group for group in setting.model.groups if group.kind == "full"), None)
    return setting.plan.model_dump() | {
        "layers": growing and growing.layers,
        "kv_heads": growing and growing.kv_heads,
        "head_dim": growing and growing.head_dim,
        "weights_gib": setting.weight_bytes / GIB,
        "weight_dtype": setting.plan.weight_dtype or "as released",
        "gpu_memory_gib": setting.total_bytes / GIB,
        "gpu_memory_utilization": setting.utilization,
        "activation_gib": setting.activation_bytes / GIB,
        "workspace_gib": setting.workspace_bytes / GIB,
        "kv_dtype": setting.kv_dtype,
        "v_dtype": setting.v_dtype,
        "block_size": setting.block_size,
        "max_num_seqs": setting.max_num_seqs,
        "max_num_batched_tokens": setting.max_num_batched_tokens,
    }


def layer_total(spec: ModelSpec) -> int:
    """All layers of a model that cache anything."""
    return sum(group.layers for group in spec.groups)


def _overridden(base: ModelSpec, plan: Plan) -> tuple[ModelSpec, list[str]]:
    """The model with the plan's layers, kv_heads and head_dim in its growing full-attention group."""
    names = [name for name in ("layers", "kv_heads", "head_dim") if getattr(plan, name) is not None]
    if not names:
        return base, []
    growing = [index for index, group in enumerate(base.groups) if group.kind == "full"]
    if len(growing) != 1:
        return base, [f"{name}: ignored, {base.name} has no single group of full attention" for name in names]

    values = {name: getattr(plan, name) for name in names}
    if "head_dim" in values:
        values["value_head_dim"] = values["head_dim"]
    groups = list(base.groups)
    groups[growing[0]] = groups[growing[0]].model_copy(update=values)
    heads, notes = _query_heads(base, groups[growing[0]])
    return base.model_copy(update={"groups": tuple(groups), "num_attention_heads": heads}), notes


def _query_heads(base: ModelSpec, group: LayerGroup) -> tuple[int | None, list[str]]:
    """Query heads come in whole groups for each KV head; where they cannot, the model is one we know no heads of."""
    heads = base.num_attention_heads
    if heads is None or heads % group.kv_heads == 0:
        return heads, []
    return None, [
        f"kv_heads: {group.kv_heads} do not divide the {heads} query heads of {base.name}; "
        "the check of query heads against tp is left out"
    ]


def _weight_bytes(plan: Plan, base: ModelSpec, spec: ModelSpec) -> int:
    """Weights of the whole model; they scale with its layers and with `weight_dtype` unless given."""
    if plan.weights_gib is not None:
        return whole_bytes(plan.weights_gib)
    released = base.weight_bytes
    if plan.weight_dtype is not None:
        released = base.parameters * DTYPES[plan.weight_dtype].bits // 8
    return round(released * Fraction(layer_total(spec), layer_total(base)))


def _cache_width(dtype: str) -> str:
    """The engine down-casts fp32 checkpoints, so their cache has two bytes an element as well."""
    return "bf16" if dtype == "fp32" else dtype


def _scheduler(plan: Plan, gpu: GpuSpec, total_bytes: int) -> tuple[int, int]:
    """max_num_seqs and max_num_batched_tokens in force: each default is capped by what the other allows."""
    default = scheduler_defaults(device_bytes=total_bytes, device_name=gpu.name, usage=plan.usage)
    sequences = plan.max_num_seqs or default.max_num_seqs
    tokens = plan.max_num_batched_tokens or min(default.max_num_batched_tokens, sequences * plan.context)
    return plan.max_num_seqs or min(default.max_num_seqs, tokens), tokens


def _family(plan: Plan) -> Lengths:
    """The lengths of a plan without a named workload: every prompt at its mean, outputs of the chosen family."""
    outputs = {
        "exponential": lambda mean: lengths.exponential(mean),
        "uniform": lambda mean: lengths.uniform(1, 2 * mean - 1),
        "fixed": lambda mean: lengths.fixed(mean),
    }[plan.output_dist](plan.output_mean)
    return lengths.with_prompt(outputs, plan.prompt_mean)


@lru_cache(maxsize=64)
def _observed(table: tuple | None, samples: tuple | None) -> Lengths:
    """The lengths of a workload preset, built once for each."""
    if table:
        return lengths.from_table(table)
    prompts, outputs = zip(*samples, strict=True)
    return lengths.from_samples(outputs, prompts)


def _notes(plan: Plan, base: ModelSpec, kv_dtype: str, v_dtype: str, block_size: int) -> Iterable[str]:
    if plan.context > base.max_position_embeddings:
        yield (
            f"context: {plan.context:,} tokens is above the length {base.name} was trained for, "
            f"{base.max_position_embeddings:,}"
        )
    for name, dtype in {"kv_dtype": kv_dtype, "v_dtype": v_dtype}.items():
        if dtype not in CACHE_DTYPES and (name == "kv_dtype" or v_dtype != kv_dtype):
            yield f"{name}: {dtype} is a plain width; {ENGINE_VERSION} has no cache format for it"
    if v_dtype != kv_dtype:
        yield f"v_dtype: {v_dtype} beside {kv_dtype} keys is a plain width; {ENGINE_VERSION} stores both alike"
    if block_size % BLOCK_SIZE_MULTIPLE:
        yield (
            f"block_size: {block_size} is no multiple of {BLOCK_SIZE_MULTIPLE}; "
            f"no attention backend of {ENGINE_VERSION} has it"
        )
    if plan.workload != "auto":
        for name in ("prompt_mean", "output_mean", "output_dist"):
            if getattr(plan, name) != getattr(DEFAULTS, name):
                yield f"{name}: ignored, the lengths are those of the workload {plan.workload}"


def _sources(plan: Plan, model: ModelSpec, gpu: GpuSpec, workload: WorkloadSpec | None) -> dict[str, Source]:
    """Where each number of the setting comes from; what the plan sets itself is the user's own."""
    own = Source(text="set in this plan", confidence="exact")

    def origin(name: str, given) -> Source:
        return given if getattr(plan, name) is None else own

    weights = own if plan.weights_gib is not None else model.sources["weight_bytes"]
    if plan.weights_gib is None and plan.weight_dtype is not None:
        text = f"parameters at {plan.weight_dtype}, scales left out; {model.sources['parameters'].text}"
        weights = Source(text=text, confidence="estimate")
    found = {
        "layers and heads": model.sources["groups"],
        "weight_bytes": weights,
        "total_bytes": origin("gpu_memory_gib", gpu.sources["total_bytes"]),
        "activation_bytes": origin("activation_gib", ESTIMATE_SOURCE),
        "workspace_bytes": origin("workspace_gib", ESTIMATE_SOURCE),
    }
    if plan.kv_cache_memory_bytes is not None:
        found["pool_bytes"] = own
    found["lengths"] = own if workload is None else workload.sources["table" if workload.table else "samples"]
    return found


def _given(value, otherwise):
    return otherwise if value is None else value


def _preset_files(kind: Kind) -> list[Path]:
    return sorted((presets_dir() / f"{kind}s").glob("*.json"))


def _files(kind: Kind) -> tuple[tuple[str, int], ...]:
    """The files of a kind with the time each was changed; a link that leads nowhere has none."""
    return tuple((str(path), path.stat().st_mtime_ns if path.exists() else 0) for path in _preset_files(kind))


@lru_cache(maxsize=8)
def _by_any_name(kind: Kind) -> dict:
    names = {}
    for spec in library(kind).specs.values():
        names.setdefault(_plain_name(spec.id), spec)
        if getattr(spec, "hf_id", None):
            names.setdefault(_plain_name(spec.hf_id), spec)
    return names


def _plain_name(name: str) -> str:
    """A name as look-up compares it: lower case, without owner and without endings that say how it was tuned."""
    plain = name.strip().lower().rsplit("/", 1)[-1]
    while plain.endswith(ENDINGS):
        plain = plain.rsplit("-", 1)[0]
    return plain


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(_plain_name(name), known, n=3, cutoff=0)
    return f"; nearest: {', '.join(near)}" if near else ""


def _natural(text: str) -> list:
    """Sorts 8B before 70B: runs of digits compare as numbers."""
    digits = "".join(character if character.isdigit() else " " for character in text).split()
    words = "".join(" " if character.isdigit() else character for character in text.lower()).split()
    return [words, [int(number) for number in digits]]
