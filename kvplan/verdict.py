"""The answer in one sentence: what a page opens with and the command line prints first.

Sentences carry `**bold**` around the decisive words; `plain` takes it off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from kvplan.allocation import PAGED, Compared, in_turn
from kvplan.backlog import MOST_SLOTS, Backlog
from kvplan.lifecycle import Lifecycle, forward_tokens
from kvplan.moments import Moment
from kvplan.plan import MAX_PARALLEL
from kvplan.pool import Runs
from kvplan.report import Report
from kvplan.units import binary, count, duration, gib, gib_or_less, mean, percent

if TYPE_CHECKING:
    from kvplan.log_comparison import Comparison

Tone = Literal["memory", "limit", "workload"]
SPACE = "\N{NO-BREAK SPACE}"
BINDING = {
    "memory": "memory binds",
    "tenant_quota": "quota binds",
    "max_num_seqs": "max_num_seqs binds",
    "does_not_fit": "does not fit",
}
LIMITS = {
    "memory": "memory",
    "tenant_quota": "quota",
    "max_num_seqs": "max_num_seqs",
    "does_not_fit": "does not fit",
}
"""What binds, as a table names it."""
HALF_BLOCK_ENOUGH = 0.05
"""A share by which the half-block rule may miss before it is worth a sentence."""
EXPONENTIAL_ENOUGH = 0.02
"""A share by which 1/H_B may miss before it is worth a sentence."""
ENGINE_NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "llama.cpp": "llama.cpp",
    "lmdeploy": "LMDeploy",
    "vllm.rs": "vllm.rs",
}


@dataclass(frozen=True)
class Verdict:
    """One sentence, a badge that names what binds (its tone: "memory", "limit" or "workload"), and the reason."""

    sentence: str
    badge: str
    tone: Tone
    reason: str


def ceiling(report: Report) -> Verdict:
    """How many sequences of the context fit, or why none does."""
    binding = report.capacity.binding
    return Verdict(
        sentence=_ceiling_sentence(report),
        badge=_badge(report),
        tone="memory" if binding == "memory" and not _over_device(report) else "limit",
        reason=_ceiling_reason(report),
    )


def batching(report: Report) -> Verdict:
    """What static batches leave idle on this workload."""
    found = report.batching
    if not report.engine.fits:
        return ceiling(report)
    idle = 1 - found.static_utilisation
    if found.batch == 1:
        sentence = "A batch of **1** leaves no slot idle"
    elif idle < 1e-9:
        sentence = f"Static batches of {count(found.batch)} leave **no slot** idle, as all answers are equally long"
    else:
        sentence = (
            f"Static batches of {count(found.batch)} leave **{percent(idle)}** of the slots idle; "
            f"continuous does **{found.gain:.1f}×** the work"
        )
    reason = "A batch lasts as long as its longest answer; continuous refills a slot at the next step."
    return Verdict(sentence, workload_name(report), "workload", reason)


def pool(report: Report, runs: Runs) -> Verdict:
    """How many requests each policy runs, and whether the pool runs out."""
    reserve, on_demand = runs.reserve, runs.on_demand
    found = on_demand.outcome
    if not found.completed:
        sentence = f"**Not one** of these requests runs; every prompt has {count(report.plan.context)} tokens or more"
        return Verdict(sentence, "all rejected", "limit", "A request needs room for its prompt and a token.")
    if found.preemptions:
        share = percent(found.preempted_requests / found.completed)
        then = f"the pool runs out at step {count(int(found.preempted_at[0]))} and **{share}** are preempted"
    else:
        then = "the pool never runs out"
    return Verdict(
        sentence=f"On demand runs **{count(on_demand.outcome.running_before_drain)}** requests at once, "
        f"reserve **{count(reserve.outcome.running_before_drain)}**; {then}",
        badge="pool runs out" if found.preemptions else workload_name(report),
        tone="memory" if found.preemptions else "workload",
        reason=f"{count(runs.number)} requests, {runs.came}, on {count(found.num_blocks)} blocks and "
        f"{count(found.slots)} slots; reserve books the prompt and {count(found.max_tokens)} tokens of each.",
    )


def cut(report: Report, runs: Runs) -> str:
    """How many requests cannot run, or not to their end; empty where all can."""
    found, context = runs.on_demand.outcome, count(report.plan.context)
    rejected = f"{count(found.rejected)} requests with prompts of {context} tokens or more are rejected"
    truncated = f"{count(found.truncated)} outputs are cut at the context or max_tokens"
    return "; ".join(words for number, words in ((found.rejected, rejected), (found.truncated, truncated)) if number)


def growth(report: Report, moment: Moment) -> str:
    """How the requests of a moment fill the pool."""
    number, each = moment.tokens.size, report.cache.bytes_per_token
    size = report.engine.bytes_per_block
    ends = {None: "they never fill it", 1: "the next step would need more"}
    then = ends.get(moment.steps_left, f"if none ended, step {count(moment.steps_left or 0)} from then would need more")
    return (
        f"Step {count(moment.step)}: {count(number)} requests hold {count(int(moment.tokens.sum()))} tokens and add "
        f"{count(number)} × {binary(each)} = {binary(number * each)} a step. Free are {_blocks(moment.free_blocks)}, "
        f"{gib_or_less(moment.free_blocks * size)} a device; {then}"
    )


def stages(report: Report, life: Lifecycle) -> dict[str, str]:
    """The four stages of a request's life, each in a few words."""
    first, last, each = int(life.held_bytes[0]), int(life.held_bytes[-1]), report.cache.bytes_per_token
    return {
        "1 Allocate": f"{_blocks(life.first_blocks)} with its admission; reserve {count(life.reserved_blocks)}",
        "2 Fill": f"{gib_or_less(first)} with the prompt at once, then {binary(each)} with each token",
        "3 Use": f"every step reads all it holds: {gib_or_less(life.read_bytes)} over {count(life.output)} steps",
        "4 Release": f"{_blocks(life.last_blocks)}, {gib_or_less(last)} held, free again in the step after its last",
    }


