"""Levers: one change at a time, read off the changed plan's own report; what is not offered says why."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import PACKED_MODELS, known_plans, plans
from test_pool import KINDS

from kvplan import Plan, catalog, decode_link, encode_link, evaluate, load_preset, presets, roofline, verdict
from kvplan.lever_ideas import QUALITIES, WEIGHTS
from kvplan.levers import Effect, Levers, best_ceiling, best_cost, keeps_price, levers, to_dict
from kvplan.levers_words import (
    about_cost,
    about_price,
    as_text,
    cost_decimals,
    metrics,
    opening,
    sources,
    table,
    times,
    usd,
)
from kvplan.plan import FROM_GPU
from kvplan.units import DTYPES, GIB, KIB

LLAMA = Plan(context=32768)
DOES_NOT_FIT = Plan(model="llama-3.1-70b")
PLANS = {
    **KINDS,
    "long": LLAMA,
    "does not fit": DOES_NOT_FIT,
    "refused": Plan(tp=3),
    "no quota": Plan(tenant_quota_fraction=0),
    "on demand": Plan(admission="on_demand"),
    "slots bind": Plan(context=1024, max_num_seqs=64),
    "quota binds": Plan(context=1024, tenant_quota_fraction=0.25),
    "free": Plan(gpu_hour_usd=0),
    "own price": Plan(gpu_hour_usd=2.5, price_date="2026-11"),
    "overridden": Plan(layers=40, kv_heads=4, gpu_memory_gib=64, max_num_seqs=128, activation_gib=3),
    "own layers": Plan(groups="(sliding1024:5x8x128,full:1x8x128)*10"),
    "in one word": Plan(spec=sorted(PACKED_MODELS.values())[0]),
    "no rate": Plan(weights_gib=0),
    "batch": Plan(batch=4),
    "large block": Plan(block_size=1024, context=9000),
}
each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
fast = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def found_of(plan):
    return levers(evaluate(plan))


def lever(plan, name):
    (found,) = (each for each in found_of(plan).levers if each.id == name)
    return found


def ceiling_of(plan):
    report = evaluate(plan)
    return report.capacity.running(report.plan.admission)


# What holds for every lever


@each_plan
def test_a_lever_changes_the_fields_it_names_and_no_other(plan):
    found = found_of(plan)
    assert found.plan == plan.model_copy(update={"batch": None})
    for each in found.offered:
        differing = {name for name, value in each.plan if value != getattr(found.plan, name)}
        assert differing == set(each.changed)
        assert Plan.model_validate(each.plan.model_dump()) == each.plan


@each_plan
def test_a_lever_is_offered_or_says_why_not(plan):
    found = found_of(plan)
    assert {each.id for each in found.offered} | {each.id for each in found.not_offered} == {
        each.id for each in found.levers
    }
    for each in found.levers:
        offered = (each.why_not is None, each.after is not None, each.plan is not None, bool(each.changed))
        assert len(set(offered)) == 1
        assert each.quality in QUALITIES
        assert each.source
        assert each.about
    assert len({each.id for each in found.levers}) == len({each.name for each in found.levers}) == len(found.levers)


@each_plan
def test_the_link_of_a_lever_opens_the_plan_that_was_evaluated(plan):
    for each in found_of(plan).offered:
        for full in (True, False):
            opened, notes = decode_link(encode_link(each.plan, "https://example.org/", full=full))
            assert (opened, notes) == (each.plan, [])
        assert ceiling_of(opened) == each.after.ceiling


@each_plan
def test_an_effect_is_what_the_report_says(plan):
    found = found_of(plan)
    for each, effect in ((found.plan, found.before), *((each.plan, each.after) for each in found.offered)):
        report = evaluate(each)
        run, gpus = report.throughput, each.tp * each.pp
        assert effect.ceiling == report.capacity.running(each.admission)
        assert (effect.batch, effect.decode_step_s, effect.tokens_per_s) == (
            run.batch,
            run.decode_step_s,
            run.tokens_per_s,
        )
        assert effect.gpus == gpus
        if run.tokens_per_s:
            usd_per_hour = gpus * report.setting.gpu_hour_usd
            assert effect.usd_per_million_tokens == pytest.approx(usd_per_hour / (run.tokens_per_s * 3600 / 1e6))
        else:
            assert effect.usd_per_million_tokens is None


@each_plan
def test_what_is_offered_runs_and_moves_something(plan):
    found = found_of(plan)
    for each in found.offered:
        assert each.after.ceiling >= 1
        assert each.after != found.before


@fast
@given(plan=plans())
def test_no_plan_is_too_odd(plan):
    report = evaluate(plan)
    found = levers(report)
    json.dumps(to_dict(plan, found), allow_nan=False)
    assert (found.levers == ()) == (report.setting is None)


@fast
@given(plan=known_plans())
def test_the_laws_hold_for_any_plan(plan):
    report = evaluate(plan)
    found = levers(report)
    for each in found.offered:
        differing = {name for name, value in each.plan if value != getattr(found.plan, name)}
        assert differing == set(each.changed)
        assert Plan.model_validate(each.plan.model_dump()) == each.plan
    for words in (as_text(report, found), opening(report, found).sentence, about_cost(found)):
        assert words
        assert "nan" not in words.replace("finance", "")
    assert all(len(metric.label) <= 18 for metric in metrics(report, found))


# What single levers do


def test_fp8_halves_the_128_kib_that_a_token_of_llama_takes():
    """Llama-3.1-8B: 32 layers x 2 x 8 heads x 128 x 2 bytes = 128 KiB a token, 4 GiB a request of 32,768; fp8 2 GiB."""
    before = evaluate(LLAMA)
    fp8, int4 = (lever(LLAMA, f"cache_{dtype}") for dtype in ("fp8", "int4"))
    assert before.cache.bytes_per_token == 128 * KIB
    assert evaluate(fp8.plan).cache.bytes_per_token == 64 * KIB
    assert evaluate(int4.plan).cache.bytes_per_token == 32 * KIB
    pool = before.memory.pool_bytes
    assert found_of(LLAMA).before.ceiling == pool // (4 * GIB) == 13
    assert fp8.after.ceiling == pool // (2 * GIB) == 27
    assert int4.after.ceiling == pool // GIB == 54
    assert fp8.changed == int4.changed == ("kv_dtype",)
    assert "has no such format" in int4.about
    assert "format" not in fp8.about


def test_the_cost_of_a_lever_by_hand():
    """An H100 at 2.50 USD an hour: 9,000 tokens/s would be 2.5 / (9,000 x 3,600) x 10^6 = 0.0772 USD a million."""
    plan = Plan(gpu_hour_usd=2.5)
    tp = lever(plan, "tp")
    assert tp.after.gpus == 2
    assert tp.after.usd_per_million_tokens == pytest.approx(2 * 2.5 / 3600 / tp.after.tokens_per_s * 1e6)


PLAIN = st.sampled_from([name for name in presets("model") if load_preset(name, "model").groups[0].kind == "full"])


@fast
@given(
    plan=known_plans(
        model=PLAIN, spec=None, groups=None, spec_method=None, v_dtype=None, admission=st.sampled_from(["reserve"])
    )
)
def test_a_narrower_cache_never_lowers_the_ceiling_by_memory(plan):
    before = evaluate(plan)
    if {group.kind for group in before.setting.model.groups} != {"full"}:
        return
    for dtype in ("fp8", "int4"):
        if DTYPES[before.setting.kv_dtype].bits > DTYPES[dtype].bits:
            after = evaluate(plan.model_copy(update={"kv_dtype": dtype}))
            assert after.engine.refused or after.capacity.memory_ceiling >= before.capacity.memory_ceiling


@fast
@given(
    plan=known_plans(
        model=PLAIN, spec=None, groups=None, spec_method=None, admission="reserve", activation_gib=1.0,
        workspace_gib=0.5, tp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2]), dcp=1,
    ),
    name=st.sampled_from(["tp", "pp"]),
)  # fmt: skip
def test_twice_the_devices_never_lower_the_ceiling_by_memory(plan, name):
    """With what start-up takes as given: by estimate a second device brings buffers of its own."""
    before, after = found_of(plan).before, lever(plan, name).after
    assert after is None or after.memory_ceiling >= before.memory_ceiling


def test_half_the_kv_heads_save_memory_and_bandwidth_and_no_flop():
    plan = Plan()
    halved = lever(plan, "kv_heads")
    before, after = (roofline.work(catalog.resolve(each)) for each in (plan, halved.plan))
    assert after.body_flop == before.body_flop
    assert after.head_flop == before.head_flop
    assert after.attention == before.attention
    assert after.prompt_attention == before.prompt_attention
    assert after.weight_bytes == before.weight_bytes
    assert after.cache_read(1000) == before.cache_read(1000) / 2
    assert evaluate(halved.plan).cache.bytes_per_token == evaluate(plan).cache.bytes_per_token / 2
    assert halved.changed == ("kv_heads",)
    assert "as many FLOPs" in halved.about


def test_the_larger_device_is_the_smallest_that_is_larger_and_no_slower():
    """Of NVIDIA: the H100 PCIe and A100 80 are no larger than the H100 SXM, the H100 NVL is, and the next faster."""
    found = lever(Plan(), "gpu")
    assert found.plan.gpu == "h100-nvl"
    assert "H100 NVL" in found.about
    for name in presets("gpu"):
        other, own = lever(Plan(gpu=name), "gpu"), load_preset(name, "gpu")
        if other.plan is None:
            continue
        larger = load_preset(other.plan.gpu, "gpu")
        assert larger.vendor == own.vendor
        assert larger.total_bytes >= 1.1 * own.total_bytes
        assert larger.bandwidth_bytes_per_s >= own.bandwidth_bytes_per_s


def test_the_largest_device_has_no_larger_one():
    assert lever(Plan(gpu="gb300"), "gpu").why_not == "there is none among the presets"


def test_another_device_drops_what_came_with_the_former_one_and_nothing_else():
    plan = Plan(gpu_memory_gib=64, max_num_seqs=128, activation_gib=3, block_size=32, gpu_hour_usd=2)
    found = lever(plan, "gpu")
    assert set(found.changed) == {"gpu", "gpu_memory_gib", "max_num_seqs", "activation_gib"}
    assert all(getattr(found.plan, name) is None for name in FROM_GPU)
    assert (found.plan.block_size, found.plan.gpu_hour_usd) == (32, 2)


def test_twice_the_devices_are_at_most_64():
    assert lever(Plan(tp=64), "tp").why_not == "tp: at most 64, got 128"
    assert lever(Plan(pp=64), "pp").why_not == "pp: at most 64, got 128"


def test_a_shared_prefix_is_half_of_the_mean_prompt():
    plan = Plan(workload="auto", prompt_mean=1000, enable_prefix_caching=False)
    found = lever(plan, "prefix")
    assert found.plan.shared_prefix_tokens == 500
    assert found.plan.enable_prefix_caching
    assert found.changed == ("shared_prefix_tokens", "enable_prefix_caching")
    assert lever(Plan(shared_prefix_tokens=4096), "prefix").why_not == "4,096 tokens are shared already"
    assert lever(Plan(workload="seeded-200"), "prefix").why_not == "the prompts of this workload are too short"
    assert lever(Plan(model="falcon-mamba-7b"), "prefix").why_not == "a model of states alone caches no prefix"


def test_a_large_block_gives_way_to_the_engines_own():
    found = lever(Plan(block_size=1024, context=9000), "block")
    assert (found.name, found.changed, found.plan.block_size) == ("blocks of 16", ("block_size",), None)
    assert lever(Plan(), "block").why_not == "blocks are the engine's own already, 16 tokens"
    assert lever(Plan(block_size=8), "block").why_not == "the engine's own of 16 tokens are no smaller than 8"


def test_admission_is_the_other_policy():
    assert lever(Plan(), "admission").plan.admission == "on_demand"
    back = lever(Plan(admission="on_demand"), "admission")
    assert back.plan == Plan()
    assert back.after.ceiling < found_of(Plan(admission="on_demand")).before.ceiling


@pytest.mark.parametrize(
    ("plan", "why_not"),
    [
        (Plan(kv_cache_memory_bytes=2**36), "kv_cache_memory_bytes gives the pool"),
        (Plan(mem_fraction_static=0.8), "mem_fraction_static gives the pool"),
        (Plan(gpu_memory_utilization=0.95), "utilization is 0.95 already"),
        (Plan(gpu_memory_utilization=0.97), "utilization is 0.97 already"),
    ],
)
def test_utilization_moves_nothing_where_the_pool_is_given(plan, why_not):
    assert lever(plan, "utilization").why_not == why_not


@pytest.mark.parametrize(
    ("plan", "name", "why_not"),
    [
        (Plan(kv_dtype="fp8"), "cache_fp8", "the cache is fp8 already"),
        (Plan(kv_dtype="int8"), "cache_fp8", "the cache is int8 already"),
        (Plan(kv_dtype="int4"), "cache_int4", "the cache is int4 already"),
        (Plan(weight_dtype="int4"), "weights_fp8", "the weights are int4 already"),
        (Plan(model="gpt-oss-20b"), "weights_int4", "the weights are mxfp4 already"),
        (Plan(weights_gib=4), "weights_int4", "weights_gib gives the size of the weights, whatever their width"),
        (Plan(context=1), "context", "the context is one token"),
        (Plan(kv_heads=1), "kv_heads", "its full-attention layers have 1 KV heads, which is no even number"),
        (
            KINDS["deepseek-v3"],
            "kv_heads",
            "DeepSeek-V3 has no full-attention layers with KV heads, but MLA",
        ),
        (KINDS["deepseek-v3"], "window", "DeepSeek-V3 has no full-attention layers, but MLA"),
        (PLANS["in one word"], "evict", "the model travels in spec, whose layers are not rewritten"),
        (Plan(gpu="a100-80-sxm", model="gpt-oss-20b"), "cache_fp8", None),
        (
            Plan(model="falcon-7b", kv_dtype="fp16"),
            "cache_fp8",
            "changes neither the ceiling nor the cost of this plan",
        ),
        (KINDS["deepseek-v4-flash"], "cache_fp8", "changes neither the ceiling nor the cost of this plan"),
    ],
    ids=str,
)
def test_a_lever_that_is_not_there_says_why(plan, name, why_not):
    found = lever(plan, name)
    assert found.why_not
    if why_not is None:  # the engine's own sentence
        why_not = evaluate(plan.model_copy(update={"kv_dtype": "fp8"})).engine.refused
        assert why_not.startswith("kv_dtype: ")
    assert found.why_not == why_not


def test_a_refused_plan_hands_on_the_engines_sentence():
    found = found_of(Plan(tp=3))
    sentence = evaluate(Plan(tp=3)).engine.refused
    refused = {each.id: each.why_not for each in found.levers}
    assert found.offered == ()
    assert refused["cache_fp8"] == refused["context"] == sentence
    assert refused["tp"] == evaluate(Plan(tp=6)).engine.refused


def test_a_lever_may_cure_a_refusal():
    """An A100 has no fp8 cache for gpt-oss; a plain width is refused by nobody."""
    plan = Plan(model="gpt-oss-20b", gpu="a100-80-sxm", kv_dtype="fp8")
    assert evaluate(plan).engine.refused
    cure = lever(plan, "cache_int4")
    assert cure.after.ceiling > 0
    assert opening(evaluate(plan), found_of(plan)).sentence.startswith("**Not served** as it is; **")


def test_nvfp4_weights_are_a_lever_where_the_device_has_units_for_them():
    assert set(WEIGHTS) == {"fp8", "int4", "nvfp4"}
    for gpu, offered in (("b200", True), ("h100-sxm", False), ("mi355x", False)):
        assert any(each.id == "weights_nvfp4" for each in found_of(Plan(gpu=gpu)).levers) == offered


def test_windows_and_budgets_are_layers_of_the_plans_model():
    window, evict = (lever(Plan(context=131072), name) for name in ("window", "evict"))
    assert window.plan.groups == "(full:1x8x128,sliding4096:1x8x128)*16"
    assert evict.plan.groups == "sliding32768:32x8x128"
    assert window.changed == evict.changed == ("groups",)
    held = [evaluate(plan).cache.request_bytes_held for plan in (Plan(context=131072), window.plan, evict.plan)]
    assert held[1] == held[0] / 2 + held[0] / 2 * 4096 / 131072
    assert held[2] == held[0] / 4
    assert (evict.quality, window.quality) == ("lossy", "by design")


def test_windows_keep_what_the_plan_changed_of_the_model():
    plan = Plan(layers=40, kv_heads=4, context=131072)
    evict = lever(plan, "evict")
    assert evict.plan.groups == "sliding32768:40x4x128"
    assert set(evict.changed) == {"groups", "layers", "kv_heads"}
    before, after = evaluate(plan), evaluate(evict.plan)
    assert after.setting.weight_bytes == pytest.approx(before.setting.weight_bytes, rel=1e-9)


def test_only_full_layers_of_a_model_with_windows_get_another():
    found = lever(Plan(model="gemma-3-27b", context=131072, gpu="h200"), "evict")
    spec = load_preset("gemma-3-27b", "model")
    layers = catalog.resolve(found.plan).model.groups
    windows = {group.window for group in layers}
    assert windows == {1024, 32768}
    full = sum(group.layers for group in spec.groups if group.kind == "full")
    assert sum(group.layers for group in layers if group.window == 32768) == full


def test_layers_that_the_text_cannot_hold_are_not_rewritten():
    words = ",".join(f"full:2x{1 + index % 7}x{64 + index}" for index in range(200))
    assert len(words) < 4096
    many = lever(Plan(groups=words, kv_cache_memory_bytes=2**36), "window")
    assert many.why_not.startswith("groups: at most 4,096 characters, got ")
    assert lever(Plan(model="gemma-2-2b", layers=4084), "evict").why_not == "groups: at most 4,096 layers"


# The best


def test_the_best_for_the_ceiling_runs_most():
    found = found_of(Plan())
    best = best_ceiling(found)
    assert best.after.ceiling == max(each.after.ceiling for each in found.offered)
    assert best.id == "admission"


def test_the_best_for_the_cost_keeps_the_device():
    """An H100 at the price of an L4 would be the cheapest of all, but nobody sells it so."""
    found = found_of(Plan(gpu="l4", context=4096))
    cheapest = min(found.priced, key=lambda each: each.after.usd_per_million_tokens)
    assert cheapest.id == "gpu"
    assert not keeps_price(cheapest)
    assert keeps_price(best_cost(found))


def test_nothing_is_best_where_nothing_is_better():
    nothing = Levers(Plan(), Effect(ceiling=4, usd_per_million_tokens=1.0))
    assert best_ceiling(nothing) is None
    assert best_cost(nothing) is None
    assert best_ceiling(found_of(KINDS["falcon-mamba-7b"])) is None


def test_a_larger_device_pays_up_to_a_price():
    """At that price its tokens cost what the plan's do."""
    report = evaluate(Plan(gpu_hour_usd=2.5))
    found = levers(report)
    other = lever(Plan(gpu_hour_usd=2.5), "gpu")
    most = 2.5 * found.before.usd_per_million_tokens / other.after.usd_per_million_tokens
    assert f"pays below {usd(most)} an hour" in about_price(report, found)
    dearer = evaluate(other.plan.model_copy(update={"gpu_hour_usd": most})).throughput.tokens_per_s
    assert most / dearer / 3600 * 1e6 == pytest.approx(found.before.usd_per_million_tokens)


