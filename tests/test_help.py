"""Help where it is needed: every input and every number has a line or two, short, with its unit or its formula, and
the formulas give the values that are shown."""

import re
from math import ceil, inf

import pytest
from test_fleet_search import SHORT, found_of
from test_pages import KINDS, opened

from kvplan import (
    Plan,
    evaluate,
    fleet_words,
    guide,
    guide_words,
    levers,
    levers_words,
    load_preset,
    metrics,
    pool,
    presets,
    rates,
    throughput_words,
)
from kvplan.dashboard.inputs import HELP, VIEW_HELP
from kvplan.metrics import Metric
from kvplan.units import GIB, binary, count, gib, percent_exact, usd

LONGEST = 240
PAGES = ("ceiling", "pool", "batching", "paging", "throughput", "levers", "fleet", "engine_log", "guide", "help")
CONTROLS = (*KINDS, "text_area", "file_uploader")
UNIT = re.compile(r"[×/=−]|\b(tokens?|bytes|GiB|seconds|requests?|sequences|devices|dollars|[Ss]hare|[Cc]opies)\b")
SEEDED = Plan(workload="seeded-200", batch=16)


def ceiling_and_more(report) -> list[Metric]:
    """The numbers of every page that needs no simulation beside the server."""
    found = [*metrics.ceiling(report), *throughput_words.metrics(report, rates.rates(report))]
    found += levers_words.metrics(report, levers.levers(report))
    if report.engine.fits:
        found += [*metrics.batching(report), *metrics.paging(report), *fleet_words.replica_metrics(report)]
    if guide.runs(report):
        found += guide_words.metrics(guide.answers(report))
    return found


def assert_helpful(metric: Metric) -> None:
    assert metric.help.endswith("."), metric.label
    assert len(metric.help) <= LONGEST, (metric.label, len(metric.help))
    assert UNIT.search(metric.help), metric.label


@pytest.mark.parametrize("text", [*HELP.items(), *VIEW_HELP.items()], ids=lambda item: item[0])
def test_the_help_of_an_input_is_a_sentence_or_two(text):
    _, words = text
    assert 30 <= len(words) <= LONGEST
    assert words.endswith(".")
    assert words[0].isupper() or words[0] == "λ"


@pytest.mark.parametrize("page", PAGES)
def test_every_control_and_every_number_of_a_page_has_help(page):
    # Without an arrival rate the Fleet page starts no search.
    app = opened({"workload": "seeded-200"}, page)
    found = [(widget.label, widget.proto.help) for kind in CONTROLS for widget in app.get(kind)]
    assert len(found) > len(Plan.model_fields)
    assert [label for label, words in found if not 20 <= len(words) <= LONGEST] == []
    if page == "guide":
        app.button(key="guide_show").click().run()
    assert len(app.metric) >= 4 or page in ("engine_log", "help")
    for metric in app.metric:
        # Little's law is a question, not a number of the plan.
        assert UNIT.search(metric.help) or metric.help in VIEW_HELP.values()
        assert len(metric.help) <= LONGEST


def test_the_controls_that_only_a_plan_with_a_rate_has_have_help_too():
    app = opened(page="pool")
    (choice,) = (group for group in app.get("button_group") if group.key == "pool_arrivals")
    assert "requests/s" in choice.help


def test_the_numbers_of_every_model_say_their_unit_or_formula_in_few_words():
    for name in presets("model"):
        for metric in metrics.ceiling(evaluate(Plan(model=name, tp=8))):
            assert_helpful(metric)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(model="llama-3.1-70b"),
        Plan(tp=3),
        SEEDED,
        Plan(mem_fraction_static=0.9),
        Plan(kv_cache_memory_bytes=2**35),
        Plan(model="deepseek-v4-flash", gpu="h200", tp=8),
        Plan(model="llama-3.1-405b", gpu="h200", tp=8, pp=2, context=131072, max_num_seqs=2**20, batch=2**20),
    ],
    ids=lambda plan: str(plan.model_dump(exclude_defaults=True)),
)
def test_the_numbers_of_every_page_say_their_unit_or_formula_in_few_words(plan):
    for metric in ceiling_and_more(evaluate(plan)):
        assert_helpful(metric)


