"""The shipped workloads, held against the traces and the published figures they were made of.

The raw traces and the tables of facts are those of the folder beside the checkout; tests of them skip without it.
"""

import csv
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from kvplan import load_preset, presets
from kvplan.batching import exponential_utilisation, static_utilisation
from kvplan.lengths import clipped_share, from_samples, from_table, mean_prompt, resident_mean, to_table
from kvplan.specs import TRAFFIC

SHARED = Path(__file__).parents[2] / "shared"
TRACES = {
    "azure-code": ("azure_2023_code", "AzureLLMInferenceTrace_code.csv"),
    "azure-conversation": ("azure_2023_conv", "AzureLLMInferenceTrace_conv.csv"),
    "mooncake-conversation": ("mooncake_conversation", "mooncake_conversation_trace.jsonl"),
    "mooncake-synthetic": ("mooncake_synthetic", "mooncake_synthetic_trace.jsonl"),
}
"""Name in the facts and file of every workload whose raw requests are beside the checkout."""
SUMMARISED = {name: facts for name, (facts, _) in TRACES.items()} | {"arxiv-summarization": "vidur_arxiv_summarization"}
"""Name in the facts of every workload made from a trace."""
CONTEXTS = 2 ** np.arange(8, 16)
EVERYTHING = 2**24
UTILISATION_BOUND, LARGEST_BATCH = 0.005, 1024
"""How far the static utilisation of a shipped table may be from that of its trace, at every batch up to the largest."""
RESIDENT_BOUND, CLIPPED_BOUND = 0.006, 0.09
"""The same for what a running request holds, unclipped and clipped at `CONTEXTS`."""

beside_traces = pytest.mark.skipif(not SHARED.is_dir(), reason="the raw traces are not on this machine")
each_workload = pytest.mark.parametrize("name", presets("workload"))
each_trace = pytest.mark.parametrize("name", TRACES)
each_summary = pytest.mark.parametrize("name", SUMMARISED)


@pytest.fixture(scope="module")
def facts():
    """Summaries of the raw traces, measured apart from this project."""
    return json.loads((SHARED / "facts" / "workloads.json").read_text())


@pytest.fixture(scope="module")
def published():
    """Length summaries as papers print them, by data set."""
    rows = json.loads((SHARED / "facts" / "workloads_published.json").read_text())["rows"]
    return {row["dataset"]: row for row in rows}


@pytest.fixture(scope="module")
def raw():
    """Times in seconds, prompts and outputs of every trace."""
    return {name: read(SHARED / "traces" / file) for name, (_, file) in TRACES.items()}


def read(path):
    with path.open() as lines:
        if path.suffix == ".csv":
            rows = [(ticks(time), prompt, output) for time, prompt, output in list(csv.reader(lines))[1:]]
        else:
            requests = map(json.loads, lines)
            rows = [(each["timestamp"] / 1000, each["input_length"], each["output_length"]) for each in requests]
    times, prompts, outputs = np.array(rows, dtype=float).T
    return times, prompts, outputs


def ticks(text):
    """Seconds within the day of a time with seven decimals, one more than datetime takes."""
    time = datetime.fromisoformat(text[:19])
    return time.hour * 3600 + time.minute * 60 + time.second + float(text[19:])


def shipped(name):
    return from_table(load_preset(name, "workload").table)


# What every workload says of itself


def test_the_promised_workloads_are_there():
    """Six tables of lengths and one backlog."""
    assert set(presets("workload")) == {*SUMMARISED, "lmsys-chat", "seeded-200"}


@each_workload
def test_every_workload_names_its_licence_its_makers_and_its_sources(name):
    """Attribution is a condition of CC-BY-4.0 and of MIT; a workload made of nobody's data needs none."""
    spec = load_preset(name, "workload")
    assert spec.licence.startswith(("CC-BY-4.0, https://", "Apache-2.0, https://", "MIT, https://", "none needed, "))
    assert spec.attribution or name == "seeded-200"
    assert ("Changed: " in spec.attribution) == (name in SUMMARISED)
    given = [field for field in ("table", "samples", *TRAFFIC) if getattr(spec, field) is not None]
    assert set(spec.sources) == set(given)
    assert all(source.text for source in spec.sources.values())
    assert len(spec.short_name) <= 20


def test_only_what_was_counted_is_called_exact():
    """A table built from published quantiles is an estimate, and so is a variation of times in steps of 3 s."""
    marked = {
        (name, field)
        for name in presets("workload")
        for field, source in load_preset(name, "workload").sources.items()
        if source.confidence != "exact"
    }
    assert marked == {("lmsys-chat", "table"), ("mooncake-conversation", "arrival_cv")}


