"""The Sweep page, driven without a browser: its axes, what it says of a bad one, and a cell that becomes the plan."""

import shlex

import pandas as pd
import pytest
from test_pages import opened, plan_of, spec_of

from kvplan import Plan, evaluate, presets
from kvplan.dashboard import sweep_inputs
from kvplan.links import short_query
from kvplan.markdown import escape, escape_sentence
from kvplan.sweep_axes import axis
from kvplan.sweep_grid import QUANTITIES, Map, grid, limit_of, own_cell
from kvplan.sweep_words import axis_note, legend, metrics, opening, table

NAMED = {quantity.name: quantity for quantity in QUANTITIES}
LARGE = Plan(model="llama-3.1-70b", tp=4, context=32768)


def page(plan=LARGE):
    return opened(short_query(plan), "sweep")


def pills(app):
    (found,) = [group for group in app.get("button_group") if group.key.startswith("sweep_third")]
    return found


def captions(app):
    return [caption.value for caption in app.caption]


def cells(app):
    """Texts of the map's cells, in the order in which they are drawn."""
    (bars,) = [trace for trace in spec_of(app)["data"] if trace["type"] == "bar"]
    return bars["text"]


def assert_map(app, plan, quantity="Batch ceiling", fields=("context", "tp", "kv_dtype"), limit=None, **texts):
    """Verdict, numbers, notes, legend and table are those of that map."""
    report, shown = evaluate(plan), NAMED[quantity]
    x, y, *others = (axis(report, field, texts.get(field, "")) for field in fields)
    third = others[0] if others else None
    chosen = third.texts.index(pills(app).value) if third else 0
    found = Map(grid(plan, shown, x, y, third), chosen)
    limit = limit_of(report, shown, limit)
    assert app.header[0].value == escape_sentence(opening(found, limit).sentence)
    assert [metric.value for metric in app.metric] == [metric.value for metric in metrics(found, own_cell(plan, shown))]
    assert escape(legend(found, limit)) in captions(app)
    for each in (x, y, *others):
        assert escape(axis_note(report, each)) in captions(app)
    pd.testing.assert_frame_equal(app.dataframe[0].value, pd.DataFrame(table(found)), check_dtype=False)
    assert spec_of(app)["data"][0]["x"]


def test_every_ready_plan_has_a_page():
    app = page(Plan())
    for name in presets("plan"):
        app.selectbox(key="ready_plan").set_value(name).run()
        assert not app.exception
        assert_map(app, plan_of(app))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(model="llama-3.1-405b"),
        Plan(tp=3),
        Plan(model="gpt-oss-120b", tp=16),
        Plan(model="falcon-mamba-7b", gpu="tpu-v4"),
        Plan(context=1, kv_cache_memory_bytes=0),
        Plan(context=2**24, layers=4096, kv_heads=4096, head_dim=65536, kv_dtype="fp32"),
        Plan(tenant_quota_fraction=0, max_num_seqs=1),
    ],
    ids=["does not fit", "refused", "refused model", "states alone", "no pool", "beyond", "no quota"],
)
def test_every_state_of_a_plan_is_a_page_without_an_exception(plan):
    app = page(plan)
    assert plan_of(app) == plan
    assert_map(app, plan)


def test_every_quantity_is_a_map():
    app = page(Plan())
    for quantity in NAMED:
        app.selectbox(key="sweep_quantity").set_value(quantity).run()
        assert not app.exception
        assert_map(app, Plan(), quantity)


def test_the_axes_may_be_changed_and_swapped():
    app = page()
    app.selectbox(key="sweep_x").set_value("tp").run()
    assert not app.exception
    assert app.selectbox(key="sweep_y").value == "context"
    assert_map(app, LARGE, fields=("tp", "context", "kv_dtype"))
    app.selectbox(key="sweep_x").set_value("gpu").run()
    assert app.selectbox(key="sweep_y").value == "context"  # what was not touched stays
    assert_map(app, LARGE, fields=("gpu", "context", "kv_dtype"))


