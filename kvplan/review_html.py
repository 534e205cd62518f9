"""A review as HTML that needs no other file and no network; its page prints on one sheet of A4 or Letter, details after
it."""

from __future__ import annotations

from html import escape

from kvplan import charts, figure_html
from kvplan.palette import LIGHT
from kvplan.report import Report
from kvplan.review import DETAILS, Review, Section, Table
from kvplan.text_tables import is_numbers
from kvplan.units import capitalised

CHART_HEIGHT = 210
"""Pixels of a chart before it is made smaller, so that its words keep their room."""
COLOURS = f":root {{ --page: {LIGHT.page}; --ink: {LIGHT.ink}; --muted: {LIGHT.muted}; --border: {LIGHT.border}; }}"
STYLE = """
@page { margin: 8mm 12mm; }
body { margin: 0; background: var(--page); color: var(--ink); font: 13px/1.4 system-ui, Roboto, sans-serif; }
main { max-width: 720px; margin: 24px auto; padding: 0 12px; }
h1 { font-size: 21px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 15px; margin: 18px 0 6px; border-bottom: 1px solid var(--border); padding-bottom: 2px; }
h2 span { font-weight: 400; font-size: 12px; color: var(--muted); }
p { margin: 0 0 4px; }
p.answer { font-size: 17px; font-weight: 600; }
p.muted, li, p.made, p.link { color: var(--muted); }
p.muted { font-size: 11.5px; }
p.made, p.link { font-size: 8.5px; margin: 0; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 4px 16px; margin: 6px 0; }
.chart { min-width: 0; overflow: hidden; }
.chart > div { zoom: 0.72; }
.chart h2 { border: 0; margin: 0; font-size: 12px; }
.tables { display: flex; flex-wrap: wrap; gap: 0 24px; align-items: flex-start; }
.table { flex: 1 1 280px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 0 0 8px; font-size: 12px; }
caption { text-align: left; font-weight: 600; padding: 2px 0; }
th, td { text-align: left; padding: 2px 14px 2px 0; border-bottom: 1px solid var(--border); vertical-align: top; }
td { white-space: nowrap; }
td:last-child:not(.number) { width: 100%; white-space: normal; overflow-wrap: anywhere; }
th { font-weight: 600; color: var(--muted); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
ul { margin: 4px 0 8px; padding-left: 18px; font-size: 12px; }
.front { columns: 2 280px; column-gap: 24px; }
.front h2 { margin: 4px 0 2px; break-after: avoid; }
.front .tables { display: block; }
.front .table, .front .assumptions { break-inside: avoid; }
.front th, .front td { padding: 1px 10px 1px 0; }
.front table, .front ul { font-size: 11px; line-height: 1.3; }
.details { break-before: page; }
.sources td { font-size: 10.5px; }
@media (max-width: 600px) { .charts { grid-template-columns: minmax(0, 1fr); } }
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
            f"<div class='charts'>{''.join(_chart(name, report) for name in found.charts)}</div>",
            f"<div class='front'>{''.join(_section(section) for section in found.front)}</div>",
            f"<p class='made'>{escape(found.made)}</p>",
            f"<p class='link'>{_link(found.link)}</p>",
            f"<h1 class='details'>{DETAILS}</h1>",
            *(_section(section) for section in found.details),
            "</main>",
        ]
    )
    return figure_html.page(found.title, COLOURS + STYLE, body)


def _section(section: Section) -> str:
    clause = f" <span>{escape(section.clause)}</span>" if section.clause else ""
    tables = "".join(_table(table) for table in section.tables if table.rows)
    lines = "".join(f"<li>{escape(line)}</li>" for line in section.lines)
    return "\n".join(
        [
            f"<section class='{escape(section.title.split()[0].lower())}'>",
            f"<h2>{escape(section.title)}{clause}</h2>",
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
    """A chart under its title, lower than on its page, so that four stand on a sheet of paper."""
    figure = charts.draw(name, report, LIGHT)
    figure.update_layout(height=CHART_HEIGHT)
    title = escape(capitalised(charts.CHARTS[name].what))
    return f"<div class='chart'><h2>{title}</h2>{figure_html.part(figure, name)}</div>"


def _link(link: str) -> str:
    if link.startswith(("http://", "https://")):
        return f"<a href='{escape(link)}'>{escape(link)}</a>"
    return escape(link)
