"""What an engine takes of a device at start-up beside the weights: activation peak, non-torch memory, CUDA graphs.

An engine measures these by running one step of as many tokens as it may ever schedule and sampling for as many
sequences as it may ever run. The largest of it is not the model but its vocabulary: logits of all sequences at once.
All of it is an estimate. Source: `startup_facts`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.arrays import choose, maximum, minimum, position, rounded
from kvplan.plan import Plan, version_number
from kvplan.specs import ModelShape, ModelSpec
from kvplan.startup_facts import (
    ALL_GRAPHS,
    ENCODER_GIB,
    FORWARD_WIDTHS,
    GRAPH_BASE_GIB,
    GRAPH_EXPERTS_GIB,
    GRAPH_LAYER_GIB,
    HIDDEN_STATES,
    LARGEST_GRAPH,
    POOL_BAND,
    RELEASES,
    TYPICAL_HIDDEN_SIZE,
    TYPICAL_VOCABULARY,
    V0_CHUNKED_TOKENS,
    V0_LONGEST_UNCHUNKED,
    V0_SEQUENCES,
    Release,
)
from kvplan.units import ceil_div, whole_bytes

ELEMENT_BYTES = 2
"""Activations are 16 bits wide."""
GRAPH_SIZES = [1, 2, 4, *range(8, 256, 8), *range(256, LARGEST_GRAPH + 1, 16)]
"""Sizes of a step that are captured as CUDA graphs."""
TYPICAL_SHAPE = ModelShape(hidden_size=TYPICAL_HIDDEN_SIZE, vocab_size=TYPICAL_VOCABULARY)


@dataclass(frozen=True)
class Startup:
    """Bytes of one device. `workspace_bytes` is non-torch memory and graphs, together where only their sum is given;
    `band_bytes` how far the pool may miss, 0 where nothing is estimated."""

    activation_bytes: int
    workspace_bytes: int
    non_torch_bytes: int | None
    cuda_graph_bytes: int | None
    band_bytes: int

    @property
    def outside_bytes(self) -> int:
        """What lies outside PyTorch, as far as it is told apart: non-torch memory, else the whole workspace."""
        return self.workspace_bytes if self.non_torch_bytes is None else self.non_torch_bytes


def release(engine_version: str | None) -> Release:
    """The row of the version, the newest where none is named.

    >>> release("0.11.2").sampler_bytes, release(None) is RELEASES[-1]
    (38.1, True)
    """
    number = version_number(engine_version)
    return RELEASES[-1] if number is None else next(row for row in reversed(RELEASES) if row.since <= number)


def at_startup(plan: Plan, model: ModelSpec, *, total_bytes: int, sequences: int, tokens: int, layers: int) -> Startup:
    """What the engine of a plan takes at start-up on one device of `total_bytes`, where the plan does not set it.

    `sequences` and `tokens` are the most that one step may hold; they, `total_bytes` and numbers of the plan may be
    arrays.
    """
    found = release(plan.engine_version)
    if found.profiles_context:
        sequences = V0_SEQUENCES if plan.max_num_seqs is None else plan.max_num_seqs
        tokens = plan.max_num_batched_tokens
        if tokens is None:
            tokens = _v0_tokens(plan.context)
    activation = _activation_bytes(found, model, sequences=minimum(sequences, tokens), tokens=tokens, tp=plan.tp)
    non_torch = whole_bytes(found.non_torch_parallel_gib if plan.tp > 1 else found.non_torch_gib)
    graphs = _graph_bytes(layers, sequences, bool(model.num_experts)) if found.subtracts_graphs else 0

    activation = _given(plan.activation_gib, activation)
    non_torch = _given(plan.non_torch_gib, non_torch)
    graphs = 0 if plan.enforce_eager else _given(plan.cuda_graph_gib, graphs)
    band = rounded(total_bytes * POOL_BAND) if _is_estimated(plan) else 0
    if plan.workspace_gib is not None:
        return Startup(activation, whole_bytes(plan.workspace_gib), None, None, band)
    return Startup(activation, non_torch + graphs, non_torch, graphs, band)


def _is_estimated(plan: Plan) -> bool:
    """Whether the pool is the rest of anything that the plan leaves to an estimate."""
    if plan.kv_cache_memory_bytes is not None:
        return False
    if plan.mem_fraction_static is not None:
        return not _outside_is_given(plan)
    return plan.activation_gib is None or workspace_is_estimated(plan)


def workspace_is_estimated(plan: Plan) -> bool:
    """Whether any part of the workspace, non-torch memory or CUDA graphs, is an estimate."""
    graphs_given = plan.enforce_eager or plan.cuda_graph_gib is not None or plan.workspace_gib is not None
    return not _outside_is_given(plan) or (not graphs_given and release(plan.engine_version).subtracts_graphs)


def _outside_is_given(plan: Plan) -> bool:
    return plan.non_torch_gib is not None or plan.workspace_gib is not None


def _activation_bytes(found: Release, model: ModelSpec, *, sequences: int, tokens: int, tp: int) -> int:
    """The peak of PyTorch's memory above the weights: what outlives the layers, and the larger of sampling and the
    widest layer; routed experts beside it where their workspace is kept."""
    shape = model.shape or TYPICAL_SHAPE
    kept = HIDDEN_STATES * tokens * shape.hidden_size * ELEMENT_BYTES
    sampling = found.sampler_bytes * sequences * shape.vocab_size
    layer = FORWARD_WIDTHS * (shape.hidden_size + ceil_div(shape.intermediate_size, tp)) * tokens * ELEMENT_BYTES
    experts = expert_workspace_bytes(shape, tokens=tokens, tp=tp)
    encoder = whole_bytes(ENCODER_GIB) if model.multimodal else 0
    widest = maximum(sampling, layer)
    peak = widest + experts if found.keeps_expert_workspace else maximum(widest, experts)
    return rounded(kept + peak + encoder)


def expert_workspace_bytes(shape: ModelShape, *, tokens: int, tp: int) -> int:
    """The two buffers of a fused kernel for routed experts: one as wide as gate and up or as the hidden states, one as
    their product or the hidden states; none for experts stored in mxfp4.

    >>> expert_workspace_bytes(ModelShape(hidden_size=2048, vocab_size=1, moe_intermediate_size=768,
    ...                                   num_experts_per_tok=8), tokens=8192, tp=1) / 2**30
    0.5
    """
    if shape.quantized_experts:
        return 0
    width = ceil_div(shape.moe_intermediate_size, tp)
    widest = max(2 * width, shape.hidden_size) + max(width, shape.hidden_size)
    return tokens * shape.num_experts_per_tok * widest * ELEMENT_BYTES


def _graph_bytes(layers: int, sequences: int, has_experts: bool) -> int:
    """What the engine expects its CUDA graphs to take: one for each captured size, of every layer."""
    share = captured_sizes(sequences) / ALL_GRAPHS
    return whole_bytes(GRAPH_BASE_GIB + GRAPH_LAYER_GIB * layers * share + GRAPH_EXPERTS_GIB * has_experts)


def captured_sizes(sequences: int) -> int:
    """How many sizes of a step are captured: 1, 2, 4, every 8th to 256 and every 16th to 512, up to twice the
    sequences.

    >>> captured_sizes(1024), captured_sizes(8)
    (51, 5)
    """
    return position(GRAPH_SIZES, 2 * sequences)


def _v0_tokens(context: int) -> int:
    return choose(context <= V0_LONGEST_UNCHUNKED, context, V0_CHUNKED_TOKENS)


def _given(gib: float | None, otherwise: int) -> int:
    return otherwise if gib is None else whole_bytes(gib)
