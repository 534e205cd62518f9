"""The Paging page, driven without a browser: every kind of plan, its controls, and what it says."""

import pytest
from test_pages import opened, plan_of, spec_of, table_with
from test_pool import KINDS

from kvplan import Plan, allocation, blocks, curves, evaluate, metrics, presets, verdict
from kvplan.allocators import ALLOCATORS
from kvplan.links import short_query
from kvplan.markdown import escape, escape_sentence
from kvplan.palette import POOL_FILL

SERVED = {**KINDS, "lfm2-1.2b": Plan(model="lfm2-1.2b")}
WASTE, TABLE, SHARES, MAP, EXTENT = range(5)
NOTHING = "Nothing to compare: no layer grows with its tokens, or not one request of this workload would run."


def page(query):
    return opened(query, "paging")


def captions(app):
    return [caption.value for caption in app.caption]


def words(app):
    return [markdown.value for markdown in app.markdown]


def control(app, key):
    """The choice of this key; None where the page has none."""
    found = [group for group in app.get("button_group") if group.key == key]
    return found[0] if found else None


def chosen(app, key, value):
    control(app, key).set_value(value).run()
    assert not app.exception
    return app


def assert_page(app, plan, allocator="buddy"):
    """Verdict, numbers, tables and charts are those of the plan."""
    report = evaluate(plan)
    assert app.header[0].value == escape_sentence(verdict.paging(report).sentence)
    assert [metric.value for metric in app.metric] == [metric.value for metric in metrics.paging(report)]
    grows = bool(report.cache.bytes_per_token)
    if grows:
        rows = blocks.table(report)
        assert list(table_with(app, "Table entries")["Block"]) == [row["Block"] for row in rows]
        assert escape(verdict.half_block(report)) + "." in captions(app)
    own = table_with(app, "Last block unfilled")
    assert list(own["Layers"]) == [escape(row["Layers"]) for row in blocks.groups(report)]
    found = allocation.compared(report, allocator)
    if found is None:
        assert NOTHING in captions(app)
        assert len(app.get("plotly_chart")) == 2 * grows
        assert not any("Runs, mean" in table.value for table in app.table)
        return
    assert len(app.get("plotly_chart")) == 5
    table = table_with(app, "Runs, mean")
    assert list(table["Allocator"]) == list(allocation.NAMES.values())
    assert list(table["Runs, mean"]) == pytest.approx([run.running for run in found.runs.values()])
    assert escape(verdict.saved(found)) + "." in captions(app)
    refused = [caption for caption in captions(app) if caption.startswith(":material/block:")]
    assert refused == [f":material/block: {escape(line)}." for line in allocation.refusals(found)]


# The page of a plan


@pytest.mark.parametrize("name", presets("plan"))
def test_every_ready_plan_has_a_page(name):
    app = page({"preset": name})
    assert_page(app, plan_of(app))


@pytest.mark.parametrize("plan", SERVED.values(), ids=SERVED)
def test_a_model_of_every_kind_has_a_page(plan):
    assert_page(page(short_query(plan)), plan)


def test_the_example_of_the_literature_is_on_the_page():
    """Three requests that reserve 4,096 tokens waste 63 %; 36 of them fit, and 97 in blocks."""
    app = page({"preset": "three-requests-4096"})
    assert app.header[0].value.endswith("reserving 4,096 tokens would waste **63%**")
    assert any("97 fit in blocks and 36 if each reserves the context" in text for text in words(app))
    assert [metric.value for metric in app.metric][2] == "63.4%"


@pytest.mark.parametrize(
    "query",
    [
        {"model": "llama-3.1-70b"},  # no pool
        {"model": "llama-3.1-70b", "tp": "2", "context": "131072"},  # a pool, but not one request
        {"tp": "3"},  # refused
        {"mem_fraction_static": "0.1"},  # no pool
    ],
    ids=lambda query: "&".join(f"{name}={value}" for name, value in query.items()),
)
def test_a_plan_that_cannot_run_has_a_page(query):
    app = page(query)
    report = evaluate(Plan(**query))
    assert app.header[0].value == escape_sentence(verdict.ceiling(report).sentence)
    assert not any("Runs, mean" in table.value for table in app.table)
    assert len(app.get("plotly_chart")) == 2


