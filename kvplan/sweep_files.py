"""A sweep as a file: CSV, JSON or Parquet; and the blocks of one under way, so that it goes on where it stopped."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import numpy as np

from kvplan.plan import Plan
from kvplan.spreadsheets import cell
from kvplan.sweep import Sweep, Values, column
from kvplan.version import VERSION

SCHEMA = "kvplan.sweep/1"
BLOCKS_SCHEMA = "kvplan.sweep-blocks/1"


def to_dict(found: Sweep) -> dict:
    """What `sweep` writes as JSON: the plan, the axes, and each column as a list, the last axis first to move."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "plan": found.plan.model_dump(mode="json"),
        "axes": found.axes,
        "columns": {name: values.ravel().tolist() for name, values in found.columns.items()},
    }


def write_text(found: Sweep, format: str, stream: TextIO) -> None:
    """A sweep as CSV, with a line for each plan and nothing where a value is undefined, or as JSON."""
    if format == "json":
        json.dump(to_dict(found), stream, allow_nan=False)
        stream.write("\n")
        return
    rows = csv.writer(stream, lineterminator="\n")
    rows.writerow([*found.axes, *found.columns])
    rows.writerows([cell(value) if type(value) is str else value for value in record] for record in found.records())


def write_file(found: Sweep, format: str, path: Path) -> None:
    """A sweep as a file that is there whole or not at all. Raises OSError."""
    whole = path.with_name(f"{path.name}.writing")
    try:
        if format == "parquet":
            _write_parquet(found, whole)
        else:
            with whole.open("w", encoding="utf-8", newline="") as stream:
                write_text(found, format, stream)
        os.replace(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def _write_parquet(found: Sweep, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    names = [*found.axes, *found.columns]
    places = np.indices(found.shape).reshape(len(found.shape), -1)
    axes = [
        [values[place] for place in axis] for values, axis in zip(found.axes.values(), places.tolist(), strict=True)
    ]
    columns = [values.ravel().tolist() for values in found.columns.values()]
    parquet.write_table(pyarrow.table(dict(zip(names, [*axes, *columns], strict=True))), path)


def header(plan: Plan, axes: dict[str, list], names: list[str]) -> str:
    """What tells one sweep from another, as the first line of its blocks."""
    parts = {"schema": BLOCKS_SCHEMA, "version": VERSION, "plan": plan.model_dump(mode="json")}
    return json.dumps(parts | {"axes": axes, "columns": names})


def read_blocks(path: Path, header: str) -> dict[int, Values]:
    """The blocks of a sweep that was interrupted, none where it had not begun; what a broken write left is cut off.

    Raises ValueError where the file holds another sweep or something else, and OSError.
    """
    text = path.read_bytes() if path.exists() else b""
    lines = text[: text.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    if lines and lines[0] != header:
        raise ValueError(f"{path.name} holds the blocks of another sweep; remove it, or write to another file")
    path.write_text("".join(f"{line}\n" for line in lines or [header]), encoding="utf-8")
    try:
        return dict(_block(json.loads(line)) for line in lines[1:])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{path.name} holds what is no block of a sweep; remove it") from None


def _block(line: dict) -> tuple[int, Values]:
    return line["block"], {name: column(values).reshape(shape) for name, (shape, values) in line["columns"].items()}


def block_writer(path: Path) -> Callable[[int, Values], None]:
    """Adds a block to the file as a line."""

    def write(number: int, values: Values) -> None:
        columns = {name: (array.shape, array.ravel().tolist()) for name, array in values.items()}
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"block": number, "columns": columns}, allow_nan=False) + "\n")

    return write
