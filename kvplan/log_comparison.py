"""What an engine's log measured beside what kvplan predicts for the same start, and why the two differ.

The log says what was started as far as it can; the rest is the user's. Every difference gets its likely reason in one
sentence, and what would settle the others is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

from kvplan import catalog
from kvplan.accuracy import ROUNDING_GIB
from kvplan.checkpoints import preset_of, stated_width
from kvplan.engine_facts import scheduler_defaults
from kvplan.engine_log import EngineLog
from kvplan.log_text import MAX_LINES, MAX_MIB
from kvplan.plan import DEFAULTS, FROM_GPU, FROM_MODEL, MAX_BYTES, Plan, from_text, with_pool
from kvplan.report import Report, evaluate
from kvplan.specs import GpuSpec, ModelSpec, shorten
from kvplan.units import GIB, count, figure, whole_bytes
from kvplan.version import VERSION

SCHEMA = "kvplan.log/1"
PRESET_FIELDS = {"model", "gpu", "workload"}
PREDICTED = ("activation_gib", "non_torch_gib", "cuda_graph_gib", "workspace_gib", "kv_cache_memory_bytes")
"""What is held against the log, so never taken from the plan that the log is compared in."""
SAME_DEVICE = 0.012
"""Share by which a printed total may differ from a GPU's: drivers report a little more or less."""
SAME_POOL, SAME_PART_GIB = 0.02, 0.15
"""What counts as the same: pools within 2% of the device, its parts within 0.15 GiB."""
GB_FOR_GIB = 10**9 / GIB
SMALLEST_RANK = 0.85
"""Ranks of one start differ by less than this share of their pools in public logs."""
HELD_BY_OTHERS_GIB = 3.0
"""Memory missing at start beyond what driver, context and collectives keep."""
UNIFIED = ("gb10", "m2-ultra", "m3-ultra", "m4-max")


class Row(NamedTuple):
    """One figure: what the log says, what follows for the same start from scratch, and what follows from the log's own
    pool (None where nothing does). Sizes are GiB of one device."""

    figure: str
    unit: str
    measured: float | int
    predicted: float | int | None
    from_own_pool: float | int | None = None


@dataclass(frozen=True)
class Reason:
    """Why a figure differs, or is easily misread: the figure, a short name of the reason, and one sentence."""

    figure: str
    name: str
    sentence: str


CONCURRENCY_TIMES_LENGTH = Reason(
    "KV cache tokens",
    "concurrency × length",
    "tokens are concurrency × length, not a cost for each token: with windows or states they grow with the length",
)


@dataclass(frozen=True)
class Comparison:
    """A log beside its prediction. `plan` is what the log and the user state together, `calibrated` the same with what
    was measured; `report` of the plan, None where the model is not known; `missing` what would say more."""

    log: EngineLog
    plan: Plan
    calibrated: Plan
    report: Report | None
    rows: tuple[Row, ...]
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]


def compare(
    log: EngineLog, changes: dict[str, str] | None = None, base: Plan | None = None, model: ModelSpec | None = None
) -> Comparison:
    """The log beside the prediction. What the log leaves open is `base`'s, if there is one; `changes` are fields of the
    plan as text, which beat both; `model` replaces the preset.

    Raises ValueError, one line a field, for changes that no plan can have, or that name what no preset is.
    """
    changes = changes or {}
    stated, unusable = stated_plan(log, base or DEFAULTS)
    plan, dropped = from_text(changes, stated)
    if dropped:
        raise ValueError("; ".join(f"{name}: {why}" for name, why in dropped.items()))
    for name in sorted(PRESET_FIELDS & changes.keys()):
        if (name, changes[name]) != ("workload", "auto"):
            catalog.load_preset(changes[name], name)
    named = preset_of(log.model) is not None or {"model", "spec"} & set(changes)
    known = base is not None or model is not None or named
    report = evaluate(plan, model) if known and log.engine else None
    served = report is not None and report.setting is not None
    refused = report.engine.refused if served else None
    has_pool = log.pool_gib is not None and whole_bytes(log.pool_gib) <= MAX_BYTES
    own = evaluate(with_pool(plan, log.pool_gib), model) if served and has_pool and not refused else None
    calibrated, unusable_sizes = calibrated_plan(log, plan)
    return Comparison(
        log=log,
        plan=plan,
        calibrated=calibrated,
        report=report if served else None,
        rows=tuple(_rows(log, report if served else None, own)),
        reasons=tuple(_reasons(log, plan, report, own, model)) if served else tuple(_reasons_of_log(log)),
        missing=(
            *([f"no prediction of tokens and blocks: {refused}"] if refused else []),
            *_missing(log, plan, served, base, changes),
            *unusable,
            *unusable_sizes,
        ),
    )