# Limits


@pytest.mark.parametrize(
    ("plan", "binding"),
    [
        (Plan(), "memory"),
        (Plan(context=1024, max_num_seqs=64), "max_num_seqs"),
        (Plan(context=1024, tenant_quota_fraction=0.25), "tenant_quota"),
        (DOES_NOT_FIT, "does_not_fit"),
        (Plan(admission="on_demand"), "memory"),
        (Plan(admission="on_demand", max_num_seqs=64), "max_num_seqs"),
        (Plan(admission="on_demand", tenant_quota_fraction=0.25), "tenant_quota"),
    ],
    ids=str,
)
def test_what_binds_is_named_under_either_policy(plan, binding):
    assert found_of(plan).before.binding == binding


def test_a_gain_that_a_limit_hides_is_still_told():
    found = lever(Plan(context=1024, max_num_seqs=64), "cache_fp8")
    assert found.after.ceiling == 64
    assert found.after.memory_ceiling > 2 * 400
    assert found.after.binding == "max_num_seqs"


def test_a_batch_of_the_plans_own_is_set_aside():
    report = evaluate(Plan(batch=4))
    found = levers(report)
    assert found.before.batch == found.before.ceiling > 4
    assert all(each.plan.batch is None for each in found.offered)
    assert opening(report, found).reason.endswith("The batch of 4 is set aside.")
    assert "set aside" not in opening(evaluate(Plan()), found_of(Plan())).reason


