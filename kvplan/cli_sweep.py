"""The command `sweep`: a grid of plans as CSV, JSON or Parquet, counted here, in processes or on a Dask cluster."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan import catalog
from kvplan.cli_options import (
    BadInput,
    add_output,
    add_plan_options,
    assignment,
    evaluated,
    output_of,
    plan_of,
    progress_bar,
    require,
    trace_of,
    whole_number,
    writing,
)
from kvplan.plan import Plan
from kvplan.specs import shorten
from kvplan.units import count

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kvplan.sweep import Sweep

MOST_PROCESSES = 256
CONNECT_S = 10
IDS = ("model", "gpu", "workload")
"""Fields that name a preset."""
ENDINGS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}


def add(commands) -> None:
    """The command, among the others."""
    command = commands.add_parser("sweep", help="a grid of plans: every number of each as a table")
    add_plan_options(command)
    command.add_argument(
        "--axis",
        metavar="FIELD=VALUES",
        action="append",
        default=[],
        help="a field of the plan and its values: 1,2,4 or 1024:131072:x2 (:1024, :lin25, :log25); may be repeated, "
        "and the last moves first",
    )
    command.add_argument(
        "--columns",
        metavar="PATHS",
        action="append",
        default=[],
        help="paths or parts of a report or a simulation, with commas; without it cache, memory, engine and capacity",
    )
    add_output(command, ENDINGS, "CSV on standard output")
    command.add_argument("--json", action="store_true", help="print JSON with stable keys instead of CSV")
    where = command.add_mutually_exclusive_group()
    where.add_argument("--processes", metavar="N", help="share the work among so many processes")
    where.add_argument("--dask", metavar="ADDRESS", help="run it on a Dask cluster, e.g. tcp://scheduler:8786")
    command.set_defaults(run=_sweep)


def _sweep(options: argparse.Namespace) -> None:
    from kvplan import sweep_files
    from kvplan.sweep import column_names

    output, form = _output(options)
    plan, axes = plan_of(options, trace_of(options)), _axes(options.axis)
    evaluated(plan)
    try:
        names = column_names([path.strip() for text in options.columns for path in text.split(",")] or None)
    except ValueError as error:
        raise BadInput(f"--{error}") from None
    found = _run(options, plan, axes, names, output)
    if output is None:
        sweep_files.write_text(found, form, sys.stdout)
        return
    with writing(output):
        sweep_files.write_file(found, form, output)
    _partial(output).unlink(missing_ok=True)
    print(f"kvplan: {count(math.prod(found.shape))} plans in {shorten(str(output), 200)}", file=sys.stderr)


def _output(options: argparse.Namespace) -> tuple[Path | None, str]:
    """Where the table goes, and in which format."""
    path, form = output_of(options.output, ENDINGS, "json" if options.json else "csv")
    if path is not None and options.json:
        raise BadInput(f"-o: --json is for standard output, got {shorten(repr(options.output))}")
    if form == "parquet":
        require("pyarrow", "-o", "a .parquet file", "dashboard")
    return path, form


def _axes(texts: list[str]) -> dict[str, list]:
    from kvplan.axes import axis_from_text

    axes = {}
    for text in texts:
        name, values = assignment(text, "--axis", "FIELD=VALUES")
        if name in axes:
            raise BadInput(f"--axis: {name} is given twice")
        try:
            axes[name] = axis_from_text(name, values)
            for value in axes[name] if name in IDS else []:
                catalog.load_preset(value, name)
        except ValueError as error:
            raise BadInput(f"--axis: {error}") from None
    if not axes:
        raise BadInput("--axis: at least one is needed, e.g. --axis context=1024:131072:x2")
    return axes


def _partial(output: Path) -> Path:
    return output.with_name(f"{output.name}.partial")


def _run(
    options: argparse.Namespace, plan: Plan, axes: dict[str, list], names: list[str], output: Path | None
) -> Sweep:
    from kvplan.sweep import sweep

    done, finished = _blocks(plan, axes, names, output)
    with _executor(options) as executor:
        try:
            return sweep(plan, axes, executor, columns=names, progress=progress_bar(), done=done, finished=finished)
        except ValueError as error:
            raise BadInput(str(error)) from None


def _blocks(plan: Plan, axes: dict[str, list], names: list[str], output: Path | None):
    """The blocks of an interrupted run and what keeps those of this one; neither where all is counted at once, which
    takes less time than reading it."""
    from kvplan import sweep_files
    from kvplan.sweep import is_counted_at_once

    if output is None or is_counted_at_once(names):
        return None, None
    path = _partial(output)
    try:
        with writing(path):
            done = sweep_files.read_blocks(path, sweep_files.header(plan, axes, names))
    except ValueError as error:
        raise BadInput(f"-o: {error}") from None
    if done:
        print(f"kvplan: going on from {shorten(str(path), 200)}", file=sys.stderr)
    return done, sweep_files.block_writer(path)


@contextmanager
def _executor(options: argparse.Namespace) -> Iterator[Executor | None]:
    """Who runs the blocks; what goes wrong elsewhere is one line here."""
    if options.processes is not None:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(whole_number("--processes", options.processes, MOST_PROCESSES)) as executor:
            yield executor
    elif options.dask is not None:
        with _dask(options.dask) as executor:
            yield executor
    else:
        yield None


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """The executor of a cluster that is there; scheduling, retries and data are its own."""
    require("distributed", "--dask", "a cluster", "dask")
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError, TimeoutError) as error:
        raise BadInput(f"--dask: no scheduler answers at {shorten(repr(address))}: {_first_line(error)}") from None
    with client:
        try:
            yield client.get_executor()
        except BadInput:
            raise
        except Exception as error:  # whatever a worker raised comes back here
            raise BadInput(f"--dask: {type(error).__name__}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return shorten(str(error).partition("\n")[0], 200)
