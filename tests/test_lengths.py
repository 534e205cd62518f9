"""Length distributions: the closed forms, the step functions, and what clipping makes of them."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import load_preset
from kvplan.batching import exponential_utilisation, static_utilisation
from kvplan.lengths import (
    clipped,
    clipped_share,
    draw,
    exponential,
    fixed,
    from_samples,
    from_table,
    harmonic,
    lognormal,
    mean_prompt,
    pareto,
    resident_mean,
    to_table,
    totals,
    uniform,
    weibull,
    with_prompt,
)

TRACES = {
    "Azure conversation trace": "AzureLLMInferenceTrace_conv.csv",
    "Azure code trace": "AzureLLMInferenceTrace_code.csv",
}
each_trace = pytest.mark.parametrize("name", TRACES.values(), ids=TRACES)
each_law = pytest.mark.parametrize(
    "law",
    [
        pytest.param(fixed(7), id="fixed"),
        pytest.param(uniform(1, 511), id="uniform"),
        pytest.param(exponential(256), id="exponential"),
        pytest.param(lognormal(256, 0.8), id="lognormal"),
        pytest.param(weibull(256, 1.2), id="weibull"),
        pytest.param(pareto(256, 1, 4096), id="pareto"),
        pytest.param(from_table([(0.7, 10), (0.2, 100.5), (0.1, 1000)]), id="table"),
        pytest.param(from_samples([3, 1, 4, 1, 5, 9, 2, 6]), id="samples"),
        pytest.param(
            from_table(
                [(requests, output) for requests, output, _ in load_preset("azure-conversation", "workload").table]
            ),
            id="Azure conversation trace",
        ),
    ],
)

FAMILIES = {
    "lognormal": lognormal,
    "weibull": weibull,
    "pareto": lambda mean, cv: pareto(mean, cv, 10_000 * mean),
}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
each_cv = pytest.mark.parametrize("cv", [0.05, 0.5, 1, 2.2, 20])

whole_lengths = st.lists(st.integers(1, 5000), min_size=1, max_size=60)
requests = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000)), min_size=1, max_size=60)


def raw(shared, name):
    """Prompts and outputs of a trace file."""
    return np.loadtxt(shared / "traces" / name, delimiter=",", skiprows=1, usecols=(1, 2), dtype=int).T


# The longest of several


@each_law
@pytest.mark.parametrize("batch", [1, 2, 8, 64])
def test_the_expected_longest_is_what_drawing_finds(law, batch):
    """Monte Carlo by the inverse of the distribution function, within five standard errors."""
    drawn = law.quantile(np.random.default_rng(37).random((20_000, batch))).max(axis=1)
    error = 5 * drawn.std() / math.sqrt(drawn.size) + 1e-9 * law.mean
    assert law.expected_max(batch) == pytest.approx(drawn.mean(), abs=error)


@each_law
@pytest.mark.parametrize("batch", [1, 3, 32, 300])
def test_the_expected_longest_is_the_integral_of_the_quantile_at_a_root(law, batch):
    """Order statistics: E[max of B] is the integral of Q(v^(1/B)) over (0, 1), by the midpoint rule."""
    middles = (np.arange(400_000) + 0.5) / 400_000
    integral = law.quantile(middles ** (1 / batch)).mean()
    assert law.expected_max(batch) == pytest.approx(integral, rel=2e-4)


@each_law
def test_the_longest_of_one_is_the_mean(law):
    """Order statistics at B = 1."""
    assert law.expected_max(1) == pytest.approx(law.mean, rel=1e-12)


@each_law
def test_the_joint_cells_stand_for_the_law(law):
    """Their shares add up to 1, and their mean is that of the law within 0.1 %."""
    assert law.shares.sum() == pytest.approx(1, abs=1e-12)
    assert law.shares @ law.outputs == pytest.approx(law.mean, rel=1e-3)


@each_law
def test_the_longest_never_shortens_with_more_members(law):
    """Order statistics: E[max] rises with B, and never above the longest there is."""
    found = law.expected_max(np.arange(1, 2000))
    assert (np.diff(found) >= -1e-12 * found[:-1]).all()
    assert law.expected_max(7) == pytest.approx(found[6], rel=1e-15)


@pytest.mark.parametrize("batch", [1, 2, 8, 64, 99, 100, 101, 1000, 10**6])
def test_the_longest_exponential_is_the_mean_times_the_harmonic_number(batch):
    """Order statistics, exponential law: mean × H_n, summed term by term."""
    exact = 256 * math.fsum(1 / i for i in range(1, batch + 1))
    assert exponential(256).expected_max(batch) == pytest.approx(exact, rel=1e-12)


def test_harmonic_numbers_of_an_array_are_those_of_its_members():
    """Closed form: H_1 = 1, H_2 = 3/2, H_4 = 25/12, each the previous and 1/n."""
    numbers = np.arange(1, 400)
    found = harmonic(numbers)
    assert found[[0, 1, 3]] == pytest.approx([1, 3 / 2, 25 / 12], rel=1e-15)
    assert np.diff(found) == pytest.approx(1 / numbers[1:], rel=1e-11)
    assert [harmonic(int(n)) for n in (1, 100, 101, 399)] == [found[n - 1] for n in (1, 100, 101, 399)]


@pytest.mark.parametrize("batch", [1, 2, 9, 1024])
def test_the_longest_uniform_is_n_parts_of_n_plus_one(batch):
    """Order statistics, uniform law: a + (b - a) n/(n + 1)."""
    assert uniform(10, 30).expected_max(batch) == pytest.approx(10 + 20 * batch / (batch + 1), rel=1e-15)


@given(whole_lengths, st.integers(1, 2000))
def test_the_longest_of_samples_is_the_sum_over_their_order(lengths, batch):
    """Order statistics, drawing with replacement: sum of x_(i) ((i/n)^B - ((i-1)/n)^B)."""
    n = len(lengths)
    exact = math.fsum(x * ((i / n) ** batch - ((i - 1) / n) ** batch) for i, x in enumerate(sorted(lengths), start=1))
    assert from_samples(lengths).expected_max(batch) == pytest.approx(exact, rel=1e-9)


# Families of a mean and a variation


def by_pieces(law, batch):
    """The integral of Q n p^(n - 1) in the logit of p, by Gauss and Legendre in pieces, from p = 1e-20 to 1 - 1e-15."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(-46, 34.5, 400)
    half = np.diff(edges)[:, np.newaxis] / 2
    logit = edges[:-1, np.newaxis] + half * (1 + nodes)
    p = 1 / (1 + np.exp(-logit))
    return float((half * weights * law.quantile(p) * batch * p**batch / (1 + np.exp(logit))).sum())


