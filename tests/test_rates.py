"""What limits a plan's batch, its place on the curve and the roofline, and the simulation beside the closed form."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan, evaluate
from kvplan.rates import LITTLE_GAIN, USUAL_LOAD, compared, rates, roofline
from kvplan.throughput import at_rate, operate

PATIENT = {"tpot_s": 3_600, "ttft_s": 3_600}
"""Targets that any batch meets."""
ENDLESS = {"kv_cache_memory_bytes": 2**42, "workload": "auto", "context": 131_072}
"""A pool of 4 TiB: 256 sequences of 131,072 tokens of Llama 3.1 8B."""


def rates_of(**fields):
    report = evaluate(Plan(**fields))
    return report, rates(report)


@pytest.mark.parametrize(
    ("fields", "binding", "batch", "could"),
    [
        ({}, "memory", 54, "tpot"),
        ({"tpot_s": 0.008}, "tpot", 10, "memory"),
        ({"ttft_s": 0.03}, "ttft", 15, "memory"),
        ({"max_num_seqs": 16}, "max_num_seqs", 16, "memory"),
        ({"tenant_quota_fraction": 0.25}, "tenant_quota", 13, "memory"),
        ({"batch": 8}, "batch", 8, "memory"),
        ({"batch": 8, "tpot_s": 0.007}, "tpot", 4, "memory"),
        ({"batch": 54}, "memory", 54, "tpot"),
        ({"batch": 1_000}, "memory", 54, "tpot"),  # no more than memory holds
        # Prompts of 8,000 for 20 tokens are computed most of the time.
        (PATIENT | ENDLESS | {"prompt_mean": 8_000, "output_mean": 20}, "compute", 256, "max_num_seqs"),
        # 8,000 tokens to each prompt of 100 read their caches most of the time.
        (PATIENT | ENDLESS | {"prompt_mean": 100, "output_mean": 8_000}, "memory_bandwidth", 256, "max_num_seqs"),
    ],
)
def test_the_smallest_limit_binds_and_the_next_one_stands_behind_it(fields, binding, batch, could):
    """54 sequences of 8,192 tokens of 128 KiB in the pool of an H100."""
    _, found = rates_of(**fields)
    assert (found.binding, found.own.concurrency, found.could_binding) == (binding, batch, could)
    if found.could is not None:
        assert found.could == operate(found.engine, found.limits[could])
        assert found.could.concurrency > batch


@pytest.mark.parametrize(("fields", "name"), [({"tpot_s": 0.005}, "tpot"), ({"ttft_s": 0.005}, "ttft")])
def test_a_target_that_not_even_one_request_meets_binds_at_one(fields, name):
    """16 GB of weights take 6.4 ms to read."""
    _, found = rates_of(**fields)
    assert found.limits[name] == 0
    assert (found.binding, found.own.concurrency) == (name, 1)
    assert found.could.concurrency == found.limits["memory"] == 54


@pytest.mark.parametrize(("name", "limit_s"), [("tpot", 0.03), ("ttft", 0.06)])
def test_a_target_is_looked_for_beyond_what_memory_holds(name, limit_s):
    _, found = rates_of(**{f"{name}_s": limit_s})
    batch, value = found.limits[name], f"{name}_s"
    assert batch > found.limits["memory"] == 54
    assert getattr(operate(found.engine, batch), value) <= limit_s
    assert getattr(operate(found.engine, batch + 1), value) > limit_s


def test_what_memory_holds_depends_on_the_admission():
    reserve, on_demand = (rates_of(admission=policy)[1].limits["memory"] for policy in ("reserve", "on_demand"))
    capacity = evaluate(Plan()).capacity
    assert (reserve, on_demand) == (capacity.memory_ceiling, capacity.on_demand_ceiling)
    assert reserve < on_demand


@pytest.mark.parametrize("fields", [{"gpu": "l4", "context": 100_000}, {"weights_gib": 0}, {"tp": 7}])
def test_there_are_no_rates_where_nothing_runs_or_no_step_is_known(fields):
    assert rates_of(**fields)[1] is None


def test_the_gain_is_what_twice_the_batch_would_bring():
    _, found = rates_of(batch=8)
    twice = operate(found.engine, 16).tokens_per_s
    assert found.gain == pytest.approx(twice / found.own.tokens_per_s - 1)
    assert found.gain > LITTLE_GAIN


def test_with_little_to_gain_it_is_not_the_memory_that_binds():
    """The same pool for a workload whose prompts take all the time: 4 sequences already compute without a pause."""
    fields = PATIENT | {"workload": "auto", "prompt_mean": 8_000, "output_mean": 20, "context": 16_384}
    _, found = rates_of(**fields)
    assert found.own.concurrency == found.limits["memory"]
    assert abs(found.gain) < LITTLE_GAIN
    assert found.binding == "compute"


@given(known_plans(tp=st.sampled_from((1, 2, 4)), pp=st.sampled_from((1, 2)), workload=st.just("azure-conversation")))
def test_the_curve_rises_over_whole_batches_and_has_the_plans_own(plan):
    found = rates(evaluate(plan))
    if found is None:
        return
    batches = [at.concurrency for at in found.curve]
    assert batches == sorted(set(batches))
    assert batches[0] == 1
    assert all(isinstance(batch, int) for batch in batches)
    assert found.own in found.curve
    assert batches[-1] >= 512
    assert found.own.concurrency >= 1
    assert found.could is None or found.could.concurrency > found.own.concurrency
    smallest = max(1, min(found.limits.values()))
    assert found.own.concurrency <= smallest
    assert found.own.concurrency == smallest or found.binding in ("batch", "compute", "memory_bandwidth")


# The roofline


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"gpu": "b200", "model": "llama-3.3-70b", "weight_dtype": "nvfp4"},
        {"model": "mixtral-8x7b-v0.1", "tp": 2, "pp": 2},
        {"model": "gemma-3-27b", "bandwidth_efficiency": 0.9, "compute_efficiency": 0.5},
    ],
)
def test_no_point_lies_above_its_roof(fields):
    report, found = rates_of(**fields)
    roof = roofline(report, found)
    for point in roof.points:
        assert 0 < point.flop_per_s <= roof.flop_per_s < roof.peak_flop_per_s
        assert point.flop_per_s <= point.flop_per_byte * roof.peak_bytes_per_s
    decode, prefill = roof.points
    assert (decode.name, prefill.name) == ("decode", "prefill")
    assert decode.flop_per_byte < prefill.flop_per_byte


def test_decode_reads_and_prefill_computes():
    """54 sequences on an H100: some 10 ms to read 16 GB and their caches; a prompt of 1,155 tokens reads 15 GB once."""
    report, found = rates_of()
    roof = roofline(report, found)
    decode, prefill = roof.points
    assert (decode.parts.binding, prefill.parts.binding) == ("memory_bandwidth", "compute")
    assert (roof.peak_flop_per_s, roof.peak_bytes_per_s) == (pytest.approx(989.4e12), 3.35e12)
    assert (roof.flop_per_s, roof.bytes_per_s) == (pytest.approx(0.67 * 989.4e12), pytest.approx(0.7 * 3.35e12))
    ridge = roof.peak_flop_per_s / roof.peak_bytes_per_s
    assert decode.flop_per_byte < ridge < prefill.flop_per_byte


def test_the_points_of_a_roofline_by_hand():
    """Llama 3.1 8B, 8 sequences of 1,100 tokens, and their prompts of 1,000."""
    report, found = rates_of(
        **ENDLESS, prompt_mean=1_000, output_mean=199, output_dist="fixed", batch=8, max_num_batched_tokens=8_192
    )
    held, weights = found.engine.demand.held, 2 * (8_030_261_248 - 128_256 * 4_096)
    assert held == 1_100.5
    decode, prefill = roofline(report, found).points
    flop, read = 8 * (weights + held * 524_288), weights + 8 * held * 131_072
    assert decode.flop_per_byte == pytest.approx(flop / read)
    assert decode.flop_per_s == pytest.approx(flop / (read / (0.7 * 3.35e12)))
    table = 2 * 128_256 * 4_096
    prompt_flop = 1_000 * (weights - table + 500 * 524_288) + table
    assert prefill.flop_per_byte == pytest.approx(prompt_flop / weights)


# The simulation beside the closed form


@pytest.mark.parametrize(
    ("fields", "of_plan"),
    [
        ({"arrival_rate": 2.0}, True),
        ({"arrival_rate": 1_000.0}, False),  # more than one replica carries
        ({"workload": "auto"}, False),  # none
        ({"arrival_rate": 0.0}, False),
    ],
)
def test_the_rate_compared_is_the_plans_or_a_usual_share_of_what_runs(fields, of_plan):
    report, found = rates_of(**fields)
    most = report.capacity.running(report.plan.admission)
    compare = compared(report, found)
    assert compare.of_plan == of_plan
    usual = USUAL_LOAD * operate(found.engine, most).requests_per_s
    assert compare.requests_per_s == pytest.approx(fields["arrival_rate"] if of_plan else usual)
    assert compare.closed == at_rate(found.engine, compare.requests_per_s, most)
    assert list(compare.rows) == ["TTFT", "TPOT", "End to end"]


@pytest.mark.parametrize(
    ("fields", "nearest"),
    [({}, 0.12), ({"workload": "lmsys-chat", "model": "mixtral-8x7b-v0.1", "tp": 2}, 0.12)],
)
def test_the_closed_form_is_near_the_mean_of_the_simulation(fields, nearest):
    report, found = rates_of(**fields)
    compare = compared(report, found)
    closed, mean, *shares = compare.rows["TPOT"]
    assert mean == pytest.approx(closed, rel=nearest)
    assert compare.concurrency == pytest.approx(compare.closed.concurrency, rel=nearest)
    for _, mean, *shares in compare.rows.values():
        assert shares == sorted(shares)
        assert 0 < mean < math.inf


def test_requests_of_a_comparison_are_those_of_the_closed_form():
    """Mooncake's conversations, half of whose prompts are beyond 8,192 tokens."""
    report, found = rates_of(workload="mooncake-conversation")
    compare = compared(report, found)
    assert compare.concurrency == pytest.approx(compare.closed.concurrency, rel=0.12)


@pytest.mark.parametrize("fields", [{"prompt_mean": 9_000}, {"output_mean": 1}])
def test_requests_of_hardly_any_output_are_compared_too(fields):
    report, found = rates_of(workload="auto", **fields)
    assert found.own.tokens_per_s > 0
    compare = compared(report, found)
    assert compare.requests_per_s > 0
    assert compare.rows["TTFT"][1] > 0
