"""A start-up log gives the figures it states, whatever wraps, repeats or damages it, and no figure it does not."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan import EngineLog, parse_engine_log
from kvplan.engine_log import FLAGS, TEXTS, RankFigures
from kvplan.log_patterns import PATTERNS
from kvplan.log_text import MAX_BYTES

LOGS = Path(__file__).parents[2] / "shared" / "logs" / "engine_logs.jsonl"
ROWS = [json.loads(line) for line in LOGS.read_text().splitlines()] if LOGS.is_file() else []
beside_logs = pytest.mark.skipif(not ROWS, reason="the collected start-up logs are not on this machine")

FIGURES = {
    "weights_gib": "weights_gib",
    "activation_gib": "activation_gib",
    "non_torch_gib": "non_torch_gib",
    "cuda_graph_gib": "cuda_graph_gib",
    "available_kv_gib": "available_kv_gib",
    "kv_tokens": "kv_cache_tokens",
    "num_gpu_blocks": "num_blocks",
    "max_concurrency": "max_concurrency",
    "error_needed_gib": "needed_gib",
    "error_estimated_max_len": "suggested_context",
    "k_size_gib": "k_gib",
    "v_size_gib": "v_gib",
    "max_model_len": "max_model_len",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "mem_fraction_static": "mem_fraction_static",
    "tp": "tp",
    "dp": "dp",
}
"""What a row of the collected logs calls a figure -> the field of a parsed log."""
WORDS = {
    "vllm": ("model", "kv_cache_dtype", "quantization"),
    "sglang": ("model", "kv_cache_dtype", "quantization"),
    "llama.cpp": ("model", "kv_cache_dtype"),
    "ik_llama.cpp": ("model",),
    "tensorrt-llm": (),
    "vllm.rs/xinfer": (),
}
"""The words that each engine states beside its figures."""
NOT_STATED = {"tensorrt-llm": {"tp"}}
NO_SPELLING = {"FreeToken"}
"""Engines of the collected logs whose lines are not known."""


# Every collected log, written again in its engine's words


def written(found, template):
    """A line, where the row has all of its figures."""
    try:
        return [template.format_map(found)]
    except KeyError:
        return []


def settings_text(found, names, separator="=", quote="'"):
    """The settings of a row as the engine lists them."""
    quoted = {name: f"{quote}{found[row]}{quote}" for name, row in names.items() if isinstance(found.get(row), str)}
    plain = {name: str(found[row]) for name, row in names.items() if isinstance(found.get(row), (int, float))}
    return ", ".join(f"{name}{separator}{value}" for name, value in (quoted | plain).items())


VLLM_CONFIG = {
    "tensor_parallel_size": "tp", "data_parallel_size": "dp", "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
}  # fmt: skip


def vllm_opening(found):
    version = found.get("version", "0.0.0")
    arguments = settings_text(found, {"'gpu_memory_utilization'": "gpu_memory_utilization"}, ": ")
    return [
        f"INFO 08-14 14:07:20 [api_server.py:1896] vLLM API server version {version}",
        f"INFO 08-14 14:07:20 [utils.py:233] non-default args: {{{arguments}}}",
        f"INFO 08-14 14:07:25 [core.py:77] Initializing a V1 LLM engine (v{version}) with config: "
        f"model='{found['model']}', {settings_text(found, VLLM_CONFIG)}",
    ]


def vllm(found):
    """vLLM since 0.8."""
    return [
        *vllm_opening(found),
        *written(found, "INFO [gpu_model_runner.py:2653] Model loading took {weights_gib} GiB and 3.214 seconds"),
        *written(found, "INFO [gpu_worker.py:298] Available KV cache memory: {available_kv_gib} GiB"),
        *written(found, "INFO [kv_cache_utils.py:1087] GPU KV cache size: {kv_tokens:,} tokens"),
        *written(found, "INFO [core.py:130] num_gpu_blocks is: {num_gpu_blocks}"),
        *written(
            {"max_model_len": 8192} | found,
            "INFO [kv_cache_utils.py:1091] Maximum concurrency for {max_model_len:,} tokens per request: "
            "{max_concurrency:.2f}x",
        ),
        *(
            []
            if "max_concurrency" in found
            else written(found, "INFO [model.py:1510] Using max model len {max_model_len}")
        ),
        *written(
            found, "INFO [gpu_model_runner.py:3480] Graph capturing finished in 4 secs, took {cuda_graph_gib} GiB"
        ),
        *written(
            found,
            "ValueError: To serve at least one request with the models's max seq len ({max_model_len}), "
            "({error_needed_gib} GiB KV cache is needed, which is larger than the available KV cache memory "
            "({available_kv_gib} GiB). Based on the available memory, the estimated maximum model length is "
            "{error_estimated_max_len}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.",
        ),
    ]


def vllm_v0(found):
    """vLLM before 0.8: one sentence on the memory since 0.7, one line of results in 0.6, blocks alone before."""
    cut = f", max_seq_len={found['max_model_len']}" if "max_model_len" in found else ""
    return [
        "INFO 01-22 03:08:58 api_server.py:712] vLLM API server version " + found.get("version", "0.6.6"),
        f"INFO 01-22 03:08:59 llm_engine.py:237] Initializing an LLM engine (v0.6.6) with config: "
        f"model='{found['model']}', {settings_text(found, VLLM_CONFIG)}{cut}",
        *written(found, "INFO args: gpu_memory_utilization={gpu_memory_utilization}, swap_space=4"),
        *written(found, "INFO 01-22 03:09:12 model_runner.py:1099] Loading model weights took {weights_gib} GB"),
        *written(
            found,
            "INFO 01-22 03:09:14 worker.py:241] model weights take {weights_gib:.2f}GiB; non_torch_memory takes "
            "{non_torch_gib}GiB; PyTorch activation peak memory takes {activation_gib}GiB; the rest of the memory "
            "reserved for KV Cache is {available_kv_gib}GiB.",
        ),
        *written(
            found if "activation_gib" not in found else {},
            "INFO 11-21 09:10:02 worker.py:232] Memory profiling results: total_gpu_memory=47.74GiB "
            "initial_memory_usage=42.62GiB peak_torch_memory=40.87GiB non_torch_memory={non_torch_gib}GiB "
            "kv_cache_size={available_kv_gib}GiB gpu_memory_utilization={gpu_memory_utilization:.2f}",
        ),
        *written(found, "INFO 01-22 03:09:15 executor_base.py:110] # GPU blocks: {num_gpu_blocks}, # CPU blocks: 2048"),
        *written(
            found,
            "INFO 01-22 03:09:15 executor_base.py:115] Maximum concurrency for {max_model_len} tokens per request: "
            "{max_concurrency:.2f}x",
        ),
        *written(
            found,
            "ValueError: The model's max seq len ({max_model_len}) is larger than the maximum number of tokens that "
            "can be stored in KV cache ({kv_tokens}). Try increasing `gpu_memory_utilization`.",
        ),
    ]


def sglang(found):
    arguments = {
        "model_path": "model", "kv_cache_dtype": "kv_cache_dtype", "quantization": "quantization",
        "mem_fraction_static": "mem_fraction_static", "tp_size": "tp", "dp_size": "dp",
    }  # fmt: skip
    sizes = {
        "#tokens: {kv_tokens}, K size: {k_size_gib} GB, V size: {v_size_gib} GB": "v_size_gib" in found,
        "#tokens: {kv_tokens}, KV size: {k_size_gib} GB": "k_size_gib" in found and "v_size_gib" not in found,
    }
    return [
        f"[2025-07-22 08:00:00] server_args=ServerArgs({settings_text(found, arguments)}, port=30000)",
        *written(
            found,
            "[2025-07-22 08:01:00 TP0] Load weight end. type=ForCausalLM, dtype=torch.bfloat16, avail mem=59.99 GB, "
            "mem usage={weights_gib} GB.",
        ),
        *written(found, "[2025-07-22 08:01:02 TP0] Memory profiling: rest_memory={available_kv_gib} GB"),
        *[
            f"[2025-07-22 08:01:05 TP0] KV Cache is allocated. {template.format_map(found)}"
            for template, stated in sizes.items()
            if stated
        ],
        *written(
            {"max_model_len": 32768} | found,
            "[2025-07-22 08:02:00 TP0] max_total_num_tokens={kv_tokens}, chunked_prefill_size=8192, "
            "max_prefill_tokens=16384, max_running_requests=2048, context_len={max_model_len}",
        ),
    ]


def tensorrt_llm(found):
    return [
        "[TensorRT-LLM] TensorRT-LLM version: 1.0.0",
        *written(
            found,
            "[TensorRT-LLM][INFO] Allocated {available_kv_gib} GiB for max tokens in paged KV cache ({kv_tokens}).",
        ),
    ]


def llama_cpp(found):
    keys, values = found["k_size_gib"] * 1024, found.get("v_size_gib", 0) * 1024
    return [
        "build: 6123 (0123abcd) with cc for x86_64-linux-gnu",
        f"llama_model_loader: - kv   2:                               general.name str              = {found['model']}",
        *written(found, "llama_context: n_ctx         = {max_model_len}"),
        *written(
            found | {"size": keys + values, "keys": keys, "values": values},
            "llama_kv_cache: size = {size:7.2f} MiB ({kv_tokens:6} cells,  36 layers,  1/1 seqs), "
            "K ({kv_cache_dtype}): {keys:7.2f} MiB, V ({kv_cache_dtype}): {values:7.2f} MiB",
        ),
    ]


def ik_llama_cpp(found):
    size = found["k_size_gib"] * 1024
    return [
        f"llama_model_loader: - kv   2:                               general.name str              = {found['model']}",
        f"llama_new_context_with_model: KV self size  = {size:.2f} MiB, c^KV ({found['kv_cache_dtype']}): "
        f"{size:.2f} MiB, kv^T: not used",
    ]


def vllm_rs(found):
    return written(
        found,
        "{num_gpu_blocks} GPU blocks ({available_kv_gib:.2f} GB x {num_gpus}), "
        "max usable kvcache tokens {kv_tokens} (64k bytes per token)",
    )


SPELLINGS = {
    "vllm": vllm, "sglang": sglang, "tensorrt-llm": tensorrt_llm, "llama.cpp": llama_cpp, "ik_llama.cpp": ik_llama_cpp,
    "vllm.rs/xinfer": vllm_rs,
}  # fmt: skip


def engine_of(row):
    """The engine whose lines a row's engine prints: forks print those of what they were forked from."""
    name = row["engine"].split(" ")[0]
    return name if name in SPELLINGS else None