# Words


def test_the_sentence_names_the_best_for_both():
    answer = opening(evaluate(Plan()), found_of(Plan()))
    assert answer.sentence == (
        "The ceiling of 54 moves most with **admission on demand**, to **364** on average; tokens cost least with "
        "**int4 cache (lossy)**, **$0.0438** instead of $0.0781 a million"
    )
    assert (answer.badge, answer.tone) == ("memory binds", "memory")
    assert "kvplan does not model quality" in answer.reason


@pytest.mark.parametrize(
    ("plan", "begins", "badge"),
    [
        (
            DOES_NOT_FIT,
            "**Does not fit** as it is; **int4 weights (lossy)** would run **12** sequences",
            "does not fit",
        ),
        (KINDS["falcon-mamba-7b"], "No single change runs more than **1,024** sequences; ", "max_num_seqs binds"),
        (
            Plan(model="llama-3.1-70b", tp=4, context=32768),
            "The ceiling of 13 moves most with **admission on demand**, to **369** on average, and tokens cost least, ",
            "memory binds",
        ),
        (Plan(admission="on_demand", max_num_seqs=64), "", "max_num_seqs binds"),
        (
            Plan(gpu_hour_usd=0),
            "The ceiling of 54 moves most with **admission on demand**, to **364** on",
            "memory binds",
        ),
    ],
    ids=str,
)
def test_the_sentence_suits_the_plan(plan, begins, badge):
    answer = opening(evaluate(plan), found_of(plan))
    assert answer.sentence.startswith(begins)
    assert answer.badge == badge
    assert answer.tone == ("memory" if badge == "memory binds" else "limit")
    assert answer.sentence.count(";") <= 1
    assert not answer.sentence.endswith(".")


