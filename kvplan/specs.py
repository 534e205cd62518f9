"""What is known of a model, a GPU and a workload: frozen, validated, every number with its source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from kvplan.units import DTYPE_SPELLINGS

Count = Annotated[int, Field(ge=1, le=2**24)]
PositiveBytes = Annotated[int, Field(ge=1, le=2**50)]


StoredDtype = Literal[
    "bf16", "fp16", "fp32", "fp8", "fp8_e5m2", "fp8_per_token_head", "int8", "int8_per_token_head", "int4"
]
Spelling = BeforeValidator(lambda value: DTYPE_SPELLINGS.get(value, value) if isinstance(value, str) else value)
"""Other spellings of a dtype become the one the project writes."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)


class Source(Frozen):
    """Where a number comes from, how far it is trusted, and whether it was only remembered."""

    text: Annotated[str, Field(min_length=1)]
    confidence: Literal["exact", "published", "estimate"] = "published"
    recalled: bool = False

    @property
    def mark(self) -> str:
        """The word a page puts beside the number: empty for a number that was looked up."""
        return "recalled" if self.recalled else "estimate" if self.confidence == "estimate" else ""


Sources = dict[str, Annotated[Source, BeforeValidator(lambda v: {"text": v} if isinstance(v, str) else v)]]

LayerKind = Literal["full", "sliding", "chunked", "mla", "mamba", "linear", "short_conv"]


class LayerState(Frozen):
    """What one layer keeps for a sequence whatever its length: elements of convolution and of recurrent state."""

    conv_elements: Annotated[int, Field(ge=0)]
    recurrent_elements: Annotated[int, Field(ge=0)]


class LayerGroup(Frozen):
    """Layers that cache alike: `layers` of them, each with `kv_heads` keys of `head_dim` and values of
    `value_head_dim` for every token, kept within `window` tokens where there is one; or a `state` of fixed size."""

    kind: LayerKind
    layers: Annotated[int, Field(ge=1, le=4096)]
    kv_heads: Annotated[int, Field(ge=0, le=4096)] = 0
    head_dim: Annotated[int, Field(ge=0, le=65536)] = 0
    value_head_dim: Annotated[int, Field(ge=0, le=65536)] = 0
    window: Count | None = None
    state: LayerState | None = None

    @model_validator(mode="after")
    def _consistent(self) -> LayerGroup:
        if self.kind == "full" and not (self.kv_heads and self.head_dim and self.value_head_dim):
            raise ValueError("a full-attention group needs kv_heads, head_dim and value_head_dim")
        if (self.kind in ("sliding", "chunked")) != (self.window is not None):
            raise ValueError("window: needed by sliding and chunked groups, and by no other")
        if (self.kind in ("mamba", "linear", "short_conv")) != (self.state is not None):
            raise ValueError("state: needed by groups that keep a state, and by no other")
        return self


class ModelSpec(Frozen):
    """A model as far as serving memory goes. `weight_bytes` is the whole model as released; `num_attention_heads`
    is None where it is not known; `kv_cache_dtype` is set where the checkpoint itself asks for another cache width."""

    id: Annotated[str, Field(min_length=1)]
    name: str
    hf_id: str | None = None
    parameters: Annotated[int, Field(ge=1)]
    weight_bytes: PositiveBytes
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    kv_cache_dtype: Annotated[StoredDtype, Spelling] | None = None
    num_attention_heads: Count | None = None
    max_position_embeddings: Count
    groups: Annotated[tuple[LayerGroup, ...], Field(min_length=1)]
    sources: Sources

    @model_validator(mode="after")
    def _sourced(self) -> ModelSpec:
        needed = ["parameters", "weight_bytes", "max_position_embeddings", "groups"]
        needed += ["num_attention_heads"] if self.num_attention_heads else []
        return _require_sources(self, needed)


class GpuSpec(Frozen):
    """One accelerator. `total_bytes` is what the driver reports to a framework, not the marketed size; rates are
    dense (no structured sparsity), None where the device has no such units."""

    id: Annotated[str, Field(min_length=1)]
    name: str
    vendor: str
    compute_capability: str | None = None
    total_bytes: PositiveBytes
    bandwidth_bytes_per_s: Annotated[int, Field(ge=1)]
    bf16_flop_per_s: Annotated[int, Field(ge=1)] | None = None
    fp8_flop_per_s: Annotated[int, Field(ge=1)] | None = None
    sources: Sources

    @model_validator(mode="after")
    def _sourced(self) -> GpuSpec:
        rates = [name for name in ("bf16_flop_per_s", "fp8_flop_per_s") if getattr(self, name)]
        return _require_sources(self, ["total_bytes", "bandwidth_bytes_per_s", *rates])


class WorkloadSpec(Frozen):
    """Request lengths, as a table or as samples, with the traffic they came with.

    `table`: rows (requests, mean output, mean prompt). Bins ordered by output length, each cut into slices ordered by
    prompt, so that means are exact and prompt and output stay correlated. `samples`: (prompt, output) in arrival order.
    Exactly one of the two. `arrival_rate` in requests a second, `arrival_cv` the variation of the gaps.
    """

    id: Annotated[str, Field(min_length=1)]
    name: str
    short_name: str
    table: tuple[tuple[Count, Annotated[float, Field(gt=0)], Annotated[float, Field(ge=0)]], ...] | None = None
    samples: tuple[tuple[Annotated[int, Field(ge=0)], Count], ...] | None = None
    arrival_rate: Annotated[float, Field(ge=0)] | None = None
    arrival_cv: Annotated[float, Field(ge=0)] | None = None
    licence: Annotated[str, Field(min_length=1)]
    attribution: str = ""
    sources: Sources

    @model_validator(mode="after")
    def _sourced(self) -> WorkloadSpec:
        if bool(self.table) == bool(self.samples):
            raise ValueError("exactly one of table and samples is needed, with at least one row")
        rates = [name for name in ("arrival_rate", "arrival_cv") if getattr(self, name) is not None]
        return _require_sources(self, ["table" if self.table else "samples", *rates])


def problems(error: ValidationError) -> dict[str, str]:
    """What a validation found: field (a dotted path) -> rule and value.

    >>> try:
    ...     Source(text="a table", confidence="sure")
    ... except ValidationError as error:
    ...     problems(error)
    {'confidence': "Input should be 'exact', 'published' or 'estimate', got 'sure'"}
    """
    found = {}
    for item in error.errors(include_url=False):
        message = item["msg"].removeprefix("Value error, ")
        shown = "" if item["type"] in ("missing", "value_error") else f", got {shorten(repr(item['input']))}"
        found.setdefault(".".join(str(part) for part in item["loc"]), message + shown)
    return found


def problem_lines(error: ValidationError) -> list[str]:
    """The same as lines `field: rule, got value`; a rule about several fields stands alone."""
    return [f"{field}: {rule}" if field else rule for field, rule in problems(error).items()]


def shorten(text: str, limit: int = 60) -> str:
    r"""Text fit for a message of one line: cut, and what cannot be printed replaced, so that no value can flood it.

    >>> shorten("col\nour")
    'col?our'
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(character if character.isprintable() else "?" for character in cut)


def _require_sources(spec, names: list[str]):
    missing = [name for name in names if name not in spec.sources]
    if missing:
        raise ValueError(f"sources: every number needs one, missing for {', '.join(missing)}")
    return spec
