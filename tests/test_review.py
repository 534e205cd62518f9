"""The capacity review: one document in two forms, whose figures are the report's, that adds up and loads nothing."""

import re
import sys
from datetime import date

import pytest
from hypothesis import given, settings
from strategies import plans
from test_charts import Tags
from test_cli import READY, assert_one_line, called, printed

from kvplan import Plan, charts, decode_link, evaluate, load_preset, verdict
from kvplan.dashboard.share import review_file
from kvplan.engine_facts import ENGINE_VERSION
from kvplan.markdown import JOINER
from kvplan.palette import LIGHT
from kvplan.review import DETAILS, review
from kvplan.review_html import html
from kvplan.review_markdown import markdown
from kvplan.specs import Source
from kvplan.version import VERSION

CHAT = load_preset(READY)
DAY = date(2026, 7, 24)
HOSTILE = '<img src=x onerror="alert(1)">|`*[link](http://a.b)*`&lt;\n# heading'
ESCAPED = re.compile(r"\\(.)")


def cells(text):
    """The cells of every table of a Markdown, as a reader sees them."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and not set(line) <= set("|-: ")]
    return [ESCAPED.sub(r"\1", cell) for row in rows for cell in re.split(r"(?<!\\) \| ", row[2:-2])]


def sections(found):
    return (*found.front, *found.details)


def titled(found, title):
    return next(section for section in sections(found) if section.title.startswith(title))


@pytest.fixture(scope="module")
def report():
    return evaluate(CHAT)


@pytest.fixture(scope="module")
def document(report):
    return review(report, DAY, "https://plans.example.org/")


@pytest.fixture(scope="module")
def page(report, document):
    return html(document, report)


def test_the_review_opens_with_the_question_and_answers_it_with_the_limit_that_binds(document):
    assert document.question == (
        "How many sequences of 32,768 tokens does Llama 3.1 70B run at once on 4 × H100 SXM, and which limit binds?"
    )
    assert document.answer == "13 sequences of 32,768 tokens fit on 4 × H100 SXM; memory binds"


def test_what_decides_stands_on_the_page_and_the_rest_behind_it(document):
    assert [section.title for section in document.front] == ["Key figures", "Assumptions and notes"]
    assert [table.caption for table in document.front[0].tables] == [
        "Sequences at once",
        "Memory of one device",
        "Use; rates, latencies and costs are estimates",
    ]
    assert {"Held and booked", "Plan", "Sources"} <= {section.title for section in document.details}


def test_the_memory_adds_up_to_the_byte(document, report):
    (table,) = titled(document, "Memory").tables
    *parts, pool = [int(row["Bytes"].replace(",", "")) for row in table.rows]
    assert sum(parts) == pool == report.memory.pool_bytes
    assert parts[0] == report.memory.total_bytes


def test_ceilings_waste_and_rates_are_those_of_the_report(document, report):
    limits = {row["Figure"]: row["Value"] for row in titled(document, "Key figures").tables[0].rows}
    assert limits["By reservation, memory alone"] == str(report.capacity.memory_ceiling) == "13"
    assert limits["On demand, memory alone, a mean"] == str(report.capacity.on_demand_ceiling)
    figures = {
        row["Figure"]: row["Value"]
        for section in sections(document)
        for table in section.tables
        for row in table.rows
        if "Figure" in row
    }
    assert figures["Static"] == f"{100 * report.batching.static_utilisation:.1f}%"
    assert figures["Gain"] == f"{report.batching.gain:.2f}×"
    assert figures["Wasted a sequence"] == f"{report.paging.waste_tokens:.1f} tokens"
    assert figures["Output tokens/s"] == f"{report.throughput.tokens_per_s:,.0f}"
    assert figures["GPUs"] == str(report.fleet.gpus)


def test_the_plan_says_what_is_set_and_what_was_derived(document, report):
    given, derived = ({row["Field"]: row["Value"] for row in table.rows} for table in titled(document, "Plan").tables)
    assert (given["tp"], given["context"], given["kv_dtype"]) == ("4", "32,768", "auto")
    assert (derived["kv_dtype"], derived["block_size"], derived["layers"]) == ("bf16", "16", "80")
    assert not {"tp", "context"} & set(derived)


def test_every_source_is_there_with_its_confidence(document, report):
    own, model, gpu = titled(document, "Sources").tables
    assert {row["Number"]: row["Confidence"] for row in own.rows} == {
        name: source.trust for name, source in report.sources.items()
    }
    assert [row["Source"] for row in model.rows] == [source.text for source in report.setting.model.sources.values()]
    assert len(gpu.rows) == len(report.setting.gpu.sources)


def test_estimates_are_called_estimates(document):
    assert [section.title for section in sections(document) if "estimates" in section.title] == [
        "Throughput and latency, estimates",
        "Fleet and cost, estimates",
    ]
    known = {row["Part"]: row["How it is known"] for row in titled(document, "Memory").tables[0].rows}
    assert known["Activation peak"] == "estimate"


def test_the_review_says_by_what_and_when_it_was_made_and_its_link_opens_the_plan(document):
    assert document.made == f"kvplan {VERSION}, rules of {ENGINE_VERSION}, 2026-07-24"
    assert document.link.startswith("https://plans.example.org/?v=1&")
    assert decode_link(document.link) == (CHAT, [])


def test_markdown_and_html_say_the_same_figures(document, page):
    shown = Tags(page)
    words = " ".join(" ".join(shown.words).split())
    # Nothing is seen of what keeps an address from being made a link.
    text = markdown(document).replace(JOINER, "")
    table_cells = [word for word in cells(text) if word]
    assert len(table_cells) > 200
    assert [cell for cell in table_cells if " ".join(cell.split()) not in words] == []
    for line in re.findall(r"^- (.*)$", text, re.M):
        assert ESCAPED.sub(r"\1", line) in words
    assert document.answer in words


def test_the_page_holds_four_charts_of_the_plan_and_loads_nothing(page, document):
    shown = Tags(page)
    assert shown.loads == [document.link]
    assert shown.tags.count("a") == 1
    assert document.charts == ("ceiling", "batching", "waste", "throughput")
    # The library once, and one call for each chart.
    assert shown.tags.count("script") == 5
    assert page.count("Plotly.newPlot(") >= 4


def test_the_page_is_light_and_its_tables_and_charts_are_not_broken_in_print(page):
    style = page.split("<style>")[1].split("</style>")[0]
    assert f"--page: {LIGHT.page};" in style
    assert "@page" in style
    assert re.search(r"@media print \{.*\.table, \.chart, table, tr, li \{ break-inside: avoid; \}", style, re.S)


@pytest.fixture(scope="module")
def hostile():
    """A model whose name and sources are hostile; a link's may not have such a name, but any source."""
    model = load_preset("llama-3.1-8b", "model")
    sources = dict.fromkeys(model.sources, Source(text=HOSTILE))
    return evaluate(Plan(), model=model.model_copy(update={"name": HOSTILE, "sources": sources}))


