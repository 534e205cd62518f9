"""The Compare page, driven without a browser."""

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from test_pages import opened, plan_of, spec_of, table_with

from kvplan import Plan, compare_words, evaluate
from kvplan.compare import results
from kvplan.comparison_json import to_json
from kvplan.dashboard import share
from kvplan.dashboard.sidebar import ready_plans
from kvplan.links import decode_comparison, encode_comparison
from kvplan.markdown import escape_sentence

CHAT = Plan(model="llama-3.1-70b", tp=4, context=32768)
EIGHT = CHAT.model_copy(update={"tp": 8})
QUERY = {"model": "llama-3.1-70b", "tp": "4", "context": "32768"}


def comparing(query: dict[str, str] | None = None) -> AppTest:
    return opened(query, "compare")


def others_of(app: AppTest) -> list[Plan]:
    return app.session_state["session"].others


def ceilings(app: AppTest) -> list[str]:
    return [metric.value for metric in app.metric]


def test_one_plan_alone_has_its_tile_and_the_ways_to_add_another():
    app = comparing(QUERY)
    assert app.header[0].value == escape_sentence("**Nothing beside this plan** yet")
    assert ceilings(app) == ["13"]
    assert {"compare_keep", "compare_add_ready", "compare_add_link", "compare_with fp8 KV"} <= {
        button.key for button in app.button
    }
    assert not app.get("plotly_chart")


def test_a_link_opens_all_its_plans_with_tiles_tables_and_charts():
    app = comparing(QUERY | {"b.tp": "8", "c.kv_dtype": "fp8", "d.tp": "1"})
    plans = [CHAT, EIGHT, *(CHAT.model_copy(update=change) for change in ({"kv_dtype": "fp8"}, {"tp": 1}))]
    reports = [evaluate(plan) for plan in plans]
    assert [plan_of(app), *others_of(app)] == plans
    assert app.header[0].value == escape_sentence(compare_words.opening(reports).sentence)
    assert ceilings(app) == ["13", "40", "27", "0"]
    assert len(app.get("plotly_chart")) == 4
    assert {trace.get("name") for trace in spec_of(app)["data"]} >= {"A", "B", "C"}
    assert list(table_with(app, "Input")["Input"]) == ["tp", "kv\\_dtype"]
    counted = [table.value for table in app.table if "What it counts" in table.value]
    assert len(counted[0]) == len(results(reports))
    assert not app.warning


def test_keeping_the_plan_and_moving_a_slider_sets_the_two_apart():
    app = comparing(QUERY)
    app.button(key="compare_keep").click().run()
    assert others_of(app) == [CHAT]
    app.segmented_control(key="tp").set_value(8).run()
    assert (plan_of(app), others_of(app)) == (EIGHT, [CHAT])
    assert ceilings(app) == ["40", "13"]
    assert not app.exception


def test_a_variant_stands_beside_the_plan_with_one_click():
    app = comparing(QUERY)
    app.button(key="compare_with fp8 KV").click().run()
    assert others_of(app) == [CHAT.model_copy(update={"kv_dtype": "fp8"})]


def test_a_ready_plan_is_added():
    app = comparing(QUERY)
    name, ready = next(iter(ready_plans().items()))
    app.selectbox(key="compare_ready").set_value(name).run()
    app.button(key="compare_add_ready").click().run()
    assert evaluate(others_of(app)[0]).capacity == evaluate(ready.plan).capacity


def test_a_pasted_link_adds_its_plans_and_says_what_it_dropped():
    app = comparing(QUERY)
    link = encode_comparison([EIGHT, CHAT], "http://localhost:8501/compare") + "&colour=red"
    app.text_input(key="compare_link").set_value(link).run()
    app.button(key="compare_add_link").click().run()
    assert others_of(app) == [EIGHT, CHAT]
    assert "colour" in app.warning[0].value


def test_more_plans_than_there_is_room_for_are_left_out_with_a_word():
    app = comparing(QUERY | {"b.tp": "8", "c.tp": "2"})
    app.text_input(key="compare_link").set_value(encode_comparison([CHAT, EIGHT])).run()
    app.button(key="compare_add_link").click().run()
    assert len(others_of(app)) == 3
    assert "at most 4 plans, 1 left out" in app.warning[0].value
    assert app.button(key="compare_keep").disabled