def is_v0(row):
    return row.get("engine_version", "").startswith(("V0", "0.2.", "0.6.")) and engine_of(row) == "vllm"


def rebuilt(row):
    """The log of a row, in its engine's words."""
    first_words = {name: row[name].split()[0] for name in ("model", "kv_cache_dtype", "quantization") if name in row}
    found = row | first_words
    if re.fullmatch(r"\d+\.\d+\.[\w.+]+", row.get("engine_version", "")):
        found["version"] = row["engine_version"]
    return "\n".join((vllm_v0 if is_v0(row) else SPELLINGS[engine_of(row)])(found))


@beside_logs
def test_every_engine_of_the_collected_logs_has_its_lines_or_is_named():
    assert {row["engine"] for row in ROWS if engine_of(row) is None} == NO_SPELLING


READ = [row for row in ROWS if engine_of(row)]
each_log = pytest.mark.parametrize("row", READ, ids=[row["id"] for row in READ])


@beside_logs
@each_log
def test_a_collected_log_gives_its_figures(row):
    """Public start-up logs as collected: every figure, written as the engine writes it and read again."""
    log = parse_engine_log(rebuilt(row))
    engine = engine_of(row)
    assert log.engine == engine.removeprefix("ik_").removesuffix("/xinfer")
    stated = {field: row[name] for name, field in FIGURES.items() if name in row}
    stated = {field: value for field, value in stated.items() if field not in NOT_STATED.get(engine, ())}
    assert {field: getattr(log, field) for field in stated} == pytest.approx(stated, abs=0.005)
    words = {name: row[name].split()[0] for name in WORDS[engine] if name in row}
    assert {name: getattr(log, name) for name in words} == words
    assert (log.starts, log.cut, log.ranks) == (1, False, ())


