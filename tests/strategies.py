"""Valid plans for property tests: ordinary values most of the time, and every bound of every field."""

import json
from pathlib import Path

from hypothesis import strategies as st

from kvplan import Plan, model_from_hf_config, presets
from kvplan.texts import spec_text, table_text

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text())
"""Published config.json files by model, reduced to the fields that say how a model caches."""

MOST_GIB = 2.0**20
ONE_BYTE_GIB = 2.0**-30
CACHE_DTYPES = (
    "bf16",
    "fp16",
    "fp32",
    "fp8",
    "fp8_e5m2",
    "fp8_per_token_head",
    "int8",
    "int8_per_token_head",
    "int4",
)
WEIGHT_DTYPES = ("bf16", "fp16", "fp32", "fp8", "int8", "int4")
STATE_DTYPES = ("bf16", "fp16", "fp32")
SPEC_METHODS = ("ngram", "suffix", "mtp", "eagle3")
OTHER_SPELLINGS = ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-70B", "qwen3-8b-base")
UNKNOWN_IDS = ("no-such-thing", "llama-9-8b", "h1000", "a b&c=d?#%+", "ü" * 200, "auto", "x")


def whole(ordinary, least, most):
    """Whole numbers: often one of the ordinary ones, else anything from `least` to `most`, the bounds included."""
    return st.one_of(st.sampled_from(ordinary), st.integers(least, most), st.sampled_from((least, most)))


def real(ordinary, least, most):
    """The same for real numbers."""
    return st.one_of(st.sampled_from(ordinary), st.floats(least, most), st.sampled_from((least, most)))


def seldom(values):
    """None three times in four: for fields that replace the model or the workload."""
    return st.integers(0, 3).flatmap(lambda roll: st.none() if roll else values)


def fractions():
    return real((0.0, 0.05, 0.5, 0.9, 0.92), 0.0, 1.0)


def known_ids(kind):
    ids = presets(kind)
    return st.sampled_from([*ids, *OTHER_SPELLINGS] if kind == "model" else ids)


def ids(kind):
    """An id: nine in ten name a preset."""
    return st.integers(0, 9).flatmap(lambda roll: known_ids(kind) if roll else st.sampled_from(UNKNOWN_IDS))


WIDTHS = st.sampled_from((64, 80, 96, 128, 256)) | st.integers(1, 1024)
WINDOWS = st.sampled_from((128, 512, 1024, 4096)) | st.integers(1, 2**20)


@st.composite
def group_words(draw):
    """One run of plain layers as the text of a plan writes it."""
    kind = draw(st.sampled_from(("full", "full", "sliding", "chunked")))
    window = "" if kind == "full" else draw(WINDOWS)
    value = draw(st.none() | WIDTHS)
    shape = f"{draw(st.integers(1, 48))}x{draw(st.sampled_from((1, 2, 4, 8, 16)))}x{draw(WIDTHS)}"
    return f"{kind}{window}:{shape}{'' if value is None else f'/{value}'}"


def group_texts():
    """Runs of plain, sliding and chunked layers as text, some of them a repeated pattern."""
    runs = st.lists(group_words(), min_size=1, max_size=4).map(",".join)
    repeated = st.tuples(runs, st.integers(1, 10)).map(lambda parts: f"({parts[0]})*{parts[1]}")
    return st.lists(runs | repeated, min_size=1, max_size=2).map(",".join)


def tables():
    """Workload rows as a plan carries them."""
    row = st.tuples(st.integers(1, 10_000), st.integers(1, 20_000), st.integers(0, 200_000))
    return st.lists(row, min_size=1, max_size=20).map(table_text)


VERSIONS = st.one_of(
    st.sampled_from(("0.6.3.post1", "0.8.5", "0.11.0", "0.17", "0.19.1", "v0.29.1rc1.dev339+g1a2b3c4")),
    st.tuples(st.integers(0, 9999), st.integers(0, 9999)).map("{0[0]}.{0[1]}".format),
)
"""Versions of an engine, long ones and any number of major and minor."""

PACKED_MODELS = {name: spec_text(model_from_hf_config(config, id=name)) for name, config in CONFIGS.items()}
"""Every model of the configs as one word of a link."""

