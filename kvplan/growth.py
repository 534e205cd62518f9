"""How the blocks of one request grow with its tokens, so that a scheduler can count the growth of all in one look.

A block table takes a block more each time its tokens pass a multiple of its block. A request that writes a token each
step therefore grows in the same phase of every period, until it ends or a window is full: requests are added to their
phases once, and what a step adds to the pool is read from its phase.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm

import numpy as np

from kvplan.catalog import Setting
from kvplan.engine import Layout, blocks_per_request, in_flight_tokens

MOST_STEPS = 2**40
"""Beyond which nothing grows any more: states, and windows that are full."""
Pattern = tuple[tuple[int, int], ...]
"""(phase, blocks): in which steps of a period a request takes how many blocks."""


@dataclass(frozen=True)
class Table:
    """Block tables of one kind: `blocks` of them grow every `every` tokens, until a request has `until` tokens."""

    every: int
    blocks: int
    until: float


class Patterns(dict):
    """The pattern of a request by the phase in which its tokens are a multiple of the period, made as it is needed."""

    def __init__(self, tables: tuple[Table, ...], period: int):
        super().__init__()
        self.tables, self.period = tables, period

    def __missing__(self, phase: int) -> Pattern:
        taken: dict[int, int] = {}
        for table in self.tables:
            for step in range(phase % table.every, self.period, table.every):
                taken[step] = taken.get(step, 0) + table.blocks
        return self.setdefault(phase, tuple(taken.items()))


@dataclass(frozen=True)
class Growth:
    """The growth of a layout. `patterns` hold for requests of up to `limits` tokens each, in ascending order, the last
    without a limit; `period` steps is after how many all of them repeat; `spec_tokens` are room beyond the tokens."""

    period: int
    limits: tuple[int, ...]
    patterns: tuple[Patterns, ...]
    spec_tokens: int


def growth(shape: Layout, in_flight: int, spec_tokens: int = 0) -> Growth:
    """How the requests of a layout grow. A windowed table grows until the reserve of its window is full."""
    return growth_of(_tables(shape, in_flight), spec_tokens)


def growth_of(tables: Sequence[Table], spec_tokens: int = 0) -> Growth:
    """How requests with these block tables grow."""
    period = lcm(*(table.every for table in tables))
    limits = sorted({int(table.until) for table in tables if table.until != np.inf})
    levels = [tuple(table for table in tables if table.until > full) for full in (0, *limits)]
    return Growth(period, tuple(limits), tuple(Patterns(level, period) for level in levels), spec_tokens)


NO_GROWTH = growth_of(())
"""Of requests that book all they may ever hold with their admission."""


def blocks_at(shape: Layout, in_flight: int, tokens):
    """Blocks of a request that holds so many tokens; an integer or an integer array."""
    blocks = blocks_per_request(shape, tokens, in_flight)
    return np.broadcast_to(blocks, tokens.shape).astype(np.int64) if isinstance(tokens, np.ndarray) else blocks


def blocks_by_tokens(setting: Setting, shape: Layout) -> Callable:
    """Blocks of a request by the tokens it holds, with room for the plan's speculative ones; takes an integer or an
    integer array."""
    in_flight, room = in_flight_tokens(setting, setting.plan.context), setting.plan.spec_tokens
    return lambda tokens: blocks_at(shape, in_flight, tokens + room)


def linear_cost(shape: Layout, in_flight: int, longest: int) -> tuple[float, float]:
    """Blocks of a request as a fixed part and a slope: blocks whatever its tokens, and blocks for each of them, up to
    requests of `longest` tokens. States and windows that fill before are fixed, windows that do not grow."""
    fixed, slope = float(blocks_at(shape, in_flight, 0)), 0.0
    for table in _tables(shape, in_flight):
        if table.until >= longest:
            slope += table.blocks / table.every
        else:
            fixed += table.blocks * table.until / table.every
    return fixed, slope


def steps_to_exhaustion(tokens: np.ndarray, blocks: Callable[[np.ndarray], np.ndarray], free_blocks: int) -> int | None:
    """After how many steps sequences of so many `tokens`, one more each step, need more blocks than are free: the
    smallest n with the sum of blocks(l + n) - blocks(l) above `free_blocks`. None if they never do.

    >>> steps_to_exhaustion(np.array([10, 16, 30]), lambda tokens: -(-tokens // 16), 3)
    17
    """
    have = int(blocks(tokens).sum()) + free_blocks

    def fits(steps: int) -> bool:
        return int(blocks(tokens + steps).sum()) <= have

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
        if high > MOST_STEPS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return high


def _tables(shape: Layout, in_flight: int) -> list[Table]:
    counts: dict[tuple[int, float], int] = {}
    for group in shape.groups:
        spec = group.spec
        if spec.kind == "state":
            continue
        reserve = np.inf if spec.kind == "growing" else spec.window - (spec.kind == "sliding") + in_flight
        every = spec.block_tokens * spec.dcp
        counts[every, reserve] = counts.get((every, reserve), 0) + 1
    return [Table(every, blocks, until) for (every, until), blocks in counts.items()]
