"""What an engine sets aside at start-up beside weights and cache, as data: constants read from public start-up logs.

No formula gives these numbers, and no config tells them. Each names the logs it was read from; `docs/accuracy.md` holds
every public start-up against what comes of them.
"""

from __future__ import annotations

from typing import NamedTuple


class Release(NamedTuple):
    """How vLLM takes memory from version `since` (major, minor) on.

    `sampler_bytes`: bytes at the peak of sampling for each sequence and entry of the vocabulary.
    `keeps_expert_workspace`: the workspace of routed experts stays allocated while tokens are sampled. `non_torch_gib`
    and `non_torch_parallel_gib`: memory outside PyTorch without tensor parallelism and with it, whose collectives keep
    buffers. `subtracts_graphs`: an estimate of the CUDA graphs comes off the pool. `profiles_context`: start-up runs
    one request of the whole context.
    """

    since: tuple[int, int]
    utilization: float
    sampler_bytes: float
    keeps_expert_workspace: bool
    non_torch_gib: float
    non_torch_parallel_gib: float
    subtracts_graphs: bool
    profiles_context: bool = False


RELEASES = (
    # V0: logs of 0.6 to 0.8 on A10, L40, A100 and H100; a step holds the whole context unless prefill is chunked.
    Release((0, 0), 0.90, 38.1, False, 0.10, 0.50, False, profiles_context=True),
    # V1: 0.11 on H100, Llama 3.1 8B, Llama 3.3 70B, Qwen3 0.6B and 32B (llm-d-benchmark).
    Release((0, 9), 0.90, 38.1, False, 0.13, 0.55, False),
    # A sampler that sorts in place: Qwen3 14B fell from 5.64 to 2.23 GiB between 0.16 and 0.17 (llm-d-planner #205).
    Release((0, 17), 0.90, 14.5, True, 0.13, 0.55, False),
    # 0.18 and 0.19 on H100: Llama 3.1 8B at tp 1, 2 and 4 (llm-d-planner #205).
    Release((0, 18), 0.90, 14.5, True, 0.25, 2.10, False),
    # Graph profiling is on by default, and 0.92 with it: 0.24 to 0.31 (A100, GB200, RTX PRO 6000).
    Release((0, 21), 0.92, 14.5, True, 0.27, 1.70, True),
)
"""vLLM's start-up by version, oldest first."""

HIDDEN_STATES = 1.3
"""Copies of the hidden states of a step that outlive its layers (0.11, Llama 3.1 8B against 3.3 70B)."""
FORWARD_WIDTHS = 3
"""A layer's peak holds gate, up and their product, and as many hidden states (V0, Llama 3.1 8B with 29,000 tokens)."""
ENCODER_GIB = 0.15
"""An encoder of images at its usual limits (0.19: Gemma 3, Mistral Small 3.1, Llama 4 Scout, Kimi-VL: 0.1 to 0.2)."""
GRAPH_BASE_GIB, GRAPH_LAYER_GIB, GRAPH_EXPERTS_GIB = 0.3, 0.015, 0.3
"""The estimate of CUDA graphs: a base, for each layer at all capture sizes, and with routed experts (0.19 on H100)."""
LARGEST_GRAPH, ALL_GRAPHS = 512, 51
"""Tokens of the largest captured step, and how many sizes are captured up to it by default."""
V0_SEQUENCES, V0_CHUNKED_TOKENS, V0_LONGEST_UNCHUNKED = 256, 2048, 32768
"""V0's max_num_seqs on any device; it chunked prefill into steps of 2,048 tokens above this context."""

TYPICAL_VOCABULARY, TYPICAL_HIDDEN_SIZE = 151_936, 5_120
"""Stand in for a model whose widths are not known: most released models have as many or fewer."""

POOL_BAND = 0.04
"""Share of a device's memory within which nine in ten pools of the public start-ups lie."""
SOURCE = (
    "estimated from the shape of the model, tp, max_num_seqs and max_num_batched_tokens; constants read from public "
    "start-up logs of vLLM (docs/accuracy.md)"
)
