"""How fast a backlog drains, beside a plain loop that walks it step by step to the same result.

    python benchmarks/batching.py [--requests N]

Prints requests a second (the best of several runs, as noise only adds) and the ratio of the two.
"""

import argparse

from timing import best

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    requests = parser.parse_args().requests
    lengths = resolve(Plan()).lengths.sample(requests, seed=0)
    few = lengths[: max(1, requests // 200)]
    print(f"{requests:,} requests of the Azure conversation trace; the loop runs {few.size:,} of them")
    print(f"{'policy':<12}{'slots':>6}{'drain':>18}{'loop':>18}{'ratio':>9}")
    for policy, loop in LOOPS.items():
        for slots in SLOTS:
            seconds, _ = best(lambda slots=slots, policy=policy: drain(lengths, slots, policy).steps)
            slow, steps = best(lambda slots=slots, loop=loop: loop(few.tolist(), slots))
            if steps != drain(few, slots, policy).steps:
                raise SystemExit(f"{policy} on {slots} slots: the loop takes {steps:,} steps, the drain another number")
            fast, plain = requests / seconds, few.size / slow
            print(f"{policy:<12}{slots:>6}{fast:>14,.0f} r/s{plain:>14,.0f} r/s{fast / plain:>8,.0f}×")


if __name__ == "__main__":
    main()