def cache_saves(life: Lifecycle) -> str:
    """What runs through the model with and without a cache."""
    without, cached = forward_tokens(life.prompt, life.output)
    if life.output == 1:
        return "A single token of output needs no cache: its prompt runs once either way"
    return (
        f"Without a cache each of {count(life.output)} steps would run all tokens before it again: {count(without)} in "
        f"all, {count(without / cached)} times the {count(cached)} that run with it"
    )


def backlog(found: Backlog) -> str:
    """What the slots of a backlog show: how it was made, how long both runs take, and what that is in requests."""
    runs = [
        f"{found.wall_s(run):,.1f} s and {found.requests_per_s(run):,.1f} requests/s"
        for run in (found.static, found.continuous)
    ]
    slots = "1 slot" if found.slots == 1 else f"{count(found.slots)} slots"
    if found.lengths.size <= found.slots:
        return f"{count(found.lengths.size)} requests on {slots}: all run at once, so both take as long as the longest"
    shown = f", of which {MOST_SLOTS} are shown" if found.slots > MOST_SLOTS else ""
    return (
        f"{count(found.lengths.size)} requests on {slots}{shown}, the same order in both. At "
        f"{duration(found.step_s)} a step: {runs[0]} against {runs[1]}, {found.gain:.2f} times; prompts take no step "
        "here. The backlog drains; "
        "while requests keep coming, continuous batching tends to 100%"
    )


def exponential_miss(report: Report, batches: np.ndarray, static: np.ndarray, exponential: np.ndarray) -> str:
    """By how much 1/H_B misses the workload at the plan's batch, and at which of `batches` it misses most; `static` and
    `exponential` are what each of them uses."""
    found = report.batching
    worst = int(np.argmax(np.abs(np.log(exponential / static))))
    if abs(exponential[worst] / static[worst] - 1) < EXPONENTIAL_ENOUGH:
        return f"1/H_B is within {percent(EXPONENTIAL_ENOUGH)} of these lengths at every batch"
    ratio = found.exponential_utilisation / found.static_utilisation
    own = "as they are" if abs(ratio - 1) < EXPONENTIAL_ENOUGH else _times(ratio)
    return (
        f"Exponential lengths would use {percent(found.exponential_utilisation)} at batch {count(found.batch)}, "
        f"{own}; it misleads most at batch {count(int(batches[worst]))}: {percent(exponential[worst])} for "
        f"{percent(static[worst])}"
    )


def _times(ratio: float) -> str:
    """A ratio in words a planner reads without thinking: a share too low, or how many times too high."""
    return f"{percent(1 - ratio)} too low" if ratio < 1 else f"{percent(ratio - 1)} too high"


def paging(report: Report) -> Verdict:
    """What whole blocks waste, and what reserving the context would."""
    found = report.paging
    if not report.engine.fits:
        return ceiling(report)
    if not report.cache.bytes_per_token:
        booked = gib_or_less(report.cache.request_bytes_booked)
        sentence = f"No layer grows with its tokens, so **no block** is left unfilled; each sequence books {booked}"
        return Verdict(sentence, workload_name(report), "workload", "A state has one size, whatever the block size.")
    sentence = (
        f"Blocks of {count(found.block_size)} waste **{percent(found.waste_share)}** of the cache; "
        f"reserving {count(report.plan.context)} tokens would waste **{percent(found.contiguous_waste_share)}**"
    )
    turn = in_turn(report)
    reason = (
        f"At completion a sequence holds {mean(found.mean_tokens)} tokens on average. At their full lengths, taken in "
        f"turn, {count(turn.paged)} fit in blocks and {count(turn.reserved)} if each reserves the context."
    )
    return Verdict(sentence, workload_name(report), "workload", reason)


