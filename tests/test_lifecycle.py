"""One request from admission to release: the timeline of the literature, and what holds for any plan and request."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan, evaluate, pool, verdict
from kvplan.cache import request_bits_by_stage
from kvplan.engine import blocks_per_request, in_flight_tokens, layout
from kvplan.lifecycle import POINTS, forward_tokens, lifecycle
from kvplan.simulate import simulate
from kvplan.units import GIB, MIB

LONG = evaluate(Plan(model="llama-3.1-70b", context=131_072))
"""Llama 3.1 70B, 320 KiB a token in all. It does not fit one device, and has a lifecycle all the same."""


# The 70B timeline of the reference


def test_the_70b_timeline_of_the_reference():
    """Llama 3.1 70B: nothing before admission, 1.25 GiB with a prompt of 4,096, 312.5 MiB more after 1,000 tokens."""
    assert not LONG.engine.fits
    assert LONG.cache.bytes_per_token == 320 * 1024
    life = lifecycle(LONG, prompt=4095, output=1001)
    first, last = int(life.held_bytes[0]), int(life.held_bytes[-1])
    assert first / GIB == 1.25
    assert (last - first) / MIB == 312.5
    assert f"{last / GIB:.2f}" == "1.56"


@pytest.mark.parametrize(
    ("tokens", "gib"),
    [
        pytest.param(4096, 1.25, id="the 70B timeline of the reference: 4,096"),
        pytest.param(8192, 2.5, id="the 70B timeline of the reference: 8,192"),
        pytest.param(131_072, 40, id="the 70B timeline of the reference: 131,072"),
    ],
)
def test_so_many_tokens_hold_so_much(tokens, gib):
    life = lifecycle(LONG, prompt=tokens - 1, output=1)
    assert (life.prompt, life.output, life.steps.tolist()) == (tokens - 1, 1, [1])
    assert life.held_bytes.tolist() == [gib * GIB]
    # Whole blocks of 16 tokens: what is booked is what is held.
    assert life.booked_bytes.tolist() == [gib * GIB]
    assert life.first_blocks == life.last_blocks == tokens // 16


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_devices_share_the_timeline(tp):
    """Eight KV heads: each of up to eight devices has its part, and all together 1.25 and 40 GiB."""
    life = lifecycle(evaluate(Plan(model="llama-3.1-70b", tp=tp, context=131_072)), prompt=4095, output=131_072 - 4095)
    assert [int(held) * tp / GIB for held in life.held_bytes[[0, -1]]] == [1.25, 40]


def test_a_pool_given_in_bytes_changes_nothing_of_it():
    given_pool = evaluate(Plan(model="llama-3.1-70b", context=131_072, kv_cache_memory_bytes=48 * GIB))
    assert given_pool.engine.fits
    one, other = (lifecycle(report, prompt=4095, output=1001) for report in (LONG, given_pool))
    assert np.array_equal(one.held_bytes, other.held_bytes)
    assert one.read_bytes == other.read_bytes


def test_the_stages_are_told_in_words():
    life = lifecycle(LONG, prompt=4095, output=1001)
    assert verdict.stages(LONG, life) == {
        "1 Allocate": "256 blocks with its admission; reserve 319",
        "2 Fill": "1.25 GiB with the prompt at once, then 320 KiB with each token",
        "3 Use": f"every step reads all it holds: {life.read_bytes / GIB:,.2f} GiB over 1,001 steps",
        "4 Release": "319 blocks, 1.56 GiB held, free again in the step after its last",
    }


def test_what_is_read_is_what_is_held_in_every_step():
    """320 KiB for each of 4,096 + 4,097 + ... + 5,096 tokens."""
    life = lifecycle(LONG, prompt=4095, output=1001)
    assert life.read_bytes == 320 * 1024 * sum(range(4096, 5097))


# What it is cut to, and what it is by default


def test_a_request_is_cut_to_the_context():
    report = evaluate(Plan(context=1000))
    life = lifecycle(report, prompt=5000, output=5000)
    assert (life.prompt, life.output, life.declared) == (999, 1, 1000)
    life = lifecycle(report, prompt=600, output=5000)
    assert (life.prompt, life.output, life.declared) == (600, 400, 1000)


def test_the_usual_request_is_the_mean_of_the_workload():
    """Azure's conversations: prompts of 1,155 and outputs of 211 tokens on average, up to 1,000."""
    life = lifecycle(evaluate(Plan()))
    assert (life.prompt, life.output, life.declared) == (1155, 211, 2155)


def test_what_is_declared_is_the_prompt_and_max_tokens():
    assert lifecycle(evaluate(Plan(max_tokens=500))).declared == 1155 + 500
    assert lifecycle(evaluate(Plan(max_tokens=500, context=1500))).declared == 1500


