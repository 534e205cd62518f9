"""What leaves and enters the dashboard, and the way back, driven without a browser."""

import json

import pytest
from test_pages import opened, plan_of

from kvplan import Plan, decode_link, encode_link, evaluate, load_preset, metrics, verdict
from kvplan.dashboard import share
from kvplan.links import short_query
from kvplan.markdown import escape
from kvplan.plan_json import plan_from_json, to_json
from kvplan.recorded import results_of
from kvplan.snippet import snippet
from kvplan.version import VERSION

ADDRESS = "/"
"""What a page without a browser is at."""
PLAN = Plan(model="llama-3.1-70b", tp=4, context=32768)


def link_of(plan, **changed):
    """A full link as the address gives it to the app, with parts of its own changed."""
    query = dict(pair.split("=", 1) for pair in encode_link(plan).removeprefix("?").split("&"))
    return query | changed


def shared(page, key="copy_link", query=None, form=None):
    """The text to copy on a page, once the popover is open."""
    app = opened(query or short_query(PLAN), page)
    app.session_state[key] = True
    app.run()
    if form is not None:
        app.segmented_control(key=f"{key}_form").set_value(form).run()
    assert not app.exception
    # A page may show code of its own.
    (code,) = (code.value for code in app.code if not code.value.startswith("python -m"))
    return code


# To copy


def test_nothing_is_written_before_it_is_looked_at():
    app = opened(short_query(PLAN))
    assert not app.code
    assert not [button for button in app.get("download_button") if button.label.startswith("Review")]


def test_the_link_is_the_full_link_of_the_plan():
    assert shared("ceiling") == encode_link(PLAN, ADDRESS)


