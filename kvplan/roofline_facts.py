"""How much of a device's peak a step reaches: factors, each with its spread and the measurements it was read from.

The rows are those of `roofline_points`. A factor is read from the rows named and from no other; the others check it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.specs import GpuSpec

NODE_DEVICES = 8
"""Devices that share a fast link; more than these talk over the network."""
ROPE_DIM = 64
"""Elements of an MLA latent that carry positions and are no part of its value (DeepSeek-AI 2024, all models so far)."""
ONE_COLLECTIVE = frozenset({"falcon", "nemotron_h"})
"""Model types whose layers have one all-reduce under tensor parallelism: attention and the feed-forward network stand
side by side (Falcon), or are layers of their own (Nemotron-H). Others have two, one after each."""


@dataclass(frozen=True)
class Factor:
    """A number between its lowest and its highest reading, and where it was read."""

    value: float
    low: float
    high: float
    source: str


BANDWIDTH = Factor(0.70, 0.62, 0.76, "rows 1, 4, 5: gpt-fast on A100, bf16, tp 1 to 8; spread of rows 7 and 8")
"""Share of the peak bandwidth that reading the cache, and weights of 16 bits or in floats of 8 or 4, reaches."""
NARROW_BANDWIDTH = {
    "int8": Factor(0.58, 0.51, 0.65, "rows 2 and 6: gpt-fast on A100, weights unpacked by the kernel"),
    "int4": Factor(0.42, 0.36, 0.48, "rows 3 and 6: gpt-fast on A100, weights unpacked by the kernel"),
}
"""The same for reading weights that a kernel unpacks: what it saves in bytes it loses in part in work."""

COMPUTE_16 = Factor(0.67, 0.46, 0.67, "row 12: TensorRT-LLM 0.6 on A100, fp16, 2,048 tokens; spread to row 17")
COMPUTE_8 = Factor(0.39, 0.33, 0.39, "row 14: TensorRT-LLM 0.6 on H100, fp8, 2,048 tokens; spread to row 15")
COMPUTE_8_ADA = Factor(0.52, 0.52, 0.52, "row 16: TensorRT-LLM 0.6 on L40S, fp8, 2,048 tokens; the only one")
COMPUTE_4 = Factor(0.39, 0.33, 0.39, "row 14, fp8 on H100; no prefill in 4 bits was found")

LINK = Factor(0.70, 0.58, 0.86, "all-reduce profiles of microsoft/vidur, A100 and H100 DGX, tp 2 to 8, large messages")
"""Share of a link's one-direction peak that a ring all-reduce reaches."""
COLLECTIVE_S = {
    2: Factor(17e-6, 7e-6, 39e-6, "fitted to rows 1, 4 and 5: gpt-fast on A100 NVSwitch"),
    4: Factor(21e-6, 7e-6, 60e-6, "fitted to rows 1, 4 and 5: gpt-fast on A100 NVSwitch"),
    8: Factor(28e-6, 7e-6, 64e-6, "fitted to rows 1, 4 and 5: gpt-fast on A100 NVSwitch"),
}
"""Seconds an all-reduce takes however small it is, by the devices that take part; a tp between takes the next one's."""
ACROSS_NODES_S = Factor(
    280e-6, 190e-6, 380e-6, "microsoft/vidur, A100 across nodes, 270 to 460 us at 1 MB less its rate"
)
ACROSS_NODES_BYTES_PER_S = {8: 25e9, 9: 50e9, 10: 100e9}
"""Network rate of a device, one direction, by the major number of its compute capability (aiconfigurator)."""
OTHER_NETWORK_BYTES_PER_S = 25e9
STAGE_S = 10e-6
"""Seconds to hand a step's activations to the next pipeline stage, however few (aiconfigurator, p2p latency)."""

OVERHEAD_S = Factor(0.0, 0.0, 1e-3, "rows 1, 4 and 5 leave nothing over with CUDA graphs")
EAGER_OVERHEAD_S = Factor(10e-3, 5e-3, 20e-3, "kernel launches of a step without CUDA graphs, reported range")
"""Seconds of a step in which the device waits for the host."""

TYPICAL_STEP_S = 0.020
"""Seconds of a step where none can be estimated: a round number of the literature."""


@dataclass(frozen=True)
class Efficiency:
    """The factors of one plan. `weights` applies to the bytes of weights, `cache` to those of the cache, `compute` to
    the FLOP of matrices and `attention` to its own."""

    weights: Factor
    cache: Factor
    compute: Factor
    attention: Factor
    overhead_s: Factor


def efficiency(gpu: GpuSpec, weight_dtype: str, *, enforce_eager: bool) -> Efficiency:
    """The factors of a class of devices and a width of weights."""
    return Efficiency(
        weights=NARROW_BANDWIDTH.get(weight_dtype, BANDWIDTH),
        cache=BANDWIDTH,
        compute=_compute(gpu, weight_dtype),
        attention=COMPUTE_16,
        overhead_s=EAGER_OVERHEAD_S if enforce_eager else OVERHEAD_S,
    )


def math_rate(gpu: GpuSpec, weight_dtype: str) -> tuple[int, str] | None:
    """Peak FLOP/s of the multiplications that weights of a dtype take part in, and what these are called; weights that
    a device has no units for are unpacked to 16 bits. None where no rate of the device is known."""
    if weight_dtype == "nvfp4" and gpu.fp4_flop_per_s:
        return gpu.fp4_flop_per_s, "fp4"
    # mxfp4 weights meet fp8 activations, at the rate of fp8, on devices that have units for 4 bits.
    if gpu.fp8_flop_per_s and (weight_dtype == "fp8" or (weight_dtype == "mxfp4" and gpu.fp4_flop_per_s)):
        return gpu.fp8_flop_per_s, "fp8"
    rate = gpu.bf16_flop_per_s or gpu.fp16_flop_per_s
    return (rate, "bf16" if gpu.bf16_flop_per_s else "fp16") if rate else None


def collectives_per_layer(model_type: str | None) -> int:
    """All-reduces of a layer under tensor parallelism."""
    return 1 if model_type in ONE_COLLECTIVE else 2


def collective_s(gpu: GpuSpec, tp: int) -> tuple[float, float]:
    """Seconds of one all-reduce over tp devices: however small, and for each byte of it.

    A ring sends 2 (tp - 1) / tp of the message over each link.
    """
    if tp == 1:
        return 0.0, 0.0
    if tp > NODE_DEVICES:
        major = int((gpu.compute_capability or "0").partition(".")[0])
        latency, rate = ACROSS_NODES_S.value, ACROSS_NODES_BYTES_PER_S.get(major, OTHER_NETWORK_BYTES_PER_S)
    else:
        latency = next(factor.value for size, factor in COLLECTIVE_S.items() if tp <= size)
        rate = gpu.link_bytes_per_s or OTHER_NETWORK_BYTES_PER_S
    return latency, 2 * (tp - 1) / tp / (rate * LINK.value)


def _compute(gpu: GpuSpec, weight_dtype: str) -> Factor:
    rate = math_rate(gpu, weight_dtype)
    units = rate[1] if rate else "bf16"
    if units == "fp8":
        return COMPUTE_8_ADA if gpu.compute_capability == "8.9" else COMPUTE_8
    return COMPUTE_4 if units == "fp4" else COMPUTE_16
