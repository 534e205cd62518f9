"""When the engine would not start at all, whatever the memory: one sentence a reason.

Source: vLLM 0.32 (see `engine_facts`).
"""

from __future__ import annotations

from collections.abc import Iterator

from kvplan import engine_facts as facts
from kvplan.cache import draft_group
from kvplan.catalog import Structure
from kvplan.specs import ATTENTION_KINDS, STATE_KINDS


def refusal(setting: Structure, block_size: int) -> str | None:
    """The first reason the engine has not to start, else None."""
    checks = (_parallelism, _states, _context_parallelism, _speculation, _cache_dtype)
    return next((reason for check in checks for reason in check(setting)), None) or _block(setting, block_size)


def _parallelism(setting: Structure) -> Iterator[str]:
    plan, model = setting.plan, setting.model
    heads, family = model.num_attention_heads, model.model_type
    if heads is not None and heads % plan.tp:
        yield f"tp: the {heads} attention heads of {model.name} must be divisible by tp, got {plan.tp}"
    for kv_heads in sorted({group.kv_heads for group in model.groups if group.kind in ATTENTION_KINDS}):
        if max(kv_heads, plan.tp) % min(kv_heads, plan.tp):
            yield f"tp: must divide the {kv_heads} KV heads or be a multiple of them, got {plan.tp}"
        if kv_heads < plan.tp and family in facts.NO_REPLICATED_HEADS:
            yield f"tp: {model.name} cannot copy its {kv_heads} KV heads over more devices, got {plan.tp}"
    if model.vision_heads is not None and model.vision_heads % plan.tp:
        yield f"tp: the {model.vision_heads} attention heads of the vision tower must be divisible by tp, got {plan.tp}"
    if plan.pp > 1 and family in facts.NO_PIPELINE:
        yield f"pp: {model.name} does not run on more than one pipeline stage, got {plan.pp}"
    if plan.enable_expert_parallel and not model.num_experts:
        yield f"enable_expert_parallel: {model.name} has no experts"


def _states(setting: Structure) -> Iterator[str]:
    plan = setting.plan
    hybrid = any(group.kind not in STATE_KINDS and group.kind != "none" for group in setting.model.groups)
    for group in setting.model.groups:
        if group.kind not in STATE_KINDS:
            continue
        if group.state.groups > 1 and group.state.groups % plan.tp:
            yield f"tp: must divide the {group.state.groups} groups of the Mamba-2 layers, got {plan.tp}"
        if group.state.conv_channels % plan.tp or group.state.recurrent_elements % plan.tp:
            yield f"tp: must divide the states of the {group.kind} layers, got {plan.tp}"
        if plan.disable_hybrid_kv_cache_manager and hybrid:
            yield "disable_hybrid_kv_cache_manager: layers that keep a state need the hybrid manager"


def _context_parallelism(setting: Structure) -> Iterator[str]:
    plan, groups = setting.plan, setting.model.groups
    if plan.dcp == 1:
        return
    if any(group.kind in ("sliding", "chunked", "compressed") for group in groups):
        yield f"dcp: windowed layers cannot be split over the context, got {plan.dcp}"
    if not any(group.kind in ("full", "mla") for group in groups):
        yield f"dcp: {setting.model.name} has no attention to split over the context, got {plan.dcp}"
    if plan.tp % plan.dcp:
        yield f"dcp: must divide tp {plan.tp}, got {plan.dcp}"
    for kv_heads in sorted({group.kv_heads for group in groups if group.kind == "full"}):
        if plan.tp <= kv_heads:
            yield f"dcp: needs a tp above the {kv_heads} KV heads, got tp {plan.tp}"
        if plan.dcp > plan.tp // kv_heads:
            yield f"dcp: at most tp // KV heads = {plan.tp // kv_heads}, got {plan.dcp}"


def _speculation(setting: Structure) -> Iterator[str]:
    method, model = setting.plan.spec_method, setting.model
    if method == "mtp" and not model.mtp_layers:
        yield f"spec_method: {model.name} has no layers for multi-token prediction, got mtp"
    if method in ("mtp", "eagle3") and draft_group(setting) is None:
        yield f"spec_method: what {method} adds to the cache of {model.name} is not known"


def _cache_dtype(setting: Structure) -> Iterator[str]:
    model, dtype, family = setting.model, setting.kv_dtype, setting.model.model_type
    device = facts.device_class(setting.gpu.compute_capability)
    mla = any(group.kind == "mla" for group in model.groups)
    indexed = mla and any(group.index_dim for group in model.groups)
    if indexed and device < 90:
        yield f"gpu: MLA with an indexer needs compute capability 9.x or 10.x, got {setting.gpu.name}"
    if mla and dtype in ("fp8_e5m2", "fp8_per_token_head", "int8_per_token_head"):
        yield f"kv_dtype: MLA has no {dtype} cache"
    if dtype not in facts.FP8_DTYPES:
        return
    if model.alibi and family not in facts.IGNORES_CACHE_DTYPE:
        yield f"kv_dtype: {model.name} has no fp8 cache, as its attention uses ALiBi, got {dtype}"
    if family in facts.NO_FP8_E5M2 and dtype == "fp8_e5m2":
        yield f"kv_dtype: {model.name} has no {dtype} cache"
    if family in facts.NO_FP8_ON_BLACKWELL and device == 100:
        yield f"kv_dtype: {model.name} has no fp8 cache on {setting.gpu.name}, got {dtype}"
    narrow = any(group.head_dim == facts.NO_FP8_HEAD_DIM_ON_A100 for group in model.groups)
    if device == 80 and (mla or narrow or family in facts.NO_FP8_ON_A100):
        yield f"kv_dtype: {model.name} has no fp8 cache on {setting.gpu.name}, got {dtype}"


def _block(setting: Structure, block_size: int) -> str | None:
    indexed = any(group.kind == "mla" and group.index_dim for group in setting.model.groups)
    if indexed and block_size % facts.INDEXER_ALIGNMENT:
        return f"block_size: MLA with an indexer needs a multiple of {facts.INDEXER_ALIGNMENT}, got {block_size}"
    return None
