"""Reads presets/, and fills in every None of a plan once: Plan -> Setting."""

from __future__ import annotations

import difflib
import operator
import os
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kvplan import lengths, startup
from kvplan.arrays import maximum, minimum
from kvplan.engine_facts import (
    FP8_ON_BLACKWELL,
    IGNORES_CACHE_DTYPE,
    MINIMUM_BATCHED_TOKENS,
    SchedulerDefaults,
    device_class,
    scheduler_defaults,
)
from kvplan.lengths import Lengths
from kvplan.notes import plan_notes, sources, step_notes
from kvplan.overrides import layer_total, weight_bytes, with_groups, with_overrides
from kvplan.plan import DEFAULTS, Plan, ReadyPlan
from kvplan.roofline_facts import Efficiency, Factor, efficiency
from kvplan.specs import (
    GpuSpec,
    ModelSpec,
    Source,
    WorkloadSpec,
    cache_problem,
    describe,
    problem_lines,
    shorten,
)
from kvplan.startup import Startup
from kvplan.texts import groups_from_text, spec_from_text, table_from_text
from kvplan.units import GIB, ceil_div, whole_bytes

Kind = Literal["model", "gpu", "workload", "plan"]
SPECS = {"model": ModelSpec, "gpu": GpuSpec, "workload": WorkloadSpec, "plan": ReadyPlan}
SCHEMA = "kvplan.presets/1"
"""Of what `presets --json` prints."""
ENDINGS = ("-instruct", "-it", "-chat", "-base", "-hf")

SIZE = re.compile(r"(<=|>=|<|>)([0-9]{1,6}(?:\.[0-9]{1,3})?)b")
"""A word that asks for a size in billions of parameters."""
COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
TTFT_S, TPOT_S = 2.0, 0.050
"""Latency targets where a plan gives none: neutral starting points, to be replaced by one's own."""
GPU_HOUR_USD = 1.0
"""Price of a device for an hour where a plan gives none: a unit, no offer, so that costs read as device hours."""


@dataclass(frozen=True)
class Library:
    """The presets of one kind by id, in the order of their names, what was wrong with the files left out, and which
    files these were when they were read."""

    specs: dict[str, ModelSpec | GpuSpec | WorkloadSpec | ReadyPlan]
    broken: tuple[str, ...]
    files: tuple[tuple[str, int], ...]


NUMBERS = frozenset({
    "context", "weights_gib", "gpu_memory_gib", "gpu_memory_utilization", "mem_fraction_static", "activation_gib",
    "non_torch_gib", "cuda_graph_gib", "workspace_gib", "allocator_overhead_fraction", "kv_cache_memory_bytes",
    "max_num_seqs", "max_num_batched_tokens", "shared_prefix_tokens", "tenant_quota_fraction",
})  # fmt: skip
"""Fields that change numbers and never how a cache is cut, so that one formula takes an array of them."""
WORDS = tuple(name for name in Plan.model_fields if name not in NUMBERS)
"""All others: what decides the structure of the cache, and names."""
_words = operator.attrgetter(*WORDS)


