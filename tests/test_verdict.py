"""The sentence a page opens with: the right limit, the right cure, and no limit that is not the plan's."""

from itertools import pairwise

import pytest

from kvplan import Plan, evaluate, figures, metrics, verdict
from kvplan.curves import comparisons, plan_ceilings

POOL_OF_ONE = 513 * 2**21
"""128 KiB a token x 16 tokens: 2 MiB a block of the default model; 512 of them and the engine's own one."""
START_UP = {"activation_gib": 5.0, "workspace_gib": 0.5}
"""A round start-up: 79.1 GiB x 0.92 less 14.96 of weights, 5.0 and 0.5 leave the default plan a pool of 52.3 GiB."""


def opening(**fields):
    report = evaluate(Plan(**START_UP | fields))
    answer = verdict.ceiling(report)
    return verdict.plain(answer.sentence), answer.badge


@pytest.mark.parametrize(
    ("fields", "sentence", "badge"),
    [
        ({}, "52 sequences of 8,192 tokens fit on one H100 SXM", "memory binds"),
        (
            {"kv_cache_memory_bytes": POOL_OF_ONE},
            "1 sequence of 8,192 tokens fits on one H100 SXM",
            "memory binds",
        ),
        (
            {"max_num_seqs": 1},
            "1 sequence of 8,192 tokens runs on one H100 SXM; memory would hold 52",
            "max_num_seqs binds",
        ),
        (
            {"kv_cache_memory_bytes": 200_000_000_000},
            "Does not fit: with a pool of 186.3 GiB as given, a device of 79.1 GiB needs 206.7 GiB",
            "exceeds the device",
        ),
        (
            {"kv_cache_memory_bytes": 1000},
            "Not one sequence of 8,192 tokens fits on one H100 SXM; one needs 1 GiB, the pool has 1,000 B as given",
            "does not fit",
        ),
        (
            {"kv_cache_memory_bytes": POOL_OF_ONE - 2**21},
            "Not one sequence of 8,192 tokens fits on one H100 SXM; the longest that fits is 8,176",
            "does not fit",
        ),
        (
            {"weights_gib": 70},
            "Does not fit: weights, activations and workspace take 75.5 GiB, more than 0.92 of a 79.1 GiB device; "
            "one request of 8,192 tokens needs tp 2",
            "does not fit",
        ),
        (
            {"model": "deepseek-v3"},
            "Does not fit: 626.9 GiB of weights on 0.92 of a 79.1 GiB device; one request of 8,192 tokens needs tp 16",
            "does not fit",
        ),
        (
            {"mem_fraction_static": 0.99},  # (79.1 - 0.5) x 0.99 - 14.96 GiB, and 20.46 beside it
            "Does not fit: with a pool of 62.9 GiB by mem_fraction_static, a device of 79.1 GiB needs 83.3 GiB",
            "exceeds the device",
        ),
        (
            {"mem_fraction_static": 0.1},
            "Does not fit: 15.0 GiB of weights on 0.1 of a 79.1 GiB device; one request of 8,192 tokens needs tp 4",
            "does not fit",
        ),
        (
            {"tenant_quota_fraction": 0.01},
            "Not one sequence of 8,192 tokens runs on one H100 SXM; the quota of 0.01 is less than one of 52",
            "quota binds",
        ),
        (
            {"tp": 3},
            "Not served. tp: the 32 attention heads of Llama 3.1 8B must be divisible by tp, got 3",
            "not served",
        ),
    ],
)
def test_the_verdict_names_what_limits(fields, sentence, badge):
    assert opening(**fields) == (sentence, badge)