def to_dict(found: Comparison) -> dict:
    """What `log --json` prints: stable keys, null for what the log does not state."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "log": asdict(found.log),
        "plan": found.plan.model_dump(mode="json"),
        "calibrated": found.calibrated.model_dump(mode="json"),
        "rows": [row._asdict() for row in found.rows],
        "reasons": [asdict(reason) for reason in found.reasons],
        "missing": list(found.missing),
    }


def table(rows: Iterable[Row]) -> list[dict]:
    """The figures as rows of a page, as text: what is not there is a dash."""
    return [
        {
            "Figure": row.figure,
            "Measured": figure_text(row.measured),
            "Predicted": figure_text(row.predicted),
            "From its own pool": figure_text(row.from_own_pool),
            "Unit": row.unit,
        }
        for row in rows
    ]


def read_lines(log: EngineLog) -> list[dict]:
    """Every figure that was read, with the line it stands in."""
    return [
        {"Field": name, "Value": getattr(log, name), "Line": number, "Text": shorten(text, 200)}
        for name, (number, text) in sorted(log.lines.items(), key=lambda item: item[1][0])
    ]


def figure_text(value: float | int | None) -> str:
    """A figure as it is shown: whole numbers with separators, sizes with two decimals, a dash for none."""
    return "–" if value is None else figure(value)


def stated_plan(log: EngineLog, base: Plan = DEFAULTS) -> tuple[Plan, list[str]]:
    """What the log says of the start, as a plan, and a note for what a plan cannot hold. The rest is the base's, but
    for what hangs on another model, GPU or engine, and for what is to be predicted."""
    preset, gpu = preset_of(log.model), _device(log)
    stated = {
        "model": preset.id if preset else None,
        "weight_dtype": stated_width(log.model, log.quantization, preset),
        "gpu": gpu.id if gpu else None,
        "gpu_memory_gib": log.total_gib,
        "tp": log.tp,
        "pp": log.pp,
        "context": log.max_model_len,
        "gpu_memory_utilization": log.gpu_memory_utilization,
        "mem_fraction_static": log.mem_fraction_static,
        "kv_dtype": log.kv_cache_dtype,
        "max_num_seqs": log.max_num_seqs,
        "max_num_batched_tokens": log.max_num_batched_tokens,
        "enforce_eager": log.enforce_eager,
        "enable_prefix_caching": log.enable_prefix_caching,
        "engine_version": log.version if log.engine == "vllm" else None,
        "kv_cache_memory_bytes": log.kv_cache_memory_bytes,
        "block_size": _block_size(log),
    }
    reset = {*PREDICTED, *(FROM_MODEL if preset else ()), *(FROM_GPU if gpu else ())}
    reset |= set() if log.weights_gib is None else {"weights_gib"}
    reset |= set() if log.engine == "sglang" else {"mem_fraction_static"}
    reset |= set() if log.engine == "vllm" else {"gpu_memory_utilization", "engine_version"}
    reset |= {name for name, value in stated.items() if value is not None}
    return _with(stated, base.model_copy(update={name: getattr(DEFAULTS, name) for name in reset}))


def _with(stated: dict[str, object], base: Plan) -> tuple[Plan, list[str]]:
    """The base with what a log states, and a note for each value that a plan cannot hold."""
    given = {name: value for name, value in stated.items() if value is not None}
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    plan, dropped = from_text(texts, base)
    return plan, [f"{name}: the log's {given[name]} is left out: {why}" for name, why in dropped.items()]


def _block_size(log: EngineLog) -> int | None:
    """Tokens of a block where the engine has a size of its own; SGLang's pages hold one unless it says otherwise."""
    return log.block_size or (1 if log.engine == "sglang" else None)


