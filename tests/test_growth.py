"""How requests take blocks: the phases of a layout against the blocks at every length, and when a pool runs out."""

from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import known_plans

from kvplan import Plan
from kvplan.catalog import resolve
from kvplan.engine import blocks_per_request, in_flight_tokens, layout
from kvplan.growth import NO_GROWTH, blocks_at, growth, steps_to_exhaustion
from kvplan.units import ceil_div

WINDOWS = "full:2x1x64,sliding16:2x1x64,sliding40:2x1x64,chunked24:2x1x64"


def structure(plan):
    """The layout of a plan and its tokens in flight."""
    setting = resolve(plan)
    return layout(setting), in_flight_tokens(setting, plan.context)


def taken(found, start, steps):
    """Blocks that a request takes in each of so many steps, a token each, after it has `start` tokens: read from the
    phases, which change where a window is full."""
    origin = 1 - start - found.spec_tokens  # the step in which it would have had its first
    blocks = []
    for step in range(1, steps + 1):
        level = bisect_right(found.limits, step - origin)
        pattern = dict(found.patterns[level][origin % found.period])
        blocks.append(pattern.get(step % found.period, 0))
    return blocks


def check_phases(plan, start, steps):
    """The growth read from phases is the difference of the blocks at each length."""
    shape, in_flight = structure(plan)
    tokens = np.arange(start, start + steps + 1)
    blocks = blocks_at(shape, in_flight, tokens + plan.spec_tokens)
    assert taken(growth(shape, in_flight, plan.spec_tokens), start, steps) == np.diff(blocks).tolist()
    return blocks


# The growth of a request


@given(
    known_plans(
        block_size=st.none() | st.integers(1, 64),
        max_num_batched_tokens=st.integers(1, 300),
        groups=st.none() | st.just(WINDOWS),
        spec=st.none(),
        context=st.integers(1, 4096),
    ),
    st.integers(1, 3000),
)
def test_blocks_come_in_their_phases_for_any_plan(plan, start):
    """Differences of `blocks_at`, length by length."""
    check_phases(plan, start, 400)


@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 5), st.integers(1, 150))
def test_a_window_grows_until_it_is_full(block_size, batched, spec_tokens, start):
    """Differences of `blocks_at` around three windows, in blocks and tokens in flight of any size."""
    plan = Plan(groups=WINDOWS, block_size=block_size, max_num_batched_tokens=batched, spec_tokens=spec_tokens)
    check_phases(plan, start, 300)


@pytest.mark.parametrize(
    ("fields", "period", "limits", "levels"),
    [
        pytest.param({}, 16, (), [1], id="plain attention"),
        pytest.param({"block_size": 7}, 7, (), [1], id="blocks of 7"),
        pytest.param({"tp": 16, "dcp": 2}, 32, (), [1], id="two context ranks"),
        pytest.param({"model": "gpt-oss-20b"}, 16, (143,), [2, 1], id="a window of 128 and 16 in flight"),
        pytest.param({"model": "gemma-3-27b"}, 16, (1039,), [7, 1], id="six tables of windows"),
        pytest.param({"model": "qwen3-next-80b-a3b"}, 544, (), [1], id="three states and blocks of 544"),
        pytest.param({"groups": WINDOWS, "block_size": 4}, 4, (31, 40, 55), [4, 3, 2, 1], id="three windows"),
        pytest.param({"model": "falcon-mamba-7b"}, 1, (), [0], id="states alone"),
    ],
)
def test_a_layout_has_its_period_and_its_limits(fields, period, limits, levels):
    """By hand: a window is full at window - 1 + in flight, a chunk at chunk + in flight; blocks taken in a period."""
    shape, in_flight = structure(Plan(max_num_batched_tokens=8, **fields))
    assert in_flight == 16
    found = growth(shape, in_flight, 3)
    assert (found.period, found.limits, found.spec_tokens) == (period, limits, 3)
    assert [sum(blocks for _, blocks in patterns[0]) for patterns in found.patterns] == levels


