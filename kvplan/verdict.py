"""The answer in one sentence: what a page opens with and the command line prints first.

Sentences carry `**bold**` around the decisive words; `plain` takes it off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvplan.plan import MAX_PARALLEL
from kvplan.report import Report
from kvplan.units import count, gib, mean, percent

Tone = Literal["memory", "limit", "workload"]
SPACE = "\N{NO-BREAK SPACE}"
BINDING = {
    "memory": "memory binds",
    "tenant_quota": "quota binds",
    "max_num_seqs": "max_num_seqs binds",
    "does_not_fit": "does not fit",
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
        badge="not served" if report.engine.refused else BINDING[binding],
        tone="memory" if binding == "memory" else "limit",
        reason=_ceiling_reason(report),
    )


def batching(report: Report) -> Verdict:
    """What static batches leave idle on this workload."""
    found = report.batching
    if report.setting is None:
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


def paging(report: Report) -> Verdict:
    """What whole blocks waste, and what reserving the context would."""
    found = report.paging
    if report.setting is None:
        return ceiling(report)
    sentence = (
        f"Blocks of {count(found.block_size)} waste **{percent(found.waste_share)}** of the cache; "
        f"reserving {count(report.plan.context)} tokens would waste **{percent(found.contiguous_waste_share)}**"
    )
    reason = f"At completion a sequence holds {mean(found.mean_tokens)} tokens on average."
    return Verdict(sentence, workload_name(report), "workload", reason)


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


def _ceiling_sentence(report: Report) -> str:
    capacity, engine, plan = report.capacity, report.engine, report.plan
    if engine.refused:
        return f"**Not served**: {engine.refused}"
    context = f"{count(plan.context)} tokens"
    if report.memory.shortfall_bytes or report.memory.pool_bytes == 0:
        return f"**Does not fit**: {_weights(report)}; {_cure(report)}"
    if not engine.fits:
        longest = engine.suggested_context
        cure = f"the longest that fits is {count(longest)}" if longest else "the pool holds not a single block"
        return f"**Not one sequence** of {context} fits on {devices(report)}; {cure}"
    if plan.admission == "on_demand":
        return (
            f"**{count(capacity.on_demand_ceiling)} sequences** on average fit on demand on {devices(report)}; "
            f"{count(capacity.batch_ceiling)} by reserving {context}"
        )
    number = f"**{_sequences(capacity.batch_ceiling)}** of {context}"
    if capacity.binding == "memory":
        return f"{number} {'fits' if capacity.batch_ceiling == 1 else 'fit'} on {devices(report)}"
    return f"{number} run on {devices(report)}; memory would hold {count(capacity.memory_ceiling)}"


def _ceiling_reason(report: Report) -> str:
    if report.setting is None:
        return "Choose another model, GPU or workload in the sidebar."
    model, setting = report.setting.model.name, report.setting
    if report.engine.refused or not report.engine.fits:
        return f"{model} on {devices(report)}, {setting.kv_dtype} cache."
    booked = gib(report.cache.request_bytes_booked, 2)
    held = percent(report.capacity.held_share)
    where = "on every device" if report.plan.tp * report.plan.pp > 1 else ""
    reserves = f"Each request reserves {booked} {where}".rstrip()
    counted = "" if _weights_known(report) else " Its weights are not known and count as 0 until they are set."
    return f"{model}, {setting.kv_dtype} cache. {reserves}; this workload holds {held} of it on average.{counted}"


def _weights_known(report: Report) -> bool:
    return report.setting.model.weight_bytes is not None or report.plan.weights_gib is not None


def _weights(report: Report) -> str:
    """What takes the memory: the weights alone, or they and the rest together."""
    memory, each = report.memory, "each" if report.plan.tp * report.plan.pp > 1 else "a"
    if memory.weight_bytes > memory.total_bytes * report.setting.utilization:
        return f"{gib(memory.weight_bytes)} of weights on {each} {gib(memory.total_bytes)} device"
    fixed = memory.weight_bytes + memory.activation_bytes + memory.workspace_bytes
    return f"weights, activations and workspace take {gib(fixed)} of {each} {gib(memory.total_bytes)} device"


def _cure(report: Report) -> str:
    capacity, request = report.capacity, f"one request of {count(report.plan.context)} tokens"
    if capacity.min_tp is not None:
        return f"{request} needs tp {capacity.min_tp}"
    if capacity.min_tp_weights is not None:
        return f"the weights leave a pool from tp {capacity.min_tp_weights}, but {request} starts at no tp"
    return f"no tp up to {MAX_PARALLEL} leaves room for a cache"


def _sequences(number: int) -> str:
    return f"{count(number)} sequence{'' if number == 1 else 's'}"
