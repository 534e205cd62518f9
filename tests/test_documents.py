"""The documents say what the code computes: every figure and every link of docs/ and the README."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
from test_cli import printed

from kvplan import accuracy_document, decode_link, evaluate, rate_document
from kvplan.expectations import EXPECTATIONS

ROOT = Path(__file__).parents[1]
WHY = (ROOT / "docs" / "why-the-engine-says-something-else.md").read_text(encoding="utf-8")
PLAN = re.compile(r"^\| \[(?P<title>[^]]+)\]\(http://localhost:8501/\?(?P<query>[^)]+)\) \| (?P<figures>.+) \|$", re.M)
FIGURE = re.compile(r"`([a-z_.]+)` (\d+(?:,\d{3})*(?:\.\d+)?|True|False)")
SECTION = re.compile(r"^## (\d+)\. .+$", re.M)
PLANS = [match.groupdict() for match in PLAN.finditer(WHY)]


def as_printed(value) -> str:
    """A figure as the document writes it."""
    return f"{value:,.2f}" if isinstance(value, float) else str(value) if isinstance(value, bool) else f"{value:,}"


def figure(report: dict, path: str):
    for name in path.split("."):
        report = report[name]
    return report


@pytest.mark.parametrize(("name", "written"), [("accuracy", accuracy_document), ("throughput", rate_document)])
def test_a_document_is_what_the_code_computes(name, written):
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == written.document()


def test_twenty_differences_are_explained_and_each_has_plans_that_show_it():
    sections = SECTION.split(WHY)[1:]
    assert [int(number) for number in sections[::2]] == list(range(1, 21))
    assert all(PLAN.search(text) for text in sections[1::2])
    assert WHY.count("http://localhost:8501/") == len(PLANS)


@pytest.mark.parametrize("row", PLANS, ids=[row["title"] for row in PLANS])
def test_the_figures_of_a_linked_plan_are_those_of_its_report(row):
    plan, notes = decode_link(row["query"])
    assert notes == []
    report = evaluate(plan).to_dict()
    figures = FIGURE.findall(row["figures"])
    assert ", ".join(f"`{name}` {value}" for name, value in figures) == row["figures"]
    assert [(name, as_printed(figure(report, name))) for name, _ in figures] == figures


def test_plans_of_the_readme_open_without_a_complaint():
    queries = re.findall(r"http://localhost:8501/\?([^'\s]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert queries
    assert all(decode_link(query)[1] == [] for query in queries)


# Without a browser

HEADLESS = (ROOT / "docs" / "headless.md").read_text(encoding="utf-8")
SHELL = re.compile(r"^    \$ python -m kvplan (?P<command>.+)\n(?P<printed>(?:    .*\n)+)", re.M)
SHOWN = [match.groupdict() for match in SHELL.finditer(HEADLESS)]


@pytest.mark.parametrize("shown", SHOWN, ids=[shown["command"] for shown in SHOWN])
def test_a_shown_command_prints_what_is_shown(shown, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert printed(*shlex.split(shown["command"])) == textwrap.dedent(shown["printed"])


def test_commands_are_shown():
    assert {shown["command"].split()[0] for shown in SHOWN} == {"check", "sweep"}


def test_every_expectation_is_explained_as_the_code_has_it():
    rows = [f"| `{name}` | {each.unit or '–'} | {each.what} |" for name, each in EXPECTATIONS.items()]
    assert "\n".join(rows) in HEADLESS


def test_links_between_documents_lead_somewhere():
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    targets = [
        (path, link) for path in documents for link in re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text("utf-8"))
    ]
    assert targets
    assert [(path.name, link) for path, link in targets if not (path.parent / link).exists()] == []