@beside_logs
@each_log
def test_a_collected_log_gives_nothing_that_it_does_not_state(row):
    log = parse_engine_log(rebuilt(row))
    silent = {field for name, field in FIGURES.items() if name not in row}
    assumed = {"max_model_len", "tp", "dp"}
    assert {field: getattr(log, field) for field in silent - assumed if getattr(log, field) is not None} == {}
    assert_figures_stand_in(rebuilt(row), log)


# Where a figure stands


NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def assert_figures_stand_in(text, log):
    """Every figure stands in the line that is named for it, and that line in the text."""
    lines = re.split(r"\r\n|\r|\n", text)
    for name, (number, line) in log.lines.items():
        value = getattr(log, name)
        assert "".join(lines[number - 1 :]).lstrip().startswith(line)
        if name in TEXTS:
            assert value in line
        elif name in FLAGS:
            assert str(value) in line
        else:
            numbers = [float(found.replace(",", "")) for found in NUMBER.findall(line)]
            assert any(value in (found, found / 1024) for found in numbers), (name, value, line)
    stated = {name for name, value in vars(log).items() if value is not None}
    assert stated - {"engine", "ranks", "error", "starts", "cut", "lines"} == log.lines.keys()


# What wraps a line


V1 = """\
INFO 08-14 14:07:20 [api_server.py:1896] vLLM API server version 0.11.0
INFO 08-14 14:07:20 [utils.py:233] non-default args: {'model': 'acme/llama-8b', 'gpu_memory_utilization': 0.92}
INFO 08-14 14:07:25 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='acme/llama-8b', \
max_seq_len=32768, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, enforce_eager=False, \
kv_cache_dtype=auto, enable_prefix_caching=True
INFO 08-14 14:07:40 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 3.214 seconds
INFO 08-14 14:08:00 [gpu_worker.py:298] Available KV cache memory: 54.61 GiB
INFO 08-14 14:08:00 [kv_cache_utils.py:1087] GPU KV cache size: 447,376 tokens
INFO 08-14 14:08:00 [kv_cache_utils.py:1091] Maximum concurrency for 32,768 tokens per request: 13.65x
INFO 08-14 14:08:12 [gpu_model_runner.py:3480] Graph capturing finished in 4 secs, took 0.55 GiB
"""
V1_FIGURES = {
    "engine": "vllm",
    "version": "0.11.0",
    "model": "acme/llama-8b",
    "tp": 1,
    "pp": 1,
    "gpu_memory_utilization": 0.92,
    "enforce_eager": False,
    "enable_prefix_caching": True,
    "kv_cache_dtype": "auto",
    "weights_gib": 14.9889,
    "available_kv_gib": 54.61,
    "kv_cache_tokens": 447_376,
    "max_concurrency": 13.65,
    "max_model_len": 32_768,
    "cuda_graph_gib": 0.55,
}
LINE_OF = {"version": 3, "gpu_memory_utilization": 2, "weights_gib": 4, "available_kv_gib": 5, "kv_cache_tokens": 6}
V0 = """\
INFO 01-22 03:08:58 api_server.py:712] vLLM API server version 0.6.6.post1
INFO 01-22 03:08:59 llm_engine.py:237] Initializing an LLM engine (v0.6.6.post1) with config: model='acme/llama-8b', \
tensor_parallel_size=1, quantization=None, kv_cache_dtype=auto
INFO 01-22 03:09:12 model_runner.py:1099] Loading model weights took 14.9595 GB
INFO 01-22 03:09:14 worker.py:241] the current vLLM instance can use total_gpu_memory (39.50GiB) x \
gpu_memory_utilization (0.90) = 35.55GiB
INFO 01-22 03:09:14 worker.py:241] model weights take 14.96GiB; non_torch_memory takes 0.10GiB; PyTorch activation \
peak memory takes 1.37GiB; the rest of the memory reserved for KV Cache is 19.12GiB.
INFO 01-22 03:09:15 executor_base.py:110] # GPU blocks: 9789, # CPU blocks: 2048
INFO 01-22 03:09:15 executor_base.py:115] Maximum concurrency for 8192 tokens per request: 19.12x
"""
V0_FIGURES = {
    "version": "0.6.6.post1",
    "weights_gib": 14.96,
    "non_torch_gib": 0.10,
    "activation_gib": 1.37,
    "available_kv_gib": 19.12,
    "total_gib": 39.5,
    "gpu_memory_utilization": 0.9,
    "num_blocks": 9789,
    "max_model_len": 8192,
    "max_concurrency": 19.12,
}


def figures_of(log, names=tuple(V1_FIGURES)):
    return {name: getattr(log, name) for name in names}


def prefixed(prefix):
    return "".join(f"{prefix}{line}\n" for line in V1.splitlines())


def coloured(escape):
    return "".join(f"{escape}[1;36m(APIServer pid=1){escape}[0;0m {line}{escape}[0m\n" for line in V1.splitlines())