@each_family
@pytest.mark.parametrize("cv", [0.05, 0.5, 1, 2.2])
@pytest.mark.parametrize("batch", [1, 2, 8, 64, 1024])
def test_the_expected_longest_of_a_family_is_that_of_another_quadrature(family, cv, batch):
    """Order statistics: E[max of B] is the integral of Q(p) B p^(B - 1)."""
    law = family(256.0, cv)
    assert law.expected_max(batch) == pytest.approx(by_pieces(law, batch), rel=1e-8)


@pytest.mark.parametrize("cv", [0.05, 0.5, 1, 2.2])
@pytest.mark.parametrize("batch", [2**14, 2**20])
def test_the_longest_of_a_million_lognormals_is_that_of_the_shifted_normal(cv, batch):
    """Order statistics, lognormal law: mean × n ∫ Φ(x + s)^(n - 1) φ(x) dx, by the trapezoidal rule in x."""
    spread = math.sqrt(math.log1p(cv**2))
    x = np.linspace(-8, 16, 4001)
    tail = np.array([math.erfc((each + spread) / math.sqrt(2)) / 2 for each in x])
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    exact = 256 * batch * (density * np.exp((batch - 1) * np.log1p(-tail))).sum() * (x[1] - x[0])
    assert lognormal(256, cv).expected_max(batch) == pytest.approx(exact, rel=1e-9)


def test_the_longest_squared_exponential_is_a_sum_of_harmonic_numbers():
    """Order statistics, Weibull law of shape 1/2 (cv = √5): E[T²] of the longest is H_n² + 1 + 1/4 + ... + 1/n²."""
    n = 2**20
    exact = harmonic(n) ** 2 + (1 / np.arange(1, n + 1) ** 2.0).sum()
    assert weibull(2, math.sqrt(5)).expected_max(n) == pytest.approx(exact, rel=1e-10)