@pytest.mark.parametrize("name", ["refused", "no quota"])
def test_where_no_lever_helps_the_sentence_is_the_ceilings(name):
    report = evaluate(PLANS[name])
    assert opening(report, levers(report)) == verdict.ceiling(report)


@each_plan
def test_four_numbers_and_whose_they_are(plan):
    report = evaluate(plan)
    found = levers(report)
    now, cost, for_ceiling, for_cost = numbers = metrics(report, found)
    assert all(len(metric.label) <= 18 and len(metric.whose) <= 28 and metric.help for metric in numbers)
    assert now.value == f"{found.before.ceiling:,}"
    assert cost.value == (
        "–" if found.before.usd_per_million_tokens is None else usd(found.before.usd_per_million_tokens)
    )
    best, cheapest = best_ceiling(found), best_cost(found)
    assert for_ceiling.value == (f"{best.after.ceiling:,}" if best else "none")
    assert for_cost.value == (usd(cheapest.after.usd_per_million_tokens) if cheapest else "none")


def test_the_price_is_said_with_its_date():
    for plan, whose in (
        (Plan(), "per million, $1.00/GPU-h"),
        (Plan(gpu_hour_usd=2.5, price_date="2026-11"), "at $2.50/GPU-h, 2026-11"),
        (Plan(gpu_hour_usd=2.5), "at $2.50/GPU-h, no date"),
    ):
        assert metrics(evaluate(plan), found_of(plan))[1].whose == whose


