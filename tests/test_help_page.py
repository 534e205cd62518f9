"""The Help page shows every document, with links that work in the app, and says so where there are none."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from kvplan import Plan, accuracy, decode_link, rate_accuracy
from kvplan.dashboard import documents
from kvplan.dashboard.documents import FOLDER, TITLES, Document, Table, linked, parts
from kvplan.engine_facts import ENGINE_VERSION
from kvplan.version import VERSION

APP = str(Path(__file__).parents[1] / "app.py")
PAGE = "kvplan/dashboard/pages/help.py"
LINKS = re.compile(r"\]\(([^)\s]+)\)")


def opened(query: dict[str, str] | None = None) -> AppTest:
    app = AppTest.from_file(APP, default_timeout=30)
    for name, value in (query or {}).items():
        app.query_params[name] = value
    app.run()
    app.switch_page(PAGE).run()
    assert not app.exception
    return app


def shown(name: str) -> str:
    """What Help shows of a document as Markdown, for a plan with tp 4; long tables are plain text."""
    found = parts(documents.documents(FOLDER)[TITLES[name]], FOLDER, "tp=4")
    cells = (
        part if isinstance(part, str) else [] if part.long else map(" ".join, map(dict.values, part.rows))
        for part in found
    )
    return "\n".join(text if isinstance(text, str) else "\n".join(text) for text in cells)


def test_help_opens_with_the_accuracy_and_shows_every_start_up():
    app = opened()
    assert app.header[0].value == "Accuracy"
    assert [len(table.value) for table in app.dataframe[:2]] == [
        len(accuracy.pool_table()),
        len(accuracy.figure_table()),
    ]
    assert any(f"kvplan {VERSION}, by the rules of {ENGINE_VERSION}." in caption.value for caption in app.caption)


def test_every_document_of_the_folder_is_offered_but_the_index():
    assert {path.stem for path in FOLDER.glob("*.md")} - {"README"} == set(TITLES)
    assert list(documents.documents(FOLDER)) == list(TITLES.values())
    assert opened().segmented_control(key="document").options == list(TITLES.values())


@pytest.mark.parametrize("name", TITLES)
def test_an_address_opens_a_document_beside_the_plan(name):
    app = opened({"tp": "4", "doc": name})
    document = documents.documents(FOLDER)[TITLES[name]]
    assert app.header[0].value == document.title
    assert app.session_state["session"].plan == Plan(tp=4)
    assert not app.warning
    text = "\n".join(element.value for element in app.markdown)
    assert all(heading in text for heading in re.findall(r"^## .+$", documents.CODE.sub("", document.text), re.M))


def test_the_control_opens_another_document_and_an_unknown_one_is_the_first():
    app = opened({"doc": "limits"})
    app.segmented_control(key="document").set_value("Glossary").run()
    assert app.header[0].value == "Glossary"
    assert opened({"doc": "secrets"}).header[0].value == "Accuracy"


def test_the_long_tables_are_tables_of_their_own_with_numbers_as_numbers():
    app = opened({"doc": "throughput"})
    assert [len(table.value) for table in app.dataframe] == [len(rate_accuracy.points())]
    table = app.dataframe[0].value
    assert table["Ratio"].dtype == float
    assert table["Ratio"].between(0, 2).all()
    assert not any("`" in str(cell) for cell in table.to_numpy().ravel())


@pytest.mark.parametrize("name", TITLES)
def test_every_link_of_a_document_leads_to_a_plan_a_document_or_a_heading(name):
    for link in LINKS.findall(documents.CODE.sub("", shown(name))):
        if link.startswith("./?"):
            assert decode_link(link)[1] == []
        elif link.startswith("./help?tp=4&doc="):
            other, _, anchor = link.removeprefix("./help?tp=4&doc=").partition("#")
            assert other in TITLES
            assert not anchor or f"(#{anchor})" in documents.contents(documents.documents(FOLDER)[TITLES[other]])
        elif link.startswith("#"):
            assert f"({link})" in documents.contents(documents.documents(FOLDER)[TITLES[name]])
        else:
            assert link.startswith("https://")


@pytest.mark.parametrize(
    ("heading", "github", "app"),
    [
        ("Block size", "block-size", "block-size"),
        ("Any model's config.json", "any-models-configjson", "any-models-config-json"),
        ("8. vLLM and SGLang on GPUs", "8-vllm-and-sglang-on-gpus", "8-v-llm-and-sg-lang-on-gpus"),
        ("max_model_len on GB10", "max_model_len-on-gb10", "max-model-len-on-gb-10"),
    ],
)
def test_an_anchor_of_github_becomes_that_of_streamlit(heading, github, app):
    """As the browser shows them: Streamlit parts words at capitals, GitHub does not."""
    assert documents.github_anchor(heading) == github
    assert documents.app_anchor(github, f"Text\n\n### {heading}\n") == app


def test_a_link_to_a_file_that_help_does_not_show_is_its_words():
    assert linked("see [samples](samples) and [formulas.md](formulas.md)", "", FOLDER, "") == (
        "see samples and [Formulas](./help?doc=formulas)"
    )


def test_a_short_table_keeps_its_markdown_and_a_long_one_has_text_and_numbers():
    row = "| 1,024 | `x` | [formulas.md](formulas.md) |\n"
    for rows, expected in (
        (3, {"a": "1,024", "b": "`x`", "c": "[Formulas](./help?doc=formulas)"}),
        (40, {"a": 1024.0, "b": "x", "c": "[Formulas](./help?doc=formulas)"}),
    ):
        text = "One\n\n| a | b | c |\n|---|---|---|\n" + row * rows + "\nTwo\n"
        before, table, after = parts(Document("limits", "Limits", text), FOLDER, "")
        assert (before, after) == ("One\n\n", "\nTwo\n")
        assert table == Table([expected] * rows, long=rows == 40)


def test_without_documents_help_says_so_in_one_line(tmp_path, monkeypatch):
    assert documents.documents(tmp_path) == {}
    monkeypatch.setattr(documents, "FOLDER", tmp_path)
    app = opened()
    assert [line.value for line in app.info] == [
        "The documents are not here: they come with the source tree, in docs/."
    ]
    assert not app.header


def test_files_are_read_once(tmp_path, monkeypatch):
    (tmp_path / "limits.md").write_text("# Limits\n\nText\n")
    first = documents.documents(tmp_path)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: SimpleNamespace())
    assert documents.documents(tmp_path) is first
    assert first == {"Limits": Document("limits", "Limits", "\nText\n")}
