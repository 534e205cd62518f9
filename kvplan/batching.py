"""How well a batch is used: static batches wait for their longest member, continuous ones refill the slot."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvplan.lengths import Lengths, harmonic

Policy = Literal["static", "continuous"]
REPLICATES = 200


@dataclass(frozen=True)
class Drain:
    """How long a backlog takes: `steps` until the last request is done, `busy` the share of slot-steps that worked."""

    steps: int
    busy: float


@dataclass(frozen=True)
class Schedule:
    """Where and when each request of a backlog runs, in steps: arrays of one entry a request, in its order.

    It works from `starts` to `ends`; `until` is when its slot is free again, later than `ends` where it waits for the
    longest of its batch.
    """

    slots: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    until: np.ndarray


def static_utilisation(lengths: Lengths, batch):
    """Share of slot-steps a static batch uses: U_B = E[S] / E[max of B]. `batch` a whole number or an array of them.

    A batch lasts as long as its longest member. Exact for every law with a quantile function; 1 for equal lengths.
    """
    used = np.minimum(lengths.mean / lengths.expected_max(batch), 1.0)  # equal lengths may miss 1 by rounding
    return float(used) if np.ndim(used) == 0 else used


def exponential_utilisation(batch):
    """U_B if lengths were exponential: 1 / H_B, whatever their mean."""
    return 1 / harmonic(batch)


def drain(lengths: Sequence[int], slots: int, policy: Policy) -> Drain:
    """Run a fixed backlog of requests, in order, through `slots`; each takes as many steps as it has tokens.

    Static: batches of `slots` in arrival order, each as long as its longest member. Continuous: list scheduling, a
    finished request is replaced at the next step. Raises ValueError for an unknown policy, no slots, or lengths that
    are not positive whole numbers.
    """
    steps = _checked(lengths, slots, policy)
    makespan = _DRAINS[policy](steps, slots)
    return Drain(steps=makespan, busy=int(steps.sum()) / (slots * makespan))


def schedule(lengths: Sequence[int], slots: int, policy: Policy) -> Schedule:
    """The same run, request by request: its last `until` is the steps of `drain`. Raises as `drain` does."""
    return _SCHEDULES[policy](_checked(lengths, slots, policy), slots)


def bootstrap_band(
    lengths: Lengths, requests: int, batches: Sequence[int], seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Between which values 95% of static utilisations lie when as many `requests` are drawn again from their own
    lengths: how far the curve can be trusted for traffic of this size. Low and high, one entry a batch.

    Source: Efron, Bootstrap methods: another look at the jackknife, 1979 (percentiles).
    """
    values, positions = np.unique(lengths.outputs, return_inverse=True)
    shares = np.bincount(positions, weights=lengths.shares)
    drawn = np.random.default_rng(seed).multinomial(requests, shares / shares.sum(), size=REPLICATES) / requests
    upper = np.minimum(np.cumsum(drawn, axis=1), 1.0)
    means = drawn @ values
    steps = np.diff(values)
    # E[max of B] = the longest - sum of u^B (x_(i+1) - x_i), by parts; the longest drawn enters through u = 1.
    used = [means / (values[-1] - upper[:, :-1] ** batch @ steps) for batch in batches]
    low, high = np.quantile(used, [0.025, 0.975], axis=1)
    return low, high


def _checked(lengths: Sequence[int], slots: int, policy: str) -> np.ndarray:
    steps = np.asarray(lengths)
    if steps.ndim != 1 or steps.size == 0 or not (np.isfinite(steps) & (steps >= 1) & (steps == np.floor(steps))).all():
        raise ValueError("lengths: a sequence of positive whole numbers is needed")
    if slots < 1:
        raise ValueError(f"slots: at least one is needed, got {slots}")
    if policy not in _DRAINS:
        raise ValueError(f"policy: must be one of {', '.join(_DRAINS)}, got {policy!r}")
    return steps.astype(np.int64)


def _drain_static(steps: np.ndarray, slots: int) -> int:
    return int(_longest_of_batches(steps, slots).sum())


def _longest_of_batches(steps: np.ndarray, slots: int) -> np.ndarray:
    return np.maximum.reduceat(steps, np.arange(0, steps.size, slots))


def _drain_continuous(steps: np.ndarray, slots: int) -> int:
    """The free slot with the earliest end takes the next request."""
    ends = [0] * min(slots, steps.size)
    for length in steps.tolist():
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


def _static_schedule(steps: np.ndarray, slots: int) -> Schedule:
    begin = np.concatenate([[0], np.cumsum(_longest_of_batches(steps, slots))])
    batch = np.arange(steps.size) // slots
    starts = begin[batch]
    return Schedule(np.arange(steps.size) % slots, starts, starts + steps, begin[batch + 1])


def _continuous_schedule(steps: np.ndarray, slots: int) -> Schedule:
    free = [(0, slot) for slot in range(min(slots, steps.size))]
    placed = []
    for length in steps.tolist():
        start, slot = free[0]
        heapq.heapreplace(free, (start + length, slot))
        placed.append((slot, start))
    taken, starts = np.array(placed, dtype=np.int64).T
    return Schedule(taken, starts, starts + steps, starts + steps)


_DRAINS = {"static": _drain_static, "continuous": _drain_continuous}
_SCHEDULES = {"static": _static_schedule, "continuous": _continuous_schedule}