def calibrated_plan(log: EngineLog, plan: Plan) -> tuple[Plan, list[str]]:
    """The plan with what was measured in place of what is estimated: weights, activations, workspace and pool; and a
    note for each size that a plan cannot hold. Sizes below zero, as other processes leave them, stay estimates."""
    measured = {
        "weights_gib": None if log.weights_gib is None else log.weights_gib * plan.tp * plan.pp,
        "activation_gib": log.activation_gib,
        "non_torch_gib": log.non_torch_gib,
        "cuda_graph_gib": log.cuda_graph_estimate_gib,
        "gpu_memory_gib": log.total_gib,
        "kv_cache_memory_bytes": None if log.pool_gib is None else whole_bytes(max(0.0, log.pool_gib)),
    }
    return _with({name: value for name, value in measured.items() if value is not None and value >= 0}, plan)


def _device(log: EngineLog) -> GpuSpec | None:
    """The GPU whose memory the printed total is near; of several the one whose default step is the log's, then the
    nearest, then the fastest."""
    if log.total_gib is None:
        return None

    def off(gpu: GpuSpec) -> tuple[bool, float, int]:
        default = scheduler_defaults(device_bytes=gpu.total_bytes, device_name=gpu.name, usage="server")
        another_step = log.max_num_batched_tokens not in (None, default.max_num_batched_tokens)
        return another_step, round(abs(gpu.total_bytes / GIB - log.total_gib), 1), -gpu.bandwidth_bytes_per_s

    near = [
        gpu
        for gpu in catalog.library("gpu").specs.values()
        if abs(gpu.total_bytes / GIB - log.total_gib) <= SAME_DEVICE * log.total_gib
    ]
    return min(near, key=off, default=None)


def _rows(log: EngineLog, report: Report | None, own: Report | None) -> Iterator[Row]:
    """Every figure of the log that a prediction stands beside, and those it has alone."""
    memory = report.memory if report else None
    engine = report.engine if report and not report.engine.refused else None
    of_pool = own.engine if own else None
    gib: dict[str, tuple[str, Callable]] = {
        "weights_gib": ("Weights", lambda: memory.weight_bytes),
        "activation_gib": ("Activation peak", lambda: memory.activation_bytes),
        "non_torch_gib": ("Non-torch memory", lambda: memory.non_torch_bytes),
        "cuda_graph_estimate_gib": ("CUDA graphs, expected", lambda: memory.cuda_graph_bytes or None),
        "pool_gib": ("KV pool", lambda: memory.signed_pool_bytes),
    }
    for name, (what, size) in gib.items():
        measured = getattr(log, name)
        if measured is not None:
            predicted = None if memory is None else size()  # None too where an engine takes no graphs off its pool
            yield Row(what, "GiB/device", measured, None if predicted is None else round(predicted / GIB, 2))
    plain = {
        "num_blocks": ("Blocks", "blocks"),
        "kv_cache_tokens": ("KV cache tokens", "tokens"),
        "max_concurrency": ("Concurrency", "requests"),
        "needed_bytes": ("Needed for one request", "GiB/device"),
        "suggested_context": ("Suggested length", "tokens"),
    }
    for name, (what, unit) in plain.items():
        measured = log.needed_gib if name == "needed_bytes" else getattr(log, name)
        if measured is not None:
            yield Row(what, unit, measured, _plain(engine, name), _plain(of_pool, name))
    for name, what in (("k_gib", "Keys"), ("v_gib", "Values"), ("cuda_graph_gib", "CUDA graphs, taken")):
        if getattr(log, name) is not None:
            yield Row(what, "GiB/device", getattr(log, name), None)


