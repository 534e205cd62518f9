"""What paging saved: a plan's pool and workload under contiguous allocators, and in blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kvplan import allocators, lengths, paging
from kvplan.allocators import BUDDY, MAXIMUM, ORACLE, POWER_OF_TWO, Allocation
from kvplan.ceiling import shared_prefix_blocks
from kvplan.engine import in_flight_tokens, layout
from kvplan.growth import blocks_by_tokens, linear_cost
from kvplan.pool import SEED, requests_of
from kvplan.report import Report
from kvplan.traffic import Traffic, traffic
from kvplan.units import count

PAGED = "paged"
REQUESTS_PER_RUNNING = 12
FEWEST, MOST = 400, 3_000
"""Requests of a run that a page waits for."""
USUAL = 0.99
"""Share of the requests up to whose length windows are said to grow or to be full."""
IN_TURN = 20_000
"""Requests that are drawn to be taken in turn, again from the first where still more fit."""


@dataclass(frozen=True, eq=False)
class Compared:
    """The same requests through the same `slots`, each for a token on a device, under each allocator. What a request
    books whatever its length (windows, states) counts as `fixed_slots` more tokens, beside its extent."""

    found: Traffic
    slots: int
    fixed_slots: int
    runs: dict[str, Allocation]

    @property
    def contiguous(self) -> dict[str, Allocation]:
        """The runs that give each request one extent."""
        return {kind: run for kind, run in self.runs.items() if kind != PAGED}


@dataclass(frozen=True)
class InTurn:
    """Requests of the workload at their full length, taken in turn, that fit into the pool at once: each in blocks of
    its own tokens, or each with the whole context."""

    paged: int
    reserved: int


def compared(report: Report, allocator: str = BUDDY) -> Compared | None:
    """A backlog of the workload, no prefix shared. A contiguous request declares the context, or its prompt and the
    plan's `max_tokens`. None where no layer grows, the plan does not start, or every prompt is as long as the
    context."""
    plan = report.plan
    if not report.cache.bytes_per_token or not report.engine.fits:
        return None
    number = min(max(FEWEST, REQUESTS_PER_RUNNING * report.capacity.on_demand_running), MOST)
    found = traffic(
        requests_of(report.setting, number), context=plan.context, max_tokens=plan.max_tokens or plan.context
    )
    if not found.prompts.size:
        return None
    usual = int(np.quantile(found.prompts + found.outputs, USUAL))
    blocks, slope = linear_cost(layout(report.setting), in_flight_tokens(report.setting, plan.context), usual)
    slots, fixed = int(report.engine.num_blocks / slope), round(blocks / slope)
    quota = report.capacity.tenant_quota
    most = report.setting.max_num_seqs if quota is None else max(1, min(quota, report.setting.max_num_seqs))
    runs = {kind: allocators.contiguous(found, slots, kind, allocator, most, fixed) for kind in allocators.KINDS}
    with_fixed = replace(found, prompts=found.prompts + fixed)
    runs[PAGED] = allocators.paged(with_fixed, slots, report.engine.block_size * plan.dcp, most)
    return Compared(found, slots, fixed, runs)


def in_turn(report: Report) -> InTurn:
    """How many requests of the workload fit at their full length, one after another in the order in which they were
    observed, or drawn."""
    setting, pool = report.setting, report.engine.num_blocks
    shape = layout(setting)
    prompts, outputs = lengths.clipped(_in_order(report), setting.plan.context)
    tokens = np.ceil(prompts + outputs).astype(np.int64)
    own = blocks_by_tokens(setting, shape)(tokens) - shared_prefix_blocks(setting, shape, tokens)
    pool -= int(shared_prefix_blocks(setting, shape, setting.plan.context))
    if pool <= 0:
        return InTurn(0, report.capacity.memory_ceiling)
    whole, rest = divmod(pool, int(own.sum()))
    fitting = int(np.searchsorted(np.cumsum(own), rest, side="right"))
    return InTurn(whole * own.size + fitting, report.capacity.memory_ceiling)


def last_step(found: Compared) -> int:
    """Up to which step requests wait under every contiguous allocator."""
    return min(int(run.placed.first_steps.max(initial=1)) for run in found.contiguous.values())


def step_of(found: Compared, quarter: int) -> int:
    """A step one, two or three quarters (0, 1, 2) into the time in which requests wait."""
    return max(1, last_step(found) * (quarter + 1) // 4)


def table(found: Compared) -> list[dict]:
    """Each allocator's run as a row; shares of the pool in percent."""
    return [
        {
            "Allocator": NAMES[kind],
            "Runs, mean": run.running,
            "Holding tokens, %": 100 * run.held,
            "For later, %": 100 * run.reserved,
            "Never used, %": 100 * run.internal,
            "Free, %": 100 * run.free,
            "Refused with enough free, % of steps": 100 * run.blocked_share,
        }
        for kind, run in found.runs.items()
    ]


def refusals(found: Compared) -> list[str]:
    """When an admission first failed although enough was free in all, allocator by allocator."""
    lines = []
    for kind, run in found.contiguous.items():
        if run.first_blocked is not None:
            at = int(np.searchsorted(run.steps, run.first_blocked, side="right")) - 1
            free, largest = count(int(run.free_slots[at])), count(int(run.largest[at]))
            lines.append(
                f"{NAMES[kind]}: at step {count(run.first_blocked)} the next request did not fit although {free} slots "
                f"were free, as the largest extent had {largest}"
            )
    return lines


NAMES = {
    MAXIMUM: "Contiguous, declared maximum",
    POWER_OF_TWO: "Contiguous, power of two",
    ORACLE: "Contiguous, true length",
    PAGED: "Paged",
}


def _in_order(report: Report) -> lengths.Lengths:
    """The requests in turn: a list as it was observed, else as many as are drawn."""
    found = report.setting.lengths
    if found.shares.size <= paging.SHORT_LIST and np.allclose(found.shares, found.shares[0]):
        return found
    prompts, outputs = lengths.draw(found, IN_TURN, SEED)
    return lengths.from_samples(outputs, prompts)