@pytest.mark.parametrize(
    ("fields", "running", "sentence"),
    [
        ({}, 347, "347 sequences on average fit on demand on one H100 SXM; 52 by reserving 8,192 tokens"),
        (
            {"tp": 4, "max_num_seqs": 16},
            16,
            "16 sequences run on 4 × H100 SXM; memory would hold 1,686 on average on demand",
        ),
        (
            {"tp": 4, "tenant_quota_fraction": 0.1},
            25,
            "25 sequences run on 4 × H100 SXM; memory would hold 1,686 on average on demand",
        ),
    ],
)
def test_on_demand_keeps_the_limits_that_are_not_memory(fields, running, sentence):
    report = evaluate(Plan(admission="on_demand", **START_UP | fields))
    assert verdict.plain(verdict.ceiling(report).sentence) == sentence
    assert report.batching.batch == running


def test_the_start_up_check_counts_no_speculative_slots():
    """513 blocks hold the context and the engine's own block; 17 slots more make it 514 blocks a request."""
    report = evaluate(Plan(spec_method="ngram", spec_tokens=17, kv_cache_memory_bytes=POOL_OF_ONE))
    assert report.engine.fits
    assert report.capacity.batch_ceiling == 0
    assert verdict.plain(verdict.ceiling(report).sentence) == (
        "Not one sequence of 8,192 tokens runs on one H100 SXM; "
        "with its 17 speculative tokens one books 514 blocks, the pool has 513"
    )


@pytest.mark.parametrize("page", [verdict.batching, verdict.paging])
@pytest.mark.parametrize("fields", [{"model": "deepseek-v3"}, {"tp": 3}, {"kv_cache_memory_bytes": 1000}])
def test_every_page_of_a_plan_that_cannot_run_says_so(page, fields):
    report = evaluate(Plan(**fields))
    assert page(report) == verdict.ceiling(report)


def test_a_context_beyond_the_models_is_said_beside_the_verdict():
    assert "maximum of 2,048 tokens" in verdict.ceiling(evaluate(Plan(model="gpt-3", tp=8))).reason
    assert "maximum" not in verdict.ceiling(evaluate(Plan())).reason


def test_a_small_request_is_not_shown_as_nothing():
    report = evaluate(Plan(context=16))
    assert "reserves 2 MiB;" in verdict.ceiling(report).reason
    assert "0.00" not in str(figures.memory_figure(report))


def test_the_cure_for_a_given_pool_is_not_another_tp():
    assert [item.whose for item in metrics.ceiling(evaluate(Plan(kv_cache_memory_bytes=1000)))][3] == (
        "with the pool as given"
    )


def test_a_shared_prefix_is_drawn_once_within_the_pool():
    """250 blocks of 2 MiB shared of 512: 101 requests of the other 262 take 51.7 GiB, and with the prefix 52.2."""
    report = evaluate(Plan(shared_prefix_tokens=4000, **START_UP))
    assert report.cache.request_bytes_shared == 250 * 2**21
    tops = [shape.y1 for shape in figures.memory_figure(report).layout.shapes if shape.fillcolor]
    bottom = report.memory.total_bytes - report.memory.left_free_bytes - report.memory.pool_bytes
    assert max(tops) * 2**30 == pytest.approx(bottom + (250 + 101 * 262) * 2**21)
    assert max(tops) * 2**30 <= report.memory.total_bytes - report.memory.left_free_bytes


def test_what_is_compared_draws_a_line_that_is_not_the_plans():
    def names(**fields):
        report = evaluate(Plan(**fields))
        return [other.name for other in comparisons(report, plan_ceilings(report))]

    assert names(tp=3) == ["tp 1"]
    assert names(model="deepseek-v3") == ["tp 16"]
    assert names() == ["fp8 KV", "int4 KV", "tp 2", "tp 4"]


def test_labels_beside_the_memory_bar_do_not_overlap():
    """Gemma 3 27B leaves a thin pool between two thin parts."""
    figure = figures.memory_figure(evaluate(Plan(model="gemma-3-27b")))
    top = figure.layout.yaxis.range[1]
    height = figures.HEIGHT - figures.MARGIN["t"] - figures.MARGIN["b"]
    spans = sorted(
        (note.y / top * height, (note.text.count("<br>") + 1) * figures.WORD_LINE) for note in figure.layout.annotations
    )
    for (low, below), (high, above) in pairwise(spans):
        assert low + below / 2 <= high - above / 2
