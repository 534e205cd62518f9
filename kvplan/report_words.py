"""The report as text, for a terminal."""

from __future__ import annotations

from kvplan import verdict
from kvplan.breakdown import KIND_NAMES
from kvplan.report import Report
from kvplan.units import binary, count, duration, gib, mean, percent, usd


def as_text(report: Report) -> str:
    """The verdict, every figure with what it counts, held and booked where there are several kinds of layer, notes and
    sources."""
    answer = verdict.ceiling(report)
    rows = [f"  {name:<20} {value:>12}  {what}" for name, value, what in _rows(report)]
    rows += [""] + [f"  {line}" for line in _breakdown_lines(report)] if len(report.breakdown) > 1 else []
    notes = [f"note: {note}" for note in report.notes]
    sources = [
        f"source: {name}: {source.text}{f' ({source.mark})' if source.mark else ''}"
        for name, source in report.sources.items()
    ]
    return "\n".join([verdict.plain(answer.sentence), verdict.plain(answer.reason), "", *rows, "", *notes, *sources])


def _breakdown_lines(report: Report) -> list[str]:
    """Held and booked by kind of layer, where there are several."""
    lines = [
        f"{KIND_NAMES[cost.kind]} × {cost.layers}: held {gib(cost.bytes_held, 3)}, booked {gib(cost.bytes_booked, 3)} "
        f"in {count(cost.blocks)} blocks. {cost.reason}"
        for cost in report.breakdown
    ]
    return [*lines, *report.remarks]


def _band(band_bytes: int) -> str:
    return f"per device, an estimate, ± {gib(band_bytes)} in nine of ten" if band_bytes else "per device"


def _rows(report: Report) -> list[tuple[str, str, str]]:
    """The report as rows (name, value, what it counts)."""
    cache, memory, engine, capacity = report.cache, report.memory, report.engine, report.capacity
    batching, paging = report.batching, report.paging
    return [
        ("batch ceiling", count(capacity.batch_ceiling), f"sequences, {verdict.BINDING[capacity.binding]}"),
        ("memory ceiling", count(capacity.memory_ceiling), "sequences by reservation, before other limits"),
        (
            "on demand",
            count(capacity.on_demand_ceiling) if engine.fits else "none",
            "sequences on average, by memory, not a guarantee",
        ),
        ("smallest tp", str(capacity.min_tp or "none"), "at which one request of this context starts"),
        ("cache per token", binary(cache.bytes_per_token), f"per device, {binary(cache.bytes_per_token_total)} in all"),
        ("request held", gib(cache.request_bytes_held, 3), "per device, what its tokens occupy"),
        ("request booked", gib(cache.request_bytes_booked, 3), "per device, what the engine sets aside"),
        ("device", gib(memory.total_bytes, 2), "total the driver reports"),
        ("  weights", gib(memory.weight_bytes, 2), "per device"),
        ("  activations", gib(memory.activation_bytes, 2), "per device"),
        ("  workspace", gib(memory.workspace_bytes, 2), "per device, non-torch memory and CUDA graphs"),
        ("  allocator overhead", gib(memory.overhead_bytes, 2), "per device, a share of the pool"),
        ("  KV pool", gib(memory.pool_bytes, 2), _band(memory.pool_band_bytes)),
        ("  left free", gib(memory.left_free_bytes, 2), "per device, what utilization leaves to others"),
        ("  shortfall", gib(memory.shortfall_bytes, 2), "per device, missing before any pool"),
        ("blocks", count(engine.num_blocks), f"of {count(engine.block_size)} tokens, as the engine prints them"),
        ("KV cache tokens", count(engine.kv_cache_tokens), "as the engine prints them"),
        ("concurrency", f"{engine.max_concurrency:.2f}x", "requests of this context, as the engine prints it"),
        ("static batching", percent(batching.static_utilisation), f"of slots used at batch {count(batching.batch)}"),
        ("continuous gain", f"{batching.gain:.2f}x", "tokens in the same steps"),
        ("block waste", percent(paging.waste_share), f"of booked slots, {paging.waste_tokens:.1f} tokens a sequence"),
        ("contiguous waste", percent(paging.contiguous_waste_share), "of slots, if each request reserved the context"),
        *_rate_rows(report),
    ]


def _rate_rows(report: Report) -> list[tuple[str, str, str]]:
    """Throughput, latency and fleet, where they are known."""
    found, needed = report.throughput, report.fleet
    if not found.batch:
        return []
    bound = {"memory_bandwidth": "reading", "compute": "computing"}[found.binding]
    rows = [
        (
            "output tokens/s",
            mean(found.tokens_per_s),
            f"a replica, an estimate, with {count(found.batch)} in the system",
        ),
        ("requests/s", f"{found.requests_per_s:.2f}", f"each {duration(found.e2e_s)} in the system"),
        ("TTFT", duration(found.ttft_s), "of a mean prompt, without a queue"),
        ("TPOT", duration(found.tpot_s), f"a decode step is {duration(found.decode_step_s)}, most of it {bound}"),
        ("within targets", count(found.meeting_batch), "largest batch up to this one that meets TTFT and TPOT"),
        (
            "critical batch",
            mean(found.critical_batch),
            "tokens a step, where computing takes as long as reading weights",
        ),
    ]
    if needed.replicas is not None:
        spare = f"with {needed.spare_replicas} spare {count(needed.gpus)} GPUs, {usd(needed.usd_per_hour)} an hour"
        rows.append(("replicas", count(needed.replicas), f"for both targets at the peak, by the closed form; {spare}"))
    return rows