def test_unlike_blocks_repeat_after_all_of_them():
    """By hand, DeepSeek V4: blocks of 4, 8, 64, 64 and 256 tokens; windows of 8 and 128 and 16 in flight."""
    shape, in_flight = structure(Plan(model="deepseek-v4-flash", max_num_batched_tokens=8))
    found = growth(shape, in_flight)
    assert (found.period, found.limits) == (256, (23, 143))
    whole = [sum(blocks for _, blocks in patterns[0]) for patterns in found.patterns]
    assert whole == [256 // 4 + 256 // 8 + 2 * 256 // 64 + 1, 256 // 8 + 2 * 256 // 64 + 1, 1]
    check_phases(Plan(model="deepseek-v4-flash", max_num_batched_tokens=8), 1, 1000)


def test_patterns_are_made_once():
    shape, in_flight = structure(Plan(model="gpt-oss-20b"))
    patterns = growth(shape, in_flight).patterns[0]
    assert not patterns
    assert patterns[5] is patterns[5] == ((5, 2),)
    assert list(patterns) == [5]


def test_what_is_booked_whole_does_not_grow():
    assert (NO_GROWTH.period, NO_GROWTH.limits) == (1, ())
    assert NO_GROWTH.patterns[0][0] == ()


@pytest.mark.parametrize("fields", [{}, {"model": "falcon-mamba-7b"}, {"model": "gpt-oss-20b"}])
def test_blocks_at_one_length_are_those_at_many(fields):
    """`kvplan.engine`: the blocks of a request; states alone take as many at any length."""
    shape, in_flight = structure(Plan(max_num_batched_tokens=8, **fields))
    tokens = np.arange(1, 400)
    found = blocks_at(shape, in_flight, tokens)
    assert found.dtype == np.int64
    assert found.tolist() == [blocks_at(shape, in_flight, int(length)) for length in tokens]
    assert found.tolist() == [blocks_per_request(shape, int(length), in_flight) for length in tokens]


# When a pool runs out


def brute_force(tokens, blocks, free_blocks, most):
    """Step by step, up to so many."""
    for steps in range(1, most + 1):
        if int(blocks(tokens + steps).sum() - blocks(tokens).sum()) > free_blocks:
            return steps
    return None


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 20), st.integers(0, 60))
def test_a_pool_runs_out_where_a_plain_loop_says(tokens, block_size, free_blocks):
    """Brute force: the smallest n with the sum of ceil((l + n) / k) - ceil(l / k) above what is free."""

    def blocks(lengths):
        return ceil_div(lengths, block_size)

    tokens = np.array(tokens)
    found = steps_to_exhaustion(tokens, blocks, free_blocks)
    assert found == brute_force(tokens, blocks, free_blocks, 2000)
    whole, rest = divmod(free_blocks, tokens.size)
    room = sorted((-tokens % block_size).tolist())
    assert found == whole * block_size + room[rest] + 1  # closed form: a block each in every period


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=6),
    st.integers(1, 8),
    st.integers(0, 30),
    st.sampled_from(("full:1x1x64", "sliding30:1x1x64", "chunked20:1x1x64,sliding9:1x1x64", WINDOWS)),
)
def test_a_pool_of_windows_runs_out_as_step_by_step_or_never(tokens, block_size, free_blocks, groups):
    """Brute force; where every window is full nothing is needed any more."""
    shape, in_flight = structure(Plan(groups=groups, block_size=block_size, max_num_batched_tokens=2))

    def blocks(lengths):
        return blocks_at(shape, in_flight, lengths)

    tokens = np.array(tokens)
    assert steps_to_exhaustion(tokens, blocks, free_blocks) == brute_force(tokens, blocks, free_blocks, 400)


@pytest.mark.parametrize(
    ("tokens", "free_blocks", "steps"),
    [
        pytest.param([16], 0, 1, id="a full block"),
        pytest.param([1], 0, 16, id="an empty one"),
        pytest.param([1, 1], 1, 16, id="two need two at once"),
        pytest.param([1, 9], 1, 16, id="one after the other"),
        pytest.param([10, 16, 30], 3, 17, id="four blocks"),
        pytest.param([100] * 1000, 10**9, 16 * 10**6 + 13, id="a large pool"),
    ],
)
def test_a_pool_runs_out_in_worked_examples(tokens, free_blocks, steps):
    """By hand, blocks of 16."""
    assert steps_to_exhaustion(np.array(tokens), lambda lengths: ceil_div(lengths, 16), free_blocks) == steps


def test_states_and_nobody_never_run_out():
    """Definition: what does not grow needs nothing more."""
    assert steps_to_exhaustion(np.array([5, 6]), lambda lengths: np.full_like(lengths, 2), 0) is None
    assert steps_to_exhaustion(np.array([], dtype=np.int64), lambda lengths: ceil_div(lengths, 16), 0) is None
