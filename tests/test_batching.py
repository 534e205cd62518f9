"""Static and continuous batching: closed forms, and a plain loop over steps that must agree."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, evaluate
from kvplan.batching import Drain, bootstrap_band, drain, exponential_utilisation, schedule, static_utilisation
from kvplan.lengths import exponential, fixed, from_samples, from_table, uniform

backlogs = st.lists(st.integers(1, 40), min_size=1, max_size=60)
slot_counts = st.integers(1, 20)


def plain_static(lengths, slots):
    """Step by step: a batch starts when the one before it has finished."""
    waiting, running, steps, busy = list(lengths), [], 0, 0
    while waiting or running:
        if not running:
            running, waiting = waiting[:slots], waiting[slots:]
        steps += 1
        busy += len(running)
        running = [left - 1 for left in running if left > 1]
    return steps, busy


def plain_continuous(lengths, slots):
    """Step by step: whatever slots are free take the next requests."""
    waiting, running, steps, busy = list(lengths), [], 0, 0
    while waiting or running:
        while waiting and len(running) < slots:
            running.append(waiting.pop(0))
        steps += 1
        busy += len(running)
        running = [left - 1 for left in running if left > 1]
    return steps, busy


@pytest.mark.parametrize(
    ("policy", "plain"), [pytest.param("static", plain_static), pytest.param("continuous", plain_continuous)]
)
@given(lengths=backlogs, slots=slot_counts)
def test_a_drain_takes_the_steps_of_a_plain_loop(policy, plain, lengths, slots):
    """Definition of both policies, one step at a time."""
    found = drain(lengths, slots, policy)
    steps, busy = plain(lengths, slots)
    assert found.steps == steps
    assert busy == sum(lengths)
    assert found.busy == pytest.approx(busy / (slots * steps), rel=1e-12)


@given(lengths=backlogs, slots=slot_counts)
def test_continuous_never_takes_more_steps_than_static(lengths, slots):
    """List scheduling in arrival order: no request starts later than in its static batch."""
    static, continuous = (drain(lengths, slots, policy) for policy in ("static", "continuous"))
    assert continuous.steps <= static.steps
    assert continuous.busy >= static.busy


@given(lengths=backlogs, slots=slot_counts)
def test_continuous_stays_within_the_bounds_of_list_scheduling(lengths, slots):
    """Graham 1966: at least the longest and the work over the slots; at most work/m + (1 - 1/m) × longest."""
    found = drain(lengths, slots, "continuous")
    assert found.steps >= max(max(lengths), math.ceil(sum(lengths) / slots))
    assert found.steps <= sum(lengths) / slots + (1 - 1 / slots) * max(lengths) + 1e-9


@given(lengths=backlogs)
def test_one_slot_works_through_everything_either_way(lengths):
    """Closed form at one slot: the sum, and always busy."""
    for policy in ("static", "continuous"):
        found = drain(lengths, 1, policy)
        assert (found.steps, found.busy) == (sum(lengths), 1)


@given(lengths=backlogs)
def test_slots_for_all_take_as_long_as_the_longest(lengths):
    """Closed form at as many slots as requests, or more: spare slots stay idle."""
    for slots in (len(lengths), len(lengths) + 7):
        for policy in ("static", "continuous"):
            found = drain(lengths, slots, policy)
            assert found.steps == max(lengths)
            assert found.busy == pytest.approx(sum(lengths) / (slots * max(lengths)), rel=1e-12)


def test_the_order_of_arrival_decides():
    """Worked example: long requests side by side share a batch, apart they spoil two."""
    assert drain([100, 100, 1, 1], 2, "static").steps == 101
    assert drain([100, 1, 100, 1], 2, "static").steps == 200
    assert drain([100, 1, 100, 1], 2, "continuous").steps == 101
    assert drain([1, 1, 1, 1, 100], 2, "continuous").steps == 102


def test_a_backlog_may_be_an_array():
    """Worked example: lists, tuples and arrays of whole numbers alike, floats that are whole too."""
    for lengths in ([3, 5, 2], (3, 5, 2), np.array([3, 5, 2]), np.array([3.0, 5.0, 2.0])):
        assert drain(lengths, 2, "continuous").steps == 5
        assert drain(lengths, 2, "static").steps == 7


def test_a_long_backlog_tends_to_full_slots():
    """Renewal argument: what idles is only the end, when nothing is left to refill a slot."""
    lengths = exponential(50).sample(20_000, seed=1)
    assert drain(lengths, 16, "continuous").busy > 0.995
    assert drain(lengths, 16, "static").busy == pytest.approx(exponential_utilisation(16), rel=0.03)


@pytest.mark.parametrize(
    ("lengths", "slots", "policy", "message"),
    [
        pytest.param([], 4, "static", "lengths: a sequence of positive whole numbers", id="nothing to do"),
        pytest.param([3, 0], 4, "static", "lengths: a sequence of positive whole numbers", id="a length of 0"),
        pytest.param([3, -1], 4, "continuous", "lengths: a sequence of positive whole numbers", id="a negative length"),
        pytest.param([3, 2.5], 4, "static", "lengths: a sequence of positive whole numbers", id="half a step"),
        pytest.param([[3, 2]], 4, "static", "lengths: a sequence of positive whole numbers", id="a square"),
        pytest.param([3, math.nan], 4, "static", "lengths: a sequence of positive whole numbers", id="a nan"),
        pytest.param([3, math.inf], 4, "static", "lengths: a sequence of positive whole numbers", id="without end"),
        pytest.param([3], 0, "static", "slots: at least one is needed, got 0", id="no slots"),
        pytest.param([3], -2, "continuous", "slots: at least one is needed, got -2", id="negative slots"),
        pytest.param([3], 4, "dynamic", "policy: must be one of static, continuous, got 'dynamic'", id="no policy"),
    ],
)
def test_a_backlog_that_cannot_run_is_refused_in_a_line(lengths, slots, policy, message):
    with pytest.raises(ValueError, match=message) as error:
        drain(lengths, slots, policy)
    assert "\n" not in str(error.value)


# The closed form


@pytest.mark.parametrize(
    "law",
    [
        pytest.param(uniform(1, 100), id="uniform"),
        pytest.param(exponential(50), id="exponential"),
        pytest.param(from_table([(0.9, 20), (0.1, 500)]), id="table"),
    ],
)
@pytest.mark.parametrize("batch", [2, 8, 50])
def test_utilisation_is_what_many_static_batches_use(law, batch):
    """Monte Carlo: 4,000 batches drawn from the law, their tokens over their slot-steps."""
    lengths = law.sample(4000 * batch, seed=batch)
    # Whole tokens are up to one longer than the law's; against lengths of 50 and more that is within the noise.
    assert drain(lengths, batch, "static").busy == pytest.approx(float(static_utilisation(law, batch)), rel=0.03)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 512))
def test_utilisation_lies_between_one_slot_in_the_batch_and_all(lengths, batch):
    """Order statistics: E[S] at most E[max], E[max] at most the sum of the batch."""
    found = static_utilisation(from_samples(lengths), batch)
    assert 1 / batch - 1e-9 <= found <= 1 + 1e-9


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(2, 50))
def test_utilisation_does_not_depend_on_the_unit_of_length(lengths, factor):
    """Order statistics: scaling every length changes neither sum nor maximum against each other."""
    batches = np.array([1, 2, 8, 64])
    stretched = from_samples([factor * length for length in lengths])
    assert static_utilisation(stretched, batches) == pytest.approx(
        static_utilisation(from_samples(lengths), batches), rel=1e-12
    )


def test_utilisation_over_many_batches_is_utilisation_at_each():
    """Closed form: the same function for one batch and for an array of them."""
    batches = np.array([1, 2, 3, 100, 101, 512])
    for law in (uniform(1, 511), exponential(256), from_samples([3, 1, 4, 1, 5])):
        many = static_utilisation(law, batches)
        assert many == pytest.approx([static_utilisation(law, int(batch)) for batch in batches], rel=1e-14)
    assert exponential_utilisation(batches).tolist() == [exponential_utilisation(int(batch)) for batch in batches]


@pytest.mark.parametrize("mean", [1, 100, 10_000])
def test_exponential_utilisation_does_not_depend_on_the_mean(mean):
    """Closed form 1/H_B."""
    assert static_utilisation(exponential(mean), 64) == pytest.approx(exponential_utilisation(64), rel=1e-12)
    assert f"{exponential_utilisation(64):.3f}" == "0.211"


# In the report


@pytest.mark.parametrize(
    ("fields", "batch"),
    [
        pytest.param({"batch": 16}, 16, id="the plan's own"),
        pytest.param({"max_num_seqs": 7}, 7, id="the ceiling"),
        pytest.param({"kv_cache_memory_bytes": 0}, 1, id="at least one"),
        pytest.param({"context": 64}, 512, id="at most 512"),
        pytest.param({"context": 64, "batch": 600}, 600, id="the plan's own, above 512"),
    ],
)
def test_the_report_starts_from_the_ceiling_within_1_and_512(fields, batch):
    """Definition of the automatic batch."""
    report = evaluate(Plan(**fields))
    assert report.batching.batch == batch
    lengths = report.setting.lengths
    assert report.batching.static_utilisation == pytest.approx(float(static_utilisation(lengths, batch)), rel=1e-15)
    assert report.batching.exponential_utilisation == pytest.approx(exponential_utilisation(batch), rel=1e-15)
    assert report.batching.gain == pytest.approx(1 / report.batching.static_utilisation, rel=1e-15)
    assert report.batching.continuous_utilisation == 1


def test_on_demand_starts_from_the_mean_it_admits():
    """Definition of the admission policies: reserve starts from what is guaranteed."""
    plan = Plan(context=8192, kv_cache_memory_bytes=35_755_602_739)
    on_demand = evaluate(plan.model_copy(update={"admission": "on_demand"}))
    assert evaluate(plan).batching.batch == evaluate(plan).capacity.batch_ceiling == 33
    assert on_demand.batching.batch == on_demand.capacity.on_demand_ceiling > 33


@pytest.mark.parametrize(
    ("dist", "law"),
    [
        pytest.param("exponential", exponential(300), id="exponential"),
        pytest.param("uniform", uniform(1, 599), id="uniform, 1 to twice the mean less 1"),
        pytest.param("fixed", fixed(300), id="fixed"),
    ],
)
def test_a_plan_without_a_workload_uses_the_family_it_names(dist, law):
    """Closed forms of the three families at a mean of 300 tokens."""
    report = evaluate(Plan(workload="auto", output_mean=300, prompt_mean=700, output_dist=dist, batch=32))
    assert report.batching.static_utilisation == pytest.approx(float(static_utilisation(law, 32)), rel=1e-12)
    assert report.setting.lengths.mean == pytest.approx(300)
    assert set(report.setting.lengths.prompts.tolist()) == {700}


# Request by request


@pytest.mark.parametrize("policy", ["static", "continuous"])
@given(backlogs, slot_counts)
def test_a_schedule_is_the_drain_request_by_request(policy, lengths, slots):
    run = schedule(lengths, slots, policy)
    assert run.until.max() == drain(lengths, slots, policy).steps
    assert list(run.ends - run.starts) == lengths
    assert (run.until >= run.ends).all()
    assert set(run.slots.tolist()) <= set(range(slots))
    for slot in range(slots):
        own = np.flatnonzero(run.slots == slot)
        assert (run.starts[own[1:]] == run.until[own[:-1]]).all()  # nothing idles while requests wait, nothing overlaps


@given(backlogs, slot_counts)
def test_a_request_waits_for_the_longest_of_its_static_batch_alone(lengths, slots):
    run = schedule(lengths, slots, "static")
    batches = np.arange(len(lengths)) // slots
    assert all(len(set(run.until[batches == batch])) == 1 for batch in set(batches))
    continuous = schedule(lengths, slots, "continuous")
    assert (continuous.until == continuous.ends).all()
    assert (np.diff(continuous.starts) >= 0).all()


# How far a curve can be trusted


def test_resamples_of_equal_lengths_are_all_alike():
    low, high = bootstrap_band(fixed(100), 500, [1, 8, 64])
    assert low == pytest.approx([1, 1, 1])
    assert high == pytest.approx([1, 1, 1])


def test_the_band_is_what_resampling_request_by_request_gives():
    lengths = np.random.default_rng(5).integers(1, 400, 300)
    law, batches = from_samples(lengths), [2, 16, 128]
    low, high = bootstrap_band(law, lengths.size, batches, seed=1)
    draws = np.random.default_rng(2).choice(lengths, (400, lengths.size))
    used = np.array([[static_utilisation(from_samples(draw), batch) for batch in batches] for draw in draws])
    assert low == pytest.approx(np.quantile(used, 0.025, axis=0), abs=0.01)
    assert high == pytest.approx(np.quantile(used, 0.975, axis=0), abs=0.01)


def test_more_requests_make_a_narrower_band_around_the_curve():
    law, batches = from_table([(5, 10), (3, 100), (1, 900)]), np.array([2, 16, 256])
    own = static_utilisation(law, batches)
    widths = []
    for requests in (90, 9_000, 900_000):
        low, high = bootstrap_band(law, requests, batches)
        assert ((low <= own + 0.02) & (own <= high + 0.02)).all()
        widths.append((high - low).max())
    assert widths == sorted(widths, reverse=True)


def test_one_request_in_a_batch_is_used_whole_in_every_resample():
    low, high = bootstrap_band(from_table([(5, 10), (3, 100)]), 8, [1])
    assert (low, high) == (pytest.approx([1]), pytest.approx([1]))


def test_a_drain_takes_the_steps_of_a_plain_loop_in_thousands_of_small_cases():
    random = np.random.default_rng(8)
    for _ in range(2_000):
        lengths = random.integers(1, 20, random.integers(1, 25)).tolist()
        slots = int(random.integers(1, 12))
        for policy, plain in (("static", plain_static), ("continuous", plain_continuous)):
            steps, busy = plain(lengths, slots)
            assert drain(lengths, slots, policy) == Drain(steps, busy / (slots * steps))