@dataclass(frozen=True, eq=False)
class Structure:
    """What a plan stands for whatever its `NUMBERS`: in `plan` these are at their defaults.

    `handed` is the model handed over beside the plan, if any; `base` the model before the plan's own layers and heads,
    `model` after. Dtypes are names of `units.DTYPES`; `model_cache_dtype` is the model's own, in two bytes.
    `speculative_tokens` are those a method drafts. `counted_weight_bytes` are the weights unless `weights_gib` is
    given. `lengths` are the workload's. `problem` is why the layers make no cache together, else None; `ignored` says
    what of the plan others replace.
    """

    plan: Plan
    handed: ModelSpec | None
    base: ModelSpec
    model: ModelSpec
    gpu: GpuSpec
    workload: WorkloadSpec | None
    lengths: Lengths
    kv_dtype: str
    v_dtype: str
    model_cache_dtype: str
    speculative_tokens: int
    counted_weight_bytes: int
    problem: str | None
    ignored: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A plan with nothing left open but what the structure of the cache decides (its block size).

    `scheduled_seqs` and `default_batched_tokens` are the scheduler's defaults before each caps the other;
    `weight_dtype` is the width of the matrices. `arrival_rate` in requests a second and `arrival_cv` the variation of
    the gaps; None where nothing says. `peak_to_mean` of the arrival rate, `ttft_s` and `tpot_s` the latency targets.
    The others are as in `Structure`. The `NUMBERS` of `plan`, and what follows from them, may be arrays.
    """

    plan: Plan
    structure: Structure
    model: ModelSpec
    gpu: GpuSpec
    workload: WorkloadSpec | None
    lengths: Lengths
    total_bytes: int
    weight_bytes: int
    startup: Startup
    utilization: float
    kv_dtype: str
    v_dtype: str
    model_cache_dtype: str
    max_num_seqs: int
    max_num_batched_tokens: int
    scheduled_seqs: int
    default_batched_tokens: int
    async_scheduling: bool
    speculative_tokens: int
    weight_dtype: str
    ttft_s: float
    tpot_s: float
    peak_to_mean: float
    gpu_hour_usd: float
    arrival_rate: float | None = None
    arrival_cv: float | None = None

    @property
    def shared_prefix_tokens(self) -> int:
        """Tokens at the start of every request that are stored once: none where prefixes are not cached."""
        return self.plan.shared_prefix_tokens if self.plan.enable_prefix_caching else 0

    @cached_property
    def efficiency(self) -> Efficiency:
        """What share of the device's peaks steps reach."""
        return _efficiency(self.plan, self.gpu, self.weight_dtype)

    @cached_property
    def requests(self) -> int | None:
        """How many requests the lengths were observed of."""
        return _observed_requests(self.workload)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was ignored or is unusual."""
        plan, base, gpu = self.plan, self.structure.base, self.gpu
        return (
            *base.notes,
            *self.structure.ignored,
            *plan_notes(plan, base, gpu, self.kv_dtype),
            *step_notes(plan, gpu, self.workload, self.weight_dtype, self.weight_bytes),
        )

    @cached_property
    def sources(self) -> dict[str, Source]:
        """Where each number came from."""
        return sources(self.plan, self.structure.base, self.gpu, self.workload, self.efficiency)


Structural = Structure | Setting
"""What has a structure: one by itself, or that of a setting."""


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
        _structure.cache_clear()


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


def find_models(words: str) -> list[ModelSpec]:
    """The models that every word fits: part of the id, name, family or description, or a size such as `<10b`.

    >>> [spec.id for spec in find_models("mla >600b deepseek r1")]
    ['deepseek-r1']
    """
    wanted = words.lower().split()
    return [spec for spec in library("model").specs.values() if all(_fits(spec, word) for word in wanted)]


def _fits(spec: ModelSpec, word: str) -> bool:
    if size := SIZE.fullmatch(word):
        return spec.parameters is not None and COMPARED[size[1]](spec.parameters, float(size[2]) * 1e9)
    known = (spec.id, spec.name, spec.hf_id or "", spec.model_type or "", describe(spec))
    return any(word in text.lower() for text in known)


def resolve(plan: Plan, model: ModelSpec | None = None) -> Setting:
    """Everything concrete: the plan's own values where given, else those of the model, the GPU and the engine.

    `model` replaces the preset the plan names. Raises ValueError where an id names no preset.
    """
    found = _structure(_words(plan), model)
    base, gpu, workload = found.base, found.gpu, found.workload

    total_bytes = gpu.total_bytes if plan.gpu_memory_gib is None else whole_bytes(plan.gpu_memory_gib)
    defaults = _scheduler_defaults(plan, base, gpu, total_bytes)
    scheduled_seqs = _given(plan.max_num_seqs, defaults.max_num_seqs)
    batched_tokens = plan.max_num_batched_tokens
    if batched_tokens is None:
        batched_tokens = minimum(defaults.max_num_batched_tokens, scheduled_seqs * plan.context)
    max_num_seqs = plan.max_num_seqs
    if max_num_seqs is None:
        max_num_seqs = minimum(scheduled_seqs, batched_tokens)
    counted = base.parameters is not None or plan.weights_gib is not None

    return Setting(
        plan=plan,
        structure=found,
        model=found.model,
        gpu=gpu,
        workload=workload,
        lengths=found.lengths,
        total_bytes=total_bytes,
        weight_bytes=found.counted_weight_bytes if plan.weights_gib is None else whole_bytes(plan.weights_gib),
        startup=_at_startup(plan, found.model, total_bytes, max_num_seqs, batched_tokens),
        utilization=_given(plan.gpu_memory_utilization, startup.release(plan.engine_version).utilization),
        kv_dtype=found.kv_dtype,
        v_dtype=found.v_dtype,
        model_cache_dtype=found.model_cache_dtype,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=batched_tokens,
        scheduled_seqs=scheduled_seqs,
        default_batched_tokens=defaults.max_num_batched_tokens,
        async_scheduling=plan.async_scheduling and plan.spec_method not in ("ngram", "suffix"),
        speculative_tokens=found.speculative_tokens,
        weight_dtype=(plan.weight_dtype if counted else None) or base.weight_dtype or base.dtype,
        ttft_s=_given(plan.ttft_s, TTFT_S),
        tpot_s=_given(plan.tpot_s, TPOT_S),
        peak_to_mean=_given(plan.peak_to_mean, (workload and workload.peak_to_mean) or 1.0),
        gpu_hour_usd=_given(plan.gpu_hour_usd, GPU_HOUR_USD),
        arrival_rate=_given(plan.arrival_rate, workload and workload.arrival_rate),
        arrival_cv=_given(plan.arrival_cv, workload and workload.arrival_cv),
    )


@lru_cache(maxsize=256)
def _structure(words: tuple, handed: ModelSpec | None) -> Structure:
    """The structure of all plans with the same `WORDS`, built once."""
    plan = DEFAULTS.model_copy(update=dict(zip(WORDS, words, strict=True)))
    base, notes = _base_model(plan, handed)
    gpu = load_preset(plan.gpu, "gpu")
    workload, workload_notes = _workload(plan)
    model, override_notes = with_overrides(base, plan)
    model_dtype = "bf16" if base.dtype == "fp32" else base.dtype
    kv_dtype = _cache_dtype(plan, base, gpu, model_dtype)
    return Structure(
        plan=plan,
        handed=handed,
        base=base,
        model=model,
        gpu=gpu,
        workload=workload,
        lengths=_family(plan) if workload is None else _observed(workload.table, workload.samples),
        kv_dtype=kv_dtype,
        v_dtype=kv_dtype if base.model_type in IGNORES_CACHE_DTYPE else plan.v_dtype or kv_dtype,
        model_cache_dtype=model_dtype,
        speculative_tokens=plan.spec_tokens if plan.spec_method else 0,
        counted_weight_bytes=weight_bytes(plan, base, model),
        problem=cache_problem(model.groups),
        ignored=(*notes, *override_notes, *workload_notes),
    )


def restarted(setting: Setting, **changes) -> Setting:
    """The setting of the same plan and model with other fields, such as another tp."""
    return resolve(setting.plan.model_copy(update=changes), setting.structure.handed)


def concrete(setting: Setting) -> dict:
    """The fields of the plan with nothing left open, in the plan's own words and units.

    `block_size`, `batch` and `step_s` follow later, from the structure of the cache, the ceiling and the step; a field
    that means "none" when left open stays None.
    """
    full = [group for group in setting.model.groups if group.kind == "full"]
    growing = full[0].model_copy(update={"layers": sum(group.layers for group in full)}) if full else None
    return setting.plan.model_dump() | {
        "layers": growing and growing.layers,
        "kv_heads": growing and growing.kv_heads,
        "head_dim": growing and growing.head_dim,
        "weights_gib": setting.weight_bytes / GIB,
        "weight_dtype": setting.plan.weight_dtype or "as released",
        "gpu_memory_gib": setting.total_bytes / GIB,
        "gpu_memory_utilization": setting.utilization,
        "activation_gib": setting.startup.activation_bytes / GIB,
        "non_torch_gib": _in_gib(setting.startup.non_torch_bytes),
        "cuda_graph_gib": _in_gib(setting.startup.cuda_graph_bytes),
        "workspace_gib": setting.startup.workspace_bytes / GIB,
        "kv_dtype": setting.kv_dtype,
        "v_dtype": setting.v_dtype,
        "max_num_seqs": setting.max_num_seqs,
        "max_num_batched_tokens": setting.max_num_batched_tokens,
        "arrival_rate": setting.arrival_rate,
        "arrival_cv": setting.arrival_cv,
        "bandwidth_efficiency": setting.efficiency.weights.value,
        "compute_efficiency": setting.efficiency.compute.value,
        "step_overhead_s": setting.efficiency.overhead_s.value,
        "ttft_s": setting.ttft_s,
        "tpot_s": setting.tpot_s,
        "peak_to_mean": setting.peak_to_mean,
        "gpu_hour_usd": setting.gpu_hour_usd,
    }


def _efficiency(plan: Plan, gpu: GpuSpec, weight_dtype: str) -> Efficiency:
    """The factors of the device and the weights, but for those the plan sets."""
    found = efficiency(gpu, weight_dtype, enforce_eager=plan.enforce_eager)
    given = {
        "weights": plan.bandwidth_efficiency,
        "compute": plan.compute_efficiency,
        "overhead_s": plan.step_overhead_s,
    }
    own = {name: _set(value) for name, value in given.items() if value is not None}
    # The cache beside the weights, and attention beside the matrices, move by as much.
    for name, beside in (("weights", "cache"), ("compute", "attention")):
        if name in own:
            moved = own[name].value / getattr(found, name).value
            own[beside] = _set(min(1.0, getattr(found, beside).value * moved))
    return replace(found, **own)


def _set(value: float) -> Factor:
    return Factor(value, value, value, "set in this plan")


def _at_startup(plan: Plan, model: ModelSpec, total_bytes: int, sequences: int, tokens: int) -> Startup:
    layers = ceil_div(layer_total(model), plan.pp)
    return startup.at_startup(plan, model, total_bytes=total_bytes, sequences=sequences, tokens=tokens, layers=layers)


def _in_gib(size: int | None) -> float | None:
    return None if size is None else size / GIB


def _base_model(plan: Plan, model: ModelSpec | None) -> tuple[ModelSpec, list[str]]:
    """The model a plan speaks of: handed over, carried in `spec`, or the preset with its own groups or the plan's."""
    if model is not None:
        given = [name for name in ("model", "groups", "spec") if getattr(plan, name) != getattr(DEFAULTS, name)]
        return model, [f"{name}: ignored, as a model is handed over" for name in given]
    if plan.spec is not None:
        given = [name for name in ("model", "groups") if getattr(plan, name) != getattr(DEFAULTS, name)]
        return spec_from_text(plan.spec), [f"{name}: ignored, as spec is given" for name in given]
    preset = load_preset(plan.model, "model")
    if plan.groups is None:
        return preset, []
    return with_groups(preset, groups_from_text(plan.groups))


