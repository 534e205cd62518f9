"""What a batch yields: tokens a second and the times a request takes, with as many in the system all the time.

The closed form has no queue: whenever a request ends the next one is there, and is prefilled in the same steps in which
the others decode. Little's law L = lambda W ties the three: `concurrency` = `requests_per_s` x `e2e_s`.

Source: Little, A Proof for the Queuing Formula L = lambda W, 1961; chunked prefill after Agrawal et al., Sarathi, 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvplan import lengths
from kvplan.catalog import Setting
from kvplan.engine import layout
from kvplan.roofline import StepTime, step_time
from kvplan.roofline_facts import math_rate

LEAST_STEPS = 1e-9
"""Decode steps of a mean request below which it has none: what is left is rounding."""


@dataclass(frozen=True)
class Demand:
    """What a mean request asks: `prompt` tokens of which `computed` are not found in the pool and attend to `attended`
    others each, `output` tokens, and `held` tokens in its cache, averaged over the steps in which it decodes."""

    prompt: float
    computed: float
    attended: float
    output: float
    held: float


@dataclass(frozen=True)
class Operation:
    """A replica with `concurrency` requests in the system: `decoding` of them write a token in a mean step of `step_s`
    seconds, in some of which prompts of others are computed. `tpot_s` is the time between tokens, `ttft_s` until the
    first, `e2e_s` until the last."""

    concurrency: float
    decoding: float
    step_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    requests_per_s: float
    tokens_per_s: float


@dataclass(frozen=True)
class Engine:
    """How a plan's replica runs: its step time, what requests ask of it, and the tokens a step may take."""

    step: StepTime
    demand: Demand
    max_num_batched_tokens: int


def engine(setting: Setting) -> Engine | None:
    """How the plan runs; None where its step time is not known."""
    asked = demand(setting)
    step = step_time(setting, asked.attended)
    return None if step is None else Engine(step, asked, setting.max_num_batched_tokens)


def demand(setting: Setting) -> Demand:
    """The mean request of the plan's workload, clipped to its context; each yields at least one token."""
    found, context = setting.lengths, setting.plan.context
    prompts, outputs = lengths.clipped(found, context)
    outputs = np.maximum(outputs, 1)
    hits = prompt_hits(setting, prompts)
    prompt, output = float(found.shares @ prompts), float(found.shares @ outputs)
    computed, attended = float(found.shares @ (prompts - hits)), mean_attended(prompts, hits, found.shares)
    # The first token comes out of the prefill, so that the steps which decode begin with the second.
    token_steps = float(found.shares @ (prompts * (outputs - 1) + outputs * (outputs + 1) / 2 - 1))
    held = token_steps / (output - 1) if output - 1 > LEAST_STEPS else prompt + 1
    return Demand(prompt, computed, attended, output, max(held, prompt + 1))


def prompt_hits(setting: Setting, prompts: np.ndarray) -> np.ndarray:
    """Tokens of each prompt that are found in the pool: those of the shared prefix, or the plan's rate where that is
    more. A prompt has at least one token of its own to compute."""
    plan = setting.plan
    rate = (plan.prefix_hit_rate or 0.0) if plan.enable_prefix_caching else 0.0
    return np.maximum(pool_hits(setting, prompts), np.minimum((prompts - 1).clip(0), rate * prompts))


