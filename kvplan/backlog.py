"""A fixed backlog through the plan's batch: static beside continuous, in steps, seconds and requests a second.

The steady state says what continuous batching does while requests wait. A backlog shows how: the same requests in the
same order, the slots that idle behind the longest of a batch, and the tail when nothing waits any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan import batching
from kvplan.batching import Drain
from kvplan.catalog import Setting
from kvplan.report import Report
from kvplan.units import round_end

REQUESTS_PER_SLOT = 12.5
"""Of lengths that are drawn; the example of the literature has 200 requests on 16 slots."""
MOST_REQUESTS = 100_000
SEED = 37
MOST_SLOTS = 32
"""Slots a picture has rows for; more would be thinner than they can be told apart."""


@dataclass(frozen=True)
class Backlog:
    """`lengths` in tokens, in order; how many steps of `step_s` seconds each policy takes on so many `slots`."""

    lengths: np.ndarray
    slots: int
    step_s: float
    static: Drain
    continuous: Drain

    @property
    def gain(self) -> float:
        """How many times as long static batches take; 1 for equal lengths."""
        return self.static.steps / self.continuous.steps

    def wall_s(self, run: Drain) -> float:
        """Seconds from the first step to the last."""
        return run.steps * self.step_s

    def requests_per_s(self, run: Drain) -> float:
        """Requests a second over the whole run."""
        return self.lengths.size / self.wall_s(run)


def backlog(report: Report, equal: bool = False) -> Backlog:
    """The backlog of a plan. `equal`: every request as long as their mean, which leaves nothing to wait for."""
    lengths = _lengths(report.setting, report.batching.batch)
    if equal:
        lengths = np.full_like(lengths, max(1, round(float(lengths.mean()))))
    slots = report.batching.batch
    return Backlog(
        lengths=lengths,
        slots=slots,
        step_s=report.step_s,
        static=batching.drain(lengths, slots, "static"),
        continuous=batching.drain(lengths, slots, "continuous"),
    )


def steps_shown(found: Backlog) -> int:
    """Up to which step a picture of both runs goes: the next round number behind the end of the continuous one.

    >>> from kvplan import Plan, evaluate
    >>> steps_shown(backlog(evaluate(Plan(workload="seeded-200", batch=16))))
    1250
    """
    return round_end(found.continuous.steps)


def _lengths(setting: Setting, batch: int) -> np.ndarray:
    """Observed requests in their order where the workload has them, else as many as fill the slots some twelve times,
    drawn from its lengths."""
    samples = setting.workload and setting.workload.samples
    if samples:
        return np.array([output for _, output in samples], dtype=np.int64)
    return setting.lengths.sample(min(round(REQUESTS_PER_SLOT * batch), MOST_REQUESTS), SEED)