def _cache_dtype(plan: Plan, base: ModelSpec, gpu: GpuSpec, model_dtype: str) -> str:
    """The cache's dtype: the plan's, else the checkpoint's, else the model's, where the family does not decide."""
    if base.model_type in IGNORES_CACHE_DTYPE:
        return model_dtype
    if plan.kv_dtype != "auto":
        return plan.kv_dtype
    if base.model_type in FP8_ON_BLACKWELL and device_class(gpu.compute_capability) == 100:
        return "fp8"
    return base.kv_cache_dtype or model_dtype


def _scheduler_defaults(plan: Plan, base: ModelSpec, gpu: GpuSpec, total_bytes: int) -> SchedulerDefaults:
    found = scheduler_defaults(device_bytes=total_bytes, device_name=gpu.name, usage=plan.usage)
    least = MINIMUM_BATCHED_TOKENS.get(base.model_type or "", 0)
    return found._replace(max_num_batched_tokens=maximum(found.max_num_batched_tokens, least))


def _workload(plan: Plan) -> tuple[WorkloadSpec | None, list[str]]:
    """The workload a plan names or carries in `table`; None where it gives means and a family."""
    if plan.table is not None:
        source = Source(text="carried by the link, without its source")
        carried = WorkloadSpec(
            id="table",
            name="Table in this plan",
            short_name="own table",
            table=table_from_text(plan.table),
            licence="the user's own",
            sources={"table": source},
        )
        notes = [] if plan.workload == DEFAULTS.workload else ["workload: ignored, as table is given"]
        return carried, notes
    return (None if plan.workload == "auto" else load_preset(plan.workload, "workload")), []


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


