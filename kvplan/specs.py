"""What is known of a model, a GPU and a workload: frozen, validated, every number with its source."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from kvplan.units import DTYPE_SPELLINGS

Count = Annotated[int, Field(ge=1, le=2**24)]
Name = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w .,+×()'-]+$")]
"""Names reach pages and terminals, also out of links: letters, digits and a few signs, nothing that could be markup."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"must be printable and one line, got {shown(text)}")
    return text


Words = Annotated[str, Field(max_length=300), AfterValidator(_printable)]
"""Text of any kind, out of links too: pages escape it, and nothing in it steers a terminal."""
PositiveBytes = Annotated[int, Field(ge=1, le=2**50)]


StoredDtype = Literal[
    "bf16", "fp16", "fp32", "fp8", "fp8_e5m2", "fp8_per_token_head", "int8", "int8_per_token_head", "int4"
]
QuantizedDtype = Literal["fp8", "int8", "int4", "nvfp4", "mxfp4"]
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

    @property
    def trust(self) -> str:
        """How far the number is trusted: its confidence, and whether it was only remembered."""
        return f"{self.confidence}, recalled" if self.recalled else self.confidence


SOURCED = (
    "parameters", "weight_bytes", "max_position_embeddings", "groups", "num_attention_heads", "mtp_layers",
    "num_experts", "vision_heads", "unquantized_parameters", "loaded_weight_bytes", "shape", "expert_parameters",
    "input_embedding_parameters",
)  # fmt: skip
"""The figures of a model that each need a source."""

Sources = dict[str, Annotated[Source, BeforeValidator(lambda v: {"text": v} if isinstance(v, str) else v)]]

LayerKind = Literal[
    "full", "sliding", "chunked", "mla", "compressed",
    "mamba1", "mamba2", "gated_deltanet", "kda", "short_conv", "none",
]  # fmt: skip
ATTENTION_KINDS = frozenset({"full", "sliding", "chunked"})
"""Kinds that store keys and values of every KV head."""
GROWING_KINDS = frozenset({"full", "mla"})
"""Kinds whose cache grows with every token, without limit."""
STATE_KINDS = frozenset({"mamba1", "mamba2", "gated_deltanet", "kda", "short_conv"})
"""Kinds that keep a state of fixed size for each sequence, whatever its length."""


class LayerState(Frozen):
    """What one layer keeps for a sequence whatever its length.

    A convolution over `conv_kernel` positions keeps one row fewer, of `conv_channels` that tensor parallelism divides
    and `replicated_channels` that every rank has whole; the recurrent state has `recurrent_elements`, divided as well,
    stored in the model's dtype unless `recurrent_dtype` says otherwise. `groups`: those of Mamba-2, which tp must
    divide unless there is one.
    """

    conv_kernel: Annotated[int, Field(ge=1, le=65536)]
    conv_channels: Annotated[int, Field(ge=0, le=2**32)]
    replicated_channels: Annotated[int, Field(ge=0, le=2**32)] = 0
    recurrent_elements: Annotated[int, Field(ge=0, le=2**40)] = 0
    recurrent_dtype: Literal["bf16", "fp16", "fp32"] | None = None
    groups: Annotated[int, Field(ge=1, le=65536)] = 1

    @model_validator(mode="after")
    def _keeps_something(self) -> LayerState:
        if not self.recurrent_elements and (self.conv_kernel == 1 or not self.conv_channels + self.replicated_channels):
            raise ValueError("a state must keep a row of its convolution or a recurrent state")
        return self


