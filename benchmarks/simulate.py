"""How many requests a second the simulator serves, beside a plain one that looks at every request in every step.

    python benchmarks/simulate.py [--requests N] [--profile]

Azure conversation lengths, 256 slots, a backlog. Both get the same requests (the plain one the first of them) and must
end with the same steps and preemptions. Rates are of whole calls, the best of several, as noise only adds.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from timing import Row, best, table

from kvplan import Plan
from kvplan.catalog import resolve
from kvplan.lengths import draw
from kvplan.roofline import remembered, step_time
from kvplan.simulate import simulate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from plain_simulator import plain_simulate

SLOTS = 256
BLOCK_BYTES = 2_097_152
"""Of 16 tokens of Llama 3.1 8B in bf16."""


def by_work(prefill_tokens: int, decoding: int, resident_tokens: int) -> float:
    """Seconds of a step that grow with what it does; a stand-in that costs as little as a function can."""
    return 0.008 + 2e-5 * prefill_tokens + 1e-8 * resident_tokens


ESTIMATE = remembered(step_time(resolve(Plan()), attended=1_000.0))
"""What a plan takes that gives no step time of its own."""
CASES = {
    "constant step, roomy pool": (24_000, "on_demand", 0.02),
    "constant step, few preempted": (20_000, "on_demand", 0.02),
    "constant step, tight pool": (16_500, "on_demand", 0.02),
    "constant step, reserve": (24_000, "reserve", 0.02),
    "varying step, prompts in parts": (20_000, "on_demand", by_work),
    "estimated step": (20_000, "on_demand", ESTIMATE),
}


def rows(number: int = 1_000_000) -> Iterator[Row]:
    """Requests a second of whole calls. Raises RuntimeError where the two do not agree."""
    requests = drawn(number)
    few = [(0.0, int(prompt), int(output)) for _, prompt, output in requests[: max(1, number // 500)]]
    for name, (blocks, policy, seconds_of) in CASES.items():
        plan = Plan(max_num_seqs=SLOTS, kv_cache_memory_bytes=blocks * BLOCK_BYTES)
        runs = 3 if number <= 2_000_000 else 1
        seconds, _ = best(partial(simulate, requests, plan, policy=policy, step_time=seconds_of), runs)
        slow, plain = best(partial(plain_simulate, few, plan, policy, seconds_of), 1)
        same = simulate(few, plan, policy=policy, step_time=seconds_of)
        if (plain.steps, sum(kind == "preempted" for _, kind, _ in plain.events)) != (same.steps, same.preemptions):
            raise RuntimeError(f"{name}: the plain simulator takes {plain.steps:,} steps, simulate another number")
        yield Row(f"simulate: {name}", number / seconds, "step by step", len(few) / slow, "requests/s")


def drawn(number: int) -> np.ndarray:
    """So many requests of the trace, all at once."""
    prompts, outputs = draw(resolve(Plan()).lengths, number, seed=0)
    return np.column_stack([np.zeros(number), prompts, outputs])


def profile(number: int) -> None:
    """Where the time of the second case goes."""
    blocks, policy, seconds_of = CASES["constant step, few preempted"]
    plan = Plan(max_num_seqs=SLOTS, kv_cache_memory_bytes=blocks * BLOCK_BYTES)
    requests = drawn(number)
    with cProfile.Profile() as found:
        simulate(requests, plan, policy=policy, step_time=seconds_of)
    pstats.Stats(found).sort_stats("tottime").print_stats(8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--profile", action="store_true", help=profile.__doc__)
    options = parser.parse_args()
    print(table(rows(options.requests)))
    print(f"most memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    if options.profile:
        profile(options.requests)
