"""What other planners make of one plan, where they are installed: Llama 3.1 8B in bf16 on one H100.

None of them computes what `evaluate` does: hf-mem and kvfit give bytes of a request, ridgepoint and vllm-sr-sim what a
device holds and how fast it is. llm-analysis is left out, as it needs transformers below 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
PARAMETERS = 8_030_261_248


def hf_mem() -> Callable[[int], object]:
    from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size

    return lambda context: compute_safetensors_kv_cache_size(CONFIG, "BF16", context)


def kvfit() -> Callable[[int], object]:
    from kvfit.architectures import estimate_cache

    return lambda context: estimate_cache(CONFIG, context_tokens=context)


def ridgepoint() -> Callable[[int], object]:
    from ridgepoint import _core

    shape = ("llama-3.1-8b", 32, 32, 4096, PARAMETERS, PARAMETERS, "gqa", 128, 32, 8)
    return lambda context: _core.fit_shape(*shape, gpu="h100-80gb", ctx=context, as_json=True)


def vllm_sr_sim() -> Callable[[int], object]:
    from fleet_sim import H100_SXM, LLAMA_3_1_8B, ProfileBuilder, ServingConfig

    return lambda context: ProfileBuilder().build(H100_SXM, LLAMA_3_1_8B, ServingConfig(mean_ctx_tokens=context))


def installed() -> Iterator[tuple[str, Callable[[int], object]]]:
    """The planners that are there, each as a call for one context."""
    for name, load in (("hf-mem", hf_mem), ("kvfit", kvfit), ("ridgepoint", ridgepoint), ("vllm-sr-sim", vllm_sr_sim)):
        try:
            yield name, load()
        except ImportError:
            continue