class LayerGroup(Frozen):
    """A run of `layers` that cache alike.

    Attention keeps, for every token, `kv_heads` keys of `head_dim` and values of `value_head_dim`: of all tokens
    (full), of the last `window` (sliding), or of the current chunk of `window` (chunked). MLA keeps one latent vector
    of `head_dim` for all heads. Compressed layers (DeepSeek-V4) keep one entry of `head_dim` for `compress_ratio`
    tokens (0: none) beside a window. `index_dim`: width of the key an indexer stores beside either, and `index_topk`
    how many entries it lets attention read (0: not known, so all). State kinds keep a `state`; "none" keeps nothing of
    its own.
    """

    kind: LayerKind
    layers: Annotated[int, Field(ge=1, le=4096)] = 1
    kv_heads: Annotated[int, Field(ge=0, le=4096)] = 0
    head_dim: Annotated[int, Field(ge=0, le=65536)] = 0
    value_head_dim: Annotated[int, Field(ge=0, le=65536)] = 0
    window: Count | None = None
    index_dim: Annotated[int, Field(ge=0, le=65536)] = 0
    index_topk: Annotated[int, Field(ge=0, le=2**24)] = 0
    compress_ratio: Annotated[int, Field(ge=0, le=65536)] = 0
    state: LayerState | None = None

    @model_validator(mode="after")
    def _consistent(self) -> LayerGroup:
        if self.kind in ATTENTION_KINDS and not (self.kv_heads and self.head_dim and self.value_head_dim):
            raise ValueError(f"a group of kind {self.kind} needs kv_heads, head_dim and value_head_dim")
        if self.kind in ("mla", "compressed") and not self.head_dim:
            raise ValueError(f"a group of kind {self.kind} needs head_dim, the width of what it stores")
        if (self.kind in ("sliding", "chunked", "compressed")) != (self.window is not None):
            raise ValueError("window: needed by sliding, chunked and compressed groups, and by no other")
        if (self.kind in STATE_KINDS) != (self.state is not None):
            raise ValueError("state: needed by groups that keep a state, and by no other")
        return self


class ModelShape(Frozen):
    """Widths that set how much working memory a step takes, and how much it computes.

    `intermediate_size`: of the widest dense feed-forward network, 0 without one. `moe_intermediate_size` and
    `num_experts_per_tok`: of routed experts, 0 without. `quantized_experts`: the experts are stored so (mxfp4) that
    their kernels need no workspace of their own. `mla_head_dims`: width of a key and a value together, of which each
    query head of MLA has its own in a prefill; 0 without MLA.
    """

    hidden_size: Annotated[int, Field(ge=1, le=2**20)]
    vocab_size: Annotated[int, Field(ge=1, le=2**24)]
    intermediate_size: Annotated[int, Field(ge=0, le=2**24)] = 0
    moe_intermediate_size: Annotated[int, Field(ge=0, le=2**24)] = 0
    num_experts_per_tok: Annotated[int, Field(ge=0, le=2**20)] = 0
    quantized_experts: bool = False
    mla_head_dims: Annotated[int, Field(ge=0, le=2**17)] = 0


class ModelSpec(Frozen):
    """A model as far as serving memory goes.

    `groups` are runs in the order of the layers. `weight_bytes` is the whole model as released; it and `parameters`
    are None where they cannot be counted. `loaded_weight_bytes` is what an engine keeps of it on one device, where that
    is known to be another number. `unquantized_parameters` of the `parameters` (embeddings, norms, routers) stay in 16
    bits in quantised checkpoints; `expert_parameters` are in routed experts, `input_embedding_parameters` in tables
    that are looked up and not read (0 where the head shares them). `weight_dtype` is the width of the matrices where
    the checkpoint has them below 16 bits. `shape` is None where the widths are not known. `multimodal`: the weights
    come with an encoder of images, video or sound.
    `num_attention_heads` is None where it is not known; `kv_cache_dtype` is set where the checkpoint itself asks for
    another cache width. `model_type` is Hugging Face's word for the architecture: some facts of the engine hang on it.
    `mtp_layers`: layers for multi-token prediction that come with the checkpoint. `vision_heads`: attention heads of
    the vision tower, where tp must divide them too. `alibi`: attention with a bias by distance. `notes` say what was
    guessed when the model was read.
    """

    id: Name
    name: Name
    hf_id: Words | None = None
    model_type: Annotated[Words, Field(max_length=120)] | None = None
    parameters: Annotated[int, Field(ge=1)] | None
    weight_bytes: PositiveBytes | None
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    kv_cache_dtype: Annotated[StoredDtype, Spelling] | None = None
    num_attention_heads: Count | None = None
    max_position_embeddings: Count
    groups: Annotated[tuple[LayerGroup, ...], Field(min_length=1)]
    mtp_layers: Annotated[int, Field(ge=0, le=64)] = 0
    num_experts: Annotated[int, Field(ge=0, le=2**20)] = 0
    unquantized_parameters: Annotated[int, Field(ge=0)] | None = None
    expert_parameters: Annotated[int, Field(ge=0)] | None = None
    input_embedding_parameters: Annotated[int, Field(ge=0)] | None = None
    weight_dtype: QuantizedDtype | None = None
    loaded_weight_bytes: PositiveBytes | None = None
    shape: ModelShape | None = None
    multimodal: bool = False
    vision_heads: Count | None = None
    alibi: bool = False
    notes: Annotated[tuple[Words, ...], Field(max_length=4)] = ()
    sources: Sources

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        if problem := cache_problem(self.groups):
            raise ValueError(f"groups: {problem}")
        return _require_sources(self, [name for name in SOURCED if getattr(self, name)])

    def __hash__(self) -> int:
        # A few fields tell models apart; hashing all layers would take longer than most of what is remembered by it.
        return hash((self.id, self.parameters, self.weight_bytes, len(self.groups)))

    @property
    def provisional(self) -> bool:
        """Whether its layers or its size were not looked up in a config.json but remembered, derived or estimated."""
        return any(self.sources[name].mark for name in ("groups", "parameters") if name in self.sources)