def _plain(engine, name: str) -> float | int | None:
    if engine is None:
        return None
    value = getattr(engine, name)
    return round(value / GIB, 2) if name == "needed_bytes" else round(value, 2) if isinstance(value, float) else value


def _reasons(
    log: EngineLog, plan: Plan, report: Report, own: Report | None, model: ModelSpec | None
) -> Iterator[Reason]:
    """The likely reasons, one a difference."""
    yield from _reasons_of_log(log)
    yield from _pool_reasons(log, plan, report)
    yield from _part_reasons(log, plan, report)
    if own is not None:
        yield from _token_reasons(log, plan, own, model)


def _reasons_of_log(log: EngineLog) -> Iterator[Reason]:
    """What can be said of a log without any prediction."""
    if log.ranks:
        pools = [rank.available_kv_gib for rank in log.ranks if rank.available_kv_gib is not None]
        if pools and log.pool_gib is not None and max(pools) > log.pool_gib:
            yield Reason(
                "KV pool",
                "smallest rank",
                f"the rank with the smallest pool sets the limit for all: {log.pool_gib:g} GiB here, up to "
                f"{max(pools):g} GiB on the others",
            )
    if (log.tp or 1) * (log.pp or 1) > 1:
        yield Reason(
            "KV pool",
            "per rank",
            "every size in the log is of one rank; tokens are of the whole, as each rank holds a share of every token",
        )
    if log.engine == "llama.cpp":
        sentence = "llama.cpp sizes its cache by the context it is given (n_ctx), not by the memory that is left"
        yield Reason("KV cache tokens", "given context", sentence)
    if log.engine == "sglang":
        yield Reason("Keys", "GB are GiB", "SGLang divides by 2^30 and writes GB: its sizes are GiB")
    if _is_older_line(log):
        yield Reason(
            "KV cache tokens",
            "older token line",
            f"{log.max_concurrency:g} requests of {count(log.max_model_len)} are more than the tokens printed: until "
            "spring 2026 that line was blocks ÷ groups × block; concurrency is right",
        )
    if log.kv_cache_memory_bytes is not None:
        yield Reason("KV pool", "explicit size", "the pool was given in bytes, so utilization decides nothing")
    held = None if log.total_gib is None or log.free_gib is None else log.total_gib - log.free_gib
    if held is not None and held > HELD_BY_OTHERS_GIB:
        yield Reason(
            "KV pool", "other processes", f"{held:.1f} GiB of the device were taken before the engine began, by others"
        )
    if log.error and log.needed_gib is not None and log.pool_gib is not None:
        yield Reason(
            "Needed for one request",
            "does not fit",
            f"one request of {count(log.max_model_len or 0)} tokens needs {log.needed_gib:g} GiB and the pool has "
            f"{log.pool_gib:g}: shorten it, raise utilization, or spread the model",
        )


def _is_older_line(log: EngineLog) -> bool:
    """Whether the tokens printed are fewer than concurrency × length, beyond rounding: a model of several groups."""
    if None in (log.kv_cache_tokens, log.max_concurrency, log.max_model_len):
        return False
    return log.kv_cache_tokens < 0.99 * (log.max_concurrency - 0.005) * log.max_model_len


