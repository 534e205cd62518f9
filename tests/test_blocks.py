"""Both sides of the block size, row by row, against enumeration and hand-worked tables."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import known_plans
from test_pool import KINDS

from kvplan import Plan, blocks, evaluate, load_preset
from kvplan.engine import layout
from kvplan.paging import waste
from kvplan.texts import table_text
from kvplan.units import MIB, binary

ALL = [*blocks.SIZES]
each_kind = pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)
requests_of_a_list = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), min_size=1, max_size=12)


def listed(requests, **fields):
    """A plan whose workload is a list of requests (prompt, output), each as often as the others."""
    return Plan(table=table_text([(1, output, prompt) for prompt, output in requests]), **fields)


def rows_of(plan):
    return {row["Block"]: row for row in blocks.table(evaluate(plan))}


# The table of block sizes


@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        (None, ALL),
        (16, ALL),
        (544, ALL),
        (1, [1, *ALL]),
        (24, sorted([*ALL, 24])),
        (65_536, [*ALL, 65_536]),
    ],
)
def test_the_plans_block_is_a_row_and_only_once(size, sizes):
    assert [row["Block"] for row in blocks.table(evaluate(Plan(block_size=size)))] == sizes


def test_a_hybrids_block_is_a_row():
    assert 272 in rows_of(KINDS["qwen3-next-80b-a3b"])


@given(requests_of_a_list, st.integers(1, 4096), st.sampled_from([1, 16, 24, 2000]))
def test_a_row_is_the_mean_over_requests(requests, context, block_size):
    """Enumeration, request by request, cut to the context as an engine does."""
    rows = rows_of(listed(requests, context=context, block_size=block_size))
    cut = [(min(prompt, context - 1), output) for prompt, output in requests]
    cut = [(prompt, min(output, context - prompt)) for prompt, output in cut]
    mean = sum(map(sum, cut)) / len(cut)
    for size, row in rows.items():
        at_end = [-(prompt + output) % size for prompt, output in cut]
        booked = [-(-(prompt + output) // size) for prompt, output in cut]
        steps = [-tokens % size for prompt, output in cut for tokens in range(prompt + 1, prompt + output + 1)]
        assert row["Wasted with the prompt"] == pytest.approx(sum(-prompt % size for prompt, _ in cut) / len(cut))
        assert row["At completion"] == pytest.approx(sum(at_end) / len(cut))
        assert row["Over its life"] == pytest.approx(sum(steps) / len(steps), abs=1e-9)
        assert row["Table entries"] == pytest.approx(sum(booked) / len(cut))
        assert row["Table entries"] * size == pytest.approx(mean + row["At completion"])
        assert row["Of booked, %"] == pytest.approx(100 * sum(at_end) / (size * sum(booked)))
        assert row["Hashed a prompt"] == pytest.approx(sum(prompt // size for prompt, _ in cut) / len(cut))


@each_kind
def test_entries_times_the_block_are_the_slots_booked(plan):
    report = evaluate(plan)
    for row in blocks.table(report):
        booked = report.paging.mean_tokens + row["At completion"]
        assert row["Table entries"] * row["Block"] == pytest.approx(booked)
        assert row["Of booked, %"] == pytest.approx(100 * row["At completion"] / booked)


@each_kind
def test_the_plans_row_is_what_the_report_says(plan):
    report = evaluate(plan)
    row, found = rows_of(plan)[report.paging.block_size], report.paging
    if not report.cache.bytes_per_token:  # states alone: no block is left unfilled
        assert found.waste_tokens == found.waste_share == found.contiguous_waste_share == 0
        return
    assert row["At completion"] == pytest.approx(found.waste_tokens)
    assert row["Of booked, %"] == pytest.approx(100 * found.waste_share)
    assert row["Wasted with the prompt"] == pytest.approx(found.prompt_waste_tokens)
    assert row["Over its life"] == pytest.approx(found.life_waste_tokens)


def test_tables_by_hand():
    """max_num_seqs 1,024 sequences x 2,048 entries for 32,768 tokens in blocks of 16 x 4 bytes: 8 MiB; twice the block
    is half of it; gpt-oss has two tables, qwen3-next four."""
    rows = rows_of(Plan(context=32_768))
    assert 8 * MIB == 1024 * (32_768 // 16) * 4
    assert {size: row["Tables, MiB"] for size, row in rows.items()} == {
        size: 1024 * math.ceil(32_768 / size) * 4 / MIB for size in ALL
    }
    assert rows[16]["Tables, MiB"] == 8
    assert rows[32]["Tables, MiB"] == 4
    assert rows[544]["Tables, MiB"] == 1024 * 61 * 4 / MIB
    assert rows_of(Plan(model="gpt-oss-20b", context=32_768))[16]["Tables, MiB"] == 16
    assert rows_of(Plan(context=32_768, max_num_seqs=256))[16]["Tables, MiB"] == 2
    hybrid = rows_of(Plan(model="qwen3-next-80b-a3b", tp=4, context=32_768))
    assert hybrid[16]["Tables, MiB"] == 32


@pytest.mark.parametrize(
    ("size", "reused"), [(8, 1000), (16, 992), (32, 992), (64, 960), (128, 896), (256, 768), (544, 544), (1024, 0)]
)
def test_of_a_prefix_whole_blocks_are_found_again(size, reused):
    """Worked example: 62 blocks of 16 are 992 of 1,000 tokens."""
    assert rows_of(Plan())[size]["Of 1,000 shared"] == reused


def test_entries_looked_up_are_those_of_running_sequences():
    """A running sequence holds `resident_mean_tokens` on average, less than a completed one: 364 of them look up no
    more than the pool has blocks."""
    report = evaluate(Plan())
    assert rows_of(Plan())[16]["Looked up a step"] <= report.engine.num_blocks


def test_a_larger_block_costs_less_in_tables_and_wastes_no_less_on_average():
    rows = blocks.table(evaluate(Plan()))
    for name in ("Table entries", "Looked up a step", "Hashed a prompt", "Tables, MiB"):
        values = [row[name] for row in rows]
        assert values == sorted(values, reverse=True)
    for name in ("Wasted with the prompt", "At completion", "Over its life"):
        powers = [row[name] for row in rows if row["Block"] != 544]
        assert powers == sorted(powers)


@given(known_plans())
def test_every_plan_that_starts_has_rows_of_finite_numbers(plan):
    report = evaluate(plan)
    if not report.engine.fits:
        return
    rows = blocks.table(report)
    assert [row["Block"] for row in rows].count(report.paging.block_size) == 1
    assert all(math.isfinite(value) and value >= 0 for row in rows for value in row.values())
    for row in rows:
        for name in ("Wasted with the prompt", "At completion", "Over its life"):
            assert row[name] <= row["Block"] - 1 + 1e-6
    assert len(blocks.groups(report)) == len(report.breakdown)


@each_kind
def test_the_numbers_of_a_row_are_pythons_own(plan):
    for row in blocks.table(evaluate(plan)):
        assert {type(value) for value in row.values()} <= {int, float}


# The engine's own blocks


@each_kind
def test_every_kind_of_layer_has_a_row(plan):
    report = evaluate(plan)
    rows = blocks.groups(report)
    assert [int(row["Tables"]) for row in rows] == [cost.tables for cost in report.breakdown]
    assert sum(int(row["Tables"]) for row in rows) == len(layout(report.setting).groups)
    assert {row["Block, all layers"] for row in rows} == {binary(report.engine.bytes_per_block)}
    for row, cost in zip(rows, report.breakdown, strict=True):
        assert (row["Last block unfilled"] == "–") == (row["For a sequence"] == "–") == (not cost.grows)


def test_a_hybrid_with_a_large_state_has_blocks_of_544_tokens():
    """qwen3-next-80b-a3b, bf16: at tp 1 a page of attention takes 544 tokens to hold a state, at tp 4 half of it, as a
    state is split and its two KV heads are split once."""
    for plan, tokens in (
        (Plan(model="qwen3-next-80b-a3b", gpu="b300"), 544),
        (Plan(model="qwen3-next-80b-a3b", tp=4), 272),
    ):
        report = evaluate(plan)
        assert report.engine.fits
        state, attention = blocks.groups(report)
        assert state["Layers"] == "gated DeltaNet state"
        assert attention["Block, tokens"] == str(tokens)
        assert (state["Tables"], attention["Tables"]) == ("3", "1")


def test_padding_is_what_a_shorter_group_leaves_unused():
    """gemma-3-27b: 52 windowed layers in six tables of 8.7, and 10 full layers in one: 1 - 52 / 60 = 13 %."""
    window, full = blocks.groups(evaluate(Plan(model="gemma-3-27b", tp=2)))
    assert (window["Layers"], window["Tables"], window["Of a block unused"]) == ("sliding window", "6", "13%")
    assert (full["Layers"], full["Tables"], full["Of a block unused"]) == ("full attention", "1", "0%")


def test_the_last_block_of_a_sequence_in_bytes():
    """Three requests of 500, 3,800 and 200 tokens waste 12, 8 and 8 slots of 16; a block of 16 is 5 MiB."""
    (row,) = blocks.groups(evaluate(load_preset("three-requests-4096")))
    mean = waste(np.array([500, 3800, 200]), 16).mean()
    assert mean == pytest.approx(28 / 3)
    assert row["Last block unfilled"] == "9.3 tokens"
    assert row["For a sequence"] == binary(mean / 16 * 5 * MIB) == "2.9 MiB"


def test_context_ranks_fill_a_block_together():
    """Four ranks keep every fourth token each: 64 tokens fill a block of 16 on every rank."""
    (row,) = blocks.groups(evaluate(Plan(model="deepseek-v3", tp=16, dcp=4)))
    assert row["Block, tokens"] == "64"