def half_block(report: Report) -> str:
    """The bound, the half-block rule, and how far these lengths are from it at the plan's block."""
    found = report.paging
    size, rule = found.block_size, (found.block_size - 1) / 2
    if size == 1:
        return "A block of one token is always full, and wastes nothing"
    ratio = found.waste_tokens / rule
    near = abs(ratio - 1) < HALF_BLOCK_ENOUGH
    why = "as sequences are long against it" if near else "as many are short against it or end alike"
    return (
        f"A sequence wastes less than a block, here at most {count(size - 1)} tokens, and half a block or {rule:,.1f} "
        f"on average if it ends anywhere in it; these lengths waste {found.waste_tokens:,.1f}, {ratio:.2f} times that, "
        f"{why}"
    )


def saved(found: Compared) -> str:
    """How many requests blocks run beside the best and the worst of the contiguous allocators."""
    paged, others = found.runs[PAGED], found.contiguous
    if all(run.peak_running == found.found.prompts.size for run in found.runs.values()):
        return (
            f"All {count(found.found.prompts.size)} requests run at once under every allocator: the pool holds them all"
        )
    fixed = f"; windows and states count as {count(found.fixed_slots)} tokens of each" if found.fixed_slots else ""
    worst, best = (choose(others.values(), key=lambda run: run.running) for choose in (min, max))
    return (
        f"{count(found.found.prompts.size)} requests in a pool of {count(found.slots)} slots: in blocks "
        f"{count(paged.running)} run on average, reserved {count(worst.running)}, and {count(best.running)} even if "
        f"every length were known before{fixed}"
    )


def engine_log(found: Comparison) -> str:
    """What a log measured beside what was predicted, in one sentence."""
    log = found.log
    if log.engine is None:
        return "**No start-up** of an engine was found in this text"
    name = f"{ENGINE_NAMES[log.engine]} {log.version or ''}".strip()
    if log.pool_gib is None:
        tokens = f", {count(log.kv_cache_tokens)} tokens of cache" if log.kv_cache_tokens is not None else ""
        return f"**{name}**{tokens}; its log states no pool"
    measured = f"**{name}** has a pool of **{log.pool_gib:g} GiB** a device"
    if found.report is None:
        return measured
    return f"{measured}; predicted from scratch: **{gib(found.report.memory.signed_pool_bytes, 2)}**"


def workload_name(report: Report) -> str:
    """The workload as a badge names it."""
    workload = report.setting.workload
    return workload.short_name if workload else f"{report.plan.output_dist} outputs"


def devices(report: Report) -> str:
    """The devices of one replica: "4 × H100 SXM"."""
    number = report.plan.tp * report.plan.pp
    name = report.setting.gpu.name.replace(" ", SPACE)
    return f"{number}{SPACE}×{SPACE}{name}" if number > 1 else f"one{SPACE}{name}"


def plain(sentence: str) -> str:
    """The sentence without its bold marks and unbreakable spaces."""
    return sentence.replace("**", "").replace(SPACE, " ")


def _badge(report: Report) -> str:
    if report.engine.refused:
        return "not served"
    return "exceeds the device" if _over_device(report) else BINDING[report.capacity.binding]


def _over_device(report: Report) -> bool:
    """Whether a pool given in bytes and the rest are more than the device has."""
    return report.engine.fits and report.memory.left_free_bytes < 0


def _ceiling_sentence(report: Report) -> str:
    capacity, context = report.capacity, f"{count(report.plan.context)} tokens"
    if report.engine.refused:
        return f"**Not served.** {report.engine.refused}"
    if not report.engine.fits:
        return _why_none(report, context)
    if _over_device(report):
        needed = report.memory.total_bytes - report.memory.left_free_bytes
        given = "as given" if report.plan.kv_cache_memory_bytes is not None else "by mem_fraction_static"
        return (
            f"**Does not fit**: with a pool of {gib(report.memory.pool_bytes)} {given}, a device of "
            f"{gib(report.memory.total_bytes)} needs {gib(needed)}"
        )
    if capacity.batch_ceiling < 1:
        return f"**Not one sequence** of {context} runs on {devices(report)}; {_why_no_slot(report)}"
    if report.plan.admission == "on_demand":
        return _on_demand_sentence(report, context)
    number = f"**{sequences(capacity.batch_ceiling)}** of {context}"
    runs = "s" if capacity.batch_ceiling == 1 else ""
    if capacity.binding == "memory":
        return f"{number} fit{runs} on {devices(report)}"
    return f"{number} run{runs} on {devices(report)}; memory would hold {count(capacity.memory_ceiling)}"


