"""Requests through a block pool, as the engine schedules them: admission, growth, preemption, release.

One step after another, but only where something happens: a request comes, is admitted, ends, or the pool runs out.
Between such steps nothing changes but the blocks, and their growth is known (`growth`).

The rules of a step, in their order:

1. Each running request writes a token; where that needs more blocks than there are, the youngest is preempted until it
   fits, and goes back to the head of the queue with what it has generated.
2. If none was preempted, waiting requests are admitted, first come first served, while a slot is free and the blocks
   for all their tokens are there. A prompt is computed in the step that admits it, or in parts where a step may take
   only so many tokens; the last part yields the first token.
3. Requests that have written their last token end; their blocks are free from the next step on.

`serve` is one long function on purpose: with its state in local variables it takes a third of the time that the same
rules took with their state in an object. What is rare stands in functions within it.

Source: vLLM's scheduler: running requests come first; none is admitted in a step that preempted; the whole input must
fit (`scheduler_reserve_full_isl`). A prompt's blocks are booked with its admission here, by the engine part by part.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from kvplan.growth import Growth, Pattern
from kvplan.prefix_cache import PrefixCache, Units
from kvplan.traffic import Traffic

StepTime = float | Callable[[int, int, int], float]
Progress = Callable[[int, int], bool | None]
REQUESTS_A_CALL, STEPS_A_CALL = 20_000, 50_000
NOBODY = -1
FEW_STEPS = 16
"""Without an event that are gone through one by one; more are counted together."""
MOST_PHASES = 2**20
"""Of a period that are listed one by one; block sizes that share no multiple have longer ones."""
MOST_SAMPLES = 4096
"""Of a timeline; when there are as many, every other one goes."""


class Phases(dict):
    """Blocks by the phase in which they are taken, none in most of very many."""

    def __missing__(self, phase: int) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class Load:
    """What the requests ask of the pool: `first_blocks` at their admission and `last_blocks` at their end, both without
    those of their shared `units`; int64 arrays of shape (n,). `cache` keeps the units, None where nothing is shared.

    `blocks(tokens)` is what a request of so many tokens has in all, and `growth` is how it gets there.
    """

    first_blocks: np.ndarray
    last_blocks: np.ndarray
    blocks: Callable[[int], int]
    growth: Growth
    cache: PrefixCache | None
    units: list[Units]


@dataclass(frozen=True)
class Server:
    """What serves: `num_blocks`, `slots` for requests, the seconds of a step, the tokens a step may take, and whether a
    preempted cache is swapped out or dropped."""

    num_blocks: int
    slots: int
    step_time: StepTime
    max_num_batched_tokens: float = math.inf
    swaps: bool = False


@dataclass(frozen=True, eq=False)
class Record:
    """What a run leaves: for each request, in the order of the traffic, the step that first admits it, and the step and
    the time of its first token and of its last (0 where it did not get there), (step, request) of each preemption, and
    counts.

    `samples` are rows of (step, its begin, its end, running, preempted, requests that ever ran, blocks, tokens,
    whether one waits for blocks or for a slot). The sums over all steps are of requests running, blocks booked, and
    tokens held by the requests that write; `before_drain` are the steps before the one that first admits the last
    request (or the first step), and their sums.
    """

    admitted_steps: np.ndarray
    first_steps: np.ndarray
    last_steps: np.ndarray
    first_s: np.ndarray
    last_s: np.ndarray
    preemptions: list[tuple[int, int]]
    samples: np.ndarray
    steps: int
    done: int
    running_sum: int
    blocks_sum: int
    tokens_sum: int
    before_drain: tuple[int, int, int, int]
    peak_running: int
    peak_blocks: int
    prefill_tokens: int
    hit_tokens: int
    wasted_tokens: int
    swapped_tokens: int


def serve(traffic: Traffic, load: Load, server: Server, progress: Progress | None = None) -> Record:
    """Run the requests until every one is done, or `progress(done, total)` returns False; it is called every 20,000
    requests or 50,000 steps, and at the end. Steps count from 1; the time of a step is that of its end."""
    total = traffic.prompts.size
    arrival = array("d", traffic.arrivals_s.tobytes())
    prompt, output = _integers(traffic.prompts), _integers(traffic.outputs)
    first, last = _integers(load.first_blocks), _integers(load.last_blocks)
    num_blocks, slots, step_time, varies = server.num_blocks, server.slots, server.step_time, callable(server.step_time)
    cache, units, growth = load.cache, load.units, load.growth
    period, limits, plain, offset = growth.period, growth.limits, growth.patterns[0], growth.spec_tokens

    # Of each request: what it had generated when it was last admitted, the step it would have begun in had it never
    # been preempted, and how it grows.
    generated, origin = _integers(np.zeros(total)), _integers(np.zeros(total))
    pattern: list[Pattern] = [()] * total
    admitted_steps, first_steps, last_steps = (_integers(np.zeros(total)) for _ in range(3))
    first_s, last_s = array("d", bytes(8 * total)), array("d", bytes(8 * total))

    running: dict[int, int] = {}  # request -> the step after which it ends or grows otherwise; the youngest last
    due: dict[int, list[int]] = {}  # such a step -> requests, some of which were preempted since
    calendar: list[int] = []  # the steps of `due`, as a heap
    preempted: list[int] = []  # the eldest last
    lost: dict[int, int] = {}  # of a preempted request the tokens whose cache is gone, -1 where it was swapped out
    upcoming = 0  # the first request that never ran
    partial, left = NOBODY, 0  # the request whose prompt is computed in parts, and the tokens left of it
    # Blocks that the running requests take in a step of each phase.
    grow = [0] * period if period <= MOST_PHASES else Phases()

    step, now = 0, -math.inf
    epoch_step, epoch = 0, 0.0  # since when steps follow each other without a pause
    used = tokens = 0  # blocks, and tokens of the requests that write, this step's included
    done = running_sum = blocks_sum = tokens_sum = peak_blocks = peak_running = 0
    prefill_tokens = hit_tokens = wasted_tokens = swapped_tokens = 0
    before_drain = None
    preemptions: list[tuple[int, int]] = []
    samples: list[tuple] = []
    sample_every = sample_at = 1
    report_at = report_step = 0

    def preempt() -> None:
        """The youngest goes back to the queue, before those that came later."""
        nonlocal used, tokens, partial, wasted_tokens, swapped_tokens
        request, _ = running.popitem()
        swaps = server.swaps and request != partial
        if request == partial:
            gone, partial = prompt[request] + generated[request] - left, NOBODY
        else:
            gone = prompt[request] + step - origin[request]
            tokens -= gone + 1
            for phase, blocks in pattern[request]:
                grow[phase] -= blocks
            first[request] += load.blocks(gone + 1) - load.blocks(prompt[request] + generated[request] + 1)
            generated[request] = step - origin[request]
        used -= first[request]
        if cache is not None:
            used -= cache.leave(units[request], gone)
        if swaps:
            swapped_tokens += gone
        else:
            wasted_tokens += gone
        lost[request] = -1 if swaps else gone
        preempted.append(request)
        preemptions.append((step, request))

    def take_up(request: int) -> int:
        """One that was preempted, or has a prefix, runs; the tokens of its prompt, and of what it had generated, that
        are not in the pool."""
        nonlocal upcoming, hit_tokens, wasted_tokens, resumed
        gone = found = 0
        if preempted:
            preempted.pop()
            gone = lost.pop(request)
        else:
            upcoming += 1
        if cache is not None:
            found = cache.found_tokens(units[request])
            cache.take(units[request])
            cache.evict(used)
        if gone < 0:
            resumed += 1
            return 0
        again = min(gone, found)
        wasted_tokens -= again
        hit_tokens += found - again
        return prompt[request] + generated[request] - found

    def expect(request: int, end: int) -> int:
        """How a request with windows grows from now on, and until which step."""
        before = origin[request] - prompt[request] - offset
        level = bisect_right(limits, step - before + 1)
        pattern[request] = growth.patterns[level][before % period]
        for phase, blocks in pattern[request]:
            grow[phase] += blocks
        return min(end, limits[level] + before - 1) if level < len(limits) else end

    def sample() -> None:
        nonlocal sample_every, sample_at
        samples.append((step, began, now, len(running), len(preempted), upcoming, used, tokens, blocked))
        if len(samples) == MOST_SAMPLES:
            sample_every *= 2
            del samples[::2]
        sample_at = step - step % sample_every + sample_every

    def next_event() -> int:
        """The next step in which a request ends, or comes and is not blocked, or a sample is due."""
        event = min(calendar[0], sample_at)
        if blocked or upcoming == total or varies:
            return event
        # The first step that begins at or after the arrival, to the last bit as time is counted below.
        steps = max(0, math.ceil((arrival[upcoming] - epoch) / step_time) - 1)
        while epoch + steps * step_time < arrival[upcoming]:
            steps += 1
        return min(event, max(step, epoch_step + steps) + 1)

    def skip_growth(until: int) -> None:
        """On to the step before `until`, or to where the pool runs out: nothing happens but growth."""
        nonlocal blocks_sum
        if until - 1 - step >= period:
            gain = sum(grow)
            periods = (until - 1 - step) // period
            if gain:
                periods = min(periods, (num_blocks - used) // gain)
            within = sum(accumulate(phases_from(period)))
            blocks_sum += periods * (used * period + within) + gain * period * (periods * (periods - 1) // 2)
            go_on(periods * period, periods * gain)
        taken = list(accumulate(phases_from(min(until - 1 - step, period))))
        steps = bisect_right(taken, num_blocks - used)
        blocks_sum += steps * used + sum(taken[:steps])
        go_on(steps, taken[steps - 1] if steps else 0)

    def phases_from(number: int) -> list[int]:
        """The blocks taken in so many of the next steps, at most a period."""
        begin = (step + 1) % period
        found = grow[begin : begin + number]
        return found + grow[: number - len(found)]

    def go_on(steps: int, blocks: int) -> None:
        """Steps in which all that run write a token, and take so many blocks in all."""
        nonlocal step, used, tokens, running_sum, tokens_sum
        running_sum += steps * len(running)
        tokens_sum += steps * tokens + len(running) * (steps * (steps + 1) // 2)
        tokens += steps * len(running)
        used += blocks
        step += steps

    while done < total:
        if progress is not None and (done >= report_at or step >= report_step):
            report_at, report_step = done + REQUESTS_A_CALL, step + STEPS_A_CALL
            if progress(done, total) is False:
                break
        if not running and not preempted and arrival[upcoming] > now:
            now = epoch = arrival[upcoming]
            epoch_step = step

        # 1. Running requests write a token each.
        step += 1
        used += grow[step % period]
        writing = len(running) - (partial >= 0)
        tokens += writing
        if cache is not None:
            cache.evict(used)
        retry = used > num_blocks
        if retry:
            while used > num_blocks:
                preempt()
            writing = len(running) - (partial >= 0)
            if cache is not None:
                cache.evict(used)

        # 2. The prompt that was begun is gone on with; then waiting requests are admitted.
        resumed = 0
        budget, prefill, fresh = server.max_num_batched_tokens - writing, 0, []
        if partial >= 0:
            prefill = min(left, budget)
            left -= prefill
            budget -= prefill
            if left:
                retry = True
            else:
                fresh.append(partial)
                tokens += prompt[partial] + generated[partial] + 1
                partial = NOBODY
        if not retry:
            blocked, free = False, slots - len(running)
            while True:
                request = preempted[-1] if preempted else upcoming
                if request == total or arrival[request] > now:
                    break
                need = first[request] if cache is None else first[request] + cache.blocks_needed(units[request])
                if not free or used + need > num_blocks:
                    blocked = True
                    break
                if budget < 1:
                    retry = True
                    break
                used += need
                free -= 1
                running[request] = 0
                admitted_steps[request] = admitted_steps[request] or step
                if preempted or cache is not None:
                    compute = take_up(request)
                else:
                    compute = prompt[request]
                    upcoming += 1
                if compute > budget:
                    partial, left, retry = request, compute - budget, True
                    prefill += budget
                    break
                prefill += compute
                budget -= compute or 1
                tokens += prompt[request] + generated[request] + 1
                fresh.append(request)
        prefill_tokens += prefill

        # The step takes its time, and each request whose prompt is there has another token.
        began = now
        if varies:
            begun = prompt[partial] + generated[partial] - left if partial >= 0 else 0
            writing = len(running) - len(fresh) - (partial >= 0) + resumed
            now += _checked(step_time(prefill, writing, tokens + begun))
        else:
            now = epoch + (step - epoch_step) * step_time
        for request in fresh:
            before = generated[request]
            if not before:
                first_s[request] = now
                first_steps[request] = step
            before = origin[request] = step - before
            end = before + output[request] - 1
            if limits:
                end = expect(request, end)
            else:
                pattern[request] = phases = plain[(before - prompt[request] - offset) % period]
                for phase, blocks in phases:
                    grow[phase] += blocks
            running[request] = end
            if end in due:
                due[end].append(request)
            else:
                due[end] = [request]
                heapq.heappush(calendar, end)
        writing = len(running)
        running_sum += writing
        blocks_sum += used
        tokens_sum += tokens
        if used > peak_blocks:
            peak_blocks = used
        if writing > peak_running:
            peak_running = writing
        if step == sample_at:
            sample()
        if before_drain is None and upcoming == total:
            before_drain = (1, running_sum, blocks_sum, tokens_sum)
            if step > 1:
                before_drain = (step - 1, running_sum - writing, blocks_sum - used, tokens_sum - tokens)

        # 3. Requests that wrote their last token are done; one whose window is full grows otherwise.
        if calendar and calendar[0] == step:
            heapq.heappop(calendar)
            for request in due.pop(step):
                if running.get(request) != step:
                    continue
                for phase, blocks in pattern[request]:
                    grow[phase] -= blocks
                if limits:
                    end = origin[request] + output[request] - 1
                    if end > step:
                        running[request] = again = expect(request, end)
                        if again not in due:
                            due[again] = []
                            heapq.heappush(calendar, again)
                        due[again].append(request)
                        continue
                del running[request]
                tokens -= prompt[request] + output[request]
                used -= last[request]
                if cache is not None:
                    used -= cache.leave(units[request])
                last_s[request] = now
                last_steps[request] = step
                done += 1
                retry = True

        # On to the next step that matters, or to where the pool runs out.
        if retry or not running:
            continue
        event, writing = next_event(), len(running)
        if event - step > FEW_STEPS and not varies and period <= MOST_PHASES:
            skip_growth(event)
        comes = math.inf if blocked or upcoming == total else arrival[upcoming]
        while step + 1 < event:
            more = used + grow[(step + 1) % period]
            if more > num_blocks or (varies and now >= comes):
                break
            used = more
            step += 1
            tokens += writing
            running_sum += writing
            blocks_sum += used
            tokens_sum += tokens
            if varies:
                now += _checked(step_time(0, writing, tokens))
        if not varies:
            now = epoch + (step - epoch_step) * step_time
        if used > peak_blocks:
            peak_blocks = used

    if done == total and progress is not None:
        progress(done, total)
    return Record(
        admitted_steps=np.array(admitted_steps),
        first_steps=np.array(first_steps),
        last_steps=np.array(last_steps),
        first_s=np.array(first_s),
        last_s=np.array(last_s),
        preemptions=preemptions,
        samples=np.array(samples, dtype=float).reshape(-1, 9),
        steps=step,
        done=done,
        running_sum=running_sum,
        blocks_sum=blocks_sum,
        tokens_sum=tokens_sum,
        before_drain=before_drain or (step, running_sum, blocks_sum, tokens_sum),
        peak_running=peak_running,
        peak_blocks=peak_blocks,
        prefill_tokens=prefill_tokens,
        hit_tokens=hit_tokens,
        wasted_tokens=wasted_tokens,
        swapped_tokens=swapped_tokens,
    )


def _checked(seconds: float) -> float:
    """What a function of the step's work returned."""
    if not 0 <= seconds < math.inf:
        raise ValueError(f"step_time: must return seconds of at least 0, got {seconds!r}")
    return seconds


def _integers(values: np.ndarray) -> array:
    return array("q", values.astype(np.int64).tobytes())
