"""The page of an engine's log: what was pasted beside its prediction, and the plan it makes."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from streamlit.testing.v1 import AppTest
from test_engine_log import SGLANG, V0, V1, damaged, ranks_log
from test_log_comparison import NO_ROOM, PLAIN, pool, started, tokens, weights

from kvplan import EngineLog, Plan, decode_link, parse_engine_log, verdict
from kvplan.links import short_query
from kvplan.log_comparison import compare, table
from kvplan.log_text import MAX_BYTES
from kvplan.markdown import escape, escape_sentence

APP = str(Path(__file__).parents[1] / "app.py")
PAGE = "kvplan/dashboard/pages/engine_log.py"


def opened(text: str = "", query: dict[str, str] | None = None) -> AppTest:
    """The page with a log pasted into it."""
    app = AppTest.from_file(APP, default_timeout=30)
    for name, value in (query or {}).items():
        app.query_params[name] = value
    app.run()
    app.switch_page(PAGE).run()
    if text:
        pasted(app, text)
    assert not app.exception
    return app


def pasted(app: AppTest, text: str) -> AppTest:
    app.text_area(key="log_text").set_value(text).run()
    assert not app.exception
    return app


def plan_of(app: AppTest) -> Plan:
    return app.session_state["session"].plan


def buttons(app: AppTest) -> set[str]:
    return {button.key for button in app.button}


def figures(app: AppTest) -> pd.DataFrame:
    """The table of what was measured beside what was predicted."""
    (found,) = (shown.value for shown in app.main.table if "Measured" in shown.value)
    return found


def words(app: AppTest) -> str:
    return "\n".join(element.value for kind in (app.markdown, app.caption, app.subheader) for element in kind)


def test_an_empty_page_asks_for_a_log():
    app = opened()
    assert app.header[0].value == "Paste your engine's log"
    assert app.text_area(key="log_text").value == ""
    assert not app.subheader
    assert not app.error
    assert "calibrate" not in buttons(app)


@pytest.mark.parametrize("text", [" ", "\n\n", "\t"])
def test_a_text_of_spaces_is_no_log(text):
    assert not opened(text).subheader


def test_a_pasted_log_shows_its_verdict_and_its_figures():
    app = opened(PLAIN)
    found = compare(parse_engine_log(PLAIN), base=Plan())
    assert app.subheader[0].value == escape_sentence(verdict.engine_log(found))
    assert "51.36 GiB" in app.subheader[0].value
    assert figures(app).to_dict("records") == table(found.rows)
    assert list(figures(app)["Measured"]) == ["14.99", "51.36", "420,736", "12.84"]
    assert list(figures(app)["Predicted"]) == ["14.96", "51.36", "420,736", "12.84"]
    assert not app.error


def test_every_reason_and_every_open_question_is_shown():
    text = started(weights(70.5), pool(40.0), tokens(98_304), tp=2, model="acme/model-7b")
    app = opened(text, {"model": "llama-3.1-8b"})
    found = compare(parse_engine_log(text), base=Plan())
    assert len(found.reasons) >= 2
    assert found.missing
    shown = words(app)
    assert all(escape(reason.sentence) in shown and escape(reason.name) in shown for reason in found.reasons)
    assert all(escape(line) in shown for line in found.missing)


def test_every_figure_is_shown_with_its_line():
    app = opened(PLAIN)
    (found,) = (shown.value for shown in app.main.table if "Field" in shown.value)
    log = parse_engine_log(PLAIN)
    assert set(found["Field"].str.replace("\\", "")) == set(log.lines)
    assert list(found["Line"].astype(int)) == sorted(number for number, _ in log.lines.values())


def test_a_failed_start_shows_its_error():
    app = opened(started(NO_ROOM, length=131_072))
    (error,) = app.error
    assert error.value.startswith("This start failed: To serve at least one request")
    assert {"Needed for one request", "Suggested length"} <= set(figures(app)["Figure"])


@pytest.mark.parametrize(
    "text", ["hello", "{", "\u202e\u0000\ufffd", "<script>alert(1)</script>", "[a](http://x)", "█" * 5000]
)
def test_a_text_without_a_start_says_that_none_was_found(text):
    app = opened(f"x{text}")
    assert app.subheader[0].value == escape_sentence(verdict.engine_log(compare(EngineLog())))
    assert "No start-up" in app.subheader[0].value
    assert any("nothing of a start-up was found" in caption.value for caption in app.caption)
    assert "calibrate" not in buttons(app)
    assert not [shown for shown in app.main.table if "Measured" in shown.value]


@pytest.mark.parametrize("text", [V0, V1, SGLANG, ranks_log(8.5, 8.11), NO_ROOM])
def test_a_log_of_any_engine_is_a_page(text):
    log = parse_engine_log(text)
    assert log.engine in opened(text).subheader[0].value.lower()


def test_a_log_cannot_carry_markup():
    name = "acme/<b>![a](http://x/y.png)`:red[a]`"
    shown = words(opened(started(pool(9.0), model="**x**[y](http://z)") + f"\nINFO model='{name}'"))
    assert "![a](" not in shown
    assert "[y](http" not in shown
    assert "<b>" not in shown.replace("\\<b\\>", "")


def test_what_the_log_leaves_open_is_the_sidebars():
    app = opened(pool(20.0), {"model": "gemma-3-27b", "gpu": "h200"})
    found = compare(parse_engine_log(pool(20.0)), base=Plan(model="gemma-3-27b", gpu="h200"))
    assert figures(app).to_dict("records") == table(found.rows)
    app.select_slider(key="context").set_value(65536).run()
    assert not app.exception
    assert app.text_area(key="log_text").value == pool(20.0)


def test_make_this_my_plan_opens_the_calibrated_plan():
    text = started(weights(14.9889), pool(54.61), tokens(447_360), tp=2, length=16_384, utilization=0.85)
    app = opened(text, {"max_num_seqs": "64"})
    calibrated = compare(parse_engine_log(text), base=Plan(max_num_seqs=64)).calibrated
    assert plan_of(app) == Plan(max_num_seqs=64)
    app.button(key="calibrate").click().run()
    assert not app.exception
    assert plan_of(app) == calibrated
    assert (calibrated.tp, calibrated.context, calibrated.max_num_seqs) == (2, 16_384, 64)
    assert dict(app.query_params) == short_query(calibrated)


def test_the_link_of_the_calibrated_plan_opens_it():
    app = opened(PLAIN)
    calibrated = compare(parse_engine_log(PLAIN), base=Plan()).calibrated
    # It is written when its popover is opened.
    app.session_state["calibrated_link"] = True
    app.run()
    links = [decode_link(code.value) for code in app.main.code]
    assert (calibrated, []) in links


def test_another_log_takes_the_place_of_the_first():
    app = opened(PLAIN)
    pasted(app, started(pool(9.5)))
    assert "9.5 GiB" in app.subheader[0].value
    pasted(app, "")
    assert not app.subheader


def test_the_page_reads_no_more_than_the_parser():
    assert opened().text_area(key="log_text").proto.max_chars == MAX_BYTES


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_any_log_is_a_page_without_an_exception(text):
    opened(text)