ATTENTION_NAMES = {
    "mla": "MLA", "compressed": "compressed", "sliding": "sliding", "chunked": "chunked", "mamba1": "Mamba-1",
    "mamba2": "Mamba-2", "gated_deltanet": "gated DeltaNet", "kda": "KDA", "short_conv": "short convolution",
}  # fmt: skip


def attention_name(spec: ModelSpec) -> str:
    """How a model attends, as one searches for it: MHA, GQA, MQA or MLA, and what else its layers keep.

    Source: Shazeer 2019 (MQA), Ainslie et al. 2023 (GQA), DeepSeek-AI 2024 (MLA).
    """
    names = [_head_sharing(group, spec.num_attention_heads) for group in spec.groups if group.kind in ATTENTION_KINDS]
    names += [ATTENTION_NAMES[group.kind] for group in spec.groups if group.kind in ATTENTION_NAMES]
    names += ["indexer" for group in spec.groups if group.index_dim]
    distinct = list(dict.fromkeys(names))
    kinds = {group.kind for group in spec.groups} - {"none"}
    return " + ".join(distinct) + (" hybrid" if len(kinds) > 1 else "")


def describe(spec: ModelSpec) -> str:
    """A model in a few words: how it attends, its parameters, its experts, and whether it is provisional.

    >>> source = Source(text="a table")
    >>> describe(ModelSpec(id="a", name="A", parameters=7_248_023_552, weight_bytes=None, num_attention_heads=32,
    ...     max_position_embeddings=1, groups=[LayerGroup(kind="full", kv_heads=8, head_dim=128, value_head_dim=128)],
    ...     sources=dict.fromkeys(SOURCED, source)))
    'GQA, 7.2B'
    """
    words = [attention_name(spec)]
    if spec.parameters:
        words.append(parameter_count(spec.parameters))
    words += ["MoE"] if spec.num_experts else []
    words += ["multimodal"] if spec.multimodal else []
    words += ["provisional"] if spec.provisional else []
    return ", ".join(words)


def parameter_count(number: int) -> str:
    """Parameters as a model's name writes them.

    >>> parameter_count(7_248_023_552), parameter_count(2_779_484_476_000), parameter_count(596_049_920)
    ('7.2B', '2.8T', '0.6B')
    """
    return f"{number / 1e12:.1f}T" if number >= 1e12 else f"{number / 1e9:.1f}B"


def _head_sharing(group: LayerGroup, heads: int | None) -> str:
    if group.kv_heads == 1:
        return "MQA"
    return "MHA" if heads == group.kv_heads else "GQA"


def cache_problem(groups: Iterable[LayerGroup]) -> str | None:
    """Why layers make no cache together, else None."""
    kinds = {group.kind for group in groups} - {"none"}
    if not kinds:
        return "at least one layer must keep a cache"
    if "compressed" in kinds and len(kinds) > 1:
        return "compressed layers stand by themselves; no model has others among them"
    return None


def expanded(groups: Iterable[LayerGroup]) -> list[LayerGroup]:
    """One group of one layer for each layer, in order."""
    return [layer for group in groups for layer in [_single(group)] * group.layers]


