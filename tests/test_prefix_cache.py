"""Prefixes that requests share: pieces kept, found, counted once and evicted, by themselves and in a run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan import Plan, evaluate, scheduler
from kvplan.catalog import resolve
from kvplan.engine import blocks_per_request, in_flight_tokens, layout
from kvplan.prefix_cache import PrefixCache, of_hashes, of_prefix
from kvplan.simulate import simulate
from kvplan.traces import read_trace
from kvplan.traffic import of_trace

UNLIKE = "full:2x1x64,full:2x2x64,sliding16:2x2x64"
"""Two growing tables: the narrower layers have blocks of 32 tokens where the others have 16."""
PIECES = Plan(groups="full:1x1x64", block_size=512, context=1600, max_num_batched_tokens=8192)
"""A piece of a prefix is one block here, and a request of 513 or 514 tokens takes one more."""


def with_blocks(plan, number):
    """The plan with a pool of so many blocks."""
    return plan.model_copy(update={"kv_cache_memory_bytes": number * layout(resolve(plan)).bytes_per_block})


def one_by_one(*hashes, prompt=513, output=2):
    """Requests that meet nobody, each with its prefix."""
    return [(100 * number, prompt, output, own) for number, own in enumerate(hashes)]


def hits(rows, plan, **options):
    """Tokens each request found in the pool, from what it computed; each must come alone."""
    computed = []

    def step_time(prefill_tokens, decoding, resident_tokens):
        if not decoding:
            computed.append(prefill_tokens)
        return 1

    found = simulate(rows, plan, step_time=step_time, **options)
    assert found.prefill_tokens == sum(computed)
    return [row[1] - part for row, part in zip(rows, computed, strict=True)]


# The cache by itself


def test_what_is_taken_is_in_use_until_the_last_one_leaves():
    """By hand: two requests share a piece of 3 blocks, which counts once."""
    cache = PrefixCache(unit_tokens=16, unit_blocks=3, num_blocks=100)
    assert (cache.blocks_needed((1, 2)), cache.found_tokens((1, 2))) == (6, 0)
    cache.take((1, 2))
    assert (cache.blocks_needed((1, 3)), cache.found_tokens((1, 3))) == (3, 16)
    cache.take((1, 3))
    assert cache.references == {1: 2, 2: 1, 3: 1}
    assert cache.leave((1, 2)) == 3
    assert cache.leave((1, 3)) == 6
    assert not cache.references
    assert list(cache.unused) == [2, 3, 1]


def test_only_the_unbroken_beginning_of_a_prefix_is_found():
    """By hand: what comes after a missing piece cannot be used."""
    cache = PrefixCache(16, 1, 100)
    for units in ((1,), (3,)):
        cache.take(units)
        cache.leave(units)
    assert [cache.found_tokens(units) for units in ((), (1,), (1, 2, 3), (2, 1), (1, 3))] == [0, 16, 16, 0, 32]


def test_the_least_recently_used_goes_first_and_the_end_of_a_prefix_before_its_beginning():
    """By hand: room for 5 blocks in pieces of one."""
    cache = PrefixCache(16, 1, 5)
    for units in ((1, 2), (3,), (1,)):
        cache.take(units)
        cache.leave(units)
    assert list(cache.unused) == [2, 3, 1]
    cache.evict(2)
    assert list(cache.unused) == [2, 3, 1]
    cache.evict(3)
    assert list(cache.unused) == [3, 1]
    cache.evict(4)
    assert list(cache.unused) == [1]
    cache.evict(6)
    assert not cache.unused


def test_what_is_in_use_is_not_evicted():
    cache = PrefixCache(16, 4, 10)
    cache.take((1,))
    cache.take((2,))
    cache.leave((1,))
    cache.evict(10)
    assert (cache.found_tokens((1,)), cache.found_tokens((2,))) == (0, 16)


def test_who_stops_within_a_prompt_leaves_the_pieces_that_were_computed():
    """By hand: 40 tokens are two pieces of 16 and a part of a third; what another still refers to stays as it is."""
    cache = PrefixCache(16, 2, 100)
    cache.take((1, 2, 3))
    assert cache.leave((1, 2, 3), 40) == 6
    assert (list(cache.unused), cache.found_tokens((1, 2, 3))) == ([2, 1], 32)
    cache.take((1, 2, 3))
    cache.take((1, 2, 3))
    assert cache.leave((1, 2, 3), 0) == 0
    assert cache.found_tokens((1, 2, 3)) == 48
    assert cache.leave((1, 2, 3), 32) == 6
    assert list(cache.unused) == [2, 1]


def test_a_piece_that_is_taken_again_is_no_longer_evicted():
    cache = PrefixCache(16, 1, 2)
    cache.take((1,))
    cache.leave((1,))
    assert cache.blocks_needed((1,)) == 1  # it comes into use with the request
    cache.take((1,))
    cache.evict(2)
    assert (list(cache.unused), cache.found_tokens((1,))) == ([], 16)


@given(st.lists(st.lists(st.integers(0, 6), max_size=4, unique=True).map(tuple), max_size=20), st.integers(1, 3))
def test_blocks_in_use_are_the_distinct_pieces_of_those_who_run(requests, unit_blocks):
    """Enumeration: requests come in order, and every other one leaves again."""
    cache = PrefixCache(16, unit_blocks, 10)
    used, running = 0, []
    for number, units in enumerate(requests):
        used += cache.blocks_needed(units)
        cache.take(units)
        running.append(units)
        if number % 2:
            used -= cache.leave(running.pop(0))
        cache.evict(used)
        distinct = {unit for own in running for unit in own}
        assert used == unit_blocks * len(distinct)
        assert set(cache.references) == distinct
        assert not distinct & set(cache.unused)
        assert unit_blocks * len(cache.unused) <= max(0, 10 - used)


# From requests to pieces


@pytest.mark.parametrize(
    ("fields", "tokens", "blocks"),
    [
        pytest.param({}, 512, 32, id="blocks of 16"),
        pytest.param({"block_size": 512}, 512, 1, id="blocks of 512"),
        pytest.param({"block_size": 48}, 1536, 32, id="blocks of 48, three hashes"),
        pytest.param({"block_size": 1024}, 1024, 1, id="blocks of 1,024, two hashes"),
        pytest.param({"tp": 16, "dcp": 2}, 512, 16, id="two context ranks"),
        pytest.param({"model": "qwen3-next-80b-a3b"}, 8704, 16, id="blocks of 544, 17 hashes"),
        pytest.param({"model": "gemma-3-27b"}, 512, 32, id="windows share nothing"),
        pytest.param({"groups": UNLIKE}, 512, 16 + 32, id="blocks of 32 and 16"),
    ],
)
def test_pieces_are_whole_hashes_and_whole_blocks(fields, tokens, blocks):
    """By hand: the least common multiple of 512 and the block, and what it takes of the growing table."""
    shape = layout(resolve(Plan(**fields)))
    each = tokens // 512
    names = tuple(range(100, 100 + 3 * each))
    prompts = np.array([0, 1, tokens, tokens + 1, 2 * tokens, 2 * tokens + 1, 9 * tokens])
    cache, units = of_hashes([names] * prompts.size, prompts, shape, 1000)
    assert (cache.unit_tokens, cache.unit_blocks, cache.num_blocks) == (tokens, blocks, 1000)
    # A token at least is computed, and a piece has the name of its last hash.
    ends = tuple(names[each - 1 :: each])
    assert units == [(), (), (), ends[:1], ends[:1], ends[:2], ends]


def test_states_alone_share_nothing():
    shape = layout(resolve(Plan(model="falcon-mamba-7b")))
    prompts = np.array([5000, 6000])
    cache, units = of_hashes([range(10)] * 2, prompts, shape, 50)
    assert (cache.unit_blocks, units) == (0, [(), ()])
    cache, units = of_prefix(1000, prompts, shape, 50)
    assert (cache.unit_tokens, cache.unit_blocks) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "prefix", "tokens", "blocks"),
    [
        pytest.param({}, 1000, 992, 62, id="62 whole blocks of 16"),
        pytest.param({}, 15, 0, 0, id="not one block"),
        pytest.param({"model": "qwen3-next-80b-a3b"}, 2000, 1632, 3, id="3 whole blocks of 544"),
        pytest.param({"model": "gemma-3-27b"}, 1000, 992, 62, id="windows share nothing"),
        pytest.param({"groups": UNLIKE}, 60, 32, 1 + 3, id="one block of 32 and 3 of 16"),
    ],
)
def test_a_common_prefix_is_shared_in_whole_blocks_by_prompts_beyond_it(fields, prefix, tokens, blocks):
    """By hand: floor(prefix / block) blocks of each growing table; found is what all of them have."""
    cache, units = of_prefix(prefix, np.array([prefix - 1, prefix, prefix + 1]), layout(resolve(Plan(**fields))), 1000)
    assert (cache.unit_tokens, cache.unit_blocks) == (tokens, blocks)
    assert units == [(), (), (0,)]


# A prefix that all share


def test_the_first_request_computes_the_prefix_and_later_ones_find_it():
    """By hand: 1,000 tokens in blocks of 16 are 62 blocks of 992 tokens; three prompts of 1,010."""
    plan = Plan(shared_prefix_tokens=1000, context=2048)
    found = simulate([(0, 1010, 5)] * 3 + [(100, 1010, 5)], plan, policy="on_demand", step_time=1)
    assert (found.prefill_tokens, found.prefix_hit_tokens) == (4 * 1010 - 3 * 992, 3 * 992)
    # ceil(1,011 / 16) = 64 blocks each, of which 62 are the same.
    assert found.timeline.blocks.tolist() == [62 + 3 * 2] * 5 + [64] * 5
    assert found.notes == ()


def test_a_prompt_that_does_not_go_beyond_the_prefix_shares_nothing():
    """By hand: a token of its own is computed anyway, as in the ceilings."""
    plan = Plan(shared_prefix_tokens=1000, context=2048)
    found = simulate([(0, 1000, 1)] * 3, plan, policy="on_demand", step_time=1)
    assert (found.prefix_hit_tokens, found.peak_blocks) == (0, 3 * 63)
    mixed = simulate([(0, 1000, 1), (0, 1001, 1), (0, 1001, 1)], plan, policy="on_demand", step_time=1)
    assert (mixed.prefix_hit_tokens, mixed.peak_blocks) == (992, 63 + 62 + 2)


@given(
    st.sampled_from(("llama-3.1-8b", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b", "lfm2-1.2b")),
    st.integers(40, 3000),
    st.integers(0, 3000),
    st.none() | st.sampled_from((1, 7, 16, 64)),
    st.integers(0, 3),
    st.integers(0, 400),
)
def test_as_many_run_at_once_as_the_ceiling_says(model, context, prefix, block_size, spec_tokens, spare):
    """`kvplan.ceiling`: (blocks - shared) // (blocks of a request - shared), all declared to the whole context."""
    plan = Plan(
        model=model,
        context=context,
        shared_prefix_tokens=min(prefix, context - 2),
        block_size=block_size,
        spec_tokens=spec_tokens,
        max_num_batched_tokens=64,
        max_num_seqs=1024,
        max_tokens=context,
    )
    setting = resolve(plan)
    most = blocks_per_request(layout(setting), context + spec_tokens, in_flight_tokens(setting, context))
    plan = with_blocks(plan, most + 1 + spare)
    ceiling = evaluate(plan).capacity.memory_ceiling
    rows = [(0, plan.shared_prefix_tokens + 1, 1)] * (ceiling + 3)
    found = simulate(rows, plan, policy="reserve", step_time=1)
    assert found.peak_running == min(ceiling, 1024)


