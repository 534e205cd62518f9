"""Where the slots of a pool go under allocators that give each request one contiguous extent, as engines did before
paging: what holds tokens, what is reserved for tokens to come, what is never used, and what lies free between extents.

Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention, SOSP 2023,
sections 3.1 and 6.1: three baselines over a buddy allocator.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from dataclasses import dataclass, replace

import numpy as np

from kvplan.growth import Table, growth_of
from kvplan.scheduler import Load, Server, serve
from kvplan.specs import require_one_of
from kvplan.traffic import Traffic
from kvplan.units import ceil_div

MAXIMUM, POWER_OF_TWO, ORACLE = "maximum", "power of two", "oracle"
KINDS = (MAXIMUM, POWER_OF_TWO, ORACLE)
MOST_RUNNING = 2**40
BUDDY, FIRST_FIT = "buddy", "first fit"


class FirstFit:
    """Extents of any size, the first free one that is large enough; freed neighbours become one again."""

    def __init__(self, slots: int):
        self.slots, self.free = slots, [(0, slots)]

    def granted(self, size: int) -> int:
        """Slots of the extent that a request for so many gets."""
        return size

    def take(self, size: int) -> tuple[int, int] | None:
        """(begin, size) of an extent, None where no free one is large enough."""
        for place, (begin, length) in enumerate(self.free):
            if length >= size:
                self.free[place : place + 1] = [(begin + size, length - size)] if length > size else []
                return begin, size
        return None

    def give(self, begin: int, size: int) -> None:
        """An extent is free again."""
        place = bisect_left(self.free, (begin,))
        if place < len(self.free) and self.free[place][0] == begin + size:
            size += self.free.pop(place)[1]
        if place and sum(self.free[place - 1]) == begin:
            before, length = self.free.pop(place - 1)
            begin, size = before, length + size
        insort(self.free, (begin, size))

    @property
    def largest(self) -> int:
        """Slots of the largest free extent."""
        return max((length for _, length in self.free), default=0)


class Buddy:
    """Extents of a power of two, halved until they are just large enough; a freed one joins its other half.

    A pool of any size is several powers of two beside each other, the largest first."""

    def __init__(self, slots: int):
        self.slots = slots
        self.free: dict[int, list[int]] = {}
        begin = 0
        for power in reversed(range(slots.bit_length())):
            if slots >> power & 1:
                self.free[1 << power] = [begin]
                begin += 1 << power

    def granted(self, size: int) -> int:
        """Slots of the extent that a request for so many gets."""
        return next_power_of_two(size)

    def take(self, size: int) -> tuple[int, int] | None:
        """(begin, size) of an extent of the next power of two, None where no free one is large enough."""
        wanted = self.granted(size)
        fitting = [length for length, begins in self.free.items() if begins and length >= wanted]
        if not fitting:
            return None
        length = min(fitting)
        begin = self.free[length].pop(0)
        while length > wanted:
            length //= 2
            insort(self.free.setdefault(length, []), begin + length)
        return begin, wanted

    def give(self, begin: int, size: int) -> None:
        """An extent is free again."""
        while (begin ^ size) in self.free.get(size, []):
            self.free[size].remove(begin ^ size)
            begin, size = min(begin, begin ^ size), 2 * size
        insort(self.free.setdefault(size, []), begin)

    @property
    def largest(self) -> int:
        """Slots of the largest free extent."""
        return max((length for length, begins in self.free.items() if begins), default=0)


ALLOCATORS = {BUDDY: Buddy, FIRST_FIT: FirstFit}


@dataclass(frozen=True, eq=False)
class Placed:
    """Where each request of a backlog ran: the first slot of its extent and its size (0 where it was rejected), its
    first step and its last, int64 arrays of shape (n,). `changes` are (step, free slots, largest free extent) wherever
    these changed, `blocked` the (first, last) steps in which an admission failed although enough was free in all."""

    begins: np.ndarray
    sizes: np.ndarray
    first_steps: np.ndarray
    last_steps: np.ndarray
    changes: np.ndarray
    blocked: list[tuple[int, int]]
    peak_running: int


@dataclass(frozen=True, eq=False)
class Extents:
    """A pool in one step: for each running request the first slot of its extent, the size, the tokens it holds and
    those it will have at its end."""

    begins: np.ndarray
    sizes: np.ndarray
    tokens: np.ndarray
    finals: np.ndarray


@dataclass(frozen=True, eq=False)
class Allocation:
    """A run of requests through a pool of so many `slots`, each for one token.

    Shares of the pool, averages over the steps before the last request is admitted, that add up to 1: `held` by tokens,
    `reserved` for tokens to come, `internal` never used, `free`. `running` requests on average, `peak_running` at most.
    In `blocked_share` of these steps an admission failed although the free slots together would have sufficed, first in
    `first_blocked` (None: never). `rejected` requests need more than an empty pool can give.

    `steps`, `free_slots` and `largest` are all free slots and the largest free extent wherever these change. `placed`
    is None where blocks are taken one by one.
    """

    slots: int
    held: float
    reserved: float
    internal: float
    free: float
    running: float
    peak_running: int
    blocked_share: float
    first_blocked: int | None
    rejected: int
    steps: np.ndarray
    free_slots: np.ndarray
    largest: np.ndarray
    placed: Placed | None = None


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is not below a number.

    >>> next_power_of_two(25), next_power_of_two(32), next_power_of_two(1)
    (32, 32, 1)
    """
    return 1 << (number - 1).bit_length()