def docker_json(line):
    return json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-01-02T03:04:05.678901234Z"})


def wrapped_at(width, text=V1):
    lines = [[line[at : at + width] for at in range(0, len(line), width)] for line in text.splitlines()]
    return "\n".join(piece for pieces in lines for piece in pieces)


WRAPPED = {
    "nothing": V1,
    "no end of the last line": V1.rstrip("\n"),
    "windows line ends": V1.replace("\n", "\r\n"),
    "old mac line ends": V1.replace("\n", "\r"),
    "byte order mark": "\ufeff" + V1,
    "empty lines": V1.replace("\n", "\n\n   \n"),
    "null characters": V1.replace(" ", "\0 "),
    "indentation": prefixed("        "),
    "quotation": prefixed("> "),
    "colours": coloured("\x1b"),
    "colours as two characters": coloured("^["),
    "colours as escapes": coloured("\\x1b"),
    "colours as unicode escapes": coloured("\\u001b"),
    "docker json-file": "\n".join(map(docker_json, V1.splitlines())),
    "docker json-file with colours": "\n".join(map(docker_json, coloured("\x1b").splitlines())),
    "collector": "\n".join(json.dumps({"ts": 1, "kubernetes": {"pod": "a"}, "message": x}) for x in V1.splitlines()),
    "json export": json.dumps([{"insertId": "a1", "textPayload": line} for line in V1.splitlines()], indent=1),
    "notebook": json.dumps({"cells": [{"outputs": [{"text": V1.splitlines(keepends=True)}]}]}),
    "kubernetes": prefixed("2026-01-02T03:04:05.678Z stdout F "),
    "kubectl --prefix": prefixed("[pod/llama-7f9c/server] "),
    "pod and container": prefixed("pod/llama-7f9c server 2026-01-02T03:04:05.678901234Z "),
    "docker compose": prefixed("vllm-1  | "),
    "systemd": prefixed("Aug 14 14:07:20 host vllm[812]: "),
    "engine process": prefixed("(EngineCore_DP0 pid=367) "),
    "ray": prefixed("(RayWorkerWrapper pid=512, ip=10.0.0.7) "),
    "terminal of 80": wrapped_at(80),
    "terminal of 70": wrapped_at(70),
    "terminal of 100": wrapped_at(100),
}


@pytest.mark.parametrize("text", WRAPPED.values(), ids=WRAPPED)
def test_a_wrapped_log_gives_the_same_figures(text):
    log = parse_engine_log(text)
    assert figures_of(log) == V1_FIGURES
    assert (log.starts, log.error, log.cut, log.ranks) == (1, None, False, ())


NEVER_LOST = ("engine", "version", "weights_gib", "available_kv_gib", "kv_cache_tokens", "max_concurrency")


@pytest.mark.parametrize("prefix", ["", "2026-01-02T03:04:05.678Z stdout F (EngineCore_DP0 pid=367) "])
def test_a_terminal_of_any_width_keeps_the_figures(prefix):
    text = prefixed(prefix)
    for width in range(40, 200):
        log = parse_engine_log(wrapped_at(width, text))
        assert {name: getattr(log, name) for name in NEVER_LOST} == {name: V1_FIGURES[name] for name in NEVER_LOST}


def test_v0_states_its_figures_in_one_sentence():
    log = parse_engine_log(V0)
    assert figures_of(log, V0_FIGURES) == V0_FIGURES
    assert_figures_stand_in(V0, log)


def test_each_figure_is_named_with_its_line():
    log = parse_engine_log(V1)
    assert {name: log.lines[name] for name in LINE_OF} == {
        name: (number, V1.splitlines()[number - 1]) for name, number in LINE_OF.items()
    }
    assert log.lines.keys() == V1_FIGURES.keys() - {"engine"}


@pytest.mark.parametrize("prefix", ["", "vllm-1  | ", "2026-01-02T03:04:05.678Z stdout F "])
def test_a_line_is_counted_in_the_text_as_it_was_given(prefix):
    text = "\n\nhello\n" + prefixed(prefix)
    log = parse_engine_log(text)
    assert {name: log.lines[name][0] - 3 for name in LINE_OF} == LINE_OF
    assert_figures_stand_in(text, log)


def test_a_log_as_json_lines_is_counted_by_its_own_lines():
    log = parse_engine_log(WRAPPED["docker json-file"])
    assert {name: log.lines[name] for name in LINE_OF} == {
        name: (number, V1.splitlines()[number - 1]) for name, number in LINE_OF.items()
    }


def test_size_and_concurrency_may_stand_in_one_line():
    line = "INFO [kv_cache_utils.py:1707] GPU KV cache size: 272,784 tokens, Maximum concurrency for 32,768 tokens per "
    log = parse_engine_log(f"{line}request: 8.32x")
    assert (log.kv_cache_tokens, log.max_model_len, log.max_concurrency) == (272_784, 32_768, 8.32)


@pytest.mark.parametrize("device", ["GPU", "CPU", "TPU", "XPU"])
def test_the_device_of_a_cache_may_be_any(device):
    assert parse_engine_log(f"INFO {device} KV cache size: 524,288 tokens").kv_cache_tokens == 524_288


# Ranks


def ranks_log(*pools, weights=9.5):
    lines = [
        f"(Worker_TP{rank} pid={448 + rank}) INFO [gpu_model_runner.py:2653] Model loading took {weights + rank / 100} "
        "GiB and 3.2 seconds"
        for rank, _ in enumerate(pools)
    ]
    lines += [
        f"(Worker_TP{rank} pid={448 + rank}) INFO [gpu_worker.py:298] Available KV cache memory: {pool} GiB"
        for rank, pool in enumerate(pools)
    ]
    head = "(EngineCore pid=367) INFO Initializing a V1 LLM engine (v0.11.0) with config: tensor_parallel_size="
    size = "(EngineCore pid=367) INFO [kv_cache_utils.py:1087] GPU KV cache size: 98,304 tokens"
    return "\n".join([f"{head}{len(pools)}", *lines, size])