def test_a_cut_power_law_has_the_moments_it_was_asked_for():
    """Closed form, bounded Pareto of shape 3/2 on (100, 10,000): mean, second moment, quantiles and E[max of 2]."""
    low, high, shape = 100.0, 10_000.0, 1.5
    whole = low**-shape - high**-shape

    def moment(k):
        return shape / (shape - k) * (low ** (k - shape) - high ** (k - shape)) / whole

    def longest_of_two():
        """2 E[X F(X)], with F(x) = (low^-a - x^-a) / whole."""
        part = shape / (1 - 2 * shape) * (high ** (1 - 2 * shape) - low ** (1 - 2 * shape)) / whole
        return 2 * (low**-shape * moment(1) - part) / whole

    law = pareto(moment(1), math.sqrt(moment(2) / moment(1) ** 2 - 1), high)
    p = np.array([0.0, 0.1, 0.5, 0.99, 0.999999])
    assert law.quantile(p) == pytest.approx((low**-shape - p * whole) ** (-1 / shape), rel=1e-9)
    assert law.expected_max(2) == pytest.approx(longest_of_two(), rel=1e-9)
    assert law.expected_max(2**40) == pytest.approx(high, rel=1e-6)


@each_family
@each_cv
def test_a_family_keeps_its_mean_and_its_variation(family, cv):
    """Its cells, against the mean and cv it was asked for: the first two moments are exact."""
    law = family(256.0, cv)
    assert law.mean == 256
    assert law.shares.sum() == pytest.approx(1, abs=1e-12)
    assert law.shares @ law.outputs == pytest.approx(256, rel=1e-12)
    assert math.sqrt(law.shares @ law.outputs**2 / 256**2 - 1) == pytest.approx(cv, rel=1e-9)
    assert law.expected_max(1) == pytest.approx(256, rel=1e-12)
    assert (law.outputs > 0).all()


@each_family
@each_cv
def test_a_family_holds_over_time_what_its_moments_say(family, cv):
    """Closed form, size bias: p + E[o²]/(2 E[o]) + 1/2 = p + mean (1 + cv²)/2 + 1/2."""
    law = with_prompt(family(256.0, cv), 1000)
    assert float(resident_mean(law, 10**18)) == pytest.approx(1000 + 256 * (1 + cv**2) / 2 + 0.5, rel=1e-6)


@each_family
def test_a_family_clipped_to_a_context_is_the_integral_of_its_clipped_quantile(family):
    """Definition: E[min(o, c - p)] is the integral of min(Q, c - p), by the midpoint rule; cells within 0.1 %."""
    law = with_prompt(family(256.0, 1.5), 100)
    quantiles = law.quantile((np.arange(400_000) + 0.5) / 400_000)
    for context in (200, 356, 612, 2048):
        _, outputs = clipped(law, context)
        assert outputs @ law.shares == pytest.approx(np.minimum(quantiles, context - 100).mean(), rel=1e-3)


@pytest.mark.parametrize(
    ("law", "point", "value"),
    [
        pytest.param(lognormal(100, 1), 0.5, 100 / math.sqrt(2), id="closed form, median of the lognormal"),
        pytest.param(
            lognormal(100, math.sqrt(math.e - 1)), 0.8413447460685429, 100 * math.sqrt(math.e), id="lognormal at +1 s"
        ),
        pytest.param(weibull(2, math.sqrt(5)), 1 - math.exp(-3), 9, id="closed form, Weibull of shape 1/2"),
        pytest.param(lognormal(100, 1), 0, 0, id="lognormal from 0"),
        pytest.param(weibull(100, 2), 0, 0, id="weibull from 0"),
    ],
)
def test_quantiles_of_a_family_follow_its_law(law, point, value):
    assert float(law.quantile(point)) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("batch", [1, 8, 64, 256, 2**20])
def test_the_weibull_of_variation_one_is_the_exponential(batch):
    """Closed form: shape 1, so that U_B is 1/H_B."""
    assert weibull(256, 1).expected_max(batch) == pytest.approx(exponential(256).expected_max(batch), rel=1e-6)
    assert static_utilisation(weibull(256, 1), batch) == pytest.approx(exponential_utilisation(batch), rel=1e-6)
    assert weibull(256, 1).quantile(0.9) == pytest.approx(256 * math.log(10), rel=1e-9)


@each_family
def test_no_variation_is_equal_lengths(family):
    """Closed form: U_B is exactly 1 at every B."""
    law = family(256.0, 0)
    assert law.sample(100, seed=1).tolist() == [256] * 100
    assert all(static_utilisation(law, batch) == 1 for batch in (1, 8, 1000, 2**20))