def demands(found: Traffic, kind: str) -> np.ndarray:
    """Slots each request asks for: its declared maximum; its prompt and the next power of two of its output, up to that
    maximum; or just what it will use, as if its length were known."""
    if kind == MAXIMUM:
        return found.declared
    if kind == ORACLE:
        return found.prompts + found.outputs
    powers = np.array([next_power_of_two(output) for output in found.outputs.tolist()], dtype=np.int64)
    return np.minimum(found.declared, found.prompts + powers)


def contiguous(
    found: Traffic, slots: int, kind: str, allocator: str = BUDDY, most: int = MOST_RUNNING, fixed: int = 0
) -> Allocation:
    """Serve a backlog, first come first served, each request in one extent from its admission to its end; `most` of
    them at once. `fixed` slots are held by each beside its extent, wherever there are some, and count as `held`. Raises
    ValueError for an unknown kind or allocator."""
    require_one_of("kind", kind, KINDS)
    require_one_of("allocator", allocator, ALLOCATORS)
    placed = _place(found, ALLOCATORS[allocator](slots), demands(found, kind).tolist(), most, fixed)
    window = max(1, int(placed.first_steps.max(initial=0)) - 1)
    finals = found.prompts + found.outputs
    run = np.clip(np.minimum(placed.last_steps, window) - placed.first_steps + 1, 0, None) * (placed.sizes > 0)
    held = run * found.prompts + run * (run + 1) // 2
    shares = {
        "held": int((held + run * fixed).sum()) / (slots * window),
        "reserved": int((run * finals - held).sum()) / (slots * window),
        "internal": int((run * (placed.sizes - finals)).sum()) / (slots * window),
    }
    steps, free_slots, largest = placed.changes.T
    return Allocation(
        slots=slots,
        **shares,
        free=1 - sum(shares.values()),
        running=int(run.sum()) / window,
        peak_running=placed.peak_running,
        blocked_share=sum(end - begin + 1 for begin, end in placed.blocked) / window,
        first_blocked=placed.blocked[0][0] if placed.blocked else None,
        rejected=int((placed.sizes == 0).sum()),
        steps=steps,
        free_slots=free_slots,
        largest=largest,
        placed=placed,
    )


