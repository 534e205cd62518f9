"""What is unusual about a plan, which of its fields say nothing, and where each number comes from."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan import startup, startup_facts
from kvplan.engine_facts import BLOCK_SIZE_MULTIPLE, CACHE_DTYPES, CHECKED_DEVICES, ENGINE_VERSION, IGNORES_CACHE_DTYPE
from kvplan.overrides import loads_all
from kvplan.plan import DEFAULTS, Plan
from kvplan.roofline_facts import NODE_DEVICES, TYPICAL_STEP_S, Efficiency, math_rate
from kvplan.specs import ATTENTION_KINDS, GpuSpec, ModelSpec, Source, WorkloadSpec
from kvplan.units import percent
from kvplan.weights import is_quantised

REPLACED = {
    "non_torch_gib": ("workspace_gib",),
    "cuda_graph_gib": ("workspace_gib", "enforce_eager"),
    "gpu_memory_utilization": ("kv_cache_memory_bytes", "mem_fraction_static"),
    "mem_fraction_static": ("kv_cache_memory_bytes",),
}
"""Fields that say nothing once another is given."""
ESTIMATE_SOURCE = Source(text=startup_facts.SOURCE, confidence="estimate")


def plan_notes(plan: Plan, base: ModelSpec, gpu: GpuSpec, kv_dtype: str) -> Iterable[str]:
    if plan.context > base.max_position_embeddings:
        yield (
            f"context: {plan.context:,} tokens is above the length {base.name} was trained for, "
            f"{base.max_position_embeddings:,}"
        )
    if base.model_type in IGNORES_CACHE_DTYPE and plan.kv_dtype not in ("auto", kv_dtype):
        yield f"kv_dtype: {ENGINE_VERSION} leaves the cache of {base.name} at {kv_dtype} whatever is set"
    elif kv_dtype not in CACHE_DTYPES:
        yield f"kv_dtype: {kv_dtype} is a plain width; {ENGINE_VERSION} has no cache format for it"
    if plan.v_dtype is not None and not any(group.kind in ATTENTION_KINDS for group in base.groups):
        yield f"v_dtype: ignored, {base.name} stores no values of their own"
    elif plan.v_dtype is not None and plan.v_dtype != kv_dtype:
        yield f"v_dtype: {plan.v_dtype} beside {kv_dtype} keys is a plain width; {ENGINE_VERSION} stores both alike"
    if plan.spec_method is not None and not plan.spec_tokens:
        yield f"spec_tokens: 0 with {plan.spec_method}; the engine needs at least 1"
    if plan.spec_method is None and plan.spec_tokens:
        yield "spec_method: not given, so spec_tokens are only room for each sequence and change no layout"
    if plan.block_size is not None and plan.block_size % BLOCK_SIZE_MULTIPLE:
        yield (
            f"block_size: {plan.block_size} is no multiple of {BLOCK_SIZE_MULTIPLE}; "
            f"no attention backend of {ENGINE_VERSION} has it"
        )
    yield from _memory_notes(plan, base, gpu)
    if gpu.compute_capability not in CHECKED_DEVICES:
        yield f"gpu: {gpu.name} was not checked against the engine"
    if base.weight_bytes is None and plan.weights_gib is None:
        yield f"weights_gib: the weights of {base.name} cannot be counted from its config; they are 0 until set"
    if plan.weight_dtype is not None and base.parameters is None:
        yield "weight_dtype: ignored, the parameters of this model are not counted"
    if plan.workload != "auto" or plan.table is not None:
        for name in ("prompt_mean", "output_mean", "output_dist"):
            if getattr(plan, name) != getattr(DEFAULTS, name):
                yield f"{name}: ignored, the lengths are those of the workload"


def step_notes(
    plan: Plan, gpu: GpuSpec, workload: WorkloadSpec | None, weight_dtype: str, weights: int
) -> Iterable[str]:
    """What is unusual about the time of a step."""
    if plan.step_s is None and not (weights and math_rate(gpu, weight_dtype)):
        missing = f"{gpu.name} states no FLOP/s" if weights else "there are no weights to read"
        yield f"step_s: cannot be estimated, as {missing}; {TYPICAL_STEP_S:.3f} s stands in"
    if plan.spec_method is not None and plan.spec_tokens and plan.acceptance_rate is None:
        yield "acceptance_rate: not given, so that drafted tokens cost time and none is accepted"
    if plan.acceptance_rate is not None and not (plan.spec_method and plan.spec_tokens):
        yield "acceptance_rate: ignored, nothing is drafted"
    for name in ("prefix_hit_rate", "shared_prefix_tokens"):
        if getattr(plan, name) and not plan.enable_prefix_caching:
            yield f"{name}: ignored, as the plan does not cache prefixes"
    if workload is not None and workload.prefix_hit_rate and plan.prefix_hit_rate is None:
        yield (
            f"prefix_hit_rate: not set, so every prompt is computed whole; a pool that forgets nothing would find "
            f"{percent(workload.prefix_hit_rate)} of the prompts of {workload.name}"
        )
    if plan.tp > NODE_DEVICES:
        yield f"tp: more than {NODE_DEVICES} devices talk over the network; their all-reduces are a rough estimate"


def _memory_notes(plan: Plan, base: ModelSpec, gpu: GpuSpec) -> Iterable[str]:
    """What is unusual about the memory of a plan, and which of its fields others replace."""
    if plan.engine_version is not None:
        yield (
            f"engine_version: {plan.engine_version} sets utilization and what start-up takes; blocks and tokens are "
            f"counted by the rules of {ENGINE_VERSION}"
        )
    if plan.mem_fraction_static is not None and plan.kv_cache_memory_bytes is None:
        yield (
            "mem_fraction_static: the pool is SGLang's, which leaves activations and graphs to the rest of the device; "
            f"blocks and tokens are counted by the rules of {ENGINE_VERSION}"
        )
    for name, replacing in REPLACED.items():
        given = [other for other in replacing if not any(getattr(plan, other) is unset for unset in (None, False))]
        if getattr(plan, name) is not None and given:
            yield f"{name}: ignored, as {given[0]} is given"
    if base.provisional:
        yield f"model: {base.name} is provisional, its layers or its size were not looked up in its config.json"
    if plan.activation_gib is None and base.shape is None:
        yield f"activation_gib: the widths of {base.name} are not known, so those of a typical model stand in"
    elif plan.activation_gib is None and base.multimodal:
        yield (
            "activation_gib: the estimate holds for an encoder at its usual image limits; profiling video or many "
            "images took 2 to 20 GiB more in public logs"
        )
    if plan.gpu_memory_gib is None and gpu.sources["total_bytes"].text.startswith("marketing"):
        yield f"gpu: the total of {gpu.name} is its marketing size, an estimate; a driver reports less"


def sources(
    plan: Plan, model: ModelSpec, gpu: GpuSpec, workload: WorkloadSpec | None, factors: Efficiency
) -> dict[str, Source]:
    """Where each number of the setting comes from; what the plan sets itself is the user's own."""
    own = Source(text="set in this plan", confidence="exact")

    def origin(name: str, given) -> Source:
        return given if getattr(plan, name) is None else own

    held = "loaded_weight_bytes" if model.loaded_weight_bytes and not loads_all(plan, model) else "weight_bytes"
    weights = own if plan.weights_gib is not None else model.sources[held]
    if plan.weights_gib is None and plan.weight_dtype is not None:
        kept = ", embeddings and norms in 16 bits" if is_quantised(plan.weight_dtype) else ""
        text = f"parameters at {plan.weight_dtype}{kept}; {model.sources['parameters'].text}"
        weights = Source(text=text, confidence="estimate")
    found = {
        "layers and heads": model.sources["groups"],
        "weight_bytes": weights,
        "total_bytes": origin("gpu_memory_gib", gpu.sources["total_bytes"]),
        "activation_bytes": origin("activation_gib", ESTIMATE_SOURCE),
        "workspace_bytes": ESTIMATE_SOURCE if startup.workspace_is_estimated(plan) else own,
    }
    given = ("bandwidth_efficiency", "compute_efficiency", "step_overhead_s")
    for name, factor in zip(given, (factors.weights, factors.compute, factors.overhead_s), strict=True):
        spread = Source(
            text=f"docs/throughput.md, {factor.source}; seen from {factor.low:g} to {factor.high:g}",
            confidence="estimate",
        )
        found[name] = origin(name, spread)
    if plan.kv_cache_memory_bytes is not None:
        found["pool_bytes"] = own
    found["lengths"] = own if workload is None else workload.sources["table" if workload.table else "samples"]
    return found
