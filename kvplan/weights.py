"""Parameters -> bytes of the weights as released, by the checkpoint's quantization_config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from math import ceil, prod
from typing import Any

from kvplan.specs import QuantizedDtype

Config = Mapping[str, Any]
WHOLE_TENSOR = 2**24
"""Weights that share a scale where no block is stated: so many that the scale does not count."""

BITS = 16
"""Of a weight that is not quantised, also where the file holds 32: engines load it in 16."""

PLAN_BITS = {
    "fp32": Fraction(32), "bf16": Fraction(16), "fp16": Fraction(16),
    "fp8": Fraction(8), "int8": Fraction(8), "int4": 4 + Fraction(16 + 4, 128),
    "nvfp4": 4 + Fraction(8, 16), "mxfp4": 4 + Fraction(8, 32),
}  # fmt: skip
"""Bits of a matrix element where a plan asks for a width; int4 with a scale and a zero point for 128 weights, as GPTQ
and AWQ checkpoints have, nvfp4 and mxfp4 with a byte of scale for 16 and for 32, 8 bits with scales too few to count.

Source: OCP Microscaling Formats 1.0 for mxfp4, NVIDIA's model optimiser for NVFP4.
"""

LEFT_OUT = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules")
"""The fields of a quantization_config that list what it spares."""


def weight_bytes(counts: Counter, quantisation: Any) -> tuple[int, bool]:
    """Bytes of the weights as released, and whether they are exact."""
    if not quantisation:
        return counts.total() * BITS // 8, True
    scheme = quantisation if isinstance(quantisation, Mapping) else {}
    shrunk = counts["experts"] + (0 if _experts_only(scheme) and counts["experts"] else counts["linear"])
    _, element_bits = quantized_format(scheme)
    bits = shrunk * element_bits + (counts.total() - shrunk) * BITS
    # Checkpoints of quant_method mxfp4 shrink the expert matrices and nothing else; others vary in what they spare.
    return ceil(bits / 8), scheme.get("quant_method") == "mxfp4"


def weight_bytes_at(dtype: str, parameters: int, unquantized: int) -> int:
    """Bytes of weights at a width: below 16 bits the embeddings, norms and routers stay in 16.

    Llama 3.3 70B in fp8 (RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic loads as 67.72 GiB):

    >>> round(weight_bytes_at("fp8", 70_553_706_496, 2_102_665_216) / 2**30, 2)
    67.67
    """
    kept = unquantized if is_quantised(dtype) else 0
    return ceil(((parameters - kept) * PLAN_BITS[dtype] + kept * BITS) / 8)


def is_quantised(dtype: str) -> bool:
    """Whether a width of a plan is below 16 bits, so that checkpoints spare embeddings, norms and routers."""
    return PLAN_BITS[dtype] < BITS


def _experts_only(scheme: Config) -> bool:
    """Whether all attention is spared, as in int4 and mxfp4 checkpoints that shrink routed experts alone."""
    lists = [scheme[name] for name in LEFT_OUT if isinstance(scheme.get(name), list)]
    spared = [entry for entries in lists for entry in entries if isinstance(entry, str)]
    whole_attention = any("self_attn" in entry and "*" in entry and "proj" not in entry for entry in spared)
    return whole_attention or "mxfp4" in _names(scheme)


def quantized_format(scheme: Config) -> tuple[QuantizedDtype | None, Fraction]:
    """The dtype of a quantised weight and its bits with its share of the scales; None and 16 where the scheme is not
    known.

    Source: the configurations of compressed-tensors, AWQ, GPTQ and bitsandbytes in transformers 5.24.0.

    >>> quantized_format({"quant_method": "gptq", "bits": 4, "group_size": 128})
    ('int4', Fraction(133, 32))
    """
    names = _names(scheme)
    for name in ("mxfp4", "nvfp4"):
        if name in names:
            return name, PLAN_BITS[name]
    if "bitsandbytes" in names:
        return ("int8", Fraction(8)) if scheme.get("load_in_8bit") else ("int4", 4 + Fraction(32, 64))
    if any(name in names for name in ("awq", "gptq", "auto-round")):
        width = _number(scheme, "bits", 4)
        scales = Fraction(16 + width, _number(scheme, "group_size", 128))  # a scale and a zero point
        return _whole_dtype(width), width + scales
    if "pack-quantized" in names:
        weights = _first_group(scheme)
        width = _number(weights, "num_bits", 4)
        return _whole_dtype(width), width + Fraction(16, _number(weights, "group_size", 32))
    if "fp8" in names or "float-quantized" in names or "int-quantized" in names:
        dtype = "int8" if "int-quantized" in names else "fp8"
        return dtype, 8 + Fraction(32, _block_elements(scheme))  # an fp32 scale for a block
    return None, Fraction(BITS)


def _whole_dtype(width: int) -> QuantizedDtype:
    """The dtype whose kernels serve whole numbers of a width."""
    return "int4" if width <= 4 else "int8"


def _names(scheme: Config) -> str:
    """What a scheme calls itself, in whichever fields."""
    return " ".join(str(scheme.get(name)) for name in ("quant_method", "quant_algo", "format")).lower()


def _first_group(scheme: Config) -> Config:
    """How the first group of a compressed-tensors scheme stores its weights."""
    groups = scheme.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    return weights if isinstance(weights, Mapping) else {}


def _block_elements(scheme: Config) -> int:
    """Weights that share a scale: a block where one is stated, else so many that the scale does not count."""
    block = scheme.get("weight_block_size")
    sides = [side for side in block if isinstance(side, int) and side > 0] if isinstance(block, list) else []
    return prod(sides) if sides else WHOLE_TENSOR


def _number(scheme: Config, name: str, default: int) -> int:
    """A field of a quantisation, or the default where it is missing or stands for "the whole channel" as -1 does."""
    value = scheme.get(name)
    return value if isinstance(value, int) and value > 0 else default