@each_plan
def test_the_table_has_every_lever_that_is_offered_those_that_run_most_first(plan):
    found = found_of(plan)
    rows = table(found)
    assert [row["Lever"] == "This plan" for row in rows[:1]] == ([found.before.ceiling > 0] if rows else [])
    named = [row for row in rows if row["Lever"] != "This plan"]
    assert sorted(row["Lever"] for row in named) == sorted(each.name for each in found.offered)
    assert [row["Ceiling"] for row in named] == sorted((each.after.ceiling for each in found.offered), reverse=True)


@each_plan
def test_every_lever_has_its_source_and_what_is_not_offered_stands_last(plan):
    found = found_of(plan)
    rows = sources(found)
    assert len(rows) == len(found.levers)
    refused = [bool(row["Not offered, as"]) for row in rows]
    assert refused == sorted(refused)
    for row in rows:
        assert row["Quality, and who says so"].split(": ")[0] in QUALITIES


@each_plan
def test_the_text_has_a_line_for_every_lever(plan):
    report = evaluate(plan)
    found = levers(report)
    lines = as_text(report, found).split("\n")
    for each in found.levers:
        (line,) = (line for line in lines if line.startswith(f"  {each.name:<20}"))
        assert (each.why_not or each.quality) in line
    assert lines[0] == verdict.plain(opening(report, found).sentence)


