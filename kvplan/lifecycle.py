"""One request from admission to release: what it books and holds in each step, and what its cache saves.

Allocate, when it is admitted; fill, its prompt at once and then a token each step; use, as every step reads all that is
held; release, when it ends, and its blocks are free at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.cache import held_bytes
from kvplan.engine import layout
from kvplan.growth import blocks_by_tokens
from kvplan.lengths import mean_prompt
from kvplan.report import Report
from kvplan.units import ceil_div

PART = 4096
"""Steps that are summed up at once."""
POINTS = 400
"""Steps a picture is drawn of at most."""


@dataclass(frozen=True, eq=False)
class Lifecycle:
    """A request of `prompt` and `output` tokens, cut to the context. `steps` are some from 1 to `output`, in which it
    holds so many bytes and has so many booked on demand; `reserved_bytes` are booked from the beginning by a reserving
    scheduler, for `declared` tokens. All on a device of the fullest stage. `read_bytes` are read of the cache in all
    steps together."""

    prompt: int
    output: int
    declared: int
    steps: np.ndarray
    held_bytes: np.ndarray
    booked_bytes: np.ndarray
    reserved_bytes: int
    first_blocks: int
    last_blocks: int
    reserved_blocks: int
    read_bytes: int


def lifecycle(
    report: Report, prompt: int | None = None, output: int | None = None, max_tokens: int | None = None
) -> Lifecycle:
    """The life of a request, by default of the workload's mean prompt and mean output. `max_tokens` is the plan's, else
    as given, else the workload's longest output.

    >>> from kvplan import Plan, evaluate
    >>> plan = Plan(model="llama-3.1-70b", tp=4, context=131072)
    >>> life = lifecycle(evaluate(plan), prompt=4095, output=1001)
    >>> [int(held) * 4 / 2**30 for held in life.held_bytes[[0, -1]]]
    [1.25, 1.55517578125]
    """
    setting = report.setting
    context = setting.plan.context
    prompt = min(round(mean_prompt(setting.lengths)) if prompt is None else prompt, context - 1)
    wanted = max(1, round(setting.lengths.mean)) if output is None else output
    longest = setting.plan.max_tokens or max(wanted, max_tokens or int(np.ceil(setting.lengths.outputs.max())))
    declared = min(context, prompt + longest)
    output = min(wanted, declared - prompt)

    shape = layout(setting)
    blocks_at = blocks_by_tokens(setting, shape)
    steps = np.unique(np.linspace(1, output, min(output, POINTS)).round().astype(np.int64))
    blocks = blocks_at(prompt + steps)
    every = prompt + np.arange(1, output + 1)
    reserved = blocks_at(declared)
    return Lifecycle(
        prompt=prompt,
        output=output,
        declared=declared,
        steps=steps,
        held_bytes=held_bytes(setting, prompt + steps),
        booked_bytes=blocks * shape.bytes_per_block,
        reserved_bytes=reserved * shape.bytes_per_block,
        first_blocks=int(blocks[0]),
        last_blocks=int(blocks[-1]),
        reserved_blocks=reserved,
        # In parts, as bytes of many steps are more than 64 bits count.
        read_bytes=sum(int(held_bytes(setting, part).sum()) for part in np.array_split(every, ceil_div(output, PART))),
    )


def forward_tokens(prompt: int, output: int) -> tuple[int, int]:
    """Tokens that run through the model to generate `output` tokens after a prompt: without a cache, where every step
    runs all tokens before it again, and with one.

    From a single token on it is S(S + 1)/2 against S:

    >>> forward_tokens(1, 1000)
    (500500, 1000)
    """
    return prompt * output + output * (output - 1) // 2, prompt + output - 1
