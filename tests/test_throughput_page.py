"""The Throughput page, driven without a browser: every kind of plan, its controls, and what it says."""

import pytest
from hypothesis import given, settings
from strategies import known_plans
from test_pages import opened, plan_of, table_with
from test_pool import KINDS

from kvplan import Plan, evaluate, presets, rates, throughput_words
from kvplan.links import short_query
from kvplan.markdown import escape, escape_sentence


def page(query):
    return opened(query, "throughput")


def chosen(app, key, value):
    (choice,) = [group for group in app.get("button_group") if group.key == key]
    choice.set_value(value).run()
    assert not app.exception


def typed(app, name):
    """The input of the calculator with this name, whose key carries the plan's own number as well."""
    (found,) = [control for control in app.number_input if control.key.startswith(f"little_{name}_")]
    return found


def captions(app):
    return [caption.value for caption in app.caption]


def assert_page(app, plan):
    """Verdict, numbers, charts, tables and captions are those of the plan."""
    report = evaluate(plan)
    found = rates.rates(report)
    assert app.header[0].value == escape_sentence(throughput_words.opening(report, found).sentence)
    shown = throughput_words.metrics(report, found)
    assert [metric.value for metric in app.metric[:4]] == [metric.value for metric in shown]
    assert all(len(metric.label) <= 18 and len(metric.whose) <= 28 for metric in shown)
    if found is None:
        assert not app.get("plotly_chart")
        return
    assert len(app.get("plotly_chart")) == 3
    compared = rates.compared(report, found)
    assert list(table_with(app, "Closed form")["p95"]) == [row["p95"] for row in throughput_words.comparison(compared)]
    assert list(table_with(app, "Decode step")["Part"])[-1] == "In all"
    for words in (throughput_words.bounds(report, found), throughput_words.difference(compared)):
        assert escape(words) + "." in captions(app)


@pytest.mark.parametrize("name", presets("plan"))
def test_every_ready_plan_has_a_page(name):
    app = page({"preset": name})
    assert_page(app, plan_of(app))


@pytest.mark.parametrize("plan", KINDS.values(), ids=KINDS)
def test_a_model_of_every_kind_has_a_page(plan):
    assert_page(page(short_query(plan)), plan)


@pytest.mark.parametrize(
    ("fields", "badge", "says"),
    [
        ({}, "memory binds", "tokens/s** at batch 54; the 50 ms TPOT target would allow batch 240"),
        ({"admission": "on_demand"}, "TPOT binds", "at batch 240; memory would hold 364"),
        ({"max_num_seqs": 8}, "max_num_seqs binds", "at batch 8; memory would hold 56"),
        ({"tenant_quota_fraction": 0.5}, "quota binds", "at batch 27; memory would hold 54"),
        ({"ttft_s": 0.03}, "TTFT binds", "; memory would hold 54"),
        ({"batch": 16}, "batch as set", "at batch 16; memory would hold 54"),
        ({"tpot_s": 0.004}, "TPOT binds", "**No batch** meets the TPOT target of 4 ms; one request alone has"),
        ({"gpu": "h200", "tp": 8}, "compute binds", "at batch 512; memory would hold 979"),
        ({"model": "llama-3.1-405b"}, "does not fit", "**Does not fit**"),
        ({"weights_gib": 0.0}, "no estimate", "The step time is **not known**"),
    ],
)
def test_what_binds_is_named(fields, badge, says):
    plan = Plan(**fields)
    report = evaluate(plan)
    verdict = throughput_words.opening(report, rates.rates(report))
    assert verdict.badge == badge
    assert says in verdict.sentence.replace("\N{NO-BREAK SPACE}", " ")
    assert_page(page(short_query(plan)), plan)


