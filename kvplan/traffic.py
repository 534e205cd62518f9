"""Requests as a simulation takes them: checked, in order of arrival, and cut to what an engine admits.

A request with a prompt as long as the context is rejected. An output ends at the context, or after `max_tokens`; the
declared maximum of a request, which a reserving scheduler books, is min(context, prompt + max_tokens).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from kvplan.specs import shown

if TYPE_CHECKING:
    from kvplan.traces import Trace

POISSON, GAMMA = "poisson", "gamma"
LEAST_RATE = 1e-9
"""Requests a second: one in some thirty years."""
LEAST_CV, MOST_CV = 1e-6, 2**24
"""Variation of gaps below which they are equal, and up to which they are drawn."""
PARTS = "(arrival_s, prompt, output[, hashes])"
MOST_TOKENS = 2**40
"""A longer request is a mistake, whatever the context."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """The requests that are served, in order of arrival: arrays of shape (n,), int64 tokens and float64 seconds.

    `places` are their places in the input; `declared` the tokens each may grow to, with `max_tokens` generated at most;
    `hashes` the prefix blocks of each, None where there are none. `rejected` requests are left out; the output of
    `truncated` ones was cut.
    """

    places: np.ndarray
    arrivals_s: np.ndarray
    prompts: np.ndarray
    outputs: np.ndarray
    declared: np.ndarray
    hashes: list[Sequence[int]] | None
    max_tokens: int
    rejected: int
    truncated: int


def traffic(
    requests: Sequence[Sequence] | np.ndarray,
    *,
    context: int,
    max_tokens: int | None = None,
    arrivals: tuple | None = None,
    seed: int = 0,
) -> Traffic:
    """Requests (arrival_s, prompt, output[, hashes]) -> Traffic. Those of one moment keep their order.

    `max_tokens` None: the longest output among the requests. `arrivals` None: as given, else ("poisson", rate) or
    ("gamma", rate, cv), requests a second and the variation of the gaps, drawn with `seed` in the order given.
    Raises ValueError, one line with the field, the rule and the value.
    """
    arrivals_s, prompts, outputs, hashes = _columns(requests)
    if arrivals is not None:
        arrivals_s = arrival_times(arrivals, prompts.size, seed)
    if max_tokens is None:
        max_tokens = int(outputs.max(initial=1))
    served = np.flatnonzero(prompts < context)
    order = served[np.argsort(arrivals_s[served], kind="stable")]
    prompts, wanted = prompts[order], outputs[order]
    declared = np.minimum(context, prompts + max_tokens)
    cut = np.minimum(wanted, declared - prompts)
    return Traffic(
        places=order,
        arrivals_s=arrivals_s[order],
        prompts=prompts,
        outputs=cut,
        declared=declared,
        hashes=None if hashes is None else [hashes[place] for place in order.tolist()],
        max_tokens=max_tokens,
        rejected=int(outputs.size - order.size),
        truncated=int((cut < wanted).sum()),
    )


def of_trace(trace: Trace) -> list[tuple]:
    """The requests of a trace file as `traffic` takes them, all at once where it has no times."""
    times = np.zeros(trace.prompts.size) if trace.arrivals_s is None else trace.arrivals_s
    columns = [times.tolist(), trace.prompts.tolist(), trace.outputs.tolist()]
    return list(zip(*columns, *([] if trace.hashes is None else [trace.hashes]), strict=True))


def arrival_times(process: tuple, number: int, seed: int) -> np.ndarray:
    """So many arrivals in seconds, the first after one gap. Gaps are exponential, or gamma-distributed with a variation
    of `cv`: bursty above 1, regular at 0. Raises ValueError for an unknown process or a parameter out of range.

    >>> arrival_times(("gamma", 2.0, 0.0), 3, seed=0).tolist()
    [0.5, 1.0, 1.5]
    """
    name, rate, cv = _process(process)
    if not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"seed: must be a whole number of at least 0, got {shown(seed)}")
    rng = np.random.default_rng(seed)
    if name == POISSON:
        gaps = rng.exponential(1 / rate, number)
    elif cv < LEAST_CV:
        gaps = np.full(number, 1 / rate)
    else:
        gaps = rng.gamma(1 / cv**2, cv**2 / rate, number)
    return np.cumsum(gaps)


def _process(process: tuple) -> tuple[str, float, float]:
    parts = process if isinstance(process, (tuple, list)) else ()
    if [len(parts), *parts[:1]] not in ([2, POISSON], [3, GAMMA]):
        raise ValueError(f"arrivals: must be ('poisson', rate) or ('gamma', rate, cv), got {shown(process)}")
    name, rate, cv = (*parts, 1.0)[:3]
    if not isinstance(rate, Real) or not LEAST_RATE <= rate < math.inf:
        raise ValueError(f"arrivals: rate must be at least {LEAST_RATE:g} requests/s, got {shown(rate)}")
    if not isinstance(cv, Real) or not 0 <= cv <= MOST_CV:
        raise ValueError(f"arrivals: cv must be from 0 to {MOST_CV:,}, got {shown(cv)}")
    return name, rate, cv


def _columns(requests) -> tuple[np.ndarray, np.ndarray, np.ndarray, Sequence | None]:
    """Arrivals, prompts, outputs and hashes, each checked."""
    if isinstance(requests, np.ndarray):
        if requests.ndim != 2 or requests.shape[1] != 3:
            raise ValueError(f"requests: an array must have 3 columns, got shape {requests.shape}")
        arrivals, prompts, outputs = requests.T
        hashes = None
    else:
        try:
            requests = list(requests)
            widths = set(map(len, requests))
        except TypeError:
            raise ValueError(f"requests: each must be {PARTS}, got {shown(requests)}") from None
        if len(widths) > 1 or not widths <= {3, 4}:
            raise ValueError(f"requests: each must be {PARTS}, got {sorted(widths)} parts")
        arrivals, prompts, outputs = ([row[part] for row in requests] for part in range(3))
        hashes = [_hashes(row[3]) for row in requests] if widths == {4} else None
    return _seconds(arrivals), _tokens("prompt", prompts, 0), _tokens("output", outputs, 1), hashes


def _hashes(found) -> Sequence[int]:
    if not isinstance(found, Sequence) or not all(isinstance(name, Integral) for name in found):
        raise ValueError(f"requests: hashes must be a sequence of whole numbers, got {shown(found)}")
    return found


def _seconds(values) -> np.ndarray:
    found = _numbers("arrival_s", values)
    _require("arrival_s", "a finite number of seconds", found, np.isfinite(found))
    return found


def _tokens(name: str, values, least: int) -> np.ndarray:
    found = _numbers(name, values)
    whole = (found >= least) & (found <= MOST_TOKENS) & (found == np.floor(found))
    _require(name, f"a whole number from {least} to {MOST_TOKENS:,}", found, whole)
    return found.astype(np.int64)


def _numbers(name: str, values) -> np.ndarray:
    try:
        found = np.array(values, dtype=float)
        if found.ndim != 1:
            raise TypeError
        return found
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"requests: {name} must be numbers, got {shown(values)}") from None


def _require(name: str, rule: str, values: np.ndarray, holds: np.ndarray) -> None:
    if not holds.all():
        place = int(np.argmin(holds))
        value = values[place].item()
        written = shown(int(value) if value.is_integer() else value)
        raise ValueError(f"requests: {name} must be {rule}, got {written} in request {place + 1:,}")
