"""The documents say what the code computes: every figure and every link of docs/ and the README."""

import re
from pathlib import Path

import pytest

from kvplan import accuracy_document, decode_link, evaluate, rate_document

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
