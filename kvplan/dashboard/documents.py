"""The documents of docs/ as the Help page shows them: titles, text with links that work in the app, long tables apart.

They belong to the source tree, as the app does; where there are none, there is nothing to show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kvplan.dashboard.address import DOCUMENT

FOLDER = Path(__file__).parents[2] / "docs"
TITLES = {
    "accuracy": "Accuracy",
    "throughput": "Step times",
    "first-steps": "First steps",
    "formulas": "Formulas",
    "engine-rules": "Engine rules",
    "workloads": "Workloads",
    "links": "Links",
    "headless": "Without a browser",
    "serving": "Serving",
    "limits": "Limits",
    "safety": "Safety",
    "why-the-engine-says-something-else": "Why engines differ",
    "glossary": "Glossary",
}
"""Every document by its file's name, in the order in which Help offers them."""
FIRST = next(iter(TITLES))
"""What Help shows where nothing is asked for."""
REASONS = "why-the-engine-says-something-else"
LONGEST_TABLE = 25
"""Rows of a table that is shown whole; a longer one scrolls and can be sorted."""
DASHBOARD = "http://localhost:8501/"
"""Where the documents' links to plans point."""
TABLE = re.compile(r"(?:^\|.*\|\n)+", re.M)
CELL_END = re.compile(r"(?<!\\)\|")
LINK = re.compile(r"\[(?P<text>(?:`[^`]*`|[^\]`])+)\]\((?P<file>(?!http|#|\./\?)[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
OWN = re.compile(r"\]\(#(?P<anchor>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)
CAPITALS = (
    r"([A-Z]{2,})(\d+)", r"([a-z\d]+)([A-Z]{2,})", r"([a-z\d]+)([A-Z][a-z\d]+)", r"([A-Z]+)([A-Z][a-rt-z\d]+)",
)  # fmt: skip
"""Where Streamlit parts a heading's word in two, in this order: vLLM, SGLang, but GPUs is one."""
CODE = re.compile(r"^```.*?^```$", re.M | re.S)


@dataclass(frozen=True)
class Document:
    """A page of docs/ without its first line, which is the `title`."""

    name: str
    title: str
    text: str


@dataclass(frozen=True)
class Table:
    """The rows of a table by their columns: of Markdown, or plain text and numbers where it is `long`."""

    rows: list[dict]
    long: bool


@lru_cache(maxsize=4)
def documents(folder: Path) -> dict[str, Document]:
    """The documents of a folder by their short titles, read once; none where they are not there."""
    found = {}
    for name, short in TITLES.items():
        path = folder / f"{name}.md"
        if path.is_file():
            title, _, text = _read(path).partition("\n")
            found[short] = Document(name, title.lstrip("# "), text)
    return found


def parts(document: Document, folder: Path, query: str) -> Iterator[str | Table]:
    """What a document shows, in order: Markdown, and each table by itself. `query` is the plan in the address, which
    links to other documents keep."""
    start = 0
    for match in TABLE.finditer(document.text):
        yield linked(document.text[start : match.start()], document.text, folder, query)
        yield _table(linked(match[0], document.text, folder, query))
        start = match.end()
    yield linked(document.text[start:], document.text, folder, query)


def linked(part: str, whole: str, folder: Path, query: str) -> str:
    """A part of the text `whole` with the app's own links: plans, other documents, and headings under the app's
    anchors. A link to any other file is its words alone."""

    def to_document(match: re.Match) -> str:
        name = match["file"].removesuffix(".md")
        if name not in TITLES:
            return match["text"]
        target = _read(folder / match["file"]) if match["anchor"] else ""
        anchor = f"#{app_anchor(match['anchor'], target)}" if match["anchor"] else ""
        words = TITLES[name] if match["text"] == match["file"] else match["text"]
        return f"[{words}]({address(name, query)}{anchor})"

    own = OWN.sub(lambda match: f"](#{app_anchor(match['anchor'], whole)})", part.replace(f"{DASHBOARD}?", "./?"))
    return LINK.sub(to_document, own)


@lru_cache(maxsize=64)
def _read(path: Path) -> str:
    """A file of the folder, read once, as a page that links to its headings asks for it at every run."""
    return path.read_text(encoding="utf-8")


def contents(document: Document) -> str:
    """The sections of a document as a list of links."""
    sections = re.findall(r"^## (.+)$", CODE.sub("", document.text), re.M)
    return "\n".join(f"- [{section}](#{_words(section)})" for section in sections)


def address(name: str, query: str) -> str:
    """Where Help shows a document, with the plan of `query`."""
    return f"./help?{query}&{DOCUMENT}={name}" if query else f"./help?{DOCUMENT}={name}"


def app_anchor(anchor: str, text: str) -> str:
    """The app's anchor of a heading that the documents link by GitHub's."""
    headings = HEADING.findall(CODE.sub("", text))
    return next((_words(heading) for heading in headings if github_anchor(heading) == anchor), anchor)


def github_anchor(heading: str) -> str:
    """A heading's anchor where the documents are read on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _words(heading: str) -> str:
    """The words of a heading joined by hyphens, as Streamlit makes its anchors."""
    for pattern in CAPITALS:
        heading = re.sub(pattern, r"\1 \2", heading)
    return "-".join(re.findall(r"[^\W_]+", heading.replace("'", "").lower()))


def _table(text: str) -> Table:
    header, _, *rows = ([cell.strip() for cell in CELL_END.split(line)[1:-1]] for line in text.splitlines())
    long = len(rows) > LONGEST_TABLE
    columns = [[row[place] for row in rows] for place in range(len(header))]
    cells = zip(*(map(_plain_column, columns) if long else columns), strict=True)
    return Table([dict(zip(header, row, strict=True)) for row in cells], long)


def _plain_column(cells: list[str]) -> list:
    """Numbers where a whole column is of numbers, else text without its marks."""
    try:
        return [float(cell.replace(",", "")) if cell else None for cell in cells]
    except ValueError:
        return [cell.replace("`", "").replace("\\|", "|") for cell in cells]