# Prefixes named by hashes


def test_a_prefix_is_found_while_there_is_room_for_it():
    """By hand: 5 blocks, of which a request takes 2; three others leave the first prefix where it is."""
    plan = with_blocks(PIECES, 5)
    rows = one_by_one((1,), (2,), (3,), (4,), (1,))
    assert hits(rows, plan) == [0, 0, 0, 0, 512]
    found = simulate(rows, plan, step_time=1)
    assert (found.prefix_hit_tokens, found.prefill_tokens) == (512, 5 * 513 - 512)


def test_the_oldest_prefix_is_evicted_and_computed_again():
    """By hand: 5 blocks, of which a request takes 2, so three prefixes stay beside it; the fourth is one too many."""
    plan = with_blocks(PIECES, 5)
    assert hits(one_by_one((1,), (2,), (3,), (4,), (5,), (1,), (5,), (4,)), plan) == [0] * 6 + [512, 512]


def test_a_prefix_that_is_used_again_stays_longer():
    """By hand: the first is used once more, so the second goes instead."""
    plan = with_blocks(PIECES, 5)
    assert hits(one_by_one((1,), (2,), (3,), (4,), (1,), (5,), (1,), (2,)), plan) == [0] * 4 + [512, 0, 512, 0]


def test_the_end_of_a_prefix_goes_before_its_beginning():
    """By hand: 5 blocks; (1, 2) leaves two pieces, two others one each, and the third needs the block of piece 2."""
    plan = with_blocks(PIECES, 5)
    others = one_by_one((), (3,), (4,), (5,))[1:]
    assert hits([(0, 1025, 2, (1, 2)), *others, (900, 1025, 2, (1, 2))], plan) == [0, 0, 0, 0, 512]
    assert hits([(0, 1025, 2, (1, 2)), *others[1:], (900, 1025, 2, (1, 2))], plan) == [0, 0, 0, 1024]


