"""The single changes worth trying on a plan: the fields each sets, a word on quality, and who speaks of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kvplan.catalog import Setting, library, restarted
from kvplan.engine import in_flight_tokens, layout
from kvplan.engine_facts import CACHE_DTYPES, ENGINE_VERSION
from kvplan.lengths import clipped_share, mean_prompt
from kvplan.plan import FROM_GPU, MAX_PARALLEL
from kvplan.specs import STATE_KINDS, LayerGroup, attention_name, expanded, runs
from kvplan.texts import groups_from_text, groups_text
from kvplan.units import DTYPES, count, gb_per_s, gib, percent
from kvplan.weights import PLAN_BITS

UTILIZATION = 0.95
WINDOW = 4096
"""Tokens of the window that every second layer gets, as Mistral 7B and Gemma 2 have it."""
BUDGET = 4
"""Evicting keeps one token in so many of the context."""
LARGER = 1.1
"""Times the memory that the next larger device has at least; less is a difference of drivers, not of devices."""

Quality = Literal["exact", "by design", "model-dependent", "lossy"]
QUALITIES: dict[Quality, str] = {
    "exact": "the same model computes the same, but for rounding",
    "by design": "a model or a service that has to be made so",
    "model-dependent": "little or nothing is lost in many models, to be measured on yours",
    "lossy": "known to cost quality",
}
"""What each word on quality means."""


CACHES: dict[str, tuple[Quality, str]] = {
    "fp8": ("model-dependent", "vLLM docs, Quantized KV Cache"),
    "int4": ("lossy", "Liu et al. 2024, KIVI; Hooper et al. 2024, KVQuant"),
}
WEIGHTS: dict[str, tuple[Quality, str]] = {
    "fp8": ("model-dependent", "Micikevicius et al. 2022, FP8 Formats for Deep Learning"),
    "int4": ("lossy", "Frantar et al. 2023, GPTQ; Lin et al. 2024, AWQ"),
    "nvfp4": ("lossy", "NVIDIA 2025, Introducing NVFP4"),
}
"""Widths of the cache and of the weights: a word on quality, and who speaks of it."""


class Idea(NamedTuple):
    """One change: its name, what it is, a word on quality and who speaks of it; the fields it sets, or why it sets
    none."""

    id: str
    name: str
    about: str
    quality: Quality
    source: str
    changes: dict | str


def ideas(setting: Setting, min_tp: int | None) -> list[Idea]:
    """Every change worth trying on a plan; `min_tp` is the smallest at which one request starts, None where none is."""
    return [
        *(_cache(setting, dtype, *said) for dtype, said in CACHES.items()),
        *(_weights(setting, dtype, *said) for dtype, said in WEIGHTS.items() if _multiplies(setting, dtype)),
        _more(setting, "tp", min_tp or 0, "devices that share each layer", "Shoeybi et al. 2019, Megatron-LM"),
        _more(setting, "pp", 0, "stages that share the layers", "Huang et al. 2019, GPipe"),
        _larger_device(setting),
        _half_context(setting),
        _shared_prefix(setting),
        _own_block(setting),
        _admission(setting),
        _utilization(setting),
        _half_heads(setting),
        _windows(setting),
        _eviction(setting),
    ]


def _multiplies(setting: Setting, dtype: str) -> bool:
    """Whether a width is worth a thought on the device: nvfp4 only where there are units for it."""
    return dtype != "nvfp4" or (setting.gpu.vendor == "NVIDIA" and setting.gpu.fp4_flop_per_s is not None)


def _cache(setting: Setting, dtype: str, quality: Quality, source: str) -> Idea:
    """Keys and values at a width, each where it is wider."""
    plan = setting.plan
    widths = {"kv_dtype": setting.kv_dtype} | ({} if plan.v_dtype is None else {"v_dtype": plan.v_dtype})
    wider = [name for name, now in widths.items() if DTYPES[now].bits > DTYPES[dtype].bits]
    about = f"elements of {DTYPES[dtype].bits} bits instead of {DTYPES[setting.kv_dtype].bits}"
    if dtype not in CACHE_DTYPES:
        about += f"; a plain width, {ENGINE_VERSION} has no such format"
    changes = dict.fromkeys(wider, dtype) or f"the cache is {setting.kv_dtype} already"
    return Idea(f"cache_{dtype}", f"{dtype} cache", about, quality, source, changes)


def _weights(setting: Setting, dtype: str, quality: Quality, source: str) -> Idea:
    """Matrices at a width, where they are wider and their number is known."""
    changes: dict | str = {"weight_dtype": dtype}
    if setting.plan.weights_gib is not None:
        changes = "weights_gib gives the size of the weights, whatever their width"
    elif setting.model.parameters is None:
        changes = f"the parameters of {setting.model.name} are not counted"
    elif int(PLAN_BITS[dtype]) >= int(PLAN_BITS[setting.weight_dtype]):
        changes = f"the weights are {setting.weight_dtype} already"
    about = f"matrices in {dtype} instead of {setting.weight_dtype}; embeddings, norms and routers stay in 16 bits"
    return Idea(f"weights_{dtype}", f"{dtype} weights", about, quality, source, changes)


def _more(setting: Setting, name: str, least: int, what: str, source: str) -> Idea:
    """Twice the devices, or as many as it takes at least, by tensor or by pipeline parallelism."""
    now = getattr(setting.plan, name)
    then = max(2 * now, least)
    changes = {name: then} if then <= MAX_PARALLEL else f"{name}: at most {MAX_PARALLEL}, got {then}"
    times = "twice" if then == 2 * now else f"{then / now:g} times"
    about = f"{then} instead of {now} {what}: {times} the GPUs of a replica"
    return Idea(name, f"{name} {then}", about, "exact", source, changes)


def _larger_device(setting: Setting) -> Idea:
    """The smallest device of the vendor with a tenth more memory and no less bandwidth; what came with the former one
    goes with it."""
    own, least = setting.gpu, LARGER * max(setting.total_bytes, setting.gpu.total_bytes)
    larger = [
        gpu
        for gpu in library("gpu").specs.values()
        if gpu.vendor == own.vendor
        and gpu.total_bytes >= least
        and gpu.bandwidth_bytes_per_s >= own.bandwidth_bytes_per_s
    ]
    rule = f"the smallest {own.vendor} device with a tenth more memory and no less bandwidth"
    if not larger:
        return Idea("gpu", "larger GPU", rule, "exact", "presets of devices", "there is none among the presets")
    found = min(larger, key=lambda gpu: (gpu.total_bytes, -gpu.bandwidth_bytes_per_s, gpu.id))
    given = [name for name in FROM_GPU if getattr(setting.plan, name) is not None]
    about = f"{rule}: {found.name}, {gib(found.total_bytes)} and {gb_per_s(found.bandwidth_bytes_per_s)}"
    about += f"; {', '.join(given)} as it has them" if given else ""
    return Idea("gpu", "larger GPU", about, "exact", "presets of devices", {"gpu": found.id} | dict.fromkeys(given))


def _half_context(setting: Setting) -> Idea:
    now = setting.plan.context
    half = now // 2
    changes = {"context": half} if half else "the context is one token"
    cut = clipped_share(setting.lengths, half) if half else 1.0
    about = f"{count(half)} instead of {count(now)} tokens; {percent(cut)} of this workload's requests are longer"
    return Idea("context", "half the context", about, "by design", "vLLM docs, Conserving Memory", changes)


def _shared_prefix(setting: Setting) -> Idea:
    """As if every prompt began with the same tokens, half of the mean one."""
    plan, kinds = setting.plan, {group.kind for group in setting.model.groups}
    tokens, shared = int(mean_prompt(setting.lengths, plan.context)) // 2, plan.shared_prefix_tokens
    changes: dict | str = {"shared_prefix_tokens": tokens}
    if not plan.enable_prefix_caching:
        changes["enable_prefix_caching"] = True
    if kinds <= STATE_KINDS | {"none"}:
        changes = "a model of states alone caches no prefix"
    elif not tokens:
        changes = "the prompts of this workload are too short"
    elif shared >= tokens:
        changes = f"{count(shared)} tokens are shared already"
    about = f"if every prompt begins with the same {count(tokens)} tokens, half of the mean: stored and computed once"
    source = "Kwon et al. 2023, PagedAttention; Zheng et al. 2024, SGLang"
    return Idea("prefix", "shared prefix", about, "exact", source, changes)


def _own_block(setting: Setting) -> Idea:
    """The engine's own block, where the plan has a larger one: each sequence books its last block whole."""
    now = layout(setting).block_size
    own = layout(restarted(setting, block_size=None)).block_size
    changes: dict | str = {"block_size": None}
    if setting.plan.block_size is None:
        changes = f"blocks are the engine's own already, {count(own)} tokens"
    elif own >= now:
        changes = f"the engine's own of {count(own)} tokens are no smaller than {count(now)}"
    about = f"the engine's own blocks of {count(own)} tokens: less of the last one is left unfilled"
    return Idea("block", f"blocks of {own}", about, "exact", "Kwon et al. 2023, PagedAttention", changes)