def runs(layers: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """The same layers as runs of equal neighbours."""
    found: list[tuple[LayerGroup, int]] = []
    for layer in layers:
        single = _single(layer)
        if found and (found[-1][0] is single or found[-1][0] == single):
            found[-1] = (found[-1][0], found[-1][1] + layer.layers)
        else:
            found.append((single, layer.layers))
    return tuple(single.model_copy(update={"layers": number}) for single, number in found)


def _single(group: LayerGroup) -> LayerGroup:
    return group if group.layers == 1 else group.model_copy(update={"layers": 1})


class GpuSpec(Frozen):
    """One accelerator. `total_bytes` is what the driver reports to a framework, not the marketed size; rates are
    dense (no structured sparsity), None where the device has no such units. `link_bytes_per_s` is what it can send to
    the others of its node, in one direction."""

    id: Name
    name: Name
    vendor: str
    compute_capability: str | None = None
    total_bytes: PositiveBytes
    bandwidth_bytes_per_s: Annotated[int, Field(ge=1)]
    link_bytes_per_s: Annotated[int, Field(ge=1)] | None = None
    fp16_flop_per_s: Annotated[int, Field(ge=1)] | None = None
    bf16_flop_per_s: Annotated[int, Field(ge=1)] | None = None
    fp8_flop_per_s: Annotated[int, Field(ge=1)] | None = None
    fp4_flop_per_s: Annotated[int, Field(ge=1)] | None = None
    sources: Sources

    @model_validator(mode="after")
    def _sourced(self) -> GpuSpec:
        rates = [name for name in type(self).model_fields if name.endswith("_per_s") and getattr(self, name)]
        return _require_sources(self, ["total_bytes", *rates])


TRAFFIC = ("arrival_rate", "arrival_cv", "peak_to_mean", "prefix_hit_rate")
"""The figures of a workload's traffic that each need a source."""


class WorkloadSpec(Frozen):
    """Request lengths, as a table or as samples, with the traffic they came with.

    `table`: rows (requests, mean output, mean prompt). Bins ordered by output length, each cut into slices ordered by
    prompt, so that means are exact and prompt and output stay correlated. `samples`: (prompt, output) in arrival order.
    Exactly one of the two. `arrival_rate` in requests a second, `arrival_cv` the variation of the gaps,
    `peak_to_mean` the busiest minute over the mean one, `prefix_hit_rate` the share of prompt tokens that a pool which
    forgets nothing would find.
    """

    id: Name
    name: Name
    short_name: Name
    table: tuple[tuple[Count, Annotated[float, Field(gt=0)], Annotated[float, Field(ge=0)]], ...] | None = None
    samples: tuple[tuple[Annotated[int, Field(ge=0)], Count], ...] | None = None
    arrival_rate: Annotated[float, Field(ge=0)] | None = None
    arrival_cv: Annotated[float, Field(ge=0)] | None = None
    peak_to_mean: Annotated[float, Field(ge=1)] | None = None
    prefix_hit_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    licence: Annotated[str, Field(min_length=1)]
    attribution: str = ""
    sources: Sources

    @model_validator(mode="after")
    def _sourced(self) -> WorkloadSpec:
        if bool(self.table) == bool(self.samples):
            raise ValueError("exactly one of table and samples is needed, with at least one row")
        rates = [name for name in TRAFFIC if getattr(self, name) is not None]
        return _require_sources(self, ["table" if self.table else "samples", *rates])


def shown(value) -> str:
    """A value as a message shows it: short, in one line, and whatever it is."""
    try:
        return shorten(repr(value))
    except ValueError:
        return f"a whole number of {value.bit_length():,} bits"
    except RecursionError:
        return "a value nested too deeply"


def require_one_of(name: str, value, known: Iterable) -> None:
    """Raises ValueError, with the field, the rule and the value, for a word that is none of those known."""
    if value not in known:
        raise ValueError(f"{name}: must be one of {', '.join(known)}, got {shown(value)}")


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a message about a name that is none of those known: the three most like it, empty where none is.

    >>> nearest("contxt", ["context", "tp"]), nearest("colour", ["tp"])
    ('; nearest: context', '')
    """
    near = ", ".join(difflib.get_close_matches(name, list(known), n=3, cutoff=cutoff))
    return near and f"; nearest: {near}"


def read_json(text: str, **hooks):
    """What a text from outside holds as JSON. Raises ValueError with the reason alone."""
    try:
        return json.loads(text, **hooks)
    except (ValueError, RecursionError) as error:
        raise ValueError(why_unreadable(error)) from None


def why_unreadable(error: Exception) -> str:
    """Why a parser of JSON or TOML gave up, in the words of whoever wrote the text, not of Python."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "limit" in str(error) and "digits" in str(error):
        return f"a number has more than {sys.get_int_max_str_digits():,} digits"
    return shorten(str(error), 100)


def parsed_json(text: str):
    """What a text holds as JSON, None where it is none, or too deep."""
    try:
        return read_json(text)
    except ValueError:
        return None


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
        value = "" if item["type"] in ("missing", "value_error") else f", got {shown(item['input'])}"
        found.setdefault(".".join(str(part) for part in item["loc"]), message + value)
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
