"""A length distribution is its quantile function: families, tables and samples alike.

With Q the quantile function, the mean is the integral of Q over (0, 1) and the expected longest of B independent
draws is the integral of Q(v^(1/B)). Tables and samples are step functions, for which both are finite sums and exact.
Families without a closed form are integrated in the logit of p, where their tails cost as little as their middle.

A workload's lengths are drawn together: a request has a prompt and an output. `quantile`, `mean` and `expected_max`
speak of the outputs (how long a request decodes); the joint cells keep the correlation for everything that needs both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np

SLICES = 4096
"""Slices that stand for a family in closed form where only its joint cells are asked for."""
LOGITS = np.arange(-38, 80, 1 / 16)
"""Nodes in w = ln(p / (1 - p)). Beyond them lie 1e-16 of the mean and less than 1e-12 of the second moment."""
MOST_CV = 20
"""Variation up to which the nodes reach; that of published output lengths is 0.7 to 2.2."""
LEAST_SHAPE = 1e-4
"""Shape of the heaviest bounded Pareto law, all but uniform in the logarithm of the length."""
MOST_RATIO = 1e12
"""Maximum over mean of a bounded Pareto law, up to which its moments stay within what a float holds."""
EVEN_BINS, TAIL_BINS, PROMPT_SLICES = 22, 18, 16
EULER_GAMMA = 0.5772156649015329


@dataclass(frozen=True, eq=False)
class Lengths:
    """Output lengths in tokens, and the prompts that came with them.

    `quantile(p)` and `expected_max(n)` broadcast over arrays. `shares`, `outputs` and `prompts` are the joint cells:
    arrays of one shape, the shares adding up to 1; prompts are 0 where none are known.
    """

    mean: float
    quantile: Callable[[np.ndarray], np.ndarray]
    expected_max: Callable[[int], float]
    shares: np.ndarray
    outputs: np.ndarray
    prompts: np.ndarray

    def sample(self, n: int, seed: int) -> np.ndarray:
        """`n` whole output lengths, each at least 1, the same for the same seed."""
        drawn = np.random.default_rng(seed).random(n)
        return np.maximum(1, np.ceil(self.quantile(drawn))).astype(np.int64)


def harmonic(n):
    """The harmonic number H_n = 1 + 1/2 + ... + 1/n, to 14 digits; `n` a whole number or an array of them."""
    n = np.asarray(n, dtype=np.int64)
    table = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, 101))])
    large = np.maximum(n, 100).astype(float)
    asymptotic = np.log(large) + EULER_GAMMA + 1 / (2 * large) - 1 / (12 * large**2) + 1 / (120 * large**4)
    result = np.where(n <= 100, table[np.minimum(n, 100)], asymptotic)
    return float(result) if result.ndim == 0 else result


def fixed(n: float) -> Lengths:
    """Every output is `n` tokens."""
    _require_positive("n", n)
    return from_table([(1.0, n)])


@lru_cache(maxsize=256)
def uniform(a: float, b: float) -> Lengths:
    """Outputs evenly spread between `a` and `b` tokens."""
    _require_positive("a", a)
    _require_positive("b", b)
    if b < a:
        raise ValueError(f"b: must be at least a = {a:g}, got {b:g}")
    return _continuous(
        mean=(a + b) / 2,
        quantile=lambda p: a + (b - a) * np.asarray(p, dtype=float),
        expected_max=lambda n: a + (b - a) * n / (n + 1),
    )


@lru_cache(maxsize=256)
def exponential(mean: float) -> Lengths:
    """Outputs without memory: the longest of n is `mean` times H_n on average."""
    _require_positive("mean", mean)
    return _continuous(
        mean=mean,
        quantile=lambda p: -mean * np.log1p(-np.asarray(p, dtype=float)),
        expected_max=lambda n: mean * harmonic(n),
    )


@lru_cache(maxsize=256)
def lognormal(mean: float, cv: float) -> Lengths:
    """Outputs whose logarithm is normal: ln S ~ N(m, s²) with s² = ln(1 + cv²) and m = ln(mean) - s²/2.

    `mean` in tokens, `cv` the standard deviation over the mean; 0 is `fixed`. Raises ValueError outside 0 to MOST_CV.
    """
    _require_moments(mean, cv)
    if cv == 0:
        return fixed(mean)
    spread = math.sqrt(math.log1p(cv**2))
    centre = math.log(mean) - spread**2 / 2
    return _integrated(mean, lambda t: np.exp(centre + spread * _normal_quantile(t)))


@lru_cache(maxsize=256)
def weibull(mean: float, cv: float) -> Lengths:
    """Outputs that are a power of an exponential, S = c T^x with T of mean 1: at cv = 1 the exponential itself.

    `mean` in tokens, `cv` the standard deviation over the mean; 0 is `fixed`. The shape 1/x solves
    Γ(1 + 2x) / Γ(1 + x)² = 1 + cv². Raises ValueError outside 0 to MOST_CV.
    """
    _require_moments(mean, cv)
    if cv == 0:
        return fixed(mean)
    target = math.log1p(cv**2)
    x = _rising_root(lambda x: math.lgamma(1 + 2 * x) - 2 * math.lgamma(1 + x) - target, 0, 1 + cv)
    scale = mean / math.gamma(1 + x)
    return _integrated(mean, lambda t: scale * t**x)


@lru_cache(maxsize=256)
def pareto(mean: float, cv: float, maximum: float) -> Lengths:
    """Outputs of a power law cut at `maximum` tokens: density proportional to x^(-a - 1) from a least length to it.

    `mean` in tokens and `cv`, the standard deviation over the mean, are those of the law as cut; a > 0 and the least
    length are solved for. A cv of 0 is `fixed`. Raises ValueError if `maximum` is not above the mean, or for a cv
    above what a power law of this mean and maximum can have: about sqrt(maximum / (2 mean) - 1) far above the mean.
    """
    _require_moments(mean, cv)
    _require_positive("maximum", maximum)
    if not mean < maximum <= MOST_RATIO * mean:
        rule = f"must be above mean = {mean:g} and at most {MOST_RATIO:g} times it"
        raise ValueError(f"maximum: {rule}, got {maximum:g}")
    if cv == 0:
        return fixed(mean)
    ratio = mean / maximum
    most = _pareto_cv(LEAST_SHAPE, ratio)
    if cv > most:
        # Rounded down, so that the value named is one that is taken.
        named = f"{most * (1 - 5e-4):.4g}"
        raise ValueError(f"cv: must be at most {named} with mean = {mean:g} and maximum = {maximum:g}, got {cv:g}")
    # Cutting a tail lowers the variation: at the shape of the uncut law that has this cv, the cut law has less.
    steepest = 1 + math.sqrt(1 + 1 / cv**2)
    shape = _rising_root(lambda a: cv - _pareto_cv(a, ratio), LEAST_SHAPE, steepest)
    extent = _pareto_extent(shape, ratio)
    cut = math.exp(-shape * extent)
    least = math.log(maximum) - extent
    return _integrated(mean, lambda t: np.exp(least - np.log(np.exp(-t) - cut * np.expm1(-t)) / shape))


def from_table(rows: Iterable[Sequence[float]]) -> Lengths:
    """Lengths from rows (share, output) or (share, output, prompt); shares may be counts, they are normalised."""
    table = [(float(row[0]), float(row[1]), float(row[2]) if len(row) > 2 else 0.0) for row in rows]
    if not table:
        raise ValueError("table: at least one row is needed, got none")
    shares, outputs, prompts = np.array(table).T
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise ValueError("table: shares must be 0 or more and not all 0")
    return _steps(shares, outputs, prompts)


def from_samples(outputs: Sequence[float], prompts: Sequence[float] | None = None) -> Lengths:
    """The empirical distribution of observed requests; with prompts, request by request."""
    outputs = np.asarray(outputs, dtype=float)
    prompts = np.zeros_like(outputs) if prompts is None else np.asarray(prompts, dtype=float)
    if outputs.ndim != 1 or outputs.size == 0:
        raise ValueError("outputs: a sequence of at least one length is needed")
    if outputs.shape != prompts.shape:
        raise ValueError(f"prompts: one for each output is needed, got {prompts.size} for {outputs.size} outputs")
    return _steps(np.ones(outputs.size), outputs, prompts)


def to_table(
    outputs: Sequence[int],
    prompts: Sequence[int],
    even_bins: int = EVEN_BINS,
    tail_bins: int = TAIL_BINS,
    prompt_slices: int = PROMPT_SLICES,
) -> list[tuple[int, float, float]]:
    """Rows (requests, mean output, mean prompt) that stand for observed requests; `from_table` reads them back.

    Requests in order of output are cut into about 40 bins, even ones up to 90 % and then ever narrower to the longest,
    as the longest decide how long a static batch lasts. Each bin is cut into up to 16 slices in order of prompt, so
    that lengths stay right when they are clipped. Means and counts are exact. Fewer of each make a shorter table.
    """
    outputs, prompts = np.asarray(outputs, dtype=float), np.asarray(prompts, dtype=float)
    order = np.lexsort((prompts, outputs))
    outputs, prompts = outputs[order], prompts[order]
    even = np.linspace(0, 0.9, even_bins + 1)
    narrowing = 1 - np.geomspace(0.1, 1 / outputs.size, tail_bins)
    edges = np.unique(np.rint(np.concatenate([even, narrowing, [1.0]]) * outputs.size).astype(int))
    rows = []
    for start, stop in pairwise(edges):
        output = float(outputs[start:stop].mean())
        slices = np.array_split(np.sort(prompts[start:stop]), prompt_slices)
        rows += [(part.size, output, float(part.mean())) for part in slices if part.size]
    return rows


def with_prompt(lengths: Lengths, prompt: float) -> Lengths:
    """The same outputs, every request with a prompt of `prompt` tokens."""
    return replace(lengths, prompts=np.full_like(lengths.outputs, prompt))


def mean_prompt(lengths: Lengths, context: float = math.inf) -> float:
    """Mean prompt in tokens, prompts cut to a context."""
    return float(lengths.shares @ np.minimum(lengths.prompts, context - 1))


def draw(lengths: Lengths, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`n` requests, prompts and outputs drawn together as whole tokens, the same for the same seed."""
    cells = np.random.default_rng(seed).choice(lengths.shares.size, n, p=lengths.shares)
    prompts, outputs = np.rint(lengths.prompts[cells]), np.rint(lengths.outputs[cells])
    return prompts.astype(np.int64), np.maximum(1, outputs).astype(np.int64)


