"""How engines spell what they print at start-up, as data: a pattern names its fields, and what it costs to try it.

Source: logs of vLLM 0.2 to 0.32, SGLang, TensorRT-LLM, llama.cpp and lmdeploy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

MIB_PER_GIB = 1024

COUNT = r"(?<![\d.,])(\d{1,3}(?:,\d{3}){1,6}|\d{1,21})(?!\d|[.,]\d)"
NUMBER = r"(?<![\d.,])(-?(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,21})(?:\.\d{1,12})?)(?!\d|[.,]\d)"
"""A whole number and a number, whole themselves: no part of a longer one."""
GIB = r"\s{0,4}(?:GiB|GB)"
KEYS_AND_VALUES = rf"K \([\w.]+\):\s{{0,8}}{NUMBER} MiB, V \([\w.]+\):\s{{0,8}}{NUMBER} MiB"
WORD = r"['\"]?([^'\",\s(){}]{1,200})['\"]?"


@dataclass(frozen=True)
class Pattern:
    """A spelling: the literal that a line must hold before the expression is tried, and the field of each group.

    `scale` divides a size into GiB. `first`: of several in one start the first counts, not the last. `weak`: taken only
    where no other spelling gave the field.
    """

    engine: str
    literal: str
    spelling: str
    fields: tuple[str, ...]
    scale: float = 1
    first: bool = False
    weak: bool = False

    @cached_property
    def expression(self) -> re.Pattern:
        """Compiled when a log is first read, as most programs that import this read none."""
        return re.compile(self.spelling)


def _vllm(literal: str, expression: str, *names: str, **how) -> Pattern:
    return Pattern("vllm", literal, expression, names, **how)


def _sglang(literal: str, expression: str, *names: str, **how) -> Pattern:
    return Pattern("sglang", literal, expression, names, first=True, **how)


def _tensorrt(literal: str, expression: str, *names: str, **how) -> Pattern:
    return Pattern("tensorrt-llm", literal, expression, names, **how)


def _llama(literal: str, expression: str, *names: str, **how) -> Pattern:
    return Pattern("llama.cpp", literal, expression, names, first=True, **how)


def _lmdeploy(literal: str, expression: str, *names: str, **how) -> Pattern:
    return Pattern("lmdeploy", literal, expression, names, **how)


SETTING = r"['\"]?\s{0,3}[=:]\s{0,3}"
"""Between the name of a setting and its value: `name=value`, `'name': value`, `name = value`."""

PATTERNS = (
    _vllm("vLLM API server version", r"vLLM API server version v?(\d[\w.+-]{0,60})", "version"),
    _vllm("LLM engine (", r"Initializing an? (?:V[01] )?LLM engine \(v?(\d[\w.+-]{0,60})\)", "version"),
    _vllm(" version ", r"[█▄▀][█▄▀ ]{0,40} version v?(\d[\w.+-]{0,60})", "version"),
    _vllm("LLM engine", r"LLM engine (?:\(v?[\w.+-]{1,60}\) )?with config: model=" + WORD, "model"),
    _vllm("non-default args", r"'model': " + WORD, "model", weak=True),
    _vllm("Starting to load model", r"Starting to load model (\S{1,200}?)\.\.\.", "model", weak=True),
    _vllm("vllm serve ", r"vllm serve ([\w.-]{1,100}/[\w.-]{1,100})", "model", weak=True),
    _vllm("tensor_parallel_size", r"\btensor_parallel_size" + SETTING + COUNT, "tp"),
    _vllm("pipeline_parallel_size", r"\bpipeline_parallel_size" + SETTING + COUNT, "pp"),
    _vllm("data_parallel_size", r"\bdata_parallel_size" + SETTING + COUNT, "dp"),
    _vllm("-tensor-parallel-size", r"--tensor-parallel-size[ =]" + COUNT, "tp", weak=True),
    _vllm("max_seq_len", r"\bmax_seq_len" + SETTING + COUNT, "max_model_len", weak=True),
    _vllm("max_model_len", r"\bmax_model_len" + SETTING + COUNT, "max_model_len", weak=True),
    _vllm("max model len", r"Using max model len " + COUNT, "max_model_len", weak=True),
    _vllm("fit max_model_len", r"[Aa]uto-fit max_model_len: .{0,80}?(?:to|at) " + COUNT, "max_model_len"),
    _vllm("max_num_seqs", r"\bmax_num_seqs" + SETTING + COUNT, "max_num_seqs"),
    _vllm("max_num_batched_tokens", r"\bmax_num_batched_tokens" + SETTING + COUNT, "max_num_batched_tokens"),
    _vllm(
        "gpu_memory_utilization",
        r"\bgpu_memory_utilization" + SETTING + r"([01]?\.\d{1,12}|[01])(?![\d.])",
        "gpu_memory_utilization",
    ),
    _vllm(
        "gpu_memory_utilization (", r"gpu_memory_utilization \(([01]?\.\d{1,12})\)", "gpu_memory_utilization", weak=True
    ),
    _vllm(
        "GPU memory utilization is (",
        r"GPU memory utilization is \(([\d.]{1,14}), ",
        "gpu_memory_utilization",
        weak=True,
    ),
    _vllm(
        "kv_cache_dtype", r"\bkv_cache_dtype" + SETTING + r"['\"]?((?!torch\.)[a-z][a-z0-9_]{1,30})", "kv_cache_dtype"
    ),
    _vllm("quantization", r"\bquantization" + SETTING + r"['\"]?([a-z][a-z0-9_-]{1,30})", "quantization"),
    _vllm("enforce_eager", r"\benforce_eager" + SETTING + r"(True|False)", "enforce_eager"),
    _vllm("enable_prefix_caching", r"\benable_prefix_caching" + SETTING + r"(True|False)", "enable_prefix_caching"),
    _vllm("kv_cache_memory_bytes", r"'kv_cache_memory_bytes': " + COUNT, "kv_cache_memory_bytes"),
    _vllm("Model loading took", rf"Model loading took {NUMBER}{GIB}", "weights_gib"),
    _vllm("Loading model weights took", rf"Loading model weights took {NUMBER}{GIB}", "weights_gib", weak=True),
    _vllm("odel weights take", rf"[Mm]odel weights take\s{{1,20}}{NUMBER}{GIB}", "weights_gib"),
    _vllm("weights memory", rf"weights memory: {NUMBER}{GIB}", "weights_gib", weak=True),
    _vllm("for weight", rf"Actual usage(?: is|:) {NUMBER}{GIB} for weights?,", "weights_gib", weak=True),
    _vllm(
        "PyTorch activation peak memory",
        rf"PyTorch activation peak memory(?: takes)?\s{{1,20}}{NUMBER}{GIB}",
        "activation_gib",
    ),
    _vllm("for peak activation", rf"{NUMBER}{GIB} for peak activation", "activation_gib"),
    _vllm("torch peak memory increase", rf"torch peak memory increase: {NUMBER}{GIB}", "activation_gib", weak=True),
    _vllm("non_torch_memory", rf"\bnon_torch_memory(?: takes|=)?\s{{0,20}}{NUMBER}{GIB};", "non_torch_gib"),
    _vllm("non_torch_memory", rf"worker\.py:\d+\] non_torch_memory\s{{1,20}}{NUMBER}{GIB}", "non_torch_gib"),
    _vllm("non_torch_memory=", rf"results: .{{0,200}}non_torch_memory={NUMBER}{GIB}", "non_torch_gib"),
    _vllm("for non-torch memory", rf"{NUMBER}{GIB} for non-torch memory", "non_torch_gib"),
    _vllm(
        "non-torch forward increase", rf"non-torch forward increase memory: {NUMBER}{GIB}", "non_torch_gib", weak=True
    ),
    _vllm("for consumed memory", rf"Actual usage is {NUMBER}{GIB} for consumed memory", "consumed_gib"),
    _vllm("Graph capturing finished", rf"Graph capturing finished in .{{1,40}}?took {NUMBER}{GIB}", "cuda_graph_gib"),
    _vllm("GiB (actual)", rf"CUDA graph pool memory: {NUMBER}{GIB} \(actual\)", "cuda_graph_gib"),
    _vllm("raph memory", rf"{NUMBER}{GIB} for (?:CUDAGraph|NPU graph) memory", "cuda_graph_gib", weak=True),
    _vllm(
        "CUDA graph memory:", rf"Estimated (?:MRV2 )?CUDA graph memory: {NUMBER}{GIB} total", "cuda_graph_estimate_gib"
    ),
    _vllm("Available KV cache memory", rf"Available KV cache memory: {NUMBER}{GIB}", "available_kv_gib"),
    _vllm("memory reserved for KV Cache is", rf"memory reserved for KV Cache is {NUMBER}{GIB}", "available_kv_gib"),
    _vllm("available_kv_cache_memory", rf"\bavailable_kv_cache_memory\s{{1,20}}{NUMBER}{GIB}", "available_kv_gib"),
    _vllm("kv_cache_size=", rf"\bkv_cache_size={NUMBER}{GIB}", "available_kv_gib"),
    _vllm(
        "memory for KV Cache as specified",
        rf"reserved {NUMBER}{GIB} memory for KV Cache as specified",
        "available_kv_gib",
    ),
    _vllm("Explicitly set (", rf"Explicitly set \({NUMBER}/[\d.]{{1,14}}\){GIB} for KV cache", "available_kv_gib"),
    _vllm(
        "kv cache memory in use is", rf"Current kv cache memory in use is {NUMBER}{GIB}", "available_kv_gib", weak=True
    ),
    _vllm(
        "kv cache memory in use is",
        rf"Current kv cache memory in use is {COUNT} bytes",
        "available_kv_gib",
        scale=2**30,
        weak=True,
    ),
    _vllm("KV cache size:", rf"\b[A-Za-z]{{2,12}} KV cache size: {COUNT} tokens", "kv_cache_tokens"),
    _vllm("that can be stored in KV cache", rf"that can be stored in KV cache \({COUNT}\)", "kv_cache_tokens"),
    _vllm(
        "tokens per request:",
        rf"Maximum concurrency for {COUNT} tokens per request: {NUMBER}x",
        "max_model_len",
        "max_concurrency",
    ),
    _vllm(" blocks: ", rf"# (?!CPU|Swap)[A-Za-z]{{2,12}} blocks: {COUNT}", "num_blocks"),
    _vllm(
        "available Mamba cache blocks",
        rf"max_num_seqs \({COUNT}\) exceeds available Mamba cache blocks \({COUNT}\)",
        "max_num_seqs",
        "num_blocks",
    ),
    _vllm("num_gpu_blocks is", rf"num_gpu_blocks is: {COUNT}", "num_blocks"),
    _vllm("max seq len (", rf"model'?s?'?s? max seq len \({COUNT}\)", "max_model_len"),
    _vllm("KV cache is needed", rf"{NUMBER}{GIB} KV cache is needed", "needed_gib"),
    _vllm(
        "available KV cache memory (", rf"available KV cache memory \({NUMBER}{GIB}\)", "available_kv_gib", weak=True
    ),
    _vllm("stimated maximum model length is", rf"stimated maximum model length is {COUNT}", "suggested_context"),
    _vllm(
        "Free memory on device", rf"Free memory on device (?:\S+ )?\({NUMBER}/{NUMBER}{GIB}\)", "free_gib", "total_gib"
    ),
    _vllm("total_gpu_memory", rf"total_gpu_memory\s{{0,20}}[(=]?{NUMBER}{GIB}", "total_gib"),
    _vllm("total_memory=", rf"\btotal_memory={NUMBER}{GIB}", "total_gib", weak=True),
    _sglang("model_path=", r"model_path=" + WORD, "model"),
    _sglang("tp_size=", r"\btp_size=" + COUNT, "tp"),
    _sglang("page_size=", r"\bpage_size=" + COUNT, "block_size"),
    _sglang("dp_size=", r"\bdp_size=" + COUNT, "dp"),
    _sglang("mem_fraction_static=", r"\bmem_fraction_static=(0?\.\d{1,12}|1\.0)(?![\d.])", "mem_fraction_static"),
    _sglang("kv_cache_dtype=", r"\bkv_cache_dtype='([a-z][a-z0-9_]{1,30})'", "kv_cache_dtype"),
    _sglang("quantization=", r"\bquantization='([a-z][a-z0-9_-]{1,30})'", "quantization"),
    _sglang("Load weight end", rf"Load weight end.{{0,400}}?mem usage={NUMBER}{GIB}", "weights_gib"),
    _sglang(
        "KV Cache is allocated",
        rf"KV Cache is allocated.{{0,80}}?#tokens: {COUNT}, K size: {NUMBER}{GIB}, V size: {NUMBER}{GIB}",
        "kv_cache_tokens",
        "k_gib",
        "v_gib",
    ),
    _sglang(
        "KV Cache is allocated",
        rf"KV Cache is allocated.{{0,80}}?#tokens: {COUNT}, KV size: {NUMBER}{GIB}",
        "kv_cache_tokens",
        "k_gib",
    ),
    _sglang("max_total_num_tokens=", rf"\bmax_total_num_tokens={COUNT}\b", "kv_cache_tokens", weak=True),
    _sglang("context_length=", r"\bcontext_length=" + COUNT, "max_model_len", weak=True),
    _sglang("context_len=", r"\bcontext_len=" + COUNT, "max_model_len"),
    _sglang("available memory for KV cache is", rf"available memory for KV cache is {NUMBER}{GIB}", "available_kv_gib"),
    _sglang("rest_memory=", rf"\brest_memory={NUMBER}{GIB}", "available_kv_gib"),
    _sglang("raph end", rf"Capture [\w ]{{1,40}}graph end.{{0,120}}?mem usage={NUMBER}{GIB}", "cuda_graph_gib"),
    _tensorrt("LLM version", r"TensorRT[- ]LLM version: v?(\d[\w.+-]{0,60})", "version"),
    _tensorrt("Engine version", r"Engine version (\d[\w.+-]{0,60}) found in the config", "version", weak=True),
    _tensorrt("tokenizer=", r"\bmodel='([^']{1,200})' (?:speculative_model=\S{1,200} )?tokenizer=", "model"),
    _tensorrt("tensor_parallel_size=", r"\btensor_parallel_size=" + COUNT, "tp"),
    _tensorrt("for model weights", rf"\b[Uu]ses? {NUMBER} GB for model weights", "weights_gib"),
    _tensorrt("Loaded engine size", rf"Loaded engine size: {NUMBER} MiB", "weights_gib", scale=MIB_PER_GIB, weak=True),
    _tensorrt(
        "in memory usage profiling",
        rf"\(inside torch\) in memory usage profiling: {NUMBER}{GIB}",
        "activation_gib",
    ),
    _tensorrt(
        "for max tokens in paged KV cache",
        rf"Allocated {NUMBER}{GIB} for max tokens in paged KV cache \({COUNT}\)",
        "available_kv_gib",
        "kv_cache_tokens",
    ),
    _tensorrt("Max tokens in paged KV cache", rf"Max tokens in paged KV cache: {COUNT}", "kv_cache_tokens", weak=True),
    _tensorrt("KV cache primary pool", rf"Number of blocks in KV cache primary pool: {COUNT}", "num_blocks"),
    _tensorrt(
        "primary blocks=",
        rf"tokens per block={COUNT}, primary blocks={COUNT}",
        "block_size",
        "num_blocks",
    ),
    _tensorrt("max sequence length=", rf"primary blocks=.{{0,120}}?max sequence length={COUNT}", "max_model_len"),
    _tensorrt("maxSequenceLen: ", rf"TRTGptModel maxSequenceLen: {COUNT}", "max_model_len", weak=True),
    _tensorrt("they are reduced to", rf"they are reduced to {COUNT}", "max_model_len"),
    _tensorrt("max_seq_len=", rf"\bmax_seq_len={COUNT}", "max_model_len", weak=True),
    _llama("build: ", r"\bbuild: (\d{1,6}) \([0-9a-f]{6,40}\)", "version"),
    _llama("build = ", r"\bbuild = (\d{1,6}) \([0-9a-f]{6,40}\)", "version"),
    _llama("(version ", r"msg=\"Listening on .{0,80}\(version (\d[\w.+-]{0,60})\)", "version", weak=True),
    _llama("general.name", r"general\.name\s{1,40}=\s{1,10}(\S.{0,120}?)\s*$", "model"),
    _llama("general.name", r"general\.name\s{1,40}str\s{1,40}=\s{1,10}(\S.{0,120}?)\s*$", "model", weak=True),
    _llama(
        "MiB (",
        rf"size =\s{{1,8}}[\d.]+ MiB \(\s{{0,8}}{COUNT} cells.{{0,80}}{KEYS_AND_VALUES}",
        "kv_cache_tokens",
        "k_gib",
        "v_gib",
        scale=MIB_PER_GIB,
    ),
    _llama(
        "KV self size",
        rf"KV self size\s{{1,4}}=\s{{1,8}}[\d.]+ MiB, {KEYS_AND_VALUES}",
        "k_gib",
        "v_gib",
        scale=MIB_PER_GIB,
    ),
    _llama(
        "c^KV",
        rf"KV self size\s{{1,4}}=\s{{1,8}}[\d.]+ MiB, c\^KV \([\w.]+\):\s{{0,8}}{NUMBER} MiB",
        "k_gib",
        scale=MIB_PER_GIB,
    ),
    _llama("K", r"\b(?:K|c\^KV) \(([a-z][a-z0-9_]{1,12})\):", "kv_cache_dtype"),
    _llama("n_ctx ", r"\bn_ctx\s{1,20}= " + COUNT, "kv_cache_tokens", weak=True),
    _llama("n_ctx ", r"\bn_ctx\s{1,20}= " + COUNT, "max_model_len", weak=True),
    _llama("n_ctx_", r"\bn_ctx_(?:seq|per_seq)\s{1,20}= " + COUNT, "max_model_len"),
    _llama("file size", rf"file size\s{{1,20}}= {NUMBER} GiB", "weights_gib"),
    _llama("model size", rf"model size\s{{1,20}}= {NUMBER} GiB", "weights_gib"),
    Pattern(
        "vllm.rs",
        "max usable kvcache tokens",
        rf"{COUNT} GPU blocks \({NUMBER} GB x \d{{1,4}}\), max usable kvcache tokens {COUNT}",
        ("num_blocks", "available_kv_gib", "kv_cache_tokens"),
    ),
    _lmdeploy("[BlockManager] max_block_count", rf"\[BlockManager\] max_block_count = {COUNT}", "num_blocks"),
    _lmdeploy("max cached tokens", rf"max cached tokens: {COUNT}", "kv_cache_tokens"),
    _lmdeploy("session_len", rf"session_len.{{0,40}}truncated to {COUNT}", "max_model_len"),
    _lmdeploy("Object cache budget", rf"Object cache budget: {NUMBER} MB", "available_kv_gib", scale=MIB_PER_GIB),
)
"""Every spelling known, by engine."""

SIGNATURES = {
    "vllm": re.compile(
        r"vLLM API server|LLM engine \(|\bvllm/|gpu_worker\.py|gpu_model_runner\.py|kv_cache_utils\.py|"
        r"worker\.py:\d|Available KV cache memory|KV cache size: \d|tokens per request: |# \w+ blocks: \d|"
        r"memory reserved for KV Cache|KV Cache as specified|Loading model weights took|KV cache is needed|"
        r"stored in KV cache \(|available Mamba cache blocks|Model loading took|non_torch_memory"
    ),
    "sglang": re.compile(
        r"server_args=|KV Cache is allocated|Load weight (?:begin|end)|max_total_num_tokens=|\bsglang\b"
    ),
    "tensorrt-llm": re.compile(
        r"\[TensorRT-LLM\]|\[TRT-LLM\]|TensorRT[- ]LLM version|ax tokens in paged KV cache|KV cache primary pool"
    ),
    "llama.cpp": re.compile(
        r"llama_kv_cache|llama_context|KV self size|llm_load_|llama_model_load|print_info:|load_tensors:"
    ),
    "vllm.rs": re.compile(r"max usable kvcache tokens"),
    "lmdeploy": re.compile(r"\[BlockManager\]|\[TM\]\[|turbomind|Object cache budget"),
}
"""What tells which engine a line is from."""

HEADS = {
    "api": re.compile(r"vLLM API server version|[█▄▀][█▄▀ ]{0,40} version v?\d"),
    "engine": re.compile(r"Initializing an? (?:V[01] )?LLM engine"),
    "server": re.compile(r"server_args=ServerArgs\("),
    "build": re.compile(
        r"\bbuild(?::| =) \d{1,6} \([0-9a-f]{6,40}\)|TensorRT[- ]LLM version:|\[BlockManager\] block_size|"
        r"msg=\"starting (?:llama server|runner|go runner)"
    ),
}
"""What an engine prints as it begins. A "build" comes several times in one start: it begins one only after a pool."""
DRAFT = re.compile(r"loading draft model|load_model: loading draft")
"""llama.cpp loads a draft model after the cache of the target; that begins no start."""
LOAD = re.compile(r"Model loading took|Loading model weights took|llama_model_loader: loaded meta data")
POOL = re.compile(
    r"KV cache size: \d|Available KV cache memory|memory reserved for KV Cache is|KV Cache is allocated|"
    r"# \w+ blocks: \d|paged KV cache|KV self size|cells, +\d+ layers|max_block_count|KV cache is needed|"
    r"tokens per request: |max usable kvcache tokens"
)
FAILURES = (
    re.compile(r"To serve at least one request.{0,500}"),
    re.compile(r"No available memory for the cache blocks.{0,200}"),
    re.compile(r"is larger than the maximum number of tokens that can be stored.{0,200}"),
    re.compile(r"exceeds available Mamba cache blocks.{0,200}"),
    re.compile(r"is less than desired GPU memory utilization.{0,200}"),
    re.compile(r"Not enough memory.{0,200}"),
    re.compile(r"(?:OutOfMemoryError|(?:CUDA|HIP)(?: error:)? out of memory|failed: out of memory).{0,300}"),
    re.compile(r"Engine core initialization failed.{0,100}"),
    re.compile(r"EngineCore failed to start.{0,100}"),
)
"""Why a start failed, the more telling reasons first."""
READY = re.compile(
    r"Application startup complete|Uvicorn running|The server is fired up|server is listening|all slots are idle"
)
"""The start is over: what goes wrong later is no failure of it."""
