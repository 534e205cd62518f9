"""Accuracy as a document: the words around the tables, as Markdown. `docs/accuracy.md` is what it writes."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan import accuracy, startup_facts
from kvplan.accuracy import PoolError
from kvplan.catalog import library
from kvplan.engine_facts import ENGINE_VERSION
from kvplan.units import count, percent

SUPPORT = (
    (
        "max_num_batched_tokens, max_num_seqs",
        "Modelled. The peak holds the logits of all sequences, or the widest layer of all tokens, whichever is larger; "
        "the same constants fit 2,048 to 32,768 tokens and 256 to 1,024 sequences, on devices of 12 to 179 GiB.",
    ),
    (
        "Encoders of images",
        f"A constant of {startup_facts.ENCODER_GIB} GiB, read from five models at their usual limits. Profiling video "
        "or many images is not modelled: Qwen2.5-VL 3B on an A100 40GB kept 5.26 GiB by default and 25.05 GiB without "
        "video (vllm#25631), Qwen2.5-VL 7B doubled its peak with video, InternVL3 78B took 15.7 GiB, Llama 3.2 11B "
        "Vision 36.6 GiB. Set activation_gib.",
    ),
    (
        "LoRA",
        "Not modelled. The public figures have no pair of starts with and without adapters; where LoRA was on, its "
        "buffers stood in the weights and the peak followed the rule. Set weights_gib.",
    ),
    (
        "Unified memory, other processes",
        "Not modelled. On GB10 and Jetson what lies outside PyTorch ran from below 0 to 8.3 GiB from one start to the "
        "next; give the pool in bytes there.",
    ),
    (
        "Draft models, KV connectors",
        "Their weights, graphs and buffers are not modelled. MTP layers of a checkpoint are loaded with "
        "spec_method=mtp.",
    ),
    (
        "AMD, Intel, Gaudi, TPU, Apple",
        "Estimated as a CUDA device would be; no start-up on them states enough.",
    ),
    (
        "CUDA graphs",
        "What the engine expects, not what it takes: estimate and measurement differ by half in both directions "
        "(GLM-5.2 on four GB200: 4.99 GiB expected, 1.8 here).",
    ),
)
"""What the estimate covers, and where the public figures do not carry it."""


def opening() -> str:
    """The result in two sentences."""
    every = accuracy.pool_errors()
    proven = accuracy.summary(found for found in every if not found.start.in_sample)
    figures = accuracy.figures()
    agreeing = sum(figure.agrees for figure in figures)
    return (
        f"On {proven.number} public start-ups of which no constant was read, the pool predicted from scratch misses "
        f"the posted one by **{percent(proven.median)}** of the device's memory in the median, and by at most 5% in "
        f"**{percent(proven.within_near)}** of them. From the posted pool, **{agreeing} of {len(figures)}** posted "
        "figures (tokens, blocks, concurrency, needed memory, suggested length) follow within their own rounding; the "
        "others are explained one by one."
    )


def summary_table() -> list[dict]:
    """How near the predicted pools come, in-sample and out-of-sample apart."""
    every = accuracy.pool_errors()
    return [
        _summary_row("Out of sample: no constant was read from them", [e for e in every if not e.start.in_sample]),
        _summary_row("In sample: a constant was read from them", [e for e in every if e.start.in_sample]),
    ]


def constants_table() -> list[dict]:
    """The constants of each release, and from which start-ups each was read."""
    return [
        {
            "vLLM from": "V0" if row.profiles_context else ".".join(map(str, row.since)),
            "Utilization": row.utilization,
            "Sampling, bytes a logit": row.sampler_bytes,
            "Workspace of experts kept": "yes" if row.keeps_expert_workspace else "no",
            "Non-torch, GiB": row.non_torch_gib,
            "Non-torch with tp, GiB": row.non_torch_parallel_gib,
            "Graphs off the pool": "yes" if row.subtracts_graphs else "no",
        }
        for row in startup_facts.RELEASES
    ]


def support_table() -> list[dict]:
    """What the estimate covers, and where the public figures do not carry it."""
    return [{"What": what, "How far": how} for what, how in SUPPORT]


def parameter_table() -> list[dict]:
    """Models whose published count is another than the one counted here, and why."""
    rows = []
    for spec in library("model").specs.values():
        _, found, published = spec.sources["parameters"].text.partition("published as ")
        if found:
            number, _, why = published.partition(":")
            rows.append(
                {
                    "Model": spec.name,
                    "Counted": count(spec.parameters),
                    "Published": number,
                    "Why": why.strip() or "not known",
                }
            )
    return rows


def document() -> str:
    """The whole page as Markdown."""
    sections = [
        "# Accuracy\n\nWritten by `python -m kvplan accuracy`; a test holds it to what the code computes.",
        opening(),
        table(summary_table()),
        "Errors are shares of one device's memory: 1% of an H100 is 0.8 GiB. A start-up predicts a pool where its log "
        "states model, device, tp and utilization (or a version with a known default).",
        "## How the pool is estimated",
        "Pool = total × utilization − weights − activation peak − non-torch memory − CUDA graphs. Total is what the "
        f"driver reports, weights are counted. The activation peak is {startup_facts.HIDDEN_STATES} × tokens × hidden "
        "size × 2 bytes, and above it the larger of sampling (bytes a logit × sequences × vocabulary) and the widest "
        f"layer ({startup_facts.FORWARD_WIDTHS} × (hidden + intermediate / tp) × tokens × 2 bytes); routed experts add "
        "their two buffers. Tokens and sequences are the scheduler's limits. Graphs: "
        f"{startup_facts.GRAPH_BASE_GIB} GiB, {startup_facts.GRAPH_LAYER_GIB} GiB a layer at all "
        f"{startup_facts.ALL_GRAPHS} sizes, and {startup_facts.GRAPH_EXPERTS_GIB} GiB with experts.",
        table(constants_table()),
        "SGLang: pool = (total − non-torch memory) × `mem_fraction_static` − weights; activations and graphs live in "
        "the rest.",
        "## What the public figures carry, and what they do not",
        table(support_table()),
        "## Pools: predicted from scratch, beside posted",
        f"The largest misses first. The band shown in the app, ± {percent(startup_facts.POOL_BAND)} of the device, "
        "holds nine in ten of them.",
        table(accuracy.pool_table()),
        "## Figures that should follow from the posted pool",
        f"Blocks and tokens by the rules of {ENGINE_VERSION}, at both ends of the pool's rounding; for engines before "
        "spring 2026 their older token line. Those that do not follow come first.",
        table(accuracy.figure_table()),
        "## Weights as loaded",
        "Start-ups whose weights differ by 1% or more from what is counted for their plan, per device: encoders that "
        "a count leaves out, padding of kernels, embeddings that one stage of a pipeline holds, draft models.",
        table(accuracy.weight_table()),
        "## Parameters: counted and published",
        "Where a published count is another than that of the text model, and why.",
        table(parameter_table()),
    ]
    return "\n\n".join(sections) + "\n"


def _summary_row(name: str, errors: Iterable[PoolError]) -> dict:
    found = accuracy.summary(errors)
    return {
        "Start-ups": name,
        "Number": found.number,
        "Median error": percent(found.median),
        "Within 2%": percent(found.within_close),
        "Within 5%": percent(found.within_near),
    }


def table(rows: list[dict]) -> str:
    """Rows as a Markdown table."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value) -> str:
    return str(value).replace("|", "\\|")
