"""How near kvplan comes to engines: the bounds that its public start-ups are held to, and that none is left out."""

import json
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from kvplan import accuracy, evaluate, load_preset, startup_facts
from kvplan.catalog import resolve
from kvplan.startup import release
from kvplan.startup_facts import POOL_BAND, RELEASES, Release
from kvplan.units import GIB

STARTS = {start.id: start for start in accuracy.starts()}
ERRORS = list(accuracy.pool_errors())
FIGURES = list(accuracy.figures())
SAMPLES = {
    "out of sample": [found for found in ERRORS if not found.start.in_sample],
    "in sample": [found for found in ERRORS if found.start.in_sample],
}
each_sample = pytest.mark.parametrize("errors", SAMPLES.values(), ids=SAMPLES)
each_start = pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)

CONSTANTS = {"HIDDEN_STATES", "FORWARD_WIDTHS", "ENCODER_GIB", "GRAPH_BASE_GIB", "GRAPH_LAYER_GIB", "GRAPH_EXPERTS_GIB"}
"""Constants of every release that a start-up may say were read from it; beside them the fields of a release."""
RELEASE_CONSTANTS = {"sampler_bytes", "keeps_expert_workspace", "non_torch_gib", "non_torch_parallel_gib"}

LOGS = Path(__file__).parents[2] / "shared" / "logs"
LOG_FILES = ("engine_logs.jsonl", "overhead_rows.jsonl")
FOLLOWS_FROM_A_POOL = ("kv_tokens", "num_gpu_blocks", "max_concurrency", "error_needed_gib")
POSTED = {
    "kv_cache_tokens": "kv_tokens",
    "num_blocks": "num_gpu_blocks",
    "max_concurrency": "max_concurrency",
    "needed_gib": "error_needed_gib",
    "suggested_context": "error_estimated_max_len",
    "weights_gib": "weights_gib",
    "activation_gib": "activation_gib",
    "non_torch_gib": "non_torch_gib",
}
"""Posted figures by what a row of the logs calls them; the pool apart, which some engines print as keys and values."""
PLANNED = {"tp": "tp", "context": "max_model_len", "mem_fraction_static": "mem_fraction_static"}
NOT_IN_CATALOG = "the catalog has no config.json of this model"
LEFT_OUT = {
    "overhead-92973f67": "the log of start-091 once more",
    "log-da4738c9": f"{NOT_IN_CATALOG}, Qwen3.8 27B",
    "log-07262177": f"{NOT_IN_CATALOG}, Qwen3.8 27B; its cache is in NVFP4, which has no width here",
    "log-da660271": f"{NOT_IN_CATALOG}, Qwen3.8 Flash Next; another engine's layout besides",
    "log-2e0a3d9d": f"{NOT_IN_CATALOG}, DeepSeek-V4.1 Flash; a fork with a layout of its own besides",
    "log-ffdbc519": f"{NOT_IN_CATALOG}, MiniCPM-SALA, whose sparse and linear layers are of no kind here",
    "log-25b1d32e": f"{NOT_IN_CATALOG}, GPT-2 124M, of which it has only the largest sibling",
    "log-2ce18d3f": f"tp and context not stated, and {NOT_IN_CATALOG}, MiMo-V2.6 Flash",
    "log-84755fc7": "context not stated: the tokens of a hybrid are those of requests of that length",
    "log-733ea4f8": "context not stated: the states of DeepSeek-V4 take most of so short a request",
    "log-943b27bd": "another engine's format: SGLang splits DeepSeek-V4's pool by a ratio set for its windows",
    "log-031624cd": "another cache format: TurboQuant, of a variant that is not stated",
    "log-d79230b0": "another engine's format: llama.cpp's q8_0, 34 bytes for 32 elements",
    "log-ce065b4f": "the size of the model is not stated, only its family",
    "log-ac2aafb0": "the size of the model is not stated, only its family",
    "log-bc9d5585": "the model is not stated, only its family, and a draft model shares the pool",
    "overhead-7514607f": "the model is not stated",
    "overhead-45e2799c": "GPU, tp and context not stated, of a model composed of others",
}
"""Logged pools that are no start, and why."""


def share_within(errors, bound):
    return sum(abs(found.error) <= bound for found in errors) / len(errors)


def rows_of_logs():
    return [json.loads(line) for name in LOG_FILES for line in (LOGS / name).read_text().splitlines()]


