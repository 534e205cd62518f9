"""The pool as a subtraction: what takes of a device's memory before any cache, line by line, and how each is known."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.report import Report
from kvplan.units import GIB, gib


class Line(NamedTuple):
    """One line: a part of one device, its bytes (negative where it is taken away), and how that is known."""

    part: str
    size_bytes: int
    known: str


def pool_ledger(report: Report) -> list[Line]:
    """From the device's total to its pool, in the order in which the engine subtracts. The lines but the last add up to
    it, unless the pool is given or weights and the rest leave none."""
    if report.plan.kv_cache_memory_bytes is not None:
        return [Line("KV pool", report.memory.pool_bytes, "given in bytes; nothing is derived")]
    lines = _static_lines(report) if report.plan.mem_fraction_static is not None else _engine_lines(report)
    return [*lines, _pool(report)]


def table(lines: list[Line]) -> list[dict]:
    """The same as rows of a table, in GiB of one device."""
    return [{"Part": line.part, "GiB/device": line.size_bytes / GIB, "How it is known": line.known} for line in lines]


def _engine_lines(report: Report) -> list[Line]:
    """vLLM: total × utilization, less everything else."""
    memory, utilization = report.memory, report.setting.utilization
    usable = memory.total_bytes - memory.left_free_bytes
    if memory.shortfall_bytes:
        usable = memory.fixed_bytes - memory.shortfall_bytes
    return [
        Line("Device total", memory.total_bytes, _known(report, "total_bytes")),
        Line(f"Left free at utilization {utilization:g}", usable - memory.total_bytes, "set by utilization"),
        Line("Weights", -memory.weight_bytes, _known(report, "weight_bytes")),
        Line("Activation peak", -memory.activation_bytes, _known(report, "activation_bytes")),
        *_workspace_lines(report),
        *_overhead_lines(report),
    ]


def _static_lines(report: Report) -> list[Line]:
    """SGLang: a share of what is free before loading, less the weights; activations and graphs come out of the rest."""
    memory, fraction = report.memory, report.plan.mem_fraction_static
    non_torch = report.setting.startup.outside_bytes
    free = memory.total_bytes - non_torch
    return [
        Line("Device total", memory.total_bytes, _known(report, "total_bytes")),
        Line("Non-torch memory", -non_torch, _known(report, "workspace_bytes")),
        Line(f"Left to activations and graphs at {fraction:g}", int(free * fraction) - free, "set"),
        Line("Weights", -memory.weight_bytes, _known(report, "weight_bytes")),
        *_overhead_lines(report),
    ]


def _workspace_lines(report: Report) -> list[Line]:
    memory, known = report.memory, _known(report, "workspace_bytes")
    if memory.non_torch_bytes is None:
        return [Line("Non-torch memory and CUDA graphs", -memory.workspace_bytes, known)]
    return [
        Line("Non-torch memory", -memory.non_torch_bytes, known),
        Line("CUDA graphs", -memory.cuda_graph_bytes, known if memory.cuda_graph_bytes else "not off the pool"),
    ]


def _overhead_lines(report: Report) -> list[Line]:
    overhead_bytes = report.memory.overhead_bytes
    return [Line("Allocator overhead", -overhead_bytes, "set")] if overhead_bytes else []


def _pool(report: Report) -> Line:
    memory = report.memory
    if not memory.pool_bytes:
        return Line("KV pool", 0, f"{gib(memory.shortfall_bytes)} are missing")
    if not memory.pool_band_bytes:
        return Line("KV pool", memory.pool_bytes, "what is left")
    return Line("KV pool", memory.pool_bytes, f"what is left; estimate, ± {gib(memory.pool_band_bytes)} in nine of ten")


def _known(report: Report, name: str) -> str:
    return report.sources[name].trust
