"""How many plans a second are evaluated, one by one and in sweeps, beside the loop and beside other planners.

    python benchmarks/evaluate.py [--profile]

No two plans of a run are equal: one by one they differ in their context, so that what hangs on the model is remembered,
or in model and tp, so that nothing is.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from collections.abc import Iterator, Sequence

import numpy as np
from peers import installed
from timing import Row, best, in_turns, table

from kvplan import Plan, evaluate, presets, sweep

PLANS = {
    "uniform, Llama 3.1 8B": Plan(),
    "sliding hybrid, Gemma 3 27B": Plan(model="gemma-3-27b", tp=2),
    "state hybrid, Qwen3-Next 80B": Plan(model="qwen3-next-80b-a3b", tp=4),
    "MLA, DeepSeek-V3": Plan(model="deepseek-v3", gpu="h200", tp=8),
    "compressed, DeepSeek-V4 Pro": Plan(model="deepseek-v4-pro", gpu="b200", tp=8),
}
FEW = 200
CONTEXTS = range(4096, 4096 + FEW)


def evaluated(plans: Sequence[Plan]) -> None:
    for plan in plans:
        evaluate(plan)


def one_by_one() -> Iterator[Row]:
    """Plans a second, one call each."""
    for name, plan in PLANS.items():
        plans = [plan.model_copy(update={"context": context}) for context in CONTEXTS]
        ours, theirs = in_turns(lambda plans=plans: evaluated(plans), lambda plans=plans: whole(plans))
        yield Row(f"evaluate: {name}", FEW / ours, "with every part of the report", FEW / theirs, "plans/s")
    structures = [Plan(model=model, tp=tp, gpu="h200") for model in presets("model") for tp in (1, 2, 4, 8)]
    seconds, _ = best(lambda: evaluated(structures), 1)
    plans = [Plan(context=context) for context in range(1, 1 + len(structures))]
    theirs, _ = best(lambda: evaluated(plans))
    rates = len(plans) / seconds, len(plans) / theirs
    yield Row("evaluate: every model and tp for the first time", rates[0], "one model", rates[1], "plans/s")
    for name, call in installed():
        ours, theirs = in_turns(
            lambda: evaluated([Plan(context=context) for context in CONTEXTS]),
            lambda call=call: [call(context) for context in CONTEXTS],
        )
        yield Row("evaluate: uniform, Plan made as well", FEW / ours, name, FEW / theirs, "plans/s")


def whole(plans: Sequence[Plan]) -> None:
    for plan in plans:
        evaluate(plan).to_dict()


def sweeps(millions: bool = True) -> Iterator[Row]:
    """Plans a second in sweeps of two axes, 44 columns each, beside evaluating one by one."""
    for name, plan in PLANS.items():
        plans = [plan.model_copy(update={"context": context}) for context in CONTEXTS]
        for side in (100, 1000) if millions else (100,):
            axes = {
                "context": range(4096, 4096 + side),
                "gpu_memory_gib": np.linspace(140, 180, side),
            }
            ours, theirs = in_turns(lambda p=plan, a=axes: sweep(p, a), lambda plans=plans: evaluated(plans), 3)
            what = f"sweep of {side * side:,}: {name}"
            yield Row(what, side * side / ours, "evaluate in a loop", FEW / theirs, "plans/s")
    contexts = range(1, 1_000_001 if millions else 10_001)
    ours, theirs = in_turns(lambda: sweep(Plan(), {"context": contexts}), lambda: evaluated(plans), 3)
    rates = len(contexts) / ours, FEW / theirs
    yield Row(f"sweep of {len(contexts):,} contexts: uniform", rates[0], "evaluate in a loop", rates[1], "plans/s")


def rows() -> Iterator[Row]:
    yield from one_by_one()
    yield from sweeps()


def profile() -> None:
    """Where the time of single calls and of a sweep goes."""
    plans = [Plan(context=context) for context in range(1024, 5120)]
    axes = {"context": range(4096, 5096), "gpu_memory_gib": np.linspace(140, 180, 1000)}
    for call in (lambda: evaluated(plans), lambda: sweep(Plan(), axes)):
        with cProfile.Profile() as found:
            call()
        pstats.Stats(found).sort_stats("tottime").print_stats(12)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", action="store_true", help=profile.__doc__)
    print(table(rows()))
    if parser.parse_args().profile:
        profile()
