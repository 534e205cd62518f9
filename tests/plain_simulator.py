"""The rules of a step, written out plainly: every request is looked at in every step. For tests and benchmarks."""

from dataclasses import dataclass, field

from kvplan.catalog import resolve
from kvplan.engine import blocks_per_request, capacity, in_flight_tokens, layout
from kvplan.memory import budget


@dataclass(eq=False)
class Request:
    place: int
    arrival: float
    prompt: int
    output: int
    declared: int
    hashes: tuple = ()
    generated: int = 0
    computed: int = 0
    lost: int = 0
    swapped: bool = False
    blocks: int = 0
    units: tuple = ()
    first_s: float | None = None
    end_s: float | None = None

    @property
    def wanted(self):
        """Tokens whose cache must be there before the next one can be written."""
        return self.prompt + self.generated


@dataclass
class Outcome:
    steps: int = 0
    events: list = field(default_factory=list)
    used: list = field(default_factory=list)
    tokens: list = field(default_factory=list)
    running: list = field(default_factory=list)
    prefill_tokens: int = 0
    hit_tokens: int = 0
    wasted_tokens: int = 0
    swapped_tokens: int = 0
    requests: list = field(default_factory=list)
    rejected: int = 0


def plain_simulate(rows, plan, policy, step_time, preemption="recompute"):
    setting = resolve(plan)
    shape = layout(setting)
    in_flight = in_flight_tokens(setting, plan.context)
    num_blocks = capacity(shape, plan.context, budget(setting).pool_bytes, in_flight).num_blocks
    in_chunks = callable(step_time)
    limit = setting.max_num_batched_tokens if in_chunks else 10**12
    slots = min(setting.max_num_seqs, limit)
    longest = max((row[2] for row in rows), default=1)
    max_tokens = plan.max_tokens or longest
    growing = [group.block_tokens * group.spec.dcp for group in shape.growing]

    def in_all(tokens):
        return blocks_per_request(shape, tokens + plan.spec_tokens, in_flight)

    out, queue = Outcome(), []
    for place, row in enumerate(rows):
        arrival, prompt, output = row[:3]
        if prompt >= plan.context:
            out.rejected += 1
            continue
        declared = min(plan.context, prompt + max_tokens)
        hashes = tuple(row[3]) if len(row) > 3 else ()
        queue.append(Request(place, arrival, prompt, min(output, declared - prompt), declared, hashes))
    queue.sort(key=lambda request: request.arrival)
    out.requests = list(queue)

    hashed = any(len(row) > 3 for row in rows) and plan.enable_prefix_caching
    unit_tokens = unit_blocks = 0
    if hashed and growing:
        unit_tokens = 512
        while any(unit_tokens % tokens for tokens in growing):
            unit_tokens += 512
        unit_blocks = sum(unit_tokens // tokens for tokens in growing)
        for request in queue:
            number = max(0, request.prompt - 1) // unit_tokens
            ends = [(index + 1) * unit_tokens // 512 - 1 for index in range(number)]
            request.units = tuple(request.hashes[end] for end in ends if end < len(request.hashes))
    elif growing and plan.shared_prefix_tokens and not hashed:
        common = min(plan.shared_prefix_tokens, plan.context - 1)
        unit_tokens = min(common // tokens * tokens for tokens in growing)
        unit_blocks = sum(common // tokens for tokens in growing)
        for request in queue:
            request.units = ("prefix",) if request.prompt > common else ()

    running, unused = [], []

    def used():
        shared = {unit for request in running for unit in request.units}
        return sum(request.blocks for request in running) + unit_blocks * len(shared)

    def book(request, tokens):
        request.blocks = in_all(request.declared if policy == "reserve" else tokens) - unit_blocks * len(request.units)

    def leave(request):
        running.remove(request)
        others = {unit for other in running for unit in other.units}
        for unit in reversed(request.units):
            if unit not in others:
                unused.append(unit)

    def evict():
        while unused and used() + unit_blocks * len(unused) > num_blocks:
            unused.pop(0)

    now, step, left = 0.0, 0, len(queue)
    while left:
        if not running and queue[0].arrival > now:
            now = base = queue[0].arrival
            base_step = step
        elif step == 0:
            base, base_step = now, 0
        step += 1
        budget_left, prefill, fresh, preempted = limit, 0, [], False

        writing = [request for request in running if request.computed == request.wanted]
        for request in writing:
            book(request, request.wanted + 1)
        while used() > num_blocks:
            request = running[-1]
            leave(request)
            preempted = True
            out.events.append((step, "preempted", request.place))
            request.lost, request.swapped = request.computed, request in writing and preemption == "swap"
            if request.swapped:
                out.swapped_tokens += request.computed
            else:
                out.wasted_tokens += request.computed
            request.computed = 0
            if request in writing:
                writing.remove(request)
            request.blocks = 0
            queue.insert(0, request)
        evict()
        budget_left -= len(writing)

        for request in running:
            if request not in writing:
                part = min(request.wanted - request.computed, budget_left)
                request.computed += part
                prefill += part
                budget_left -= part
                if request.computed == request.wanted:
                    fresh.append(request)

        computing = any(request.computed < request.wanted for request in running)
        while queue and queue[0].arrival <= now and not preempted and not computing and budget_left >= 1:
            request = queue[0]
            if len(running) >= slots:
                break
            book(request, request.wanted + 1)
            running.append(request)
            if used() > num_blocks:
                running.pop()
                request.blocks = 0
                break
            queue.pop(0)
            resident = {unit for other in running[:-1] for unit in other.units} | set(unused)
            found = 0
            for unit in request.units:
                if unit not in resident:
                    break
                found += unit_tokens
            for unit in request.units:
                if unit in unused:
                    unused.remove(unit)
            evict()
            if request.swapped:
                request.computed, request.swapped = request.wanted, False
                budget_left -= 1
            else:
                again = min(request.lost, found)
                out.wasted_tokens -= again
                out.hit_tokens += found - again
                part = min(request.wanted - found, budget_left)
                request.computed = found + part
                prefill += part
                budget_left -= part or 1
                computing = request.computed < request.wanted
            request.lost = 0
            if request.computed == request.wanted:
                fresh.append(request)

        out.prefill_tokens += prefill
        done_now = writing + fresh
        for request in done_now:
            request.generated += 1
        resident_tokens = sum(request.wanted if request in done_now else request.computed for request in running)
        if in_chunks:
            decoding = len(running) - len(fresh) - sum(request not in done_now for request in running)
            now += step_time(prefill, decoding, resident_tokens)
        else:
            now = base + (step - base_step) * step_time
        for request in done_now:
            request.computed = request.wanted - 1 if request.generated else request.computed
            if request.first_s is None:
                request.first_s = now
                out.events.append((step, "admitted", request.place))
        out.used.append(used())
        out.running.append(len(running))
        out.tokens.append(sum(request.wanted for request in done_now))
        for request in done_now:
            # The token just written is computed with the next one; what counts is that it is there.
            request.computed = request.wanted
            if request.generated == request.output:
                leave(request)
                request.end_s = now
                out.events.append((step, "completed", request.place))
                left -= 1
    out.steps = step
    return out