def _on_demand_sentence(report: Report, context: str) -> str:
    capacity, running = report.capacity, report.capacity.on_demand_running
    if running < capacity.on_demand_ceiling:
        return (
            f"**{sequences(running)}** run{'s' if running == 1 else ''} on {devices(report)}; "
            f"memory would hold {count(capacity.on_demand_ceiling)} on average on demand"
        )
    return (
        f"**{sequences(running)}** on average fit{'s' if running == 1 else ''} on demand on {devices(report)}; "
        f"{count(capacity.batch_ceiling)} by reserving {context}"
    )


def _why_none(report: Report, context: str) -> str:
    """Why the start-up check fails, and what would help."""
    engine, memory = report.engine, report.memory
    if report.plan.kv_cache_memory_bytes is None and memory.pool_bytes == 0:
        return f"**Does not fit**: {_weights(report)}; {_cure(report)}"
    if engine.suggested_context:
        why = f"the longest that fits is {count(engine.suggested_context)}"
    else:
        given = " as given" if report.plan.kv_cache_memory_bytes is not None else ""
        why = f"one needs {binary(engine.needed_bytes)}, the pool has {binary(memory.pool_bytes)}{given}"
    return f"**Not one sequence** of {context} fits on {devices(report)}; {why}"


def _why_no_slot(report: Report) -> str:
    """Why none runs although the start-up check passes: it counts no speculative slots, no quota and no prefix."""
    capacity, engine = report.capacity, report.engine
    if capacity.memory_ceiling:
        return (
            f"the quota of {report.plan.tenant_quota_fraction:g} is less than one of {count(capacity.memory_ceiling)}"
        )
    booked = report.cache.request_bytes_booked // engine.bytes_per_block
    return (
        f"with its {report.plan.spec_tokens} speculative tokens one books {count(booked)} blocks, "
        f"the pool has {count(engine.num_blocks)}"
    )


def _ceiling_reason(report: Report) -> str:
    if report.setting is None:
        return "Choose another model, GPU or workload in the sidebar."
    model, setting = report.setting.model.name, report.setting
    if report.engine.refused or not report.engine.fits:
        return f"{model} on {devices(report)}, {setting.kv_dtype} cache."
    booked = gib_or_less(report.cache.request_bytes_booked)
    held = percent(report.capacity.held_share)
    where = "on every device" if report.plan.tp * report.plan.pp > 1 else ""
    reserves = f"Each request reserves {booked} {where}".rstrip()
    if shared := report.cache.request_bytes_shared:
        reserves += f", {gib_or_less(shared)} of it shared by all"
    counted = "" if _weights_known(report) else "Its weights are not known and count as 0 until they are set. "
    caution = counted + _too_long(report)
    return f"{caution}{model}, {setting.kv_dtype} cache. {reserves}; this workload holds {held} of it on average."


def _too_long(report: Report) -> str:
    longest = report.setting.model.max_position_embeddings
    return f"Longer than this model's maximum of {count(longest)} tokens. " if report.plan.context > longest else ""


def _weights_known(report: Report) -> bool:
    return report.setting.model.weight_bytes is not None or report.plan.weights_gib is not None


def _weights(report: Report) -> str:
    """What takes the memory: the weights alone, or they and the rest together."""
    memory, each = report.memory, "each" if report.plan.tp * report.plan.pp > 1 else "a"
    static = report.plan.mem_fraction_static
    share = report.setting.utilization if static is None else static
    usable = f"{share:g} of {each} {gib(memory.total_bytes)} device"
    if static is not None or memory.weight_bytes > memory.total_bytes * share:
        return f"{gib(memory.weight_bytes)} of weights on {usable}"
    return f"weights, activations and workspace take {gib(memory.fixed_bytes)}, more than {usable}"


def _cure(report: Report) -> str:
    capacity, request = report.capacity, f"one request of {count(report.plan.context)} tokens"
    if capacity.min_tp is not None:
        return f"{request} needs tp {capacity.min_tp}"
    if capacity.min_tp_weights is not None:
        return f"the weights leave a pool from tp {capacity.min_tp_weights}, but {request} starts at no tp"
    return f"no tp up to {MAX_PARALLEL} leaves room for a cache"


def _blocks(number: int) -> str:
    return f"{count(number)} block{'' if number == 1 else 's'}"


def sequences(number: int) -> str:
    """So many sequences, in words."""
    return f"{count(number)} sequence{'' if number == 1 else 's'}"