def pool_of(row):
    """The pool a row states, in GiB of one device: as such, or as keys and values."""
    parts = [row[name] for name in ("k_size_gib", "v_size_gib") if row.get(name) is not None]
    return row.get("available_kv_gib", sum(parts) if parts else None)


# Pools from scratch


@each_sample
def test_predicted_pools_miss_by_at_most_2_percent_of_a_device_in_the_median(errors):
    """Public start-up logs: predicted from model, GPU and settings alone, with and without a constant read from it."""
    assert len(errors) >= 25
    assert median(abs(found.error) for found in errors) <= 0.02


@each_sample
def test_nine_in_ten_predicted_pools_miss_by_at_most_5_percent_of_a_device(errors):
    """Public start-up logs, as above."""
    assert share_within(errors, 0.05) >= 0.90


def test_nine_in_ten_predicted_pools_lie_within_the_band_that_is_shown():
    """Public start-up logs: the band that stands beside an estimated pool."""
    assert share_within(ERRORS, POOL_BAND) >= 0.90


def test_most_predicted_pools_are_out_of_sample():
    assert len(SAMPLES["out of sample"]) > len(SAMPLES["in sample"])


def test_every_pool_that_misses_by_more_than_5_percent_has_a_note():
    without = [found.start.id for found in ERRORS if abs(found.error) > 0.05 and not found.start.note]
    assert without == []


def test_the_error_of_a_pool_is_its_difference_as_a_share_of_the_device():
    for found in ERRORS:
        memory = evaluate(found.start.plan).memory
        assert found.predicted_gib == pytest.approx((memory.pool_bytes - memory.shortfall_bytes) / GIB)
        difference = found.predicted_gib - found.start.posted.pool_gib
        assert found.error == pytest.approx(difference * GIB / memory.total_bytes)


@each_sample
def test_the_summary_is_number_median_and_shares_within_2_and_5_percent(errors):
    found = accuracy.summary(errors)
    assert found.number == len(errors)
    assert found.median in {abs(one.error) for one in errors}
    assert sum(abs(one.error) <= found.median for one in errors) >= len(errors) / 2
    assert sum(abs(one.error) >= found.median for one in errors) >= len(errors) / 2
    assert (found.within_close, found.within_near) == (share_within(errors, 0.02), share_within(errors, 0.05))


# Figures from a posted pool


def test_at_least_85_percent_of_the_posted_figures_follow_from_their_pool():
    """Public start-up logs: tokens, blocks, concurrency, needed memory and suggested length to the last digit."""
    assert len(FIGURES) >= 150
    assert sum(figure.agrees for figure in FIGURES) / len(FIGURES) >= 0.85


def test_every_figure_that_does_not_follow_has_a_layout_note_and_no_note_is_stale():
    odd = {figure.start.id for figure in FIGURES if not figure.agrees}
    assert odd == {start.id for start in STARTS.values() if start.layout_note}


@each_start
def test_a_figure_is_named_for_every_one_that_was_posted_with_a_pool(start):
    named = ("kv_cache_tokens", "num_blocks", "max_concurrency", "needed_gib", "suggested_context")
    posted = {name: getattr(start.posted, name) for name in named if getattr(start.posted, name) is not None}
    found = {figure.name: figure.posted for figure in accuracy.figures_of(start)}
    assert found == (posted if start.posted.pool_gib > 0 else {})


@pytest.mark.parametrize(
    "figure",
    [figure for figure in FIGURES if figure.agrees],
    ids=[f"{figure.start.id}-{figure.name}" for figure in FIGURES if figure.agrees],
)
def test_a_falsified_figure_does_not_agree(figure):
    """A twentieth more than was posted, and one: no rounding of a pool is that large."""
    more = 1.05 * figure.posted + 1
    falsified = type(figure.posted)(more)
    posted = figure.start.posted.model_copy(update={figure.name: falsified})
    start = figure.start.model_copy(update={"posted": posted})
    agreeing = {found.name: found.agrees for found in accuracy.figures_of(start)}
    expected = {found.name: found.agrees for found in accuracy.figures_of(figure.start)}
    assert agreeing == expected | {figure.name: False}


def test_a_start_of_another_model_does_not_agree():
    """Qwen3 14B for Llama 3.1 8B: 163,840 bytes a token, not 131,072."""
    start = STARTS["start-019"]
    assert start.plan.model == "llama-3.1-8b"
    assert all(figure.agrees for figure in accuracy.figures_of(start))
    other = start.model_copy(update={"plan": start.plan.model_copy(update={"model": "qwen3-14b"})})
    assert not any(figure.agrees for figure in accuracy.figures_of(other))


