"""What a token costs, factor by factor: the products are the cache's own bytes for every model and every width."""

from fractions import Fraction

import pytest

from kvplan import Plan, evaluate, presets
from kvplan.token_terms import token_terms

PLANS = {
    "as it comes": ({}, 1),
    "tp 4": ({"tp": 4}, 3),
    "fp8": ({"kv_dtype": "fp8"}, 3),
    "with scales": ({"kv_dtype": "int8_per_token_head"}, 3),
    "values narrower": ({"kv_dtype": "fp8", "v_dtype": "int4"}, 3),
    "three stages and a draft": ({"pp": 3, "spec_method": "mtp", "spec_tokens": 1}, 3),
}
"""Fields of the plan, and of how many models each one is tried."""


def value(factors: str) -> Fraction:
    """What factors multiply to, read as text: words and units dropped, × and / as they stand."""
    words = factors.replace("×", "*").replace("(", "( ").replace(")", " )").split()
    kept = [word.replace(",", "") for word in words if word in ("*", "/", "+", "(", ")") or word[0].isdigit()]
    return eval(" ".join(word if not word[0].isdigit() else f"Fraction('{word}')" for word in kept))


@pytest.mark.parametrize(("fields", "step"), PLANS.values(), ids=PLANS)
def test_the_factors_of_every_model_multiply_to_its_bytes_per_token(fields, step):
    served = 0
    for model in presets("model")[::step]:
        report = evaluate(Plan(model=model, **fields))
        if not report.is_served:
            continue
        terms = token_terms(report.setting)
        assert [value(term.factors) for term in terms] == [term.size_bytes for term in terms], model
        assert sum(term.size_bytes for term in terms) == report.cache.bytes_per_token, model
        served += 1
    assert served > 100 / step


@pytest.mark.parametrize(
    ("fields", "factors"),
    [
        # Llama 3.1 8B, config.json: 32 layers, 8 KV heads of 128.
        ({}, ["2 × 32 layers × 8 KV heads × 128 × 2 B"]),
        # Four devices have two heads each; sixteen would have one each and copy it.
        ({"tp": 4}, ["2 × 32 layers × 2 KV heads × 128 × 2 B"]),
        ({"tp": 16}, ["2 × 32 layers × 1 KV head × 128 × 2 B"]),
        ({"kv_dtype": "int4"}, ["2 × 32 layers × 8 KV heads × 128 × 0.5 B"]),
        # vLLM keeps an fp32 scale a token and head for keys and one for values.
        ({"kv_dtype": "int8_per_token_head"}, ["32 layers × 8 KV heads × (128 × 1 B + 128 × 1 B + 8 B scales)"]),
        # Gemma 3 27B: 10 of 62 layers attend to all tokens.
        ({"model": "gemma-3-27b"}, ["2 × 10 layers × 16 KV heads × 128 × 2 B"]),
        # DeepSeek-V3: kv_lora_rank 512 and 64 of RoPE, on every rank.
        ({"model": "deepseek-v3", "tp": 8}, ["61 layers × 576 latent × 2 B"]),
        # DeepSeek-V3.2: 656 bytes a packed latent, and an index key of 128 fp8 and one scale.
        (
            {"model": "deepseek-v3.2", "kv_dtype": "fp8"},
            ["61 layers × 656 B packed latent", "61 layers × 132 B index key"],
        ),
        ({"model": "falcon-mamba-7b"}, []),
    ],
    ids=str,
)
def test_factors_are_those_of_the_architecture(fields, factors):
    assert [term.factors for term in token_terms(evaluate(Plan(**fields)).setting)] == factors