def test_an_output_ends_after_max_tokens_as_it_does_in_a_run():
    """Help of the field: longer outputs end there. Of 211 tokens wanted, 50 are generated, and 50 are reserved."""
    plan = Plan(max_tokens=50)
    life = lifecycle(evaluate(plan))
    run = simulate([(0, 1155, 211)], plan, policy="reserve")
    assert (life.prompt, life.output) == (1155, run.output_tokens)
    assert life.reserved_blocks == run.peak_blocks


def test_reserve_books_the_same_in_the_life_of_a_request_and_in_the_run_beside_it():
    """Fixed lengths leave no doubt of what the longest output is; of drawn ones both must speak of the same."""
    for fields in ({"output_dist": "fixed"}, {"output_dist": "exponential"}):
        report = evaluate(Plan(workload="auto", **fields))
        runs = pool.runs(report, pool.requests_of(report.setting, 500))
        moment = next(iter(runs.moments.values()))
        assert lifecycle(report, max_tokens=runs.reserve.outcome.max_tokens).declared == moment.declared[0]


def test_the_steps_of_a_picture_begin_with_the_first_and_end_with_the_last():
    report = evaluate(Plan(context=2**17))
    for output in (1, 2, POINTS, POINTS + 1, 100_000):
        life = lifecycle(report, prompt=100, output=output)
        assert (life.steps[0], life.steps[-1]) == (1, output)
        assert (np.diff(life.steps) > 0).all()
        assert life.steps.size == min(output, POINTS)


# What holds for any plan


@given(known_plans(), st.integers(0, 5000), st.integers(1, 3000))
def test_any_request_of_any_plan(plan, prompt, output):
    report = evaluate(plan)
    life = lifecycle(report, prompt, output)
    assert life.prompt == min(prompt, plan.context - 1)
    assert life.output == min(output, plan.context - life.prompt, plan.max_tokens or output)
    assert life.prompt + life.output <= life.declared <= plan.context
    assert (np.diff(life.held_bytes) >= 0).all()
    assert (np.diff(life.booked_bytes) >= 0).all()
    assert (life.held_bytes > 0).all()
    assert life.reserved_bytes >= life.booked_bytes[-1]
    assert life.reserved_blocks >= life.last_blocks >= life.first_blocks
    if not plan.spec_tokens:
        assert (life.booked_bytes >= life.held_bytes).all()


@given(known_plans(context=st.integers(2, 4000)), st.integers(0, 300), st.integers(1, 300))
def test_its_bytes_are_those_of_its_tokens_one_by_one(plan, prompt, output):
    report = evaluate(plan)
    life = lifecycle(report, prompt, output)
    setting = report.setting
    every = [life.prompt + step for step in range(1, life.output + 1)]
    held = [-(-max(request_bits_by_stage(setting, tokens)) // 8) for tokens in every]
    shape, in_flight = layout(setting), in_flight_tokens(setting, plan.context)
    blocks = [blocks_per_request(shape, tokens + plan.spec_tokens, in_flight) for tokens in every]
    assert life.steps.tolist() == list(range(1, life.output + 1))
    assert life.held_bytes.tolist() == held
    assert life.booked_bytes.tolist() == [number * shape.bytes_per_block for number in blocks]
    assert (life.first_blocks, life.last_blocks) == (blocks[0], blocks[-1])
    assert life.read_bytes == sum(held)


def test_what_the_longest_request_reads_is_counted_to_the_byte():
    """128 KiB for each of 2 to 2^24 tokens: more than 2^63 bytes."""
    fields = {"workload": "auto", "prompt_mean": 1, "output_mean": 2**24, "output_dist": "fixed"}
    life = lifecycle(evaluate(Plan(context=2**24, kv_cache_memory_bytes=2**50, **fields)))
    assert (life.prompt, life.output) == (1, 2**24 - 1)
    assert life.read_bytes == 131_072 * (2**24 * (2**24 + 1) // 2 - 1)


# What a cache saves


def test_a_thousand_tokens_run_half_a_million_without_a_cache():
    """The count of the literature: S(S + 1)/2 against S."""
    assert forward_tokens(1, 1000) == (500_500, 1000)


@given(st.integers(0, 3000), st.integers(1, 300))
def test_forward_tokens_are_counted_step_by_step(prompt, output):
    without = cached = in_cache = 0
    for step in range(output):
        needed = prompt + step
        without += needed
        cached += needed - in_cache
        in_cache = needed
    assert forward_tokens(prompt, output) == (without, cached)


def test_what_the_cache_saves_is_said():
    life = lifecycle(evaluate(Plan(context=131_072)), prompt=1, output=1000)
    assert verdict.cache_saves(life) == (
        "Without a cache each of 1,000 steps would run all tokens before it again: 500,500 in all, 500 times the 1,000 "
        "that run with it"
    )


def test_a_request_of_a_single_token_saves_nothing_and_is_no_error():
    """No prompt and one token: nothing runs either way."""
    life = lifecycle(evaluate(Plan(workload="seeded-200", context=1)))
    assert (life.prompt, life.output) == (0, 1)
    assert verdict.cache_saves(life)