def _place(found: Traffic, pool: FirstFit | Buddy, asked: list[int], most: int, fixed: int) -> Placed:
    """Where and when each request of a backlog runs, changing the pool only where one is admitted or ends."""
    outputs, total = found.outputs.tolist(), len(asked)
    begins, sizes, first_steps, last_steps = ([0] * total for _ in range(4))
    ends: list[tuple[int, int]] = []
    step = upcoming = peak = 0
    free, whole, changes, blocked = pool.slots, pool.largest, [], []
    while upcoming < total or ends:
        short = False
        while upcoming < total and len(ends) < most:
            size = pool.granted(asked[upcoming])
            if size > whole or size + fixed > pool.slots:  # not even an empty pool has room for it
                upcoming += 1
                continue
            extent = pool.take(asked[upcoming]) if free >= size + fixed else None
            if extent is None:
                short = free >= asked[upcoming] + fixed and pool.largest < min(size, free)
                break
            begins[upcoming], sizes[upcoming] = extent
            first_steps[upcoming], last_steps[upcoming] = step + 1, step + outputs[upcoming]
            heapq.heappush(ends, (step + outputs[upcoming], upcoming))
            free -= size + fixed
            upcoming += 1
        if not ends:
            break
        peak = max(peak, len(ends))
        changes.append((step + 1, free, min(free, pool.largest)))
        if short:
            blocked.append((step + 1, ends[0][0]))
        step = ends[0][0]
        while ends and ends[0][0] == step:
            _, request = heapq.heappop(ends)
            pool.give(begins[request], sizes[request])
            free += sizes[request] + fixed
    arrays = (np.array(values, dtype=np.int64) for values in (begins, sizes, first_steps, last_steps))
    return Placed(*arrays, np.array(changes, dtype=np.int64).reshape(-1, 3), blocked, peak)


def map_at(found: Traffic, allocation: Allocation, step: int) -> Extents:
    """The extents in a step. Raises ValueError where blocks are taken one by one, which have none."""
    placed = allocation.placed
    if placed is None:
        raise ValueError("allocation: blocks taken one by one have no extents")
    here = (placed.first_steps <= step) & (step <= placed.last_steps) & (placed.sizes > 0)
    tokens = found.prompts[here] + step - placed.first_steps[here] + 1
    return Extents(placed.begins[here], placed.sizes[here], tokens, (found.prompts + found.outputs)[here])


def paged(found: Traffic, slots: int, block_size: int, most: int = MOST_RUNNING) -> Allocation:
    """The same backlog in blocks taken one by one as tokens are written; any free block will do. Requests that need
    more blocks than there are are rejected."""
    num_blocks = slots // block_size
    kept = ceil_div(found.prompts + found.outputs, block_size) <= num_blocks
    fitting = replace(
        found,
        places=found.places[kept],
        arrivals_s=np.zeros(int(kept.sum())),
        prompts=found.prompts[kept],
        outputs=found.outputs[kept],
        declared=found.declared[kept],
        hashes=None,
    )
    load = Load(
        first_blocks=ceil_div(fitting.prompts + 1, block_size),
        last_blocks=ceil_div(fitting.prompts + fitting.outputs, block_size),
        blocks=lambda tokens: ceil_div(tokens, block_size),
        growth=growth_of([Table(block_size, 1, math.inf)]),
        cache=None,
        units=[],
    )
    run = serve(fitting, load, Server(num_blocks, most, step_time=1.0))
    steps, running, blocks, tokens = run.before_drain
    steps = max(1, steps)
    held, booked = tokens / (slots * steps), blocks * block_size / (slots * steps)
    used = run.samples[:, 6].astype(np.int64)
    return Allocation(
        slots=slots,
        held=held,
        reserved=0.0,
        internal=booked - held,
        free=1 - booked,
        running=running / steps,
        peak_running=run.peak_running,
        blocked_share=0.0,
        first_blocked=None,
        rejected=int((~kept).sum()),
        steps=run.samples[:, 0].astype(np.int64),
        free_slots=slots - used * block_size,
        largest=(num_blocks - used) * block_size,
    )