def test_requests_that_run_together_count_a_common_prefix_once():
    """By hand: two pieces in common, one of its own each, and a block for the rest of each."""
    rows = [(0, 1600, 3, (1, 2, number)) for number in (3, 4, 5)]
    plan = with_blocks(PIECES.model_copy(update={"context": 1700}), 20)
    found = simulate(rows, plan, policy="on_demand", step_time=1)
    assert found.timeline.blocks.tolist() == [2 + 3 + 3] * 3
    assert (found.prefix_hit_tokens, found.prefill_tokens) == (2 * 1024, 3 * 1600 - 2 * 1024)


def test_a_preempted_request_finds_its_own_prefix_again():
    """By hand: 5 blocks. In step 512 both need a third for 1,025 tokens, so the younger goes with 1,024, of which its
    piece of 512 stays. It computes 512 again, and what it finds is no hit but waste that did not come."""
    plan = with_blocks(PIECES, 5)
    rows = [(0, 513, 520, (1,)), (0, 513, 520, (2,))]
    found = simulate(rows, plan, policy="on_demand", step_time=1)
    assert (found.preempted_at.tolist(), found.preempted_places.tolist()) == ([512], [1])
    assert (found.prefix_hit_tokens, found.wasted_tokens) == (0, 512)
    assert found.prefill_tokens == 513 + 513 + 512


