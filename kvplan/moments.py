"""Who holds what in a pool at a moment of a run, and how soon it would be full."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.cache import held_bytes
from kvplan.catalog import Setting
from kvplan.engine import Layout, layout
from kvplan.growth import blocks_by_tokens, steps_to_exhaustion
from kvplan.prefix_cache import PrefixCache, of_prefix
from kvplan.report import Report
from kvplan.simulate import Simulation
from kvplan.units import MIB, count

FILLS, RUNS_OUT, PEAK = "as it first fills", "before it runs out", "at its peak"
RANKS = {"largest": 1.0, "larger than 3 in 4": 0.75, "median": 0.5, "larger than 1 in 4": 0.25, "smallest": 0.0}


@dataclass(frozen=True, eq=False)
class Moment:
    """The pool of a run in one of its steps, before anyone was preempted: the `prompts` and `tokens` of the requests
    that run, the tokens each is `declared` to grow to, those of a shared prefix that are counted again for each but the
    first that has it, blocks booked and free, and after how many steps these run out if no request ends (None: never).
    """

    step: int
    prompts: np.ndarray
    tokens: np.ndarray
    declared: np.ndarray
    shared_tokens: int
    used_blocks: int
    free_blocks: int
    steps_left: int | None


def moments(setting: Setting, run: Simulation, prompts: np.ndarray) -> dict[str, Moment]:
    """Moments of a run of requests with these prompts, by their names: the step in which one first has to wait for
    another to end, and the last before the pool runs out or, if it never does, the fullest of those that are kept.
    Steps in which prompts are computed and nobody writes yet are none."""
    writes = run.timeline.tokens > 0
    steps, found = run.timeline.steps[writes], {}
    last = run.preempted_at[0] - 1 if run.preempted_at.size else run.steps
    waits = np.flatnonzero(run.timeline.blocked[writes] & (steps <= last))
    if waits.size:
        found[FILLS] = int(steps[waits[0]])
    if run.preempted_at.size:
        found = {name: step for name, step in found.items() if step < last} | {RUNS_OUT: int(last)}
    elif steps.size:
        found[PEAK] = int(steps[run.timeline.blocks[writes].argmax()])
    return {name: _moment(setting, run, prompts, step) for name, step in found.items()}


def holders(report: Report, moment: Moment) -> list[dict]:
    """Who holds what in a moment: the largest and the smallest request, some between them, and all together; sizes on a
    device of the fullest stage."""
    shape = layout(report.setting)
    blocks, size = blocks_by_tokens(report.setting, shape), shape.bytes_per_block
    columns = {
        "Prompt": moment.prompts,
        "Generated": moment.tokens - moment.prompts,
        "Held, MiB": held_bytes(report.setting, moment.tokens) / MIB,
        "Booked on demand, MiB": blocks(moment.tokens) * size / MIB,
        "Booked by reserve, MiB": blocks(moment.declared) * size / MIB,
    }
    order = np.argsort(moment.tokens, kind="stable")
    ranks = [order[round(rank * (order.size - 1))] for rank in RANKS.values()]
    rows = [
        {"Request": name} | {column: values[place].item() for column, values in columns.items()}
        for name, place in zip(RANKS, ranks, strict=True)
    ]
    together = {column: values.sum().item() for column, values in columns.items()}
    together["Booked on demand, MiB"] = moment.used_blocks * size / MIB
    together["Held, MiB"] -= moment.shared_tokens * report.cache.bytes_per_token / MIB
    return [*rows, {"Request": f"all {count(order.size)} together"} | together]


def _moment(setting: Setting, run: Simulation, prompts: np.ndarray, step: int) -> Moment:
    """The requests that write in a step before which none was preempted: each has a token for each step since its
    first. One whose prompt is still being computed has the blocks of all of it."""
    running = (run.first_steps <= step) & (step <= run.completed_steps)
    own = prompts[run.places[running]]
    tokens = own + step - run.first_steps[running] + 1
    shape = layout(setting)
    blocks = blocks_by_tokens(setting, shape)
    begun = prompts[run.places[(run.admitted_steps <= step) & (step < run.first_steps)]]
    again, prefix = _shared(setting, shape, np.append(own, begun))
    used = int(blocks(tokens).sum() + blocks(begun + 1).sum()) - again * prefix.unit_blocks
    free = run.num_blocks - used
    return Moment(
        step=step,
        prompts=own,
        tokens=tokens,
        declared=np.minimum(setting.plan.context, own + run.max_tokens),
        shared_tokens=again * prefix.unit_tokens,
        used_blocks=used,
        free_blocks=free,
        steps_left=steps_to_exhaustion(tokens, blocks, free),
    )


def _shared(setting: Setting, shape: Layout, prompts: np.ndarray) -> tuple[int, PrefixCache]:
    """How many requests but the first have the shared prefix, and its blocks and tokens."""
    found, units = of_prefix(setting.shared_prefix_tokens, prompts, shape, 0)
    return max(0, sum(map(len, units)) - 1), found