def clipped(lengths: Lengths, context) -> tuple[np.ndarray, np.ndarray]:
    """Prompts and outputs cut to what a context admits: p' = min(p, context - 1), o' = min(o, context - p').

    `context` is a number or an array of shape (n,); the results then have shape (cells,) or (n, cells).
    """
    context = np.asarray(context)[..., np.newaxis]
    prompts = np.minimum(lengths.prompts, context - 1)
    return prompts, np.minimum(lengths.outputs, context - prompts)


@dataclass(frozen=True, eq=False)
class ClippedSums:
    """Sums over the cells (share w, prompt p, output o) of a workload by what a context c does to them.

    From c = `ends` = p + o on a cell is whole: of the first k in this order `whole_held`[k] sums w (p o + o (o + 1)/2),
    `whole_tokens` w o, `whole_share` w, `whole_prompts` w p and `whole_squares` w p (p + 1). From c = `starts` = p + 1
    on its prompt fits: `begun_...` sum the same of the first k in that order. Before, one token comes out at most,
    m = min(o, 1): `one_tokens`[k] and `one_held` sum w m and w m (m + 1)/2 of all but the first k.
    """

    ends: np.ndarray
    whole_held: np.ndarray
    whole_tokens: np.ndarray
    whole_share: np.ndarray
    whole_prompts: np.ndarray
    whole_squares: np.ndarray
    starts: np.ndarray
    begun_share: np.ndarray
    begun_prompts: np.ndarray
    begun_squares: np.ndarray
    one_tokens: np.ndarray
    one_held: np.ndarray