def _admission(setting: Setting) -> Idea:
    """The other policy."""
    source = "Kwon et al. 2023, PagedAttention"
    if setting.plan.admission == "reserve":
        about = (
            "a request books what it holds and grows: more run on average, and some are preempted and computed again"
        )
        return Idea("admission", "admission on demand", about, "exact", source, {"admission": "on_demand"})
    about = "a request books the whole context with its admission: fewer run, and none is preempted"
    return Idea("admission", "reserved admission", about, "exact", source, {"admission": "reserve"})


def _utilization(setting: Setting) -> Idea:
    """A larger share of each device, where the pool follows from it."""
    plan, now = setting.plan, setting.utilization
    changes: dict | str = {"gpu_memory_utilization": UTILIZATION}
    given = [name for name in ("kv_cache_memory_bytes", "mem_fraction_static") if getattr(plan, name) is not None]
    if given:
        changes = f"{given[0]} gives the pool"
    elif now >= UTILIZATION:
        changes = f"utilization is {now:g} already"
    about = f"{UTILIZATION:g} of each device instead of {now:g}: less is left to what the estimates miss"
    return Idea(
        "utilization", f"utilization {UTILIZATION:g}", about, "exact", "vLLM docs, Optimization and Tuning", changes
    )


def _half_heads(setting: Setting) -> Idea:
    """Half the KV heads in full-attention layers; the weights stay as they are, though two projections would shrink."""
    about = "in full-attention layers: half the bytes to keep and to read, and as many FLOPs, as every query head stays"
    idea = Idea("kv_heads", "half the KV heads", about, "by design", "Ainslie et al. 2023, GQA", "")
    shapes = {group.model_copy(update={"layers": 1}) for group in setting.model.groups if group.kind == "full"}
    heads = {shape.kv_heads for shape in shapes}
    if not shapes:
        why_not = (
            f"{setting.model.name} has no full-attention layers with KV heads, but {attention_name(setting.model)}"
        )
    elif len(shapes) > 1:
        why_not = "its full-attention layers have several shapes"
    elif max(heads) % 2:
        why_not = f"its full-attention layers have {count(max(heads))} KV heads, which is no even number"
    else:
        now = max(heads)
        return idea._replace(about=f"{now // 2} instead of {now} {about}", changes={"kv_heads": now // 2})
    return idea._replace(changes=why_not)


def _windows(setting: Setting) -> Idea:
    """A window in every second full-attention layer."""
    about = f"every second full-attention layer keeps {count(WINDOW)} tokens{_in_flight(setting)}"
    source = "Jiang et al. 2023, Mistral 7B; Gemma Team 2025, Gemma 3"
    return Idea("window", "sliding window", about, "by design", source, _windowed(setting, WINDOW, every=2))


def _eviction(setting: Setting) -> Idea:
    """Every full-attention layer keeps a share of the context: bytes only, as a window of so many tokens has them."""
    budget = max(1, setting.plan.context // BUDGET)
    about = (
        f"every full-attention layer keeps {count(budget)} tokens, a quarter of the context; bytes only, as a window "
        f"of that many has them{_in_flight(setting)}"
    )
    source = "Zhang et al. 2023, H2O; Xiao et al. 2023, StreamingLLM"
    return Idea("evict", "evict to a quarter", about, "lossy", source, _windowed(setting, budget, every=1))


def _in_flight(setting: Setting) -> str:
    """What the engine books beside a window."""
    tokens = in_flight_tokens(setting, setting.plan.context)
    return f"; {ENGINE_VERSION} books {count(tokens)} tokens in flight beside"


def _windowed(setting: Setting, window: int, every: int) -> dict | str:
    """The fields that give one in `every` full-attention layers a window, the last of each so many; why they cannot."""
    plan, model = setting.plan, setting.model
    if plan.spec is not None:
        return "the model travels in spec, whose layers are not rewritten"
    if not any(group.kind == "full" for group in model.groups):
        return f"{model.name} has no full-attention layers, but {attention_name(model)}"
    if groups_text(model.groups) is None:
        return f"{model.name} has layers that the field groups cannot name: {attention_name(model)}"
    text = groups_text(_with_windows(model.groups, window, every))
    try:
        groups_from_text(text)
    except ValueError as error:  # too many layers, or too many words for them
        return str(error)
    replaced = [name for name in ("layers", "kv_heads", "head_dim") if getattr(plan, name) is not None]
    return {"groups": text} | dict.fromkeys(replaced)


def _with_windows(groups: tuple[LayerGroup, ...], window: int, every: int) -> tuple[LayerGroup, ...]:
    found, full = [], 0
    for layer in expanded(groups):
        full += layer.kind == "full"
        last = layer.kind == "full" and full % every == 0
        found.append(layer.model_copy(update={"kind": "sliding", "window": window}) if last else layer)
    return runs(found)
