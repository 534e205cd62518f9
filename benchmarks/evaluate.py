"""How long one evaluation takes, beside a bare loop of the same engine calls.

    python benchmarks/evaluate.py [--repeat N]

Prints microseconds a call (the least of several runs, as noise only adds) and the ratio to the engine calls alone.
"""

import argparse
import timeit

from kvplan import Plan, evaluate
from kvplan.catalog import resolve
from kvplan.engine import capacity, in_flight_tokens, layout
from kvplan.memory import budget

PLANS = {
    "uniform, Llama 3.1 8B": Plan(context=32768),
    "sliding hybrid, Gemma 3 27B": Plan(model="gemma-3-27b", context=32768, tp=2),
    "state hybrid, Qwen3-Next 80B": Plan(model="qwen3-next-80b-a3b", context=32768, tp=4),
    "MLA, DeepSeek-V3": Plan(model="deepseek-v3", gpu="h200", context=32768, tp=8),
}


def engine_only(plan: Plan) -> None:
    """One layout and one capacity, without the report around them."""
    setting = resolve(plan)
    capacity(layout(setting), plan.context, budget(setting).pool_bytes, in_flight_tokens(setting, plan.context))


def microseconds(call, repeat: int) -> float:
    return min(timeit.repeat(call, number=repeat, repeat=5)) / repeat * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=200)
    repeat = parser.parse_args().repeat
    print(f"{'plan':<32} {'evaluate':>10} {'engine':>10} {'ratio':>7}")
    for name, plan in PLANS.items():
        whole = microseconds(lambda plan=plan: evaluate(plan), repeat)
        bare = microseconds(lambda plan=plan: engine_only(plan), repeat)
        print(f"{name:<32} {whole:>7,.0f} µs {bare:>7,.0f} µs {whole / bare:>6.1f}×")


if __name__ == "__main__":
    main()