def pool_hits(setting: Setting, prompts: np.ndarray) -> np.ndarray:
    """Tokens of the shared prefix that a pool finds, of each prompt that goes beyond it: those that every growing table
    has in whole blocks."""
    shared = setting.shared_prefix_tokens
    if not shared:
        return np.zeros_like(prompts)
    blocks = [group.block_tokens * group.spec.dcp for group in layout(setting).growing]
    found = min((shared // block * block for block in blocks), default=0)
    return np.where(prompts > shared, float(found), 0.0)


def mean_attended(prompts: np.ndarray, hits: np.ndarray, shares: np.ndarray) -> float:
    """Tokens that a computed token of the prompts attends to on average: those before it, found or computed."""
    computed = float(shares @ (prompts - hits))
    return float(shares @ (prompts**2 - hits**2)) / 2 / computed if computed else 0.0


def operate(engine: Engine, concurrency: float) -> Operation:
    """The steady state with so many requests in the system, at least 1.

    Each that ends is followed by another, whose prompt is computed in a step of the others; where their prompts fill
    the steps, requests wait for their prefill and fewer decode, and no more come and go than full steps carry.
    """
    asked, step = engine.demand, engine.step
    others = (concurrency - 1) / concurrency
    decode_steps = max(asked.output - 1, 1) / step.accepted
    most = engine.max_num_batched_tokens / (1 + step.drafted + asked.computed / decode_steps)
    decoding = min(concurrency, most)
    step_s = _mean_step_s(engine, decoding, others * decoding / decode_steps)
    full_s = _mean_step_s(engine, most, most / decode_steps)
    tpot_s = step_s / step.accepted
    ttft_s = first_token_s(engine, decoding * others) + (step_s / 2 if concurrency > 1 else 0.0)
    decode_s = (asked.output - 1) * tpot_s
    rate = min(concurrency / (ttft_s + decode_s), most / (decode_steps * full_s))
    e2e_s = concurrency / rate
    return Operation(concurrency, decoding, step_s, e2e_s - decode_s, tpot_s, e2e_s, rate, rate * asked.output)


def _mean_step_s(engine: Engine, decoding: float, begun: float) -> float:
    """The mean step where `begun` requests begin in each on average, at random: some steps have prompts, some none."""
    step, held = engine.step, engine.demand.held
    plain = _step_s(step, 0, decoding, held)
    fed = begun * engine.demand.computed
    if not fed:
        return plain
    room = engine.max_num_batched_tokens - decoding * (1 + step.drafted)
    chunk = min(fed / -math.expm1(-begun), max(room, fed))
    share = min(1.0, fed / chunk)
    return plain + share * (_step_s(step, chunk, decoding, held) - plain)


def first_token_s(engine: Engine, decoding: float = 0.0) -> float:
    """Seconds to prefill a mean prompt beside so many decoding sequences, in as many steps as it takes.

    A part of a prompt goes through all pipeline stages in one share of the batch.
    """
    asked, shares = engine.demand, engine.step.stages if decoding else 1
    room = max(1.0, engine.max_num_batched_tokens - decoding * (1 + engine.step.drafted))
    whole, rest = divmod(max(asked.computed, 1.0), room)
    full = whole * _step_s(engine.step, shares * room, decoding, asked.held) if whole else 0.0
    return full + (_step_s(engine.step, shares * rest, decoding, asked.held) if rest else 0.0)


def _step_s(step: StepTime, prefill: float, decoding: float, held: float) -> float:
    return step.step_s(prefill, decoding, prefill + decoding * held)


def largest_batch(engine: Engine, allows: Callable[[Operation], bool], most: int) -> int:
    """The largest batch, up to `most`, that meets a rule which no batch beyond meets again; 0 where not even one."""
    if allows(operate(engine, most)):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allows(operate(engine, middle)) else (low, middle)
    return low


def tpot_batch(engine: Engine, target_s: float, most: int) -> int:
    """The largest batch, up to `most`, whose time between tokens meets a target; `most` where none has a second."""
    if engine.demand.output - 1 <= LEAST_STEPS:
        return most
    return largest_batch(engine, lambda at: at.tpot_s <= target_s, most)


def ttft_batch(engine: Engine, target_s: float, most: int) -> int:
    """The largest batch, up to `most`, whose time to the first token meets a target."""
    return largest_batch(engine, lambda at: at.ttft_s <= target_s, most)


def at_rate(engine: Engine, requests_per_s: float, most: float) -> Operation | None:
    """The steady state in which so many requests come and go a second, with at most `most` in the system; None where
    they would have to wait longer and longer. Below one request at a time it is one, some of the time."""
    if operate(engine, most).requests_per_s < requests_per_s:
        return None
    low, high = 1.0, float(most)
    if operate(engine, low).requests_per_s >= requests_per_s:
        return operate(engine, low)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if operate(engine, middle).requests_per_s >= requests_per_s else (middle, high)
    return operate(engine, high)


def critical_batch(setting: Setting, engine: Engine) -> float:
    """Tokens of a step at which computing takes as long as reading the weights, both at peak and with all experts read:
    peak x bytes of weights / (bandwidth x FLOP of a token without attention).

    One number for a device and a width of weights in a dense model, `peak x bytes per weight / (2 x bandwidth)`: 295 on
    an H100 SXM in bf16.
    """
    work = engine.step.work
    peak, _ = math_rate(setting.gpu, setting.weight_dtype)
    ratio = peak / setting.gpu.bandwidth_bytes_per_s
    return ratio * (work.weight_bytes + work.expert_bytes) / (work.body_flop + work.head_flop)


def kv_equals_weights_batch(engine: Engine) -> float | None:
    """The batch whose caches are as many bytes as the weights, all experts among them; None where no cache is read."""
    work = engine.step.work
    each = work.cache_read(engine.demand.held)
    return (work.weight_bytes + work.expert_bytes) / each if each else None


def little(*, concurrency: float | None = None, rate: float | None = None, time_s: float | None = None) -> float:
    """The third of L = lambda W from the two given. Raises ValueError unless exactly two are, each above 0.

    >>> little(rate=3.5, time_s=4.0)
    14.0
    """
    given = {"concurrency": concurrency, "rate": rate, "time_s": time_s}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        raise ValueError(f"exactly two of concurrency, rate and time_s are needed, got {3 - len(missing)}")
    for name, value in given.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}: must be above 0, got {value}")
    if concurrency is None:
        return rate * time_s
    return concurrency / (time_s if rate is None else rate)