def test_a_piece_named_twice_by_one_request_leaves_as_it_came():
    """Conservation of blocks: 513 tokens and the next one take 2, whoever was there before."""
    rows = [(0, 1025, 2, (7, 7)), (100, 513, 2, ())]
    found = simulate(rows, with_blocks(PIECES, 5), policy="on_demand", step_time=1)
    assert found.timeline.blocks.tolist()[2:] == [2, 2]


def test_an_unused_prefix_gives_way_to_growth_in_steps_nobody_looks_at(monkeypatch):
    """By hand: 5 blocks. C leaves its piece; A and B grow to 5 blocks by step 768, where no room is left for it. In
    step 1,024 B is preempted for A, and D, which comes later with C's prefix, has to compute it."""
    plan = with_blocks(Plan(groups="full:1x1x64", block_size=512, context=2048), 5)
    rows = [(0, 1, 1500, ()), (0, 257, 1500, ()), (0, 513, 1, (1,)), (1100, 513, 1, (1,))]
    for samples in (4096, 2):
        monkeypatch.setattr(scheduler, "MOST_SAMPLES", samples)
        found = simulate(rows, plan, policy="on_demand", step_time=1)
        assert (found.preempted_at.tolist(), found.preempted_places.tolist()) == ([1024], [1])
        assert (samples, found.prefix_hit_tokens) == (samples, 0)
        assert (samples, found.prefill_tokens) == (samples, 1 + 257 + 513 + 513 + 257 + 1023)


