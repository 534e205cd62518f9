"""The command line: the same report as the dashboard, as text or JSON.

Exit code 0 on success, 2 with one clear line on bad input.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan import catalog, cli_check, cli_curves, cli_figure, cli_review, cli_sweep
from kvplan.cli_options import (
    BAD_INPUT,
    BadInput,
    Parser,
    add_plan_options,
    as_json,
    assignment,
    evaluated,
    packed_model,
    plan_of,
    progress_bar,
    trace_of,
    whole_number,
)
from kvplan.links import encode_link
from kvplan.plan import Plan
from kvplan.report import Report, evaluate
from kvplan.specs import GpuSpec, ModelSpec, describe, shorten
from kvplan.units import count, gib
from kvplan.version import VERSION

if TYPE_CHECKING:
    from kvplan.log_comparison import Comparison
    from kvplan.pool import Runs

MOST_REQUESTS = 10**8
LONGEST_PROBLEM = 2_000
"""Characters of a message about bad input, of which no value can have more than a few."""
INTERRUPTED = 130
"""What shells expect of a command that was interrupted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Not every terminal and pipe knows ± and ×.
        sys.stdout.reconfigure(errors="replace")
    try:
        options = _parser().parse_args(arguments)
        code = options.run(options) or 0
        sys.stdout.flush()
    except BadInput as problem:
        print(f"kvplan: {shorten(str(problem), LONGEST_PROBLEM)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; nothing is wrong, and nothing is left to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="kvplan", description="KV-cache capacity planning for LLM serving.")
    parser.add_argument("--version", action="version", version=f"kvplan {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="command")

    _add_answer(commands, "report", _report, "everything kvplan says of a plan")

    link = commands.add_parser("link", help="the link that opens a plan in the dashboard")
    add_plan_options(link)
    link.add_argument("--base", default="", help="address of the dashboard, put before the query")
    link.add_argument("--short", action="store_true", help="only what differs from the defaults")
    link.set_defaults(run=_link)

    plan = commands.add_parser("plan", help="the plan as a file that the dashboard, --plan and check read (JSON)")
    add_plan_options(plan)
    plan.set_defaults(run=_plan)

    presets = commands.add_parser("presets", help="the models, GPUs, workloads and ready plans in the catalog")
    presets.add_argument("--check", action="store_true", help="exit 2 if any preset is broken")
    presets.add_argument(
        "--find", metavar="WORDS", help='only models: family, size or attention, e.g. "qwen moe <100b"'
    )
    presets.add_argument("--json", action="store_true", help="print every number with its source and confidence")
    presets.set_defaults(run=_presets)

    simulate = _add_answer(
        commands, "simulate", _simulate, "requests through the block pool of a plan, under both policies"
    )
    simulate.add_argument(
        "--requests", metavar="N", help="how many; without it enough for a steady state, or the trace"
    )
    simulate.add_argument(
        "--arrivals",
        choices=("once", "rate"),
        help="all at once, or at the plan's arrival_rate and arrival_cv; else as the trace has them, or at once",
    )
    simulate.add_argument(
        "--preemption", metavar="HOW", default="recompute", help="what a preempted cache costs: recompute or swap"
    )
    _add_answer(commands, "levers", _levers, "one change at a time, and what each does to the ceiling and the cost")
    _add_answer(commands, "fleet", _fleet, "replicas, GPUs and money for the plan's rate and targets, simulated")

    cli_curves.add(commands)
    cli_figure.add(commands)
    cli_review.add(commands)
    cli_check.add(commands)
    cli_sweep.add(commands)

    log = commands.add_parser("log", help="an engine's start-up log: what it states, beside the prediction")
    log.add_argument("file", metavar="FILE", help="the log; - for standard input")
    log.add_argument("--hf-config", metavar="FILE", help="the model's config.json, where it is no preset")
    log.add_argument(
        "--set", metavar="FIELD=VALUE", action="append", default=[], help="a field the log does not state; repeatable"
    )
    log.add_argument("--json", action="store_true", help="print JSON with stable keys")
    log.set_defaults(run=_log)

    schema = commands.add_parser("schema", help="the JSON Schema of what a command prints with --json")
    schema.add_argument("command", metavar="COMMAND", help="a command that takes --json, such as report")
    schema.set_defaults(run=_schema)

    accuracy = commands.add_parser("accuracy", help="predicted beside published, for every public figure (Markdown)")
    accuracy.add_argument("--rates", action="store_true", help="of step times and throughput instead of start-ups")
    accuracy.set_defaults(run=_accuracy)
    return parser


def _add_answer(commands, name: str, run: Callable[[argparse.Namespace], None], help: str) -> argparse.ArgumentParser:
    """A command that says something of a plan, as text or JSON."""
    command = commands.add_parser(name, help=help)
    add_plan_options(command)
    command.add_argument("--json", action="store_true", help="print JSON with stable keys")
    command.set_defaults(run=run)
    return command


def _report(options: argparse.Namespace) -> None:
    report = evaluated(plan_of(options, trace_of(options)))
    print(as_json(report.to_dict()) if options.json else _report_as_text(report))


def _report_as_text(report: Report) -> str:
    from kvplan.report_words import as_text

    return as_text(report)


def _link(options: argparse.Namespace) -> None:
    plan = plan_of(options, trace_of(options))
    evaluated(plan)
    if not options.base.isprintable():
        raise BadInput(f"--base: must be an address, got {shorten(repr(options.base))}")
    print(encode_link(plan, options.base, full=not options.short))


def _plan(options: argparse.Namespace) -> None:
    from kvplan.plan_json import to_json

    plan = plan_of(options, trace_of(options))
    evaluated(plan)
    print(to_json(plan), end="")


def _simulate(options: argparse.Namespace) -> None:
    from kvplan import pool
    from kvplan.traffic import of_trace

    trace = trace_of(options)
    plan = plan_of(options, trace)
    report = evaluated(plan)
    arrivals = pool.arrivals_of(report.setting) if options.arrivals == "rate" else None
    if options.arrivals == "rate" and arrivals is None:
        raise BadInput("--arrivals: the plan has no arrival_rate; give one with --set arrival_rate=...")
    number = None if options.requests is None else whole_number("--requests", options.requests, MOST_REQUESTS)
    if trace is None:
        requests = pool.requests_of(report.setting, number or pool.usual_number(report))
    else:
        if (number or 0) > trace.prompts.size:
            raise BadInput(f"--requests: the trace has {count(trace.prompts.size)}, got {number}")
        requests = of_trace(trace)[:number]
        if options.arrivals == "once":
            requests = [(0, *request[1:]) for request in requests]
    try:
        runs = pool.runs(report, requests, arrivals, options.preemption, progress_bar())
    except ValueError as error:
        raise BadInput(str(error)) from None
    print(as_json(pool.to_dict(plan, runs)) if options.json else _runs_as_text(report, runs))


def _runs_as_text(report: Report, runs: Runs) -> str:
    from kvplan import verdict
    from kvplan.pool import results

    answer = verdict.pool(report, runs)
    rows = [f"  {row['Figure']:<44}{row['Reserve']:>26}{row['On demand']:>26}" for row in results(runs)]
    header = f"  {'':<44}{'reserve':>26}{'on demand':>26}"
    notes = [f"note: {note}" for note in runs.on_demand.outcome.notes]
    return "\n".join([verdict.plain(answer.sentence), verdict.plain(answer.reason), "", header, *rows, *notes])


def _presets(options: argparse.Namespace) -> None:
    if options.find is None:
        found = {kind: list(catalog.library(kind).specs.values()) for kind in catalog.SPECS}
    else:
        found = {"model": catalog.find_models(options.find)}
        if not found["model"]:
            raise BadInput(f"presets: no model matches {shorten(options.find)!r}")
    if options.json:
        rows = {kind: [spec.model_dump(mode="json") for spec in found.get(kind, [])] for kind in catalog.SPECS}
        print(as_json(rows))
    else:
        print("\n".join(line for kind, specs in found.items() for line in [f"{kind}s", *map(_preset_line, specs)]))
    broken = [line for kind in catalog.SPECS for line in catalog.library(kind).broken]
    broken += _not_served() if options.check else []
    for line in broken:
        print(f"kvplan: {line}", file=sys.stderr)
    if broken and options.check:
        raise BadInput(f"presets: {len(broken)} cannot be used")


def _preset_line(spec) -> str:
    """An id with its name, and of models and GPUs what one looks for in them, with a mark where it is not looked up."""
    line = f"  {spec.id:<36} {spec.name}"
    if isinstance(spec, ModelSpec):
        return f"{line:<72} {describe(spec)}"
    if isinstance(spec, GpuSpec):
        mark = spec.sources["total_bytes"].mark
        return f"{line:<72} {gib(spec.total_bytes)}{f', {mark}' if mark else ''}"
    return line


def _not_served() -> list[str]:
    """Models that no report can be made of, although their files are in order."""
    plans = [Plan(model=name, kv_cache_memory_bytes=2**40, context=1024) for name in catalog.presets("model")]
    reports = [(plan.model, evaluate(plan)) for plan in plans]
    return [f"models/{name}.json: {report.engine.refused}" for name, report in reports if not report.engine.fits]


def _log(options: argparse.Namespace) -> None:
    from kvplan.engine_log import parse_engine_log
    from kvplan.log_comparison import compare, to_dict

    changes = dict(assignment(text) for text in options.set)
    if options.hf_config is not None:
        changes = {"spec": packed_model(Path(options.hf_config))} | changes
    try:
        found = compare(parse_engine_log(_log_text(options.file)), changes)
    except ValueError as error:
        raise BadInput(str(error)) from None
    print(as_json(to_dict(found)) if options.json else _log_as_text(found))


def _log_text(name: str) -> str:
    """The text of a log file; what is no text in it is replaced, not refused."""
    from kvplan.log_text import decoded

    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise BadInput(f"{shorten(name)} cannot be read, {error.strerror}") from None
    return decoded(raw)


def _log_as_text(found: Comparison) -> str:
    """What was read with its line, the figures beside their prediction, the reasons, and the calibrated link."""
    from kvplan.log_comparison import figure_text

    log = found.log
    started = f" of {log.starts} starts in the text, the last" if log.starts > 1 else ""
    title = f"{log.engine or 'no engine'} {log.version or ''}".strip()
    read = [f"  line {number:>6}  {name} = {getattr(log, name)}" for name, (number, _) in sorted(log.lines.items())]
    header = f"  {'':<24}{'measured':>14}{'predicted':>14}{'of its pool':>14}  unit"
    rows = [
        f"  {row.figure:<24}" + "".join(f"{figure_text(value):>14}" for value in row[2:]) + f"  {row.unit}"
        for row in found.rows
    ]
    reasons = [f"{reason.figure}: {reason.sentence}" for reason in found.reasons]
    missing = [f"missing: {line}" for line in found.missing]
    failed = [f"failed: {shorten(log.error, 300)}"] if log.error else []
    link = [f"calibrated: {encode_link(found.calibrated, full=False)}"] if found.report else []
    return "\n".join([f"{title}{started}", *failed, "", *read, "", header, *rows, "", *reasons, *missing, *link])


def _levers(options: argparse.Namespace) -> None:
    from kvplan.levers import levers, to_dict
    from kvplan.levers_words import as_text

    plan = plan_of(options, trace_of(options))
    report = evaluated(plan)
    found = levers(report)
    print(as_json(to_dict(plan, found)) if options.json else as_text(report, found))


def _fleet(options: argparse.Namespace) -> None:
    from kvplan.fleet_search import search, to_dict
    from kvplan.fleet_tables import text
    from kvplan.frontier import frontier

    plan = plan_of(options, trace_of(options))
    report = evaluated(plan)
    try:
        found = search(plan, progress=progress_bar())
    except ValueError as error:
        raise BadInput(str(error)) from None
    print(as_json(to_dict(plan, found)) if options.json else text(report, frontier(plan), found))


def _schema(options: argparse.Namespace) -> None:
    from kvplan.schemas import COMMANDS, schema_of

    if options.command not in COMMANDS:
        raise BadInput(f"schema: must be one of {', '.join(COMMANDS)}, got {shorten(repr(options.command))}")
    print(as_json(schema_of(options.command)))


def _accuracy(options: argparse.Namespace) -> None:
    from kvplan import accuracy_document, rate_document

    document = rate_document if options.rates else accuracy_document
    print(document.document(), end="")