def test_tokens_are_shown_of_a_replica_of_a_gpu_and_of_a_user():
    app = page({"tp": "4", "model": "llama-3.3-70b"})
    own = rates.rates(evaluate(Plan(tp=4, model="llama-3.3-70b"))).own
    for name, value in {"GPU": own.tokens_per_s / 4, "User": 1 / own.tpot_s, "Replica": own.tokens_per_s}.items():
        chosen(app, "rates_per", name)
        drawn = app.get("plotly_chart")[0].proto.spec
        assert f"{value:,.0f} at {own.concurrency:.0f}" in drawn


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, None),
        ({"prefix_hit_rate": 0.4}, "40% of a mean prompt is found in the pool and not computed."),
        (
            {"spec_method": "eagle3", "spec_tokens": 3, "acceptance_rate": 0.8},
            "A step tries 3 more tokens for each sequence and yields 2.95.",
        ),
        (
            {"spec_method": "ngram", "spec_tokens": 1, "acceptance_rate": 0.5, "prefix_hit_rate": 0.5},
            "50% of a mean prompt is found in the pool and not computed; a step tries 1 more token for each sequence "
            "and yields 1.50.",
        ),
    ],
)
def test_what_prefix_hits_and_drafts_do_is_said_where_there_are_any(fields, says):
    plan = Plan(**fields)
    found = [words for words in captions(page(short_query(plan))) if "found in the pool" in words or "yields" in words]
    assert found == ([] if says is None else [says])


def test_any_two_of_littles_law_give_the_third_and_memory_caps_the_first():
    app = page({})
    typed(app, "rate").set_value(10.0)
    typed(app, "time_s").set_value(8.0).run()
    assert app.metric[4].value == "80.00"
    sure = "Booking whole contexts, the plan is sure of 54 at a time; requests that book less run more"
    cap = "While W stays 8.00 s, 54 are 6.75 requests/s"
    assert f"{sure}. {cap}; 80.0 in the system are more, and the rest would wait." in captions(app)
    chosen(app, "little_unknown", "Rate")
    typed(app, "concurrency").set_value(20.0)
    typed(app, "time_s").set_value(4.0).run()
    assert app.metric[4].value == "5.00"
    chosen(app, "little_unknown", "Time")
    typed(app, "concurrency").set_value(20.0)
    typed(app, "rate").set_value(4.0).run()
    assert app.metric[4].value == "5.00"
    assert f"{sure}." in captions(app)


def test_the_simulation_is_at_the_plans_rate_where_a_replica_carries_it():
    report = evaluate(Plan())
    slow, fast = (evaluate(Plan(arrival_rate=rate)) for rate in (2.0, 1e5))
    for plan_report, of_plan in ((report, True), (slow, True), (fast, False)):
        found = rates.compared(plan_report, rates.rates(plan_report))
        assert found.of_plan == of_plan
    assert "2.00/s, the plan's rate" in throughput_words.difference(rates.compared(slow, rates.rates(slow)))
    assert (
        "80% of what can run, as the plan's 100,000.00/s are too many for one replica"
        in throughput_words.difference(rates.compared(fast, rates.rates(fast)))
    )


@settings(max_examples=25)
@given(known_plans())
def test_any_plan_has_a_sentence_and_four_numbers(plan):
    report = evaluate(plan)
    found = rates.rates(report)
    assert throughput_words.opening(report, found).sentence
    assert len(throughput_words.metrics(report, found)) == 4
    if found is not None:
        assert throughput_words.bounds(report, found)


def test_the_calculator_begins_with_the_numbers_of_the_plan_that_is_shown():
    app = page({})
    before = typed(app, "rate").value
    app.select_slider(key="context").set_value(16384).run()
    own = rates.rates(evaluate(plan_of(app))).own
    assert typed(app, "rate").value == pytest.approx(own.requests_per_s, rel=1e-3) != before
    assert not any("the rest would wait" in words for words in captions(app))


def test_a_plan_so_slow_that_its_rate_is_next_to_none_has_a_page():
    assert_page(page({"step_overhead_s": "3600"}), Plan(step_overhead_s=3600))


def test_outputs_too_long_for_a_page_to_wait_are_left_to_the_command_line():
    plan = Plan(workload="auto", output_mean=10**6, context=2**20, kv_cache_memory_bytes=2**40)
    report = evaluate(plan)
    assert rates.compared(report, rates.rates(report)) is None
    assert any("`kvplan simulate` runs them" in words for words in captions(page(short_query(plan))))