# The start-ups themselves


def test_no_two_starts_have_one_id():
    ids = Counter(start.id for start in accuracy.starts())
    assert [name for name, number in ids.items() if number > 1] == []


def test_no_start_is_counted_twice():
    """Two entries of one log, whatever version each is taken for; a sweep over versions is several starts."""
    seen = {}
    for start in (found.start for found in ERRORS if "sweep" not in found.start.source):
        plan = start.plan.model_copy(update={"engine_version": None})
        posted = start.posted
        figures = (posted.pool_gib, posted.weights_gib, posted.activation_gib, posted.non_torch_gib, posted.num_blocks)
        seen.setdefault((plan, figures), []).append(start.id)
    assert [same for same in seen.values() if len(same) > 1] == []


@each_start
def test_every_start_resolves_and_is_served_with_memory_enough(start):
    assert resolve(start.plan).model.weight_bytes
    report = evaluate(start.plan.model_copy(update={"kv_cache_memory_bytes": 2**42}))
    assert report.engine.refused is None
    assert report.engine.fits


@each_start
def test_every_start_names_its_source_and_states_a_figure(start):
    assert len(start.source) >= 10
    assert start.model
    assert start.gpu
    assert start.posted.pool_gib is not None
    assert start.predicts_pool or accuracy.figures_of(start)


def test_a_start_that_predicts_a_pool_states_its_device_and_its_share_of_it():
    for start in (found.start for found in ERRORS):
        assert "not stated" not in start.gpu, start.id
        assert start.plan.gpu_memory_utilization is not None or start.plan.mem_fraction_static is not None, start.id
        assert start.plan.engine_version is not None or start.plan.mem_fraction_static is not None, start.id
        assert start.plan.kv_cache_memory_bytes is None, start.id
        assert start.plan.activation_gib is start.plan.non_torch_gib is start.plan.workspace_gib is None, start.id


CALIBRATED = [(start, name) for start in STARTS.values() for name in start.calibrates]


@pytest.mark.parametrize(("start", "name"), CALIBRATED, ids=[f"{start.id}-{name}" for start, name in CALIBRATED])
def test_what_was_read_from_a_start_is_a_constant_that_its_own_estimate_uses(start, name):
    found = release(start.plan.engine_version)
    word, _, value = name.partition(" ")
    if name == "loaded weights":
        assert load_preset(start.plan.model, "model").loaded_weight_bytes is not None
    elif word == "since":
        boundary = tuple(int(part) for part in value.split("."))
        after = [row.since for row in RELEASES if row.since > found.since]
        assert boundary in (found.since, *after[:1])
    elif word in RELEASE_CONSTANTS:
        assert word in Release._fields
        assert getattr(found, word) == (float(value) if value else True)
    else:
        assert name in CONSTANTS
        assert getattr(startup_facts, name) > 0


@pytest.mark.parametrize("name", ["HIDDEN_STATES", "FORWARD_WIDTHS", "ENCODER_GIB", "GRAPH_BASE_GIB"])
def test_each_constant_of_every_release_was_read_from_a_start_that_says_so(name):
    assert [start.id for start in STARTS.values() if name in start.calibrates] != []


@pytest.mark.parametrize("row", RELEASES, ids=[".".join(map(str, row.since)) for row in RELEASES])
def test_the_non_torch_memory_of_each_release_was_read_from_a_start_that_says_so(row):
    said = {name for start in STARTS.values() for name in start.calibrates}
    assert f"non_torch_gib {row.non_torch_gib:.2f}" in said
    assert f"non_torch_parallel_gib {row.non_torch_parallel_gib:.2f}" in said
    assert f"sampler_bytes {row.sampler_bytes}" in said


def test_a_start_in_sample_says_what_was_read_from_it():
    for start in STARTS.values():
        assert start.in_sample == (len(start.calibrates) > 0)
        assert len(set(start.calibrates)) == len(start.calibrates)


# Tables


