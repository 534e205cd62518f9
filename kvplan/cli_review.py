"""The command `review`: a plan as a document, in Markdown or as one page of HTML."""

from __future__ import annotations

import argparse

from kvplan.cli_options import (
    add_output,
    add_plan_options,
    evaluated,
    output_of,
    plan_of,
    require,
    trace_of,
    write_output,
)

ENDINGS = {".md": "md", ".html": "html"}


def add(commands) -> None:
    """The command, among the others."""
    command = commands.add_parser("review", help="a capacity review to send around, as Markdown or HTML")
    add_plan_options(command)
    command.add_argument("--base", default="", help="address of the dashboard, put before the link")
    add_output(command, ENDINGS, "Markdown on standard output")
    command.set_defaults(run=_review)


def _review(options: argparse.Namespace) -> None:
    from datetime import date

    from kvplan.review import review
    from kvplan.review_markdown import markdown

    path, form = output_of(options.output, ENDINGS, "md")
    if form == "html":
        require("plotly", "-o", "a .html file", "dashboard")
    report = evaluated(plan_of(options, trace_of(options)))
    found = review(report, date.today(), options.base)
    if form == "html":
        from kvplan.review_html import html

        write_output(path, html(found, report))
    else:
        write_output(path, markdown(found))
