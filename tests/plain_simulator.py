"""The rules of a step, written out plainly: every request is looked at in every step. For tests and benchmarks.

The rules are those at the head of `kvplan.scheduler`. Nothing is skipped and nothing is kept that can be counted again:
blocks in use are added up over the running requests whenever they are asked for.
"""

import math
from dataclasses import dataclass, field
from functools import cache

from kvplan.catalog import resolve
from kvplan.engine import blocks_per_request, capacity, in_flight_tokens, layout
from kvplan.memory import budget

HASH_TOKENS = 512
NO_LIMIT = 10**12


@dataclass(eq=False)
class Request:
    """`units` are the pieces of its prefix, `blocks` what it holds besides them. `computed` of its `tokens` are in the
    pool; `lost` is how many were when it was preempted."""

    place: int
    arrival: float
    prompt: int
    output: int
    declared: int
    units: tuple = ()
    generated: int = 0
    computed: int = 0
    blocks: int = 0
    lost: int = 0
    swapped: bool = False
    first_s: float | None = None
    end_s: float | None = None

    @property
    def tokens(self):
        return self.prompt + self.generated

    @property
    def writes(self):
        """Whether all it has is in the pool, so that its next token can be written."""
        return self.computed == self.tokens


@dataclass
class Outcome:
    """`events` are (step, what, place). One entry a step: `used` blocks, `tokens` of the requests that write, how many
    are `running` and `waiting`, and the `seconds` at its end. `requests` are those that were not rejected, in order of
    arrival. `interrupted` counts preemptions within a prompt."""

    steps: int = 0
    events: list = field(default_factory=list)
    used: list = field(default_factory=list)
    tokens: list = field(default_factory=list)
    running: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    seconds: list = field(default_factory=list)
    prefill_tokens: int = 0
    hit_tokens: int = 0
    wasted_tokens: int = 0
    swapped_tokens: int = 0
    interrupted: int = 0
    evicted: int = 0
    rejected: int = 0
    requests: list = field(default_factory=list)


def plain_simulate(rows, plan, policy, step_time, preemption="recompute"):
    """Rows (arrival_s, prompt, output[, hashes]) through the pool of a plan -> Outcome."""
    run = Run(rows, plan, policy, step_time, preemption)
    while run.queue or run.running:
        run.step()
    return run.out