def test_a_plan_changes_places_with_the_sidebars():
    app = comparing(QUERY | {"b.tp": "8", "c.tp": "2"})
    app.button(key="compare_open_B").click().run()
    assert [plan_of(app), *others_of(app)] == [EIGHT, CHAT, CHAT.model_copy(update={"tp": 2})]
    assert app.segmented_control(key="tp").value == 8


def test_a_removed_plan_leaves_its_place_to_the_next():
    app = comparing(QUERY | {"b.tp": "8", "c.tp": "2"})
    app.button(key="compare_remove_B").click().run()
    assert others_of(app) == [CHAT.model_copy(update={"tp": 2})]


def test_the_address_carries_every_plan_and_keeps_up_with_the_sidebar():
    app = comparing(QUERY | {"b.tp": "8"})
    app.segmented_control(key="tp").set_value(8).run()
    app.select_slider(key="context").set_value(8192).run()
    assert decode_comparison(app.query_params)[0][1] == EIGHT
    assert others_of(app) == [EIGHT]


def test_other_pages_show_the_first_plan_with_a_note_and_keep_the_rest_for_compare():
    app = opened(QUERY | {"b.tp": "8"})
    assert plan_of(app) == CHAT
    assert "of 2 plans this is the first" in app.info[0].value
    assert not app.warning
    assert not [name for name in app.query_params if "." in name]
    app.switch_page("kvplan/dashboard/pages/compare.py").run()
    assert others_of(app) == [EIGHT]
    assert app.query_params["b.tp"] == "8"
    assert not app.info


def test_plans_that_cannot_run_or_are_alike_stand_side_by_side():
    app = comparing({"b.tp": "3", "c.model": "falcon-mamba-7b", "d.model": "llama-3.1-8b"})
    assert not app.exception
    assert ceilings(app)[1] == "0"
    assert isinstance(table_with(app, "Input"), pd.DataFrame)


def test_a_saved_comparison_is_added_from_its_file():
    app = comparing(QUERY)
    content = to_json([EIGHT, CHAT]).replace('"tp": 8', '"tp": 8, "colour": "red"')
    app.file_uploader(key="compare_file").upload("kvplan-comparison.json", content.encode(), "application/json").run()
    app.button(key="compare_add_file").click().run()
    assert others_of(app) == [EIGHT, CHAT]
    assert "Ignored from the file" in app.warning[0].value


@pytest.mark.parametrize("content", [b"", b"\x00", b"[]", b'{"plans": []}'])
def test_a_file_without_plans_is_refused_in_one_line(content):
    app = comparing(QUERY)
    app.file_uploader(key="compare_file").upload("a.json", content, "application/json").run()
    assert app.error[0].value.startswith("The file ")
    assert others_of(app) == []


def test_the_sidebar_opens_a_comparison_too_and_says_where_the_others_are():
    app = opened(QUERY)
    app.session_state["plan_file"] = True
    app.run()
    app.file_uploader(key="open_plan").upload("c.json", to_json([EIGHT, CHAT]).encode(), "application/json").run()
    app.button(key="use_plan").click().run()
    assert (plan_of(app), others_of(app)) == (EIGHT, [CHAT])
    assert "of 2 plans this is the first" in app.info[0].value


def test_plans_too_long_for_a_link_are_passed_on_as_their_file(monkeypatch):
    some = [CHAT, *(CHAT.model_copy(update={"tp": tp}) for tp in (1, 2, 8))]
    monkeypatch.setattr(share, "MAX_COMPARISON", len(share.written(share.LINK, some)))
    for less, form in ((0, share.LINK), (1, share.JSON)):
        monkeypatch.setattr(share, "MAX_COMPARISON", share.MAX_COMPARISON - less)
        app = comparing(QUERY | {"b.tp": "1", "c.tp": "2", "d.tp": "8"})
        app.session_state["copy_link"] = True
        app.run()
        assert app.code[0].value == share.written(form, some).strip()