@pytest.mark.parametrize("pools", [(8.5, 8.11, 8.3, 8.4), (8.11, 8.5), (8.5, 8.4, 8.3, 8.11), (0.5, -1.05, 0.0)])
def test_the_rank_with_the_smallest_pool_decides(pools):
    log = parse_engine_log(ranks_log(*pools))
    least = pools.index(min(pools))
    assert (log.tp, log.available_kv_gib, log.weights_gib) == (len(pools), min(pools), 9.5 + least / 100)
    others = {
        f"TP{rank}": RankFigures(f"TP{rank}", weights_gib=9.5 + rank / 100, available_kv_gib=pool)
        for rank, pool in enumerate(pools)
        if rank != least
    }
    assert {rank.rank: rank for rank in log.ranks if rank.rank in others} == others
    assert f"TP{least}" not in {rank.rank for rank in log.ranks}
    assert f"Worker_TP{least} " in log.lines["available_kv_gib"][1]


def test_lines_of_ranks_may_come_in_any_order():
    head, *lines, size = ranks_log(8.5, 8.11, 8.3).splitlines()
    loads, pools = lines[:3], lines[3:]
    there, back = (
        parse_engine_log("\n".join([head, *order, size])) for order in (loads + pools, loads[::-1] + pools[::-1])
    )
    assert figures_of(there) == figures_of(back)
    assert there.ranks == back.ranks


def test_of_caches_of_several_ranks_the_smallest_counts():
    lines = [f"(Worker_TP{rank} pid=4{rank}) INFO GPU KV cache size: {tokens} tokens" for rank, tokens in TOKENS]
    assert parse_engine_log("\n".join(lines)).kv_cache_tokens == 81_536


TOKENS = ((0, "94,896"), (1, "81,536"), (2, "94,880"))


# Several starts


OTHER = V1.replace("54.61", "40.25").replace("447,376", "329,728").replace("13.65", "10.06").replace("0.11.0", "0.10.2")
NO_ROOM = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (9.94 GiB). Based on the available memory, the estimated "
    "maximum model length is 81424. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
)
FAILED = "\n".join([
    *V1.splitlines()[:4],
    "INFO 08-14 14:08:00 [gpu_worker.py:298] Available KV cache memory: 9.94 GiB",
    "ERROR 08-14 14:08:00 [core.py:700] EngineCore failed to start.",
    "ERROR 08-14 14:08:00 [core.py:700] Traceback (most recent call last):",
    'ERROR 08-14 14:08:00 [core.py:700]   File "/opt/vllm/v1/core/kv_cache_utils.py", line 681, in check',
    "ERROR 08-14 14:08:00 [core.py:700]     raise ValueError(",
    f"ERROR 08-14 14:08:00 [core.py:700] {NO_ROOM}",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
])  # fmt: skip
OF_THE_FAILED = {
    "needed_gib": 16.0,
    "available_kv_gib": 9.94,
    "suggested_context": 81_424,
    "max_model_len": 131_072,
    "kv_cache_tokens": None,
    "max_concurrency": None,
    "cuda_graph_gib": None,
}


@pytest.mark.parametrize("earlier", [1, 2, 3])
def test_of_several_starts_the_last_counts(earlier):
    log = parse_engine_log(OTHER * earlier + V1)
    assert figures_of(log) == V1_FIGURES
    assert log.starts == earlier + 1
    assert all(number > OTHER.count("\n") * earlier for number, _ in log.lines.values())


def test_a_start_that_failed_after_one_that_did_not_has_its_own_figures():
    log = parse_engine_log(V1 + FAILED)
    assert figures_of(log, OF_THE_FAILED) == OF_THE_FAILED
    assert log.starts == 2
    assert log.error.startswith("To serve at least one request with")


def test_a_start_after_one_that_failed_has_no_error():
    log = parse_engine_log(f"{FAILED}\n{V1}")
    assert figures_of(log) == V1_FIGURES
    assert (log.starts, log.error, log.needed_gib, log.suggested_context) == (2, None, None, None)


def test_a_start_that_ended_before_its_pool_gives_none():
    begun = "\n".join(V1.splitlines()[:4]) + "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB."
    log = parse_engine_log(OTHER + begun)
    assert (log.starts, log.weights_gib) == (2, 14.9889)
    assert (log.available_kv_gib, log.kv_cache_tokens, log.max_concurrency) == (None, None, None)
    assert "out of memory" in log.error.lower()


def test_starts_without_a_version_line_are_told_by_their_weights():
    bare = "".join(f"{line}\n" for line in V1.splitlines()[3:])
    log = parse_engine_log(bare.replace("54.61", "40.25") + bare)
    assert (log.starts, log.available_kv_gib) == (2, 54.61)


# Failures


@pytest.mark.parametrize("models", ["model's", "models's", "models"])
def test_a_traceback_gives_needed_available_and_suggested(models):
    log = parse_engine_log(FAILED.replace("models's", models))
    assert figures_of(log, OF_THE_FAILED) == OF_THE_FAILED
    assert log.error.startswith("To serve at least one request")
    assert log.starts == 1