@given(st.sampled_from(list(FAMILIES.values())), st.floats(0.01, 20), st.floats(1, 1e5))
def test_utilisation_falls_strictly_with_the_batch_for_every_family(family, cv, mean):
    """Order statistics: U_B = mean / E[max of B] falls with B for every law that is not constant."""
    found = static_utilisation(family(mean, cv), np.unique([*range(1, 33), *(2 ** np.arange(21))]))
    assert found[0] == pytest.approx(1, rel=1e-12)
    assert all(later < earlier for earlier, later in pairwise(found.tolist()))


@given(st.floats(0.01, 0.99), st.floats(0.01, 1), st.floats(1, 1e5))
def test_a_power_law_is_found_for_every_mean_and_variation_it_can_have(part, fraction, maximum):
    """Shares of the highest variation the error message names, for every mean below the maximum."""
    mean = part * maximum
    with pytest.raises(ValueError, match="cv: must be at most") as error:
        pareto(mean, 20, maximum)
    most = float(str(error.value).split()[5])
    assert pareto(mean, most, maximum).mean == mean
    cv = fraction * most
    law = pareto(mean, cv, maximum)
    assert law.shares @ law.outputs == pytest.approx(mean, rel=1e-9)
    assert law.shares @ law.outputs**2 == pytest.approx(mean**2 * (1 + cv**2), rel=1e-7)
    assert law.outputs.max() <= maximum * (1 + 1e-9)
    assert law.expected_max(2**20) <= maximum


def test_the_expected_longest_of_a_family_takes_arrays_of_any_shape():
    """One law at six batches."""
    batches = np.array([[1, 8, 64], [2, 256, 2**20]])
    found = lognormal(256, 1).expected_max(batches)
    assert found.shape == batches.shape
    alone = [lognormal(256, 1).expected_max(int(batch)) for batch in batches.ravel()]
    assert found.ravel() == pytest.approx(alone, rel=1e-12)


# The quantile function


@each_law
def test_the_quantile_never_falls(law):
    """Definition of a quantile function."""
    points = np.linspace(0, 1, 10_001)[:-1]
    assert (np.diff(law.quantile(points)) >= 0).all()
    assert law.quantile(points).mean() == pytest.approx(law.mean, rel=2e-3)


@given(whole_lengths, st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_the_quantile_of_samples_never_falls_and_stays_among_them(lengths, points):
    """Definition of an empirical quantile function."""
    found = from_samples(lengths).quantile(np.sort(points))
    assert (np.diff(found) >= 0).all()
    assert set(found) <= set(map(float, lengths))


@given(whole_lengths)
def test_the_quantile_between_two_steps_is_the_sample_there(lengths):
    """Definition: Q(u) is the i-th smallest for u inside ((i - 1)/n, i/n)."""
    n = len(lengths)
    middles = (np.arange(n) + 0.5) / n
    assert from_samples(lengths).quantile(middles).tolist() == sorted(lengths)


@pytest.mark.parametrize("n", [2, 3, 6, 10, 49, 100, 1000])
def test_the_quantile_at_a_step_is_the_sample_that_ends_there(n):
    """Definition: Q(i/n) is the i-th smallest, the least x with F(x) of at least i/n."""
    law = from_samples(range(1, n + 1))
    assert [int(law.quantile(i / n)) for i in range(1, n + 1)] == list(range(1, n + 1))


@pytest.mark.parametrize(
    ("law", "point", "value"),
    [
        pytest.param(exponential(100), 0.5, 100 * math.log(2), id="closed form, median of the exponential"),
        pytest.param(exponential(100), 0.99, 100 * math.log(100), id="closed form, p99 of the exponential"),
        pytest.param(uniform(10, 30), 0.25, 15, id="closed form, quarter of the uniform"),
        pytest.param(fixed(7), 0.9, 7, id="closed form, fixed"),
        pytest.param(from_table([(3, 10), (1, 20)]), 0.74, 10, id="closed form, table before its step"),
        pytest.param(from_table([(3, 10), (1, 20)]), 0.76, 20, id="closed form, table after its step"),
    ],
)
def test_quantiles_follow_the_law(law, point, value):
    assert float(law.quantile(point)) == pytest.approx(value, rel=1e-12)


# Tables and samples


@given(requests)
def test_a_table_of_counts_is_the_samples_it_counts(pairs):
    """Two descriptions of one distribution: every request alone, and equal requests counted."""
    samples = from_samples([output for _, output in pairs], [prompt for prompt, _ in pairs])
    counted = {pair: pairs.count(pair) for pair in pairs}
    table = from_table([(count, output, prompt) for (prompt, output), count in counted.items()])
    assert table.mean == pytest.approx(samples.mean, rel=1e-12)
    assert mean_prompt(table) == pytest.approx(mean_prompt(samples), rel=1e-12)
    middles = (np.arange(len(pairs)) + 0.5) / len(pairs)
    assert table.quantile(middles).tolist() == samples.quantile(middles).tolist()
    batches = np.array([1, 2, 16, 500])
    assert table.expected_max(batches) == pytest.approx(samples.expected_max(batches), rel=1e-9)
    contexts = np.array([1, 2, 100, 4096, 20_000])
    assert resident_mean(table, contexts) == pytest.approx(resident_mean(samples, contexts), rel=1e-9)
    assert clipped_share(table, 4096) == pytest.approx(clipped_share(samples, 4096), abs=1e-12)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 5000)), min_size=1, max_size=20), st.integers(2, 50))
