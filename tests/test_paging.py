"""What whole blocks waste, against enumeration."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, evaluate
from kvplan.lengths import exponential, fixed, from_samples, from_table, totals, uniform, with_prompt
from kvplan.paging import (
    booked_share,
    expected_waste,
    full_blocks,
    life_waste,
    prompt_waste,
    reused_prefix,
    waste,
)

BLOCK_SIZES = (1, 2, 3, 16, 24, 1024)
requests = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=20)
contexts = st.integers(1, 700)


def of_requests(pairs):
    prompts, outputs = zip(*pairs, strict=True)
    return from_samples(outputs, prompts)


def cut(pairs, context):
    """Requests as an engine admits them: room for one token beside the prompt, and an end at the context."""
    for prompt, output in pairs:
        prompt = min(prompt, context - 1)
        yield prompt, min(output, context - prompt)


def free_after(tokens, block_size):
    """Free slots of the last block, written token by token: a full one makes way for another."""
    free = 0
    for _ in range(tokens):
        free = free - 1 if free else block_size - 1
    return free


def test_waste_is_what_filling_blocks_leaves_over():
    """Brute force, lengths 1 to 5,000 and blocks of 1 to 1,024: a token takes a slot, a full block opens a new one."""
    longest, sizes = 5000, np.arange(1, 1025)
    filled = np.stack([np.tile(np.arange(size - 1, -1, -1), -(-longest // size))[:longest] for size in sizes])
    assert (waste(np.arange(1, longest + 1), sizes[:, np.newaxis]) == filled).all()


@pytest.mark.parametrize(
    ("tokens", "block_size", "slots"),
    [
        pytest.param(1, 16, 15, id="worked example, a first token"),
        pytest.param(16, 16, 0, id="worked example, a full block"),
        pytest.param(17, 16, 15, id="worked example, one token more"),
        pytest.param(1000, 16, 8, id="worked example, 63 blocks of 16"),
        pytest.param(7, 1, 0, id="worked example, blocks of one"),
        pytest.param(2**24, 1000, 784, id="worked example, a block that is no power of two"),
        pytest.param(3, 65_536, 65_533, id="worked example, a block longer than the sequence"),
    ],
)
def test_the_last_block_is_filled_as_far_as_tokens_go(tokens, block_size, slots):
    assert waste(tokens, block_size) == slots


@given(st.integers(1, 2**24), st.integers(1, 65_536))
def test_waste_is_never_a_whole_block_and_completes_the_last(tokens, block_size):
    """Definition: 0 <= w < k, and tokens with their waste are whole blocks."""
    found = waste(tokens, block_size)
    assert 0 <= found < block_size
    assert (tokens + found) % block_size == 0


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), st.integers(1, 2048))
def test_the_expected_waste_of_samples_is_their_mean_waste(lengths, block_size):
    """Enumeration with fractions, request by request."""
    exact = Fraction(sum(-length % block_size for length in lengths), len(lengths))
    assert expected_waste(from_samples(lengths), block_size) == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 5000)), min_size=1, max_size=30), st.integers(1, 512))
def test_a_mean_length_that_is_no_whole_number_counts_as_the_next_one(rows, block_size):
    """Enumeration of a table: a request takes whole tokens, w(⌈x⌉)."""
    share = sum(count for count, _ in rows)
    exact = math.fsum(count * (-math.ceil(length) % block_size) for count, length in rows) / share
    assert expected_waste(from_table(rows), block_size) == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "law",
    [
        pytest.param(fixed(1000.5), id="fixed"),
        pytest.param(uniform(1, 511), id="uniform"),
        pytest.param(exponential(256), id="exponential"),
        pytest.param(from_samples([3, 1, 4, 1, 5]), id="samples"),
    ],
)
def test_blocks_of_one_token_waste_nothing_on_average(law):
    """Limit k = 1: whole tokens fill whole blocks."""
    assert expected_waste(law, 1) == 0


@pytest.mark.parametrize("block_size", [2, 8, 16, 32, 128])
def test_long_sequences_waste_about_half_a_block(block_size):
    """PagedAttention, SOSP 2023: (k - 1)/2 for lengths long against the block."""
    half = (block_size - 1) / 2
    assert expected_waste(uniform(1, 20_000), block_size) == pytest.approx(half, rel=0.02)
    assert expected_waste(from_samples(range(1, 64 * block_size + 1)), block_size) == pytest.approx(half, rel=1e-12)


@pytest.mark.parametrize("block_size", [4, 16, 64, 256])
def test_exponential_lengths_waste_what_the_geometric_law_says(block_size):
    """Closed form: ⌈X⌉ is geometric with q = e^(-1/m), so E[w] = k/(1 - q^k) - 1/(1 - q)."""
    q = math.exp(-1 / 256)
    exact = block_size / (1 - q**block_size) - 1 / (1 - q)
    assert expected_waste(exponential(256), block_size) == pytest.approx(exact, rel=0.02)


def test_expected_waste_over_many_blocks_is_that_at_each():
    """Enumeration: the same function for one block size and for an array of them."""
    law = from_table([(3, 100.2), (2, 17), (1, 5000)])
    sizes = np.array([1, 2, 3, 16, 24, 1024])
    many = expected_waste(law, sizes)
    assert many.shape == sizes.shape
    assert many == pytest.approx([expected_waste(law, int(size)) for size in sizes], rel=1e-14)


@given(requests, contexts, st.sampled_from(BLOCK_SIZES))
def test_the_waste_after_the_prompt_is_that_of_each_prompt_cut_to_the_context(pairs, context, block_size):
    """Enumeration, token by token; a request without a prompt has no block yet."""
    found = [free_after(prompt, block_size) for prompt, _ in cut(pairs, context)]
    law = of_requests(pairs)
    assert prompt_waste(law, block_size, context) == pytest.approx(sum(found) / len(found), rel=1e-9, abs=1e-9)


@given(requests, contexts, st.sampled_from(BLOCK_SIZES))
def test_the_waste_over_a_life_is_that_of_every_step_of_every_request(pairs, context, block_size):
    """Enumeration, step by step: each writes a token, so that p + 1, p + 2, ... p + o are held."""
    steps = [
        -tokens % block_size
        for prompt, output in cut(pairs, context)
        for tokens in range(prompt + 1, prompt + output + 1)
    ]
    law = of_requests(pairs)
    assert life_waste(law, block_size, context) == pytest.approx(sum(steps) / len(steps), rel=1e-9, abs=1e-9)


@given(requests, contexts, st.sampled_from(BLOCK_SIZES))
def test_the_waste_of_completed_requests_is_that_of_their_last_tokens(pairs, context, block_size):
    """Enumeration, token by token, cut to the context."""
    found = [free_after(prompt + output, block_size) for prompt, output in cut(pairs, context)]
    law = totals(of_requests(pairs), context)
    assert expected_waste(law, block_size) == pytest.approx(sum(found) / len(found), rel=1e-9, abs=1e-9)


def test_waste_over_a_life_of_three_steps():
    """Worked example, blocks of 4: a prompt of 2 and 3 more tokens leave 1, 0 and 3 slots; one token alone leaves 3."""
    assert prompt_waste(of_requests([(2, 3)]), 4, 100) == 2
    assert life_waste(of_requests([(2, 3)]), 4, 100) == pytest.approx(4 / 3)
    assert life_waste(of_requests([(2, 3), (0, 1)]), 4, 100) == pytest.approx(7 / 4)
    assert life_waste(of_requests([(2, 3)]), 4, 4) == pytest.approx(1 / 2)
    assert life_waste(of_requests([(9, 3)]), 4, 4) == prompt_waste(of_requests([(9, 3)]), 4, 5) == 0


def test_a_mean_output_below_a_token_lives_for_a_step():
    """Worked example, blocks of 4: 5 tokens and 0.3 more are a step at 6 tokens, which leaves 2 slots."""
    assert life_waste(from_table([(1, 0.3, 5)]), 4, 100) == 2


@given(requests, contexts)
def test_blocks_of_one_token_waste_nothing_at_any_time(pairs, context):
    """Limit k = 1."""
    law = of_requests(pairs)
    assert prompt_waste(law, 1, context) == life_waste(law, 1, context) == 0


@given(requests, contexts, st.sampled_from(BLOCK_SIZES))
def test_waste_on_average_is_less_than_a_block(pairs, context, block_size):
    law = of_requests(pairs)
    for found in (prompt_waste(law, block_size, context), life_waste(law, block_size, context)):
        assert -1e-9 <= found <= block_size - 1 + 1e-9


@pytest.mark.parametrize("block_size", [2, 3, 16, 128])
def test_a_long_life_wastes_half_a_block(block_size):
    """Closed form: whole blocks average (k - 1)/2 exactly, and what a long output has besides them counts little."""
    half = (block_size - 1) / 2
    for prompt in (0, 100):
        assert life_waste(of_requests([(prompt, 1000 * block_size)]), block_size, 2**20) == pytest.approx(half)
        assert life_waste(of_requests([(prompt, 99_999)]), block_size, 2**20) == pytest.approx(half, rel=0.01)
    assert life_waste(with_prompt(exponential(20_000), 7), block_size, 2**20) == pytest.approx(half, rel=0.01)


@given(requests, contexts)
def test_waste_over_many_blocks_is_that_at_each(pairs, context):
    """Enumeration: the same functions for one block size and for an array of them."""
    law, sizes = of_requests(pairs), np.array(BLOCK_SIZES)
    for function in (prompt_waste, life_waste):
        many = function(law, sizes, context)
        assert many.shape == sizes.shape
        assert many == pytest.approx([function(law, size, context) for size in BLOCK_SIZES], rel=1e-12, abs=1e-12)
        assert isinstance(function(law, 16, context), float)


@pytest.mark.parametrize(
    ("tokens", "block_size", "full"),
    [(0, 16, 0), (15.9, 16, 0), (16, 16, 1), (17, 16, 1), (1000, 16, 62), (1000, 1, 1000), (5, 1024, 0)],
)
def test_a_block_counts_as_full_when_its_last_slot_is(tokens, block_size, full):
    """Worked example: 1,000 tokens fill 62 blocks of 16; half a token fills no slot."""
    assert full_blocks(np.array([tokens]), block_size).tolist() == [full]


@pytest.mark.parametrize(
    ("prefix", "block_size", "reused"),
    [(1000, 16, 992), (1008, 16, 1008), (15, 16, 0), (0, 16, 0), (1000, 1, 1000), (1000, 1024, 0)],
)
def test_whole_blocks_of_a_prefix_are_found_again(prefix, block_size, reused):
    """Worked example: 62 blocks of 16 hold 992 of 1,000 tokens."""
    assert reused_prefix(prefix, block_size) == reused


@given(st.integers(0, 2**24), st.integers(1, 65_536))
def test_a_prefix_is_found_again_but_for_the_block_it_begins(tokens, block_size):
    """Definition: the full blocks, less than one below."""
    found = reused_prefix(tokens, block_size)
    assert found == full_blocks(np.array([tokens]), block_size)[0] * block_size
    assert found <= tokens < found + block_size


def test_full_blocks_and_prefixes_over_many_blocks_are_those_at_each():
    """Worked example: 1,000 and 17 tokens in blocks of 1, 2, 3, 16, 24 and 1,024."""
    sizes = np.array(BLOCK_SIZES)
    assert full_blocks(np.array([1000, 17]), sizes).T.tolist() == [[1000, 500, 333, 62, 41, 0], [17, 8, 5, 1, 0, 0]]
    assert reused_prefix(1000, sizes).tolist() == [1000, 1000, 999, 992, 984, 0]


def test_a_share_of_booked_slots_counts_both_kinds_of_slots():
    """Worked example: 8 of 1,008 slots hold nothing."""
    assert booked_share(8, 1000) == pytest.approx(8 / 1008)
    assert booked_share(0, 1000) == 0
    assert booked_share(np.array([0, 3]), np.array([1, 1])).tolist() == [0, 0.75]


def test_three_requests_that_reserve_4096_tokens_waste_63_percent():
    """Worked example: 500, 3,800 and 200 tokens of 12,288 reserved leave 7,788 slots."""
    completed = totals(from_samples([500, 3800, 200]), 4096)
    assert 3 * (4096 - completed.mean) == pytest.approx(7788)
    assert f"{100 * booked_share(4096 - completed.mean, completed.mean):.1f}" == "63.4"


def test_the_report_says_what_completed_requests_waste():
    """Worked example: prompts of 1,000 and answers of 30 in a context of 2,048, blocks of 16."""
    fields = {"workload": "auto", "prompt_mean": 1000, "output_mean": 30, "output_dist": "fixed", "context": 2048}
    paging = evaluate(Plan(**fields)).paging
    assert paging.block_size == 16
    assert paging.mean_tokens == 1030
    assert paging.waste_tokens == 10
    assert paging.waste_share == pytest.approx(10 / 1040)
    assert paging.waste_bytes == 10 * 131_072
    assert paging.contiguous_waste_tokens == 2048 - 1030
    assert paging.contiguous_waste_share == pytest.approx(1018 / 2048)


def test_requests_longer_than_the_context_waste_what_the_context_does():
    """Worked example: a context of 1,000 cuts every request to 62 blocks and a half."""
    fields = {"workload": "auto", "prompt_mean": 5000, "output_mean": 300, "output_dist": "fixed", "context": 1000}
    paging = evaluate(Plan(**fields)).paging
    assert (paging.mean_tokens, paging.waste_tokens, paging.contiguous_waste_tokens) == (1000, 8, 0)


@pytest.mark.parametrize("block_size", [1, 16, 64, 256])
def test_paging_the_azure_conversations_wastes_less_than_reserving_the_context(block_size):
    """Azure conversation trace: about half a block against the unused rest of 8,192 tokens."""
    paging = evaluate(Plan(block_size=block_size, context=8192)).paging
    assert paging.waste_tokens == pytest.approx((block_size - 1) / 2, rel=0.08, abs=1e-12)
    assert paging.mean_tokens == pytest.approx(1366, rel=0.001)
    assert paging.waste_share < 0.1 < 0.8 < paging.contiguous_waste_share