def _pool_reasons(log: EngineLog, plan: Plan, report: Report) -> Iterator[Reason]:
    """Why the pool is another than predicted."""
    measured, memory = log.pool_gib, report.memory
    if measured is None:
        return
    predicted = memory.signed_pool_bytes / GIB
    if abs(measured - predicted) <= SAME_POOL * memory.total_bytes / GIB or log.kv_cache_memory_bytes is not None:
        return
    if plan.gpu in UNIFIED:
        yield Reason(
            "KV pool",
            "unified memory",
            "memory is shared with the system: page cache and other processes count as taken, other ones at each start",
        )
    for factor, what in ((GB_FOR_GIB, "less"), (1 / GB_FOR_GIB, "more")):
        if predicted > 0 and abs(measured / predicted - factor) < 0.004:
            yield Reason("KV pool", "GB for GiB", f"7% {what}: a size in GB was taken for GiB, or the other way round")
    if log.cuda_graph_estimate_gib and (memory.cuda_graph_bytes or 0) / GIB < log.cuda_graph_estimate_gib - 1:
        yield Reason(
            "KV pool",
            "graphs",
            f"the engine set {log.cuda_graph_estimate_gib:g} GiB aside for CUDA graphs, more than is expected here",
        )


def _part_reasons(log: EngineLog, plan: Plan, report: Report) -> Iterator[Reason]:
    """Why weights, activations or non-torch memory are others than predicted."""
    memory, setting = report.memory, report.setting
    weights = memory.weight_bytes / GIB
    if log.weights_gib is not None and abs(log.weights_gib - weights) > max(SAME_PART_GIB, 0.015 * weights):
        times = log.weights_gib / weights if weights else 0
        if (log.dp or 1) > 1 and report.setting.model.num_experts:
            sentence = (
                f"with {log.dp} engines side by side experts may be spread over all; the prediction is of one alone"
            )
            yield Reason("Weights", "data parallel", sentence)
        elif plan.tp > 1 and abs(times - plan.tp) < 0.05 * plan.tp:
            sentence = "the log gives the weights of all ranks, the prediction those of one"
            yield Reason("Weights", "total for one rank", sentence)
        elif log.weights_gib > weights:
            yield Reason(
                "Weights",
                "more is loaded",
                "more than the model's share: an encoder or draft model, padding of the kernels, or another width of "
                "the weights",
            )
        else:
            yield Reason("Weights", "less is loaded", "less than the released size: the weights are stored narrower")
    activation = memory.activation_bytes / GIB
    if log.activation_gib is not None and abs(log.activation_gib - activation) > max(SAME_PART_GIB, 0.1 * activation):
        yield _activation_reason(log, setting, activation)
    non_torch = None if memory.non_torch_bytes is None else memory.non_torch_bytes / GIB
    if log.non_torch_gib is not None and non_torch is not None and log.non_torch_gib > non_torch + 1:
        yield Reason(
            "Non-torch memory",
            "other processes",
            "more than context and collectives take: other processes grew while the engine measured, or held memory at "
            "its baseline",
        )


def _activation_reason(log: EngineLog, setting, predicted: float) -> Reason:
    """The peak follows the vocabulary and the most sequences; most surprises are one of the two limits."""
    if log.cuda_graph_estimate_gib and abs(log.activation_gib - log.cuda_graph_estimate_gib - predicted) < 0.5:
        return Reason(
            "Activation peak", "graphs inside", "this engine writes its estimate of the CUDA graphs into the peak"
        )
    if log.activation_gib < predicted:
        return Reason(
            "Activation peak",
            "smaller step",
            "smaller than the limits allow: fewer sequences or tokens in the measured step, or a rank that does not "
            "sample",
        )
    return Reason(
        "Activation peak",
        "larger step",
        f"larger than {count(setting.max_num_seqs)} sequences and {count(setting.max_num_batched_tokens)} tokens take: "
        "max_num_seqs or max_num_batched_tokens is higher, an encoder was measured, or prefill was not chunked and the "
        "step held the whole context",
    )


