"""The four numbers of each page: label, value with its unit, whose number it is, and what it counts and how."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.engine_facts import ENGINE_VERSION
from kvplan.pool import Runs
from kvplan.report import Report
from kvplan.units import binary, count, gib, gib_or_less, mean, percent, percent_exact, short_tokens


@dataclass(frozen=True)
class Metric:
    """`label` a noun of at most 18 characters, `whose` at most 28, `help` a line or two with the formula."""

    label: str
    value: str
    whose: str
    help: str


def ceiling(report: Report) -> list[Metric]:
    """Batch ceiling, pool, cache per token, and what on demand would hold (the smallest tp where nothing fits)."""
    return [_batch_ceiling(report), _pool(report), _cache_per_token(report), _on_demand_or_tp(report)]


def batching(report: Report) -> list[Metric]:
    """Static, exponential and continuous utilisation, and the gain."""
    found = report.batching
    batch = count(found.batch)
    return [
        Metric(
            "Static",
            percent_exact(found.static_utilisation),
            f"of slot-steps used at {batch}",
            "Share of slot-steps that yield a token when a batch runs until its longest answer is done: "
            "mean length over the expected longest of the batch, E[S] / E[max of B], from the workload's own lengths.",
        ),
        Metric(
            "Exponential",
            percent_exact(found.exponential_utilisation),
            f"1/H at batch {batch}",
            "The same if lengths were exponential: 1 / (1 + 1/2 + ... + 1/B), whatever their mean. A reference, "
            "not a forecast: real traces miss it in both directions.",
        ),
        Metric(
            "Continuous",
            percent_exact(found.continuous_utilisation),
            "while requests wait",
            "A finished answer is replaced at the next step, so as long as requests wait every slot works. "
            "Draining a fixed backlog uses less at its end.",
        ),
        Metric(
            "Gain",
            f"{found.gain:.2f}×",
            "tokens in the same steps",
            "Continuous over static utilisation: how many times the tokens come out of the same number of steps.",
        ),
    ]


def paging(report: Report) -> list[Metric]:
    """Waste per sequence and as a share, what contiguous reservation would waste, and the block."""
    found = report.paging
    return [
        Metric(
            "Wasted a sequence",
            f"{found.waste_tokens:,.1f} tokens",
            f"half a block is {(found.block_size - 1) / 2:,.1f}",
            "Slots of the last block that hold no token when a sequence completes, on average over the workload: "
            "block × ceil(tokens / block) − tokens. About (block − 1)/2 for sequences long against the block.",
        ),
        Metric(
            "Share of booked",
            percent_exact(found.waste_share),
            f"{binary(found.waste_bytes)} on each device",
            "Wasted slots over all slots booked, at completion.",
        ),
        Metric(
            "Contiguous waste",
            percent_exact(found.contiguous_waste_share),
            f"{mean(found.contiguous_waste_tokens)} tokens a sequence",
            "What would be wasted if every request reserved the whole context in one piece: "
            "(context − tokens) / context, lengths cut to the context.",
        ),
        Metric(
            "Block",
            f"{count(found.block_size)} token{'' if found.block_size == 1 else 's'}",
            f"{binary(report.engine.bytes_per_block)} a device",
            f"Tokens in one block of the cache, and what a block takes on one device over all its layers. "
            f"{ENGINE_VERSION} uses 16 for ordinary attention unless told otherwise.",
        ),
    ]


def pool(report: Report, runs: Runs) -> list[Metric]:
    """How many requests each policy runs, how many are preempted, and how fast the pool fills."""
    reserve, on_demand = runs.reserve, runs.on_demand
    moment = next(iter(runs.moments.values()), None)
    completed = max(1, on_demand.outcome.completed)
    running = 0 if moment is None else moment.tokens.size
    out = "never runs out" if moment is None or moment.steps_left is None else _in_steps(moment.steps_left)
    return [
        Metric(
            "On demand runs",
            count(on_demand.outcome.running_before_drain),
            f"on average, at most {count(on_demand.outcome.peak_running)}",
            "Requests of this workload that run at once, when each books only what it has written and grows block by "
            "block; the mean over the steps before the last is admitted. The closed form on the Ceiling page gives "
            f"{count(report.capacity.on_demand_running)}.",
        ),
        Metric(
            "Reserve runs",
            count(reserve.outcome.running_before_drain),
            f"on average, at most {count(reserve.outcome.peak_running)}",
            "The same if each request books its declared maximum with its admission: min(context, prompt + "
            f"max_tokens), max_tokens {count(reserve.outcome.max_tokens)}. With prompts that fill the context it is "
            f"the batch ceiling, {count(report.capacity.batch_ceiling)}.",
        ),
        Metric(
            "Preempted",
            percent_exact(on_demand.outcome.preempted_requests / completed),
            f"{count(on_demand.outcome.wasted_tokens)} tokens recomputed",
            "Requests that lost their cache at least once, on demand, as a share of all; and the tokens that were "
            "computed a second time for it. The youngest goes first. Reserving never preempts.",
        ),
        Metric(
            "Growth",
            f"{binary(running * report.cache.bytes_per_token)}/step",
            out,
            f"What {count(running)} running requests add to each device in a step: a token each, "
            f"{binary(report.cache.bytes_per_token)}. If none ended, the pool would run out after so many steps.",
        ),
    ]


def _in_steps(steps: int) -> str:
    return f"full in {count(steps)} step{'' if steps == 1 else 's'}"


def _batch_ceiling(report: Report) -> Metric:
    capacity, context = report.capacity, short_tokens(report.plan.context)
    if report.engine.refused:
        whose = "the engine would not start"
    elif report.memory.pool_bytes == 0:
        whose = "no room for a cache"
    elif not report.engine.fits:
        whose = f"one needs {gib_or_less(report.engine.needed_bytes)}"
    elif report.memory.left_free_bytes < 0:
        whose = "more than the device holds"
    elif capacity.memory_quotient < 1000:
        whose = f"{capacity.memory_quotient:,.2f} by memory, at {context}"
    else:
        whose = f"{count(capacity.memory_ceiling)} by memory, at {context}"
    return Metric(
        "Batch ceiling",
        count(capacity.batch_ceiling),
        whose,
        "Sequences that run at once if each reserves the whole context: the smallest of what memory holds "
        f"(blocks // blocks per request), max_num_seqs ({count(capacity.max_num_seqs)}) and a tenant's quota; "
        "0 where the engine's start-up check fails.",
    )


def _pool(report: Report) -> Metric:
    memory = report.memory
    explanation = (
        "Memory of one device left for the KV cache: total × utilization − weights − activations − non-torch memory − "
        f"CUDA graphs − allocator overhead; {percent(memory.pool_bytes / memory.total_bytes)} of the device. What "
        "start-up takes is an estimate unless set: nine in ten pools of public start-up logs lie within the band."
    )
    if report.plan.kv_cache_memory_bytes is not None:
        explanation = "Memory of one device for the KV cache, as given in bytes; nothing is derived from the device."
    elif memory.pool_bytes == 0:
        whose = f"short by {gib(memory.shortfall_bytes)} a device"
        return Metric("KV pool", "none", whose, explanation)
    whose = f"per device, {percent(memory.pool_bytes / memory.total_bytes)} of {gib(memory.total_bytes)}"
    if memory.pool_band_bytes:
        whose = f"per device, ± {gib(memory.pool_band_bytes)}"
    return Metric("KV pool", gib_or_less(memory.pool_bytes, 1), whose, explanation)


def _cache_per_token(report: Report) -> Metric:
    cache = report.cache
    whose = "growing part" if cache.request_bytes_fixed else "per device"
    return Metric(
        "Cache per token",
        binary(cache.bytes_per_token),
        f"{whose}, {binary(cache.bytes_per_token_total)} in all",
        "Bytes that one token of one sequence adds for good: layers × KV heads × (key + value width) × bytes an "
        "element, MLA's latent vectors and index keys alike; windows and states add none. On a device of the fullest "
        "stage; in all: over every device, copies of replicated heads included.",
    )


def _on_demand_or_tp(report: Report) -> Metric:
    capacity = report.capacity
    if not report.engine.fits:
        if report.plan.kv_cache_memory_bytes is not None:
            whose = "with the pool as given"
        else:
            whose = "set it in the sidebar" if capacity.min_tp else "no tp is enough"
        return Metric(
            "Smallest tp",
            str(capacity.min_tp or "none"),
            whose,
            "The smallest tensor-parallel degree of 1, 2, 4, ... that divides the attention heads and at which one "
            "request of the context starts.",
        )
    return Metric(
        "On demand",
        count(capacity.on_demand_ceiling),
        "on average, by memory",
        "Sequences that fit on average if each holds only what it has written so far: blocks over the mean a running "
        f"request holds ({mean(capacity.resident_mean_tokens)} tokens) plus half a block. A mean, not a guarantee: "
        "when the pool runs out, somebody is preempted.",
    )
