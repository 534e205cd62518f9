"""What vLLM does by default, as data: facts of one engine version that no formula could tell.

Source: vLLM 0.32.0, read from its planner and checked against its answers.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.units import GIB

ENGINE_VERSION = "vLLM 0.32"

GPU_MEMORY_UTILIZATION = 0.92
BLOCK_SIZE = 16
"""Tokens in a block of ordinary attention on every CUDA device, unless the user sets another."""
BLOCK_SIZE_MULTIPLE = 16
"""Every attention backend of this version takes blocks of a multiple of this many tokens."""

CACHE_DTYPES = frozenset({"bf16", "fp16", "fp8", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head"})
"""Formats the engine can store a cache in; other widths are computed as plain widths, and noted."""


class SchedulerDefaults(NamedTuple):
    """Defaults of the scheduler on one class of device."""

    max_num_seqs: int
    max_num_batched_tokens: int


def scheduler_defaults(*, device_bytes: int, device_name: str, usage: str) -> SchedulerDefaults:
    """Sequences and tokens one step may hold where the user sets neither.

    `usage` is "server" (the OpenAI-compatible server) or "llm_class" (the Python class), which batch differently.
    An A100 counts as small whatever its memory.
    """
    if device_bytes >= 160 * GIB:
        return SchedulerDefaults(1024, 16384)
    if device_bytes >= 70 * GIB and "a100" not in device_name.lower():
        return SchedulerDefaults(1024, 8192 if usage == "server" else 16384)
    return SchedulerDefaults(256, 2048 if usage == "server" else 8192)