def test_a_plan_that_cannot_run_says_that_there_is_nothing_to_compare():
    assert NOTHING in captions(page({"model": "llama-3.1-70b"}))


@pytest.mark.parametrize(
    "query",
    [
        {"context": "1"},
        {"context": "2"},
        {"block_size": "1"},
        {"block_size": "65536"},
        {"block_size": "65536", "context": "65536", "kv_cache_memory_bytes": "100000000000"},
        {"block_size": "544"},
        {"kv_cache_memory_bytes": "1000000000000000"},
        {"max_num_seqs": "1"},
        {"max_num_seqs": "1048576", "kv_cache_memory_bytes": "1000000000000000"},
        {"max_tokens": "1"},
        {"max_tokens": "16777216"},
        {"shared_prefix_tokens": "16777216"},
        {"tenant_quota_fraction": "0"},
        {"workload": "seeded-200"},
        {"workload": "auto", "output_dist": "fixed"},
        {"workload": "auto", "output_mean": "16777216", "prompt_mean": "16777216"},
        {"spec_method": "eagle3", "spec_tokens": "5"},
        {"model": "deepseek-v3", "tp": "16", "dcp": "4"},
        {"groups": "(sliding1024:5x8x128,full:1x8x128)*10", "async_scheduling": "false"},
        {"model": "gemma-3-27b", "gpu": "h200", "disable_hybrid_kv_cache_manager": "true"},
        {"kv_dtype": "int8_per_token_head", "v_dtype": "int4"},
        {"model": "gpt-oss-20b", "context": "131072", "workload": "mooncake-conversation"},
    ],
    ids=lambda query: "&".join(f"{name}={value}" for name, value in query.items()),
)
def test_every_state_of_a_plan_is_a_page_without_an_exception(query):
    app = page(query)
    assert plan_of(app) == Plan(**query)
    assert_page(app, Plan(**query))


def test_moving_a_widget_moves_the_page():
    app = page({})
    app.select_slider(key="context").set_value(65536).run()
    assert not app.exception
    assert_page(app, Plan(context=65536))


def test_the_plans_row_and_no_other_is_tinted():
    for query, place, number in (({}, 1, 8), ({"block_size": "1"}, 0, 9), ({"block_size": "65536"}, 8, 9)):
        app = page(query)
        (table,) = (table for table in app.table if "Table entries" in table.value)
        assert len(table.value) == number
        styles = table.proto.arrow_data.styler.styles
        assert POOL_FILL in styles
        assert {row for row in range(number) if f"row{row}_" in styles} == {place}


def test_half_a_block_is_set_beside_the_plan():
    assert any(
        caption.startswith("A sequence wastes less than a block, here at most 15 tokens, and half a block or 7.5")
        and "these lengths waste 7.3, 0.97 times that" in caption
        for caption in captions(page({}))
    )
    assert "A block of one token is always full, and wastes nothing." in captions(page({"block_size": "1"}))


def test_a_refusal_with_enough_free_is_said():
    refused = [text.replace("\\", "") for text in captions(page({})) if text.startswith(":material/block:")]
    assert refused[0] == (
        ":material/block: Contiguous, power of two: at step 25 the next request did not fit although 4,368 slots were "
        "free, as the largest extent had 4,096."
    )
    assert len(refused) == 2


def test_the_longest_answer_lowers_what_is_reserved():
    rows = [table_with(page(query), "Runs, mean")["Runs, mean"][0] for query in ({}, {"max_tokens": "100"})]
    assert rows[1] > 2 * rows[0]


# Its controls


def test_the_controls_are_those_of_the_page():
    app = page({})
    assert control(app, "waste_stage").options == list(curves.STAGES)
    assert control(app, "waste_stage").value == "at completion"
    assert control(app, "waste_unit").options == ["share of booked", "tokens a sequence"]
    assert control(app, "allocator").options == list(ALLOCATORS)
    assert control(app, "map_moment").options == ["a quarter in", "half-way", "three quarters in"]
    assert control(app, "map_moment").value == "half-way"


