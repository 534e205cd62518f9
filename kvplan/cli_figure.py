"""The command `figure`: a chart of the pages as HTML that works offline, or as plotly's JSON."""

from __future__ import annotations

import argparse

from kvplan.charts import CHARTS
from kvplan.cli_options import (
    BadInput,
    add_output,
    add_plan_options,
    evaluated,
    output_of,
    plan_of,
    require,
    trace_of,
    write_output,
)
from kvplan.links import encode_link
from kvplan.report import Report
from kvplan.specs import nearest, shorten
from kvplan.units import capitalised

ENDINGS = {".html": "html", ".json": "json"}
THEMES = ("light", "dark")


def add(commands) -> None:
    """The command, among the others."""
    command = commands.add_parser(
        "figure",
        help="a chart of the pages, as HTML or JSON",
        epilog=f"charts:\n{_listed()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("name", metavar="NAME", nargs="?", help="a chart, see below")
    command.add_argument("--list", action="store_true", help="print the charts")
    command.add_argument("--theme", choices=THEMES, default="light", help="its colours, light without it")
    add_plan_options(command)
    add_output(command, ENDINGS, "plotly's JSON on standard output")
    command.set_defaults(run=_figure)


def _listed() -> str:
    return "\n".join(f"  {name:<18}{chart.page}: {chart.what}" for name, chart in CHARTS.items())


def _figure(options: argparse.Namespace) -> None:
    if options.list:
        print(_listed())
        return
    name = _name(options.name)
    path, form = output_of(options.output, ENDINGS, "json")
    require("plotly", "figure", "a chart", "dashboard")
    report = evaluated(plan_of(options, trace_of(options)))
    text = _text(report, name, form, options.theme)
    write_output(path, text)


def _name(name: str | None) -> str:
    """A name of the list; what is none is answered with the nearest."""
    if name in CHARTS:
        return name
    if name is None:
        raise BadInput(f"figure: a chart is needed, one of {', '.join(CHARTS)}")
    near = nearest(name, CHARTS, 0.5)
    raise BadInput(f"figure: no chart named {shorten(repr(name))}{near}; there are {', '.join(CHARTS)}")


def _text(report: Report, name: str, form: str, theme: str) -> str:
    from kvplan import figure_html, verdict
    from kvplan.charts import draw
    from kvplan.engine_facts import ENGINE_VERSION
    from kvplan.palette import DARK, LIGHT
    from kvplan.version import VERSION

    palette = DARK if theme == "dark" else LIGHT
    try:
        figure = draw(name, report, palette)
    except ValueError as error:
        raise BadInput(f"{name}: {error}") from None
    if form == "json":
        return f"{figure.to_json()}\n"
    words = (
        capitalised(CHARTS[name].what),
        verdict.plain(verdict.ceiling(report).sentence),
        f"kvplan {VERSION}, rules of {ENGINE_VERSION}. {encode_link(report.plan)}",
    )
    return figure_html.alone(figure, name, words, palette)