@lru_cache(maxsize=64)
def _clipped_sums(lengths: Lengths) -> ClippedSums:
    shares, prompts, outputs = lengths.shares, lengths.prompts, lengths.outputs
    starts, ones = prompts + 1, np.minimum(outputs, 1)
    ends = np.maximum(prompts + outputs, starts)
    by_end, by_start = np.argsort(ends, kind="stable"), np.argsort(starts, kind="stable")
    # On a grid that sums stay on, so that the share of those begun and not whole is exact, and 0 where there are none.
    exact = np.rint(shares * 2**52) / 2**52
    tokens, squares = exact * prompts, exact * prompts * (prompts + 1)
    return ClippedSums(
        ends=ends[by_end],
        whole_held=_up_to((shares * (prompts * outputs + outputs * (outputs + 1) / 2))[by_end]),
        whole_tokens=_up_to((shares * outputs)[by_end]),
        whole_share=_up_to(exact[by_end]),
        whole_prompts=_up_to(tokens[by_end]),
        whole_squares=_up_to(squares[by_end]),
        starts=starts[by_start],
        begun_share=_up_to(exact[by_start]),
        begun_prompts=_up_to(tokens[by_start]),
        begun_squares=_up_to(squares[by_start]),
        one_tokens=_from((shares * ones)[by_start]),
        one_held=_from((shares * ones * (ones + 1) / 2)[by_start]),
    )