def dot_of(app):
    (dot,) = (trace for trace in spec_of(app, WASTE)["data"] if trace["mode"] == "markers")
    return dot["y"][0]


def test_a_stage_changes_the_waste_and_nothing_else():
    app = page({})
    report = evaluate(Plan())
    others = [spec_of(app, index) for index in (TABLE, SHARES, MAP, EXTENT)]
    for stage in curves.STAGES:
        chosen(app, "waste_stage", stage)
        assert dot_of(app) == pytest.approx(curves.block_waste(report, stage).own_share)
        assert any(f"slots booked and not filled {stage}, on average" in text for text in words(app))
        assert [spec_of(app, index) for index in (TABLE, SHARES, MAP, EXTENT)] == others
        assert app.header[0].value == escape_sentence(verdict.paging(report).sentence)


@pytest.mark.parametrize("query", [{"workload": "seeded-200"}, {"context": "1"}], ids=["no prompts", "context of 1"])
def test_every_stage_of_a_workload_without_prompts_is_a_page(query):
    app = page(query)
    for stage in curves.STAGES:
        for unit in ("share of booked", "tokens a sequence"):
            chosen(app, "waste_stage", stage)
            chosen(app, "waste_unit", unit)


def test_a_unit_changes_the_axis_of_the_waste():
    app = page({})
    curve = curves.block_waste(evaluate(Plan()))
    assert spec_of(app, WASTE)["layout"]["yaxis"]["title"]["text"] == "Wasted, share of booked"
    assert dot_of(app) == pytest.approx(curve.own_share)
    chosen(app, "waste_unit", "tokens a sequence")
    assert spec_of(app, WASTE)["layout"]["yaxis"]["title"]["text"] == "Wasted, tokens per sequence"
    assert dot_of(app) == pytest.approx(curve.own_tokens)


def test_an_allocator_changes_the_runs():
    app = page({})
    assert_page(app, Plan(), "buddy")
    waste = spec_of(app, WASTE)
    chosen(app, "allocator", "first fit")
    assert_page(app, Plan(), "first fit")
    assert spec_of(app, WASTE) == waste
    chosen(app, "allocator", "buddy")
    assert_page(app, Plan(), "buddy")


def test_a_moment_changes_the_map_alone():
    app = page({})
    found = allocation.compared(evaluate(Plan()))
    shares, extent, maps = spec_of(app, SHARES), spec_of(app, EXTENT), []
    for quarter, moment in enumerate(control(app, "map_moment").options):
        chosen(app, "map_moment", moment)
        maps.append(spec_of(app, MAP)["data"])
        step = allocation.step_of(found, quarter)
        assert f"step {step:,} under three" in app.get("plotly_chart")[MAP].proto.alt
        assert (spec_of(app, SHARES), spec_of(app, EXTENT)) == (shares, extent)
    assert maps[0] != maps[1] != maps[2] != maps[0]


def test_choices_stay_where_the_plan_changes():
    app = page({})
    chosen(app, "allocator", "first fit")
    chosen(app, "waste_stage", "over its life")
    app.select_slider(key="context").set_value(65536).run()
    assert not app.exception
    assert control(app, "allocator").value == "first fit"
    assert control(app, "waste_stage").value == "over its life"
    assert_page(app, Plan(context=65536), "first fit")


def test_the_runs_are_made_once_for_each_plan_and_allocator():
    app = page({})
    _, made = app.session_state["allocators"]
    chosen(app, "map_moment", "a quarter in")
    assert app.session_state["allocators"][1] is made
    chosen(app, "allocator", "first fit")
    assert app.session_state["allocators"][1] is not made


def test_charts_have_words_for_those_who_do_not_see_them():
    app = page({})
    alts = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert all(alts)
    assert alts[WASTE] == verdict.plain(verdict.paging(evaluate(Plan())).sentence)