def test_the_error_alone_gives_its_figures():
    log = parse_engine_log(NO_ROOM)
    assert figures_of(log, OF_THE_FAILED) == OF_THE_FAILED
    assert (log.engine, log.starts) == ("vllm", 1)
    assert log.error == NO_ROOM.removeprefix("ValueError: ")


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        "ValueError: Free memory on device (1.2/23.6 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 21.2 GiB). Decrease GPU memory utilization.",
        "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in "
        "KV cache (23648). Try increasing `gpu_memory_utilization`.",
        "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614).",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total of 23.6 GiB.",
    ],
)
def test_a_failure_is_given_in_the_engines_words(line):
    log = parse_engine_log("\n".join([*V1.splitlines()[:4], line, "RuntimeError: Engine core initialization failed."]))
    assert log.error in line
    assert len(log.error) > 20


def test_a_negative_pool_is_a_figure():
    log = parse_engine_log(V0.replace("19.12GiB", "-1.05GiB").replace("9789", "0").replace("19.12x", "0.00x"))
    assert (log.available_kv_gib, log.num_blocks, log.max_concurrency) == (-1.05, 0, 0.0)


def test_free_and_total_memory_are_read_beside_each_other():
    log = parse_engine_log("INFO [worker.py:1] vllm/ Free memory on device cuda:0 (10.25/23.64 GiB) on startup.")
    assert (log.free_gib, log.total_gib) == (10.25, 23.64)


@pytest.mark.parametrize(
    "line",
    [
        "INFO [config.py:3] Auto-fit max_model_len: reduced from 262,144 to 81,424 to fit the available memory",
        "INFO 08-14 14:08:00 [kv_cache_utils.py:1091] Maximum concurrency for 81,424 tokens per request: 1.00x",
    ],
)
def test_a_length_that_was_cut_is_the_length_in_force(line):
    opening = V1.splitlines()[:4]
    assert parse_engine_log("\n".join(opening).replace("32768", "262144")).max_model_len == 262_144
    assert parse_engine_log("\n".join([*opening, line]).replace("32768", "262144")).max_model_len == 81_424


# Other engines


SGLANG = """\
[2026-04-02 08:00:00] server_args=ServerArgs(model_path='acme/llama-70b', tp_size=2, mem_fraction_static=0.88, \
kv_cache_dtype='fp8_e5m2', quantization='fp8')
[2026-04-02 08:01:00 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=59.99 GB, \
mem usage=18.96 GB.
[2026-04-02 08:01:05 TP0] KV Cache is allocated. dtype: torch.float8_e5m2, #tokens: 499968, K size: 7.63 GB, V size: \
7.63 GB
[2026-04-02 08:01:20 TP0] Load weight end. type=LlamaEagle, dtype=torch.bfloat16, avail mem=38.2 GB, mem usage=3.65 GB.
[2026-04-02 08:01:25 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 499968, K size: 2.38 GB, V size: \
2.38 GB
[2026-04-02 08:02:00 TP0] max_total_num_tokens=499968, chunked_prefill_size=8192, max_running_requests=2048, \
context_len=131072
"""
TENSORRT_LLM = """\
[TensorRT-LLM] TensorRT-LLM version: 1.0.0
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 64 [window size=2048], tokens per block=32, primary blocks=64, \
secondary blocks=0, max sequence length=2048
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 64
[TensorRT-LLM][INFO] Allocated 0.22 GiB for max tokens in paged KV cache (2048).
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 64 [window size=2048], tokens per block=32, primary \
blocks=20098, secondary blocks=0, max sequence length=2048
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 20098
[TensorRT-LLM][INFO] Allocated 68.69 GiB for max tokens in paged KV cache (643136).
"""
LLAMA_CPP = """\
build: 6123 (0123abcd) with cc for x86_64-linux-gnu
print_info: file size   = 4.68 GiB (4.89 BPW)
llama_context: n_ctx         = 8192
llama_kv_cache: size =  612.00 MiB (  8192 cells,  36 layers,  1/1 seqs), K (q8_0):  306.00 MiB, V (q8_0):  306.00 MiB
"""
LMDEPLOY = """\
[TM][INFO] [BlockManager] block_size = 2.000 MB, max_block_count = 1536, chunk_size = 1536
[TM][INFO] [BlockManager] max_block_count = 1536
[TM][WARNING] `session_len` is not enough, truncated to 98304
"""


def test_sglangs_first_pool_is_the_targets():
    log = parse_engine_log(SGLANG)
    assert (log.engine, log.tp, log.model, log.starts) == ("sglang", 2, "acme/llama-70b", 1)
    assert (log.weights_gib, log.k_gib, log.v_gib, log.kv_cache_tokens) == (18.96, 7.63, 7.63, 499_968)
    assert (log.mem_fraction_static, log.kv_cache_dtype, log.max_model_len) == (0.88, "fp8_e5m2", 131_072)


def test_sglangs_pool_is_keys_and_values_together():
    log = parse_engine_log(SGLANG)
    assert (log.available_kv_gib, log.pool_gib) == (None, 7.63 + 7.63)
    assert parse_engine_log(V1).pool_gib == 54.61


def test_sglangs_second_start_has_a_target_of_its_own():
    log = parse_engine_log(SGLANG + SGLANG.replace("7.63", "6.5").replace("499968", "425926"))
    assert (log.starts, log.k_gib, log.kv_cache_tokens) == (2, 6.5, 425_926)


def test_tensorrt_llms_last_pool_is_in_force():
    log = parse_engine_log(TENSORRT_LLM)
    assert (log.engine, log.version, log.starts) == ("tensorrt-llm", "1.0.0", 1)
    assert (log.available_kv_gib, log.kv_cache_tokens, log.num_blocks) == (68.69, 643_136, 20_098)
    assert (log.block_size, log.max_model_len) == (32, 2048)


def test_llama_cpps_sizes_are_divided_into_gib():
    log = parse_engine_log(LLAMA_CPP)
    assert (log.engine, log.version, log.starts) == ("llama.cpp", "6123", 1)
    assert (log.k_gib, log.v_gib, log.kv_cache_tokens) == (306 / 1024, 306 / 1024, 8192)
    assert (log.kv_cache_dtype, log.max_model_len, log.weights_gib) == ("q8_0", 8192, 4.68)