def _observed_requests(workload: WorkloadSpec | None) -> int | None:
    """How many requests stand behind the lengths; None for a family, and for a table that was fitted to figures."""
    if workload is None or (workload.table and workload.sources["table"].confidence == "estimate"):
        return None
    return len(workload.samples) if workload.samples else sum(requests for requests, *_ in workload.table)


def _given(value, otherwise):
    return otherwise if value is None else value


def _preset_files(kind: Kind) -> list[Path]:
    return sorted((presets_dir() / f"{kind}s").glob("*.json"))


def _files(kind: Kind) -> tuple[tuple[str, int], ...]:
    """The files of a kind with the time each was changed; a link that leads nowhere has none."""
    with os.scandir(presets_dir() / f"{kind}s") as entries:
        return tuple(sorted((entry.path, _changed_ns(entry)) for entry in entries if entry.name.endswith(".json")))


def _changed_ns(entry: os.DirEntry) -> int:
    try:
        return entry.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=8)
def _by_any_name(kind: Kind) -> dict:
    names = {}
    for spec in library(kind).specs.values():
        names.setdefault(_plain_name(spec.id), spec)
        if getattr(spec, "hf_id", None):
            names.setdefault(_plain_name(spec.hf_id), spec)
    return names


def _plain_name(name: str) -> str:
    """A name as look-up compares it: lower case, without owner, without the "Meta-" of Llama 3 and without endings
    that say how it was tuned."""
    plain = name.strip().lower().rsplit("/", 1)[-1].removeprefix("meta-")
    while plain.endswith(ENDINGS):
        plain = plain.rsplit("-", 1)[0]
    return plain


def _nearest(name: str, known: list[str]) -> str:
    plain = _plain_name(name)
    begins = [other for other in known if other.startswith(plain)] if plain else []
    near = [*dict.fromkeys([*begins, *difflib.get_close_matches(plain, known, n=3, cutoff=0)])][:3]
    return f"; nearest: {', '.join(near)}" if near else ""


def _natural(text: str) -> list:
    """Sorts 8B before 70B: runs of digits compare as numbers."""
    digits = "".join(character if character.isdigit() else " " for character in text).split()
    words = "".join(" " if character.isdigit() else character for character in text.lower()).split()
    return [words, [int(number) for number in digits]]