FIELDS = {
    "model": ids("model"),
    "layers": st.none() | whole((1, 16, 32, 61, 80), 1, 4096),
    "kv_heads": st.none() | whole((1, 2, 4, 8, 96), 1, 4096),
    "head_dim": st.none() | whole((64, 80, 128, 256), 1, 65536),
    "weights_gib": st.none() | real((0.0, 14.96, 35.0, 131.5), 0.0, MOST_GIB),
    "weight_dtype": st.none() | st.sampled_from(WEIGHT_DTYPES),
    "groups": seldom(group_texts()),
    "spec": seldom(st.sampled_from(sorted(PACKED_MODELS.values()))),
    "gpu": ids("gpu"),
    "gpu_memory_gib": st.none() | real((22.05, 24.0, 79.1, 141.0), ONE_BYTE_GIB, MOST_GIB),
    "tp": whole((1, 2, 4, 8, 16), 1, 64),
    "pp": whole((1, 2, 3, 4), 1, 64),
    "dcp": seldom(whole((2, 4, 8), 1, 64)).map(lambda dcp: dcp or 1),
    "enable_expert_parallel": st.booleans(),
    "engine_version": st.none() | VERSIONS,
    "gpu_memory_utilization": st.none() | fractions(),
    "mem_fraction_static": seldom(fractions()),
    "activation_gib": st.none() | real((0.0, 2.0, 5.0), 0.0, MOST_GIB),
    "non_torch_gib": st.none() | real((0.0, 0.27, 2.1), 0.0, MOST_GIB),
    "cuda_graph_gib": st.none() | real((0.0, 0.78), 0.0, MOST_GIB),
    "workspace_gib": st.none() | real((0.0, 0.5), 0.0, MOST_GIB),
    "enforce_eager": st.booleans(),
    "allocator_overhead_fraction": fractions(),
    "kv_cache_memory_bytes": st.none() | whole((35_755_602_739, 2**36), 0, 2**50),
    "context": whole((256, 2048, 8192, 32768, 131072), 1, 2**24),
    "kv_dtype": st.sampled_from(("auto", *CACHE_DTYPES)),
    "v_dtype": st.none() | st.sampled_from(CACHE_DTYPES),
    "block_size": st.none() | whole((1, 16, 24, 32, 256), 1, 65536),
    "mamba_ssm_cache_dtype": st.none() | st.sampled_from(STATE_DTYPES),
    "usage": st.sampled_from(("server", "llm_class")),
    "max_num_seqs": st.none() | whole((16, 256, 1024), 1, 2**20),
    "max_num_batched_tokens": st.none() | whole((2048, 8192), 1, 2**24),
    "async_scheduling": st.booleans(),
    "enable_prefix_caching": st.booleans(),
    "disable_hybrid_kv_cache_manager": st.booleans(),
    "spec_method": seldom(st.sampled_from(SPEC_METHODS)),
    "spec_tokens": whole((0, 1, 5), 0, 64),
    "shared_prefix_tokens": whole((0, 100, 1000, 4096), 0, 2**24),
    "admission": st.sampled_from(("reserve", "on_demand")),
    "max_tokens": st.none() | whole((1, 256, 1024), 1, 2**24),
    "tenant_quota_fraction": st.none() | fractions(),
    "workload": st.one_of(st.just("auto"), ids("workload")),
    "prompt_mean": real((1.0, 512.5, 1024.0), 1.0, 2.0**24),
    "output_mean": real((1.0, 100.25, 256.0), 1.0, 2.0**24),
    "output_dist": st.sampled_from(("exponential", "uniform", "fixed")),
    "table": seldom(tables()),
    "batch": st.none() | whole((1, 8, 64, 512), 1, 2**20),
    "arrival_rate": st.none() | real((0.0, 5.53), 0.0, 2.0**24),
    "arrival_cv": st.none() | real((0.0, 1.09), 0.0, 2.0**24),
    "step_s": st.none() | real((0.02, 0.035), 1e-6, 3600.0),
    "dp": whole((1, 2, 8), 1, 2**20),
    "prefix_hit_rate": st.none() | fractions(),
    "acceptance_rate": st.none() | fractions(),
    "bandwidth_efficiency": st.none() | real((0.7, 0.85), 0.01, 1.0),
    "compute_efficiency": st.none() | real((0.4, 0.6), 0.01, 1.0),
    "step_overhead_s": st.none() | real((0.0, 0.001), 0.0, 3600.0),
    "ttft_s": st.none() | real((0.5, 2.0), 1e-6, 3600.0),
    "tpot_s": st.none() | real((0.02, 0.05), 1e-6, 3600.0),
    "peak_to_mean": st.none() | real((1.0, 1.5), 1.0, 1000.0),
    "spare_replicas": whole((0, 1, 2), 0, 2**20),
    "gpu_hour_usd": st.none() | real((0.0, 2.5), 0.0, 2.0**24),
    "price_date": st.none() | st.sampled_from(("2026-11", "2026-11-30")),
}
KNOWN_IDS = {
    "model": known_ids("model"),
    "gpu": known_ids("gpu"),
    "workload": st.just("auto") | known_ids("workload"),
}


def plans(**fixed):
    """Any valid plan. About half of its fields are at their defaults; `fixed` are values or strategies of fields."""
    chosen = {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fixed.items()}
    free = {name: values for name, values in FIELDS.items() if name not in chosen}
    return st.fixed_dictionaries(chosen, optional=free).map(lambda fields: Plan(**fields))


def known_plans(**fixed):
    """Valid plans whose ids all name a preset."""
    return plans(**(KNOWN_IDS | fixed))


SERVED = {
    "tp": st.sampled_from((1, 2, 4, 8)),
    "pp": st.sampled_from((1, 1, 2, 3)),
    **dict.fromkeys(("layers", "kv_heads", "head_dim", "weights_gib"), st.none()),
}
"""Fields under which most models are served as they are."""