def test_a_line_of_the_text_has_the_fields_to_set():
    report = evaluate(PLANS["overridden"])
    text = as_text(report, levers(report))
    assert "kv_dtype=fp8" in text
    assert "gpu_memory_gib=auto" in text


def test_costs_say_what_they_leave_out():
    assert "at most 512" in about_cost(found_of(Plan(context=1024)))
    assert "at most" not in about_cost(found_of(LLAMA.model_copy(update={"max_num_seqs": 100})))
    assert about_cost(found_of(PLANS["free"])) == "At this price tokens cost nothing"
    assert about_cost(found_of(PLANS["refused"])).startswith("No cost is known")
    assert about_price(evaluate(PLANS["free"]), found_of(PLANS["free"])) == ""
    assert about_price(evaluate(DOES_NOT_FIT), found_of(DOES_NOT_FIT)) == ""


@each_plan
def test_the_least_cost_shows_three_figures(plan):
    found = found_of(plan)
    places = cost_decimals(found)
    assert 2 <= places <= 9
    for each in found.priced:
        assert float(f"{each.after.usd_per_million_tokens:.{places}f}") >= 10.0 ** (2 - places) * 0.99


def test_money_has_three_figures_and_no_exponent():
    assert [usd(amount) for amount in (1e-300, 1e-9, 0.0042, 0.5, 9.999, 9999.5, 1.6e10)] == [
        "$0.00", "$0.00000000100", "$0.00420", "$0.500", "$10.00", "$9,999.50", "$16,000,000,000",
    ]  # fmt: skip
    assert (times(0, 5), times(None, 5), times(4, 2)) == ("", "", "0.50×")


# JSON


@each_plan
def test_the_json_has_stable_keys_and_nothing_undefined(plan):
    found = found_of(plan)
    known = json.loads(json.dumps(to_dict(plan, found), allow_nan=False))
    assert list(known) == ["schema", "version", "plan", "before", "levers"]
    assert known["schema"] == "kvplan.levers/1"
    assert Plan(**known["plan"]) == plan
    keys = {"id", "name", "about", "quality", "source", "after", "why_not", "changes"}
    for each in known["levers"]:
        assert set(each) == keys
        assert (each["after"] is None) == bool(each["why_not"]) == (not each["changes"])
        if each["changes"]:
            changed = Plan(**(known["plan"] | {"batch": None} | each["changes"]))
            assert ceiling_of(changed) == each["after"]["ceiling"]
            assert math.isfinite(each["after"]["tokens_per_s"])