def test_the_simulated_numbers_say_theirs():
    report = evaluate(SEEDED)
    found = [*metrics.pool(report, pool.runs(report, pool.requests_of(report.setting, 200)))]
    found += fleet_words.metrics(evaluate(SHORT), found_of(SHORT).fleet, "simulated")
    assert len(found) == 8
    for metric in found:
        assert_helpful(metric)


# The formulas, worked out with the numbers they name


def worked_out(metric: Metric, formula: str, **names: float) -> float:
    """What a formula of a metric's help comes to; a name's underscore stands for a space or a hyphen in the text."""
    assert formula in metric.help, metric.help
    text = formula.replace("×", "*").replace("−", "-").replace("E[max of B]", "longest").replace("E[S]", "mean")
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"\b{name.replace('_', '[ _-]')}\b", f"({names[name]!r})", text)
    return eval(text, {"ceil": ceil, "min": min, "inf": inf})


def by_label(found: list[Metric]) -> dict[str, Metric]:
    return {metric.label: metric for metric in found}


@pytest.mark.parametrize("plan", [Plan(), Plan(context=256), load_preset("llama-70b-chat-4xh100")], ids=str)
def test_the_batch_ceiling_is_its_formula(plan):
    report = evaluate(plan)
    # 131,072 B a token, or 80 layers of 2 heads at tp 4; blocks of 16 tokens.
    per_token = {"llama-3.1-8b": 2 * 32 * 8 * 128 * 2, "llama-3.1-70b": 2 * 80 * 2 * 128 * 2}[plan.model]
    blocks = report.memory.pool_bytes // (16 * per_token)
    shown = by_label(metrics.ceiling(report))["Batch ceiling"]
    found = worked_out(
        shown, "min(blocks // blocks a request, max_num_seqs, quota)",
        blocks=blocks, blocks_a_request=plan.context // 16, max_num_seqs=1024, quota=inf,
    )  # fmt: skip
    assert shown.value == count(found)


def test_the_pool_is_its_formula_for_vllm_and_for_sglang():
    memory = evaluate(Plan()).memory
    parts = {
        "total": memory.total_bytes / GIB,
        "weights": memory.weight_bytes / GIB,
        "non_torch": memory.non_torch_bytes / GIB,
    }
    others = {
        "activations": memory.activation_bytes / GIB,
        "CUDA_graphs": memory.cuda_graph_bytes / GIB,
        "allocator_overhead": 0.0,
    }
    shown = by_label(metrics.ceiling(evaluate(Plan())))["KV pool"]
    formula = "total × utilization − weights − activations − non-torch − CUDA graphs − allocator overhead"
    assert shown.value == gib(GIB * worked_out(shown, formula, **parts, **others, utilization=0.92))

    shown = by_label(metrics.ceiling(evaluate(Plan(mem_fraction_static=0.9))))["KV pool"]
    formula = "(total − non-torch) × mem_fraction_static − weights"
    assert shown.value == gib(GIB * worked_out(shown, formula, **parts, mem_fraction_static=0.9))


def test_a_token_costs_its_formula():
    for plan, factors, size in (
        (Plan(), "2 × 32 layers × 8 KV heads × 128 × 2 B", 2 * 32 * 8 * 128 * 2),
        (Plan(model="deepseek-v3", gpu="h200", tp=8), "61 layers × 576 latent × 2 B", 61 * 576 * 2),
        (Plan(model="gemma-3-27b"), "2 × 10 layers × 16 KV heads × 128 × 2 B", 2 * 10 * 16 * 128 * 2),
    ):
        shown = by_label(metrics.ceiling(evaluate(plan)))["Cache per token"]
        assert f": {factors};" in shown.help
        assert shown.value == binary(size)


def test_on_demand_is_its_formula():
    report = evaluate(Plan())
    shown = by_label(metrics.ceiling(report))["On demand"]
    tokens = report.capacity.resident_mean_tokens
    found = worked_out(
        shown, "blocks / (tokens / block + 1/2)", blocks=report.engine.num_blocks, tokens=tokens, block=16
    )
    assert shown.value == count(found)
    assert f"with {tokens:,.0f} tokens" in shown.help


