"""A model that is no preset, read from its config.json, and what the engine would print for it."""

from pathlib import Path

from kvplan import Plan, evaluate, model_from_hf_config

CONFIG = Path(__file__).parents[1] / "docs/samples/config.json"

model = model_from_hf_config(CONFIG)
plan = Plan(context=32768, kv_cache_memory_bytes=round(33.3 * 2**30))
engine = evaluate(plan, model=model).engine
print(f"{model.parameters:,} parameters, {sum(group.layers for group in model.groups)} layers")
print(f"GPU KV cache size: {engine.kv_cache_tokens:,} tokens")
print(f"Maximum concurrency for {plan.context:,} tokens per request: {engine.max_concurrency:.2f}x")

try:
    model_from_hf_config({"model_type": "bert"})
except ValueError as error:
    print(error)