PAGES = {
    "ceiling": (verdict.ceiling, metrics.ceiling),
    "batching": (verdict.batching, metrics.batching),
    "paging": (verdict.paging, metrics.paging),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_markdown_is_the_answer_of_the_page_with_its_figures(page):
    report, (answer, figures) = evaluate(PLAN), PAGES[page]
    expected = snippet(answer(report), figures(report), encode_link(PLAN, ADDRESS)).strip()
    assert shared(page, form=share.MARKDOWN) == expected


def test_the_json_is_the_plan_as_a_file():
    assert shared("ceiling", form=share.JSON) == to_json(PLAN).strip()


@pytest.mark.parametrize("page", ["pool", "throughput", "levers", "fleet", "sweep"])
@pytest.mark.parametrize("form", share.ABOUT)
def test_every_page_gives_its_plan_in_every_form(page, form):
    text = shared(page, form=form)
    if form == share.JSON:
        assert plan_from_json(text) == (PLAN, [])
    else:
        link = text.partition("](")[2].partition(")")[0] if form == share.MARKDOWN else text
        assert decode_link(link) == (PLAN, [])


def test_a_plan_that_is_not_the_pages_has_the_answer_of_the_ceiling_page():
    text = shared("sweep", "sweep_link", form=share.MARKDOWN)
    link = text.partition("](")[2].partition(")")[0]
    plan, notes = decode_link(link)
    report = evaluate(plan)
    assert notes == []
    assert text == snippet(verdict.ceiling(report), metrics.ceiling(report), link).strip()


# What a link recorded


def notes_of(app):
    return [warning.value.replace("\\", "") for warning in app.warning]


def captions_of(app):
    return [caption.value.replace("\\", "") for caption in app.caption if "recorded" in caption.value]


def test_a_link_whose_results_are_those_of_today_says_so_in_one_quiet_line():
    app = opened(link_of(PLAN))
    assert not app.warning
    (line,) = captions_of(app)
    assert "are still those the link recorded" in line
    app.select_slider(key="context").set_value(65536).run()
    assert captions_of(app) == []


def test_a_link_with_other_results_is_a_warning_until_the_plan_changes():
    before = results_of(PLAN)
    recorded = f"{before.batch_ceiling - 1}.{before.kv_cache_tokens}.{before.pool_bytes}"
    app = opened(link_of(PLAN, made="0.0.1", r=recorded))
    (warning,) = notes_of(app)
    assert f"kvplan 0.0.1, now {VERSION}" in warning
    assert "- Batch ceiling: 12 → 13 sequences, +1 (+8.3%)" in warning
    assert "KV cache tokens:" not in warning
    app.run()
    assert notes_of(app) == [warning]
    app.select_slider(key="context").set_value(65536).run()
    assert not app.warning


def test_a_link_that_says_nothing_of_its_making_says_nothing():
    app = opened(short_query(PLAN))
    assert not app.warning
    assert captions_of(app) == []


def test_a_link_with_its_version_alone_names_it():
    app = opened(short_query(PLAN) | {"made": "0.0.1"})
    assert any(
        "written by kvplan 0.0.1 and carries no results" in caption.value.replace("\\", "") for caption in app.caption
    )


def test_a_damaged_link_has_its_notes_and_says_that_the_comparison_is_of_another_plan():
    app = opened(link_of(PLAN, tp="0"))
    ignored, differs = notes_of(app)
    assert "tp: " in ignored
    assert "Not all of the link was read" in differs


def test_the_recorded_results_are_those_of_the_link_and_not_of_what_its_widgets_round_to():
    app = opened(link_of(Plan(weights_gib=14.96)))
    assert plan_of(app) == Plan()
    assert not app.warning


def test_a_version_out_of_a_link_is_no_markup():
    app = opened({"made": "<b>*x*</b> :red[y]"})
    assert any(escape("<b>*x*</b> :red[y]") in caption.value for caption in app.caption)


@pytest.mark.parametrize("page", ["engine_log", "guide", "help", "paging"])
def test_every_page_shows_what_a_link_recorded(page):
    app = opened(link_of(PLAN, r="1.2.3"), page)
    assert "This link recorded other results" in notes_of(app)[0]


# Files


def uploaded(app, content):
    app.session_state["plan_file"] = True
    app.run()
    app.file_uploader(key="open_plan").upload("plan.json", content).run()
    assert not app.exception
    return app


def test_a_saved_plan_opens_as_the_same_plan_and_the_address_follows():
    app = uploaded(opened({"layers": "40"}), to_json(PLAN).encode())
    assert plan_of(app) == Plan(layers=40)
    app.button(key="use_plan").click().run()
    assert plan_of(app) == PLAN
    assert dict(app.query_params) == short_query(PLAN)
    assert not app.warning


def test_what_a_file_would_change_is_said_before_it_is_opened():
    app = uploaded(opened(), to_json(Plan(tp=4)).encode())
    assert "Its plan: tp 1 → 4" in [caption.value.replace("\\", "") for caption in app.caption]


def test_what_a_file_has_wrong_is_named_until_the_plan_changes():
    app = uploaded(opened(), b'{"tp": 4, "context": -1, "<b>colour</b>": 1}')
    app.button(key="use_plan").click().run()
    assert plan_of(app) == Plan(tp=4)
    (warning,) = app.warning
    assert warning.value.startswith("Ignored from the file:")
    assert "context" in warning.value
    assert escape("<b>colour</b>") in warning.value
    app.select_slider(key="context").set_value(65536).run()
    assert not app.warning


def test_a_file_with_very_much_wrong_has_a_short_warning():
    app = uploaded(opened(), json.dumps({f"no field {number}": 1 for number in range(5_000)}).encode())
    app.button(key="use_plan").click().run()
    (warning,) = app.warning
    assert "4,980 more parts were left out" in warning.value
    assert len(warning.value.splitlines()) == 22


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\x89PNG\r\n", b'{"a":' * 50_000])
def test_a_file_that_is_no_plan_is_one_error_and_changes_nothing(content):
    app = uploaded(opened({"tp": "2"}), content)
    (error,) = app.error
    assert error.value.startswith("The file ")
    assert len(error.value.splitlines()) == 1
    assert not [button for button in app.button if button.key == "use_plan"]
    assert plan_of(app) == Plan(tp=2)


# Undo


def history_of(app):
    app.session_state["history"] = True
    app.run()
    return [button for button in reversed(app.button) if (button.key or "").startswith("history ")]


def label(button):
    return button.label.replace("\\", "")


def test_a_fresh_session_has_nothing_to_undo():
    app = opened()
    assert app.button(key="undo").disabled
    assert app.button(key="redo").disabled
    (entry,) = history_of(app)
    assert (label(entry), entry.disabled) == ("**as it was opened**", True)


def test_undo_takes_back_one_change_after_the_other_and_says_which():
    app = opened()
    app.segmented_control(key="tp").set_value(4).run()
    app.select_slider(key="context").set_value(32768).run()
    assert app.button(key="undo").help == "Undo: context 8192 → 32768"
    app.button(key="undo").click().run()
    assert plan_of(app) == Plan(tp=4)
    assert dict(app.query_params) == {"tp": "4"}
    assert app.select_slider(key="context").value == 8192
    assert app.button(key="undo").help == "Undo: tp 1 → 4"
    assert app.button(key="redo").help == "Redo: context 8192 → 32768"
    app.button(key="undo").click().run()
    assert plan_of(app) == Plan()
    assert app.button(key="undo").disabled
    app.button(key="redo").click().run()
    assert plan_of(app) == Plan(tp=4)


def test_a_dragged_slider_is_one_step():
    app = opened({"tp": "2"})
    for layers in (33, 34, 35, 36):
        app.slider(key="layers").set_value(layers).run()
    app.button(key="undo").click().run()
    assert plan_of(app) == Plan(tp=2)


def test_models_ready_plans_files_and_configs_are_changes_like_any():
    app = opened()
    app.selectbox(key="model").set_value("llama-3.1-70b").run()
    app.selectbox(key="ready_plan").set_value("llama-405b-8xh200").run()
    uploaded(app, to_json(PLAN).encode()).button(key="use_plan").click().run()
    labels = [label(entry) for entry in history_of(app)]
    assert len(labels) == 4
    assert [labels[0], labels[1]] == ["as it was opened", "model llama-3.1-8b → llama-3.1-70b"]
    assert labels[3].startswith("**model llama-3.1-405b → llama-3.1-70b")
    for plan in (load_preset("llama-405b-8xh200"), Plan(model="llama-3.1-70b"), Plan()):
        app.button(key="undo").click().run()
        assert plan_of(app) == plan
    assert app.selectbox(key="model").value == "llama-3.1-8b"


def test_undo_brings_back_the_overrides_that_another_model_took_along():
    app = opened({"layers": "40", "tp": "2"})
    app.selectbox(key="model").set_value("llama-3.1-70b").run()
    app.button(key="undo").click().run()
    assert plan_of(app) == Plan(layers=40, tp=2)
    assert app.slider(key="layers").value == 40


def test_the_list_goes_to_any_plan_and_keeps_the_others():
    app = opened()
    app.segmented_control(key="tp").set_value(4).run()
    app.select_slider(key="context").set_value(32768).run()
    app.slider(key="layers").set_value(40).run()
    entries = history_of(app)
    assert [entry.disabled for entry in entries] == [False, False, False, True]
    entries[1].click().run()
    assert plan_of(app) == Plan(tp=4)
    assert app.session_state["history"] is False
    assert [entry.disabled for entry in history_of(app)] == [False, True, False, False]


def test_undo_leaves_no_note_of_a_link_behind():
    app = opened({"tp": "4", "colour": "red"})
    app.select_slider(key="context").set_value(65536).run()
    app.button(key="undo").click().run()
    assert plan_of(app) == Plan(tp=4)
    assert not app.warning


def test_a_name_in_the_list_is_no_markup():
    app = opened()
    app.text_input(key="price_date").set_value("2026-11").run()
    app.text_input(key="groups").set_value("(full:1x8x128)*10").run()
    assert history_of(app)[-1].label == f"**{escape('groups auto → (full:1x8x128)*10')}**"


def test_the_list_goes_along_to_other_pages():
    app = opened()
    app.segmented_control(key="tp").set_value(4).run()
    app.switch_page("kvplan/dashboard/pages/paging.py").run()
    app.button(key="undo").click().run()
    assert plan_of(app) == Plan()
