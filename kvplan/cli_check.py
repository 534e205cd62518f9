"""The command `check`: plans held to limits, for CI and before a launch.

Exit code 0 if every limit is met, 1 if one is missed, 2 on bad input; the other files are judged all the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.cli_options import (
    BAD_INPUT,
    BASES,
    BadInput,
    add_plan_options,
    as_json,
    assignment,
    changes,
    evaluated,
    plan_of,
    trace_of,
    warn,
    writing,
)
from kvplan.plan import Plan, from_text
from kvplan.specs import shorten

if TYPE_CHECKING:
    from kvplan.check import CheckResult, PlanResult, Verdict
    from kvplan.expectations import Limit

MISSED = 1
PLAN_OPTIONS = (*BASES, "hf_config", "trace", "column", "set", "vllm_args")
SIGNS = {"min_": "≥", "max_": "≤"}


def add(commands) -> None:
    """The command, among the others."""
    command = commands.add_parser("check", help="plans held to limits: exit code 0 if all are met, 1 if one is missed")
    command.add_argument(
        "files", metavar="FILE", nargs="*", help="JSON or TOML: fields of a plan and a table `expect` of limits"
    )
    command.add_argument(
        "--expect", metavar="NAME=LIMIT", action="append", default=[], help="a limit, on top of the files'; repeatable"
    )
    add_plan_options(command)
    command.add_argument(
        "--vllm-args", metavar="TEXT", help="without files: the plan of a vLLM command line, --set on top of it"
    )
    command.add_argument("--junit", metavar="FILE", help="write the verdicts as JUnit XML too")
    command.add_argument("--json", action="store_true", help="print JSON with stable keys")
    command.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from kvplan.check import together

    limits = _limits(options.expect)
    if options.files:
        _refuse_plan_options(options)
        results = tuple(_of_file(name, limits) for name in options.files)
    else:
        results = (_of_options(options, limits),)
    found = together(results)
    if text := _as_json(found) if options.json else _as_text(found):
        print(text)
    if options.junit is not None:
        _write_junit(Path(options.junit), found)
    if any(result.error is not None for result in results):
        return BAD_INPUT
    return 0 if found.passed else MISSED


def _limits(expect: list[str]) -> dict[str, Limit]:
    """The limits of --expect."""
    from kvplan.check import limits_of

    given = dict(assignment(text, "--expect", "NAME=LIMIT") for text in expect)
    try:
        return limits_of(given, "--expect ") if given else {}
    except ValueError as error:
        raise BadInput(str(error)) from None


def _refuse_plan_options(options: argparse.Namespace) -> None:
    for name in PLAN_OPTIONS:
        if getattr(options, name):
            raise BadInput(f"--{name.replace('_', '-')}: cannot be given with files, as each of them is a plan")


def _of_file(name: str, limits: Mapping[str, Limit]) -> PlanResult:
    """The verdicts on one file; what cannot be read is one line on standard error."""
    from kvplan.check import judged, unusable
    from kvplan.plan_files import read_plan_file

    try:
        found = read_plan_file(Path(name), limits)
    except ValueError as error:
        print(f"kvplan: {shorten(name, 200)}: {error}", file=sys.stderr)
        return unusable(name, str(error))
    warn(f"{shorten(name, 200)}: {line}" for line in changes(found.recorded))
    return judged(found.plan, found.expect, name, found.name)


def _of_options(options: argparse.Namespace, limits: Mapping[str, Limit]) -> PlanResult:
    """The verdicts on the plan of the options."""
    from kvplan.check import judged

    if not limits:
        raise BadInput("--expect: nothing to check, give NAME=LIMIT or files with a table expect")
    plan = plan_of(options, trace_of(options)) if options.vllm_args is None else _plan_of_vllm_args(options)
    evaluated(plan)
    return judged(plan, limits)


def _plan_of_vllm_args(options: argparse.Namespace) -> Plan:
    """The plan of a vLLM command line: --preset, --link or --plan below it, --hf-config and --set on top."""
    from kvplan.vllm_args import fields_for, read_vllm_args, remarks

    chosen = dict(assignment(text) for text in options.set)
    try:
        args = read_vllm_args(options.vllm_args)
        named = _named(options, chosen, args.model)
        below = plan_of(argparse.Namespace(**vars(options) | {"set": [*named, *options.set]}), trace_of(options))
        fields, notes = fields_for(args, evaluated(below).setting.model)
        plan, _ = from_text({name: value for name, value in fields.items() if name not in chosen}, below)
    except ValueError as error:
        raise BadInput(str(error)) from None
    warn([*remarks(args), *notes])
    return _fitted(plan) if args.fits_context and "context" not in chosen else plan


def _named(options: argparse.Namespace, chosen: Mapping[str, str], model: str | None) -> list[str]:
    """The model of a command line as a field to set, where no option names another."""
    from kvplan.checkpoints import preset_of

    if options.hf_config is not None or {"model", "spec"} & chosen.keys():
        return []
    if model is not None:
        preset = preset_of(model)
        return [f"model={preset.id if preset else model}"]
    if all(getattr(options, name) is None for name in BASES):
        raise BadInput("--vllm-args: names no model; give --hf-config, or --set model=NAME")
    return []


def _fitted(plan: Plan) -> Plan:
    """The plan at the longest context that fits, or as it is where none does."""
    from kvplan.expectations import Facts

    longest = Facts(evaluated(plan)).longest_context
    return plan.model_copy(update={"context": longest or plan.context})


def _write_junit(path: Path, found: CheckResult) -> None:
    from kvplan.junit import junit_xml

    with writing(path, "--junit"):
        path.write_bytes(junit_xml(found))


def _as_json(found: CheckResult) -> str:
    from pydantic import TypeAdapter

    return as_json(TypeAdapter(type(found)).dump_python(found, mode="json"))


def _as_text(found: CheckResult) -> str:
    return "\n\n".join(_lines(result) for result in found.files if result.error is None)


def _lines(result: PlanResult) -> str:
    """One plan: the verdict's sentence, and a line for each limit."""
    words = [shorten(word, 200) for word in (result.file, result.name) if word is not None]
    return "\n".join([": ".join([*words, result.sentence]), *(_line(each, result) for each in result.expectations)])


def _line(verdict: Verdict, result: PlanResult) -> str:
    from kvplan.check import figure

    share = None if verdict.margin is None or not verdict.limit else verdict.margin / verdict.limit
    margin = "" if verdict.margin is None else f"{'+' if verdict.margin >= 0 else ''}{figure(verdict.margin)}"
    columns = (
        f"  {'ok' if verdict.passed else 'MISS':<5} {verdict.name:<27}{figure(verdict.value):>14} "
        f"{SIGNS.get(verdict.name[:4], '=')} {figure(verdict.limit):>14}{margin:>12}"
        f"{'' if share is None else f'{share:+,.1%}':>10}  {verdict.unit}"
    )
    # Why a plan cannot be served stands above.
    reason = "" if verdict.reason in (None, result.sentence) else f"  {verdict.reason}"
    return f"{columns}{reason}".rstrip()
