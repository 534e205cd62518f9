"""Every benchmark that needs no browser, as one table of ratios in a file.

    python benchmarks/run.py [-o FILE] [ONLY ...]

Each figure is the best of several runs beside a reference in the same process and the same minute, so that the ratio
means something on a machine that is slow or busy. Other planners are measured where they are installed.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path

import batching
import evaluate
import simulate
import start
from timing import Row, table

from kvplan.version import VERSION

RESULTS = Path(__file__).with_name("results.md")


def rerun_rows() -> Iterator[Row]:
    """The dashboard, which is imported last as it brings warnings and threads of its own."""
    import rerun

    return rerun.rows()


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "evaluate": evaluate.rows,
    "drain": batching.rows,
    "simulate": simulate.rows,
    "start": start.rows,
    "rerun": rerun_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", choices=[*PARTS, []], help="parts; all of them without any")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="where the table goes")
    options = parser.parse_args()
    head = (
        f"kvplan {VERSION}, {date.today()}, Python {platform.python_version()}, numpy {version('numpy')}, "
        f"{os.cpu_count()} cores, {platform.machine()}. One core is used."
    )
    found = [row for part in options.only or PARTS for row in PARTS[part]()]
    text = f"# Speed\n\n{head}\n\n{table(found)}\n"
    options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
