"""Plan: the only input. Flat, frozen, validated; None means "as the model, the GPU or the engine has it"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from kvplan import texts
from kvplan.specs import Frozen, Name, QuantizedDtype, Spelling, StoredDtype, problems
from kvplan.units import whole_bytes

MAX_PARALLEL = 64
MAX_BYTES = 2**50
MAX_GIB = MAX_BYTES / 2**30


def _checked(parse: Callable[[str], object]) -> Callable[[str], str]:
    """A text field keeps its text; what it holds must be readable."""

    def check(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            raise ValueError(str(error).partition(": ")[2] or str(error)) from None
        return text

    return check


def _not_a_boolean(value):
    """True is not the number 1 here: a flag given for a number is a mistake worth a message."""
    if isinstance(value, bool):
        raise ValueError(f"Input should be a number, got {value}")
    return value


KvDtype = Literal["auto", StoredDtype]
CacheDtype = Annotated[KvDtype, Spelling]
ValueDtype = Annotated[StoredDtype, Spelling]
StateDtype = Annotated[Literal["bf16", "fp16", "fp32"], Spelling]
WeightDtype = Annotated[Literal["bf16", "fp16", "fp32", QuantizedDtype], Spelling]

Number = BeforeValidator(_not_a_boolean)
Layers = Annotated[int, Field(ge=1, le=4096), Number]
HeadDim = Annotated[int, Field(ge=1, le=65536), Number]
Parallel = Annotated[int, Field(ge=1, le=MAX_PARALLEL), Number]
BlockSize = Annotated[int, Field(ge=1, le=65536), Number]
Sequences = Annotated[int, Field(ge=1, le=2**20), Number]
Tokens = Annotated[int, Field(ge=1, le=2**24), Number]
SharedTokens = Annotated[int, Field(ge=0, le=2**24), Number]
SpecTokens = Annotated[int, Field(ge=0, le=64), Number]
Fraction = Annotated[float, Field(ge=0, le=1), Number]
Gib = Annotated[float, Field(ge=0, le=MAX_GIB), Number]
MemoryGib = Annotated[float, Field(ge=2**-30, le=MAX_GIB), Number]
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES), Number]
MeanTokens = Annotated[float, Field(ge=1, le=2**24), Number]
UNTAGGED_BUILD = "0.1.dev"
MAX_RATE = 2**24
Rate = Annotated[float, Field(ge=0, le=MAX_RATE), Number]
Seconds = Annotated[float, Field(ge=1e-6, le=3600), Number]
Overhead = Annotated[float, Field(ge=0, le=3600), Number]
Efficiency = Annotated[float, Field(ge=0.01, le=1), Number]
MAX_PEAK = 1000
PeakToMean = Annotated[float, Field(ge=1, le=MAX_PEAK), Number]
Replicas = Annotated[int, Field(ge=1, le=2**20), Number]
Spares = Annotated[int, Field(ge=0, le=2**20), Number]
Day = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?$")]
VERSION_PATTERN = r"^v?(\d{1,4})\.(\d{1,4})([.\w+-]{0,40})$"
EngineVersion = Annotated[str, Field(pattern=VERSION_PATTERN)]
PresetId = Annotated[str, Field(min_length=1, max_length=200)]
Flag = Annotated[bool, Field(strict=False)]
GroupsText = Annotated[str, AfterValidator(_checked(texts.groups_from_text))]
SpecText = Annotated[str, AfterValidator(_checked(texts.spec_from_text))]
TableText = Annotated[str, AfterValidator(_checked(texts.table_from_text))]


class Plan(Frozen):
    """One serving set-up and the questions asked of it.

    Every field is also the widget key, the link key, the JSON key and the command-line name. Units are in the names;
    counts of tokens, heads and layers have none.
    """

    model: PresetId = "llama-3.1-8b"
    layers: Layers | None = None
    kv_heads: Layers | None = None
    head_dim: HeadDim | None = None
    weights_gib: Gib | None = None
    weight_dtype: WeightDtype | None = None
    groups: GroupsText | None = None
    spec: SpecText | None = None

    gpu: PresetId = "h100-sxm"
    gpu_memory_gib: MemoryGib | None = None
    tp: Parallel = 1
    pp: Parallel = 1
    dp: Replicas = 1
    dcp: Parallel = 1
    enable_expert_parallel: Flag = False
    engine_version: EngineVersion | None = None
    gpu_memory_utilization: Fraction | None = None
    mem_fraction_static: Fraction | None = None
    activation_gib: Gib | None = None
    non_torch_gib: Gib | None = None
    cuda_graph_gib: Gib | None = None
    workspace_gib: Gib | None = None
    enforce_eager: Flag = False
    allocator_overhead_fraction: Fraction = 0.0
    kv_cache_memory_bytes: Bytes | None = None

    context: Tokens = 8192
    kv_dtype: CacheDtype = "auto"
    v_dtype: ValueDtype | None = None
    block_size: BlockSize | None = None
    mamba_ssm_cache_dtype: StateDtype | None = None
    usage: Literal["server", "llm_class"] = "server"
    max_num_seqs: Sequences | None = None
    max_num_batched_tokens: Tokens | None = None
    async_scheduling: Flag = True
    enable_prefix_caching: Flag = True
    disable_hybrid_kv_cache_manager: Flag = False
    spec_method: Literal["ngram", "suffix", "mtp", "eagle3"] | None = None
    spec_tokens: SpecTokens = 0
    shared_prefix_tokens: SharedTokens = 0
    admission: Literal["reserve", "on_demand"] = "reserve"
    max_tokens: Tokens | None = None
    tenant_quota_fraction: Fraction | None = None

    workload: PresetId = "azure-conversation"
    prompt_mean: MeanTokens = 1024.0
    output_mean: MeanTokens = 256.0
    output_dist: Literal["exponential", "uniform", "fixed"] = "exponential"
    table: TableText | None = None
    batch: Sequences | None = None
    arrival_rate: Rate | None = None
    arrival_cv: Rate | None = None
    step_s: Seconds | None = None
    prefix_hit_rate: Fraction | None = None
    acceptance_rate: Fraction | None = None
    bandwidth_efficiency: Efficiency | None = None
    compute_efficiency: Efficiency | None = None
    step_overhead_s: Overhead | None = None

    ttft_s: Seconds | None = None
    tpot_s: Seconds | None = None
    peak_to_mean: PeakToMean | None = None
    spare_replicas: Spares = 1
    gpu_hour_usd: Rate | None = None
    price_date: Day | None = None


class ReadyPlan(Frozen):
    """A plan worth opening by name: a way to set all fields at once, and nothing more."""

    id: Name
    name: Name
    description: str
    plan: Plan


DEFAULTS = Plan()
FROM_MODEL = (
    "layers", "kv_heads", "head_dim", "weights_gib", "weight_dtype", "groups", "spec", "activation_gib",
    "cuda_graph_gib",
)  # fmt: skip
FROM_GPU = (
    "gpu_memory_gib", "activation_gib", "non_torch_gib", "cuda_graph_gib", "workspace_gib", "max_num_seqs",
    "max_num_batched_tokens",
)  # fmt: skip
FROM_TRACE = ("table", "arrival_rate", "arrival_cv", "peak_to_mean", "prefix_hit_rate")
"""What choosing another model, GPU or trace sets back, as it came with the former one."""
OPTIONAL = frozenset(name for name, field in Plan.model_fields.items() if field.default is None)
"""Fields that may be left to the model, the GPU or the engine."""


def version_number(text: str | None) -> tuple[int, int] | None:
    """Major and minor of a version, None for none and for a build without a tag (0.1.dev…), whose age it does not say.

    >>> version_number("v0.29.1rc1.dev339"), version_number(None)
    ((0, 29), None)
    """
    if text is None or UNTAGGED_BUILD in text:
        return None
    major, minor, _ = re.fullmatch(VERSION_PATTERN, text).groups()
    return int(major), int(minor)


def with_pool(plan: Plan, pool_gib: float) -> Plan:
    """The plan with a pool of so many GiB on each device, none where that is below zero."""
    return plan.model_copy(update={"kv_cache_memory_bytes": whole_bytes(max(0.0, pool_gib))})


def to_text(plan: Plan) -> dict[str, str]:
    """Every field as text, `auto` for None.

    >>> to_text(Plan(tp=4))["tp"], to_text(Plan())["layers"]
    ('4', 'auto')
    """
    return {name: _text(value) for name, value in plan}


def _text(value) -> str:
    """One value as text: whole numbers without a decimal point, others with every digit they need."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # Adding 0.0 turns -0.0 into 0.0, which equals it and has one text.
        return f"{value + 0.0:.0f}" if value.is_integer() else repr(value)
    return str(value)


def from_text(text: Mapping[str, str], base: Plan = DEFAULTS) -> tuple[Plan, dict[str, str]]:
    """`base` with the given fields replaced, and what was wrong: field -> why it was dropped.

    >>> plan, dropped = from_text({"tp": "4", "context": "many", "colour": "red"})
    >>> plan.tp, plan.context, sorted(dropped)
    (4, 8192, ['colour', 'context'])
    """
    dropped = {name: "no field of a plan" for name in text if name not in Plan.model_fields}
    values = {
        name: None if value == "auto" and name in OPTIONAL else value
        for name, value in text.items()
        if name not in dropped
    }
    fields = base.model_dump()
    try:
        return Plan.model_validate(fields | values), dropped
    except ValidationError as error:
        bad = problems(error)
        good = {name: value for name, value in values.items() if name not in bad}
        return Plan.model_validate(fields | good), dropped | bad