@pytest.mark.parametrize("name", [*SUMMARISED, "lmsys-chat"])
def test_a_table_is_in_order_of_output_and_then_of_prompt(name):
    """Bins of output, each in slices of prompt; about 40 bins, 16 slices."""
    rows = load_preset(name, "workload").table
    assert [row[1:] for row in rows] == sorted(row[1:] for row in rows)
    assert len({output for _, output, _ in rows}) <= 40
    assert len(rows) <= 640


# Made of the traces


@beside_traces
@each_trace
def test_a_shipped_table_is_made_of_its_trace(raw, name):
    """Azure 2023 and Mooncake 2024: the rows are what the requests give, to six decimals."""
    _, prompts, outputs = raw[name]
    expected = tuple(
        (count, round(output, 6), round(prompt, 6)) for count, output, prompt in to_table(outputs, prompts)
    )
    assert load_preset(name, "workload").table == expected


@beside_traces
@each_trace
def test_rate_and_variation_of_arrivals_are_those_of_the_trace(raw, facts, name):
    """Azure 2023 and Mooncake 2024: one over the mean gap, and the deviation of the gaps over their mean."""
    spec, found = load_preset(name, "workload"), facts[TRACES[name][0]]
    gaps = np.diff(raw[name][0])
    assert spec.arrival_rate == pytest.approx(1 / gaps.mean(), rel=1e-6)
    assert spec.arrival_cv == pytest.approx(gaps.std(ddof=1) / gaps.mean(), rel=1e-6)
    assert spec.arrival_rate == pytest.approx(1 / found["interarrival"]["mean_s"], rel=1e-6)
    assert spec.arrival_cv == pytest.approx(found["interarrival"]["cv"], rel=1e-6)
    assert spec.peak_to_mean == pytest.approx(found["per_minute"]["peak_to_mean"], abs=1e-4)
    hits = found.get("prefix", {}).get("infinite_cache_block_hit_rate")
    assert spec.prefix_hit_rate == (hits and pytest.approx(hits, abs=1e-4))


@beside_traces
@each_summary
def test_requests_and_means_are_those_of_the_facts(facts, name):
    """Counts are whole and means exact: bins are cut, not smoothed."""
    found, law = facts[SUMMARISED[name]], shipped(name)
    assert sum(count for count, _, _ in load_preset(name, "workload").table) == found["requests"]
    assert law.mean == pytest.approx(found["output_tokens"]["mean"], rel=1e-8)
    assert mean_prompt(law) == pytest.approx(found["prompt_tokens"]["mean"], rel=1e-8)


@beside_traces
@each_trace
def test_a_quantile_of_a_table_is_that_of_a_request_in_the_same_bin(raw, name):
    """Azure 2023 and Mooncake 2024: a bin is 4.1 % of the requests up to p90: no quantile is off by more."""
    law, samples = shipped(name), from_samples(raw[name][2])
    middles = np.linspace(0.05, 0.9, 18)
    assert (law.quantile(middles) >= samples.quantile(middles - 0.042)).all()
    assert (law.quantile(middles) <= samples.quantile(middles + 0.042)).all()


# Static utilisation


@pytest.mark.parametrize(("batch", "printed"), [(8, "0.368"), (64, "0.211"), (256, "0.163")])
def test_exponential_lengths_at_the_batches_of_the_traces(batch, printed):
    """Closed form 1/H_B, the line the traces are held against."""
    assert f"{exponential_utilisation(batch):.3f}" == printed


@beside_traces
@each_trace
def test_raw_requests_have_the_utilisation_of_the_facts(raw, facts, name):
    """Azure 2023 and Mooncake 2024: E[S] / E[max of B] of the empirical law, at every batch measured."""
    law = from_samples(raw[name][2])
    measured = facts[TRACES[name][0]]["static_batch_utilisation"]
    assert len(measured) == 9
    for row in measured:
        assert static_utilisation(law, row["B"]) == pytest.approx(row["util_trace"], rel=1e-9)
        assert law.expected_max(row["B"]) == pytest.approx(row["E_max_trace"], rel=1e-9)