def test_only_the_proportions_of_shares_count(rows, factor):
    """Shares may be counts: they are normalised."""
    once, many = from_table(rows), from_table([(share * factor, output) for share, output in rows])
    assert once.shares.sum() == pytest.approx(1, rel=1e-12)
    assert once.mean == pytest.approx(many.mean, rel=1e-12)
    assert once.expected_max(8) == pytest.approx(many.expected_max(8), rel=1e-9)


def test_prompts_are_zero_where_none_are_known():
    """Worked example: rows and samples without prompts."""
    assert from_table([(1, 10)]).prompts.tolist() == [0]
    assert from_samples([1, 2, 3]).prompts.tolist() == [0, 0, 0]
    assert mean_prompt(exponential(10)) == 0


@given(requests)
def test_a_table_made_of_requests_keeps_their_number_and_means(pairs):
    """Bins are cut, not smoothed: counts and both means are exact."""
    prompts, outputs = zip(*pairs, strict=True)
    rows = to_table(outputs, prompts)
    assert sum(count for count, _, _ in rows) == len(pairs)
    assert all(count >= 1 for count, _, _ in rows)
    assert math.fsum(count * output for count, output, _ in rows) == pytest.approx(sum(outputs), rel=1e-12)
    assert math.fsum(count * prompt for count, _, prompt in rows) == pytest.approx(sum(prompts), rel=1e-12, abs=1e-9)
    assert [output for _, output, _ in rows] == sorted(output for _, output, _ in rows)


def test_a_bin_of_outputs_is_cut_into_slices_in_order_of_prompt():
    """Worked example: 800 requests whose prompts shorten as their outputs lengthen; every slice takes its turn."""
    rows = to_table(range(1, 801), range(800, 0, -1))
    bins = {}
    for count, output, prompt in rows:
        bins.setdefault(output, []).append((count, prompt))
    assert 30 <= len(bins) <= 40
    for slices in bins.values():
        counts, prompts = zip(*slices, strict=True)
        assert len(slices) <= 16
        assert max(counts) - min(counts) <= 1
        assert list(prompts) == sorted(prompts)


@each_trace
def test_the_table_of_a_trace_keeps_its_requests_and_means(shared, name):
    """Azure traces 2023: 19,366 conversations and 8,819 code requests."""
    prompts, outputs = raw(shared, name)
    rows = to_table(outputs, prompts)
    assert sum(count for count, _, _ in rows) == outputs.size == {"conv": 19_366, "code": 8819}[name[-8:-4]]
    assert len(rows) <= 40 * 16
    law = from_table(rows)
    assert law.mean == pytest.approx(outputs.mean(), rel=1e-12)
    assert mean_prompt(law) == pytest.approx(prompts.mean(), rel=1e-12)


@each_trace
def test_the_table_of_a_trace_has_its_utilisation(shared, name):
    """Azure traces 2023: static utilisation within 0.5 % of the raw requests at every batch."""
    prompts, outputs = raw(shared, name)
    batches = np.unique(np.geomspace(1, 1024, 60).astype(int))
    table = static_utilisation(from_table(to_table(outputs, prompts)), batches)
    assert table == pytest.approx(static_utilisation(from_samples(outputs), batches), rel=0.005)