def test_an_axis_is_never_offered_twice():
    app = page()
    names = [app.selectbox(key=f"sweep_{place}").options for place in ("x", "y", "third")]
    assert "Context, tokens" in names[0]
    assert "Context, tokens" not in [*names[1], *names[2]]
    assert "Tensor parallel, devices" not in names[2]


def test_values_that_are_typed_are_the_ones_shown():
    app = page()
    app.text_input(key="sweep_values_tp").set_value("2,16").run()
    app.text_input(key="sweep_values_context").set_value("1000:5000:lin5").run()
    assert_map(app, LARGE, tp="2,16", context="1000:5000:lin5")
    assert any("This plan is not on the map" in caption for caption in captions(app))
    app.text_input(key="sweep_values_tp").set_value("").run()
    app.text_input(key="sweep_values_context").set_value("").run()
    assert_map(app, LARGE)


def test_a_text_that_cannot_be_read_is_said_with_what_is_shown_in_its_place():
    app = page()
    app.text_input(key="sweep_values_tp").set_value("2,4").run()
    for text in ("1,2,many", "0,1", "8:1:x2", "1:64:1", "1:1e9:x1"):
        app.text_input(key="sweep_values_tp").set_value(text).run()
        assert not app.exception
        (said,) = [caption for caption in captions(app) if caption.startswith(":red[")]
        with pytest.raises(ValueError, match=r"^tp: ") as error:
            axis(evaluate(LARGE), "tp", text)
        assert said == f":red[{escape(str(error.value))}. Shown is still 2,4]"
        assert app.dataframe[0].value["Tensor parallel, devices"].unique().tolist() == [2, 4]
    app.text_input(key="sweep_values_tp").set_value("2,8").run()
    assert not any(caption.startswith(":red[") for caption in captions(app))
    assert_map(app, LARGE, tp="2,8")


def test_a_map_with_too_many_plans_says_so_and_the_plan_stands():
    app = page()
    app.text_input(key="sweep_values_context").set_value("1024:131072:lin40").run()
    app.text_input(key="sweep_values_tp").set_value("1:40:1").run()
    assert not app.exception
    (error,) = app.error
    assert "at most 1,600 plans" in error.value
    assert not app.get("plotly_chart")
    assert app.metric[0].value == str(evaluate(LARGE).capacity.batch_ceiling)
    app.selectbox(key="sweep_third").set_value(sweep_inputs.NONE).run()
    assert not app.error
    assert len(cells(app)) == 1600


def test_the_third_axis_is_one_value_at_a_time_and_may_be_none():
    app = page()
    assert pills(app).value == "bf16"
    before = cells(app)
    pills(app).set_value("fp8").run()
    assert not app.exception
    assert_map(app, LARGE)
    assert cells(app) != before
    app.selectbox(key="sweep_third").set_value(sweep_inputs.NONE).run()
    assert_map(app, LARGE, fields=("context", "tp"))
    assert cells(app) == before


def test_a_limit_is_drawn_and_said_and_belongs_to_its_quantity():
    app = page()
    app.number_input(key="sweep_limit_capacity.batch_ceiling").set_value(64).run()
    assert_map(app, LARGE, limit=64)
    assert any(line.get("line", {}).get("dash") == "dash" for line in spec_of(app)["data"])
    app.selectbox(key="sweep_quantity").set_value("TPOT").run()
    assert app.header[0].value.startswith("**TPOT of 50 ms or less**")
    app.selectbox(key="sweep_quantity").set_value("Batch ceiling").run()
    assert_map(app, LARGE, limit=64)


