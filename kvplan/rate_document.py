"""The step time as a document: formulas, factors, and every published point. `docs/throughput.md` is what it writes."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan import rate_accuracy, roofline_facts
from kvplan.accuracy_document import table
from kvplan.roofline_facts import Factor
from kvplan.units import percent

FORMULAS = """\
A step takes `n` tokens of prompts and one token of each of `B` decoding sequences through all layers. Its kernels are
of two kinds that take turns, and within each reading and computing overlap:

    step      = max(weights read / bandwidth, FLOP of matrices / peak)
              + max(cache read / bandwidth, FLOP of attention / peak in 16 bits)
              + all-reduces + host

- **Weights read**: every parameter but an input embedding that is only looked up, once a step. Of routed experts the
  part that `T` tokens touch under even routing, 1 - (1 - k/E)^T.
- **Cache read**: of each sequence what its layers attend to: all tokens, at most a window, or at most the top-k of an
  indexer, whose own keys are read whole. States are read and written. KV heads are divided by tp while there are any,
  a latent of MLA is not.
- **FLOP of matrices**: 2 for each parameter a token passes (k of E experts); of the head only for tokens that yield
  one.
- **FLOP of attention**: 2 for each element of a key and a value of each query head, for each token attended to. A
  decoding MLA layer works on its latent, a prefill on the keys and values it unpacks.
- **All-reduces**: two a layer with tp, one in Falcon and Nemotron-H, each a latency and 2 (p - 1) / p of the message
  over the link.
- **Pipeline stages** follow each other for a token, and work on as many parts of the batch at a time.

The longer of reading and computing counts within each kind of kernel and not over the whole step: a step of a large
batch both computes in its matrices and reads its caches, one after the other. One maximum over both would make
some of the saturated rates below twice the published ones; those points were in view when this form was chosen.

**Speculation** tries k tokens more for each sequence: their FLOP and the draft's reading are counted, and (1 - a^(k +
1)) / (1 - a) tokens come out for an acceptance rate a. **Prefix hits** leave fewer prompt tokens to compute.

In a **steady state** with B requests in the system, each that ends is followed by another, whose prompt is computed
in a step of the others. Little's law gives the rate, B / W, with W = time to the first token + (output - 1) x time
between tokens.
"""
LIMITS = """\
Not modelled: kernels of linear attention beyond their matrices, the selection inside an indexer, uneven routing of
experts, all-to-all of expert parallelism, data-parallel attention, quantising of activations, image encoders, and the
host's time for sampling and scheduling beyond one constant. Layers of Gemma-3n and
Gemma 4 E2B and E4B that share a cache count as reading none.
"""


def opening() -> str:
    """How near the predictions come, in one sentence for each kind of point."""
    return " ".join(_sentence(quantity) for quantity in rate_accuracy.NAMES)


def factor_table() -> list[dict]:
    """Every factor with its spread and where it was read."""
    return [
        {
            "Factor": name,
            "Value": _value(factor.value),
            "From": _value(factor.low),
            "To": _value(factor.high),
            "Read from": factor.source,
        }
        for name, factor in _factors()
    ]


def document() -> str:
    """The whole page as Markdown."""
    sections = [
        "# Step time, throughput and latency\n\nWritten by `python -m kvplan accuracy --rates`; a test holds it to "
        "what the code computes.",
        opening(),
        "## How a step is timed",
        FORMULAS.strip(),
        "## Factors",
        "Shares of the peaks, and seconds. A plan's `bandwidth_efficiency`, `compute_efficiency` and `step_overhead_s` "
        "take their place.",
        table(factor_table()),
        "## Published points",
        "Predicted with the default factors. In sample: a factor was read from the point; no factor was fitted to the "
        "others. Decode and prefill count as met within 25%, saturated throughput within a factor of 2.",
        table(rate_accuracy.table()),
        "## Limits",
        LIMITS.strip(),
    ]
    return "\n\n".join(sections) + "\n"


def _sentence(quantity: str) -> str:
    name = rate_accuracy.NAMES[quantity]
    found = [e for e in rate_accuracy.errors() if e.point.quantity == quantity and not e.point.calibrates]
    met = [error for error in found if not error.misses]
    worst = max(abs(error.ratio - 1) for error in met)
    return (
        f"{name}: **{len(met)} of {len(found)}** points no factor was read from are met, the farthest of these is "
        f"{percent(worst)} off."
    )


def _factors() -> Iterator[tuple[str, Factor]]:
    facts = roofline_facts
    yield "Bandwidth: cache, weights in 16 bits, fp8, nvfp4, mxfp4", facts.BANDWIDTH
    for dtype, factor in facts.NARROW_BANDWIDTH.items():
        yield f"Bandwidth: weights in {dtype}", factor
    yield "FLOP/s in 16 bits", facts.COMPUTE_16
    yield "FLOP/s in fp8", facts.COMPUTE_8
    yield "FLOP/s in fp8 on Ada", facts.COMPUTE_8_ADA
    yield "FLOP/s in fp4", facts.COMPUTE_4
    yield "Link, large messages", facts.LINK
    for devices, factor in facts.COLLECTIVE_S.items():
        yield f"All-reduce over {devices}, s", factor
    yield "All-reduce across nodes, s", facts.ACROSS_NODES_S
    yield "Host, s a step", facts.OVERHEAD_S
    yield "Host without CUDA graphs, s a step", facts.EAGER_OVERHEAD_S


def _value(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") or "0"
