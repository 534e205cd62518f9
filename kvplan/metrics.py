"""The four numbers of each page: label, value with its unit, whose number it is, and what it counts and how."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.engine_facts import ENGINE_VERSION
from kvplan.pool import Runs
from kvplan.report import Report
from kvplan.token_terms import token_terms
from kvplan.units import binary, count, gib, gib_or_less, mean, percent, percent_exact, short_tokens


@dataclass(frozen=True)
class Metric:
    """`label` a noun of at most 18 characters, `whose` at most 28, `help` a line or two with the formula. `unit`: of a
    bare number that stands where its page does not say what is counted."""

    label: str
    value: str
    whose: str
    help: str
    unit: str = ""


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
            "Share of slot-steps that make a token if a batch runs until its longest answer is done: E[S] / E[max of "
            f"B], mean tokens of an answer over mean tokens of the longest of B = {batch}.",
        ),
        Metric(
            "Exponential",
            percent_exact(found.exponential_utilisation),
            f"1/H at batch {batch}",
            f"The same if lengths were exponential: 1 / (1 + 1/2 + ... + 1/B), B = {batch}, whatever their mean. A "
            "reference, no forecast: real traces miss it in both directions.",
        ),
        Metric(
            "Continuous",
            percent_exact(found.continuous_utilisation),
            "while requests wait",
            "Share of slot-steps that make a token, if a finished answer is replaced at the next step: every slot "
            "works as long as requests wait. Draining a fixed backlog uses less at its end.",
        ),
        Metric(
            "Gain",
            f"{found.gain:.2f}×",
            "tokens in the same steps",
            "Times the tokens that come out of the same number of steps: continuous share / static share.",
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
            "Slots of the last block that hold no token when a sequence completes, in tokens, the mean over the "
            "workload of block × ceil(tokens / block) − tokens. About (block − 1) / 2 for sequences long against the "
            "block.",
        ),
        Metric(
            "Share of booked",
            percent_exact(found.waste_share),
            f"{binary(found.waste_bytes)} on each device",
            "Share of the slots booked that hold no token at completion: wasted / (wasted + held), with means of "
            f"{found.waste_tokens:,.1f} and {found.mean_tokens:,.1f} tokens.",
        ),
        Metric(
            "Contiguous waste",
            percent_exact(found.contiguous_waste_share),
            f"{mean(found.contiguous_waste_tokens)} tokens a sequence",
            "Share that would be wasted if every request reserved the whole context in one piece: (context − tokens) / "
            f"context, with a mean of {found.mean_tokens:,.1f} tokens, lengths cut to the context.",
        ),
        Metric(
            "Block",
            f"{count(found.block_size)} token{'' if found.block_size == 1 else 's'}",
            f"{binary(report.engine.bytes_per_block)} a device",
            "Tokens in one block of the cache, and bytes of a block on one device over the layers of a table. "
            f"{ENGINE_VERSION} uses 16 tokens for ordinary attention unless told otherwise.",
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
            "Requests of this workload that run at once, if each books ceil(tokens written / block) blocks: the mean "
            "over the steps before the last is admitted. The closed form of the Ceiling page gives "
            f"{count(report.capacity.on_demand_running)}.",
            "requests",
        ),
        Metric(
            "Reserve runs",
            count(reserve.outcome.running_before_drain),
            f"on average, at most {count(reserve.outcome.peak_running)}",
            "The same if each request books its declared maximum at its admission: min(context, prompt + max_tokens) "
            f"tokens, max_tokens {count(reserve.outcome.max_tokens)}. With prompts that fill the context it is the "
            f"batch ceiling, {count(report.capacity.batch_ceiling)}.",
            "requests",
        ),
        Metric(
            "Preempted",
            percent_exact(on_demand.outcome.preempted_requests / completed),
            f"{count(on_demand.outcome.wasted_tokens)} tokens recomputed",
            "Share of requests that lost their cache at least once, on demand: preempted / completed; and tokens "
            "computed again for it. The youngest goes first. Reserving never preempts.",
        ),
        Metric(
            "Growth",
            f"{binary(running * report.cache.bytes_per_token)}/step",
            out,
            f"Bytes that the running requests add to each device in a step: running × cache per token, "
            f"{count(running)} × {binary(report.cache.bytes_per_token)}. If none ended, the pool would run out after "
            "so many steps.",
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
        "Sequences that run at once if each reserves the whole context: min(blocks // blocks a request, max_num_seqs, "
        f"quota), with max_num_seqs {count(capacity.max_num_seqs)}; blocks of a shared prefix count once. 0 where the "
        "start-up check fails.",
        "sequences",
    )


def _pool(report: Report) -> Metric:
    memory, explanation = report.memory, _pool_help(report)
    if report.plan.kv_cache_memory_bytes is None and memory.pool_bytes == 0:
        whose = f"short by {gib(memory.shortfall_bytes)} a device"
        return Metric("KV pool", "none", whose, explanation)
    whose = f"per device, {percent(memory.pool_bytes / memory.total_bytes)} of {gib(memory.total_bytes)}"
    if memory.pool_band_bytes:
        whose = f"per device, ± {gib(memory.pool_band_bytes)}"
    return Metric("KV pool", gib_or_less(memory.pool_bytes, 1), whose, explanation)


def _pool_help(report: Report) -> str:
    """The subtraction of vLLM, that of SGLang, or none where the pool is given."""
    if report.plan.kv_cache_memory_bytes is not None:
        return "Memory of one device for the KV cache, as given in bytes; nothing is derived from the device."
    if report.plan.mem_fraction_static is not None:
        taken = "(total − non-torch) × mem_fraction_static − weights"
    else:
        taken = "total × utilization − weights − activations − non-torch − CUDA graphs"
    return (
        f"GiB of one device for the KV cache: {taken} − allocator overhead. Start-up is an estimate unless set: nine "
        "in ten pools of public logs lie within the band."
    )


def _cache_per_token(report: Report) -> Metric:
    cache = report.cache
    whose = "growing part" if cache.request_bytes_fixed else "per device"
    return Metric(
        "Cache per token",
        binary(cache.bytes_per_token),
        f"{whose}, {binary(cache.bytes_per_token_total)} in all",
        f"Bytes that one token adds for good on a device of the fullest stage{_spelt_out(report)}; windows and states "
        "add none. In all: over every device.",
    )


def _spelt_out(report: Report) -> str:
    """The factors of a token's bytes, where any layer grows."""
    terms = token_terms(report.setting) if report.is_served else ()
    return f": {' + '.join(term.factors for term in terms)}" if terms else ""


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
            "The smallest tensor-parallel size of 1, 2, 4, ... devices that divides the attention heads and at which "
            "one request of the context starts.",
        )
    return Metric(
        "On demand",
        count(capacity.on_demand_ceiling),
        "on average, by memory",
        "Sequences that fit on average if each books only what it has written: blocks / (tokens / block + 1/2) for "
        f"layers that grow, with {mean(capacity.resident_mean_tokens)} tokens on average. No guarantee: when the pool "
        "runs out, somebody is preempted.",
        "sequences",
    )
