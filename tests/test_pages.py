"""The dashboard's pages, driven without a browser."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import streamlit as st
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from streamlit.testing.v1 import AppTest

from kvplan import (
    Plan,
    catalog,
    decode_link,
    encode_link,
    evaluate,
    load_preset,
    metrics,
    model_from_hf_config,
    plan_json,
    verdict,
)
from kvplan.dashboard import controls, frame, inputs, sidebar, trace_reader
from kvplan.hf_config import MAX_MB
from kvplan.links import short_query
from kvplan.log_text import MAX_MIB
from kvplan.markdown import escape, escape_sentence
from kvplan.texts import spec_text

APP = str(Path(__file__).parents[1] / "app.py")
PAGES = {"ceiling": verdict.ceiling, "batching": verdict.batching, "paging": verdict.paging}
METRICS = {"ceiling": metrics.ceiling, "batching": metrics.batching, "paging": metrics.paging}


MORE = [f"more_{part}" for part in ("model", "hardware", "startup", "rates", "serving", "workload", "targets")]
FOLDED = (
    "sources",
    "sources_model",
    "sources_gpu",
    "step_parts",
    "pool_figures",
    "lever_sources",
    "compare_counted",
    "finder",
    "trace",
    *MORE,
)
"""Parts of pages and of the sidebar that are drawn when they are open."""


def opened(query: dict[str, str] | None = None, page: str = "ceiling") -> AppTest:
    app = AppTest.from_file(APP, default_timeout=30)
    for part in FOLDED:
        app.session_state[part] = True
    for name, value in (query or {}).items():
        app.query_params[name] = value
    app.run()
    if page != "ceiling":
        app.switch_page(f"kvplan/dashboard/pages/{page}.py").run()
    assert not app.exception
    return app


def drawn_fields(app: AppTest) -> set[str]:
    kinds = ("selectbox", "slider", "select_slider", "number_input", "text_input", "toggle", "button_group")
    return {widget.key for kind in kinds for widget in app.get(kind)} & set(Plan.model_fields)


def plan_of(app: AppTest) -> Plan:
    return app.session_state["session"].plan


def table_with(app: AppTest, column: str) -> pd.DataFrame:
    """The one table of a page that has this column."""
    (found,) = (table.value for table in app.table if column in table.value)
    return found


def spec_of(app: AppTest, index: int = 0) -> dict:
    return json.loads(app.get("plotly_chart")[index].proto.spec)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_with_its_verdict_and_four_numbers(page):
    app = opened({"model": "llama-3.1-70b", "tp": "4", "context": "32768"}, page)
    report = evaluate(Plan(model="llama-3.1-70b", tp=4, context=32768))
    assert app.header[0].value == escape_sentence(PAGES[page](report).sentence)
    assert [metric.value for metric in app.metric] == [metric.value for metric in METRICS[page](report)]
    assert all(metric.help for metric in app.metric)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    "query",
    [
        {"model": "llama-3.1-70b"},  # no pool
        {"model": "llama-3.1-70b", "tp": "2", "context": "131072"},  # a pool, but not one request
        {"tp": "3"},  # refused by the engine
        {"context": "1"},
        {"context": "16777216"},
        {"gpu_memory_gib": "0.1"},
        {"kv_cache_memory_bytes": "0"},
        {"kv_cache_memory_bytes": "1000000000000000"},
        {"batch": "1"},
        {"block_size": "1"},
        {"block_size": "65536"},
        {"workload": "auto", "output_dist": "fixed"},
        {"workload": "seeded-200"},
        {"admission": "on_demand", "context": "131072"},
        {"max_num_seqs": "1"},
        {"tenant_quota_fraction": "0"},
        {"layers": "4096", "kv_heads": "4096", "head_dim": "65536", "kv_dtype": "fp32"},
        {"pp": "64", "tp": "64"},
        {"kv_dtype": "int8_per_token_head", "v_dtype": "int4"},
        {"model": "gemma-3-27b", "context": "131072"},
        {
            "model": "qwen3-next-80b-a3b",
            "tp": "4",
            "enable_prefix_caching": "false",
            "spec_method": "mtp",
            "spec_tokens": "2",
        },
        {"model": "deepseek-v3", "tp": "16", "dcp": "4"},
        {"model": "gpt-oss-120b", "tp": "16"},  # refused
        {"groups": "(sliding1024:5x8x128,full:1x8x128)*10", "async_scheduling": "false"},
        {"engine_version": "v0.7.3.post1", "enforce_eager": "true"},
        {"mem_fraction_static": "0.1"},  # no pool
        {"mem_fraction_static": "0.99", "engine_version": "0.11"},  # activations exceed the rest of the device
        {"non_torch_gib": "1", "cuda_graph_gib": "0", "activation_gib": "0"},
        {"workspace_gib": "0.5", "non_torch_gib": "1"},
        {"model": "falcon-mamba-7b", "gpu": "tpu-v4"},
        {"model": "deepseek-v4-flash", "tp": "8"},
        {"model": "palm-540b", "tp": "16"},
        {"non_torch_gib": "1048576", "cuda_graph_gib": "1048576"},  # their sum is more than its own field may have
        {"model": "llama-4-scout-17b-16e", "gpu": "mi300x", "context": "1000000"},
    ],
    ids=lambda query: "&".join(f"{name}={value}" for name, value in query.items()),
)
def test_every_state_of_a_plan_is_a_page_without_an_exception(page, query):
    app = opened(query, page)
    assert plan_of(app) == Plan(**query)


def test_the_sidebar_has_a_bound_widget_with_help_for_every_field():
    app = opened()
    found = {widget.key: widget for kind in KINDS for widget in app.get(kind)}
    assert set(Plan.model_fields) <= set(found)
    assert all(found[name].help for name in Plan.model_fields)


KINDS = ("selectbox", "slider", "select_slider", "number_input", "button_group", "text_input", "checkbox", "toggle")


def test_moving_a_widget_moves_plan_and_page():
    app = opened()
    app.select_slider(key="context").set_value(65536).run()
    assert plan_of(app) == Plan(context=65536)
    assert app.metric[0].value == str(evaluate(Plan(context=65536)).capacity.batch_ceiling)


def test_a_widget_moved_back_to_the_automatic_value_leaves_the_field_open():
    app = opened({"layers": "40"})
    assert plan_of(app).layers == 40
    app.slider(key="layers").set_value(32).run()
    assert plan_of(app) == Plan()


def test_a_value_equal_to_the_automatic_one_is_not_an_override():
    app = opened({"layers": "32", "weights_gib": "14.96", "kv_dtype": "bf16", "gpu_memory_gib": "79.1"})
    assert plan_of(app) == Plan()


def test_choosing_a_model_clears_what_came_with_the_former():
    of_model = {"layers": "40", "kv_heads": "4", "weights_gib": "20", "activation_gib": "3", "cuda_graph_gib": "2"}
    app = opened(of_model | {"tp": "2", "non_torch_gib": "1"})
    app.selectbox(key="model").set_value("llama-3.1-70b").run()
    assert plan_of(app) == Plan(model="llama-3.1-70b", tp=2, non_torch_gib=1)
    assert app.slider(key="layers").value == 80


def test_choosing_a_gpu_clears_what_came_with_the_former():
    start_up = {"activation_gib": "3", "non_torch_gib": "1", "cuda_graph_gib": "2", "workspace_gib": "4"}
    app = opened(start_up | {"gpu_memory_gib": "60", "context": "4096"})
    app.selectbox(key="gpu").set_value("l4").run()
    assert plan_of(app) == Plan(gpu="l4", context=4096)


def test_a_ready_plan_sets_every_field_and_is_named():
    app = opened({"layers": "40", "tp": "2"})
    assert app.selectbox(key="ready_plan").value == sidebar.CUSTOM
    app.selectbox(key="ready_plan").set_value("llama-405b-8xh200").run()
    assert plan_of(app) == Plan(model="llama-3.1-405b", gpu="h200", tp=8, weight_dtype="fp8", context=131072)
    app.select_slider(key="context").set_value(65536).run()
    assert app.selectbox(key="ready_plan").value == "llama-405b-8xh200"
    assert any("modified" in markdown.value for markdown in app.markdown)


def test_a_ready_plan_that_is_not_offered_changes_nothing(monkeypatch):
    """The browser sends what it shows, "Custom plan", even where a change has just made that a ready plan."""
    state = {"ready_plan": "Custom plan"}
    monkeypatch.setattr(st, "session_state", state)
    controls._choose_ready_plan()
    assert state == {"ready_plan": "Custom plan"}


def test_a_preset_link_opens_the_plan_and_the_address_carries_its_fields():
    app = opened({"preset": "llama-70b-chat-4xh100", "context": "16384"})
    assert plan_of(app) == Plan(model="llama-3.1-70b", tp=4, context=16384)
    assert dict(app.query_params) == {"model": "llama-3.1-70b", "tp": "4", "context": "16384"}


def test_what_a_link_has_wrong_is_named_until_the_plan_changes_and_the_rest_opens():
    app = opened({"tp": "4", "colour": "red", "context": "many", "v": "99"})
    (warning,) = app.warning
    assert all(word in warning.value for word in ("colour", "context", "the link was written in format 99"))
    assert plan_of(app) == Plan(tp=4)
    app.select_slider(key="context").set_value(65536).run()
    assert not app.warning


def test_a_full_link_survives_a_page_switch():
    plan = Plan(model="qwen3-30b-a3b", spec_tokens=3, tenant_quota_fraction=0.25, v_dtype="int8", usage="llm_class")
    query = dict(pair.split("=", 1) for pair in encode_link(plan).removeprefix("?").split("&"))
    app = opened(query, "paging")
    assert plan_of(app) == plan


def test_estimates_and_recalled_figures_say_so():
    app = opened({"model": "gpt-3", "gpu": "rtx4090"})
    captions = [caption.value for caption in app.caption]
    assert any("GPT-3" in caption and "recalled" in caption for caption in captions)
    assert any("RTX 4090" in caption and "estimate" in caption for caption in captions)
    assert "estimate" in app.number_input(key="activation_gib").label


def test_a_broken_preset_is_named_in_the_sidebar(tmp_path, monkeypatch):
    folder = tmp_path / "presets"
    shutil.copytree(catalog.presets_dir(), folder)
    (folder / "gpus" / "broken.json").write_text('{"id": "broken", "name": "Broken"}')
    monkeypatch.setattr(catalog, "presets_dir", lambda: folder)
    app = opened()
    assert any(
        "broken" in warning.value and "bytes: Field required" in warning.value.replace("\\", "")
        for warning in app.warning
    )
    monkeypatch.undo()
    catalog.refresh()


def test_charts_draw_the_plan_and_what_is_chosen_to_compare():
    app = opened({"model": "llama-3.1-70b", "tp": "4", "context": "32768"})
    assert {"reserve", "on demand", "fp8 KV", "tp 8"} <= {trace.get("name") for trace in spec_of(app)["data"]}
    pills = next(group for group in app.get("button_group") if group.key.startswith("pills"))
    pills.set_value([]).run()
    assert "fp8 KV" not in {trace.get("name") for trace in spec_of(app)["data"]}


def test_the_batching_page_shows_the_seeded_example_to_the_digit():
    app = opened({"workload": "seeded-200", "batch": "16", "step_s": "0.02"}, "batching")
    words = [element.value for element in (*app.markdown, *app.caption)]
    assert {"**Static: 5,797 steps, 14.3% used**", "**Continuous: 1,148 steps, 72.3% used**"} <= set(words)
    assert any("115.9 s and 1.7 requests/s against 23.0 s and 8.7 requests/s, 5.05 times" in text for text in words)
    assert any("Exponential lengths would use 30% at batch 16" in text for text in words)
    assert len(app.get("plotly_chart")) == 3


def test_equal_lengths_tie_on_the_batching_page():
    app = opened({"workload": "auto", "output_dist": "fixed", "output_mean": "100", "batch": "16"}, "batching")
    words = [element.value for element in app.markdown]
    assert {"**Static: 1,300 steps, 96.2% used**", "**Continuous: 1,300 steps, 96.2% used**"} <= set(words)
    app = opened({"workload": "seeded-200", "batch": "16"}, "batching")
    app.segmented_control(key="backlog_lengths").set_value("all equal").run()
    assert not app.exception
    assert any("96.2% used" in element.value for element in app.markdown)


def test_the_table_has_the_plans_row():
    app = opened({"context": "10007"})
    assert 10007 in list(table_with(app, "Context, tokens")["Context, tokens"])


QUERIES = some.dictionaries(
    some.sampled_from([*Plan.model_fields, "preset", "v", "r", "junk"]),
    some.one_of(some.text(max_size=8), some.integers().map(str), some.floats().map(str), some.just("auto")),
    max_size=6,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(QUERIES)
def test_any_address_gives_a_page_without_an_exception(query):
    app = opened(query)
    assert app.header


def test_plan_to_widgets_and_back_is_the_same_plan():
    changed = Plan(kv_dtype="fp8", layers=7, batch=3, v_dtype="int8", tenant_quota_fraction=0.5)
    started = Plan(engine_version="0.11", mem_fraction_static=0.8, non_torch_gib=1.0, cuda_graph_gib=2.0)
    for plan in (Plan(), changed, started, Plan(workspace_gib=0.5, enforce_eager=True)):
        automatic = sidebar.automatic_values(plan)
        shown = sidebar.to_widgets(plan, automatic)
        none = NONE_SHOWN if plan.workspace_gib is None else NONE_SHOWN | PARTS_OF_WORKSPACE
        assert all(value is not None or name in none for name, value in shown.items())
        seeded = {name: [value] for name, value in automatic.items()}
        assert sidebar.from_widgets(shown, seeded, plan, set(short_query(plan))) == (plan, [])


NONE_SHOWN = {
    "kv_cache_memory_bytes",
    "tenant_quota_fraction",
    "max_tokens",
    "mem_fraction_static",
    "step_s",
    "prefix_hit_rate",
    "acceptance_rate",
}
PARTS_OF_WORKSPACE = {"non_torch_gib", "cuda_graph_gib"}
"""Fields that no estimate stands in for where their sum is given."""


def test_an_automatic_value_of_a_moment_ago_is_no_override():
    seeded = {name: [value] for name, value in sidebar.automatic_values(Plan()).items()}
    seeded["weights_gib"] = [15.0, 15.4, 15.9]
    shown = {name: values[-1] for name, values in seeded.items()} | {"weights_gib": 15.0}
    shown = {name: "auto" if name in inputs.WORD_NONE else value for name, value in shown.items()}
    assert sidebar.from_widgets(shown, seeded, Plan(), set()) == (Plan(), [])
    assert sidebar.from_widgets(shown, seeded, Plan(), {"weights_gib"}) == (Plan(weights_gib=15.0), [])


def test_a_text_that_cannot_be_read_leaves_its_field_and_says_why():
    app = opened({"groups": "full:8x8x128"})
    app.text_input(key="groups").set_value("full:8").run()
    assert plan_of(app) == Plan(groups="full:8x8x128")
    assert "groups" in app.error[0].value
    app.text_input(key="groups").set_value("sliding1024:8x8x128").run()
    assert plan_of(app) == Plan(groups="sliding1024:8x8x128")
    assert not app.error


CONFIG = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
        "vocab_size": 262208,
    },
}


def test_a_pasted_config_becomes_a_plan_whose_link_carries_the_model():
    app = opened({"context": "32768", "layers": "5"})
    app.text_area(key="config_text").set_value(json.dumps(CONFIG)).run()
    app.button(key="use_config").click().run()
    assert not app.exception
    plan = plan_of(app)
    model = model_from_hf_config(CONFIG)
    assert plan.layers is None
    assert evaluate(plan).engine == evaluate(Plan(context=32768), model=model).engine
    assert decode_link(encode_link(plan)) == (plan, [])
    app.button(key="drop_spec").click().run()
    assert plan_of(app) == Plan(context=32768)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": "bert"}', '{"model_type": "x", "mamba_d_state": 16}'])
def test_a_config_that_cannot_be_read_says_why_and_changes_nothing(text):
    app = opened()
    app.text_area(key="config_text").set_value(text).run()
    app.button(key="use_config").click().run()
    assert not app.exception
    assert len(app.error) == 1
    assert plan_of(app) == Plan()


@pytest.mark.parametrize("model", ["gemma-3-27b", "gpt-oss-20b", "gpt-oss-120b", "deepseek-v3", "qwen3-next-80b-a3b"])
def test_every_kind_of_layer_has_its_row_with_a_reason(model):
    app = opened({"model": model, "gpu": "h200", "tp": "8", "context": "32768"})
    report = evaluate(Plan(model=model, gpu="h200", tp=8, context=32768))
    costs = table_with(app, "Blocks/request")
    assert list(costs["Blocks/request"]) == [cost.blocks for cost in report.breakdown]
    captions = [caption.value for caption in app.caption]
    assert all(any(cost.reason in caption for caption in captions) for cost in report.breakdown)
    assert [caption for caption in captions if caption in report.remarks] == list(report.remarks)


def test_a_hybrids_sliders_say_which_layers_they_move():
    app = opened({"model": "gemma-3-27b"})
    assert app.slider(key="layers").label == "Full-attention layers"
    assert app.slider(key="layers").value == 10
    app.slider(key="layers").set_value(20).run()
    groups = app.session_state["report"].setting.model.groups
    assert sum(group.layers for group in groups if group.kind == "sliding") == 52
    assert sum(group.layers for group in groups if group.kind == "full") == 20


def test_a_model_without_plain_attention_has_no_such_sliders():
    app = opened({"model": "deepseek-v3"})
    assert "layers" not in {slider.key for slider in app.slider}


def test_inputs_cover_the_plan():
    assert set(inputs.HELP) == set(Plan.model_fields)
    assert set(inputs.AUTOMATIC) | set(inputs.BOUNDS) | set(inputs.CHOICES) <= set(Plan.model_fields)


def test_streamlit_still_has_what_the_address_needs():
    from streamlit.runtime.scriptrunner import ScriptRunContext
    from streamlit.runtime.state.query_params import QueryParams

    replacing = ("populate_from_query_string", "set_initial_query_params", "set_with_no_forward_msg", "remove_param")
    for name in (*replacing, "get_binding_for_param", "unbind_widget"):
        assert callable(getattr(QueryParams, name))
    assert "is_history_navigation" in ScriptRunContext.__dataclass_fields__


def test_the_server_is_configured_as_the_project_means_it():
    names = [
        "runner.postScriptGC",
        "server.enableXsrfProtection",
        "server.enableCORS",
        "server.maxUploadSize",
        "browser.gatherUsageStats",
        "client.showErrorDetails",
    ]
    code = f"import streamlit as st; print([st.get_option(name) for name in {names}])"
    root = Path(APP).parent
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == f"[False, True, True, {trace_reader.MAX_TRACE_MB + 1}, False, 'none']"


def test_the_server_takes_every_file_that_an_uploader_offers_to_take():
    """It refuses larger ones whatever an uploader says, and counts what frames a file on its way; so does the proxy."""
    root = Path(APP).parent
    most = tomllib.loads((root / ".streamlit/config.toml").read_text())["server"]["maxUploadSize"]
    for limit in (trace_reader.MAX_TRACE_MB, MAX_MB, plan_json.MAX_MB, MAX_MIB):
        assert limit < most
    assert f"client_max_body_size {most}m;" in (root / "deploy/nginx.conf").read_text()


@pytest.mark.parametrize("name", ["[a](http://x)", "![a](http://x/y.png)", "<b>", "`a`", "a\nb", "$x$", ":red[a]", ""])
def test_a_link_cannot_carry_markup_in_a_name(name):
    model = load_preset("llama-3.1-8b", "model").model_copy(update={"name": name})
    app = opened({"spec": spec_text(model), "tp": "2"})
    assert plan_of(app) == Plan(tp=2)
    assert "spec" in app.warning[0].value


def test_text_is_escaped_for_markdown():
    assert escape("<b>[x](y)`$") == r"\<b\>\[x\]\(y\)\`\$"


def test_a_downloaded_table_holds_no_formula_and_its_numbers_as_they_are():
    rows = pd.DataFrame({"=name": ["@a", "+1", "b"], "ceiling": [1, -2, 3], "cost": [0.5, None, -1.25]})
    assert frame.csv_text(rows).splitlines() == ["'=name,ceiling,cost", "'@a,1,0.5", "+1,-2,", "b,3,-1.25"]


def test_streamlit_is_the_version_the_widgets_were_tried_with():
    assert st.__version__.startswith("1.67.")


def test_what_is_folded_away_is_not_drawn_until_it_is_opened_and_then_stays():
    app = AppTest.from_file(APP, default_timeout=30).run()
    assert drawn_fields(app) == set(controls.ALWAYS_DRAWN)
    rates = {"bandwidth_efficiency", "compute_efficiency", "step_overhead_s"}
    for is_open in (True, False):
        app.session_state["more_rates"] = is_open
        app.run()
        assert drawn_fields(app) == rates | set(controls.ALWAYS_DRAWN)


@pytest.mark.parametrize("query", [{"dp": "2"}, {"price_date": "2026-11"}, {"weights_gib": "20"}])
def test_a_plan_that_sets_a_field_folded_away_has_every_control(query):
    app = AppTest.from_file(APP, default_timeout=30)
    for name, value in query.items():
        app.query_params[name] = value
    assert drawn_fields(app.run()) == set(Plan.model_fields)
    assert plan_of(app) == Plan(**query)
