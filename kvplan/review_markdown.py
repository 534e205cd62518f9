"""A review as Markdown: what stands in it from outside is escaped, and a line stays a line."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.markdown import escape_line, one_line
from kvplan.review import DETAILS, Review, Section, Table
from kvplan.text_tables import is_numbers


def markdown(found: Review) -> str:
    """The whole document."""
    parts = [
        f"# {escape_line(found.title)}",
        escape_line(found.question),
        f"**{escape_line(found.answer)}**",
        escape_line(found.reason),
        *(part for section in found.front for part in _section(section)),
        escape_line(found.made),
        # Indented, it is shown as it is and can be copied.
        f"    {one_line(found.link)}",
        f"---\n\n# {DETAILS}",
        *(part for section in found.details for part in _section(section)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> Iterable[str]:
    yield f"## {escape_line(section.title)}"
    if section.clause:
        yield f"{escape_line(section.clause[:1].upper() + section.clause[1:])}."
    for table in section.tables:
        if table.rows:
            yield from _table(table)
    if section.lines:
        yield "\n".join(f"- {escape_line(line)}" for line in section.lines)


def _table(table: Table) -> Iterable[str]:
    if table.caption:
        yield f"**{escape_line(table.caption)}**"
    names = list(table.rows[0])
    rules = ["---:" if is_numbers(row[name] for row in table.rows) else "---" for name in names]
    cells = [
        [escape_line(name) for name in names],
        rules,
        *([escape_line(row[name]) for name in names] for row in table.rows),
    ]
    yield "\n".join(f"| {' | '.join(line)} |" for line in cells)
