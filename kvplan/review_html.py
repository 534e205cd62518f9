"""A review as one page of HTML that needs no other file and no network, and prints on A4 and Letter."""

from __future__ import annotations

from html import escape

from kvplan import charts, figure_html
from kvplan.palette import LIGHT
from kvplan.report import Report
from kvplan.review import Review, Section, Table
from kvplan.text_tables import is_numbers

CHART_HEIGHT = 300
COLOURS = f":root {{ --page: {LIGHT.page}; --ink: {LIGHT.ink}; --muted: {LIGHT.muted}; --border: {LIGHT.border}; }}"
STYLE = """
@page { margin: 14mm; }
body { margin: 0; background: var(--page); color: var(--ink); font: 13px/1.4 system-ui, Roboto, sans-serif; }
main { max-width: 680px; margin: 24px auto; padding: 0 12px; }
h1 { font-size: 21px; line-height: 1.25; margin: 0 0 6px; }
h2 { font-size: 15px; margin: 20px 0 6px; border-bottom: 1px solid var(--border); padding-bottom: 2px; }
h2 span { font-weight: 400; font-size: 12px; color: var(--muted); }
p { margin: 0 0 6px; }
p.answer { font-size: 17px; font-weight: 600; }
p.muted, li, p.made, p.link { color: var(--muted); }
p.made, p.link { font-size: 11px; overflow-wrap: anywhere; }
.plan .tables { display: flex; flex-wrap: wrap; gap: 0 24px; align-items: flex-start; }
.table { flex: 1 1 280px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 0 0 8px; font-size: 12px; }
caption { text-align: left; font-weight: 600; padding: 2px 0; }
th, td { text-align: left; padding: 2px 14px 2px 0; border-bottom: 1px solid var(--border); vertical-align: top; }
td { white-space: nowrap; }
td:last-child:not(.number) { width: 100%; white-space: normal; overflow-wrap: anywhere; }
th { font-weight: 600; color: var(--muted); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
ul { margin: 4px 0 8px; padding-left: 18px; font-size: 12px; }
.sources td { font-size: 10.5px; }
@media print {
  main { margin: 0 auto; padding: 0; }
  h2, caption { break-after: avoid; }
  .table, .chart, table, tr, li { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def html(found: Review, report: Report) -> str:
    """The whole page; its charts are drawn from the report."""
    body = "\n".join(
        [
            "<main>",
            f"<h1>{escape(found.title)}</h1>",
            f"<p class='muted'>{escape(found.question)}</p>",
            f"<p class='answer'>{escape(found.answer)}</p>",
            f"<p>{escape(found.reason)}</p>",
            *(_section(section, report) for section in found.sections),
            f"<p class='made'>{escape(found.made)}</p>",
            f"<p class='link'>{_link(found.link)}</p>",
            "</main>",
        ]
    )
    return figure_html.page(found.title, COLOURS + STYLE, body)


def _section(section: Section, report: Report) -> str:
    clause = f" <span>{escape(section.clause)}</span>" if section.clause else ""
    tables = "".join(_table(table) for table in section.tables if table.rows)
    lines = "".join(f"<li>{escape(line)}</li>" for line in section.lines)
    return "\n".join(
        [
            f"<section class='{escape(section.title.split()[0].lower())}'>",
            f"<h2>{escape(section.title)}{clause}</h2>",
            _chart(section.chart, report) if section.chart else "",
            f"<div class='tables'>{tables}</div>" if tables else "",
            f"<ul>{lines}</ul>" if lines else "",
            "</section>",
        ]
    )


def _table(table: Table) -> str:
    names = list(table.rows[0])
    classes = {name: " class='number'" if is_numbers(row[name] for row in table.rows) else "" for name in names}
    head = "".join(f"<th{classes[name]}>{escape(name)}</th>" for name in names)
    rows = "".join(
        f"<tr>{''.join(f'<td{classes[name]}>{escape(row[name])}</td>' for name in names)}</tr>" for row in table.rows
    )
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return f"<div class='table'><table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"


def _chart(name: str, report: Report) -> str:
    """A chart, lower than on its page, so that a sheet of paper holds more."""
    figure = charts.draw(name, report, LIGHT)
    figure.update_layout(height=min(figure.layout.height, CHART_HEIGHT))
    return f"<div class='chart'>{figure_html.part(figure, name)}</div>"


def _link(link: str) -> str:
    if link.startswith(("http://", "https://")):
        return f"<a href='{escape(link)}'>{escape(link)}</a>"
    return escape(link)
