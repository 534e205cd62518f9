"""The commands `ceiling`, `batching`, `paging` and `throughput`: the curves and tables of the pages of that name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvplan.cli_options import BadInput, add_plan_options, as_json, evaluated, plan_of, trace_of
from kvplan.specs import shorten

if TYPE_CHECKING:
    from kvplan.answers import Answer

MOST_POINTS = 10_000
RANGE = "values as 1,2,4 or a range such as 1024:131072:x2 (:1024, :lin25, :log25)"


def add(commands) -> None:
    """The commands, among the others."""
    ceiling = _add(commands, "ceiling", _ceiling, "sequences that fit, against context, and with other dtypes and tp")
    ceiling.add_argument("--contexts", metavar="VALUES", help=f"contexts in tokens, {RANGE}")
    batching = _add(commands, "batching", _batching, "what static batches leave idle, against batch, and a backlog")
    batching.add_argument("--batches", metavar="VALUES", help=f"batches, {RANGE}")
    paging = _add(commands, "paging", _paging, "what the block size wastes and costs, and what paging saved")
    paging.add_argument("--blocks", metavar="VALUES", help=f"block sizes in tokens, {RANGE}")
    paging.add_argument("--allocator", metavar="NAME", help="of contiguous extents: buddy (the default) or first fit")
    throughput = _add(commands, "throughput", _throughput, "rates and latencies against batch, and the roofline")
    throughput.add_argument("--batches", metavar="VALUES", help=f"batches, {RANGE}")


def _add(commands, name: str, answer, help: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=help)
    add_plan_options(command)
    command.add_argument("--json", action="store_true", help="print JSON with stable keys")
    command.set_defaults(run=_run, answer=answer)
    return command


def _run(options: argparse.Namespace) -> None:
    from kvplan.answer_words import text
    from kvplan.answers import to_dict

    found = options.answer(options)
    print(as_json(to_dict(found)) if options.json else text(found))


def _report(options: argparse.Namespace):
    return evaluated(plan_of(options, trace_of(options)))


def _ceiling(options: argparse.Namespace) -> Answer:
    from kvplan import answers

    contexts = _points("--contexts", "context", options.contexts)
    return answers.ceiling(_report(options), contexts)


def _batching(options: argparse.Namespace) -> Answer:
    from kvplan import answers

    batches = _points("--batches", "batch", options.batches)
    return answers.batching(_report(options), batches)


def _paging(options: argparse.Namespace) -> Answer:
    from kvplan import answers
    from kvplan.allocators import ALLOCATORS, BUDDY

    sizes, allocator = _points("--blocks", "block_size", options.blocks), options.allocator or BUDDY
    if allocator not in ALLOCATORS:
        raise BadInput(f"--allocator: must be one of {', '.join(ALLOCATORS)}, got {shorten(repr(allocator))}")
    return answers.paging(_report(options), sizes, allocator)


def _throughput(options: argparse.Namespace) -> Answer:
    from kvplan import answers

    batches = _points("--batches", "batch", options.batches)
    return answers.throughput(_report(options), batches)


def _points(option: str, field: str, text: str | None) -> list[int] | None:
    """The values of an option, in ascending order, as a plan's field takes them; None where it is not given."""
    from kvplan.axes import axis_from_text

    if text is None:
        return None
    try:
        values = axis_from_text(field, text, MOST_POINTS)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from None
    if None in values:
        raise BadInput(f"{option}: must be numbers, got 'auto'")
    return sorted(values)
