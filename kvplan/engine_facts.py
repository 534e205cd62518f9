"""What vLLM does by default, as data: facts of one engine version that no formula and no config could tell.

Source: vLLM 0.32.0, read from its planner and checked against its answers.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.arrays import choose
from kvplan.units import GIB

ENGINE_VERSION = "vLLM 0.32"

BLOCK_SIZE = 16
"""Tokens in a block of ordinary attention on every CUDA device, unless the user sets another."""
BLOCK_SIZE_MULTIPLE = 16
"""Every attention backend of this version takes blocks of a multiple of this many tokens."""
MLA_ALIGNMENT = 128
"""An MLA hybrid's blocks are a multiple of this many tokens."""
INDEXER_ALIGNMENT = 64
"""The block of a model with an indexer must be a multiple of this many tokens."""

CACHE_DTYPES = frozenset({"bf16", "fp16", "fp8", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head"})
"""Formats the engine can store a cache in; other widths are computed as plain widths, and noted."""
FP8_DTYPES = frozenset({"fp8", "fp8_e5m2", "fp8_per_token_head"})

PACKED_MLA_BYTES = 656
"""A token of MLA beside an indexer in fp8 below sm100: 512 fp8 values, 16 bytes of scales, 64 bf16 values of RoPE."""

IGNORES_CACHE_DTYPE = frozenset({"falcon"})
"""Families whose layers never receive the cache dtype."""
SCALES_NOT_COUNTED = frozenset({"mimo_v2_flash"})
"""Families whose scales for each token and head the planner leaves out of a page."""
FP8_ON_BLACKWELL = frozenset({"glm_moe_dsa"})
"""Families that turn `auto` into fp8 on sm100."""
WIDE_HEADS = frozenset({"gemma4", "gemma4_text"})
"""Families whose heads of 512 need blocks of 64 on sm100, and on sm90 with an fp8 cache."""
SPARSE_BLOCKS = frozenset({"minimax_m3"})
"""Families whose sparse attention needs blocks of 128."""
MINIMUM_BATCHED_TOKENS = {"gemma4": 2496, "gemma4_text": 2496}
"""A defaulted token budget is raised to this, so that one video fits in a batch."""
COMPRESSED_BLOCK = 256
"""Tokens in a block of DeepSeek-V4's compressed layers."""

NO_FP8_ON_A100 = frozenset({"gemma3", "gemma4", "gemma4_text", "gpt_oss", "mimo_v2_flash"})
"""Families that run on the Triton backend, which has no fp8 on an A100; MLA and heads of 96 do as well."""
NO_FP8_HEAD_DIM_ON_A100 = 96
NO_FP8_ON_BLACKWELL = frozenset({"mimo_v2_flash"})
NO_FP8_E5M2 = frozenset({"mimo_v2_flash"})
NO_PIPELINE = frozenset({"gemma3n", "gemma3n_text"})
NO_REPLICATED_HEADS = frozenset({"gpt_oss"})
"""Families whose code divides the KV heads by tp and cannot copy them beyond."""


class SchedulerDefaults(NamedTuple):
    """Defaults of the scheduler on one class of device."""

    max_num_seqs: int
    max_num_batched_tokens: int


def scheduler_defaults(*, device_bytes: int, device_name: str, usage: str) -> SchedulerDefaults:
    """Sequences and tokens one step may hold where the user sets neither.

    `usage` is "server" (the OpenAI-compatible server) or "llm_class" (the Python class), which batch differently.
    An A100 counts as small whatever its memory, up to 160 GiB. `device_bytes` may be an integer array.
    """
    huge = device_bytes >= 160 * GIB
    large = huge | ((device_bytes >= 70 * GIB) & ("a100" not in device_name.lower()))
    few, many = (2048, 8192) if usage == "server" else (8192, 16384)
    return SchedulerDefaults(choose(large, 1024, 256), choose(huge, 16384, choose(large, many, few)))


def device_class(compute_capability: str | None) -> int:
    """The class by which kernels are chosen: 80, 89, 90 or 100; what was never run counts as 89.

    10.3 is taken as 10.0; 12.x, other vendors and older devices take the row of the L40S.
    """
    known = {"8.0": 80, "9.0": 90, "10.0": 100, "10.3": 100}
    return known.get(compute_capability or "", 89)


CHECKED_DEVICES = frozenset({"8.0", "8.9", "9.0", "10.0"})
"""Compute capabilities whose answers were checked against the engine."""


def attention_block_size(*, model_type: str, has_mla: bool, has_index: bool, kv_dtype: str, device: int) -> int:
    """Tokens in a block where the user sets none: what the attention backend of model and device forces."""
    if device in (90, 100):
        if has_mla and has_index:
            return 64
        if has_mla:
            return 32 if device == 100 else 64 if kv_dtype == "fp8" else BLOCK_SIZE
        if model_type in WIDE_HEADS and (device == 100 or kv_dtype == "fp8"):
            return 64
        if model_type in SPARSE_BLOCKS:
            return 128
    return BLOCK_SIZE
