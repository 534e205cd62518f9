"""How fast a backlog drains, beside a plain loop that walks it step by step to the same result.

    python benchmarks/batching.py [--requests N]

The loop runs one request in 200, and both must take the same steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from timing import Row, best, table

from kvplan import Plan
from kvplan.batching import drain
from kvplan.catalog import resolve

SLOTS = (8, 16, 64, 256)


def continuous_by_steps(lengths: list[int], slots: int) -> int:
    """Every slot counts down by one token a step; a finished request is replaced at the next."""
    waiting = iter(lengths)
    left = [length for _, length in zip(range(slots), waiting, strict=False)]
    steps = 0
    while left:
        steps += 1
        after = [tokens - 1 for tokens in left]
        left = []
        for tokens in after:
            tokens = tokens or next(waiting, 0)
            if tokens:
                left.append(tokens)
    return steps


def static_by_steps(lengths: list[int], slots: int) -> int:
    """A batch counts down until its last member is done."""
    steps = 0
    for start in range(0, len(lengths), slots):
        left = lengths[start : start + slots]
        while any(tokens > 0 for tokens in left):
            left = [tokens - 1 for tokens in left]
            steps += 1
    return steps


LOOPS = {"static": static_by_steps, "continuous": continuous_by_steps}


def rows(requests: int = 1_000_000) -> Iterator[Row]:
    """Requests a second. Raises RuntimeError where the two do not agree."""
    lengths = resolve(Plan()).lengths.sample(requests, seed=0)
    few = lengths[: max(1, requests // 200)]
    for policy, loop in LOOPS.items():
        for slots in SLOTS:
            seconds, _ = best(lambda slots=slots, policy=policy: drain(lengths, slots, policy).steps)
            slow, steps = best(lambda slots=slots, loop=loop: loop(few.tolist(), slots))
            if steps != drain(few, slots, policy).steps:
                raise RuntimeError(
                    f"{policy} on {slots} slots: the loop takes {steps:,} steps, the drain another number"
                )
            yield Row(f"drain: {policy}, {slots} slots", requests / seconds, "a loop", few.size / slow, "requests/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    print(table(rows(parser.parse_args().requests)))