def test_the_table_of_pools_has_a_row_for_each_the_largest_miss_first():
    rows = accuracy.pool_table()
    assert [list(row) for row in rows] == len(ERRORS) * [
        [
            "Start-up",
            "Device",
            "Engine",
            "Posted, GiB",
            "Predicted, GiB",
            "Error, % of device",
            "Sample",
            "Read from it, or why it misses",
            "Source",
        ]
    ]
    misses = [abs(row["Error, % of device"]) for row in rows]
    assert misses == sorted(misses, reverse=True)
    assert Counter(row["Sample"] for row in rows) == {
        "in": len(SAMPLES["in sample"]),
        "out": len(SAMPLES["out of sample"]),
    }
    assert all(row["Read from it, or why it misses"] for row in rows if row["Sample"] == "in")
    assert {row["Engine"].split()[0] for row in rows} == {"vLLM", "SGLang"}
    assert not any("None" in str(value) for row in rows for value in row.values())


def test_the_table_of_figures_has_a_row_for_each_those_that_do_not_follow_first():
    rows = accuracy.figure_table()
    assert [list(row) for row in rows] == len(FIGURES) * [
        ["Start-up", "Figure", "Posted", "From the posted pool", "Agrees", "Why not", "Source"]
    ]
    answers = [row["Agrees"] for row in rows]
    assert answers == sorted(answers)
    assert Counter(answers) == Counter("yes" if figure.agrees else "no" for figure in FIGURES)
    assert all(bool(row["Why not"]) == (row["Agrees"] == "no") for row in rows)


def test_the_table_of_weights_has_those_that_differ_by_a_percent_or_more():
    rows = accuracy.weight_table()
    assert rows
    assert {tuple(row) for row in rows} == {("Start-up", "Posted, GiB", "Counted, GiB", "Difference, %")}
    assert all(abs(row["Difference, %"]) >= 0.95 for row in rows)
    posted = [start for start in STARTS.values() if start.posted.weights_gib is not None]
    assert len(rows) < len(posted) / 5
    assert {row["Start-up"] for row in rows} <= {start.model for start in posted}


# Beside the logs they were read from

beside_logs = pytest.mark.skipif(not LOGS.is_dir(), reason="the collected start-up logs are not on this machine")


@beside_logs
def test_every_start_that_was_logged_states_the_figures_of_its_log():
    """Public start-up logs as collected: pool, tokens, blocks, concurrency and the rest, digit for digit."""
    compared = [row for row in rows_of_logs() if row["id"] in STARTS]
    assert len(compared) >= 40
    for row in compared:
        posted = STARTS[row["id"]].posted
        assert posted.pool_gib == pytest.approx(pool_of(row), abs=1e-3), row["id"]
        found = {name: getattr(posted, name) for name in POSTED}
        assert found == {name: row.get(logged) for name, logged in POSTED.items()}, row["id"]


@beside_logs
def test_every_start_that_was_logged_is_of_the_model_and_device_of_its_log():
    for row in (row for row in rows_of_logs() if row["id"] in STARTS):
        start = STARTS[row["id"]]
        assert start.source == row["source"]
        assert start.model == row["model"] or row["model"].startswith("(name not in excerpt"), start.id
        assert start.gpu == row.get("gpu", "not stated")


@beside_logs
def test_a_plan_departs_from_the_settings_of_its_log_only_with_a_note():
    """Public start-up logs as collected: tp, context and fraction of a row, and the share of a device for a pool."""
    odd = {}
    for row in (row for row in rows_of_logs() if row["id"] in STARTS):
        start = STARTS[row["id"]]
        planned = {name: (getattr(start.plan, name), row.get(logged)) for name, logged in PLANNED.items()}
        if start.predicts_pool:
            logged = row.get("gpu_memory_utilization", row.get("util"))
            planned["gpu_memory_utilization"] = (start.plan.gpu_memory_utilization, logged)
        differing = {name: pair for name, pair in planned.items() if pair[1] is not None and pair[0] != pair[1]}
        if differing and not (start.note or start.layout_note):
            odd[start.id] = differing
    assert odd == {}


@beside_logs
def test_every_logged_pool_that_something_follows_from_is_a_start_or_is_left_out_for_a_reason():
    """Public start-up logs as collected: nothing is left out silently."""
    telling = {
        row["id"]
        for row in rows_of_logs()
        if (pool_of(row) or 0) > 0 and any(row.get(name) is not None for name in FOLLOWS_FROM_A_POOL)
    }
    assert telling - STARTS.keys() == LEFT_OUT.keys()
    assert all(len(reason) >= 20 for reason in LEFT_OUT.values())