def test_a_preempted_prefix_that_does_not_fit_beside_the_others_goes_at_once():
    """By hand: 9 blocks of 128 tokens, of which a piece takes 4. Up to step 99 two requests hold 1, one 2 and D 5. In
    step 100 the two grow, so D goes; 6 blocks in use leave no room for its piece, though the third ends in it."""
    plan = with_blocks(Plan(groups="full:1x1x64", block_size=128, context=700), 9)
    rows = [(0, 29, 150, ()), (0, 29, 150, ()), (0, 150, 100, ()), (0, 513, 110, (1,))]
    found = simulate(rows, plan, policy="on_demand", step_time=1)
    assert (found.preempted_at.tolist(), found.preempted_places.tolist()) == ([100], [3])
    assert found.timeline.blocks.tolist()[98:102] == [9, 6, 9, 9]
    assert (found.prefix_hit_tokens, found.wasted_tokens) == (0, 513 + 99)


def test_blocks_that_do_not_divide_a_hash_share_in_whole_multiples():
    """By hand, Qwen3-Next: blocks of 544 tokens, pieces of 17 hashes and 16 blocks, 8,704 tokens."""
    plan = Plan(model="qwen3-next-80b-a3b", context=20_000, max_num_batched_tokens=20_000, kv_cache_memory_bytes=2**40)
    names = tuple(range(40))
    rows = [
        (100 * number, prompt, 2, names) for number, prompt in enumerate((8705, 8704, 8705, 17_408, 17_409, 17_409))
    ]
    assert hits(rows, plan) == [0, 0, 8704, 8704, 8704, 17_408]


def test_without_prefix_caching_hashes_are_ignored_and_said_so():
    rows = one_by_one((1,), (1,), (1,))
    found = simulate(rows, PIECES.model_copy(update={"enable_prefix_caching": False}), step_time=1)
    assert (found.prefix_hit_tokens, found.prefill_tokens) == (0, 3 * 513)
    assert found.notes == ("hashes: ignored, as the plan does not cache prefixes",)


def test_prefixes_of_their_own_come_before_the_plans_and_say_so():
    plan = PIECES.model_copy(update={"shared_prefix_tokens": 512})
    found = simulate(one_by_one((1,), (2,), (2,)), plan, step_time=1)
    assert found.prefix_hit_tokens == 512
    assert found.notes == ("shared_prefix_tokens: ignored, the requests name their own prefixes",)
    assert simulate([row[:3] for row in one_by_one((1,), (2,), (2,))], plan, step_time=1).prefix_hit_tokens == 1024


@pytest.fixture(scope="module")
def conversations(shared):
    path = shared / "traces" / "mooncake_conversation_trace.jsonl"
    if not path.exists():
        pytest.skip("the Mooncake trace is not on this machine")
    return of_trace(read_trace(path))[:2000]


def counted_hits(rows):
    """Tokens of hashes seen before, up to the first that was not, in order of admission; a token is always computed."""
    seen, found = set(), 0
    for _, prompt, _, hashes in rows:
        whole = hashes[: (prompt - 1) // 512]
        leading = next((number for number, name in enumerate(whole) if name not in seen), len(whole))
        found += 512 * leading
        seen.update(whole)
    return found


@pytest.mark.parametrize("policy", ["reserve", "on_demand"])
def test_a_pool_without_end_finds_every_prefix_seen_before(conversations, policy):
    """Mooncake's conversation trace, its first 2,000 requests: hits counted hash by hash in order of admission."""
    plan = Plan(context=131_072, kv_cache_memory_bytes=2**46, max_num_seqs=256)
    found = simulate(conversations, plan, policy=policy)
    assert (found.completed, found.rejected, found.preemptions) == (2000, 0, 0)
    assert found.prefix_hit_tokens == counted_hits(conversations)
    assert found.prompt_tokens == sum(row[1] for row in conversations) == found.prefill_tokens + found.prefix_hit_tokens
    assert f"{found.prefix_hit_tokens / found.prompt_tokens:.1%}" == "29.4%"


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_pool_of_one_gpu_conserves_tokens_under_real_prefixes(conversations, preemption):
    """Conservation: prefill + hits = prompts + wasted, with preemptions and evictions."""
    plan = Plan(context=131_072, kv_cache_memory_bytes=24 * 2**30, admission="on_demand")
    found = simulate(conversations, plan, preemption=preemption)
    assert found.completed == 2000
    assert found.preemptions > 20
    assert found.prefill_tokens + found.prefix_hit_tokens == found.prompt_tokens + found.wasted_tokens
    assert 0 < found.prefix_hit_tokens < counted_hits(conversations)
    assert found.peak_blocks <= found.num_blocks