def test_lmdeploy_states_its_blocks():
    log = parse_engine_log(LMDEPLOY)
    assert (log.engine, log.num_blocks, log.max_model_len) == ("lmdeploy", 1536, 98_304)


@pytest.mark.parametrize("name", ["SGLANG", "TENSORRT_LLM", "LLAMA_CPP", "LMDEPLOY"])
def test_figures_of_other_engines_stand_in_their_lines(name):
    assert_figures_stand_in(globals()[name], parse_engine_log(globals()[name]))


# Any text whatsoever


@pytest.mark.parametrize(
    "text", ["", "\n", " \t\r\n", "\ufeff", "{", "[]", '{"log": null}', "hello\nworld", "\0" * 100]
)
def test_a_text_without_a_start_gives_an_empty_log(text):
    assert parse_engine_log(text) == EngineLog()


def test_binary_junk_gives_an_empty_log():
    junk = bytes(range(256)) * 400
    for text in (junk.decode("utf-8", errors="replace"), junk.decode("latin-1")):
        assert parse_engine_log(text) == EngineLog()
        log = parse_engine_log(f"{text}\n{V1}{text}")
        assert figures_of(log) == V1_FIGURES


def test_a_text_of_exactly_what_is_read_is_not_cut():
    assert not parse_engine_log(V1.rjust(MAX_BYTES)).cut


def test_of_a_longer_text_the_last_start_is_read():
    filler = "INFO 08-14 14:07:20 [loggers.py:123] Engine 000: Running: 1 reqs, GPU KV cache usage: 3.1%\n"
    log = parse_engine_log(OTHER + filler * (MAX_BYTES // len(filler) + 1) + V1)
    assert log.cut
    assert figures_of(log) == V1_FIGURES
    assert log.lines["available_kv_gib"][1] == V1.splitlines()[4]


OF_ONE_PROCESS = (V1, V0, OTHER, FAILED, SGLANG, LLAMA_CPP, LMDEPLOY)
TEXTS_OF_ENGINES = (*OF_ONE_PROCESS, TENSORRT_LLM, ranks_log(8.5, 8.11))
REAL_LINES = sorted({line for text in TEXTS_OF_ENGINES for line in text.splitlines()})
RUNS = ("0" * 5000, "9" * 25, "█" * 5000, "(" * 5000, " " * 5000, "\x1b[" * 2000, "{" * 5000, "1,2." * 1000)


def pieces():
    """Parts of real lines, and what no engine prints."""
    cut = st.tuples(st.sampled_from(REAL_LINES), st.integers(0, 300), st.integers(0, 300)).map(
        lambda part: part[0][part[1] : part[1] + part[2]]
    )
    return st.one_of(cut, cut, st.sampled_from(REAL_LINES), st.sampled_from(RUNS), st.text(max_size=20), st.just("\n"))


def assert_is_a_log(log):
    assert isinstance(log, EngineLog)
    assert log.engine in {None, *(pattern.engine for pattern in PATTERNS)}
    assert (log.starts == 0) == (log.engine is None)
    assert log.lines.keys() <= vars(log).keys()
    assert all(isinstance(number, int) and number >= 1 and line for number, line in log.lines.values())
    assert json.dumps(vars(log), default=vars, allow_nan=False)


@given(st.text())
def test_any_text_gives_a_log(text):
    assert_is_a_log(parse_engine_log(text))


@settings(max_examples=200)
@given(st.lists(pieces(), max_size=15), st.sampled_from(["", " ", "\n"]))
def test_any_splice_of_real_lines_gives_a_log(parts, glue):
    assert_is_a_log(parse_engine_log(glue.join(parts)))


@given(st.lists(st.sampled_from(REAL_LINES), min_size=1, max_size=3), st.sampled_from(RUNS), st.integers(0, 300))
def test_a_run_of_one_character_anywhere_in_a_line_gives_a_log(lines, run, at):
    assert_is_a_log(parse_engine_log("\n".join(f"{line[:at]}{run}{line[at:]}" for line in lines)))


@st.composite
def damaged(draw):
    """A realistic log, whole lines of it removed, repeated or out of order, and one cut in the middle."""
    lines = draw(st.sampled_from(TEXTS_OF_ENGINES)).splitlines()
    other = draw(st.sampled_from([*TEXTS_OF_ENGINES, ""])).splitlines()
    kept = draw(st.lists(st.sampled_from(lines + other), min_size=1, max_size=25))
    if draw(st.booleans()):
        kept.sort(key=(lines + other).index)
    at, start, end = draw(st.integers(0, len(kept) - 1)), draw(st.integers(0, 80)), draw(st.integers(0, 300))
    if draw(st.booleans()):
        kept[at] = kept[at][start : start + end]
    return "\n".join(kept)


@settings(max_examples=300)
@given(damaged())
def test_a_damaged_log_gives_no_figure_that_stands_nowhere_in_it(text):
    log = parse_engine_log(text)
    assert_is_a_log(log)
    assert_figures_stand_in(text, log)


@given(st.sampled_from(OF_ONE_PROCESS), st.data())
def test_a_log_without_a_line_lacks_only_what_stood_there(text, data):
    lines = text.splitlines()
    left_out = data.draw(st.integers(0, len(lines) - 1))
    log = parse_engine_log("\n".join(lines[:left_out] + lines[left_out + 1 :]))
    whole = parse_engine_log(text)
    for name, (number, _) in whole.lines.items():
        if number != left_out + 1 and whole.starts == log.starts:
            assert getattr(log, name) == getattr(whole, name)


# Engines that run side by side, failures that are none, digits of longer numbers

SIDE_BY_SIDE = (
    "(EngineCore_DP0 pid=1) INFO Initializing a V1 LLM engine (v0.11.0) with config: model='acme/llama-8b', x=1",
    "(EngineCore_DP0 pid=1) INFO Available KV cache memory: 5.5 GiB",
    "(EngineCore_DP0 pid=1) INFO GPU KV cache size: 500 tokens",
    "(EngineCore_DP1 pid=2) INFO Initializing a V1 LLM engine (v0.11.0) with config: model='acme/llama-8b', x=1",
    "(EngineCore_DP1 pid=2) INFO Available KV cache memory: 5.6 GiB",
    "(EngineCore_DP1 pid=2) INFO GPU KV cache size: 560 tokens",
)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (0, 3, 1, 2, 4, 5), (0, 3, 1, 4, 5, 2), (3, 4, 5, 0, 1, 2)])
def test_of_engines_side_by_side_the_smaller_one_counts(order):
    log = parse_engine_log("\n".join(SIDE_BY_SIDE[number] for number in order))
    assert (log.starts, log.available_kv_gib, log.kv_cache_tokens) == (1, 5.5, 500)
    assert [rank.available_kv_gib for rank in log.ranks] == [5.6]


