"""Text from outside is text everywhere: on pages, in figures, in a review and in a terminal."""

import json

import hostile
import pytest
from test_fuzz import NAMES
from test_pages import opened

from kvplan import Plan, charts, evaluate
from kvplan.cli import main
from kvplan.dashboard import share
from kvplan.markdown import JOINER, escape
from kvplan.palette import LIGHT
from kvplan.report import Report

TEXT = (
    "<b>q1</b> ![q2](http://q3.example/x.png) $q4$ :red[q5] :material/q6: [q7](http://q8.example) `q9` www.q10.example"
)
"""One of each kind of markup, each with a mark of its own."""
ACTIVE = ("<b>q1", "![q2", "$q4$", ":red[q5", ":material/q6:", "](http://q8", "`q9`", "www.q10", "http://q3")
"""What would be more than text."""
DRAWN = ("plotly_chart", "code", "text_input", "text_area", "arrow_data_frame")
"""Elements that no markdown is in; figures have a test of their own."""


def active(app) -> list[tuple[str, str]]:
    """Each element of a page that carries markup of the text as it came: its kind, and what."""
    found = []
    for node in app._tree:
        kind = getattr(node, "type", "")
        if kind in DRAWN or getattr(node, "proto", None) is None:
            continue
        words = str(node.proto).encode().decode("unicode_escape", errors="replace")
        found += [(kind, part) for part in ACTIVE if part in words]
    return found


@pytest.mark.parametrize("page", NAMES)
def test_a_link_cannot_bring_markup_to_a_page(page):
    app = opened(hostile.query_with(TEXT), page)
    assert "q1" in app.warning[0].value
    assert any("q1" in caption.value for caption in app.caption) or page in ("help", "engine_log", "guide")
    assert active(app) == []


def test_the_check_above_finds_markup():
    app = opened(hostile.query_with(TEXT))
    app.warning[0].proto.body = TEXT
    assert {part for _, part in active(app)} == set(ACTIVE)


def test_a_log_cannot_bring_markup_to_a_page():
    app = opened({}, "engine_log")
    lines = (
        f"INFO LLM engine (v0.11.0) with config: model='{TEXT.replace(' ', '_')}', max_seq_len=4096",
        f"ERROR ValueError: {TEXT} No available memory for the cache blocks",
    )
    app.text_area(key="log_text").set_value("\n".join(lines)).run()
    assert app.error
    assert active(app) == []


@pytest.mark.parametrize(
    "config",
    [{TEXT: 1}, {"model_type": TEXT}, {"num_hidden_layers": TEXT, "model_type": "llama"}, {"layer_types": [TEXT]}],
)
def test_a_config_cannot_bring_markup_to_a_page(config):
    app = opened()
    app.text_area(key="config_text").set_value(json.dumps(config)).run()
    app.button(key="use_config").click().run()
    assert len(app.error) == 1
    assert active(app) == []


@pytest.mark.parametrize("rows", [f'"{TEXT}",prompt_tokens,output_tokens\n1,2,"{TEXT}"\n1,2,3\n', f'"{TEXT}",b\n1,2\n'])
def test_a_trace_cannot_bring_markup_to_a_page(rows):
    app = opened()
    app.file_uploader(key="trace_file").set_value((f"{TEXT.replace('/', '')}.csv", rows.encode(), "text/csv")).run()
    assert not app.exception
    assert active(app) == []


@pytest.mark.parametrize("text", hostile.MARKUP)
def test_an_escaped_text_is_the_same_text(text):
    assert escape(text).replace("\\", "").replace(JOINER, "") == text.replace("\\", "")


@pytest.fixture(scope="module")
def report() -> Report:
    return evaluate(Plan(spec=hostile.carried(TEXT)))


@pytest.mark.parametrize("name", charts.CHARTS)
def test_a_figure_holds_nothing_of_a_models_free_text(report, name):
    """Plotly draws a part of HTML; names of models have no sign of it, and nothing else from outside is in a figure."""
    drawn = charts.draw(name, report, LIGHT).to_json()
    assert not any(part in drawn for part in (*ACTIVE, "q3.example"))


@pytest.mark.parametrize("ending", ["md", "html"])
def test_a_review_shows_it_as_text(report, ending):
    text = share.review_file(report.plan, "http://localhost/", ending)
    text = text[text.index("<main>") :] if ending == "html" else text
    assert "q1" in text
    assert not any(part in text for part in (ACTIVE if ending == "md" else ACTIVE[:1]))


CONTROLS = "\x1b[31mred\x1b[0m\x07\r\n\x9b2J\u202e"


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--set", f"spec={hostile.carried(CONTROLS)}"],
        ["report", "--link", f"?spec={hostile.carried(CONTROLS)}"],
        ["review", "--link", f"?spec={hostile.carried(CONTROLS)}"],
        ["report", "--link", f"?{CONTROLS}=1&context={CONTROLS}&model={CONTROLS}"],
        ["report", "--set", f"{CONTROLS}=1"],
        ["report", "--set", f"model={CONTROLS}"],
        ["report", "--preset", CONTROLS],
        ["report", "--hf-config", CONTROLS],
        ["report", "--trace", CONTROLS],
        ["report", "--\udcff", "\udcff"],
        ["link", "--base", CONTROLS],
        ["link", "--base", "\udcff"],
        ["check", CONTROLS],
        ["check", "\udcff.toml"],
        ["log", CONTROLS],
        ["log", "\udcff"],
        ["presets", "--find", CONTROLS],
        ["sweep", "--axis", f"context={CONTROLS}"],
        ["sweep", "--axis", "context=1024", "--columns", CONTROLS],
        ["sweep", "--axis", "context=1024", "-o", f"{CONTROLS}.csv"],
        ["figure", CONTROLS],
        ["figure", "ceiling", "-o", f"{CONTROLS}/a.html"],
        ["schema", CONTROLS],
        [CONTROLS],
    ],
    ids=lambda arguments: " ".join(arguments[:2]).encode("ascii", "backslashreplace").decode()[:40],
)
def test_nothing_steers_a_terminal(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) in (0, 2)
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert all(character.isprintable() or character in f"\n{JOINER}" for character in text)
        text.encode()
    assert told.out or len(told.err.splitlines()) <= 5
