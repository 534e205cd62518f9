"""How many sequences fit, and which limit binds: reserved to the full context, or on demand.

Reserve: every request books its declared maximum. On demand: it books what it holds and grows; more fit on average,
and when the pool runs out somebody is preempted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.arrays import choose, every, floor, maximum, minimum, or_none
from kvplan.cache import shared_blocks
from kvplan.catalog import Setting, restarted
from kvplan.engine import (
    Capacity,
    GroupLayout,
    Layout,
    blocks_per_request,
    capacity,
    in_flight_tokens,
    layout,
    starts_at,
)
from kvplan.lengths import resident_mean
from kvplan.memory import budget
from kvplan.plan import MAX_PARALLEL

LIMITS = ("does_not_fit", "memory", "tenant_quota", "max_num_seqs")
"""What can bind, in the order in which ties are named."""
POWERS_OF_TWO = tuple(2**power for power in range(MAX_PARALLEL.bit_length()))
_NAMES = np.array(LIMITS, dtype=object)


@dataclass(frozen=True)
class Ceilings:
    """Sequences at a context, or at each of an array of contexts.

    `memory_ceiling` is by reservation, before other limits; `batch_ceiling` after them, 0 where the engine does not
    start; `tenant_quota` None where there is none; `on_demand_ceiling` is a mean, by memory, not a guarantee.
    """

    memory_ceiling: int
    tenant_quota: int | None
    max_num_seqs: int
    batch_ceiling: int
    binding: str
    on_demand_ceiling: int
    memory_quotient: float
    on_demand_quotient: float
    resident_mean_tokens: float


@dataclass(frozen=True)
class CeilingCurve:
    """The ceilings over an array of contexts; ceilings are 0 where one request does not start. A request books
    `blocks_booked` blocks of `bytes_per_block` on the fullest device. The quotients are before rounding down."""

    contexts: np.ndarray
    blocks_booked: np.ndarray
    bytes_per_block: int
    memory_ceiling: np.ndarray
    batch_ceiling: np.ndarray
    on_demand_ceiling: np.ndarray
    memory_quotient: np.ndarray
    on_demand_quotient: np.ndarray
    binding: np.ndarray


def ceilings(setting: Setting, shape: Layout, numbers: Capacity, context) -> Ceilings:
    """The ceilings at `context`, an integer or an array of them, given what the engine makes of it.

    memory_ceiling = (num_blocks - s) // (blocks_per_request(context + spec_tokens) - s), s the blocks of a shared
    prefix. on_demand_ceiling = (num_blocks - s) / blocks at the mean a running request holds, each group with half a
    block for the one being filled; never below memory_ceiling, as both meet for full-length requests.
    """
    plan = setting.plan
    in_flight = in_flight_tokens(setting, context)
    shared = shared_prefix_blocks(setting, shape, context)
    own_blocks = blocks_per_request(shape, context + plan.spec_tokens, in_flight) - shared
    free_blocks = maximum(numbers.num_blocks - shared, 0)
    by_memory, quotient = free_blocks // own_blocks, free_blocks / own_blocks

    resident = resident_mean(setting.lengths, context)
    on_demand = free_blocks / sum(_resident_blocks(group, resident, in_flight) for group in shape.groups)

    quota = None if plan.tenant_quota_fraction is None else _quota(plan.tenant_quota_fraction, by_memory)
    others = setting.max_num_seqs if quota is None else minimum(quota, setting.max_num_seqs)
    return Ceilings(
        memory_ceiling=by_memory,
        tenant_quota=quota,
        max_num_seqs=setting.max_num_seqs,
        batch_ceiling=choose(numbers.fits, minimum(by_memory, others), 0),
        binding=_binding(numbers.fits, by_memory, quota, setting.max_num_seqs),
        on_demand_ceiling=maximum(by_memory, floor(on_demand)),
        memory_quotient=quotient,
        on_demand_quotient=maximum(quotient, on_demand),
        resident_mean_tokens=resident,
    )


def _binding(fits, by_memory, quota, max_num_seqs):
    """The name of the smallest limit, the first in the order of `LIMITS` where several are."""
    last = LIMITS.index("max_num_seqs")
    if quota is not None:
        last = choose(quota <= max_num_seqs, LIMITS.index("tenant_quota"), last)
    others = max_num_seqs if quota is None else minimum(quota, max_num_seqs)
    index = choose(fits, choose(by_memory <= others, LIMITS.index("memory"), last), LIMITS.index("does_not_fit"))
    return _NAMES[index] if isinstance(index, np.ndarray) else LIMITS[index]


def shared_prefix_blocks(setting: Setting, shape: Layout, context):
    """Blocks of the shared prefix that all requests of `context` book once, over every growing group."""
    return sum(
        shared_blocks(setting.shared_prefix_tokens, context, group.block_tokens * group.spec.dcp)
        for group in shape.growing
    )


def _resident_blocks(group: GroupLayout, resident, in_flight):
    """Blocks of one group at the mean a running request holds: half a block for the one being filled, a window's
    reserve and its block beside, a state as booked."""
    spec = group.spec
    if spec.kind == "state":
        return spec.fixed_blocks
    if spec.kind == "growing":
        return (resident / spec.dcp + spec.block_tokens / 2) / spec.block_tokens
    reserve = spec.window - (spec.kind == "sliding") + in_flight
    return minimum(reserve, resident) / spec.block_tokens + 1


def ceiling_curve(setting: Setting, contexts: np.ndarray) -> CeilingCurve:
    """The ceilings of a plan over contexts, everything else as it is."""
    contexts = np.asarray(contexts, dtype=np.int64)
    at_contexts = restarted(setting, context=contexts)
    shape = layout(setting)
    in_flight = in_flight_tokens(at_contexts, contexts)
    numbers = capacity(shape, contexts, budget(at_contexts).pool_bytes, in_flight)
    found = ceilings(at_contexts, shape, numbers, contexts)
    # With states alone nothing depends on the context, and one number stands for all.
    starts = np.broadcast_to(numbers.fits & (shape.refused is None), contexts.shape)
    blocks = blocks_per_request(shape, contexts + setting.plan.spec_tokens, in_flight)
    return CeilingCurve(
        contexts=contexts,
        blocks_booked=np.broadcast_to(blocks, contexts.shape),
        bytes_per_block=shape.bytes_per_block,
        memory_ceiling=np.where(starts, found.memory_ceiling, 0),
        batch_ceiling=np.where(starts, found.batch_ceiling, 0),
        on_demand_ceiling=np.where(starts, found.on_demand_ceiling, 0),
        memory_quotient=np.where(starts, found.memory_quotient, 0),
        on_demand_quotient=np.where(starts, found.on_demand_quotient, 0),
        binding=np.where(starts, found.binding, "does_not_fit"),
    )


def smallest_tp(setting: Setting) -> tuple:
    """The smallest tp of 1, 2, 4, ... that the engine accepts and at which one request starts, and the smallest at
    which the weights leave any pool; None (0 in arrays) where no tp a plan may have is enough."""
    context, starts, leaves_pool = setting.plan.context, 0, 0
    for tp in POWERS_OF_TWO:
        candidate = setting if tp == setting.plan.tp else restarted(setting, tp=tp)
        shape = layout(candidate)
        if shape.refused:
            continue
        pool_bytes = budget(candidate).pool_bytes
        leaves_pool = choose((pool_bytes > 0) & (leaves_pool == 0), tp, leaves_pool)
        starts = choose(starts_at(shape, candidate, context, pool_bytes) & (starts == 0), tp, starts)
        if every(starts != 0):
            break
    return or_none(starts), or_none(leaves_pool)


def _quota(fraction: float, by_memory):
    """Whole sequences of a tenant's share; 0.29 of 100 is 29, though the nearest float of 0.29 is a little less."""
    return floor(np.round(fraction * by_memory, 9))
