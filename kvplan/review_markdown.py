"""A review as Markdown: what stands in it from outside is escaped, and a line stays a line."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.markdown import escape
from kvplan.review import Review, Section, Table
from kvplan.text_tables import is_numbers


def markdown(found: Review) -> str:
    """The whole document."""
    parts = [
        f"# {_safe(found.title)}",
        _safe(found.question),
        f"**{_safe(found.answer)}**",
        _safe(found.reason),
        *(part for section in found.sections for part in _section(section)),
        f"---\n\n{_safe(found.made)}",
        # Indented, it is shown as it is and can be copied.
        f"    {_one_line(found.link)}",
    ]
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> Iterable[str]:
    yield f"## {_safe(section.title)}"
    if section.clause:
        yield f"{_safe(section.clause[:1].upper() + section.clause[1:])}."
    for table in section.tables:
        if table.rows:
            yield from _table(table)
    if section.lines:
        yield "\n".join(f"- {_safe(line)}" for line in section.lines)


def _table(table: Table) -> Iterable[str]:
    if table.caption:
        yield f"**{_safe(table.caption)}**"
    names = list(table.rows[0])
    rules = ["---:" if is_numbers(row[name] for row in table.rows) else "---" for name in names]
    cells = [[_safe(name) for name in names], rules, *([_safe(row[name]) for name in names] for row in table.rows)]
    yield "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _safe(text: str) -> str:
    """A text as Markdown shows it, on one line; an ampersand begins no entity."""
    return escape(_one_line(text)).replace("&", "\\&")


def _one_line(text: str) -> str:
    return " ".join(text.split())