@each_trace
def test_the_table_of_a_trace_holds_its_tokens(shared, name):
    """Azure traces 2023: resident mean within 0.6 % unclipped and 6 % clipped, against the raw requests."""
    prompts, outputs = raw(shared, name)
    table, samples = from_table(to_table(outputs, prompts)), from_samples(outputs, prompts)
    assert resident_mean(table, 2**20) == pytest.approx(resident_mean(samples, 2**20), rel=0.006)
    contexts = 2 ** np.arange(8, 16)
    assert resident_mean(table, contexts) == pytest.approx(resident_mean(samples, contexts), rel=0.06)


def test_the_shipped_table_is_made_of_the_trace(shared):
    """Azure conversation trace 2023: the preset's rows are what its requests give."""
    prompts, outputs = raw(shared, TRACES["Azure conversation trace"])
    shipped = load_preset("azure-conversation", "workload").table
    assert np.array(shipped) == pytest.approx(np.array(to_table(outputs, prompts)), rel=1e-6, abs=1e-3)


# Clipped to a context, and held over time


@pytest.mark.parametrize(
    ("prompt", "output", "context", "kept"),
    [
        pytest.param(100, 50, 1000, (100, 50), id="worked example, nothing is cut"),
        pytest.param(100, 50, 150, (100, 50), id="worked example, just fits"),
        pytest.param(100, 50, 149, (100, 49), id="worked example, the output loses a token"),
        pytest.param(100, 50, 101, (100, 1), id="worked example, one token is left to generate"),
        pytest.param(100, 50, 100, (99, 1), id="worked example, the prompt makes room for one token"),
        pytest.param(100, 50, 1, (0, 1), id="worked example, a context of one token"),
    ],
)
def test_a_fixed_request_is_cut_to_its_context(prompt, output, context, kept):
    law = with_prompt(fixed(output), prompt)
    prompts, outputs = clipped(law, context)
    assert (prompts.item(), outputs.item()) == kept
    held_prompt, held_output = kept
    assert float(resident_mean(law, context)) == held_prompt + (held_output + 1) / 2
    assert totals(law, context).mean == held_prompt + held_output
    assert clipped_share(law, context) == (prompt + output > context)


def test_clipping_takes_many_contexts_at_once():
    """Worked example: two requests at three contexts."""
    law = from_samples([50, 5], [100, 10])
    prompts, outputs = clipped(law, np.array([1000, 120, 12]))
    assert prompts.tolist() == [[100, 10], [100, 10], [11, 10]]
    assert outputs.tolist() == [[50, 5], [20, 5], [1, 2]]
    alone = [float(resident_mean(law, context)) for context in (1000, 120, 12)]
    assert resident_mean(law, np.array([1000, 120, 12])).tolist() == alone


def test_what_is_held_over_time_is_weighted_by_how_long_it_is_held():
    """Worked example: (prompt, output) of (10, 1) and (0, 3) hold 11 tokens once and 1, 2, 3 tokens once each."""
    assert float(resident_mean(from_samples([1, 3], [10, 0]), 1000)) == pytest.approx((11 + 1 + 2 + 3) / 4)


CELLS = st.lists(
    st.tuples(st.integers(1, 10**6), st.floats(0.01, 2**24), st.floats(0, 2**24) | st.just(0.0)),
    min_size=1,
    max_size=40,
)


@given(CELLS, st.lists(st.integers(1, 2**24), min_size=1, max_size=9))
def test_sums_looked_up_are_the_sums_over_every_cell(cells, contexts):
    """The definition: E[p'o' + o'(o' + 1)/2] / E[o'] over the clipped cells."""
    law = from_table(sorted(cells, key=lambda cell: cell[1]))
    edges = [max(1, round(edge) + step) for edge in (*law.prompts, *(law.prompts + law.outputs)) for step in (0, 1)]
    contexts = np.array([*contexts, *edges])
    prompts, outputs = clipped(law, contexts)
    held = (prompts * outputs + outputs * (outputs + 1) / 2) @ law.shares / (outputs @ law.shares)
    assert resident_mean(law, contexts) == pytest.approx(held, rel=1e-9)
    assert resident_mean(law, contexts).tolist() == [resident_mean(law, context) for context in contexts.tolist()]
    beyond = (law.prompts + law.outputs > contexts[:, np.newaxis]) @ law.shares
    assert clipped_share(law, contexts) == pytest.approx(beyond, abs=1e-12)
    assert clipped_share(law, contexts).tolist() == [clipped_share(law, context) for context in contexts.tolist()]


