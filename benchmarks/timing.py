"""What the benchmarks share."""

import time

RUNS = 3


def best(call, runs: int = RUNS):
    """Seconds of the fastest run, as noise only adds, and its result."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result