class Run:
    """`queue` are the requests that wait, the next one first; `running` those that run, the youngest last; `unused` the
    units that nobody who runs refers to, the least recently used first."""

    def __init__(self, rows, plan, policy, step_time, preemption):
        setting = resolve(plan)
        shape = layout(setting)
        in_flight = in_flight_tokens(setting, plan.context)
        self.num_blocks = capacity(shape, plan.context, budget(setting).pool_bytes, in_flight).num_blocks
        self.blocks_of = cache(lambda tokens: blocks_per_request(shape, tokens + plan.spec_tokens, in_flight))
        self.in_parts = callable(step_time)
        self.most_tokens = setting.max_num_batched_tokens if self.in_parts else NO_LIMIT
        self.slots = min(setting.max_num_seqs, self.most_tokens)
        self.reserves, self.swaps, self.step_time = policy == "reserve", preemption == "swap", step_time

        self.out, self.now, self.running, self.unused = Outcome(), -math.inf, [], []
        self.out.requests = sorted(self.accepted(rows, plan), key=lambda request: request.arrival)
        self.out.rejected = len(rows) - len(self.out.requests)
        self.queue = list(self.out.requests)
        self.name_units(rows, plan, [group.block_tokens * group.spec.dcp for group in shape.growing])

    def accepted(self, rows, plan):
        max_tokens = plan.max_tokens or max((row[2] for row in rows), default=1)
        for place, (arrival, prompt, output, *_) in enumerate(rows):
            if prompt < plan.context:
                declared = min(plan.context, prompt + max_tokens)
                yield Request(place, arrival, prompt, min(output, declared - prompt), declared)

    def name_units(self, rows, plan, blocks):
        """What the requests share: pieces named by their hashes, or the prefix of the plan."""
        self.unit_tokens = self.unit_blocks = 0
        if not blocks:
            return
        if plan.enable_prefix_caching and any(len(row) > 3 for row in rows):
            self.unit_tokens = HASH_TOKENS
            while any(self.unit_tokens % tokens for tokens in blocks):
                self.unit_tokens += HASH_TOKENS
            self.unit_blocks = sum(self.unit_tokens // tokens for tokens in blocks)
            each = self.unit_tokens // HASH_TOKENS
            for request in self.queue:
                hashes = rows[request.place][3]
                # At least one token of a prompt is computed; a piece of several hashes has the name of its last.
                number = min(max(0, request.prompt - 1) // self.unit_tokens, len(hashes) // each)
                request.units = tuple(dict.fromkeys(hashes[(index + 1) * each - 1] for index in range(number)))
        elif plan.shared_prefix_tokens and plan.enable_prefix_caching:
            prefix = min(plan.shared_prefix_tokens, plan.context - 1)
            self.unit_tokens = min(prefix // tokens * tokens for tokens in blocks)
            self.unit_blocks = sum(prefix // tokens for tokens in blocks)
            for request in self.queue:
                request.units = ("prefix",) if request.prompt > prefix else ()

    def step(self):
        if not self.running and self.queue[0].arrival > self.now:
            self.now = self.queue[0].arrival
            self.begin, self.begin_steps = self.now, self.out.steps
        self.out.steps += 1

        # 1. Each running request writes a token; the youngest go where that takes more blocks than there are.
        for request in self.running:
            if request.writes:
                self.book(request)
        preempted = self.used() > self.num_blocks
        self.evict()
        while self.used() > self.num_blocks:
            self.preempt(self.running[-1])
        self.evict()
        writing = [request for request in self.running if request.writes]

        # 2. The prompt that was begun is gone on with, then waiting requests are admitted.
        self.left = self.most_tokens - len(writing)
        self.resumed = 0
        before = self.out.prefill_tokens
        for request in self.running:
            if not request.writes:
                self.compute(request)
        while self.left and self.queue and self.queue[0].arrival <= self.now and not preempted:
            if not all(request.writes for request in self.running) or not self.admit(self.queue[0]):
                break

        self.out.waiting.append(sum(request.arrival <= self.now for request in self.queue))

        # The step takes its time, and everyone whose prompt is there has a token more.
        able = [request for request in self.running if request.writes]
        for request in able:
            request.generated += 1
            request.computed += 1
        if self.in_parts:
            resident = sum(request.computed for request in self.running)
            self.now += self.step_time(self.out.prefill_tokens - before, len(writing) + self.resumed, resident)
        else:
            self.now = self.begin + (self.out.steps - self.begin_steps) * self.step_time
        self.out.used.append(self.used())
        self.out.running.append(len(self.running))
        self.out.seconds.append(self.now)
        self.out.tokens.append(sum(request.tokens for request in able))

        # 3. Who has written the last token ends.
        for request in able:
            if request.first_s is None:
                request.first_s = self.now
                self.note("first token", request)
            if request.generated == request.output:
                request.end_s = self.now
                self.note("completed", request)
                self.leave(request)

    def used(self):
        """Blocks in use: those of each request, and shared ones once."""
        shared = {unit for request in self.running for unit in request.units}
        return sum(request.blocks for request in self.running) + self.unit_blocks * len(shared)

    def book(self, request):
        """Blocks for all a request has and the token that comes next, or for all it may ever have."""
        tokens = request.declared if self.reserves else request.tokens + 1
        request.blocks = self.blocks_of(tokens) - self.unit_blocks * len(request.units)

    def compute(self, request):
        """As much of a prompt, and of what was generated before a preemption, as the step may take."""
        part = min(request.tokens - request.computed, self.left)
        request.computed += part
        self.out.prefill_tokens += part
        self.left -= part

    def admit(self, request):
        """Whether there is a slot and room for all its tokens; then it runs."""
        others = list(self.running)
        self.book(request)
        self.running.append(request)
        if len(others) == self.slots or self.used() > self.num_blocks:
            self.running.pop()
            return False
        self.queue.pop(0)
        resident = {unit for other in others for unit in other.units} | set(self.unused)
        found = 0
        while found < len(request.units) and request.units[found] in resident:
            found += 1
        self.unused = [unit for unit in self.unused if unit not in request.units]
        self.evict()
        if request.swapped:
            request.computed, request.swapped = request.tokens, False
            self.resumed += 1
            self.left -= 1
        else:
            hits = found * self.unit_tokens
            again = min(request.lost, hits)  # what was computed twice is not, where it is still there
            self.out.wasted_tokens -= again
            self.out.hit_tokens += hits - again
            request.computed = hits
            if request.writes:  # nothing to compute, but its token is one of the step
                self.left -= 1
            self.compute(request)
        return True

    def preempt(self, request):
        """It goes back to the head of the queue with what it has generated."""
        self.note("preempted", request)
        self.out.interrupted += not request.writes
        request.swapped = self.swaps and request.writes
        request.lost = 0 if request.swapped else request.computed
        self.out.wasted_tokens += request.lost
        self.out.swapped_tokens += request.computed - request.lost
        self.leave(request)
        request.computed = 0
        self.queue.insert(0, request)

    def leave(self, request):
        """The units it has computed stay while there is room, the end of a prefix being the first to go."""
        self.running.remove(request)
        needed = {unit for other in self.running for unit in other.units}
        ends = [(index + 1) * self.unit_tokens for index in range(len(request.units))]
        whole = [unit for unit, end in zip(request.units, ends, strict=True) if end <= request.computed]
        self.unused += [unit for unit in reversed(whole) if unit not in needed]

    def evict(self):
        while self.unused and self.used() + self.unit_blocks * len(self.unused) > self.num_blocks:
            self.unused.pop(0)
            self.out.evicted += 1

    def note(self, what, request):
        self.out.events.append((self.out.steps, what, request.place))
