"""How well a batch is used: static batches wait for their longest member, continuous ones refill the slot."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvplan.lengths import Lengths, harmonic


@dataclass(frozen=True)
class Drain:
    """How long a backlog takes: `steps` until the last request is done, `busy` the share of slot-steps that worked."""

    steps: int
    busy: float


def static_utilisation(lengths: Lengths, batch):
    """Share of slot-steps a static batch uses: U_B = E[S] / E[max of B]. `batch` a whole number or an array of them.

    A batch lasts as long as its longest member. Exact for every law with a quantile function; 1 for equal lengths.
    """
    return lengths.mean / lengths.expected_max(batch)


def exponential_utilisation(batch):
    """U_B if lengths were exponential: 1 / H_B, whatever their mean."""
    return 1 / harmonic(batch)


def drain(lengths: Sequence[int], slots: int, policy: Literal["static", "continuous"]) -> Drain:
    """Run a fixed backlog of requests, in order, through `slots`; each takes as many steps as it has tokens.

    Static: batches of `slots` in arrival order, each as long as its longest member. Continuous: list scheduling, a
    finished request is replaced at the next step. Raises ValueError for an unknown policy, no slots, or lengths that
    are not positive whole numbers.
    """
    steps = np.asarray(lengths)
    if steps.ndim != 1 or steps.size == 0 or not (np.isfinite(steps) & (steps >= 1) & (steps == np.floor(steps))).all():
        raise ValueError("lengths: a sequence of positive whole numbers is needed")
    if slots < 1:
        raise ValueError(f"slots: at least one is needed, got {slots}")
    if policy not in _DRAINS:
        raise ValueError(f"policy: must be one of {', '.join(_DRAINS)}, got {policy!r}")
    makespan = _DRAINS[policy](steps.astype(np.int64), slots)
    return Drain(steps=makespan, busy=int(steps.sum()) / (slots * makespan))


def _drain_static(steps: np.ndarray, slots: int) -> int:
    return int(np.maximum.reduceat(steps, np.arange(0, steps.size, slots)).sum())


def _drain_continuous(steps: np.ndarray, slots: int) -> int:
    """The free slot with the earliest end takes the next request."""
    ends = [0] * min(slots, steps.size)
    for length in steps.tolist():
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


_DRAINS = {"static": _drain_static, "continuous": _drain_continuous}