def test_an_engine_that_starts_again_begins_another_start():
    log = parse_engine_log("\n".join((*SIDE_BY_SIDE[:3], *SIDE_BY_SIDE[:1])))
    assert (log.starts, log.available_kv_gib) == (2, None)


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: this setting may lead to out of memory errors",
        "INFO:     Application startup complete.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB",
    ],
)
def test_a_warning_and_a_failure_while_serving_are_no_failed_start(line):
    assert parse_engine_log(V1 + line).error is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("# GPU blocks: 95.789, # CPU blocks: 1", "num_blocks"),
        ("llama_context: n_ctx = 8.192", "max_model_len"),
        (f"num_gpu_blocks is: {'9' * 30}", "num_blocks"),
        ("gpu_worker.py max_seq_len=3,2768", "max_model_len"),
        ("gpu_worker.py gpu_memory_utilization=0.9.2", "gpu_memory_utilization"),
        ("Available KV cache memory: 1.5.3 GiB", "available_kv_gib"),
    ],
)
def test_part_of_a_longer_number_is_no_figure(text, field):
    assert getattr(parse_engine_log(text), field) is None


def test_too_many_sequences_for_the_states_are_a_failure_with_both_figures():
    log = parse_engine_log("ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614). Lower it.")
    assert (log.engine, log.max_num_seqs, log.num_blocks) == ("vllm", 1024, 614)
    assert "exceeds available Mamba cache blocks (614)" in log.error


def test_a_line_keeps_its_number_after_a_message_of_several_lines_and_behind_a_cut():
    several = json.dumps({"log": "one\ntwo\nthree\n"})
    log = parse_engine_log(f"{several}\nAvailable KV cache memory: 1.5 GiB")
    assert log.lines["available_kv_gib"][0] == 2
    lines = MAX_BYTES // 2
    log = parse_engine_log("a\n" * lines + "b\nAvailable KV cache memory: 1.5 GiB")
    assert (log.cut, log.lines["available_kv_gib"][0]) == (True, lines + 2)


# The patterns


def repeats(parsed, inside=0):
    """For each repetition of an expression how often what holds it may be repeated, and itself at most."""
    for operation, argument in parsed:
        if operation in (re._constants.MAX_REPEAT, re._constants.MIN_REPEAT):
            _, most, body = argument
            yield inside, most
            yield from repeats(body, max(inside, most))
        elif operation is re._constants.SUBPATTERN:
            yield from repeats(argument[3], inside)
        elif operation is re._constants.BRANCH:
            for branch in argument[1]:
                yield from repeats(branch, inside)


FEW = 6
"""A group this often repeated, as of thousands in a number, cannot run away."""


def repeats_of(expression):
    return list(repeats(re._parser.parse(expression)))


def test_a_nested_repetition_is_told_from_a_plain_one():
    assert repeats_of(r"(?:a\d{1,3})?b+") == [(0, 1), (1, 3), (0, re._constants.MAXREPEAT)]
    assert (re._constants.MAXREPEAT, re._constants.MAXREPEAT) in repeats_of(r"((?:x|(a+))b)*")


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: f"{pattern.engine} {pattern.literal.strip()}")
def test_no_pattern_repeats_without_end_what_repeats_inside(pattern):
    several = [found for found in repeats_of(pattern.expression.pattern) if min(found) > 1]
    nested = [found for found in several if max(found) > FEW]
    assert nested == []
    assert pattern.expression.groups == len(pattern.fields)
    assert set(pattern.fields) <= vars(EngineLog()).keys()


def test_the_smallest_number_of_blocks_counts_and_ranks_stand_in_order():
    lines = [f"(Worker_TP{rank} pid=4{rank}) # GPU blocks: {blocks}" for rank, blocks in ((1, 100), (0, 200))]
    assert parse_engine_log("\n".join(lines)).num_blocks == 100
    lines = [f"(Worker_TP{rank} pid=4{rank}) Available KV cache memory: {9 - rank / 10} GiB" for rank in range(12)]
    log = parse_engine_log("\n".join(lines))
    assert [rank.rank for rank in log.ranks] == [f"TP{rank}" for rank in range(11)]


def test_a_list_of_words_in_a_json_line_hides_no_message():
    line = {"tags": ["prod", "gpu"], "event": {"message": "INFO GPU KV cache size: 272,784 tokens"}}
    for times in (1, 2):
        log = parse_engine_log("\n".join([json.dumps(line)] * times))
        assert (log.kv_cache_tokens, log.lines["kv_cache_tokens"][0]) == (272_784, 1)
