"""How long it takes to import kvplan and to answer one command, beside an interpreter that loads what it builds on.

python benchmarks/start.py
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from timing import Row, in_turns, table

RUNS = 7
LIBRARIES = ("-c", "import numpy, pydantic")
STARTS = {
    "import kvplan": ("-c", "import kvplan"),
    "kvplan --version": ("-m", "kvplan", "--version"),
    "kvplan report --json": ("-m", "kvplan", "report", "--json"),
    "kvplan sweep, 6 plans": ("-m", "kvplan", "sweep", "--axis", "context=1024:4096:x2", "--axis", "tp=1,2"),
    "kvplan check": ("-m", "kvplan", "check", "--expect", "min_batch_ceiling=1"),
}


def run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def rows() -> Iterator[Row]:
    """Seconds of whole processes."""
    for name, arguments in STARTS.items():
        ours, theirs = in_turns(lambda arguments=arguments: run(*arguments), lambda: run(*LIBRARIES), RUNS)
        yield Row(f"start: {name}", ours, "import numpy, pydantic", theirs, "s")


if __name__ == "__main__":
    print(table(rows()))