def test_a_map_over_models_and_gpus():
    app = page(Plan())
    app.selectbox(key="sweep_x").set_value("model").run()
    app.selectbox(key="sweep_y").set_value("gpu").run()
    app.text_input(key="sweep_values_model").set_value("llama-3.1-8b,gpt-oss-20b,gpt-3").run()
    assert_map(app, Plan(), fields=("model", "gpu", "kv_dtype"), model="llama-3.1-8b,gpt-oss-20b,gpt-3")
    app.text_input(key="sweep_values_model").set_value("llama-3.1-8b,nothing").run()
    assert any("no preset named" in caption and ":red[" in caption for caption in captions(app))


def test_values_to_begin_with_follow_the_plan_until_they_are_typed():
    app = page(Plan())
    assert app.text_input(key="sweep_values_tp").value == "1,2,4,8"
    app.select_slider(key="context").set_value(512).run()
    assert app.text_input(key="sweep_values_context").value == "512:131072:x2"
    app.text_input(key="sweep_values_context").set_value("4096,8192").run()
    app.select_slider(key="context").set_value(1048576).run()
    assert app.text_input(key="sweep_values_context").value == "4096,8192"


def test_what_is_chosen_outlives_a_visit_to_another_page():
    app = page()
    app.selectbox(key="sweep_y").set_value("gpu").run()
    app.text_input(key="sweep_values_gpu").set_value("h200,b200").run()
    app.switch_page("kvplan/dashboard/pages/paging.py").run()
    app.switch_page("kvplan/dashboard/pages/sweep.py").run()
    assert app.text_input(key="sweep_values_gpu").value == "h200,b200"
    assert_map(app, LARGE, fields=("context", "gpu", "kv_dtype"), gpu="h200,b200")


def test_a_move_in_the_sidebar_moves_the_map_and_the_same_plan_is_counted_once():
    app = page()
    _, made = app.session_state["sweep_grid"]
    app.run()
    assert app.session_state["sweep_grid"][1] is made
    app.number_input(key="max_num_seqs").set_value(16).run()
    assert app.session_state["sweep_grid"][1] is not made
    assert_map(app, LARGE.model_copy(update={"max_num_seqs": 16}))


def test_a_cell_is_chosen_by_its_values_and_opens_as_the_plan_on_the_first_page():
    app = page()
    assert app.selectbox(key="sweep_cell_context").value == "32768"
    assert app.selectbox(key="sweep_cell_tp").value == "4"
    pills(app).set_value("fp8").run()
    app.selectbox(key="sweep_cell_context").set_value("8192").run()
    app.selectbox(key="sweep_cell_tp").set_value("8").run()
    chosen = LARGE.model_copy(update={"context": 8192, "tp": 8, "kv_dtype": "fp8"})
    ceiling = evaluate(chosen).capacity.batch_ceiling
    assert any(f"**{ceiling} sequences**" in markdown.value for markdown in app.markdown)
    app.button(key="sweep_open").click().run()
    assert not app.exception
    assert plan_of(app) == chosen
    assert app.header[0].value.startswith(f"**{ceiling} sequences**")
    assert app.metric[0].label == "Batch ceiling"
    assert app.metric[0].value == str(ceiling)


def test_a_cell_that_does_not_run_opens_too():
    app = page()
    app.selectbox(key="sweep_cell_tp").set_value("1").run()
    assert any("does not fit" in markdown.value for markdown in app.markdown)
    app.button(key="sweep_open").click().run()
    assert plan_of(app) == LARGE.model_copy(update={"tp": 1})


def test_the_command_is_there_with_every_axis():
    app = page()
    words = shlex.split(app.code[-1].value)
    assert words[:4] == ["python", "-m", "kvplan", "sweep"]
    assert {"--axis", "context=1024:131072:x2", "tp=1,2,4,8", "kv_dtype=bf16,fp8,int4"} <= set(words)
    assert "model=llama-3.1-70b" in words


def test_the_map_has_words_for_those_who_do_not_see_it():
    app = page()
    (chart,) = app.get("plotly_chart")
    assert chart.proto.alt.startswith("Batch ceiling from 1 to ")