@given(requests, st.integers(1, 12_000))
def test_the_resident_mean_is_the_average_over_every_step_of_every_request(pairs, context):
    """Definition: at its j-th step a request holds its prompt and j tokens; summed step by step."""
    held = steps = 0
    for prompt, output in pairs:
        kept_prompt = min(prompt, context - 1)
        kept_output = min(output, context - kept_prompt)
        held += int((kept_prompt + np.arange(1, kept_output + 1)).sum())
        steps += kept_output
    law = from_samples([output for _, output in pairs], [prompt for prompt, _ in pairs])
    assert float(resident_mean(law, context)) == pytest.approx(held / steps, rel=1e-9)


def test_exponential_answers_hold_their_prompt_and_their_whole_mean():
    """Closed form, size bias of the exponential: p + E[o²]/(2 E[o]) + 1/2 = p + mean + 1/2."""
    law = with_prompt(exponential(256), 1000)
    assert float(resident_mean(law, 2**24)) == pytest.approx(1000 + 256 + 0.5, rel=1e-3)
    assert clipped_share(law, 1000 + 256) == pytest.approx(math.exp(-1), abs=1e-3)


@each_law
def test_nothing_clipped_holds_more_than_its_context(law):
    """Definition of clipping: prompt and output together stay within the context."""
    for context in (1, 2, 100, 1000):
        prompts, outputs = clipped(with_prompt(law, 300), context)
        assert (prompts + outputs <= context).all()
        assert (prompts >= 0).all()
        assert (outputs > 0).all()


def test_a_completed_request_holds_prompt_and_output():
    """Worked example: three requests, the longest cut at 1,000 tokens."""
    law = totals(from_samples([10, 200, 500], [90, 100, 900]), 1000)
    assert law.mean == pytest.approx((100 + 300 + 1000) / 3)
    assert law.quantile(np.array([0.1, 0.5, 0.9])).tolist() == [100, 300, 1000]


# Samples


@each_law
def test_a_sample_is_whole_positive_and_repeats_with_its_seed(law):
    """Inverse transform: rounded up to whole tokens, so at most one above the mean."""
    drawn = law.sample(20_000, seed=1)
    assert drawn.shape == (20_000,)
    assert np.issubdtype(drawn.dtype, np.integer)
    assert drawn.min() >= 1
    assert (drawn == law.sample(20_000, seed=1)).all()
    error = 5 * drawn.std() / math.sqrt(drawn.size)
    assert law.mean - error <= drawn.mean() <= law.mean + 1 + error


def test_another_seed_draws_another_sample():
    """Inverse transform of independent streams."""
    assert (exponential(256).sample(100, seed=1) != exponential(256).sample(100, seed=2)).any()


def test_even_the_shortest_draw_is_one_token():
    """Inverse transform: a mean far below a token still gives whole tokens."""
    assert set(exponential(0.001).sample(1000, seed=3).tolist()) == {1}


