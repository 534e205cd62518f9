"""What whole blocks waste, against enumeration."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, evaluate
from kvplan.lengths import exponential, fixed, from_samples, from_table, totals, uniform
from kvplan.paging import booked_share, expected_waste, waste


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
