"""The Levers page, driven without a browser: every kind of plan, its charts, its tables and its links."""

import re

import pytest
from test_levers import PLANS, found_of
from test_pages import opened, plan_of, spec_of, table_with

from kvplan import Plan, decode_link, evaluate, presets
from kvplan.levers_words import about_cost, about_price, metrics, opening, sources, table
from kvplan.links import short_query
from kvplan.markdown import escape, escape_sentence
from kvplan.palette import POOL_FILL


def page(query):
    return opened(query, "levers")


def assert_page(app, plan):
    """Verdict, numbers, charts and tables are those of the plan's levers."""
    report, found = evaluate(plan), found_of(plan)
    assert app.header[0].value == escape_sentence(opening(report, found).sentence)
    assert [metric.value for metric in app.metric] == [metric.value for metric in metrics(report, found)]
    assert len(app.get("plotly_chart")) == bool(found.offered) + bool(found.priced)
    assert list(table_with(app, "What it changes")["Lever"]) == [escape(row["Lever"]) for row in sources(found)]
    captions = [caption.value for caption in app.caption]
    assert any(caption.startswith("kvplan does not model quality.") for caption in captions)
    if not found.offered:
        assert not any("By memory" in each.value for each in app.table)
        return
    rows = table_with(app, "By memory")
    assert list(rows["Ceiling"]) == [row["Ceiling"] for row in table(found)]
    for line in (about_cost(found), about_price(report, found)):
        assert not line or f"{escape(line)}." in captions


@pytest.mark.parametrize("name", presets("plan"))
def test_every_ready_plan_has_a_page(name):
    app = page({"preset": name})
    assert_page(app, plan_of(app))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_of_every_kind_has_a_page(plan):
    app = page(short_query(plan))
    assert_page(app, plan_of(app))


@pytest.mark.parametrize(
    "query",
    [
        {"context": "1"},
        {"context": "16777216"},
        {"block_size": "65536"},
        {"kv_cache_memory_bytes": "0"},
        {"kv_cache_memory_bytes": "1000000000000000"},
        {"layers": "4096", "kv_heads": "4096", "head_dim": "65536", "kv_dtype": "fp32"},
        {"pp": "64", "tp": "64"},
        {"kv_dtype": "int8_per_token_head", "v_dtype": "int4"},
        {"model": "gemma-3-27b", "context": "131072"},
        {"model": "deepseek-v3", "tp": "16", "dcp": "4"},
        {"model": "gpt-oss-120b", "tp": "16"},
        {"model": "falcon-mamba-7b", "gpu": "tpu-v4"},
        {"model": "palm-540b", "tp": "16"},
        {"workload": "seeded-200"},
        {"workload": "auto", "output_dist": "fixed"},
        {"mem_fraction_static": "0.1"},
        {"engine_version": "0.29.1+g1a"},
        {"gpu": "m4-max"},
    ],
    ids=lambda query: "&".join(f"{name}={value}" for name, value in query.items()),
)
def test_every_state_of_a_plan_is_a_page_without_an_exception(query):
    app = page(query)
    assert plan_of(app) == Plan(**query)
    assert_page(app, Plan(**query))


@pytest.mark.parametrize(
    "query",
    [{}, {"model": "llama-3.1-70b"}, {"context": "131072", "kv_heads": "4"}, {"admission": "on_demand"}],
    ids=str,
)
def test_every_name_is_a_link_to_its_plan_on_the_first_page(query):
    app = page(query)
    found = found_of(Plan(**query))
    plans = {lever.name: lever.plan for lever in found.offered}
    linked = {}
    for text in table_with(app, "By memory")["Lever"]:
        if match := re.fullmatch(r"\[(.*)\]\(<\./(.*)>\)", text):
            linked[match[1].replace("\\", "")] = decode_link(match[2])
    assert linked == {name: (plan, []) for name, plan in plans.items()}


def test_the_plans_row_and_no_other_is_tinted():
    for query, tinted in (({}, True), ({"model": "llama-3.1-70b"}, False)):
        (shown,) = (each for each in page(query).table if "By memory" in each.value)
        styles = shown.proto.arrow_data.styler.styles
        assert (POOL_FILL in styles) == tinted
        rows = len(shown.value)
        assert {row for row in range(rows) if f"row{row}_" in styles} == ({0} if tinted else set())


def test_gqa_is_said_to_save_memory_and_bandwidth_and_no_flops():
    app = page({})
    rows = table_with(app, "What it changes").set_index("Lever")
    assert "as many FLOPs" in rows.loc["half the KV heads", "What it changes"]
    assert any("save memory and bandwidth, not FLOPs" in caption.value for caption in app.caption)


def test_what_is_not_offered_says_why_and_stands_last():
    rows = table_with(page({}), "What it changes")
    why = list(rows["Not offered, as"])
    assert why == sorted(why, key=bool)
    assert "blocks are the engine's own already, 16 tokens" in why


def test_charts_have_words_for_those_who_do_not_see_them():
    alts = [chart.proto.alt for chart in page({}).get("plotly_chart")]
    assert alts == ["Best for ceiling: 364, 6.74×, admission on demand", "Best for cost: $0.0438, −44%, int4 cache"]


def test_a_move_in_the_sidebar_moves_the_levers():
    app = page({})
    first = spec_of(app)["data"]
    app.select_slider(key="context").set_value(65536).run()
    assert not app.exception
    assert spec_of(app)["data"] != first
    assert_page(app, Plan(context=65536))


def test_the_levers_are_tried_once_for_each_plan():
    app = page({})
    _, made = app.session_state["levers"]
    app.run()
    assert app.session_state["levers"][1] is made
    app.select_slider(key="context").set_value(65536).run()
    assert app.session_state["levers"][1] is not made
