"""What every command shares: options that name a plan, numbers, progress, JSON, and the one kind of error."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan import catalog
from kvplan.links import compared, decode_link
from kvplan.plan import Plan, from_text
from kvplan.report import Report, evaluate
from kvplan.specs import shorten
from kvplan.texts import spec_text
from kvplan.units import count

if TYPE_CHECKING:
    from kvplan.recorded import Comparison
    from kvplan.scheduler import Progress
    from kvplan.traces import Trace

BAD_INPUT = 2
BASES = ("preset", "link", "plan")
"""Options that name the plan to start from."""


class BadInput(Exception):
    """Input the command cannot use, as one line for the user."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like every other, and which takes no half-written option for another."""

    def __init__(self, **options):
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str):
        raise BadInput(message)


def add_plan_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--preset", metavar="NAME", help="start from a ready plan")
    command.add_argument("--link", metavar="URL", help="start from a shared link")
    command.add_argument("--plan", metavar="FILE", help="start from a plan that was saved as JSON")
    command.add_argument("--hf-config", metavar="FILE", help="take the model from a config.json instead of a preset")
    command.add_argument("--trace", metavar="FILE", help="take lengths and traffic from requests of your own")
    command.add_argument(
        "--column",
        metavar="ROLE=NAME",
        action="append",
        default=[],
        help="where the trace has prompt, output or arrival, if the guess is wrong; may be repeated",
    )
    command.add_argument(
        "--set", metavar="FIELD=VALUE", action="append", default=[], help="set one field of the plan; may be repeated"
    )


def plan_of(options: argparse.Namespace, trace: Trace | None = None) -> Plan:
    """The plan that --preset, --link or --plan names, with the lengths of a trace, the model of --hf-config, and --set
    on top."""
    base = _base(options)
    if trace is not None:
        from kvplan.traces import with_trace

        base = with_trace(base, trace)
    model = {} if options.hf_config is None else {"spec": packed_model(Path(options.hf_config))}
    plan, dropped = from_text(model | dict(assignment(text) for text in options.set), base)
    if dropped:
        raise BadInput("; ".join(f"{shorten(name)}: {reason}" for name, reason in dropped.items()))
    return plan


def _base(options: argparse.Namespace) -> Plan:
    """The plan to start from; what was dropped from it goes to standard error."""
    given = [f"--{name}" for name in BASES if getattr(options, name) is not None]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)}: only one of them can be given")
    if options.link is not None:
        plan, notes = decode_link(options.link)
        warn([f"ignored from the link: {note}" for note in notes])
        warn(changes(compared(options.link)))
        return plan
    if options.plan is not None:
        return _saved_plan(Path(options.plan))
    try:
        return Plan() if options.preset is None else catalog.load_preset(options.preset, "plan")
    except ValueError as error:
        raise BadInput(str(error)) from None


def _saved_plan(path: Path) -> Plan:
    from kvplan.plan_json import MAX_BYTES, plan_from_json

    try:
        with path.open("rb") as file:
            plan, notes = plan_from_json(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise BadInput(f"--plan: {shorten(str(path))} cannot be read, {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"--plan: {shorten(str(path))}: {error}") from None
    warn([f"ignored from the plan: {note}" for note in notes])
    return plan


def changes(found: Comparison | None) -> tuple[str, ...]:
    """What a link recorded and is no longer so; nothing where all of it is."""
    return found.lines if found is not None and found.changes else ()


def warn(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"kvplan: {line}", file=sys.stderr)


def trace_of(options: argparse.Namespace) -> Trace | None:
    """The requests of --trace; how the file was read goes to standard error."""
    if options.trace is None:
        if options.column:
            raise BadInput("--column: names a column of --trace, and none is given")
        return None
    from kvplan.traces import read_trace, remarks

    try:
        columns = dict(assignment(text, "--column", "ROLE=NAME") for text in options.column)
        trace = read_trace(Path(options.trace), columns=columns)
    except ValueError as error:
        raise BadInput(f"--trace: {error}") from None
    warn([f"{trace.name}: {count(trace.prompts.size)} requests, {trace.format}"])
    warn(remarks(trace))
    return trace


def packed_model(path: Path) -> str:
    from kvplan.hf_config import model_from_hf_config

    try:
        return spec_text(model_from_hf_config(path))
    except OSError as error:
        raise BadInput(f"--hf-config: {shorten(str(path))} cannot be read, {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"--hf-config: {error}") from None


def assignment(text: str, option: str = "--set", form: str = "FIELD=VALUE") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"{option}: must be {form}, got {shorten(repr(text))}")
    return name.strip(), value.strip()


def evaluated(plan: Plan) -> Report:
    """The report; an id that no preset has is bad input, not an answer."""
    report = evaluate(plan)
    if report.setting is None:
        raise BadInput(report.engine.refused)
    return report


def as_json(answer) -> str:
    return json.dumps(answer, indent=2, allow_nan=False)


def whole_number(option: str, text: str, most: int) -> int:
    if not (text.isdecimal() and text.isascii() and 1 <= len(text) <= 12 and 1 <= int(text) <= most):
        raise BadInput(f"{option}: must be a whole number from 1 to {most:,}, got {shorten(repr(text))}")
    return int(text)


def require(package: str, option: str, what: str, extra: str) -> None:
    """Says at once, not after the work, that a package is missing."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise BadInput(f"{option}: {what} needs {package}, which comes with pip install 'kvplan[{extra}]'")


def add_output(command: argparse.ArgumentParser, endings: Mapping[str, str], without: str) -> None:
    command.add_argument(
        "-o", "--output", metavar="FILE", help=f"a file ending in {', '.join(endings)}; without it {without}"
    )


def output_of(name: str | None, endings: Mapping[str, str], usual: str) -> tuple[Path | None, str]:
    """Where the output goes, None for standard output, and in which format: the usual one, or that of its ending."""
    if name is None:
        return None, usual
    path = Path(name)
    if path.suffix not in endings:
        raise BadInput(f"-o: must end in {', '.join(endings)}, got {shorten(repr(name))}")
    return path, endings[path.suffix]


def write_output(path: Path | None, text: str) -> None:
    """A text to a file, or to standard output."""
    if path is None:
        sys.stdout.write(text)
        return
    with writing(path):
        path.write_text(text, encoding="utf-8")


@contextmanager
def writing(path: Path, option: str = "-o") -> Iterator[None]:
    """A file that cannot be written is one line with the option that asked for it."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{option}: {shorten(str(path))} cannot be written, {error.strerror}") from None


def progress_bar() -> Progress | None:
    """How far a run is, on a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        return None
    return lambda done, total: print(
        f"\r{done / max(1, total):5.0%}", end="\n" if done == total else "", file=sys.stderr
    )