# What is refused


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(lambda: fixed(0), "n: must be a positive number of tokens, got 0", id="fixed 0"),
        pytest.param(lambda: fixed(-1), "n: must be a positive number of tokens, got -1", id="fixed -1"),
        pytest.param(lambda: fixed(math.nan), "n: .*nan", id="fixed nan"),
        pytest.param(lambda: fixed(math.inf), "n: .*inf", id="fixed inf"),
        pytest.param(lambda: uniform(0, 5), "a: .*got 0", id="uniform from 0"),
        pytest.param(lambda: uniform(5, 3), "b: must be at least a = 5, got 3", id="uniform backwards"),
        pytest.param(lambda: uniform(1, math.nan), "nan", id="uniform to nan"),
        pytest.param(lambda: uniform(1, math.inf), "inf", id="uniform to inf"),
        pytest.param(lambda: exponential(0), "mean: must be a positive number of tokens, got 0", id="exponential 0"),
        pytest.param(lambda: exponential(math.nan), "mean: .*nan", id="exponential nan"),
        pytest.param(lambda: exponential(math.inf), "mean: .*inf", id="exponential inf"),
        pytest.param(lambda: lognormal(0, 1), "mean: must be a positive number of tokens, got 0", id="lognormal 0"),
        pytest.param(lambda: weibull(math.inf, 1), "mean: .*inf", id="weibull inf"),
        pytest.param(lambda: lognormal(256, -0.5), "cv: must be from 0 to 20, got -0.5", id="variation below 0"),
        pytest.param(lambda: weibull(256, 21), "cv: must be from 0 to 20, got 21", id="variation above all"),
        pytest.param(lambda: pareto(256, math.nan, 4096), "cv: must be from 0 to 20, got nan", id="variation nan"),
        pytest.param(lambda: pareto(256, 1, 0), "maximum: must be a positive number of tokens, got 0", id="maximum 0"),
        pytest.param(
            lambda: pareto(256, 1, 256),
            r"maximum: must be above mean = 256 and at most 1e\+12 times it, got 256",
            id="maximum at the mean",
        ),
        pytest.param(lambda: pareto(256, 1, 1e300), r"maximum: .* got 1e\+300", id="maximum without measure"),
        pytest.param(
            lambda: pareto(256, 3, 4096),
            r"cv: must be at most 2\.644 with mean = 256 and maximum = 4096, got 3",
            id="variation the maximum does not leave room for",
        ),
        pytest.param(lambda: from_table([]), "table: at least one row is needed", id="table without rows"),
        pytest.param(lambda: from_table([(-1, 5), (2, 5)]), "table: shares must be 0 or more", id="negative share"),
        pytest.param(lambda: from_table([(0, 5)]), "table: shares must be .* not all 0", id="no share"),
        pytest.param(lambda: from_table([(math.nan, 5)]), "table: shares", id="nan share"),
        pytest.param(lambda: from_table([(1, 0)]), "outputs: every length must be a positive", id="output of 0"),
        pytest.param(lambda: from_table([(1, math.inf)]), "outputs: every length must be", id="output of inf"),
        pytest.param(lambda: from_table([(1, 5, -1)]), "prompts: every length must be 0 or more", id="negative prompt"),
        pytest.param(lambda: from_samples([]), "outputs: a sequence of at least one length", id="no samples"),
        pytest.param(lambda: from_samples([[1, 2]]), "outputs: a sequence", id="samples in a square"),
        pytest.param(lambda: from_samples([1, 0]), "outputs: every length must be a positive", id="sample of 0"),
        pytest.param(
            lambda: from_samples([1, 2], [3]), "prompts: one for each output .* got 1 for 2", id="few prompts"
        ),
        pytest.param(lambda: from_samples([1], [math.nan]), "prompts: every length", id="nan prompt"),
    ],
)
def test_lengths_that_are_none_are_refused_in_a_line(build, message):
    with pytest.raises(ValueError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


# Drawn requests


@each_law
def test_what_is_drawn_is_whole_tokens_of_the_law(law):
    prompts, outputs = draw(law, 50_000, seed=1)
    assert prompts.dtype == outputs.dtype == np.int64
    assert outputs.min() >= 1
    assert outputs.max() <= math.ceil(law.outputs.max())
    spread = math.sqrt(float(law.shares @ (law.outputs - law.mean) ** 2))
    # Five standard errors, and half a token of rounding.
    assert outputs.mean() == pytest.approx(law.mean, abs=5 * spread / math.sqrt(50_000) + 0.5)


def test_prompts_and_outputs_are_drawn_together():
    """Three kinds of request, three quarters of them the first."""
    law = from_table([(6, 10, 1000), (1, 20.4, 0), (1, 0.3, 7.6)])
    prompts, outputs = draw(law, 4000, seed=0)
    kinds, numbers = np.unique(np.column_stack([prompts, outputs]), axis=0, return_counts=True)
    assert kinds.tolist() == [[0, 20], [8, 1], [1000, 10]]
    assert numbers / 4000 == pytest.approx([0.125, 0.125, 0.75], abs=0.03)


def test_the_same_seed_draws_the_same_and_another_does_not():
    law = exponential(256)
    one, other, third = (draw(law, 1000, seed)[1] for seed in (1, 1, 2))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, third)
    assert [values.size for values in draw(law, 0, 1)] == [0, 0]


@each_family
def test_the_shares_of_any_law_may_be_drawn_from(family):
    """What numpy asks of probabilities: that they sum to 1."""
    for mean, cv in ((1.0, 0.1), (256.0, 0.5), (100.0, 3.0), (5.0, 20.0)):
        assert draw(family(mean, cv), 10, seed=0)[1].min() >= 1