def _token_reasons(log: EngineLog, plan: Plan, own: Report, model: ModelSpec | None) -> Iterator[Reason]:
    """Why tokens, blocks and concurrency do not follow from the log's own pool, and what they mean where they do."""
    parts = 1 if log.available_kv_gib is not None else 2  # keys and values are rounded each
    rounding = parts * ROUNDING_GIB
    least, most = (evaluate(with_pool(plan, log.pool_gib + side), model) for side in (-rounding, rounding))
    engine = own.engine
    kinds = {group.kind for group in own.setting.model.groups} - {"none"}
    tokens = log.kv_cache_tokens
    if tokens is not None and engine.kv_cache_tokens:
        if least.engine.kv_cache_tokens <= tokens <= most.engine.kv_cache_tokens:
            if len(kinds) > 1 or "sliding" in kinds:
                yield CONCURRENCY_TIMES_LENGTH
        elif least.engine.older_token_line <= tokens <= most.engine.older_token_line and not _is_older_line(log):
            yield Reason(
                "KV cache tokens",
                "older token line",
                "blocks ÷ groups × block, as vLLM printed until spring 2026 and other engines do; the same pool holds "
                f"{count(engine.kv_cache_tokens)} tokens by concurrency × length",
            )
        elif (
            SMALLEST_RANK * engine.kv_cache_tokens < tokens < engine.kv_cache_tokens
            and len(log.ranks) + 1 < plan.tp * plan.pp
        ):
            needed = log.pool_gib * tokens / engine.kv_cache_tokens
            yield Reason(
                "KV cache tokens",
                "smallest rank",
                f"another rank has the smaller pool: these tokens take {needed:.2f} GiB, and this rank has "
                f"{log.pool_gib:g}",
            )
        elif {"sliding", "chunked", "compressed"} & kinds:
            if log.max_concurrency is not None and not _is_older_line(log):
                yield CONCURRENCY_TIMES_LENGTH
            yield Reason(
                "KV cache tokens",
                "window reserve",
                "windows keep room for the tokens in flight: another max_num_batched_tokens, or an engine without "
                "async scheduling, books another share",
            )
        else:
            yield Reason(
                "KV cache tokens",
                "another layout",
                "another cache dtype, block size, draft layers or engine version than the plan has",
            )
    if own.engine.groups and len({group.layers for group in own.engine.groups}) > 1:
        yield Reason(
            "Blocks",
            "padding",
            "groups of unequal size share one pool, so a block costs what the largest takes and the smaller ones waste "
            "the rest",
        )


def _missing(log: EngineLog, plan: Plan, served: bool, base: Plan | None, changes: dict[str, str]) -> Iterator[str]:
    """What the log leaves open that a better prediction needs."""
    if log.engine is None:
        yield "nothing of a start-up was found: paste the lines from the start to 'Maximum concurrency' or the error"
        return
    if log.cut:
        yield f"the beginning: of a text over {MAX_MIB} MiB or {count(MAX_LINES)} lines only the end is read"
    if (log.dp or 1) > 1:
        yield f"dp: {log.dp} engines side by side, of which a plan has one; figures are those of the smallest"
    if preset_of(log.model) is None and not {"model", "spec"} & set(changes):
        name = f" named {shorten(log.model)!r}" if log.model else ""
        taken = f"{plan.model} is taken" if served else "set model, or spec from its config.json"
        yield f"model: no preset{name}; {taken}"
    if "gpu" not in changes:
        why = "the log names none" if log.total_gib is None else f"told from its {log.total_gib:g} GiB alone"
        yield f"gpu: {why}; {plan.gpu} is taken"
    open_fields = {"tp": log.tp, "context": log.max_model_len}
    if log.engine == "vllm":
        open_fields |= {"gpu_memory_utilization": log.gpu_memory_utilization, "engine_version": log.version}
    for name, stated in open_fields.items():
        if stated is None and name not in changes:
            yield f"{name}: not stated; {getattr(plan, name) or 'the default'} is taken"