def test_the_shares_of_a_batch_are_their_formulas():
    lengths = sorted(output for _, output in load_preset("seeded-200", "workload").samples)
    mean = sum(lengths) / 200
    # The longest of 16 drawn from 200 as likely ones: the sum of x_i ((i/n)^16 - ((i-1)/n)^16).
    longest = sum(length * (((i + 1) / 200) ** 16 - (i / 200) ** 16) for i, length in enumerate(lengths))
    shown = by_label(metrics.batching(evaluate(SEEDED)))
    static = worked_out(shown["Static"], "E[S] / E[max of B]", mean=mean, longest=longest)
    assert shown["Static"].value == percent_exact(static)
    assert "1 / (1 + 1/2 + ... + 1/B)" in shown["Exponential"].help
    assert shown["Exponential"].value == percent_exact(1 / sum(1 / k for k in range(1, 17)))
    gain = worked_out(shown["Gain"], "continuous share / static share", continuous_share=1.0, static_share=static)
    assert shown["Gain"].value == f"{gain:.2f}×"


def test_what_paging_wastes_is_its_formula():
    samples = load_preset("seeded-200", "workload").samples
    totals = [min(8192, prompt + output) for prompt, output in samples]
    shown = by_label(metrics.paging(evaluate(SEEDED)))
    formula = "block × ceil(tokens / block) − tokens"
    each = [worked_out(shown["Wasted a sequence"], formula, block=16, tokens=tokens) for tokens in totals]
    wasted, held = sum(each) / 200, sum(totals) / 200
    assert shown["Wasted a sequence"].value == f"{wasted:,.1f} tokens"
    share = worked_out(shown["Share of booked"], "wasted / (wasted + held)", wasted=wasted, held=held)
    assert shown["Share of booked"].value == percent_exact(share)
    contiguous = worked_out(shown["Contiguous waste"], "(context − tokens) / context", context=8192, tokens=held)
    assert shown["Contiguous waste"].value == percent_exact(contiguous)


def test_rates_are_their_formulas():
    report = evaluate(Plan())
    shown = by_label(throughput_words.metrics(report, rates.rates(report)))
    found = report.throughput
    tokens = worked_out(
        shown["Output tokens/s"], "requests a second × mean output tokens",
        requests_a_second=found.requests_per_s, mean_output_tokens=report.setting.lengths.mean,
    )  # fmt: skip
    assert shown["Output tokens/s"].value == f"{tokens:,.0f}"
    assert "L = λ × W" in shown["Requests/s"].help
    assert shown["Requests/s"].value == f"{found.batch / found.e2e_s:,.2f}"


def test_a_fleet_costs_its_formulas():
    report, found = evaluate(SHORT), found_of(SHORT).fleet
    shown = by_label(fleet_words.metrics(report, found, "simulated"))
    gpus = worked_out(
        shown["GPUs"], "(replicas + spare) × tp × pp",
        replicas=found.replicas, spare=found.spare_replicas, tp=SHORT.tp, pp=SHORT.pp,
    )  # fmt: skip
    assert shown["GPUs"].value == count(gpus)
    assert shown["Cost per hour"].value == usd(gpus * report.setting.gpu_hour_usd)

    report = evaluate(Plan(gpu_hour_usd=2.5, tp=2))
    shown = by_label(fleet_words.replica_metrics(report))
    dollars = worked_out(
        shown["Cost per million"], "cost of an hour / (tokens a second × 3,600) × 1,000,000",
        cost_of_an_hour=2 * 2.5, tokens_a_second=report.throughput.tokens_per_s,
    )  # fmt: skip
    assert shown["Cost per million"].value == usd(dollars)


def test_the_cost_that_levers_start_from_is_its_formula():
    report = evaluate(Plan(gpu_hour_usd=2.5, tp=2))
    shown = by_label(levers_words.metrics(report, levers.levers(report)))["Cost now"]
    dollars = worked_out(
        shown, "GPUs of a replica × price / (output tokens a second × 3,600) × 1,000,000",
        GPUs_of_a_replica=2, price=2.5, output_tokens_a_second=report.throughput.tokens_per_s,
    )  # fmt: skip
    assert shown.value == usd(dollars)


def test_the_pool_fills_by_its_formula():
    report = evaluate(SEEDED)
    runs = pool.runs(report, pool.requests_of(report.setting, 200))
    shown = by_label(metrics.pool(report, runs))["Growth"]
    running = next(iter(runs.moments.values())).tokens.size
    found = worked_out(shown, "running × cache per token", running=running, cache_per_token=131072)
    assert shown.value == f"{binary(found)}/step"