@beside_traces
@each_trace
def test_a_shipped_table_has_the_utilisation_of_its_trace(raw, name):
    """Azure 2023 and Mooncake 2024: within 0.5 % of the raw requests at every batch up to 1,024."""
    batches = np.unique(np.geomspace(1, LARGEST_BATCH, 60).astype(int))
    exact = static_utilisation(from_samples(raw[name][2]), batches)
    assert static_utilisation(shipped(name), batches) == pytest.approx(exact, rel=UTILISATION_BOUND)


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        pytest.param("azure-code", (0.265, 0.085, 0.046), id="Azure code 2023"),
        pytest.param("azure-conversation", (0.463, 0.336, 0.269), id="Azure conversation 2023"),
        pytest.param("mooncake-conversation", (0.480, 0.272, 0.193), id="Mooncake conversation 2024"),
    ],
)
def test_a_shipped_table_prints_the_utilisation_of_its_trace(name, printed):
    """Traces at B = 8, 64 and 256: within half of the last digit printed and the 0.5 % of a table."""
    for batch, utilisation in zip((8, 64, 256), printed, strict=True):
        found = static_utilisation(shipped(name), batch)
        assert found == pytest.approx(utilisation, abs=0.0005 + 0.005 * utilisation)


@beside_traces
def test_the_summaries_have_the_utilisation_of_their_trace(facts):
    """Vidur's arXiv trace: one request in twenty is 736 to 4,056 tokens, in 12 bins; within 0.9 % at every batch."""
    law = shipped("arxiv-summarization")
    for row in facts["vidur_arxiv_summarization"]["static_batch_utilisation"]:
        assert static_utilisation(law, row["B"]) == pytest.approx(row["util_trace"], rel=0.009)


# Tokens held


@beside_traces
@each_trace
def test_a_shipped_table_holds_the_tokens_of_its_trace(raw, name):
    """Azure 2023 and Mooncake 2024: resident mean within 0.6 % unclipped, 9 % clipped at 256 to 32,768 tokens."""
    samples = from_samples(raw[name][2], raw[name][1])
    law = shipped(name)
    assert resident_mean(law, EVERYTHING) == pytest.approx(resident_mean(samples, EVERYTHING), rel=RESIDENT_BOUND)
    assert resident_mean(law, CONTEXTS) == pytest.approx(resident_mean(samples, CONTEXTS), rel=CLIPPED_BOUND)
    found = [clipped_share(law, context) for context in CONTEXTS]
    assert found == pytest.approx([clipped_share(samples, context) for context in CONTEXTS], abs=0.03)


@beside_traces
@each_summary
def test_a_table_holds_the_tokens_of_the_facts(facts, name):
    """The facts count half a token less: a step holds what it has generated before it, on average o/2 for o tokens."""
    measured = facts[SUMMARISED[name]]["mean_resident_kv_tokens_during_decode"]
    assert resident_mean(shipped(name), EVERYTHING) == pytest.approx(measured, rel=0.007)


def test_no_summary_is_longer_than_its_filter():
    """Vidur's traces are filtered to 4,096 tokens together; a slice of prompts may stand a little above."""
    assert clipped_share(shipped("arxiv-summarization"), 4096) < 0.02
    assert clipped_share(shipped("lmsys-chat"), 4096) == 0


# Built from published figures


@beside_traces
def test_the_chat_estimate_has_the_published_figures(published):
    """LMSYS-Chat-1M filtered to 4K, as printed with Vidur: mean, median and p90 of prompts and outputs, all exact."""
    row = published["LMSYS-Chat-1M, filtered to 4K (Vidur)"]
    table = load_preset("lmsys-chat", "workload").table
    outputs, prompts = from_table(table), from_table([(share, prompt) for share, _, prompt in table])
    for law, name in ((outputs, "output"), (prompts, "prompt")):
        assert law.mean == pytest.approx(row[f"{name}_mean"], rel=1e-6)
        assert law.quantile([0.5, 0.9]).tolist() == [row[f"{name}_median"], row[f"{name}_p90"]]


@beside_traces
@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        pytest.param("mooncake-conversation", "Mooncake conversation (FAST 25, table 2)", id="Mooncake, FAST 2025"),
        pytest.param("mooncake-synthetic", "Mooncake synthetic", id="Mooncake synthetic, FAST 2025"),
        pytest.param("arxiv-summarization", "Arxiv-summarization, filtered to 4K (Vidur)", id="Vidur, MLSys 2024"),
    ],
)
def test_means_are_the_published_ones(published, name, dataset):
    row, law = published[dataset], shipped(name)
    assert round(law.mean) == row["output_mean"]
    assert round(mean_prompt(law)) == row["prompt_mean"]