def _up_to(values: np.ndarray) -> np.ndarray:
    """Sums of the first 0, 1, ..., n values."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _from(values: np.ndarray) -> np.ndarray:
    """Sums of all values, all but the first, ..., none of them."""
    return _up_to(values[::-1])[::-1].copy()


def resident_mean(lengths: Lengths, context):
    """Tokens a running request holds, averaged over time, when requests are clipped to `context`, a whole number or an
    array of them.

    Long outputs run longer and are met more often, so the mean is size-biased:
    E[p'o' + o'(o' + 1)/2] / E[o'] for prompt p' and output o' drawn together. Of a cell whose output is cut to
    o' = c - p, what it holds is (c (c + 1) - p (p + 1))/2.
    """
    sums = _clipped_sums(lengths)
    whole, begun = sums.ends.searchsorted(context, "right"), sums.starts.searchsorted(context, "right")
    cut_share = sums.begun_share[begun] - sums.whole_share[whole]
    cut_prompts = sums.begun_prompts[begun] - sums.whole_prompts[whole]
    cut_squares = sums.begun_squares[begun] - sums.whole_squares[whole]
    held_of_cut = (context * (context + 1) * cut_share - cut_squares) / 2
    held_of_one = (context - 1) * sums.one_tokens[begun] + sums.one_held[begun]
    held = sums.whole_held[whole] + held_of_cut + held_of_one
    decoded = sums.whole_tokens[whole] + (context * cut_share - cut_prompts) + sums.one_tokens[begun]
    return _number(held / decoded)


def clipped_share(lengths: Lengths, context):
    """Share of requests whose prompt and output together exceed `context` tokens, a whole number or an array."""
    ends, beyond = _beyond(lengths)
    return _number(beyond[ends.searchsorted(context, "right")])


@lru_cache(maxsize=64)
def _beyond(lengths: Lengths) -> tuple[np.ndarray, np.ndarray]:
    """Tokens at completion in ascending order, and the share of requests after each of them."""
    ends = lengths.prompts + lengths.outputs
    order = np.argsort(ends, kind="stable")
    return ends[order], np.minimum(_from(lengths.shares[order]), 1.0)


def _number(value):
    """A float for one number, an array as it is."""
    return value if isinstance(value, np.ndarray) else float(value)


def totals(lengths: Lengths, context: int) -> Lengths:
    """What a request holds when it completes: prompt + output, cut to `context` tokens."""
    prompts, outputs = clipped(lengths, context)
    return _steps(lengths.shares, prompts + outputs, np.zeros_like(outputs))


def _steps(weights: np.ndarray, outputs: np.ndarray, prompts: np.ndarray) -> Lengths:
    """A step function: E[max of n] = sum of x_i (u_i^n - u_(i-1)^n) over outputs x in ascending order.

    Weights are added up before they are divided by their total, so that the i-th of n samples ends at i / n exactly.
    """
    if not (np.isfinite(outputs).all() and (outputs > 0).all()):
        raise ValueError("outputs: every length must be a positive number of tokens")
    if not (np.isfinite(prompts).all() and (prompts >= 0).all()):
        raise ValueError("prompts: every length must be 0 or more tokens")
    values, positions = np.unique(outputs, return_inverse=True)
    upper = np.cumsum(np.bincount(positions, weights=weights))
    upper /= upper[-1]
    shares = weights / weights.sum()

    def quantile(p):
        return values[np.minimum(np.searchsorted(upper, p, side="left"), values.size - 1)]

    def expected_max(n):
        powers = upper ** np.asarray(n, dtype=float)[..., np.newaxis]
        result = np.diff(powers, prepend=0.0) @ values
        return float(result) if result.ndim == 0 else result

    return Lengths(float(shares @ outputs), quantile, expected_max, shares, outputs, prompts)


def _continuous(*, mean: float, quantile: Callable, expected_max: Callable) -> Lengths:
    """A closed-form family; its cells are slices that thin out towards the longest outputs, which weigh most."""
    edges = 1 - (1 - np.arange(SLICES + 1) / SLICES) ** 2
    outputs = quantile((edges[:-1] + edges[1:]) / 2)
    return Lengths(float(mean), quantile, expected_max, np.diff(edges), outputs, np.zeros(SLICES))


def _integrated(mean: float, of_exponential: Callable) -> Lengths:
    """A family without a closed form, as a function of t = -ln(1 - p), the unit exponential of the same rank.

    In w = logit p, E[max of n] = ∫ Q n p^n (1 - p) dw. The integrand is analytic in a strip around the real line and
    vanishes at both ends, so that the trapezoidal rule converges exponentially: its nodes are the joint cells too.
    Source: Trefethen and Weideman, The exponentially convergent trapezoidal rule, SIAM Review 56, 2014.
    """
    log_p, log_rest = -np.logaddexp(0, -LOGITS), -np.logaddexp(0, LOGITS)
    shares = np.exp(log_p + log_rest) * (LOGITS[1] - LOGITS[0])
    outputs = of_exponential(-log_rest)

    def expected_max(n):
        n = np.asarray(n, dtype=float)
        result = n * (np.exp((n[..., np.newaxis] - 1) * log_p) @ (shares * outputs))
        return float(result) if result.ndim == 0 else result

    def quantile(p):
        return of_exponential(-np.log1p(-np.asarray(p, dtype=float)))

    return Lengths(float(mean), quantile, expected_max, shares, outputs, np.zeros_like(outputs))


def _normal_quantile(t):
    """The standard normal of the same rank as the unit exponential `t`, from whichever tail is nearer."""
    below, above = -np.expm1(-t), np.exp(-t)
    return np.where(below < above, 1, -1) * _normal_tail(np.minimum(below, above))


@np.vectorize(otypes=[float])
def _normal_tail(p):
    return NormalDist().inv_cdf(p) if p > 0 else -math.inf


def _pareto_cv(shape: float, ratio: float) -> float:
    """Variation of the bounded Pareto law of this shape whose mean is `ratio` of its maximum; it falls with shape."""
    extent = _pareto_extent(shape, ratio)
    return math.sqrt(max(0.0, _pareto_moment(2, shape, extent) / ratio**2 - 1))


def _pareto_extent(shape: float, ratio: float) -> float:
    """ln(maximum / least) at which the mean is `ratio` of the maximum: above the least, below that of shape 0."""
    return _rising_root(lambda extent: ratio - _pareto_moment(1, shape, extent), -math.log(ratio), 1 / ratio)


def _pareto_moment(k: int, shape: float, extent: float) -> float:
    """E[(x / maximum)^k]: the integral of e^(-k u - shape (extent - u)) over u in (0, extent), over that of k = 0."""

    def integral(k):
        gap = abs(k - shape)
        return math.exp(-min(k, shape) * extent) * (-math.expm1(-gap * extent) / gap if gap else extent)

    return integral(k) / integral(0)


def _rising_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses 0 between `low` and `high`, by bisection to the last bits."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2


def _require_moments(mean: float, cv: float) -> None:
    _require_positive("mean", mean)
    if not 0 <= cv <= MOST_CV:
        raise ValueError(f"cv: must be from 0 to {MOST_CV}, got {cv!r}")


def _require_positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name}: must be a positive number of tokens, got {value!r}")