def test_names_from_a_link_are_text_in_html(hostile):
    name = hostile.setting.model.name
    assert "<img" in name
    shown = Tags(html(review(hostile, DAY), hostile))
    assert not {"img", "a"} & set(shown.tags)
    assert shown.loads == []
    assert any("<img src=x" in word for word in shown.words)


def test_names_from_a_link_are_text_in_markdown(hostile):
    text = markdown(review(hostile, DAY))
    assert "<img" not in text.replace("\\<img", "")
    assert "](http" not in text.replace("\\]\\(http", "")
    assert "&lt;" not in text.replace("\\&lt;", "")
    assert text.count("\n# ") == text.count(f"\n# {DETAILS}\n") == 1
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| Number")}
    assert widths == {4}


def test_an_address_that_is_none_of_the_web_is_no_link(report):
    assert "a" not in Tags(html(review(report, DAY, "javascript:alert(1)//"), report)).tags


@pytest.mark.parametrize(
    ("plan", "titles"),
    [
        (Plan(tp=3), {"Key figures", "Ceilings by context", "Memory of one device", "Plan", "Sources"}),
        (Plan(model="llama-3.1-405b"), {"Key figures", "Memory of one device", "Plan", "Sources"}),
        (Plan(model="falcon-mamba-7b"), {"Waste", "Throughput and latency, estimates"}),
        (Plan(kv_cache_memory_bytes=2**36), {"Memory of one device", "Fleet and cost, estimates"}),
        (Plan(workload="auto"), {"Fleet and cost, estimates"}),
    ],
)
def test_a_plan_of_any_kind_has_a_review_in_both_forms(plan, titles):
    report = evaluate(plan)
    found = review(report, DAY)
    assert titles <= {section.title for section in sections(found)}
    assert found.answer.startswith(verdict.plain(verdict.ceiling(report).sentence))
    assert markdown(found).startswith("# Capacity review")
    assert "<main>" in html(found, report)


@settings(max_examples=25)
@given(plans())
def test_any_plan_of_known_presets_has_a_review(plan):
    report = evaluate(plan)
    if report.setting is not None:
        found = review(report, DAY)
        assert markdown(found).count("\n## ") == len(sections(found))
        assert set(found.charts) <= set(charts.CHARTS)


# The command, and the dashboard


def test_the_command_writes_what_python_gives(report, tmp_path):
    base = ["--base", "http://localhost:8501/"]
    found = review(report, date.today(), base[1])
    assert printed("review", "--preset", READY, *base) == markdown(found)
    for ending, text in (("md", markdown(found)), ("html", html(found, report))):
        path = tmp_path / f"review.{ending}"
        assert printed("review", "--preset", READY, *base, "-o", str(path)) == ""
        assert path.read_text(encoding="utf-8") == text


def test_the_dashboard_hands_out_the_same_files(report):
    found = review(report, date.today(), "http://localhost:8501/")
    assert review_file(CHAT, "http://localhost:8501/", "md") == markdown(found)
    assert review_file(CHAT, "http://localhost:8501/", "html") == html(found, report)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-o", "review.pdf"], "-o: must end in .md, .html, got 'review.pdf'"),
        (["-o", "no/such/folder/review.md"], "-o: no/such/folder/review.md cannot be written"),
        (["--set", "model=llama-9"], "model: no preset named"),
    ],
)
def test_what_cannot_be_written_is_one_line(arguments, named):
    run = called("review", *arguments)
    assert_one_line(run)
    assert named in run.stderr


def test_markdown_needs_no_plotly_and_html_says_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert printed("review").startswith("# Capacity review")
    run = called("review", "-o", "review.html")
    assert_one_line(run)
    assert "needs plotly, which comes with pip install 'kvplan[dashboard]'" in run.stderr
