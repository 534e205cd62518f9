"""Names of checkpoints, as commands and logs have them: which model a name means, and how wide its weights are."""

from __future__ import annotations

import re

from kvplan import catalog
from kvplan.specs import ModelSpec

QUANTISED = {
    r"fp8(?:[-_]dynamic|[-_]kv)?|w8a8[-_]fp8": "fp8",
    r"(?:quantized\.)?w8a8|int8|8bit|bnb[-_]8bit": "int8",
    r"(?:quantized\.)?w4a16|awq(?:[-_](?:int4|4bit|marlin))?|gptq(?:[-_](?:int4|4bit|marlin))?|int4|4bit|bnb[-_]4bit|"
    r"auto[-_]?round(?:[-_](?:gptq|int4|4bit))*|nvfp4|mxfp4": "int4",
}
"""How names of checkpoints and of quantisations say how wide the weights are."""
HUB_CACHE = re.compile(r"models--([^/]{1,200})/snapshots/")
GGUF_ENDING = re.compile(r"(?:[-.](?:i?q\d\w{0,10}|b?f16|f32))?\.gguf$|[-_ ]gguf$", re.IGNORECASE)
"""What stands around a model's name in paths."""


def preset_of(name: str | None) -> ModelSpec | None:
    """The model preset of a name as engines print it, also of a folder or of a quantised checkpoint; None where there
    is none."""
    plain = _repository(name or "")
    while plain:
        try:
            return catalog.load_preset(plain, "model")
        except ValueError:
            plain, _ = _without_width(plain)
    return None


def is_wide(model: ModelSpec) -> bool:
    """Whether a model was released in 16 bits or more."""
    return bool(model.parameters and model.weight_bytes and model.weight_bytes >= 1.9 * model.parameters)


def stated_width(name: str | None, quantization: str | None, model: ModelSpec | None) -> str | None:
    """The width of the weights where a name or a quantisation says that of a model which was released in 16 bits; None
    where neither does.

    >>> stated_width("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", None, preset_of("llama-3.3-70b"))
    'fp8'
    """
    if model is None or not is_wide(model):
        return None
    said = [_without_width((name or "").rstrip("/"))[1], _without_width(f"-{quantization}")[1]]
    return next((width for width in said if width is not None), None)


def _repository(name: str) -> str:
    """A model's name without what engines put around it: the Hub's cache, a GGUF ending with its width.

    >>> _repository("/hub/models--Qwen--Qwen3-8B/snapshots/1a2b"), _repository("/models/Qwen3-8B-Q4_K_M.gguf")
    ('Qwen/Qwen3-8B', '/models/Qwen3-8B')
    """
    if cached := HUB_CACHE.search(name):
        return cached[1].replace("--", "/", 1)
    return GGUF_ENDING.sub("", name.rstrip("/")).replace(" ", "-")


def _without_width(name: str) -> tuple[str, str | None]:
    """A name without the ending that says how wide its weights are, and the width; an empty name where none does.

    >>> _without_width("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    ('RedHatAI/Llama-3.3-70B-Instruct', 'fp8')
    """
    for ending, width in QUANTISED.items():
        if match := re.search(rf"[-_. ](?:{ending})$", name, re.IGNORECASE):
            return name[: match.start()], width
    return "", None
